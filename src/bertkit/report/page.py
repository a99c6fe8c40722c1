"""One HTML file that shows a run: results, curves, filled masks, settings; it opens offline and asks for nothing.

In: the folder of a run.  Out: report.html in it, every text escaped.  Next: charts.py
(What it has in common with the page of a store: frame.py)
"""

import json
from html import escape
from pathlib import Path
from typing import Any

from bertkit.files import write_atomically
from bertkit.report.charts import POINTS_SHOWN, charts_of
from bertkit.report.frame import chart_html, framed_html, plotly_is_installed, section_html
from bertkit.report.record import Record, read_record
from bertkit.report.samples import samples_html

__all__ = ["page_html", "plotly_is_installed", "write_report"]

FILE_NAME = "report.html"
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
    charts = charts_of(record)
    sections = [
        section_html("Results", "结果", _results_html(record)),
        *(section_html(chart.title, chart.title_zh, chart_html(chart, kind="curves")) for chart in charts),
    ]
    if record.samples:
        sections.append(section_html("Filled masks over time", "掩码填充随训练的变化", _samples_html(record)))
    sections.append(section_html("Settings", "设置", _settings_html(record)))
    return framed_html(
        f"BERT pre-training: {record.name}", header=_notes_html(record), sections=sections, charts=charts
    )


def _notes_html(record: Record) -> str:
    notes = list(record.notes)
    for label, rows in (("training", record.train), ("evaluation", record.validation)):
        if len(rows) > POINTS_SHOWN:
            notes.append(f"The curves show {POINTS_SHOWN:,} of {len(rows):,} {label} points, evenly spaced.")
    if record.run.get("evaluated_on") == "train":
        notes.append("Nothing was held out: what is called held-out here is the training text.")
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
