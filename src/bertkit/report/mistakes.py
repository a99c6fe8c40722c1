"""The worst errors of a fine-tuned model with their text, as HTML; each task shows them its own way.

In: Predictions.  Out: escaped HTML.  Next: finetuning_page.py
"""

from collections.abc import Callable
from html import escape
from typing import Any

from bertkit.report.facts import shown
from bertkit.report.marked import Mark, marked_html
from bertkit.report.predictions import Predictions
from bertkit.report.samples import language_of

LONGEST_TEXT = 600  # characters of a text that is shown
AROUND = 200  # characters of a context on each side of the answers
Row = tuple[str, str, str]  # head, HTML, the text whose language it is in
CAPTIONS = {
    "sequence-classification": "The most confident wrong answers first; of numbers, those that are furthest off.",
    "token-classification": "<mark class=right>in both</mark> <mark class=missed>in the file only</mark>"
    " <mark class=wrong>of the model only</mark>; sentences with the most of them first.",
    "multiple-choice": "The most confident wrong choices first, <mark class=wrong>the model's</mark> beside"
    " <mark class=right>the right one</mark>.",
    "question-answering": "The most confident wrong answers first. <mark class=right>Right</mark>,"
    " <mark class=wrong>the model's</mark>; where both overlap, what they share is green.",
}


def mistakes_html(found: Predictions, *, task: str) -> str:
    """Return how many answers are wrong, and a block for each of the worst."""
    rows_of: Callable[[dict[str, Any]], list[Row]] = ROWS.get(task, _text_rows)
    caption = CAPTIONS.get(task, "")
    number = f"{found.wrong:,} of {found.total:,} answers are not right"
    if len(found.worst) < found.wrong:
        number += f"; the worst {len(found.worst)} are shown"
    head = f"<p>{escape(found.part)}: {number}. {caption}</p>"
    if not found.wrong:
        return f"<p>{escape(found.part)}: nothing is wrong in {found.total:,} examples.</p>"
    return "\n".join([head, *(_block_html(rows_of(record), record) for record in found.worst)])


def _block_html(rows: list[Row], record: dict[str, Any]) -> str:
    cells = [
        f"<tr><th scope=row>{escape(head)}</th><td{language_of(text)}>{html}</td></tr>" for head, html, text in rows
    ]
    return (
        f"<table class=sample><caption>{escape(str(record.get('id', '')))}</caption>\n" + "\n".join(cells) + "</table>"
    )


def _text_rows(record: dict[str, Any]) -> list[Row]:
    """A text, what the file says of it, what the model says."""
    text, scores = str(record.get("text", "")), record.get("scores")
    given = record.get("labels", record.get("label"))
    if not isinstance(scores, dict):
        given = f"{record['score']:.4g}" if isinstance(record.get("score"), float) else record.get("score")
        return [_plain("text", text), _marked("file", record.get("gold"), "right"), _marked("model", given, "wrong")]
    gold = record.get("gold")
    named = [name for each in (gold, given) for name in (each if isinstance(each, list) else [each])]
    likely = ", ".join(f"{name} {scores[name]:.1%}" for name in dict.fromkeys(map(str, named)) if name in scores)
    return [
        _plain("text", text),
        _marked("file", "none" if gold in (None, []) else gold, "right"),
        _marked("model", "none" if given in (None, []) else given, "wrong"),
        _plain("probabilities", likely),
    ]


def _tag_rows(record: dict[str, Any]) -> list[Row]:
    """The sentence twice: with the entities of the file, and with those of the model."""
    text, offsets = str(record.get("text", "")), record.get("offsets", [])
    if "gold_entities" in record:
        sides = [_spans(record.get(name)) for name in ("gold_entities", "entities")]
    else:  # plain classes: only the words whose classes differ are marked
        pairs = list(zip(record.get("gold", []), record.get("tags", []), offsets, strict=False))
        differ = [(gold, given, place) for gold, given, place in pairs if gold != given]
        sides = [
            {(place[0], place[1], str(gold)) for gold, _, place in differ},
            {(place[0], place[1], str(given)) for _, given, place in differ},
        ]
    rows = []
    gold, given = sides
    for head, own, others, kind in (("file", gold, given, "missed"), ("model", given, gold, "wrong")):
        marks = [Mark(span[0], span[1], "right" if span in others else kind, span[2]) for span in sorted(own)]
        rows.append((head, marked_html(text, marks), text))
    return rows


def _spans(entities: Any) -> set[tuple[int, int, str]]:
    found = entities if isinstance(entities, list) else []
    return {(each["start"], each["end"], str(each.get("entity_group", ""))) for each in found}


def _choice_rows(record: dict[str, Any]) -> list[Row]:
    """The beginning and the choices, the wrong one beside the right one."""
    scores, choices = record.get("scores", []), list(map(str, record.get("choices", [])))
    rows = [_plain("context", str(record.get("context", "")))]
    for place, choice in enumerate(choices):
        kind = "right" if place == record.get("gold") else "wrong" if place == record.get("label") else ""
        html = f"<mark class={kind}>{escape(choice)}</mark>" if kind else escape(choice)
        rows.append((f"{scores[place]:.1%}" if place < len(scores) else "", html, choice))
    return rows


def _question_rows(record: dict[str, Any]) -> list[Row]:
    """The question, and its context with the right answers and the model's."""
    text, begin = str(record.get("text", "")), int(record.get("context_start", 0))
    question, context = text[: max(0, begin - 1)], text[begin:]
    gold, answer = list(map(str, record.get("gold") or [])), str(record.get("answer", ""))
    starts = record.get("gold_starts", [])
    marks = [Mark(start, start + len(each), "right") for start, each in zip(starts, gold, strict=False)]
    if answer:
        marks.append(Mark(int(record.get("start", 0)), int(record.get("end", 0)), "wrong"))
    return [
        _plain("question", question),
        ("context", marked_html(context, marks, around=AROUND), context),
        _marked("file", list(dict.fromkeys(gold)) or "no answer", "right"),
        _marked("model", answer or "no answer", "wrong"),
    ]


ROWS = {
    "sequence-classification": _text_rows,
    "token-classification": _tag_rows,
    "multiple-choice": _choice_rows,
    "question-answering": _question_rows,
}


def _plain(head: str, text: str) -> Row:
    cut = text[:LONGEST_TEXT]
    return head, escape(cut) + ("…" if len(cut) < len(text) else ""), text


def _marked(head: str, value: Any, kind: str) -> Row:
    """A value, or each of several, in colour."""
    values = [shown(each) for each in (value if isinstance(value, list) else [value])]
    return head, ", ".join(f"<mark class={kind}>{escape(each)}</mark>" for each in values), " ".join(values)
