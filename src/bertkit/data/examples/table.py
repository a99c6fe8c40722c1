"""A labelled file of any layout → a table of records: csv, tsv, lines with a separator, jsonl, json, Parquet.

In: a Source and ReadingSettings.  Out: a Table; broken rows go into the report.  Next: classification.py
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bertkit.data.examples.columns import first_of, known_columns
from bertkit.data.examples.json_records import Record, begins_json, json_records
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputError
from bertkit.text.delimited import Row, csv_rows, tsv_rows
from bertkit.text.readers import Source, find_sources, read_lines
from bertkit.text.tables import is_no_name, ragged

ROWS_AT_ONCE = 4096  # rows of a Parquet file that are turned at once
_SEPARATED = {2: ["text", "label"], 3: ["sentence1", "sentence2", "label"]}  # fields of a line with a --separator
# Given the first rows of a file without a header, the names of its columns and why; None: not known.
Shape = Callable[[list[list[str]]], tuple[list[str], str] | None]


@dataclass(frozen=True)
class Table:
    """The records of one file."""

    source: Source
    layout: str  # csv, tsv, separated, jsonl, json, parquet, lines
    columns: tuple[str, ...]  # of JSON: all fields that some record has
    records: list[Record]
    header: str  # how the columns got their names, to be said

    @property
    def is_json(self) -> bool:
        """Whether each record names its own fields."""
        return self.layout in ("jsonl", "json")

    @property
    def name(self) -> str:
        """The file's name and layout, as notes begin."""
        return f"{self.source.name}: {self.layout}{self.header}"


def read_tables(
    paths: str | None,
    settings: ReadingSettings,
    report: ExampleReport,
    *,
    shape: Shape,
    flag: str,
    plain: str | None = None,
) -> Iterator[Table]:
    """Yield the table of each file that `paths` names (commas, globs, folders).

    shape: what a file without header may hold; flag: what the errors call the paths.
    plain: the name of the one column of a file of plain lines; None: there must be more columns than one.
    A file that cannot be read goes into the report.

    Raises:
        InputErrors: there is no such file, or it is no regular one, or it is empty.
    """
    for source in find_sources(paths, encoding=settings.encoding, flag=flag):
        try:
            yield read_table(source, settings, report, shape=shape, plain=plain)
        except InputError as problem:
            report.add_fatal(problem)


def read_table(
    source: Source, settings: ReadingSettings, report: ExampleReport, *, shape: Shape, plain: str | None = None
) -> Table:
    """Return the table of one file; shape, plain: see `read_tables`.

    Raises:
        InputError: the file cannot be read to its end, or its first row is neither a header nor known data.
    """
    is_said = plain is not None and settings.names() == [plain]  # a tab or a brace is part of the text then
    layout = "lines" if is_said else layout_of(source, settings, plain=plain is not None)
    if plain is not None and layout == "lines":
        return _plain_lines(source, plain, report)
    if layout == "parquet":
        return _parquet(source)
    if layout == "json":
        layout, records = json_records(source, report)
        columns = dict.fromkeys(name for record in records for name in record.fields)
        return Table(source, layout, tuple(columns), records, "")
    width = len(settings.names() or ())
    if layout == "csv":
        rows: Iterator[Row] = csv_rows(source, changed=report.changed)
    elif layout == "tsv":
        rows = tsv_rows(source, width=width, changed=report.changed)
    else:
        rows = _separated(source, settings.separator or "", report)
    return _delimited(list(rows), source, layout, settings, report, shape)


def layout_of(source: Source, settings: ReadingSettings, *, plain: bool = False) -> str:
    """Return csv, tsv, separated, json (any kind) or parquet: by the separator, the name, then the first line.

    plain: whether everything else is `lines`.

    Raises:
        InputError: none of them.
    """
    name = source.plain_name
    if settings.separator is not None:
        return "separated"
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return "json"
    if name.endswith(".csv"):
        return "csv"
    if name.endswith(".tsv"):
        return "tsv"
    quiet = ExampleReport()
    first = next((line for _, line in read_lines(source, changed=quiet.changed) if line.strip()), "")
    if begins_json(first):
        return "json"
    if "\t" in first:
        return "tsv"
    if plain:
        return "lines"
    raise InputError(
        "neither the name nor the first line says how fields are told apart",
        file=source.path,
        value=first[:80],
        expected="a .csv, .tsv, .jsonl, .json or .parquet, or lines with tabs",
        remedy='rename the file, or name what stands between fields: --separator "_!_"',
    )


def _plain_lines(source: Source, column: str, report: ExampleReport) -> Table:
    """A text on each line that is not blank."""
    records = []
    for number, line in read_lines(source, changed=report.changed):
        if line.strip():
            records.append(Record(number, {column: line}))
        else:
            report.drop("blank line")
    if not records:
        raise InputError("holds no text", file=source.path, remedy="give a file with a text on each line")
    return Table(source, "lines", (column,), records, ", a text on each")


def _separated(source: Source, separator: str, report: ExampleReport) -> Iterator[Row]:
    for number, line in read_lines(source, changed=report.changed):
        yield number, line.split(separator) if line.strip() else []


def _delimited(
    rows: list[Row],
    source: Source,
    layout: str,
    settings: ReadingSettings,
    report: ExampleReport,
    shape: Shape,
) -> Table:
    """The records of rows of fields, whose first may be a header."""
    filled = [(number, fields) for number, fields in rows if fields]
    if len(filled) < len(rows):
        report.drop("blank line", len(rows) - len(filled))
    if not filled:
        raise InputError("holds no record", file=source.path, remedy="give a file with labelled examples")
    first_line, first = filled[0]
    names = settings.names()
    said = ", columns named by --column_names"
    if names is not None:
        _refuse_header(first, names, source, first_line)
        first_line = 0
    elif _is_header(first, settings, layout):
        names, said = [name.strip() for name in first], ", first row is the header"
        report.drop("header row")
        filled = filled[1:]
    else:
        fixed = _SEPARATED.get(len(first)) if layout == "separated" else None
        known = (fixed, f"taken as {', '.join(fixed)}") if fixed else shape([fields for _, fields in filled])
        if known is None:
            raise _no_names(first, source, first_line, layout)
        names, said = known[0], f", no header row; {known[1]}"
    if not filled:
        raise InputError("holds a header and no record", file=source.path, remedy="give a file with labelled examples")
    names = _distinct(names, source, first_line)
    records = []
    for number, fields in filled:
        if len(fields) != len(names):
            report.add_problem(ragged(fields, names, source, number, first_line))
            continue
        records.append(Record(number, dict(zip(names, fields, strict=True))))
    return Table(source, layout, tuple(names), records, said)


def _distinct(names: Sequence[str], source: Source, line: int) -> list[str]:
    """The names, none twice; a column without one (pandas' row numbers) is called by its number."""
    names = [name or f"column {place}" for place, name in enumerate(names, start=1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{names.count(twice)} columns have this name",
            file=source.path,
            line=line or None,
            field=twice,
            remedy="rename one of them in the header",
        )
    return names


def _is_header(first: Sequence[str], settings: ReadingSettings, layout: str) -> bool:
    """Whether the first row names columns: some name is known or was asked for."""
    names = [name.strip() for name in first]
    asked = {settings.text_column, settings.text_pair_column, settings.label_column}
    asked |= set((settings.choice_columns or "").split(",")) | set((settings.label_column or "").split(","))
    asked = {name for name in asked if name and not name.isdigit()}
    if asked & set(names):
        return True
    if layout == "separated" and not asked:
        return False
    return first_of(names, sorted(known_columns())) is not None


def _refuse_header(first: Sequence[str], names: Sequence[str], source: Source, line: int) -> None:
    stripped = [name.strip() for name in first]
    known = known_columns()
    if stripped == list(names) or (len(stripped) > 1 and all(name in known for name in stripped)):
        raise InputError(
            "the first row is a header, but --column_names says that there is none",
            file=source.path,
            line=line,
            value=stripped,
            remedy="leave --column_names out, and name columns by --text_column and --label_column",
        )


def _no_names(first: Sequence[str], source: Source, line: int, layout: str) -> InputError:
    data = any(is_no_name(name) or _is_number(name) for name in first)
    marks = {"csv": ("\t", ";"), "tsv": (",", ";")}.get(layout, ("\t", ","))
    other = next((mark for mark in marks if len(first) == 1 and mark in first[0]), None)
    if other is not None:
        problem = f"the first row is one column, with {other!r} in it: is that the separator?"
        remedy = f"name it: --separator {'$' if other == chr(9) else ''}{other!r}"
    elif data:
        problem = "the first row is data, not names of columns"
        remedy = "name the columns: --column_names text,label"
    else:
        problem = "the first row may be names of columns or data: none of them is a name that is known"
        remedy = "a header: --text_column and --label_column say which; no header: --column_names text,label"
    return InputError(
        problem,
        file=source.path,
        line=line,
        value=list(first),
        expected="a header row, such as text,label or sentence1,sentence2,label",
        remedy=remedy,
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(source: Source) -> Table:
    """The rows of a Parquet file; a row's line is its number, from 1."""
    import pyarrow
    from pyarrow import parquet

    records: list[Record] = []
    try:
        with parquet.ParquetFile(source.path) as file:
            columns = tuple(str(name) for name in file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                for fields in batch.to_pylist():
                    records.append(Record(len(records) + 1, fields))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read as Parquet: {str(error).splitlines()[0]}",
            file=source.path,
            remedy="the file is cut short or damaged, or no Parquet: get it again",
        ) from error
    if not records:
        raise InputError("holds no record", file=source.path, remedy="give a file with labelled examples")
    return Table(source, "parquet", columns, records, "")
