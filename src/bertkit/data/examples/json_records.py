"""JSON of any shape → records, each with the line on which it begins.

In: a Source that holds one object a line, an array of objects, or an object with such an array as `data`.
Out: Records.  Next: table.py
"""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from bertkit.data.examples.reading import ExampleReport
from bertkit.errors import InputError
from bertkit.text.readers import Source, read_lines
from bertkit.text.records import json_kind, parse_json, unique_names

_DATA = re.compile(r'"data"\s*:\s*\[')
_BLANK = re.compile(r"[\s,]*")
_BEGINS = re.compile(r"""\s*(\{\s*("|\}|$)|\[\s*([\[{"\]]|$))""")


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a table, or an object of JSON."""

    line: int
    fields: dict[str, Any]  # of a csv or tsv: strings
    raw: str = ""  # the JSON text of a record that holds others (an article of SQuAD), to find their lines


def begins_json(line: str) -> bool:
    """Return whether a file whose first line this is holds JSON.

    >>> begins_json('{"text": "a"}'), begins_json("["), begins_json("[Paris] is nice"), begins_json("{sic}")
    (True, True, False, False)
    """
    return _BEGINS.match(line) is not None


def json_records(source: Source, report: ExampleReport) -> tuple[str, list[Record]]:
    """Return the layout ("jsonl" or "json") and the records; what is broken goes into the report.

    Raises:
        InputError: the file cannot be read to its end, or is no JSON at all.
    """
    lines = [(number, line) for number, line in read_lines(source, changed=report.changed)]
    filled = [(number, line) for number, line in lines if line.strip()]
    if not filled:
        raise InputError("holds no record", file=source.path, remedy="give a file with labelled examples")
    if _is_jsonl(filled, source):
        if len(lines) > len(filled):
            report.drop("blank line", len(lines) - len(filled))
        return "jsonl", _of_lines(filled, source, report)
    return "json", _of_whole("\n".join(line for _, line in lines), source, report)


def _is_jsonl(filled: list[tuple[int, str]], source: Source) -> bool:
    """Whether every line is a value of its own; a whole file on one line (SQuAD's usual form) is not jsonl."""
    first = filled[0][1].strip()
    named = source.plain_name.endswith((".jsonl", ".ndjson"))
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return named
    if len(filled) > 1:
        return True
    whole = isinstance(value, dict) and "data" in value
    return isinstance(value, dict) and not (whole and (isinstance(value["data"], list) or not named))


def _of_lines(filled: list[tuple[int, str]], source: Source, report: ExampleReport) -> list[Record]:
    records = []
    for number, line in filled:
        try:
            value = parse_json(line, source, number)
            if not isinstance(value, dict):
                raise InputError(
                    f"the line is {json_kind(value)}",
                    file=source.path,
                    line=number,
                    value=value,
                    expected='a JSON object a line, such as {"text": "…", "label": "…"}',
                )
        except InputError as problem:
            report.add_problem(problem)
            continue
        raw = line if "paragraphs" in value else ""
        records.append(Record(number, value, raw))
    return records


def _of_whole(content: str, source: Source, report: ExampleReport) -> list[Record]:
    """The objects of the file's array, stepped through one by one to know where each begins."""
    whole = parse_json(content, source, 1)
    values: Any = whole
    if isinstance(whole, dict):
        if "data" not in whole:
            return [Record(1, whole, content)]
        values = whole["data"]
    if not isinstance(values, list):
        field = "data" if isinstance(whole, dict) else None
        expected = 'an array of objects, or {"data": […]} with one'
        raise InputError(f"is {json_kind(values)}", file=source.path, field=field, expected=expected)
    newlines = [match.start() for match in re.finditer("\n", content)]
    decoder = json.JSONDecoder(object_pairs_hook=unique_names)
    records, position = [], _first_place(content, decoder, values, is_array=values is whole)
    for index, value in enumerate(values):
        begin = _end_of_blank(content, position)
        _, position = decoder.raw_decode(content, begin)
        line = bisect_right(newlines, begin) + 1
        if not isinstance(value, dict):
            problem = f"the record is {json_kind(value)}"
            report.add_problem(
                InputError(problem, file=source.path, line=line, field=f"[{index}]", value=value, expected="an object")
            )
            continue
        records.append(Record(line, value, content[begin:position] if "paragraphs" in value else ""))
    if not records and not report.num_problems:
        raise InputError("holds no record", file=source.path, remedy="give a file with labelled examples")
    return records


def _first_place(content: str, decoder: json.JSONDecoder, values: list[Any], *, is_array: bool) -> int:
    """Where the first value of the array begins: behind the file's first bracket, or that of the right `"data": [`."""
    if is_array or not values:
        return content.find("[") + 1
    for match in _DATA.finditer(content):
        try:
            value, _ = decoder.raw_decode(content, _end_of_blank(content, match.end()))
        except ValueError:  # an empty array, or text that only looks like one
            continue
        if repr(value) == repr(values[0]):  # not ==, by which NaN differs from itself
            return match.end()
    raise AssertionError("the array was parsed, so it stands somewhere")


def _end_of_blank(content: str, position: int) -> int:
    match = _BLANK.match(content, position)
    return match.end() if match else position


def type_problem(
    value: object, record: Record, source: Source, field: str, *, expected: str, remedy: str | None = None
) -> InputError:
    """Return the problem of a field that holds a value of another type."""
    return InputError(
        f"the field holds {json_kind(value)}",
        file=source.path,
        line=record.line,
        field=field,
        value=value,
        expected=expected,
        remedy=remedy,
    )
