"""Which tokens become a row of training: two spans of the store and a label, redrawn each epoch.

In: a Store, (seed, epoch).  Out: a PairTable.  A document's pairs depend on (seed, epoch, document) only.
Next: masking.py
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.options import option

IS_NEXT, IS_RANDOM = 0, 1  # next_sentence_label: Google's and Hugging Face's meaning
SPECIALS_OF_A_PAIR, SPECIALS_OF_A_TEXT = 3, 2  # [CLS] A [SEP] B [SEP]; [CLS] A [SEP]
# How often another random B is drawn when the first truly follows A, by its text.
REDRAWS = 16
# Lanes: the draws of one document, one block of lanes for each of its pairs.
_LANE_LENGTH, _LANES_PER_PAIR = 0, 128
_LANE_SPLIT, _LANE_NEXT, _LANE_TRIM, _LANE_OTHER = 1, 2, 4, 64


@dataclass(frozen=True)
class PairSettings:
    """How rows of training are cut from documents."""

    pairing: Literal["segment", "sentence", "none"] = option(
        "segment",
        help="segment: pack sentences to max_seq_length and split at random (Google's); sentence: every two "
        "neighbouring sentences; none: one text a row, masked-LM only",
    )
    max_seq_length: int = option(128, help="longest row in tokens, special tokens included")
    short_seq_prob: float = option(0.1, help="share of documents packed to a random shorter length (segment only)")
    next_sentence_prob: float = option(0.5, help="share of pairs whose B truly follows A")

    def __post_init__(self) -> None:
        if self.max_seq_length < 8:
            raise InputError(
                "is too short for a pair", field="--max_seq_length", value=self.max_seq_length, expected="8 or more"
            )
        for name in ("short_seq_prob", "next_sentence_prob"):
            value = self.short_seq_prob if name == "short_seq_prob" else self.next_sentence_prob
            if not 0 <= value <= 1:
                raise InputError("is not a share", field=f"--{name}", value=value, expected="0 to 1")


@dataclass(frozen=True)
class PairTable:
    """The rows of one epoch; every array is (rows,) int64 and counts tokens over the whole store.

    A is tokens start_a … end_a − 1 of document_a; B likewise (empty for --pairing none).
    """

    document_a: NDArray[np.int64]
    start_a: NDArray[np.int64]
    end_a: NDArray[np.int64]
    document_b: NDArray[np.int64]
    start_b: NDArray[np.int64]
    end_b: NDArray[np.int64]
    next_sentence_label: NDArray[np.int64]  # 0: B follows A; 1: B is random; all 0 for --pairing none
    trimmed_tokens: int  # tokens cut from over-long pairs
    unresolved: int  # pairs left out because every random B drawn truly followed A, by its text

    def __len__(self) -> int:
        return len(self.start_a)


def why_no_pairs(store: Store) -> str | None:
    """Return why next-sentence pairs cannot be made from a store, or None when they can."""
    if store.num_documents < 2:
        return f"{store.num_documents} document: a random B must come from another one"
    if int(store.sentences_per_document.max()) < 2:
        return f"{store.num_documents} of {store.num_documents} documents have one sentence: 0 true pairs"
    if _all_alike(store):
        return f"all {store.num_sentences} sentences are the same: no B is random"
    return None


def _all_alike(store: Store) -> bool:
    starts = store.sentence_starts
    length = int(starts[1])
    if (np.diff(starts) != length).any():
        return False
    first = store.tokens(starts[:1], starts[1:2])
    return all(bool((tokens.reshape(-1, length) == first).all()) for tokens in store.shard_tokens)


def require_pairs(store: Store, settings: PairSettings) -> None:
    """Stop before training where next-sentence prediction is impossible.

    Raises:
        InputError: an empty part, or pairs asked for that this corpus cannot give; the ways on are named.
    """
    if store.num_documents == 0:
        raise InputError("holds no document", file=store.directory, remedy="give a larger corpus")
    reason = None if settings.pairing == "none" else why_no_pairs(store)
    if reason is not None:
        raise InputError(
            f"next-sentence pairs are impossible here: {reason}",
            file=store.directory,
            field="--pairing",
            value=settings.pairing,
            expected="at least two documents, one of them with two sentences, and sentences that differ",
            remedy="train with `--pairing none` (masked-LM only), or give documents their boundaries: see --format, "
            "--sentence_end and `bertkit inspect corpus`",
        )


def build_pairs(store: Store, settings: PairSettings, *, seed: int, epoch: int) -> PairTable:
    """Return the rows of one epoch, in the order of their documents.

    Segment packing follows Google's create_pretraining_data.py, with these deviations: a chunk has two sentences
    where the document has them, a last sentence alone takes the one before it as A when it is to be a true B, a
    random B is never from A's document, never begins with the sentence that follows A, and never stands behind a
    copy of A's last sentence; so the share of true pairs is next_sentence_prob and no label lies.

    Raises:
        InputError: what `require_pairs` raises; not one random B could be drawn.
    """
    require_pairs(store, settings)
    if settings.pairing == "none":
        return _texts(store, settings)
    if settings.pairing == "sentence":
        chunks = _neighbouring_sentences(store, settings, Stream(seed, "pairs", epoch))
    else:
        chunks = _segments(store, settings, Stream(seed, "pairs", epoch))
    return _finish(store, chunks, settings, Stream(seed, "pairs", epoch))


@dataclass(frozen=True)
class _Chunks:
    """Pairs before the random B is drawn, all (rows,) int64: A's sentences, the true B's, and the draws' address."""

    document: NDArray[np.int64]
    pair: NDArray[np.int64]  # which pair of its document
    first_a: NDArray[np.int64]
    end_a: NDArray[np.int64]  # the sentence at which the true B starts
    end_b: NDArray[np.int64]  # the true B's end
    is_random: NDArray[np.bool_]
    target: NDArray[np.int64]  # tokens A and B should have together


def _neighbouring_sentences(store: Store, settings: PairSettings, stream: Stream) -> _Chunks:
    """Every sentence with the next one of its document: n − 1 pairs a document of n sentences."""
    counts = np.maximum(store.sentences_per_document - 1, 0)
    document = np.repeat(np.arange(store.num_documents), counts)
    pair = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    first = store.document_sentences[document] + pair
    return _Chunks(
        document=document,
        pair=pair,
        first_a=first,
        end_a=first + 1,
        end_b=first + 2,
        is_random=stream.uniform(index=document, lane=_lane(pair, _LANE_NEXT)) >= settings.next_sentence_prob,
        target=np.zeros_like(document),  # a random B is one sentence
    )


def _segments(store: Store, settings: PairSettings, stream: Stream) -> _Chunks:
    """Google's packing, for all documents in step: turn k makes the k-th pair of every document not yet used up."""
    room = settings.max_seq_length - SPECIALS_OF_A_PAIR
    document = np.flatnonzero(store.sentences_per_document >= 2)
    cursor, end = store.document_sentences[document], store.document_sentences[document + 1]
    short = stream.uniform(index=document, lane=_LANE_LENGTH) < settings.short_seq_prob
    short_target = 2 + stream.below(room - 1, index=document, lane=_LANE_LENGTH + 1)
    target = np.where(short, short_target, room)
    turns: list[_Chunks] = []
    while len(document):
        pair = np.full_like(document, len(turns))
        is_random = stream.uniform(index=document, lane=_lane(pair, _LANE_NEXT)) >= settings.next_sentence_prob
        last_alone = cursor + 1 == end
        # A last sentence that stands alone: as a true B it needs the sentence before it; as A of a random pair not.
        first = np.where(last_alone & ~is_random, cursor - 1, cursor)
        full = np.searchsorted(store.sentence_starts, store.sentence_starts[first] + target, side="left")
        chunk_end = np.minimum(np.maximum(full, first + 2), end)
        sentences = chunk_end - first
        split = 1 + stream.below(np.maximum(sentences - 1, 1), index=document, lane=_lane(pair, _LANE_SPLIT))
        end_a = first + split
        turns.append(_Chunks(document, pair, first, end_a, chunk_end, is_random, target))
        # The sentences that a random pair's A did not use are put back.
        cursor = np.where(is_random, end_a, chunk_end)
        going_on = cursor < end
        document, cursor, end, target = document[going_on], cursor[going_on], end[going_on], target[going_on]
    names = ("document", "pair", "first_a", "end_a", "end_b", "is_random", "target")
    joined = [np.concatenate(parts) for parts in zip(*(_columns(turn) for turn in turns), strict=True)]
    order = np.lexsort((joined[names.index("pair")], joined[names.index("document")]))
    return _Chunks(*(column[order] for column in joined))


def _columns(chunks: _Chunks) -> tuple[NDArray[Any], ...]:
    return (
        chunks.document,
        chunks.pair,
        chunks.first_a,
        chunks.end_a,
        chunks.end_b,
        chunks.is_random,
        chunks.target,
    )


def _lane(pair: NDArray[np.int64], lane: int) -> NDArray[np.int64]:
    return (pair + 1) * _LANES_PER_PAIR + lane


def _finish(store: Store, chunks: _Chunks, settings: PairSettings, stream: Stream) -> PairTable:
    """Draw the random Bs, trim what is too long, and give the table."""
    starts = store.sentence_starts
    start_a, end_a = starts[chunks.first_a], starts[chunks.end_a]
    # (An A that ends its document has no true B; its label is always random.)
    start_b, end_b = end_a.copy(), starts[np.maximum(chunks.end_b, chunks.end_a)]
    document_b = chunks.document.copy()
    drawn = np.flatnonzero(chunks.is_random)
    for attempt in range(REDRAWS):
        other, first, last = _random_segments(store, chunks, drawn, stream, attempt)
        document_b[drawn], start_b[drawn], end_b[drawn] = other, starts[first], starts[last]
        drawn = drawn[_truly_follows(store, chunks, drawn, other, first)]
        if not len(drawn):
            break
    room = settings.max_seq_length - SPECIALS_OF_A_PAIR
    lengths_before = int((end_a - start_a + end_b - start_b).sum())
    start_a, end_a, start_b, end_b = _trim(start_a, end_a, start_b, end_b, room, chunks, stream)
    trimmed = lengths_before - int((end_a - start_a + end_b - start_b).sum())
    keep = np.ones(len(start_a), dtype=bool)
    keep[drawn] = False
    if len(drawn) and not keep[chunks.is_random].any():
        raise InputError(
            f"no random B could be drawn for {len(drawn)} pairs: in {REDRAWS} draws each, all truly follow A by text",
            file=store.directory,
            expected="documents that differ from each other",
            remedy="remove duplicates from the corpus, or train with `--pairing none`",
        )
    label = np.where(chunks.is_random, IS_RANDOM, IS_NEXT)
    return PairTable(
        document_a=chunks.document[keep],
        start_a=start_a[keep],
        end_a=end_a[keep],
        document_b=document_b[keep],
        start_b=start_b[keep],
        end_b=end_b[keep],
        next_sentence_label=label[keep],
        trimmed_tokens=trimmed,
        unresolved=len(drawn),
    )


def _random_segments(
    store: Store, chunks: _Chunks, rows: NDArray[np.int64], stream: Stream, attempt: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Another document drawn uniformly, a sentence in it uniformly, and from there until the target is reached."""
    document, pair = chunks.document[rows], chunks.pair[rows]
    lane = _LANE_OTHER + 2 * attempt
    other = stream.below(store.num_documents - 1, index=document, lane=_lane(pair, lane))
    other += other >= document  # all but A's own
    first = store.document_sentences[other] + stream.below(
        store.sentences_per_document[other], index=document, lane=_lane(pair, lane + 1)
    )
    length_a = store.sentence_starts[chunks.end_a[rows]] - store.sentence_starts[chunks.first_a[rows]]
    wanted = store.sentence_starts[first] + np.maximum(chunks.target[rows] - length_a, 1)
    last = np.searchsorted(store.sentence_starts, wanted, side="left")
    return other, first, np.minimum(np.maximum(last, first + 1), store.document_sentences[other + 1])


def _truly_follows(
    store: Store, chunks: _Chunks, rows: NDArray[np.int64], other: NDArray[np.int64], first: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether sentence `first` of document `other` is a true B by its text, for each row.

    It is where it reads like the sentence that follows A, or where the one before it reads like A's last.
    """
    end_a = chunks.end_a[rows]
    follows = np.zeros(len(rows), dtype=bool)
    has_next = np.flatnonzero(end_a < store.document_sentences[chunks.document[rows] + 1])
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


def _trim(
    start_a: NDArray[np.int64],
    end_a: NDArray[np.int64],
    start_b: NDArray[np.int64],
    end_b: NDArray[np.int64],
    room: int,
    chunks: _Chunks,
    stream: Stream,
) -> tuple[NDArray[np.int64], ...]:
    """Cut each over-long pair to `room` tokens: the longer side loses a token (B when equal), front or back at random.

    The tokens lost one after the other come to this: each side keeps at most what the other leaves it, but at least
    half; how many of a side's go from the front is the number of heads in as many fair coins.
    """
    length_a, length_b = end_a - start_a, end_b - start_b
    keep_a = np.minimum(length_a, np.maximum(room - length_b, (room + 1) // 2))
    keep_b = np.minimum(length_b, room - keep_a)
    front_a = _heads(length_a - keep_a, chunks, stream, lane=_LANE_TRIM)
    front_b = _heads(length_b - keep_b, chunks, stream, lane=_LANE_TRIM + 1)
    return start_a + front_a, start_a + front_a + keep_a, start_b + front_b, start_b + front_b + keep_b


def _heads(coins: NDArray[np.int64], chunks: _Chunks, stream: Stream, *, lane: int) -> NDArray[np.int64]:
    """The number of heads in `coins` fair coins, (rows,)."""
    heads = np.zeros_like(coins)
    rows = np.flatnonzero(coins)
    words = Stream(stream.seed, "trim", stream.epoch)
    turn = 0
    while len(rows):
        bits = words.bits(index=chunks.document[rows], lane=_lane(chunks.pair[rows], lane) + (turn << 32))
        here = np.minimum(coins[rows] - 64 * turn, 64).astype(np.uint64)
        bits = np.where(here < 64, bits & ((np.uint64(1) << (here & np.uint64(63))) - np.uint64(1)), bits)
        heads[rows] += np.bitwise_count(bits)
        turn += 1
        rows = rows[coins[rows] > 64 * turn]
    return heads


def _texts(store: Store, settings: PairSettings) -> PairTable:
    """Whole sentences up to the length, never across documents; a longer sentence is cut into windows. No draws."""
    room = settings.max_seq_length - SPECIALS_OF_A_TEXT
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
    documents, starts, ends = documents[order], starts[order], ends[order]
    nothing = np.zeros_like(documents)
    return PairTable(documents, starts, ends, documents, ends, ends, nothing, trimmed_tokens=0, unresolved=0)
