"""One HTML file that shows a run: results, curves, filled masks, settings; it opens offline and asks for nothing.

In: the folder of a run.  Out: report.html in it, every text escaped.  Next: charts.py
(What it has in common with the page of a store: frame.py)
"""

from html import escape
from pathlib import Path
from typing import Any

from bertkit.files import write_atomically
from bertkit.report.charts import charts_of
from bertkit.report.facts import notes_html, settings_html, shown
from bertkit.report.finetuning_page import finetuning_page_html
from bertkit.report.frame import chart_html, framed_html, plotly_is_installed, section_html
from bertkit.report.predictions import read_predictions
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
    path, record = run_directory / FILE_NAME, read_record(run_directory)
    if record.task is None:
        html = page_html(record)
    else:
        html = finetuning_page_html(record, read_predictions(run_directory))
    write_atomically(path, html)
    return path


def page_html(record: Record) -> str:
    """Return the whole page of a pre-training run as text; of a fine-tuning run: finetuning_page.py."""
    charts = charts_of(record)
    sections = [
        section_html("Results", "结果", _results_html(record)),
        *(section_html(chart.title, chart.title_zh, chart_html(chart, kind="curves")) for chart in charts),
    ]
    if record.samples:
        sections.append(section_html("Filled masks over time", "掩码填充随训练的变化", _samples_html(record)))
    sections.append(
        section_html("Settings", "设置", settings_html(record, shown_elsewhere=[name for name, _, _ in RESULT_LABELS]))
    )
    return framed_html(f"BERT pre-training: {record.name}", header=notes_html(record), sections=sections, charts=charts)


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
        return shown(value)
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
