"""Files of records → documents: JSON lines, chinese-poetry's JSON, and a function of the user's.

In: a Source.  Out: for every record a Document, an InputError where it is broken, or the reason why it is none; the
counting is done by who asks.  Next: documents.py
"""

import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any
from unicodedata import east_asian_width

from bertkit.console import say
from bertkit.errors import InputError
from bertkit.text.readers import Source, read_lines

BLANK = "blank line"  # a reason why something read is no document


@dataclass(frozen=True, slots=True)
class Document:
    """A text that stands for itself: next-sentence pairs never cross its ends."""

    id: str  # "poems.txt:12" (file name : line where it begins), or the record's own
    text: str  # where sentences are given: the sentences joined by "\n"
    sentences: tuple[str, ...] | None = None  # where the file or the user's function gives them; None: to be split


Item = Document | InputError | str  # of a record: what it holds, what is wrong with it, or the reason why it is dropped


def jsonl_documents(source: Source, *, text_column: str | None, changed: Counter[str]) -> Iterator[Item]:
    """Yield what every line holds; the text is in `text_column`, else in `text`, else in the first string field."""
    column = text_column
    for number, line in read_lines(source, changed=changed):
        if not line.strip():
            yield BLANK
            continue
        try:
            record = parse_json(line, source, number)
            if not isinstance(record, dict):
                raise InputError(
                    f"the line is {json_kind(record)}",
                    file=source.path,
                    line=number,
                    value=record,
                    expected='a JSON object a line, such as {"text": "…"}',
                )
            column = column or _first_text_column(record, source, number)
            text = _text_of(record, column, source, number)
        except InputError as problem:
            yield problem
            continue
        given = record.get("id")
        yield Document(str(given) if isinstance(given, str | int) else f"{source.name}:{number}", text)


def _first_text_column(record: dict[str, Any], source: Source, number: int) -> str:
    """`text`, or the first field that holds a string and is not the id; it serves the whole file."""
    if "text" in record:
        return "text"
    for name, value in record.items():
        if isinstance(value, str) and name != "id":
            say(f"{source.name}: the text is in the field {name}, the first of text; --text_column says otherwise")
            return name
    raise InputError(
        "no field holds a text", file=source.path, line=number, value=record, remedy="name it: --text_column"
    )


def _text_of(record: dict[str, Any], column: str, source: Source, number: int) -> str:
    """The record's text."""
    if column not in record:
        near = get_close_matches(column, record, n=1, cutoff=0.6)
        raise InputError(
            "the field is missing",
            file=source.path,
            line=number,
            field=column,
            expected=f"one of the fields that stand here: {', '.join(record)}",
            remedy="name the field of the text: --text_column" + (f"; did you mean {near[0]}?" if near else ""),
        )
    text = record[column]
    if not isinstance(text, str):
        raise InputError(
            f"the field holds {json_kind(text)}",
            file=source.path,
            line=number,
            field=column,
            value=text,
            expected="a string",
            remedy="write a string, or name the field of the text: --text_column",
        )
    return checked_text(text, source, number, column)


def checked_text(text: str, source: Source, number: int | None, field: str) -> str:
    """Return the text, if it can be written as UTF-8.

    Raises:
        InputError: half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start + 1} is half of a surrogate pair",
            file=source.path,
            line=number,
            field=field,
            value=text,
            expected="whole characters",
            remedy="the escape \\ud800…\\udfff must come in pairs: write the text anew",
        ) from None
    return text


def parse_json(text: str, source: Source, number: int) -> Any:
    """Return the value of a JSON text that begins on this line of the file.

    Raises:
        InputError: broken JSON, a name that stands twice in one object, nesting too deep.
    """
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}: {error.msg}"
        line = number + error.lineno - 1
        remedy = "one object a line is --format jsonl" if error.lineno > 1 else "mend or remove the line"
        raise InputError(f"broken JSON, {place}", file=source.path, line=line, value=text[:80], remedy=remedy) from None
    except (ValueError, RecursionError) as error:  # a name that stands twice, a number too long, nesting too deep
        raise InputError(f"cannot be read as JSON: {error}", file=source.path, line=number, value=text[:80]) from None


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, if no name stands in it twice: most readers of JSON keep the last only."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the field {twice!r} stands twice in one object")
    return record


def json_kind(value: object) -> str:
    """Return what a JSON value is, in JSON's words."""
    kinds: list[tuple[type, str]] = [(dict, "an object"), (list, "an array"), (str, "a string"), (bool, "a boolean")]
    return next((name for kind, name in kinds if isinstance(value, kind)), "null" if value is None else "a number")


def poetry_documents(source: Source, *, changed: Counter[str]) -> Iterator[Item]:
    """Yield every poem of a file `[{"paragraphs": ["…", …]}, …]`, its paragraphs joined; the id ends in its index."""
    expected = 'chinese-poetry\'s layout: [{"paragraphs": ["…", …], …}, …]'
    content = "\n".join(line for _, line in read_lines(source, changed=changed))
    if not content.strip():
        return
    poems = parse_json(content, source, 1)
    if not isinstance(poems, list):
        remedy = "one object a line is --format jsonl"
        raise InputError(f"the file is {json_kind(poems)}", file=source.path, expected=expected, remedy=remedy)
    for index, poem in enumerate(poems):
        paragraphs = poem.get("paragraphs") if isinstance(poem, dict) else None
        if not isinstance(paragraphs, list) or not all(isinstance(line, str) for line in paragraphs):
            yield InputError(
                "no list of strings", file=source.path, field=f"[{index}].paragraphs", value=poem, expected=expected
            )
            continue
        try:
            text = checked_text(
                join_lines([line for line in paragraphs if line]), source, None, f"[{index}].paragraphs"
            )
        except InputError as problem:
            yield problem
            continue
        yield Document(f"{source.name}:{index}", text)


def join_lines(lines: list[str]) -> str:
    """Return the lines as one text: with a space between, but none between Chinese (or Japanese) characters.

    >>> join_lines(["to rule over the day", "and the night,"]), join_lines(["人生自是有情痴，", "此恨不关风与月。"])
    ('to rule over the day and the night,', '人生自是有情痴，此恨不关风与月。')
    """
    pieces = lines[:1]
    for before, after in pairwise(lines):
        pieces += [" " if need_space(before[-1], after[0]) else "", after]
    return "".join(pieces)


def need_space(before: str, after: str) -> bool:
    """Return whether a space stands between these two characters where two texts are joined."""
    widths = {_width(before), _width(after)}
    return "wide" not in widths or "narrow" in widths


def _width(character: str) -> str:
    """Say "wide" of what is written without spaces, "either" of what stands in such texts too (quotes, dashes)."""
    if "\uac00" <= character <= "\ud7a3":  # Hangul is wide, but Korean is written with spaces
        return "narrow"
    return {"W": "wide", "F": "wide", "A": "either"}.get(east_asian_width(character), "narrow")


def load_function(name: str, *, flag: str = "--format") -> Callable[[str], object]:
    """Return the user's `package.module:function`; modules in the current folder are found too.

    Raises:
        InputError: there is no such module or function, or the module fails when it is imported.
    """
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's: whatever it raises is said, not passed on as a traceback
        raise InputError(
            f"cannot import {module_name}: {type(error).__name__}: {error}",
            field=flag,
            value=name,
            expected="package.module:function, a module in the current folder or an installed one",
            remedy=f"try: python -c 'import {module_name}'",
        ) from error
    function: object = vars(module).get(function_name)
    if not callable(function):
        here = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise InputError(
            f"{module_name} has no function {function_name!r}",
            field=flag,
            value=name,
            expected=f"one of {', '.join(here)}" if here else "a function in it",
        )
    return function


def own_documents(
    function: Callable[[str], object], name: str, source: Source, *, changed: Counter[str]
) -> Iterator[Item]:
    """Yield what the user's function makes of the file: Documents, texts, or lists of sentences."""
    expected = "Documents (id, text), strings, or lists of strings (the sentences of a document)"
    items = function(str(source.path))
    if not isinstance(items, Iterable) or isinstance(items, str | bytes):
        raise InputError(
            f"{name} returned {type(items).__name__}", file=source.path, expected=f"an iterator of {expected}"
        )
    for index, item in enumerate(items):
        match item:
            case Document(id=str(), text=str(), sentences=None | tuple()):
                document = item
            case str():
                document = Document(f"{source.name}:{index}", item)
            case list() | tuple() if all(isinstance(sentence, str) for sentence in item):
                sentences = tuple(sentence.strip() for sentence in item if sentence.strip())
                if len(sentences) < len(item):
                    changed["blank sentence left out"] += len(item) - len(sentences)
                document = Document(f"{source.name}:{index}", "\n".join(sentences), sentences)
            case _:
                kind = type(item).__name__
                raise InputError(f"item {index} of {name} is {kind}", file=source.path, value=item, expected=expected)
        try:
            checked_text(document.text, source, None, f"item {index} of {name}")
        except InputError as problem:
            yield problem
        else:
            yield document
