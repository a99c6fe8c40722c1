"""One HTML file that shows a run: results, curves, filled masks, settings; it opens offline and asks for nothing.

In: the folder of a run.  Out: report.html in it.  Every text is escaped, and the page's own policy lets only the three
scripts run whose hashes it names.  Next: charts.py
"""

import base64
import hashlib
import json
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertkit.files import write_atomically
from bertkit.report.charts import POINTS_SHOWN, Chart, charts_of
from bertkit.report.record import Record, read_record
from bertkit.report.samples import samples_html
from bertkit.report.style import STYLE

FILE_NAME = "report.html"
# Draws the figures of the page's data block and follows the window's width; drag to zoom, double-click to go back.
DRAW_SCRIPT = """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [key, figure] of Object.entries(figures)) {
  Plotly.newPlot("chart-" + key, figure.data, figure.layout,
    {responsive: true, displayModeBar: false});
}
"""
RESULT_LABELS = [
    ("masked_lm_accuracy", "Masked tokens: accuracy, held-out", "掩码词元准确率"),
    ("masked_lm_loss", "Masked tokens: loss, held-out", "掩码词元损失"),
    ("next_sentence_accuracy", "Next sentence: accuracy, held-out", "下一句判断准确率"),
    ("next_sentence_loss", "Next sentence: loss, held-out", "下一句判断损失"),
    ("loss", "Sum of losses, held-out", "总损失"),
    ("unigram_loss", "Unigram baseline: loss", "一元词频基线损失"),
    ("global_step", "Steps", "步数"),
    ("parameters", "Parameters", "参数量"),
    ("training_seconds", "Training time", "训练用时"),
    ("tokens_per_second", "Tokens a second, last log step", "每秒词元数"),
]
LAST_EVALUATION = {  # names of metrics.jsonl -> Google's
    "mlm_accuracy": "masked_lm_accuracy",
    "mlm_loss": "masked_lm_loss",
    "nsp_accuracy": "next_sentence_accuracy",
    "nsp_loss": "next_sentence_loss",
    "loss": "loss",
    "step": "global_step",
}


def plotly_is_installed() -> bool:
    """Return whether the extra `report` is there, without importing it."""
    return find_spec("plotly") is not None


def write_report(run_directory: Path) -> Path | None:
    """Write `run_directory`/report.html and return its path; None when plotly is not installed.

    Raises:
        InputError: the folder is no run, or a file in it is damaged.
    """
    if not plotly_is_installed():
        return None
    path = run_directory / FILE_NAME
    write_atomically(path, page_html(read_record(run_directory)))
    return path


def page_html(record: Record) -> str:
    """Return the whole page as text."""
    from plotly.offline import get_plotlyjs

    charts = charts_of(record)
    library = get_plotlyjs()
    sources = " ".join(_hash(script) for script in (library, DRAW_SCRIPT))
    # Images: data only, for plotly's own picture of a chart.  Styles inline: plotly sets them on what it draws.
    policy = f"default-src 'none'; script-src {sources}; img-src data: blob:; style-src 'unsafe-inline'"
    title = f"BERT pre-training: {record.name}"
    sections = [
        _section("Results", "结果", _results_html(record)),
        *(_section(chart.title, chart.title_zh, _chart_html(chart)) for chart in charts),
    ]
    if record.samples:
        sections.append(_section("Filled masks over time", "掩码填充随训练的变化", _samples_html(record)))
    sections.append(_section("Settings", "设置", _settings_html(record)))
    body = "\n".join(sections)
    figures = _json_for_script({chart.key: chart.figure for chart in charts})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>{_notes_html(record)}</header>
{body}
</main>
<script type="application/json" id="figures">{figures}</script>
<script>{library}</script>
<script>{DRAW_SCRIPT}</script>
</body>
</html>
"""


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _json_for_script(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(title: str, title_zh: str, html: str) -> str:
    heading = f'<h2>{escape(title)} <span class=zh lang="zh">{escape(title_zh)}</span></h2>'
    return f"<section>\n{heading}\n{html}\n</section>"


def _notes_html(record: Record) -> str:
    notes = list(record.notes)
    for label, rows in (("training", record.train), ("evaluation", record.validation)):
        if len(rows) > POINTS_SHOWN:
            notes.append(f"The curves show {POINTS_SHOWN:,} of {len(rows):,} {label} points, evenly spaced.")
    command = record.run.get("command")
    html = f"<p class=command><code>{escape(_shown(command))}</code></p>" if command else ""
    return html + "".join(f"<p class=note>{escape(note)}</p>" for note in notes)


def _results_html(record: Record) -> str:
    values = dict(record.run) | dict(record.results)
    if not record.results and record.validation:
        last = record.validation[-1]
        values |= {google: last[ours] for ours, google in LAST_EVALUATION.items() if ours in last}
    if record.train and "tokens_per_second" in record.train[-1]:
        values["tokens_per_second"] = record.train[-1]["tokens_per_second"]
    rows = [
        f'<tr><th scope=row>{escape(label)} <span class=zh lang="zh">{label_zh}</span></th>'
        f"<td>{escape(_result(name, values[name]))}</td></tr>"
        for name, label, label_zh in RESULT_LABELS
        if values.get(name) is not None
    ]
    if not rows:
        return "<p class=note>Nothing has been measured yet.</p>"
    return f"<table class=results>\n{''.join(rows)}\n</table>"


def _result(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _shown(value)
    if name.endswith("accuracy"):
        return f"{value:.1%}"
    if name == "training_seconds":
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes:,} min {seconds:02d} s" if minutes else f"{value:.1f} s"
    return f"{value:.4f}" if name.endswith("loss") else f"{value:,.0f}"


def _chart_html(chart: Chart) -> str:
    label = escape(f"{chart.title}: curves over steps")
    return (
        f"<p>{escape(chart.caption)}</p>\n"
        f'<div class="chart {chart.key}" id="chart-{chart.key}" role="img" aria-label="{label}"></div>'
    )


def _samples_html(record: Record) -> str:
    legend = (
        "<p>Held-out sentences, asked again at each evaluation. <mark class=right>right</mark> is the original token,"
        " <mark class=wrong>wrong</mark> another.</p>"
    )
    return f"{legend}\n{samples_html(record.samples)}"


def _settings_html(record: Record) -> str:
    settings = record.run.get("settings")
    versions = record.run.get("versions")
    shown = {"settings", "versions", "command", *(name for name, _, _ in RESULT_LABELS)}
    others = {name: value for name, value in record.run.items() if name not in shown}
    parts = [("Settings of the run", settings), ("Versions", versions), ("Everything else in run.json", others)]
    blocks = [
        f"<details><summary>{escape(title)}</summary>\n<table class=settings>\n{_pairs_html(pairs)}</table></details>"
        for title, pairs in parts
        if isinstance(pairs, dict) and pairs
    ]
    return "\n".join(blocks) or "<p class=note>run.json holds no settings.</p>"


def _pairs_html(pairs: dict[str, Any]) -> str:
    rows = [
        f"<tr><th scope=row><code>{escape(name)}</code></th><td>{escape(_shown(value))}</td></tr>\n"
        for name, value in pairs.items()
    ]
    return "".join(rows)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
