"""What one epoch draws from a store: how many pairs, how long, which labels, and what their lengths give away.

In: a Store and its PairTable.  Out: PairStatistics.  Next: mask_statistics.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.distributions import Distribution, distribution_of
from bertkit.data.pairs import IS_NEXT, IS_RANDOM, PairSettings, PairTable
from bertkit.data.random import Stream
from bertkit.data.rows import row_lengths
from bertkit.data.store import Store

# The guess by lengths counts labels in a table over (tokens of A, tokens of B), cut ever finer, each length for itself
# at last; a cell leans on the coarser cell around it as on so many pairs.
LENGTH_BINS = (4, 16, 64, None)
COARSER_CELL_PAIRS = 8
FEWEST_PAIRS = 100  # with fewer the guess says nothing


@dataclass(frozen=True)
class LengthGuess:
    """How often the label is guessed from the two lengths alone; the text of the pairs is never read.

    A next-sentence accuracy near it shows that a model has learnt to count, not to read.
    """

    accuracy: float
    standard_error: float
    majority: float  # what always saying the more frequent label gives


@dataclass(frozen=True)
class PairStatistics:
    """The rows of the first epoch."""

    pairing: str
    rows: int
    is_next_share: float | None  # pairs whose B follows A (sop: that are in order); None: no pairs
    unresolved: int  # pairs left out: no random B could be drawn that does not follow A
    usable_share: float  # of the pairs that were to be made
    hard_fallbacks: int
    trimmed_tokens: int
    trimmed_share: float  # of the tokens drawn for A and B
    sentences_used: int  # that stand in a row at least in part
    sentences_used_share: float
    row_tokens: Distribution  # special tokens included
    rows_at_cap: int  # of exactly max_seq_length tokens
    rows_at_cap_share: float
    length_guess: LengthGuess | None  # None: no pairs, or too few of them


def pair_statistics(store: Store, table: PairTable, pairs: PairSettings, *, seed: int) -> PairStatistics:
    """Return the numbers of an epoch's table."""
    lengths = row_lengths(table, np.arange(len(table)))
    length_a, length_b = table.end_a - table.start_a, table.end_b - table.start_b
    drawn = int(length_a.sum() + length_b.sum()) + table.trimmed_tokens
    at_cap = int((lengths == pairs.max_seq_length).sum())
    used = int(sentences_used(store, table).sum())
    has_pairs = pairs.pairing != "none"
    return PairStatistics(
        pairing=pairs.pairing,
        rows=len(table),
        is_next_share=float((table.next_sentence_label == IS_NEXT).mean()) if has_pairs else None,
        unresolved=table.unresolved,
        usable_share=len(table) / (len(table) + table.unresolved),
        hard_fallbacks=table.hard_fallbacks,
        trimmed_tokens=table.trimmed_tokens,
        trimmed_share=table.trimmed_tokens / drawn,
        sentences_used=used,
        sentences_used_share=used / store.num_sentences,
        row_tokens=distribution_of(lengths),
        rows_at_cap=at_cap,
        rows_at_cap_share=at_cap / len(table),
        length_guess=guess_by_lengths(table, seed=seed) if has_pairs and len(table) >= FEWEST_PAIRS else None,
    )


def sentences_used(store: Store, table: PairTable) -> NDArray[np.bool_]:
    """Return whether each sentence stands in a row, at least in part, (sentences,) bool."""
    change = np.zeros(store.num_sentences + 1, np.int64)
    for start, end in ((table.start_a, table.end_a), (table.start_b, table.end_b)):
        some = end > start
        first = np.searchsorted(store.sentence_starts, start[some], side="right") - 1
        behind = np.searchsorted(store.sentence_starts, end[some], side="left")
        change += np.bincount(first, minlength=len(change)) - np.bincount(behind, minlength=len(change))
    used: NDArray[np.bool_] = np.cumsum(change[:-1]) > 0
    return used


def guess_by_lengths(table: PairTable, *, seed: int) -> LengthGuess:
    """Return how often lengths alone give the label: counted on one half of the documents, tested on the other.

    Both ways round, so that every pair is guessed once; the pairs of an A's document are never on both sides.
    """
    lengths = table.end_a - table.start_a, table.end_b - table.start_b
    is_random = table.next_sentence_label == IS_RANDOM
    half = Stream(seed, "halves", 0).bits(index=table.document_a) & np.uint64(1)
    right = np.zeros(len(table), bool)
    for tested in (half == 0, half == 1):
        right[tested] = (_share_random(lengths, is_random, learnt_from=~tested) > 0.5)[tested] == is_random[tested]
    accuracy = float(right.mean())
    return LengthGuess(
        accuracy=accuracy,
        standard_error=float(np.sqrt(accuracy * (1 - accuracy) / len(table))),
        majority=float(max(is_random.mean(), 1 - is_random.mean())),
    )


def _share_random(
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]],
    is_random: NDArray[np.bool_],
    *,
    learnt_from: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The share of random pairs to be expected at the lengths of each pair, (rows,)."""
    labels = is_random[learnt_from]
    share = np.full(len(is_random), labels.mean() if len(labels) else 0.5)
    for bins in LENGTH_BINS:
        bin_a, bin_b = (_binned(length, bins) for length in lengths)
        cells, cell = np.unique(bin_a * (int(bin_b.max()) + 1) + bin_b, return_inverse=True)
        pairs = np.bincount(cell[learnt_from], minlength=len(cells))
        random = np.bincount(cell[learnt_from], weights=labels, minlength=len(cells))
        share = (random[cell] + COARSER_CELL_PAIRS * share) / (pairs[cell] + COARSER_CELL_PAIRS)
    return share


def _binned(lengths: NDArray[np.int64], bins: int | None) -> NDArray[np.int64]:
    """Which of at most `bins` bins, equally full, each length falls into; None: each length is a bin."""
    if bins is None:
        return lengths
    edges = np.unique(np.quantile(lengths, np.arange(1, bins) / bins, method="inverted_cdf"))
    return np.searchsorted(edges, lengths, side="left")
