"""One HTML file that shows a fine-tuning run: results, curves, who is taken for whom, the worst errors with their text.

In: a Record and Predictions.  Out: the page as text, every text of the data escaped.  Next: tables.py, mistakes.py
"""

from html import escape
from typing import Any

from bertkit.report.facts import notes_html, settings_html, shown
from bertkit.report.finetuning_charts import finetuning_charts
from bertkit.report.frame import chart_html, framed_html, section_html
from bertkit.report.mistakes import mistakes_html
from bertkit.report.predictions import Predictions
from bertkit.report.record import Record
from bertkit.report.tables import by_class_html, confusion_html, coverage_html, parts_of, results_html

FACTS = (("base", "started from"), ("best_step", "best step"), ("steps", "steps"), ("training_seconds", "seconds"))


def finetuning_page_html(record: Record, predictions: Predictions | None) -> str:
    """Return the whole page as text; of a run that goes on what there is of it."""
    charts = finetuning_charts(record)
    results = record.results or _last_evaluation(record)
    sections = [section_html("Results", "结果", _facts_html(record) + results_html(results))]
    sections += [section_html(chart.title, chart.title_zh, chart_html(chart, kind="curves")) for chart in charts]
    for part, figures in list(parts_of(record.results).items())[-1:]:  # test where there is one
        if isinstance(figures.get("confusion"), dict):
            caption = f"<p>{part}: rows are the classes of the file, columns those of the model.</p>"
            sections.append(section_html("Confusion", "混淆矩阵", caption + confusion_html(figures["confusion"])))
        if isinstance(figures.get("by_class"), dict):
            html = f"<p>{part}</p>{by_class_html(figures['by_class'])}"
            sections.append(section_html("By class", "各类别指标", html))
    if predictions is not None:
        html = mistakes_html(predictions, task=str(record.task))
        sections.append(section_html("Worst errors", "最严重的错误", html))
    coverage = record.run.get("coverage")
    if isinstance(coverage, dict):
        caption = "<p>What the model got to see of the data, and what was cut.</p>"
        sections.append(section_html("Coverage", "数据覆盖", caption + coverage_html(coverage)))
    elsewhere = ["coverage", *(name for name, _ in FACTS)]
    sections.append(section_html("Settings", "设置", settings_html(record, shown_elsewhere=elsewhere)))
    title = f"BERT fine-tuning, {record.task}: {record.name}"
    return framed_html(title, header=notes_html(record), sections=sections, charts=charts)


def _last_evaluation(record: Record) -> dict[str, Any]:
    """The figures of the last evaluation on the way, while a run goes on."""
    if not record.validation:
        return {}
    return {"validation": {name: value for name, value in record.validation[-1].items() if name != "kind"}}


def _facts_html(record: Record) -> str:
    found = [(name, record.run[key]) for key, name in FACTS if record.run.get(key) is not None]
    words = "; ".join(
        f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {shown(value)}" for name, value in found
    )
    return f"<p>{escape(words)}</p>" if words else ""
