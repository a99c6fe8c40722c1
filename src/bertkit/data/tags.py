"""Schemes by which tags mark entities and words: recognised, checked, and written as IOB2, the one all else works on.

In: the tags of a file.  Out: IOB2 tags, spans, and back.  Untyped tags (B, I, O) and word segmentation (B, M, E, S) are
the same with the empty type.  Next: tag_decoding.py
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Scheme = Literal["IOB1", "IOB2", "BIOES", "BMES", "BILOU", "classes"]
OUTSIDE = "O"
_PREFIXED = re.compile(r"([BIEMSLU])-(.+)", re.S)
_BARE = frozenset("BIEMSLUO")
# What other letters mean in terms of BIOES: begin, inside, end, single.
_AS_BIOES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
_LETTERS: dict[Scheme, str] = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}


class Span(NamedTuple):
    """Words that belong together."""

    type: str  # "": of untyped tags, or a word
    start: int  # its first word
    end: int  # behind its last word


class TagFault(NamedTuple):
    """A tag that its scheme does not allow where it stands."""

    word: int
    problem: str
    expected: str


@dataclass(frozen=True)
class TagScheme:
    """A scheme, and why it was taken."""

    name: Scheme
    reason: str


def split_tag(tag: str) -> tuple[str, str] | None:
    """Return (letter, type) of a tag, ("O", "") of the outside one; None: it has no letter of a scheme.

    >>> split_tag("B-creative-work"), split_tag("I"), split_tag("O"), split_tag("NN")
    (('B', 'creative-work'), ('I', ''), ('O', ''), None)
    """
    if tag in _BARE:
        return tag, ""
    match = _PREFIXED.fullmatch(tag)
    return (match[1], match[2]) if match else None


def recognise_scheme(sentences: Iterable[Sequence[str]]) -> TagScheme:
    """Return the scheme of these sentences' tags.

    No letter of a scheme before a hyphen, and not only bare letters: plain classes.  An M: BMES; an L or U: BILOU; an E
    or S: BIOES.  Else IOB1, if some entity begins with I and every B only parts two neighbours of one type; else IOB2.
    """
    letters: Counter[str] = Counter()
    plain = prefixed = inside_begins = plain_begins = 0
    for tags in sentences:
        before = (OUTSIDE, "")
        for tag in tags:
            parts = split_tag(tag)
            if parts is None:
                plain += 1
                parts = (OUTSIDE, "")
            letters[parts[0]] += 1
            prefixed += bool(parts[1])
            continues = before[0] != OUTSIDE and before[1] == parts[1]
            inside_begins += parts[0] == "I" and not continues
            plain_begins += parts[0] == "B" and not continues
            before = parts
    if plain and not prefixed:
        return TagScheme("classes", "no tag begins with B- or I-: plain classes")
    for name, marks in (("BMES", "M"), ("BILOU", "LU"), ("BIOES", "ES")):
        found = [mark for mark in marks if letters[mark]]
        if found:  # B and E of words of two characters alone are BMES as well as BIOES, and read alike
            scheme: Scheme = "BMES" if name == "BMES" else "BILOU" if name == "BILOU" else "BIOES"
            return TagScheme(scheme, f"{name}, as a tag has the letter {found[0]}")
    if inside_begins and not plain_begins:
        return TagScheme("IOB1", "IOB1, as entities begin with I-")
    return TagScheme("IOB2", "IOB2, as entities begin with B-")


def faults_of(tags: Sequence[str], scheme: Scheme) -> list[TagFault]:
    """Return the tags that the scheme does not allow where they stand; of plain classes none."""
    if scheme == "classes":
        return []
    faults: list[TagFault] = []
    before = (OUTSIDE, "")
    for word, tag in enumerate(tags):
        parts = split_tag(tag)
        if parts is None or parts[0] not in f"{_LETTERS[scheme]}O":
            faults.append(
                TagFault(word, f"the tag is none of {scheme}", f"O, or a type behind {_dashed(_LETTERS[scheme])}")
            )
            parts = (OUTSIDE, "")
        elif (fault := _fault(before, parts, scheme, word)) is not None:
            faults.append(fault)
        before = parts
    if scheme in ("BIOES", "BMES", "BILOU") and _AS_BIOES.get(before[0]) in ("B", "I"):
        faults.append(TagFault(len(tags) - 1, "the entity does not end", f"an end tag of {scheme} as its last"))
    return faults


def _dashed(letters: str) -> str:
    return ", ".join(f"{letter}-" for letter in letters)


def _fault(before: tuple[str, str], now: tuple[str, str], scheme: Scheme, word: int) -> TagFault | None:
    """What is wrong with one tag behind another."""
    last, this = _AS_BIOES.get(before[0], OUTSIDE), _AS_BIOES.get(now[0], OUTSIDE)
    continues = this in ("I", "E")
    if scheme == "IOB1":
        return None  # a B- that parts nothing is harmless and means what it says
    if scheme == "IOB2":
        if this == "I" and not (last in ("B", "I") and before[1] == now[1]):
            return TagFault(word, "an inside tag that continues nothing", f"B-{now[1]} to begin an entity")
        return None
    if continues and not (last in ("B", "I") and before[1] == now[1]):
        return TagFault(word, "an inside or end tag that continues nothing", f"an entity of type {now[1]} before it")
    if not continues and last in ("B", "I"):
        return TagFault(word, "the entity before has no end", f"an inside or end tag of type {before[1]}")
    return None


def to_iob2(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Return the tags as IOB2; a tag that its scheme does not allow is repaired: it begins an entity, or ends one.

    The repair is that of seqeval's default mode, so its spans are those.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O"], "IOB1")
    ('B-PER', 'I-PER', 'B-PER', 'O')
    >>> to_iob2(["B", "E", "S"], "BMES")
    ('B', 'I', 'B')
    """
    if scheme == "classes":
        return tuple(tags)
    written = []
    last, last_type = OUTSIDE, ""
    for tag in tags:
        letter, type = split_tag(tag) or (OUTSIDE, "")
        this = _AS_BIOES.get(letter, OUTSIDE)
        if this == OUTSIDE:
            written.append(OUTSIDE)
        else:
            begins = this in ("B", "S") or last in (OUTSIDE, "E", "S") or last_type != type
            written.append(_tag("B" if begins else "I", type))
        last, last_type = this, type
    return tuple(written)


def _tag(letter: str, type: str) -> str:
    return f"{letter}-{type}" if type else letter


def spans_of(tags: Sequence[str], *, strict: bool = False) -> list[Span]:
    """Return the entities of IOB2 tags.

    strict: an entity begins with a B- only, and an I- that continues nothing is outside (seqeval's mode="strict" with
        scheme=IOB2).  Otherwise such an I- begins one (seqeval's default, and CoNLL's script).

    >>> spans_of(["B-PER", "I-PER", "I-LOC", "O"])
    [Span(type='PER', start=0, end=2), Span(type='LOC', start=2, end=3)]
    >>> spans_of(["B-PER", "I-PER", "I-LOC", "O"], strict=True)
    [Span(type='PER', start=0, end=2)]
    """
    spans: list[Span] = []
    open_type: str | None = None
    start = 0
    for word, tag in enumerate([*tags, OUTSIDE]):
        letter, type = split_tag(tag) or (OUTSIDE, "")
        if letter == "I" and open_type == type:
            continue
        if open_type is not None:
            spans.append(Span(open_type, start, word))
            open_type = None
        if letter == "B" or (letter == "I" and not strict):
            open_type, start = type, word
    return spans


def tags_of(spans: Iterable[Span], *, length: int) -> tuple[str, ...]:
    """Return the IOB2 tags of a sentence of `length` words with these entities, which do not overlap.

    >>> tags_of([Span("PER", 1, 3)], length=4)
    ('O', 'B-PER', 'I-PER', 'O')
    """
    tags = [OUTSIDE] * length
    for type, start, end in spans:
        assert 0 <= start < end <= length, "a span lies outside the sentence"
        assert all(tag == OUTSIDE for tag in tags[start:end]), "spans overlap"
        tags[start:end] = [_tag("B", type), *[_tag("I", type)] * (end - start - 1)]
    return tuple(tags)
