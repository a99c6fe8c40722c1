"""One HTML file that shows a prepared store: its numbers, histograms of lengths, finished rows as training sees them.

In: tables, histograms and rows as plain data.  Out: one HTML file, every text escaped.  Next: frame.py
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.report.charts import MLM_COLOR, Chart, layout_of
from bertkit.report.frame import chart_html, framed_html, plotly_is_installed, section_html
from bertkit.report.samples import language_of
from bertkit.report.store_labels import LABELS_ZH

Section = tuple[str, str, Sequence[Sequence[object]]]  # heading, in Chinese, rows; a first cell "" marks a head row

# Histogram -> heading, in Chinese, what the bars count, what stands below them.
HISTOGRAMS = {
    "document_sentences": ("Length of documents, in sentences", "文档长度（句）", "documents", "sentences"),
    "document_tokens": ("Length of documents, in tokens", "文档长度（词元）", "documents", "tokens"),
    "sentence_tokens": ("Length of sentences", "句子长度", "sentences", "tokens"),
    "row_tokens": ("Length of rows", "样本长度", "rows", "tokens, special tokens included"),
    "row_targets": ("Hidden tokens in a row", "每个样本的掩码词元数", "rows", "hidden tokens"),
}
MARKS = {"[MASK]": "gap", "random": "wrong", "kept": "right"}  # what stands in a hidden token's place -> its class
TOKENS_HEAD = ("position", "token", "id", "segment", "label", "label id")


def require_plotly() -> None:
    """Stop before the work where the page could not be drawn.

    Raises:
        InputError: plotly is not installed.
    """
    if not plotly_is_installed():
        raise InputError(
            "the page needs plotly, which is not installed", field="--html", remedy='pip install "bertkit[report]"'
        )


def write_store_page(
    path: Path,
    *,
    title: str,
    sections: Sequence[Section],
    histograms: Mapping[str, Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
) -> None:
    """Write the page of a store.

    histograms: name in HISTOGRAMS -> {start, width, counts, beyond}; rows: FinishedRow.to_json() of each to be shown;
    notes: lines below the title.

    Raises:
        InputError: plotly is not installed.
    """
    require_plotly()
    charts = [_histogram_chart(name, histograms[name]) for name in HISTOGRAMS if name in histograms]
    parts = [section_html(heading, zh, _table_html(table)) for heading, zh, table in sections]
    parts += [section_html(chart.title, chart.title_zh, chart_html(chart, kind="histogram")) for chart in charts]
    if rows:
        parts.append(section_html("Finished rows", "训练样本", _rows_html(rows)))
    header = "".join(f"<p>{escape(note)}</p>" for note in notes)
    write_atomically(path, framed_html(title, header=header, sections=parts, charts=charts))


# ---- numbers -----------------------------------------------------------------------------------------------------


def _table_html(rows: Sequence[Sequence[object]]) -> str:
    width = max(map(len, rows), default=0)
    head = "".join(_head_html(row) for row in rows if row and row[0] == "")
    body = "".join(_number_row_html(row, width) for row in rows if row and row[0] != "")
    return f"<div class=scroll><table class=numbers>\n{head}<tbody>\n{body}</tbody></table></div>"


def _head_html(row: Sequence[object]) -> str:
    return f"<thead><tr>{''.join(f'<th scope=col>{escape(str(cell))}</th>' for cell in row)}</tr></thead>\n"


def _number_row_html(row: Sequence[object], width: int) -> str:
    label, *cells = row
    zh = LABELS_ZH.get(str(label))
    chinese = "" if zh is None else f' <span class=zh lang="zh">{escape(zh)}</span>'
    filled = [*cells, *[""] * (width - len(row))]
    head = f"<th scope=row{language_of(str(label))}>{escape(str(label))}{chinese}</th>"
    return f"<tr>{head}{''.join(f'<td>{escape(_cell(cell))}</td>' for cell in filled)}</tr>\n"


def _cell(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int | float) else str(cell)


def _histogram_chart(name: str, histogram: Mapping[str, Any]) -> Chart:
    title, title_zh, counted, unit = HISTOGRAMS[name]
    start, width, counts = histogram["start"], histogram["width"], histogram["counts"]
    places = [start + width * place for place in range(len(counts))]
    ranges = [f"{place:,}" if width == 1 else f"{place:,} to {place + width - 1:,}" for place in places]
    bars = {
        "type": "bar",
        "name": counted,
        "x": [place + (width - 1) / 2 for place in places],
        "y": counts,
        "width": width * 0.94,
        "marker": {"color": MLM_COLOR},
        "customdata": ranges,
        "hovertemplate": f"%{{customdata}} {unit}: %{{y:,}} {counted}<extra></extra>",
    }
    layout = layout_of(counted, x_title=unit)
    layout["yaxis"] |= {"rangemode": "tozero", "tickformat": ",d"}
    layout |= {"hovermode": "closest", "showlegend": False}
    caption = f"Each bar counts {counted}" + (f" of {width:,} neighbouring lengths." if width > 1 else ".")
    if beyond := histogram["beyond"]:
        caption += f" {beyond:,} beyond the last bar are not drawn; the table of lengths has the longest."
    return Chart(key=name, title=title, title_zh=title_zh, caption=caption, figure={"data": [bars], "layout": layout})


# ---- finished rows -----------------------------------------------------------------------------------------------


def _rows_html(rows: Sequence[Mapping[str, Any]]) -> str:
    legend = (
        "<p>Above, what stood there, <mark class=hidden>hidden tokens</mark> marked; below, what the model reads:"
        " <mark class=gap>[MASK]</mark>, <mark class=wrong>another token</mark>, or"
        " <mark class=right>the same</mark>. The model is to name every marked token.</p>"
    )
    return legend + "\n".join(_row_html(row) for row in rows)


def _row_html(row: Mapping[str, Any]) -> str:
    where = f"A: document {row['document_a']:,}"
    if row["document_b"] is not None:
        where += f"; B: document {row['document_b']:,}"
    heading = f"<h3>{escape(row['relation'])}</h3><p class=where>row {row['row']:,}; {where}</p>"
    lines = []
    for segment, tokens in groupby(row["tokens"], key=lambda token: int(token["segment"])):
        here = list(tokens)
        for when, key in (("before", "text_before"), ("after", "text_after")):
            html = "".join(_piece_html(token, key) for token in here)
            text = "".join(token[key] for token in here)
            lines.append(f"<tr><th scope=row>{'AB'[segment]} {when}</th><td{language_of(text)}>{html}</td></tr>\n")
    table = f"<table class=sample>\n{''.join(lines)}</table>"
    return f"<div class=instance>{heading}\n{table}\n{_tokens_html(row['tokens'])}</div>"


def _piece_html(token: Mapping[str, Any], key: str) -> str:
    text = str(token[key])
    if token["label"] is None:
        return escape(text)
    kind = "hidden" if key == "text_before" else MARKS[_fate(token)]
    space = text[: len(text) - len(text.lstrip(" "))]
    return f"{space}<mark class={kind}>{escape(text[len(space) :])}</mark>"


def _fate(token: Mapping[str, Any]) -> str:
    """What stands in a hidden token's place."""
    if token["token"] == "[MASK]":
        return "[MASK]"
    return "kept" if token["id"] == token["label_id"] else "random"


def _tokens_html(tokens: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in TOKENS_HEAD)
    body = []
    for token in tokens:
        label = ("–", "–") if token["label"] is None else (token["label"], token["label_id"])
        cells = (token["position"], token["token"], token["id"], token["segment"], *label)
        hidden = "" if token["label"] is None else " class=hidden"
        body.append(f"<tr{hidden}>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>\n")
    summary = f"<summary>{len(tokens):,} tokens, ids and labels</summary>"
    return (
        f"<details>{summary}<div class=scroll><table class=tokens><thead><tr>{head}</tr></thead>"
        f"<tbody>\n{''.join(body)}</tbody></table></div></details>"
    )
