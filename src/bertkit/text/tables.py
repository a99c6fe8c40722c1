"""Tables → documents: csv, tsv and Parquet, a row at a time, nothing in a field taken for anything but text.

In: a Source.  Out: for every row a Document, an InputError where it is broken, or the reason why it is none; the
counting is done by who asks.  (Rows of fields: delimited.py)  Next: documents.py
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from bertkit.console import say
from bertkit.errors import InputError
from bertkit.text.delimited import Row, csv_rows, tsv_rows
from bertkit.text.readers import Source
from bertkit.text.records import BLANK, Document, Item

if TYPE_CHECKING:
    import pyarrow

HEADER = "header row"  # the reason why the first row is no document
ROWS_AT_ONCE = 1024  # rows of a Parquet file that are in memory together
NAME_LIMIT = 64  # characters; what is longer is no name of a column
_OTHER_SEPARATORS = {"csv": (";", "\t"), "tsv": (",", ";")}
_SENTENCE_ENDS = ("。", "！", "？", "!", "?")


def csv_documents(
    source: Source, *, text_column: str | None, column_names: str | None, changed: Counter[str]
) -> Iterator[Item]:
    """Yield what every row holds: fields between commas; in double quotes also commas, line ends and doubled quotes.

    text_column: the name or number (from 1) of a column; None: `text`, else the first one that holds text.
    column_names: comma separated, for a file without a header row.

    Raises:
        InputError: a quote that does not close or does not end a field, no such column, no column with text.
    """
    return _documents(csv_rows(source, changed=changed), source, "csv", text_column, _names(column_names))


def tsv_documents(
    source: Source, *, text_column: str | None, column_names: str | None, changed: Counter[str]
) -> Iterator[Item]:
    """Yield what every line holds: fields between tabs, a double quote is a character like any other.

    Quotes are undone only where a program must have written them: around a field with doubled quotes or a tab inside,
    around nothing, and around every field of a file whose header has them all around.  Arguments as for csv.

    Raises:
        InputError: no such column, no column with text.
    """
    names = _names(column_names)
    return _documents(tsv_rows(source, width=len(names or ()), changed=changed), source, "tsv", text_column, names)


def _names(column_names: str | None) -> list[str] | None:
    return None if column_names is None else [name.strip() for name in column_names.split(",")]


def _documents(
    rows: Iterator[Row], source: Source, kind: str, text_column: str | None, names: list[str] | None
) -> Iterator[Item]:
    """The documents of rows whose first is the header, if no names are given."""
    text, header_line = None, 1
    if names:
        text = _column(names, text_column, source, None)
    for number, fields in rows:
        if not fields:
            yield BLANK
            continue
        if names is None:
            names, header_line = [name.strip() for name in fields], number
            text = _column(names, text_column, source, number)
            if text is None:
                _require_header(names, kind, source, number)
            yield HEADER
            continue
        if len(fields) != len(names):
            yield ragged(fields, names, source, number, header_line)
            continue
        if text is None and any(field.strip() for field in fields):
            text = _first_text(names, fields, source, number)
        given = fields[names.index("id")].strip() if "id" in names else ""
        yield Document(given or f"{source.name}:{number}", "" if text is None else fields[text])


def _column(names: Sequence[str], wanted: str | None, source: Source, line: int | None) -> int | None:
    """The place of the column that is named, by name or by number; else of `text`; None: there is no such column."""
    if wanted is None and "text" not in names:
        return None
    return column_place(names, "text" if wanted is None else wanted, source, line, flag="--text_column")


def column_place(names: Sequence[str], wanted: str, source: Source, line: int | None, *, flag: str) -> int:
    """Return the place, from 0, of the column with this name, else of this number, from 1.

    flag: what the errors call the value.

    Raises:
        InputError: no such column, or several of this name.
    """
    if names.count(wanted) > 1:
        raise InputError(
            f"{names.count(wanted)} columns have this name",
            file=source.path,
            line=line,
            field=wanted,
            remedy=f"name it by its number: {flag} {names.index(wanted) + 1}",
        )
    if wanted in names:
        return names.index(wanted)
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    near = get_close_matches(wanted, names, n=1, cutoff=0.6)
    raise InputError(
        "there is no such column",
        file=source.path,
        line=line,
        field=flag,
        value=wanted,
        expected=f"one of {', '.join(names)}, or a number from 1 to {len(names)}",
        remedy=f"did you mean {near[0]}?" if near else "a file without a header row takes --column_names id,text,…",
    )


def _require_header(names: list[str], kind: str, source: Source, line: int) -> None:
    """Refuse a first row that cannot be a header: it would be lost, or the table has another separator."""
    other = next((mark for mark in _OTHER_SEPARATORS[kind] if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        known = {",": "--format csv", "\t": "--format tsv"}.get(other, "save it with commas or tabs")
        raise InputError(
            f"the first row is one column, with {other!r} in it: is that the separator?",
            file=source.path,
            line=line,
            value=names[0],
            expected="fields between commas" if kind == "csv" else "fields between tabs",
            remedy=f"{known}; or name the column: --text_column 1",
        )
    if any(map(is_no_name, names)):
        raise InputError(
            "the first row looks like data, not like names of columns",
            file=source.path,
            line=line,
            value=names,
            expected="a header row, such as id,text",
            remedy="no header: name the columns, --column_names id,text; a header: name the one, --text_column 1",
        )


def is_no_name(name: str) -> bool:
    """Return whether this is a text rather than the name of a column."""
    return len(name) > NAME_LIMIT or name.endswith(_SENTENCE_ENDS) or (name.endswith(".") and " " in name)


def ragged(fields: list[str], names: Sequence[str], source: Source, number: int, header_line: int) -> InputError:
    """Return the problem of a row with too few or too many fields."""
    return InputError(
        f"the row has {len(fields)} columns",
        file=source.path,
        line=number,
        value=fields,
        expected=f"{len(names)} columns, as in line {header_line}: {', '.join(names)}",
        remedy="mend or remove the row; in csv a text with commas stands in double quotes",
    )


def _first_text(names: list[str], fields: list[str], source: Source, number: int) -> int:
    """The first column that holds a text here, no number and no id; it serves the whole file, and is said."""
    for place, (name, field) in enumerate(zip(names, fields, strict=True)):
        if name != "id" and field.strip() and not _is_number(field):
            _say_column(source, name or str(place + 1))
            return place
    raise InputError(
        "no column holds a text",
        file=source.path,
        line=number,
        value=fields,
        remedy="name it: --text_column, one of " + ", ".join(names),
    )


def _say_column(source: Source, name: str) -> None:
    say(f"{source.name}: the text is in the column {name}, the first of text; --text_column says otherwise")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def parquet_documents(source: Source, *, text_column: str | None) -> Iterator[Item]:
    """Yield what every row of a Parquet file holds; a null is an empty text, a row without id is called by its index.

    Raises:
        InputError: no Parquet file, or one cut short; no such column, or none of text.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(source.path, buffer_size=2**20) as file:
            schema = file.schema_arrow
            name = _parquet_column(schema, text_column, source)
            columns = [name, "id"] if "id" in schema.names and name != "id" else [name]
            row = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                ids = batch.column("id") if "id" in columns else None
                for place, text in enumerate(batch.column(name)):
                    yield _parquet_row(text, None if ids is None else ids[place], source, name, row)
                    row += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet: {str(error).splitlines()[0]}",
            file=source.path,
            remedy="the file is cut short, damaged or compressed as a whole: get it again, or name its --format",
        ) from error


def _parquet_row(text: "pyarrow.Scalar", given: "pyarrow.Scalar | None", source: Source, name: str, row: int) -> Item:
    try:
        value = text.as_py() or ""
        id = None if given is None else given.as_py()
    except UnicodeDecodeError:
        remedy = "write the file anew"
        return InputError("is not UTF-8", file=source.path, field=f"row {row}: {name}", expected="text", remedy=remedy)
    return Document(str(id) if isinstance(id, str | int) and id != "" else f"{source.name}:{row}", value)


def _parquet_column(schema: "pyarrow.Schema", wanted: str | None, source: Source) -> str:
    """The column of the text; where it is neither named nor called `text`, the first that can hold one is said."""
    import pyarrow

    def is_text(kind: "pyarrow.DataType") -> bool:
        values = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        return values in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())

    place = _column(schema.names, wanted, source, None)
    if place is None:
        place = next((n for n, field in enumerate(schema) if is_text(field.type) and field.name != "id"), None)
        if place is not None:
            _say_column(source, schema.names[place])
    if place is None or not is_text(schema.types[place]):
        held = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise InputError(
            "no column holds text" if place is None else f"the column holds {schema.types[place]}",
            file=source.path,
            field=None if place is None else schema.names[place],
            expected=f"a column of strings; here stand {held}",
            remedy="name the column of the text: --text_column",
        )
    return str(schema.names[place])
