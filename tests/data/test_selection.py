"""What is hidden together: whole words or none, lengths after their law, and nothing across what may not be hidden."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare
from toy_data import TOY, toy_ids

from bertkit.data.random import Stream
from bertkit.data.selection import NGRAM_LENGTHS, ONE_WORD, SPAN_LENGTHS, Phrases, Selection, select_units

SMALLEST_P = 1e-5
LENGTHS = {"whole_word": ONE_WORD, "span": SPAN_LENGTHS, "ngram": NGRAM_LENGTHS}
ROWS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)  # (may be hidden, begins a word)


def selected(
    eligible: NDArray[np.bool_],
    word_starts: NDArray[np.bool_],
    wanted: NDArray[np.int64] | int,
    *,
    lengths: tuple[float, ...] = ONE_WORD,
    first: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Selection:
    """Units of rows; keys and lengths are those of the seed."""
    rows, seq = eligible.shape
    lanes, stream = np.arange(seq)[None, :], Stream(seed, "test", 0)
    return select_units(
        eligible,
        word_starts,
        np.broadcast_to(wanted, (rows,)).astype(np.int64),
        stream.bits(index=np.arange(rows)[:, None], lane=lanes),
        stream.uniform(index=np.arange(rows)[:, None], lane=1000 + lanes),
        lengths=lengths,
        first=first,
    )


def row_of(pattern: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(eligible, word_starts) of one row: A begins a word, a goes on with it; X and x the same, not to be hidden."""
    return np.array([[c in "Aa" for c in pattern]]), np.array([[c.isupper() for c in pattern]])


def shown(selection: Selection) -> list[str]:
    return ["".join("#" if hidden else "." for hidden in row) for row in selection.selected.tolist()]


# ---- laws of every scheme ----


@pytest.mark.parametrize("scheme", LENGTHS)
@settings(deadline=None, max_examples=100)
@given(row=ROWS, share=st.floats(0, 1), seed=st.integers(0, 50))
def test_a_word_is_hidden_whole_or_not_at_all_and_no_more_than_was_wanted(
    scheme: str, row: list[tuple[bool, bool]], share: float, seed: int
) -> None:
    eligible = np.array([[may for may, _ in row]])
    word_starts = np.array([[True, *(begins for _, begins in row[1:])]])
    wanted = int(np.ceil(share * eligible.sum()))
    found = selected(eligible, word_starts, wanted, lengths=LENGTHS[scheme], seed=seed)
    word = np.cumsum(word_starts[0])
    sizes = []
    for number in np.unique(word):
        hidden, may = found.selected[0][word == number], eligible[0][word == number]
        assert (hidden == may).all() or not hidden.any()
        sizes.append(int(may.sum()))
    smallest = min((size for size in sizes if size), default=0)
    number = int(found.selected.sum())
    assert number <= max(wanted, smallest if wanted else 0)
    assert (number > 0) == (wanted > 0 and smallest > 0)
    # It falls short by less than the smallest word that is left.
    left = [s for s, n in zip(sizes, np.unique(word), strict=True) if s and not found.selected[0][word == n].any()]
    assert not left or number + min(left) > wanted


@pytest.mark.parametrize("scheme", LENGTHS)
@settings(deadline=None, max_examples=100)
@given(row=ROWS, seed=st.integers(0, 50))
def test_a_unit_keeps_to_its_stretch_and_to_its_length(scheme: str, row: list[tuple[bool, bool]], seed: int) -> None:
    eligible = np.array([[may for may, _ in row]])
    word_starts = np.array([[True, *(begins for _, begins in row[1:])]])
    found = selected(eligible, word_starts, int(eligible.sum()) // 2, lengths=LENGTHS[scheme], seed=seed)
    word = np.cumsum(word_starts[0])
    for start in np.unique(found.unit[found.selected]).tolist():
        columns = np.flatnonzero(found.selected[0] & (found.unit[0] == start))
        assert word_starts[0][start]
        assert columns[0] >= start
        words = np.unique(word[columns])
        assert len(words) <= len(LENGTHS[scheme])
        if len(words) > 1:
            assert eligible[0][columns[0] : columns[-1] + 1].all()


def test_padding_behind_a_row_changes_nothing() -> None:
    generator = np.random.default_rng(0)
    eligible, word_starts = generator.random((8, 30)) < 0.8, generator.random((8, 30)) < 0.6
    word_starts[:, 0] = True
    for lengths in LENGTHS.values():
        narrow = selected(eligible, word_starts, 9, lengths=lengths)
        wide = selected(np.pad(eligible, ((0, 0), (0, 70))), np.pad(word_starts, ((0, 0), (0, 70))), 9, lengths=lengths)
        assert (wide.selected[:, :30] == narrow.selected).all()
        assert not wide.selected[:, 30:].any()


# ---- lengths ----


@pytest.mark.parametrize(
    ("lengths", "shares"),
    [
        (SPAN_LENGTHS, [0.2 * 0.8**n / (1 - 0.8**10) for n in range(10)]),
        (NGRAM_LENGTHS, [0.4, 0.3, 0.2, 0.1]),
        (ONE_WORD, [1.0]),
    ],
)
@pytest.mark.parametrize("word_length", [1, 2])
def test_units_have_the_lengths_of_their_law(lengths: tuple[float, ...], shares: list[float], word_length: int) -> None:
    """The first unit of a long row: it always fits, and nothing stands in its way but the end of the row."""
    rows, seq = 20_000, 40
    stream = Stream(3, "lengths", 0)
    word_starts = np.broadcast_to(np.arange(seq) % word_length == 0, (rows, seq))
    keys = np.broadcast_to(np.arange(1, seq + 1, dtype=np.uint64) * np.uint64(8), (rows, seq)).copy()
    keys[:, 10] = 0  # the first of all
    uniform = stream.uniform(index=np.arange(rows)[:, None], lane=np.arange(seq)[None, :])
    found = select_units(
        np.ones((rows, seq), dtype=bool), word_starts, np.full(rows, 10 * word_length), keys, uniform, lengths=lengths
    )
    sizes = ((found.unit == 10) & found.selected).sum(axis=1)
    assert (sizes % word_length == 0).all()
    counts = np.bincount(sizes // word_length, minlength=len(lengths) + 1)[1:]
    assert len(counts) == len(lengths)
    if len(lengths) > 1:
        assert chisquare(counts, np.array(shares) / sum(shares) * rows).pvalue > SMALLEST_P


def test_spans_are_three_words_and_eight_tenths_long_on_average() -> None:
    """SpanBERT's own number."""
    shares = np.array(SPAN_LENGTHS) / sum(SPAN_LENGTHS)
    assert round(float((shares * np.arange(1, 11)).sum()), 1) == 3.8


def test_every_word_is_hidden_as_often_as_every_other() -> None:
    rows, pattern = 40_000, "XAaAaAaAaAaAaAaAaX"
    eligible, word_starts = (np.repeat(array, rows, axis=0) for array in row_of(pattern))
    found = selected(eligible, word_starts, 4)
    assert chisquare(found.selected.sum(axis=0)[1:-1:2]).pvalue > SMALLEST_P
    assert (found.selected.sum(axis=1) == 4).all()


# ---- by hand ----


@pytest.mark.parametrize(
    ("pattern", "wanted", "hidden"),
    [
        ("XAX", 1, ".#."),
        ("XAaaX", 1, ".###."),  # the floor of one: a word, however long
        ("XAaaAaX", 1, "....##."),  # the shortest word, where every one is too long
        ("XAaaAaX", 2, "....##."),
        ("XAaaAaX", 3, None),
        ("XAaaAaX", 4, None),
        ("XAaaAaX", 5, ".#####."),
        ("XAaaAaX", 0, "......."),
        ("XxX", 3, "..."),  # nothing may be hidden
        ("XAxaX", 1, ".#.#."),  # an unknown piece inside a word stays, the rest is one word
        ("XXaX", 1, "..#."),  # also where the word begins with it
    ],
)
def test_rows_by_hand(pattern: str, wanted: int, hidden: str | None) -> None:
    for seed in range(20):
        [found] = shown(selected(*row_of(pattern), wanted, seed=seed))
        if hidden is None:
            assert found in (".###...", "....##.")
        else:
            assert found == hidden


def test_a_unit_that_does_not_fit_is_tried_as_its_first_word_alone() -> None:
    eligible, word_starts = row_of("AaAaAa")
    all_long = np.full((1, 6), 0.999)
    keys = np.array([[0, 9, 1, 9, 2, 9]], dtype=np.uint64) << np.uint64(8)
    found = select_units(eligible, word_starts, np.array([3]), keys, all_long, lengths=NGRAM_LENGTHS)
    assert shown(found) == ["##...."]
    found = select_units(eligible, word_starts, np.array([6]), keys, all_long, lengths=NGRAM_LENGTHS)
    assert shown(found) == ["######"]
    assert found.unit.tolist() == [[0] * 6]


def test_a_unit_stops_at_a_separator_and_at_an_unknown_word() -> None:
    eligible, word_starts = row_of("AAXAA")
    keys = np.array([[0, 4, 9, 2, 3]], dtype=np.uint64) << np.uint64(8)
    found = select_units(eligible, word_starts, np.array([3]), keys, np.full((1, 5), 0.999), lengths=SPAN_LENGTHS)
    assert shown(found) == ["##.#."]
    assert found.unit[0, [0, 1, 3]].tolist() == [0, 0, 3]


def test_a_unit_does_not_take_half_a_word_that_holds_an_unknown_piece() -> None:
    eligible, word_starts = row_of("AAxaA")
    keys = np.array([[0, 1, 9, 9, 2]], dtype=np.uint64) << np.uint64(8)
    found = select_units(eligible, word_starts, np.array([2]), keys, np.full((1, 5), 0.999), lengths=SPAN_LENGTHS)
    assert shown(found) == ["#...#"]


def test_marked_words_come_first() -> None:
    eligible, word_starts = row_of("XAAaAAaaAAX")
    first = np.zeros_like(eligible)
    first[0, [2, 5]] = True
    for seed in range(30):
        assert shown(selected(eligible, word_starts, 5, first=first, seed=seed)) == ["..##.###..."]
        assert shown(selected(eligible, word_starts, 2, first=first, seed=seed)) in (["..##......."], ["..##......."])
        [found] = shown(selected(eligible, word_starts, 6, first=first, seed=seed))
        assert found.count("#") == 6
        assert (found[2:4], found[5:8]) == ("##", "###")


def test_an_empty_batch_is_no_trouble() -> None:
    nothing = np.zeros((0, 5), dtype=bool)
    assert selected(nothing, nothing, 1).selected.shape == (0, 5)


# ---- phrases ----


def phrases(*terms: str) -> Phrases:
    return Phrases((tuple(toy_ids(term)) for term in terms), continuation=TOY.continuation)


def found_in(text: str, *terms: str) -> list[str]:
    """The terms found, as `start-end`."""
    row = np.array([[TOY.cls_id, *toy_ids(text), TOY.sep_id]])
    return sorted(f"{start}-{end}" for _, start, end in phrases(*terms).find(row))


def test_terms_are_found_wherever_they_stand() -> None:
    assert found_in("明月几时有明月", "明月", "几时") == ["1-3", "3-5", "6-8"]
    assert found_in("in the beginning god created", "the beginning", "created") == ["2-4", "5-6"]
    assert found_in("明月几时有", "青天", "明月几时有把酒问青天不知天上宫阙") == []


def test_the_longer_of_two_overlapping_terms_is_taken() -> None:
    assert found_in("明月几时有", "明月", "月几时", "有") == ["2-5", "5-6"]
    assert found_in("明月几时有", "明月几时有", "月几") == ["1-6"]
    assert found_in("明明明", "明明") == ["1-3"]  # of equal ones the first


def test_a_term_is_not_found_in_the_middle_of_an_english_word() -> None:
    assert found_in("the heaven ##s and earth", "heaven", "earth") == ["5-6"]
    assert found_in("the heaven ##s and", "heaven ##s") == ["2-4"]


def test_terms_are_not_found_across_a_separator() -> None:
    row = np.array([[TOY.cls_id, *toy_ids("明"), TOY.sep_id, *toy_ids("月"), TOY.sep_id]])
    assert phrases("明月").find(row) == []


def test_every_row_is_searched_and_an_empty_term_is_none() -> None:
    rows = np.array([toy_ids("明月几"), toy_ids("几时有"), toy_ids("有明月")])
    assert phrases("明月", "").find(rows) == [(0, 0, 2), (2, 1, 3)]
    assert len(phrases("明月", "", "明月")) == 1
    assert phrases().find(rows) == []


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text("明月几", max_size=12), min_size=1, max_size=3), st.sets(st.text("明月几", min_size=1, max_size=4))
)
def test_terms_are_found_as_by_looking(rows: list[str], terms: set[str]) -> None:
    width = max(map(len, rows))
    ids = np.array([toy_ids(row) + [TOY.pad_id] * (width - len(row)) for row in rows], np.int64)
    found = phrases(*sorted(terms)).find(ids)
    wanted, taken = set(), {number: [False] * width for number in range(len(rows))}
    for length in sorted({len(term) for term in terms}, reverse=True):
        for number, row in enumerate(rows):
            for start in range(len(row) - length + 1):
                if row[start : start + length] in terms and not any(taken[number][start : start + length]):
                    taken[number][start : start + length] = [True] * length
                    wanted.add((number, start, start + length))
    assert set(found) == wanted
    assert len(found) == len(wanted)
