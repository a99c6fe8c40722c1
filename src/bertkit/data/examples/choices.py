"""Files of multiple choice → ChoiceExamples: SWAG, CODAH, XCOPA, PIQA, context + endings, question + choices.

In: paths and ReadingSettings.  Out: ChoiceExamples, each with its own number of choices.  Next: questions.py
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertkit.data.examples.columns import field_of, first_of, id_of, named_column, text_of
from bertkit.data.examples.example import ChoiceExample
from bertkit.data.examples.json_records import Record, type_problem
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.table import Table, read_tables
from bertkit.errors import InputError
from bertkit.text.readers import Source
from bertkit.text.records import checked_text, need_space

LABELS = ("label", "answerKey", "answer", "gold", "correct")
CONTEXTS = ("context", "article", "passage")
QUESTIONS = ("question", "premise", "goal", "stem", "query", "prompt", "text", "sentence")
CHOICES = ("choices", "options", "endings", "answers")
CODAH = ["category", "prompt", "choice0", "choice1", "choice2", "choice3", "label"]
_NUMBERED = re.compile(r"(ending|choice|option|sol|answer)_?(\d+)", re.I)
_LETTER = re.compile(r"[A-Z]")
# XCOPA asks for the cause or the effect of what is said: the question in words, in the language of the text.
ASKED = {
    "cause": ("What was the cause of this?", "这是什么原因造成的？"),
    "effect": ("What happened as a result?", "结果发生了什么？"),
}
Reader = Callable[[Record], tuple[str, list[str], list[str]]]  # context, choices, their keys (none: no keys)


def read_choice_examples(
    paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool = True, flag: str
) -> list[ChoiceExample]:
    """Return the examples of all files that `paths` names, in order.

    labelled: whether labels are needed; otherwise they are not looked at.  flag: what the errors call the paths.

    Raises:
        InputErrors: what is wrong, the first 20 problems and their total; with on_bad="skip" what cannot be skipped.
    """
    examples: list[ChoiceExample] = []
    for table in read_tables(paths, settings, report, shape=_shape, flag=flag):
        try:
            reader, said = _reader(table, settings)
            label = _label_column(table, settings, labelled=labelled)
        except InputError as problem:
            report.add_fatal(problem)
            continue
        report.note(f"{table.name}; {said}; label = {label or 'none'}")
        for record in table.records:
            try:
                examples.append(_example(record, table.source, reader, label))
            except InputError as problem:
                report.add_problem(problem)
            else:
                report.keep()
    report.finish(num_examples=len(examples), flag=flag)
    return examples


def _shape(rows: list[list[str]]) -> tuple[list[str], str] | None:
    """The columns of a file without header: CODAH's."""
    if all(len(row) == 7 and set(row[0]) <= set("oirnpq") and row[6] in ("0", "1", "2", "3") for row in rows):
        return CODAH, "the layout of CODAH"
    return None


@dataclass(frozen=True)
class _Parts:
    """The columns whose texts are joined to A, those put before each choice, and those of the choices."""

    context: tuple[str, ...]
    before: tuple[str, ...]
    choices: tuple[str, ...]  # one: a list


def _reader(table: Table, settings: ReadingSettings) -> tuple[Reader, str]:
    """How a record is read, by the settings, else by the names of the columns; and that in words."""
    names, source = table.columns, table.source
    parts = _parts(table, settings)
    if parts is None:
        raise InputError(
            "no columns have names of a choice",
            file=source.path,
            value=list(names),
            expected="sent1, sent2, ending0, …; context, ending0, …; question, choices; premise, choice1, choice2",
            remedy="name them: --text_column, --choice_columns a,b,c",
        )
    said = f"A = {' + '.join(parts.context)}, B = {' + '.join((*parts.before, ''))}{', '.join(parts.choices)}"

    def read(record: Record) -> tuple[str, list[str], list[str]]:
        fields = _flattened(record)
        context = [_text(fields, name, source, "--text_column") for name in parts.context]
        before = [_text(fields, name, source, "--text_column") for name in parts.before]
        choices, keys = _choices(fields, parts.choices, source)
        return joined(context), [joined([*before, choice]) for choice in choices], keys

    return read, said


def _parts(table: Table, settings: ReadingSettings) -> _Parts | None:
    names = table.columns
    if table.is_json:
        names = tuple(dict.fromkeys(name for record in table.records for name in _flattened(record).fields))
    numbered = sorted((int(match[2]), name) for name in names if (match := _NUMBERED.fullmatch(name)))
    choices = tuple(name for _, name in numbered)
    if not choices and {"A", "B"} <= set(names):
        choices = tuple(name for name in "ABCDEFGHIJ" if name in names)
    if not choices and (one := first_of(names, CHOICES)):
        choices = (one,)
    if settings.choice_columns is not None:
        wanted = [name.strip() for name in settings.choice_columns.split(",")]
        choices = tuple(
            named_column(names, name, table.source, flag="--choice_columns", is_json=table.is_json) for name in wanted
        )
    if not choices:
        return None
    if settings.text_column is not None:
        text = named_column(names, settings.text_column, table.source, flag="--text_column", is_json=table.is_json)
        return _Parts((text,), (), choices)
    if settings.context == "startphrase" and "startphrase" in names:
        return _Parts(("startphrase",), (), choices)
    if "sent1" in names and "sent2" in names:
        return _Parts(("sent1",), ("sent2",), choices)
    context, question = first_of(names, CONTEXTS), first_of(names, QUESTIONS)
    if "premise" in names and "question" in names:  # XCOPA: the question is cause or effect
        return _Parts(("premise", "question"), (), choices)
    if context is not None and question is not None:
        return _Parts((context,), (question,), choices)
    start = context or question
    return None if start is None else _Parts((start,), (), choices)


def _flattened(record: Record) -> Record:
    """The record; where its question is an object (CommonsenseQA), with the fields of that in place of it."""
    question = record.fields.get("question")
    if isinstance(question, dict):
        return Record(record.line, {**record.fields, **question, "question": question.get("stem")})
    return record


def _text(record: Record, column: str, source: Source, flag: str) -> str:
    """The text of a column; of XCOPA's question, the question in words."""
    text = text_of(record, column, source, flag=flag, may_be_empty=column == "sent2")
    if column == "question" and text in ASKED and "premise" in record.fields:
        premise = str(record.fields["premise"])
        return ASKED[text][any("\u4e00" <= character <= "\u9fff" for character in premise)]
    return text


def joined(texts: list[str]) -> str:
    """Return the texts as one, a space between but none between Chinese characters; empty ones left out.

    >>> joined(["She", "pats her shoulder."]), joined(["", "他说"]), joined(["他", "说"])
    ('She pats her shoulder.', '他说', '他说')
    """
    whole = ""
    for text in filter(None, texts):
        whole += (" " if whole and need_space(whole[-1], text[0]) else "") + text
    return whole


def _choices(record: Record, columns: tuple[str, ...], source: Source) -> tuple[list[str], list[str]]:
    """The texts of the choices, and their keys, if they have any."""
    if len(columns) > 1:
        there = [place for place, column in enumerate(columns) if record.fields.get(column) is not None]
        columns = columns[: max(there, default=-1) + 1] or columns  # a record may have fewer choices than others
        texts = [text_of(record, column, source, flag="--choice_columns") for column in columns]
        return texts, list(columns) if set(columns) <= set("ABCDEFGHIJ") else []
    value: Any = field_of(record, columns[0], source, flag="--choice_columns")
    keys: list[Any] = []
    match value:
        case {"text": list(texts), "label": list(keys)} if len(texts) == len(keys):
            pass
        case [{"text": _, "label": _}, *_]:
            texts, keys = [entry.get("text") for entry in value], [entry.get("label") for entry in value]
        case list(texts):
            pass
        case _:
            raise type_problem(value, record, source, columns[0], expected="an array of texts")
    for text in texts:
        if not isinstance(text, str):
            raise type_problem(text, record, source, columns[0], expected="texts as choices")
        if not text.strip():
            problem, expected = "a choice is empty", "a text for each choice"
            raise InputError(
                problem, file=source.path, line=record.line, field=columns[0], value=texts, expected=expected
            )
        checked_text(text, source, record.line, columns[0])
    return list(texts), [str(key) for key in keys]


def _label_column(table: Table, settings: ReadingSettings, *, labelled: bool) -> str | None:
    if not labelled:
        return None
    if settings.label_column is not None:
        flag = "--label_column"
        return named_column(table.columns, settings.label_column, table.source, flag=flag, is_json=table.is_json)
    label = first_of(table.columns, LABELS)
    if label is None:
        raise InputError(
            "no column has a name of labels",
            file=table.source.path,
            value=list(table.columns),
            expected=", ".join(LABELS),
            remedy="name it: --label_column",
        )
    return label


def _example(record: Record, source: Source, reader: Reader, label_column: str | None) -> ChoiceExample:
    context, choices, keys = reader(record)
    if len(choices) < 2:
        raise InputError(
            f"there is {len(choices)} choice",
            file=source.path,
            line=record.line,
            field="choices",
            value=choices,
            expected="two choices or more",
        )
    label = None
    if label_column is not None:
        value = field_of(record, label_column, source, flag="--label_column")
        label = place_of(value, keys, len(choices))
        if label is None:
            known = f"0 to {len(choices) - 1}, or A to {chr(ord('A') + len(choices) - 1)}"
            raise InputError(
                f"the label names none of the {len(choices)} choices",
                file=source.path,
                line=record.line,
                field=label_column,
                value=value,
                expected=f"one of {', '.join(keys)}" if keys else known,
                remedy="mend the label" + ("" if keys else "; places count from 0"),
            )
    id = id_of(record, source, column=first_of(tuple(record.fields), ("id", "idx", "qid", "InputStoryid")))
    return ChoiceExample(id, context, tuple(choices), label, str(source.path), record.line)


def place_of(label: object, keys: list[str], num_choices: int) -> int | None:
    """Return the place of the right choice: by its key, where choices have keys; else its place, or its letter.

    >>> place_of("C", [], 4), place_of(2, [], 4), place_of("3", ["1", "2", "3"], 3), place_of(4, [], 4)
    (2, 2, 2, None)
    """
    if isinstance(label, bool) or not isinstance(label, str | int):
        return None
    name = str(label).strip()
    if keys and len(set(keys)) == len(keys) and (isinstance(label, str) or name in keys):
        return keys.index(name) if name in keys else None
    if _LETTER.fullmatch(name):
        place = ord(name) - ord("A")
    elif name.isascii() and name.isdigit():
        place = int(name)
    else:
        return None
    return place if place < num_choices else None
