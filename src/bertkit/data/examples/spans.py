"""Entities as stretches of characters → tagged words: CLUENER's objects, doccano's triples and objects.

In: a record with a text.  Out: its words and their IOB2 tags.  Next: tagging.py
"""

from itertools import pairwise
from typing import Any, NamedTuple

from bertkit.data.examples.json_records import Record
from bertkit.data.examples.words import Offsets, words_of
from bertkit.data.tags import Span, tags_of
from bertkit.errors import InputError
from bertkit.text.readers import Source

LAYOUTS = 'CLUENER: {"type": {"text": [[first, last]]}}, doccano: [[start, end, "type"]] or [{"start_offset": …}]'


class Stretch(NamedTuple):
    """An entity in characters, end exclusive."""

    start: int
    end: int
    type: str


def holds_spans(value: object) -> bool:
    """Return whether a field holds entities as stretches of characters: an object, or an array of arrays or objects."""
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(v, list | dict) for v in value))


def tagged_by_spans(
    text: str, value: object, record: Record, source: Source, field: str
) -> tuple[tuple[str, ...], Offsets, tuple[str, ...]]:
    """Return the words of the text, where they stand, and their IOB2 tags; every entity begins and ends with a word.

    Raises:
        InputError: no known layout, a stretch outside the text or of blanks, or one that overlaps another.
    """

    def fault(problem: str, shown: object, expected: str) -> InputError:
        return InputError(problem, file=source.path, line=record.line, field=field, value=shown, expected=expected)

    stretches = sorted(_stretches(text, value, fault))
    for stretch in stretches:
        if not (0 <= stretch.start < stretch.end <= len(text)) or not text[stretch.start : stretch.end].strip():
            raise fault("the entity is outside the text or empty", list(stretch), f"0 ≤ start < end ≤ {len(text)}")
    for before, after in pairwise(stretches):
        if after.start < before.end:
            raise fault("two entities overlap", [list(before), list(after)], "entities side by side")
    offsets = words_of(text, cuts=[place for stretch in stretches for place in stretch[:2]])
    spans = []
    for start, end, type in stretches:
        inside = [place for place, (begin, stop) in enumerate(offsets) if start <= begin and stop <= end]
        spans.append(Span(type, inside[0], inside[-1] + 1))
    words = tuple(text[start:end] for start, end in offsets)
    return words, offsets, tags_of(spans, length=len(words))


def _stretches(text: str, value: object, fault: Any) -> list[Stretch]:
    """The entities of either layout."""
    if isinstance(value, dict):
        return _of_cluener(text, value, fault)
    found = []
    for entity in value if isinstance(value, list) else [value]:
        match entity:
            case [int(start), int(end), str(type)]:
                found.append(Stretch(start, end, type))
            case {"start_offset": int(start), "end_offset": int(end), "label": str(type)}:
                found.append(Stretch(start, end, type))
            case _:
                raise fault("no entity of a known layout", entity, LAYOUTS)
    return found


def _of_cluener(text: str, value: dict[str, Any], fault: Any) -> list[Stretch]:
    """CLUENER's entities, whose last character is inside; their text must stand there."""
    found = []
    for type, mentions in value.items():
        if not isinstance(mentions, dict):
            raise fault("no entity of a known layout", {type: mentions}, LAYOUTS)
        for mention, places in mentions.items():
            for place in places if isinstance(places, list) else [places]:
                match place:
                    case [int(first), int(last)] if text[first : last + 1] == mention:
                        found.append(Stretch(first, last + 1, type))
                    case _:
                        raise fault(f"{mention!r} does not stand at its place", place, "[first, last] character")
    return found
