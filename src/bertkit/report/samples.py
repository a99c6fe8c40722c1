"""What the model fills into the same masked sentences as training goes on, as HTML.

In: rows {"step", "samples": [{"original", "masked", "filled"}]}.  Out: escaped HTML, masked places marked.
Next: page.py
"""

from html import escape
from typing import Any

MASK = "[MASK]"
SENTENCES_SHOWN = 8
STEPS_SHOWN = 10  # a sentence; evenly spaced, the first and the last among them


def samples_html(rows: list[dict[str, Any]]) -> str:
    """Return one block a sentence: the masked text, the original, and what was filled in, a row a step."""
    by_sentence: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in rows:
        for sample in row.get("samples", []):
            key = (str(sample.get("masked", "")), str(sample.get("original", "")))
            by_sentence.setdefault(key, []).append((row["step"], str(sample.get("filled", ""))))
    # The sentences that were asked most often show how the answer changes; sorting keeps their order otherwise.
    ordered = sorted(by_sentence.items(), key=lambda item: -len(item[1]))
    blocks = [_sentence_html(masked, original, filled) for (masked, original), filled in ordered[:SENTENCES_SHOWN]]
    if len(ordered) > SENTENCES_SHOWN:
        blocks.append(f"<p class=note>{SENTENCES_SHOWN} of {len(ordered)} sentences are shown.</p>")
    return "\n".join(blocks)


def _sentence_html(masked: str, original: str, filled: list[tuple[int, str]]) -> str:
    truth = places(masked, original)
    shown = _evenly(filled)
    rows = [_row("masked", escape(masked).replace(MASK, f"<mark class=gap>{MASK}</mark>"), masked)]
    for step, text in shown:
        rows.append(_row(f"step {step:,}", _marked(text, places(masked, text), original, truth), text))
    rows.append(_row("original", _marked(original, truth, original, None), original))
    left_out = len(filled) - len(shown)
    note = f"<caption>{left_out} steps between are left out.</caption>" if left_out else ""
    return f"<table class=sample>{note}\n{''.join(rows)}</table>"


def _row(head: str, html: str, text: str) -> str:
    return f"<tr><th scope=row>{escape(head)}</th><td{language_of(text)}>{html}</td></tr>\n"


def language_of(text: str) -> str:
    """Return the HTML attribute that lets a browser choose Chinese glyphs and line breaks."""
    return ' lang="zh"' if any("\u4e00" <= character <= "\u9fff" for character in text) else ' lang="en"'


def places(masked: str, text: str) -> list[tuple[int, int]] | None:
    """Return the (start, end) in `text` of what stands where `masked` has [MASK]; None where the two do not match.

    Neighbouring masks are one place.  Each place is the shortest that lets the text before the next mask follow.

    >>> places("明月几[MASK]有，把[MASK]问青天", "明月几时有，把酒问青天")
    [(3, 4), (7, 8)]
    """
    parts = masked.split(MASK)
    literals = [parts[0], *(part for part in parts[1:-1] if part), parts[-1]]
    if len(parts) == 1 or not text.startswith(parts[0]):
        return None
    found: list[tuple[int, int]] = []
    position = len(literals[0])
    for literal in literals[1:-1]:
        start = text.find(literal, position + 1)
        if start < 0:
            return None
        found.append((position, start))
        position = start + len(literal)
    end = len(text) - len(literals[-1])
    if end <= position or not text.endswith(literals[-1]):
        return None
    return [*found, (position, end)]


def _marked(text: str, spans: list[tuple[int, int]] | None, original: str, truth: list[tuple[int, int]] | None) -> str:
    """Return escaped HTML with the spans in <mark>: right or wrong where the truth is known."""
    if spans is None:
        return escape(text)
    html, position = [], 0
    for index, (start, end) in enumerate(spans):
        kind = "gap"
        if truth is not None and len(truth) == len(spans):
            expected = original[truth[index][0] : truth[index][1]]
            kind = "right" if text[start:end].strip().lower() == expected.strip().lower() else "wrong"
        html.append(f"{escape(text[position:start])}<mark class={kind}>{escape(text[start:end])}</mark>")
        position = end
    return "".join([*html, escape(text[position:])])


def _evenly(filled: list[tuple[int, str]]) -> list[tuple[int, str]]:
    if len(filled) <= STEPS_SHOWN:
        return filled
    return [filled[round(index * (len(filled) - 1) / (STEPS_SHOWN - 1))] for index in range(STEPS_SHOWN)]
