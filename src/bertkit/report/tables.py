"""The figures of a fine-tuning run as tables: by part, by class, who is taken for whom, what was not seen.

In: the results and the coverage that the run wrote down.  Out: escaped HTML.  Next: finetuning_page.py
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bertkit.report.samples import language_of

CLASSES_SHOWN = 30  # of a confusion matrix; those with the most errors
SHADES = 9  # classes heat-1 … heat-9 of style.py
OFFICIAL = {"squad_v1": "SQuAD 1.1", "squad_v2": "SQuAD 2.0", "cmrc": "CMRC 2018"}


def parts_of(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures by part."""
    return {part: results[part] for part in ("validation", "test", "train") if isinstance(results.get(part), dict)}


def results_html(results: Mapping[str, Any]) -> str:
    """Return every figure of every part, and the official ones below, in percent as their scripts print them."""
    parts = parts_of(results)
    if not parts:
        return "<p class=note>Nothing has been measured yet.</p>"
    names = dict.fromkeys(name for figures in parts.values() for name, value in figures.items() if _is_number(value))
    html = [_table(parts, [(name, [figures.get(name) for figures in parts.values()]) for name in names])]
    for key, title in OFFICIAL.items():
        own = {part: figures[key] for part, figures in parts.items() if isinstance(figures.get(key), dict)}
        rows = dict.fromkeys(name for figures in own.values() for name in figures)
        if own:
            html.append(f"<h3>{escape(title)}</h3>")
            html.append(_table(own, [(name, [figures.get(name) for figures in own.values()]) for name in rows]))
    warnings = [f"{part}: {figures['warning']}" for part, figures in parts.items() if "warning" in figures]
    return "\n".join([*html, *(f"<p class=note>{escape(warning)}</p>" for warning in warnings)])


def by_class_html(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Return precision, recall, F1 and number of each class, the most frequent first."""
    ordered = sorted(table.items(), key=lambda item: -(item[1].get("support") or 0))
    heads = dict.fromkeys(name for _, row in ordered for name in row)
    return _table(heads, [(name, [row.get(head) for head in heads]) for name, row in ordered])


def confusion_html(confusion: Mapping[str, Any]) -> str:
    """Return the matrix: a row for each class of the file, a column for each of the model, shaded by share."""
    labels, rows = [str(label) for label in confusion["labels"]], confusion["rows"]
    errors = [
        sum(row) - row[place] + sum(other[place] for other in rows) - row[place] for place, row in enumerate(rows)
    ]
    worst = sorted(range(len(labels)), key=lambda place: -errors[place])[:CLASSES_SHOWN]
    places = sorted(worst)
    heads = "".join(f"<th scope=col{language_of(labels[p])}>{escape(labels[p])}</th>" for p in places)
    html = [f"<tr><th>file \\ model</th>{heads}</tr>"]
    for place in places:
        total = sum(rows[place])
        cells = "".join(_cell(rows[place][other], total, right=place == other) for other in places)
        html.append(f"<tr><th scope=row{language_of(labels[place])}>{escape(labels[place])}</th>{cells}</tr>")
    left_out = len(labels) - len(places)
    note = f"<p class=note>{left_out} classes with fewer errors are left out.</p>" if left_out else ""
    body = "\n".join(html)
    return f"<div class=scroll><table class=confusion>\n{body}\n</table></div>{note}"


def _cell(count: int, total: int, *, right: bool) -> str:
    shade = 0 if not count or not total else max(1, round(SHADES * count / total))
    kind = f"{'good' if right else 'bad'}-{shade}" if shade else "none"
    return f"<td class={kind}>{count:,}</td>"


def coverage_html(coverage: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts of what a model got to see of each part, and of what it did not."""
    names = dict.fromkeys(name for counts in coverage.values() for name in counts)
    return _table(coverage, [(name, [counts.get(name, 0) for counts in coverage.values()]) for name in names])


def _table(columns: Mapping[str, Any] | Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
    heads = "".join(f"<th scope=col>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        f"<tr><th scope=row{language_of(name)}>{escape(name)}</th>"
        + "".join(f"<td>{escape(_number(value))}</td>" for value in values)
        + "</tr>"
        for name, values in rows
    )
    return (
        f"<div class=scroll><table class=numbers><thead><tr><td></td>{heads}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if not _is_number(value):
        return "–" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
