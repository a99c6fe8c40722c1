"""A table → texts with classes, sets of classes or scores.

In: paths and ReadingSettings.  Out: TextExamples, still without a decision what kind of label theirs is where the file
leaves it open.  Next: labels.py, which looks at all splits
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.data.examples.columns import LABELS, PAIRS, TEXTS, field_of, first_of, id_of, named_column, text_of
from bertkit.data.examples.example import TextExample
from bertkit.data.examples.json_records import Record
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.table import Table, read_tables
from bertkit.errors import InputError
from bertkit.text.readers import Source
from bertkit.text.records import json_kind

NO_AGREEMENT = "gold_label is -: the annotators do not agree"
MULTI_LABEL = "multi_label_classification"
ZEROS: tuple[object, ...] = (0, "0", "0.0")  # False and 0.0 equal 0
ONES: tuple[object, ...] = (1, "1", "1.0")
SHORT = 64  # characters; a column of a file without header whose fields are all shorter may be one of labels


@dataclass(frozen=True)
class Columns:
    """Which columns hold what."""

    text: str
    pair: str | None
    labels: tuple[str, ...]  # several: one 0/1 column for each class; none: not labelled
    id: str | None


def read_text_examples(
    paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool = True, flag: str
) -> list[TextExample]:
    """Return the examples of all files that `paths` names, in order; what becomes of every record is in the report.

    Labels are names as they stand, in `label` (or `labels`, where they are lists): `labels.py` turns them into scores.

    labelled: whether labels are needed; otherwise they are not looked at, and a file may be plain text, one a line.
    flag: what the errors call the paths (`--train_file`).

    Raises:
        InputErrors: what is wrong, the first 20 problems and their total; with on_bad="skip" what cannot be skipped.
    """
    examples: list[TextExample] = []
    plain = None if labelled else "text"
    for table in read_tables(paths, settings, report, shape=_shape, flag=flag, plain=plain):
        try:
            columns = _columns(table, settings, labelled=labelled)
        except InputError as problem:
            report.add_fatal(problem)
            continue
        report.note(_note(table, columns, settings))
        try:
            width = _vector_width(table, columns, settings, report)
        except InputError as problem:
            report.add_fatal(problem)
            continue
        drop_dash = columns.labels == ("gold_label",) and settings.label_column is None
        for record in table.records:
            if drop_dash and record.fields.get("gold_label") == "-":
                report.drop(NO_AGREEMENT)
                continue
            try:
                examples.append(_example(record, table.source, columns, settings, labelled=labelled, width=width))
            except InputError as problem:
                report.add_problem(problem)
            else:
                report.keep()
    report.finish(num_examples=len(examples), flag=flag)
    return examples


def _shape(rows: list[list[str]]) -> tuple[list[str], str] | None:
    """The columns of a file without header: CoLA, text and label, or two texts and a label."""
    width = len(rows[0])
    if width == 4 and all(len(row) == 4 and row[1] in ("0", "1") and row[2] in ("", "*") for row in rows):
        return ["source", "label", "star", "sentence"], "the layout of CoLA"
    if width not in (2, 3) or not _is_label_column(rows, width - 1):
        return None
    if width == 2:
        return ["text", "label"], "taken as text, label"
    return ["sentence1", "sentence2", "label"], "taken as sentence1, sentence2, label"


def _is_label_column(rows: list[list[str]], place: int) -> bool:
    """Whether the column holds numbers, or short names that repeat."""
    fields = [row[place].strip() for row in rows if len(row) > place]
    try:
        [float(field) for field in fields]
    except ValueError:
        return all(len(field) < SHORT for field in fields) and len(set(fields)) * 2 <= len(fields)
    return True


def _columns(table: Table, settings: ReadingSettings, *, labelled: bool) -> Columns:
    """Which columns hold what, by the settings, else by their names."""
    names, source = table.columns, table.source
    pair = next((p for p in PAIRS if all(first_of(names, [name]) for name in p)), None)
    text, second = (first_of(names, [pair[0]]), first_of(names, [pair[1]])) if pair else (first_of(names, TEXTS), None)
    if settings.text_column is not None:
        text = named_column(names, settings.text_column, source, flag="--text_column", is_json=table.is_json)
        second = None
    if settings.text_pair_column is not None:
        second = named_column(
            names, settings.text_pair_column, source, flag="--text_pair_column", is_json=table.is_json
        )
    if text is None:
        raise InputError(
            "no column has a name of texts",
            file=source.path,
            value=list(names),
            expected="text, sentence, sentence1 and sentence2, premise and hypothesis, …",
            remedy="name it: --text_column",
        )
    labels = _label_columns(table, settings) if labelled else ()
    if not labels and labelled:
        raise InputError(
            "no column has a name of labels",
            file=source.path,
            value=list(names),
            expected="label, labels, category, class, gold_label, score, …",
            remedy="name it: --label_column",
        )
    pairs = () if second is None else (second,)
    _refuse_two_roles({"--text_column": (text,), "--text_pair_column": pairs, "--label_column": labels}, source)
    return Columns(text, second, labels, first_of(names, ("id", "idx", "index", "index_id", "pairID")))


def _refuse_two_roles(columns: Mapping[str, Sequence[str]], source: Source) -> None:
    """Refuse a column that would be read twice: a label that is read as a text, too, is all that is learnt."""
    flags: dict[str, str] = {}
    for flag, names in columns.items():
        for name in names:
            if name in flags:
                raise InputError(
                    "is one column in two roles",
                    file=source.path,
                    field=f"{flags[name]} and {flag}",
                    value=name,
                    expected="a column for each",
                    remedy=f"name another by {flag}",
                )
            flags[name] = flag


def _label_columns(table: Table, settings: ReadingSettings) -> tuple[str, ...]:
    wanted = settings.label_column
    if wanted is None:
        found = first_of(table.columns, LABELS)
        return () if found is None else (found,)
    several = [wanted] if wanted in table.columns else [name.strip() for name in wanted.split(",")]
    flag = "--label_column"
    return tuple(named_column(table.columns, name, table.source, flag=flag, is_json=table.is_json) for name in several)


def _note(table: Table, columns: Columns, settings: ReadingSettings) -> str:
    parts = [f"text = {columns.text}"]
    if columns.pair is not None:
        parts.append(f"second text = {columns.pair}")
    elif settings.pair_separator is not None:
        parts.append(f"second text behind {settings.pair_separator!r}")
    parts.append(f"label = {', '.join(columns.labels)}" if columns.labels else "no labels")
    return f"{table.name}; {', '.join(parts)}"


def _example(
    record: Record,
    source: Source,
    columns: Columns,
    settings: ReadingSettings,
    *,
    labelled: bool,
    width: int | None,
) -> TextExample:
    flag = "--text_column"
    text = text_of(record, columns.text, source, flag=flag, may_be_empty=not labelled)
    pair = None
    if columns.pair is not None:
        pair = text_of(record, columns.pair, source, flag="--text_pair_column", may_be_empty=not labelled)
    elif settings.pair_separator is not None:
        text, pair = _two(text, settings.pair_separator, record, source, columns.text)
    label, labels = None, None
    if len(columns.labels) > 1:
        labels = _from_columns(record, source, columns.labels)
    elif columns.labels:
        label, labels = _label(record, source, columns.labels[0], settings, width=width)
    place = str(source.path)
    return TextExample(id_of(record, source, column=columns.id), text, pair, label, labels, None, place, record.line)


def _two(text: str, separator: str, record: Record, source: Source, column: str) -> tuple[str, str]:
    """The two texts of one field."""
    parts = text.split(separator)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise InputError(
            f"the separator {separator!r} stands {len(parts) - 1} times in the field",
            file=source.path,
            line=record.line,
            field=column,
            value=text,
            expected="two texts with the separator between them",
            remedy="mend the record, or name another --pair_separator",
        )
    return parts[0], parts[1]


def _label(
    record: Record, source: Source, column: str, settings: ReadingSettings, *, width: int | None
) -> tuple[str | None, tuple[str, ...] | None]:
    """The one label or the several of a record."""
    value = _parsed(field_of(record, column, source, flag="--label_column"), settings)
    if isinstance(value, list):
        return None, _names(value, record, source, column, width=width)
    several = settings.problem_type == MULTI_LABEL
    name = label_name(value)
    if name is None or several:
        kind = "is empty" if value in ("", None) else f"is {json_kind(value)}"
        raise InputError(
            f"the label {kind}",
            file=source.path,
            line=record.line,
            field=column,
            value=value,
            expected='an array of names, such as ["a", "b"], or of 0 and 1' if several else "a name or a number",
            remedy="fill or remove the record; --on_bad skip leaves such records out and counts them",
        )
    return name, None


def _parsed(value: object, settings: ReadingSettings) -> object:
    """The value; of a table, where several labels stand as a JSON array, the array."""
    if not isinstance(value, str) or value.lstrip()[:1] != "[" or settings.problem_type not in (None, MULTI_LABEL):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # a name that begins with a bracket


def _vector_width(table: Table, columns: Columns, settings: ReadingSettings, report: ExampleReport) -> int | None:
    """The length of the 0/1 vectors, if every record's label is one of the same length; None: lists are of names.

    Raises:
        InputError: other files of the run hold lists of the other kind, or vectors of another length.
    """
    if len(columns.labels) != 1:
        return None
    values = [_parsed(record.fields.get(columns.labels[0]), settings) for record in table.records]
    lists = [value for value in values if isinstance(value, list)]
    if not lists:
        return None
    lengths = {len(value) for value in lists}
    is_vectors = len(lists) == len(values) and len(lengths) == 1 and max(lengths) > 1
    is_vectors &= all(type(entry) is int and entry in (0, 1) for value in lists for entry in value)
    width = len(lists[0]) if is_vectors else None
    report.vector_widths.add(width)
    if len(report.vector_widths) > 1:
        kinds = sorted("lists of names" if each is None else f"0/1 vectors of {each}" for each in report.vector_widths)
        raise InputError(
            f"labels are {' and '.join(kinds)}, in this file and others",
            file=table.source.path,
            field=columns.labels[0],
            expected="one kind of lists in all files",
            remedy="write them as lists of names everywhere",
        )
    if width is not None:
        report.note(f"labels are 0/1 vectors of length {width}: the names of the labels are 0 to {width - 1}")
    return width


def label_name(value: object) -> str | None:
    """Return the name that stands for a JSON value as a label; None: it is none.

    >>> label_name("card_arrival"), label_name(1), label_name(2.5), label_name(True), label_name(None), label_name(" ")
    ('card_arrival', '1', '2.5', 'true', None, None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return None if value != value else repr(value)
    return value if isinstance(value, str) and value.strip() else None


def _names(values: list[Any], record: Record, source: Source, column: str, *, width: int | None) -> tuple[str, ...]:
    """The names of a list of them, or the places of the ones in a 0/1 vector."""
    if width is not None:
        return tuple(str(place) for place, value in enumerate(values) if value)
    names = [label_name(value) for value in values]
    if None in names or len(set(names)) < len(names):
        raise InputError(
            "the list of labels holds something that is no name, or a name twice",
            file=source.path,
            line=record.line,
            field=column,
            value=values,
            expected="an array of different names, or in every record one of 0 and 1 with the same length",
        )
    return tuple(name for name in names if name is not None)


def _from_columns(record: Record, source: Source, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the columns in which a 1 stands."""
    found = []
    for column in columns:
        value = field_of(record, column, source, flag="--label_column")
        if value not in ZEROS + ONES:
            raise InputError(
                "the field is neither 0 nor 1",
                file=source.path,
                line=record.line,
                field=column,
                value=value,
                expected="0 or 1: --label_column names several columns, one for each class",
            )
        if value in ONES:
            found.append(column)
    return tuple(found)
