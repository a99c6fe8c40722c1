"""The names that public data sets give their columns, so that a file as downloaded is understood.

In: the columns of a table.  Out: which of them holds what.  Next: table.py
"""

from collections.abc import Sequence
from difflib import get_close_matches

from bertkit.data.examples.json_records import Record
from bertkit.errors import InputError
from bertkit.text.readers import Source
from bertkit.text.records import checked_text, json_kind
from bertkit.text.tables import column_place

# Two columns that are a pair, looked for in this order; then a single one.
PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("#1 String", "#2 String"),  # MRPC
    ("question", "sentence"),  # QNLI
    ("question", "passage"),  # BoolQ
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("query", "title"),
    ("text", "text_pair"),
)
TEXTS = ("text", "sentence", "content", "review", "review_body", "utterance", "tweet", "comment", "query", "title")
LABELS = (
    "gold_label",  # MNLI and SNLI: beside the labels of single annotators
    "label",
    "labels",
    "category",
    "class",
    "Quality",  # MRPC
    "is_duplicate",  # QQP
    "score",
    "similarity_score",
    "target",
    "sentiment",
    "intent",
    "rating",
    "stars",
    "label_name",
)
# Columns that no text or label stands in, but that tell a header from data.
OTHERS = ("id", "idx", "index", "index_id", "pairID", "genre", "context", "sent1", "ending0", "startphrase", "answer")


def known_columns() -> frozenset[str]:
    """Return all the names by which a header is recognised."""
    return frozenset({name for pair in PAIRS for name in pair} | {*TEXTS, *LABELS, *OTHERS})


def first_of(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first of the names that is a column, in whatever case it is written there."""
    lower = {column.lower(): column for column in reversed(columns)}
    for name in names:
        if name in columns:
            return name
    return next((lower[name.lower()] for name in names if name.lower() in lower), None)


def named_column(columns: Sequence[str], wanted: str, source: Source, *, flag: str, is_json: bool) -> str:
    """Return the column that a user named, by name or (but in JSON) by number.

    Raises:
        InputError: there is no such column, or there are several.
    """
    if is_json:
        return wanted  # a record without it is reported with its line
    return columns[column_place(columns, wanted, source, None, flag=flag)]


def field_of(record: Record, column: str, source: Source, *, flag: str) -> object:
    """Return what stands in this column.

    Raises:
        InputError: the record has no such field.
    """
    if column not in record.fields:
        near = get_close_matches(column, record.fields, n=1, cutoff=0.6)
        raise InputError(
            "the field is missing",
            file=source.path,
            line=record.line,
            field=column,
            expected=f"one of the fields that stand here: {', '.join(record.fields)}",
            remedy=f"name the field: {flag}" + (f"; did you mean {near[0]}?" if near else ""),
        )
    return record.fields[column]


def text_of(record: Record, column: str, source: Source, *, flag: str, may_be_empty: bool = False) -> str:
    """Return the text of this column, as it stands.

    may_be_empty: whether a text without any visible character is let through.

    Raises:
        InputError: no such field, no string in it, half a surrogate pair, or nothing but blanks.
    """
    value = field_of(record, column, source, flag=flag)
    if not isinstance(value, str):
        raise InputError(
            f"the field holds {json_kind(value)}",
            file=source.path,
            line=record.line,
            field=column,
            value=value,
            expected="a string",
            remedy=f"write a string, or name the field of the text: {flag}; --on_bad skip leaves such records out",
        )
    if not may_be_empty and not value.strip():
        raise InputError(
            "the text is empty",
            file=source.path,
            line=record.line,
            field=column,
            value=value,
            expected="a text",
            remedy="fill or remove the record; --on_bad skip leaves such records out and counts them",
        )
    return checked_text(value, source, record.line, column)


def id_of(record: Record, source: Source, *, column: str | None) -> str:
    """Return the record's own id, else file name and line."""
    value = record.fields.get(column) if column else None
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    return f"{source.name}:{record.line}"
