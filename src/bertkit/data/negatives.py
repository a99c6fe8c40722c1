"""The B that does not follow: drawn from another document, or from far away in the same one.

In: PairDrafts.  Out: for each random pair a B, and which pairs got none.  No label lies: places and texts are compared.
Next: pairs.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.packing import LANE_OTHER, PairDrafts, lane_of
from bertkit.data.random import Stream
from bertkit.data.store import Store

# How often another random B is drawn when the first one follows A after all, by its text.
REDRAWS = 16
# A hard negative keeps at least this many sentences between itself and the pair it is drawn for.
HARD_DISTANCE = 5


@dataclass(frozen=True)
class RandomB:
    """The Bs drawn for some rows of the drafts, sentences counted over the whole store, (drawn rows,) int64 each."""

    document: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]


def draw_random_b(
    store: Store, drafts: PairDrafts, stream: Stream, *, hard: bool
) -> tuple[RandomB, NDArray[np.int64], int]:
    """Return a B for each row of the drafts that is random, the rows that got none, and how many fell back.

    hard: from the same document where it is long enough, else (the last number) from another one.
    """
    rows = np.flatnonzero(drafts.is_random)
    document, first, end = (np.zeros(len(rows), dtype=np.int64) for _ in range(3))
    open_rows = np.arange(len(rows))  # places in `rows` still without a B
    fallbacks = 0
    for attempt in range(REDRAWS):
        here = rows[open_rows]
        lanes = [lane_of(drafts.pair[here], LANE_OTHER + 2 * attempt + draw) for draw in (0, 1)]
        drawn = _elsewhere(store, drafts, here, stream, lanes) if store.num_documents > 1 else None
        impossible = np.zeros(len(here), dtype=bool)
        if hard:
            near, is_long_enough = _far_away(store, drafts, here, stream, lanes[1])
            if drawn is None:
                drawn, impossible = near, ~is_long_enough
            else:
                fallbacks += int((~is_long_enough).sum()) if attempt == 0 else 0
                drawn = RandomB(
                    np.where(is_long_enough, near.document, drawn.document),
                    np.where(is_long_enough, near.first, drawn.first),
                    np.where(is_long_enough, near.end, drawn.end),
                )
        assert drawn is not None, "a random B needs another document"
        document[open_rows], first[open_rows], end[open_rows] = drawn.document, drawn.first, drawn.end
        follows = np.zeros(len(here), dtype=bool)
        possible = np.flatnonzero(~impossible)
        follows[possible] = _truly_follows(
            store, drafts, here[possible], drawn.document[possible], drawn.first[possible]
        )
        open_rows = open_rows[follows | impossible]
        if not len(open_rows):
            break
    return RandomB(document, first, end), rows[open_rows], fallbacks


def _elsewhere(
    store: Store, drafts: PairDrafts, rows: NDArray[np.int64], stream: Stream, lanes: list[NDArray[np.int64]]
) -> RandomB:
    """Another document drawn uniformly, a sentence in it uniformly, and from there until the target is reached."""
    document = drafts.document[rows]
    other = stream.below(store.num_documents - 1, index=document, lane=lanes[0])
    other += other >= document  # all but A's own
    first = store.document_sentences[other] + stream.below(
        store.sentences_per_document[other], index=document, lane=lanes[1]
    )
    return RandomB(other, first, _end_of(store, drafts, rows, first, store.document_sentences[other + 1]))


def _far_away(
    store: Store, drafts: PairDrafts, rows: NDArray[np.int64], stream: Stream, lane: NDArray[np.int64]
) -> tuple[RandomB, NDArray[np.bool_]]:
    """A sentence of A's document drawn uniformly among those far before A or far behind the true B."""
    document, first_a = drafts.document[rows], drafts.first_a[rows]
    start, stop = store.document_sentences[document], store.document_sentences[document + 1]
    behind = np.maximum(drafts.end_b[rows], drafts.end_a[rows]) + HARD_DISTANCE
    before_count = np.maximum(first_a - HARD_DISTANCE - start, 0)
    behind_count = np.maximum(stop - behind, 0)
    draw = stream.below(np.maximum(before_count + behind_count, 1), index=document, lane=lane)
    is_before = draw < before_count
    first = np.where(is_before, start + draw, behind + draw - before_count)
    first = np.minimum(first, stop - 1)  # (only where nothing is far enough; not used then)
    limit = np.where(is_before, np.maximum(first_a - HARD_DISTANCE, first + 1), stop)
    drawn = RandomB(document, first, _end_of(store, drafts, rows, first, limit))
    return drawn, before_count + behind_count > 0


def _end_of(
    store: Store, drafts: PairDrafts, rows: NDArray[np.int64], first: NDArray[np.int64], limit: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The sentence at which a B that starts at `first` ends: at the target length, at least one sentence on."""
    starts = store.sentence_starts
    length_a = starts[drafts.end_a[rows]] - starts[drafts.first_a[rows]]
    wanted = starts[first] + np.maximum(drafts.target[rows] - length_a, 1)
    end = np.searchsorted(starts, wanted, side="left")
    return np.minimum(np.maximum(end, first + 1), limit)


def _truly_follows(
    store: Store, drafts: PairDrafts, rows: NDArray[np.int64], other: NDArray[np.int64], first: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether sentence `first` of document `other` is a true B by its text, for each row.

    It is where it reads like the sentence that follows A, or where the one before it reads like A's last.
    """
    end_a = drafts.end_a[rows]
    follows = np.zeros(len(rows), dtype=bool)
    has_next = np.flatnonzero(end_a < store.document_sentences[drafts.document[rows] + 1])
    follows[has_next] = _reads_alike(store, first[has_next], end_a[has_next])
    has_previous = np.flatnonzero(first > store.document_sentences[other])
    follows[has_previous] |= _reads_alike(store, first[has_previous] - 1, end_a[has_previous] - 1)
    return follows


def _reads_alike(store: Store, sentence: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether two sentences have the same tokens, for each row."""
    starts = store.sentence_starts
    lengths = starts[sentence + 1] - starts[sentence]
    alike: NDArray[np.bool_] = starts[other + 1] - starts[other] == lengths
    candidates = np.flatnonzero(alike)
    if len(candidates):
        one, two = sentence[candidates], other[candidates]
        differs = store.tokens(starts[one], starts[one + 1]) != store.tokens(starts[two], starts[two + 1])
        row_starts = np.cumsum(lengths[candidates]) - lengths[candidates]
        alike[candidates] = np.add.reduceat(differs, row_starts, dtype=np.int64) == 0
    return alike
