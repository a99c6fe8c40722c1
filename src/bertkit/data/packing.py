"""Which sentences stand together: the A of a pair, the true B behind it, and how long they should be.

In: a Store and the random numbers of an epoch.  Out: PairDrafts, whose random Bs are not drawn yet.
All documents are cut in step (turn k makes the k-th pair of each), so that no Python loop runs over sentences.
Next: negatives.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.random import Stream
from bertkit.data.store import Store

SPECIALS_OF_A_PAIR, SPECIALS_OF_A_TEXT = 3, 2  # [CLS] A [SEP] B [SEP]; [CLS] A [SEP]
# The draws of one document: a block of lanes for each of its pairs, block 0 for the document itself.
_LANES_PER_PAIR = 128
_LANE_LENGTH = 0  # and 1, in block 0
LANE_SPLIT, LANE_NEXT, LANE_TRIM, LANE_OTHER = 1, 2, 4, 64  # in a pair's block; the last takes two per attempt


def lane_of(pair: NDArray[np.int64], lane: int) -> NDArray[np.int64]:
    """Return the lanes of a document's stream that hold draw `lane` of its pairs."""
    return (pair + 1) * _LANES_PER_PAIR + lane


@dataclass(frozen=True)
class PairDrafts:
    """Pairs before their random Bs are drawn; every array is (rows,), sentences are counted over the whole store."""

    document: NDArray[np.int64]
    pair: NDArray[np.int64]  # which pair of its document
    first_a: NDArray[np.int64]
    end_a: NDArray[np.int64]  # the sentence at which the true B starts
    end_b: NDArray[np.int64]  # the true B's end; not above end_a where A ends its document
    is_random: NDArray[np.bool_]  # for sop: whether A and B are to be swapped
    target: NDArray[np.int64]  # tokens A and B should have together; 0: one sentence each


def neighbouring_sentences(store: Store, stream: Stream, *, next_sentence_prob: float) -> PairDrafts:
    """Return every sentence with the next one of its document: n − 1 pairs a document of n sentences."""
    counts = np.maximum(store.sentences_per_document - 1, 0)
    document = np.repeat(np.arange(store.num_documents), counts)
    pair = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    first = store.document_sentences[document] + pair
    return PairDrafts(
        document=document,
        pair=pair,
        first_a=first,
        end_a=first + 1,
        end_b=first + 2,
        is_random=stream.uniform(index=document, lane=lane_of(pair, LANE_NEXT)) >= next_sentence_prob,
        target=np.zeros_like(document),
    )


def segments(
    store: Store,
    stream: Stream,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    next_sentence_prob: float,
    always_with_next: bool = False,
) -> PairDrafts:
    """Return Google's packing: sentences up to a target length, split at random.

    always_with_next: every pair keeps its true B (for sentence order); else the sentences that the A of a random
        pair leaves over are put back and begin the next pair.
    """
    room = max_seq_length - SPECIALS_OF_A_PAIR
    document = np.flatnonzero(store.sentences_per_document >= 2)
    cursor, end = store.document_sentences[document], store.document_sentences[document + 1]
    short = stream.uniform(index=document, lane=_LANE_LENGTH) < short_seq_prob
    short_target = 2 + stream.below(room - 1, index=document, lane=_LANE_LENGTH + 1)
    target = np.where(short, short_target, room)
    turns: list[PairDrafts] = []
    while len(document):
        pair = np.full_like(document, len(turns))
        is_random = stream.uniform(index=document, lane=lane_of(pair, LANE_NEXT)) >= next_sentence_prob
        with_next = np.ones_like(is_random) if always_with_next else ~is_random
        # A last sentence that stands alone: as a true B it needs the sentence before it; as A of a random pair not.
        first = np.where((cursor + 1 == end) & with_next, cursor - 1, cursor)
        full = np.searchsorted(store.sentence_starts, store.sentence_starts[first] + target, side="left")
        chunk_end = np.minimum(np.maximum(full, first + 2), end)
        split = 1 + stream.below(np.maximum(chunk_end - first - 1, 1), index=document, lane=lane_of(pair, LANE_SPLIT))
        end_a = first + split
        turns.append(PairDrafts(document, pair, first, end_a, chunk_end, is_random, target))
        cursor = np.where(with_next, chunk_end, end_a)
        going_on = cursor < end
        document, cursor, end, target = document[going_on], cursor[going_on], end[going_on], target[going_on]
    return _in_document_order(turns)


def _in_document_order(turns: list[PairDrafts]) -> PairDrafts:
    order = np.lexsort((np.concatenate([t.pair for t in turns]), np.concatenate([t.document for t in turns])))
    return PairDrafts(
        document=np.concatenate([t.document for t in turns])[order],
        pair=np.concatenate([t.pair for t in turns])[order],
        first_a=np.concatenate([t.first_a for t in turns])[order],
        end_a=np.concatenate([t.end_a for t in turns])[order],
        end_b=np.concatenate([t.end_b for t in turns])[order],
        is_random=np.concatenate([t.is_random for t in turns])[order],
        target=np.concatenate([t.target for t in turns])[order],
    )


def whole_texts(store: Store, *, max_seq_length: int) -> tuple[NDArray[np.int64], ...]:
    """Return (document, start, end) of rows of one text, starts and ends in tokens.

    Whole sentences up to the length, never across documents; a longer sentence is cut into windows. No draws.
    """
    room = max_seq_length - SPECIALS_OF_A_TEXT
    document = np.arange(store.num_documents)
    cursor = store.sentence_starts[store.document_sentences[:-1]]
    end = store.sentence_starts[store.document_sentences[1:]]
    turns: list[tuple[NDArray[np.int64], ...]] = []
    while len(document):
        boundary = store.sentence_starts[np.searchsorted(store.sentence_starts, cursor + room, side="right") - 1]
        stop = np.minimum(np.where(boundary > cursor, boundary, cursor + room), end)
        turns.append((document, cursor, stop))
        going_on = stop < end
        document, cursor, end = document[going_on], stop[going_on], end[going_on]
    documents, starts, ends = (np.concatenate(parts) for parts in zip(*turns, strict=True))
    order = np.argsort(starts, kind="stable")
    return documents[order], starts[order], ends[order]
