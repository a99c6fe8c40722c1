"""Curves of a run as plain data for plotly.js; no drawing happens here.

In: a Record.  Out: one Chart a figure: heading, what to see in it, and {"data", "layout"}.  Next: page.py
"""

import math
from dataclasses import dataclass
from typing import Any

from bertkit.report.record import Record

POINTS_SHOWN = 2000  # a curve; more are thinned evenly, the last one kept
TRAIN_COLOR, VALIDATION_COLOR, BASELINE_COLOR = "#8da2c0", "#c2410c", "#6b7280"
NSP_CAPTION = "Share of pairs judged rightly; where half of the pairs are random, guessing gives 50 %."
MLM_COLOR, NSP_COLOR, SUM_COLOR = "#0f766e", "#7c3aed", "#1f2937"


@dataclass(frozen=True)
class Chart:
    """One figure of the page."""

    key: str
    title: str
    title_zh: str
    caption: str
    figure: dict[str, Any]


def charts_of(record: Record) -> list[Chart]:
    """Return the charts for which the record has at least one value; a run without NSP has none of NSP."""
    charts = [
        _accuracy(record, "mlm", "Masked tokens: accuracy", "掩码词元准确率", _mlm_caption(record)),
        _accuracy(record, "nsp", "Next sentence: accuracy", "下一句判断准确率", NSP_CAPTION),
        _losses(record),
        learning_rate_chart(record),
    ]
    return [chart for chart in charts if chart is not None]


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most POINTS_SHOWN rows, evenly spaced, the last one always among them.

    >>> len(thinned([{"step": step} for step in range(10_000)])), thinned([{"step": 1}])
    (2000, [{'step': 1}])
    """
    if len(rows) <= POINTS_SHOWN:
        return rows
    return [rows[(index + 1) * len(rows) // POINTS_SHOWN - 1] for index in range(POINTS_SHOWN)]


def _mlm_caption(record: Record) -> str:
    text = "Share of masked tokens that the model puts first."
    if any("mlm_accuracy_without_punctuation" in row for row in record.validation):
        text += " Punctuation is the easy part, so held-out accuracy is also shown without it."
    return text


def _accuracy(record: Record, task: str, title: str, title_zh: str, caption: str) -> Chart | None:
    name = f"{task}_accuracy"
    traces = [
        trace(record.train, name, "training", TRAIN_COLOR, width=1.2),
        trace(record.validation, name, "held-out", VALIDATION_COLOR, markers=True),
        trace(
            record.validation,
            f"{name}_without_punctuation",
            "held-out, without punctuation",
            VALIDATION_COLOR,
            dash="dot",
            markers=True,
        ),
    ]
    layout = layout_of("accuracy (share of 1)")
    layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%", "title": {"text": "accuracy (%)"}}
    return chart_of(f"{task}_accuracy", title, title_zh, caption, traces, layout)


def _losses(record: Record) -> Chart | None:
    traces = []
    parts = [("mlm_loss", "masked tokens", MLM_COLOR)]
    if any("nsp_loss" in row for row in record.train + record.validation):
        parts += [("nsp_loss", "next sentence", NSP_COLOR), ("loss", "sum", SUM_COLOR)]
    for name, label, color in parts:
        traces.append(trace(record.train, name, f"{label}, training", color, width=1, opacity=0.6))
        traces.append(trace(record.validation, name, f"{label}, held-out", color, width=2.4, markers=True))
    layout = layout_of("loss (nats)")
    layout["yaxis"] |= {"rangemode": "tozero"}
    caption = "Mean negative log-likelihood: of masked tokens, of pairs, and their sum, which training minimises."
    baseline = record.run.get("unigram_loss")
    if isinstance(baseline, int | float) and not isinstance(baseline, bool) and math.isfinite(baseline):
        traces.append(_baseline(record, float(baseline)))
        caption += (
            " The dashed line is what masked tokens cost a model that knows how frequent each token is and reads no"
            " context; a model below it has begun to read."
        )
    return chart_of("losses", "Losses", "损失", caption, traces, layout)


def _baseline(record: Record, loss: float) -> dict[str, Any] | None:
    steps = [row["step"] for row in record.train + record.validation]
    if not steps:
        return None
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"unigram baseline ({loss:.2f})",
        "x": [min(steps), max(steps)],
        "y": [loss, loss],
        "line": {"color": BASELINE_COLOR, "width": 1.5, "dash": "dash"},
    }


def learning_rate_chart(record: Record) -> Chart | None:
    """Return the chart of the learning rate, or None where no row has one."""
    traces = [trace(record.train, "learning_rate", "learning rate", MLM_COLOR, width=2)]
    layout = layout_of("learning rate")
    layout["yaxis"] |= {"rangemode": "tozero", "exponentformat": "e", "showexponent": "all"}
    layout["showlegend"] = True
    return chart_of("learning_rate", "Learning rate", "学习率", "Warm-up, then decay.", traces, layout)


def chart_of(
    key: str, title: str, title_zh: str, caption: str, traces: list[dict[str, Any] | None], layout: dict[str, Any]
) -> Chart | None:
    """Return a chart of those curves that are there, or None where none is."""
    drawn = [curve for curve in traces if curve is not None]
    if not drawn:
        return None
    return Chart(key=key, title=title, title_zh=title_zh, caption=caption, figure={"data": drawn, "layout": layout})


def trace(
    rows: list[dict[str, Any]],
    name: str,
    label: str,
    color: str,
    *,
    width: float = 2.4,
    opacity: float = 1.0,
    dash: str = "solid",
    markers: bool = False,
) -> dict[str, Any] | None:
    """Return the curve of one value over steps, or None where no row has it; a value that is not finite is a gap."""
    points = thinned([row for row in rows if name in row])
    if not points:
        return None
    return {
        "type": "scatter",
        "mode": "lines+markers" if markers or len(points) == 1 else "lines",
        "name": label,
        "x": [row["step"] for row in points],
        "y": [_number(row[name]) for row in points],
        "line": {"color": color, "width": width, "dash": dash},
        "marker": {"color": color, "size": 6},
        "opacity": opacity,
    }


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def layout_of(y_title: str, *, x_title: str = "step") -> dict[str, Any]:
    """Return the layout of a chart with these titles at its axes."""
    axis = {"gridcolor": "#e5e7eb", "linecolor": "#9ca3af", "zeroline": False, "automargin": True}
    return {
        "xaxis": axis | {"title": {"text": x_title}, "rangemode": "tozero"},
        "yaxis": axis | {"title": {"text": y_title}},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "hovermode": "x unified",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2937"},
    }
