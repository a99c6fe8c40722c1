"""Schemes of tags: recognised, checked, written as IOB2; spans and tags are the same thing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.tags import Scheme, Span, faults_of, recognise_scheme, spans_of, split_tag, tags_of, to_iob2

# "B-MISC after B-PER" and types with capital letters I and B in them: textbook fault 12.
TYPES = ("PER", "MISC", "creative-work", "I", "B-I")


@st.composite
def sentences(draw: st.DrawFn, *, types: tuple[str, ...] = TYPES) -> tuple[list[Span], int]:
    """Entities side by side, and the number of words."""
    spans, place = [], 0
    for _ in range(draw(st.integers(0, 5))):
        place += draw(st.integers(0, 2))
        end = place + draw(st.integers(1, 3))
        spans.append(Span(draw(st.sampled_from(types)), place, end))
        place = end
    return spans, place + draw(st.integers(0, 2))


def written(spans: list[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of these entities, by a writer of its own."""
    first, inside, last, single = {
        "IOB1": "IIII",
        "IOB2": "BIIB",
        "BIOES": "BIES",
        "BMES": "BMES",
        "BILOU": "BILU",
        "classes": "????",
    }[scheme]
    tags = ["O"] * length
    for type, start, end in spans:
        letters = [single] if end - start == 1 else [first, *[inside] * (end - start - 2), last]
        for word, letter in zip(range(start, end), letters, strict=True):
            tags[word] = f"{letter}-{type}" if type else letter
    if scheme == "IOB1":
        for before, after in pairwise(spans):
            if before.end == after.start and before.type == after.type:
                tags[after.start] = f"B-{after.type}" if after.type else "B"
    return tags


@given(sentence=sentences(), scheme=st.sampled_from(["IOB1", "IOB2", "BIOES", "BMES", "BILOU"]))
def test_every_scheme_says_the_same_in_iob2(sentence: tuple[list[Span], int], scheme: Scheme) -> None:
    spans, length = sentence
    tags = written(spans, length, scheme)
    assert faults_of(tags, scheme) == []
    iob2 = to_iob2(tags, scheme)
    assert iob2 == tags_of(spans, length=length) == tuple(written(spans, length, "IOB2"))
    assert spans_of(iob2) == spans_of(iob2, strict=True) == spans


@given(sentence=sentences(types=("",)))
def test_untyped_tags_are_entities_of_the_empty_type(sentence: tuple[list[Span], int]) -> None:
    spans, length = sentence
    tags = tags_of(spans, length=length)
    assert set(tags) <= {"B", "I", "O"}
    assert spans_of(tags) == spans


@given(words=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_word_segmentation_is_read_from_bmes_and_from_bi(words: list[int]) -> None:
    bmes = [letter for n in words for letter in (["S"] if n == 1 else ["B", *"M" * (n - 2), "E"])]
    iob2 = to_iob2(bmes, recognise_scheme([bmes]).name)
    assert set(iob2) <= {"B", "I"}
    assert [span.end - span.start for span in spans_of(iob2)] == words


@given(tags=st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=8))
def test_repaired_tags_are_sound_and_their_spans_are_those_of_lenient_reading(tags: list[str]) -> None:
    repaired = to_iob2(tags, "IOB2")
    assert faults_of(repaired, "IOB2") == []
    assert spans_of(repaired, strict=True) == spans_of(tags)
    assert {span for span in spans_of(tags, strict=True) if tags[span.start].startswith("I")} == set()


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O", "I-PER", "I-PER", "B-PER"], "IOB1"),
        (["B-PER", "I-PER", "O"], "IOB2"),
        (["B-PER", "O", "I-LOC"], "IOB2"),  # with a fault, to be named
        (["B-PER", "E-PER", "S-LOC"], "BIOES"),
        (["S-LOC", "O"], "BIOES"),
        (["B-PER", "M-PER", "E-PER"], "BMES"),
        (["B-PER", "L-PER", "U-LOC"], "BILOU"),
        (["B", "I", "O"], "IOB2"),
        (["NN", "VB"], "classes"),
        (["O", "O"], "IOB2"),
    ],
)
def test_a_scheme_is_recognised_from_its_tags(tags: list[str], scheme: Scheme) -> None:
    found = recognise_scheme([tags])
    assert found.name == scheme
    assert found.reason


@pytest.mark.parametrize(
    ("tags", "scheme", "word", "problem"),
    [
        (["O", "I-PER"], "IOB2", 1, "an inside tag that continues nothing"),
        (["B-LOC", "I-PER"], "IOB2", 1, "an inside tag that continues nothing"),
        (["B-LOC", "PER"], "IOB2", 1, "the tag is none of IOB2"),
        (["E-PER"], "IOB2", 0, "the tag is none of IOB2"),
        (["B-PER", "O"], "BIOES", 1, "the entity before has no end"),
        (["O", "E-PER"], "BIOES", 1, "an inside or end tag that continues nothing"),
        (["S-PER", "B-PER"], "BIOES", 1, "the entity does not end"),
    ],
)
def test_a_tag_that_its_scheme_does_not_allow_is_named(
    tags: list[str], scheme: Scheme, word: int, problem: str
) -> None:
    [fault] = faults_of(tags, scheme)
    assert (fault.word, fault.problem) == (word, problem)
    assert fault.expected


def test_plain_classes_have_no_faults_and_stay() -> None:
    assert faults_of(["NN", "O"], "classes") == []
    assert to_iob2(["NN", "VB"], "classes") == ("NN", "VB")
    assert split_tag("E-mail") == ("E", "mail")


def test_a_type_with_a_capital_i_is_no_inside_tag() -> None:  # textbook fault 12
    assert spans_of(["B-MISC", "B-INST", "B-PER", "B-MISC"]) == [
        Span("MISC", 0, 1),
        Span("INST", 1, 2),
        Span("PER", 2, 3),
        Span("MISC", 3, 4),
    ]
