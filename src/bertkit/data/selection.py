"""Which tokens are hidden together: words, spans of words, n-grams, a user's phrases.

In: rows of tokens, where words start, how many tokens are wanted.  Out: which tokens are selected, and by which unit.
Next: masking.py
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bertkit.data.random import Stream

# How often a unit has 1, 2, … words, as weights.
# SpanBERT (Joshi et al. 2020): geometric with p = 0.2, at most 10 words; 3.8 on average.
SPAN_LENGTHS = tuple(0.8**n for n in range(10))
# MacBERT (Cui et al. 2020): 40, 30, 20, 10 % of the n-grams have 1, 2, 3, 4 words.
NGRAM_LENGTHS = (0.4, 0.3, 0.2, 0.1)
ONE_WORD = (1.0,)


@dataclass(frozen=True)
class Selection:
    """Which tokens are to be predicted, (rows, seq) each."""

    selected: NDArray[np.bool_]
    unit: NDArray[np.int64]  # the column at which the unit of a selected token starts


def select_units(
    eligible: NDArray[np.bool_],
    word_starts: NDArray[np.bool_],
    wanted: NDArray[np.int64],
    keys: NDArray[np.uint64],
    uniform: NDArray[np.float64],
    *,
    lengths: Sequence[float],
    first: NDArray[np.bool_] | None = None,
) -> Selection:
    """Return units of whole words taken in random order while they fit, at least one unit in a row that wants any.

    eligible: (rows, seq), may be hidden. word_starts: (rows, seq), True where a word begins; a word is hidden whole.
    wanted: (rows,) tokens to hide. keys, uniform: (rows, seq), the random order of the words and the length of the
        unit that begins at each; read at the words' starts.
    lengths: weights: how often a unit has 1, 2, … words; one that does not fit is tried as its first word alone,
        a word that does not fit is passed over (as in Google's code), so that a row may fall short by less than a word.
    first: (rows, seq), words that come before all others where True at their start.
    A unit never reaches over a token that is not eligible, unless that stands inside its first word.
    """
    rows, seq = eligible.shape
    word: NDArray[np.int64] = np.cumsum(word_starts, axis=1, dtype=np.int64)  # (rows, seq) number of the word
    stretch: NDArray[np.int64] = np.cumsum(~eligible, axis=1, dtype=np.int64)  # (rows, seq) number of the stretch
    is_whole = ~_has(word, ~eligible)  # a word of which all may be hidden
    shares = np.cumsum(lengths) / sum(lengths)
    unit_words = 1 + np.searchsorted(shares[:-1], uniform, side="right")  # (rows, seq)
    order = _word_order(eligible, word_starts, word, keys, first)
    selected, unit = np.zeros((rows, seq), dtype=bool), np.zeros((rows, seq), dtype=np.int64)
    left = wanted.copy()
    row = np.arange(rows)
    for turn in range(order.shape[1]):
        start = order[:, turn]  # (rows,) column of a word's first token; −1 where a row has no more
        if not ((left > 0) & (start >= 0)).any():
            break
        column = np.maximum(start, 0)
        ahead = word - word[row, column][:, None]  # (rows, seq) words from the unit's first
        free = eligible & ~selected & (start >= 0)[:, None]
        one = free & (ahead == 0)
        same_stretch = stretch == stretch[row, column][:, None]
        more = free & is_whole & same_stretch & (ahead > 0) & (ahead < unit_words[row, column][:, None])
        many = one | more
        take = np.where((many.sum(axis=1) <= left)[:, None], many, one & (one.sum(axis=1) <= left)[:, None])
        selected |= take
        unit = np.where(take, column[:, None], unit)
        left = left - take.sum(axis=1)
    return _at_least_one(Selection(selected, unit), eligible, word, order, wanted)


def _word_order(
    eligible: NDArray[np.bool_],
    word_starts: NDArray[np.bool_],
    word: NDArray[np.int64],
    keys: NDArray[np.uint64],
    first: NDArray[np.bool_] | None,
) -> NDArray[np.int64]:
    """The columns at which words start, in random order, −1 behind the last, (rows, most words of a row)."""
    seq = eligible.shape[1]
    is_candidate = word_starts & _has(word, eligible)
    behind_all_others = np.uint64(2**64 - 1)
    ranks = np.where(is_candidate, keys >> np.uint64(1), behind_all_others)
    if first is not None:
        ranks = np.where(is_candidate & ~first, ranks | np.uint64(1 << 63), ranks)
    order = np.argsort(ranks, axis=1, kind="stable")
    counts = is_candidate.sum(axis=1)
    order = np.where(np.arange(seq)[None, :] < counts[:, None], order, -1)
    return order[:, : int(counts.max(initial=0))]


def _has(word: NDArray[np.int64], marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether any token of a word is marked, for each token of it, (rows, seq)."""
    has = np.zeros((word.shape[0], word.shape[1] + 1), dtype=bool)
    rows, columns = np.nonzero(marked)
    has[rows, word[rows, columns]] = True
    return np.take_along_axis(has, word, axis=1)


def _at_least_one(
    selection: Selection,
    eligible: NDArray[np.bool_],
    word: NDArray[np.int64],
    order: NDArray[np.int64],
    wanted: NDArray[np.int64],
) -> Selection:
    """Where every word is longer than what was wanted, take the shortest (the first of them in the random order)."""
    for row in np.flatnonzero((wanted > 0) & ~selection.selected.any(axis=1)):
        starts = order[row][order[row] >= 0]
        sizes = [int((eligible[row] & (word[row] == word[row, start])).sum()) for start in starts]
        if sizes:
            start = starts[int(np.argmin(sizes))]
            chosen = eligible[row] & (word[row] == word[row, start])
            selection.selected[row] |= chosen
            selection.unit[row][chosen] = start
    return selection


class Phrases:
    """A user's terms as token ids; finds them in rows, where no word goes on behind them.

    continuation: (vocab,) bool, the ids that go on with a word (##): `art` does not stand in `art ##ist`.
    """

    def __init__(self, phrases: Iterable[tuple[int, ...]], *, continuation: NDArray[np.bool_]) -> None:
        self._continuation = continuation
        self._phrases = {phrase for phrase in phrases if len(phrase) > 0}
        self._hashes: dict[int, NDArray[np.uint64]] = {}
        for length in sorted({len(phrase) for phrase in self._phrases}, reverse=True):
            ids = np.array([phrase for phrase in self._phrases if len(phrase) == length], dtype=np.int64)
            self._hashes[length] = np.unique(_hash(ids))

    def __len__(self) -> int:
        return len(self._phrases)

    def find(self, input_ids: NDArray[np.int64]) -> list[tuple[int, int, int]]:
        """Return (row, start, end) of the phrases in rows (rows, seq), longer ones first, no two overlapping."""
        found: list[tuple[int, int, int]] = []
        taken = np.zeros(input_ids.shape, dtype=bool)
        goes_on = np.pad(self._continuation[input_ids], ((0, 0), (0, 1)))  # (rows, seq + 1)
        for length, hashes in self._hashes.items():
            if length > input_ids.shape[1]:
                continue
            hits = np.isin(_hash(sliding_window_view(input_ids, length, axis=1)), hashes) & ~goes_on[:, length:]
            for row, start in zip(*(axis.tolist() for axis in hits.nonzero()), strict=True):
                end = start + length
                if not taken[row, start:end].any() and tuple(input_ids[row, start:end].tolist()) in self._phrases:
                    taken[row, start:end] = True
                    found.append((row, start, end))
        return found


def _hash(windows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A 64-bit hash over the last axis; equality is checked behind it."""
    length = windows.shape[-1]
    weights = Stream(0, "phrase", 0).bits(index=np.arange(length)) | np.uint64(1)
    hashes: NDArray[np.uint64] = (windows.astype(np.uint64) * weights).sum(axis=-1, dtype=np.uint64)
    return hashes
