"""Curves of a fine-tuning run as plain data for plotly.js.

In: a Record.  Out: one Chart a figure.  Next: finetuning_page.py
"""

import math
from typing import Any

from bertkit.report.charts import TRAIN_COLOR, Chart, chart_of, layout_of, learning_rate_chart, trace
from bertkit.report.record import Record

COLORS = ("#c2410c", "#0f766e", "#7c3aed", "#1d4ed8", "#be123c", "#4d7c0f", "#1f2937")


def finetuning_charts(record: Record) -> list[Chart]:
    """Return the charts for which the record has at least one value."""
    names = dict.fromkeys(name for row in record.validation for name in row if name not in ("kind", "step"))
    shares = [name for name in names if all(_is_share(row.get(name)) for row in record.validation)]
    others = [name for name in names if name not in shares]
    charts = [_held_out(record, shares), _others(record, others), _losses(record), learning_rate_chart(record)]
    return [chart for chart in charts if chart is not None]


def _held_out(record: Record, names: list[str]) -> Chart | None:
    traces = [
        trace(record.validation, name, name, COLORS[place % len(COLORS)], markers=True)
        for place, name in enumerate(names)
    ]
    [*_, accuracy] = ["", *_ending(record, "_accuracy")]
    traces.append(trace(record.train, accuracy, "accuracy, training", TRAIN_COLOR, width=1.2))
    caption = "Figures of the part that is evaluated on the way; 1 is best, and of a correlation 0 is none."
    return chart_of("held_out", "Held-out figures", "留出数据指标", caption, traces, layout_of("share of 1"))


def _others(record: Record, names: list[str]) -> Chart | None:
    traces = [
        trace(record.validation, name, name, COLORS[place % len(COLORS)], markers=True)
        for place, name in enumerate(names)
    ]
    caption = "Figures that are no shares; of errors less is better."
    return chart_of("held_out_errors", "Held-out errors", "留出数据误差", caption, traces, layout_of("value"))


def _losses(record: Record) -> Chart | None:
    layout = layout_of("loss")
    layout["yaxis"] |= {"rangemode": "tozero"}
    curve = trace(record.train, "loss", "training", COLORS[1], width=1.6)
    return chart_of("losses", "Loss", "损失", "Mean over the labels of each step.", [curve], layout)


def _ending(record: Record, suffix: str) -> list[str]:
    return list(dict.fromkeys(name for row in record.train for name in row if name.endswith(suffix)))


def _is_share(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and (-1 <= value <= 1 or math.isnan(value)))
