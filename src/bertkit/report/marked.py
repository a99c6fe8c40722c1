"""Stretches of a text in colour.

In: a text, and places in it.  Out: escaped HTML.  Next: mistakes.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise


@dataclass(frozen=True)
class Mark:
    """A stretch of a text."""

    start: int  # in characters
    end: int  # behind its last character
    kind: str  # a class of style.py: right, wrong, missed
    label: str = ""  # written small behind it


def marked_html(text: str, marks: Sequence[Mark], *, around: int | None = None) -> str:
    """Return the text with its marks in <mark>; where two overlap, the part that both have shows the first given.

    around: characters of context kept on each side of the marks; None: all of the text. What is left out is shown as
        an ellipsis.

    >>> marked_html("a < b", [Mark(0, 1, "right", "X")])
    '<mark class=right>a<small>X</small></mark> &lt; b'
    """
    marks = [mark for mark in marks if 0 <= mark.start < mark.end <= len(text)]
    first, last = 0, len(text)
    if around is not None and marks:
        first = max(0, min(mark.start for mark in marks) - around)
        last = min(len(text), max(mark.end for mark in marks) + around)
    elif around is not None:
        last = min(len(text), 2 * around)
    edges = sorted({first, last, *(edge for mark in marks for edge in (mark.start, mark.end))})
    html = ["…" if first else ""]
    for start, end in pairwise(edges):
        piece = escape(text[start:end])
        over = next((mark for mark in marks if mark.start <= start and end <= mark.end), None)
        if over is None:
            html.append(piece)
            continue
        label = f"<small>{escape(over.label)}</small>" if over.label and end == over.end else ""
        html.append(f"<mark class={escape(over.kind)}>{piece}{label}</mark>")
    html.append("…" if last < len(text) else "")
    return "".join(html)
