"""Lines of csv and tsv → rows of fields, no quote lost and none left open.

In: a Source.  Out: for every row the line where it begins, and its fields.  Next: tables.py
"""

from collections import Counter
from collections.abc import Iterator

from bertkit.errors import InputError
from bertkit.text.encodings import LINE_LIMIT
from bertkit.text.readers import Source, read_lines

Row = tuple[int, list[str]]  # no fields: a blank line


def csv_rows(source: Source, *, changed: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a csv; in double quotes a field may hold commas, line ends and doubled quotes.

    Raises:
        InputError: a quote that does not close or does not end a field.
    """
    lines = read_lines(source, changed=changed)
    for number, line in lines:
        if not line.strip() and "," not in line:
            yield number, []
        elif '"' in line:
            yield number, _quoted_row(line, number, lines, source, ",")
        else:
            yield number, line.split(",")


def _quoted_row(line: str, number: int, more: Iterator[tuple[int, str]], source: Source, separator: str) -> list[str]:
    """The fields of a row that begins with this line and may go on, inside quotes, over more of them.

    Python's own csv module is not used: it does not say where a quote was opened, and cuts fields at 128 KiB.
    """
    fields: list[str] = []
    position = 0
    while True:
        if not line.startswith('"', position):
            end = line.find(separator, position)
            fields.append(line[position:] if end < 0 else line[position:end])
            if end < 0:
                return fields
            position = end + 1
            continue
        opened, parts, length, position = number, list[str](), 0, position + 1
        while (end := line.find('"', position)) < 0 or line.startswith('"', end + 1):
            parts.append(line[position : end + 1] if end >= 0 else line[position:] + "\n")
            position = end + 2
            if end < 0:
                length += len(parts[-1])
                number, line = next(more, (0, ""))
                position = 0
                if number == 0 or length > LINE_LIMIT:
                    raise _open_quote(source, opened, parts)
        fields.append("".join([*parts, line[position:end]]))
        if end + 1 == len(line):
            return fields
        if not line.startswith(separator, end + 1):
            raise InputError(
                f"text follows a closing quote, opened in line {opened}",
                file=source.path,
                line=number,
                value=line[max(0, end - 20) : end + 20],
                expected='a comma or the end of the row; a quote inside a quoted field is doubled: ""',
                remedy=f"mend the row; or a quote in line {opened} does not close where it should",
            )
        position = end + 2


def _open_quote(source: Source, opened: int, parts: list[str]) -> InputError:
    return InputError(
        "the quote that opens here does not close",
        file=source.path,
        line=opened,
        value="".join(parts)[:80],
        expected='a closing quote; a quote inside a quoted field is doubled: ""',
        remedy="close the quote, or remove it; a table whose quotes mean nothing is a .tsv",
    )


def tsv_rows(source: Source, *, width: int, changed: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a tsv: a line each; quotes are characters, except where a program must have written them.

    That is: around a field with doubled quotes inside, around nothing, around fields with tabs inside if the number of
    columns comes out right, and around every field of a file whose header has them all around.

    width: number of columns; 0: as the first row has, which is the header.
    """
    all_quoted = False
    for number, line in read_lines(source, changed=changed):
        if not line.strip() and "\t" not in line:
            yield number, []
            continue
        fields = line.split("\t")
        if width == 0:
            width, all_quoted = len(fields), all(_inside(field) is not None for field in fields)
        if '"' in line:
            fields = _tsv_fields(line, fields, width, all_quoted, source, changed)
        yield number, fields


def _tsv_fields(
    line: str, fields: list[str], width: int, all_quoted: bool, source: Source, changed: Counter[str]
) -> list[str]:
    """The fields of a line with quotes in it, undone where they are no characters of the text."""
    if len(fields) > width:  # there may be tabs inside quotes
        try:
            quoted = _quoted_row(line, 1, iter(()), source, "\t")
        except InputError:  # the quotes are none that enclose fields
            return fields
        if len(quoted) != width:
            return fields
        changed["row of quoted fields undone"] += 1
        return quoted
    for place, field in enumerate(fields):
        inside = _inside(field)
        if inside is not None and (all_quoted or not inside or '""' in inside):
            fields[place] = inside.replace('""', '"')
            changed["quotes around a field undone"] += 1
    return fields


def _inside(field: str) -> str | None:
    """What stands between the quotes of a field, its quotes still doubled; None: it is not quoted as in csv."""
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in field[1:-1].replace('""', ""):
        return None
    return field[1:-1]
