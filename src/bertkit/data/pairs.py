"""Which tokens become a row of training: two spans of the store and a label, redrawn each epoch.

In: a Store, (seed, epoch).  Out: a PairTable.  A document's pairs depend on (seed, epoch, document) only.
(How sentences are packed: packing.py; how a random B is drawn: negatives.py)  Next: rows.py
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.negatives import HARD_DISTANCE, REDRAWS, draw_random_b
from bertkit.data.packing import (
    LANE_TRIM,
    SPECIALS_OF_A_PAIR,
    SPECIALS_OF_A_TEXT,
    PairDrafts,
    lane_of,
    neighbouring_sentences,
    segments,
    whole_texts,
)
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.options import option

__all__ = ["SPECIALS_OF_A_PAIR", "SPECIALS_OF_A_TEXT", "PairSettings", "PairTable", "build_pairs", "require_pairs"]

LONGEST_ROW = 1 << 16  # tokens; far beyond the positions of any BERT
IS_NEXT, IS_RANDOM = 0, 1  # next_sentence_label: Google's and Hugging Face's meaning


@dataclass(frozen=True)
class PairSettings:
    """How rows of training are cut from documents."""

    pairing: Literal["segment", "sentence", "sop", "none"] = option(
        "segment",
        help="segment: pack sentences to max_seq_length and split at random (Google's); sentence: every two "
        "neighbouring sentences; sop: two segments in order or swapped; none: one text a row, masked-LM only",
    )
    negatives: Literal["other", "hard"] = option(
        "other", help="where a random B is drawn: from another document, or from far away in A's own (hard)"
    )
    max_seq_length: int = option(128, help="longest row in tokens, special tokens included")
    short_seq_prob: float = option(0.1, help="share of documents packed to a random shorter length (segment and sop)")
    next_sentence_prob: float = option(0.5, help="share of pairs whose B truly follows A (sop: that are in order)")
    static: bool = option(False, help="draw pairs and masks once and keep them for every epoch")

    def __post_init__(self) -> None:
        if not 8 <= self.max_seq_length <= LONGEST_ROW:
            raise InputError(
                "is out of range",
                field="--max_seq_length",
                value=self.max_seq_length,
                expected=f"8 to {LONGEST_ROW:,}",
            )
        if self.negatives == "hard" and self.pairing in ("sop", "none"):
            raise InputError(
                f"has no effect with --pairing {self.pairing}, which draws no random B",
                field="--negatives",
                value="hard",
            )
        shares = {"short_seq_prob": self.short_seq_prob, "next_sentence_prob": self.next_sentence_prob}
        for name, value in shares.items():
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
    next_sentence_label: NDArray[np.int64]  # 0: B follows A; 1: B is random, or stood before A (sop); 0 for none
    trimmed_tokens: int  # tokens cut from over-long pairs
    unresolved: int  # pairs left out because no random B could be drawn that does not follow A
    hard_fallbacks: int = 0  # random Bs from another document because A's own is too short for a hard one

    def __len__(self) -> int:
        return len(self.start_a)


def why_no_pairs(store: Store, settings: PairSettings) -> str | None:
    """Return why pairs cannot be made from a store, or None when they can."""
    longest = int(store.sentences_per_document.max())
    if store.num_documents < 2 and settings.negatives == "other" and settings.pairing != "sop":
        return f"{store.num_documents} document: a random B must come from another one"
    if longest < 2:
        return f"{store.num_documents} of {store.num_documents} documents have one sentence: 0 true pairs"
    if settings.pairing != "sop" and store.num_documents < 2 and longest < HARD_DISTANCE + 3:
        return f"the only document has {longest} sentences, a hard negative needs {HARD_DISTANCE + 3}"
    if _all_alike(store):
        return f"all {store.num_sentences} sentences are the same: no order can be told and no B is random"
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
    reason = None if settings.pairing == "none" else why_no_pairs(store, settings)
    if reason is not None:
        draws_random_b = settings.pairing in ("segment", "sentence") and settings.negatives == "other"
        may_be_hard = draws_random_b and why_no_pairs(store, replace(settings, negatives="hard")) is None
        raise InputError(
            f"next-sentence pairs are impossible here: {reason}",
            file=store.directory,
            field="--pairing",
            value=settings.pairing,
            expected="at least two documents, one of them with two sentences, and sentences that differ",
            remedy="train with `--pairing none` (masked-LM only)"
            + (", take random Bs from the same document by `--negatives hard`" if may_be_hard else "")
            + ", prepare a small corpus with `--validation_split false`, or give documents their boundaries: see "
            "--format, --sentence_end and `bertkit inspect corpus`",
        )


def build_pairs(store: Store, settings: PairSettings, *, seed: int, epoch: int) -> PairTable:
    """Return the rows of one epoch, in the order of their documents.

    Segment packing follows Google's create_pretraining_data.py, with these deviations: a chunk has two sentences
    where the document has them, a last sentence alone takes the one before it as A when it is to be a true B, a
    random B is never from A's document (unless hard), never begins with the sentence that follows A, and never
    stands behind a copy of A's last sentence; so the share of true pairs is next_sentence_prob and no label lies.

    Raises:
        InputError: what `require_pairs` raises; not one random B could be drawn.
    """
    require_pairs(store, settings)
    stream = Stream(seed, "pairs", 0 if settings.static else epoch)
    if settings.pairing == "none":
        document, start, end = whole_texts(store, max_seq_length=settings.max_seq_length)
        nothing = np.zeros_like(document)
        return PairTable(document, start, end, document, end, end, nothing, trimmed_tokens=0, unresolved=0)
    if settings.pairing == "sentence":
        drafts = neighbouring_sentences(store, stream, next_sentence_prob=settings.next_sentence_prob)
    else:
        drafts = segments(
            store,
            stream,
            max_seq_length=settings.max_seq_length,
            short_seq_prob=settings.short_seq_prob,
            next_sentence_prob=settings.next_sentence_prob,
            always_with_next=settings.pairing == "sop",
        )
    table = _with_b(store, drafts, settings, stream)
    return _trimmed(table, drafts, settings, stream)


def _with_b(store: Store, drafts: PairDrafts, settings: PairSettings, stream: Stream) -> PairTable:
    """The drafts with their Bs: the true ones, the random ones, or (sop) swapped. Rows without a B have it empty."""
    starts = store.sentence_starts
    start_a, end_a = starts[drafts.first_a], starts[drafts.end_a]
    # (An A that ends its document has no true B; its label is always random.)
    start_b, end_b = end_a.copy(), starts[np.maximum(drafts.end_b, drafts.end_a)]
    label = np.where(drafts.is_random, IS_RANDOM, IS_NEXT)
    if settings.pairing == "sop":
        swap = drafts.is_random
        start_a, start_b = np.where(swap, start_b, start_a), np.where(swap, start_a, start_b)
        end_a, end_b = np.where(swap, end_b, end_a), np.where(swap, end_a, end_b)
        return PairTable(drafts.document, start_a, end_a, drafts.document, start_b, end_b, label, 0, 0)
    drawn, without, fallbacks = draw_random_b(store, drafts, stream, hard=settings.negatives == "hard")
    if len(without) and len(without) == len(drawn.first):
        near = f"no sentence is {HARD_DISTANCE} sentences away, or " if settings.negatives == "hard" else ""
        raise InputError(
            f"no random B could be drawn for {len(without)} pairs: {near}in {REDRAWS} draws each, all truly follow A "
            "by text",
            file=store.directory,
            expected="documents that differ from each other"
            + (" and are longer than a few rows (--max_seq_length)" if near else ""),
            remedy="remove duplicates from the corpus, or train with `--pairing none`",
        )
    rows = np.flatnonzero(drafts.is_random)
    document_b = drafts.document.copy()
    document_b[rows], start_b[rows], end_b[rows] = drawn.document, starts[drawn.first], starts[drawn.end]
    end_b[without] = start_b[without]
    return PairTable(drafts.document, start_a, end_a, document_b, start_b, end_b, label, 0, len(without), fallbacks)


def _trimmed(table: PairTable, drafts: PairDrafts, settings: PairSettings, stream: Stream) -> PairTable:
    """Cut over-long pairs: the longer side loses a token (B when equal), front or back at random; drop empty Bs.

    The tokens lost one after the other come to this: each side keeps at most what the other leaves it, but at least
    half; how many of a side's go from the front is the number of heads in as many fair coins.
    """
    room = settings.max_seq_length - SPECIALS_OF_A_PAIR
    length_a, length_b = table.end_a - table.start_a, table.end_b - table.start_b
    has_b = length_b > 0
    keep_a = np.minimum(length_a, np.maximum(room - length_b, (room + 1) // 2))
    keep_b = np.minimum(length_b, room - keep_a)
    start_a = table.start_a + _heads(length_a - keep_a, drafts, stream, lane=LANE_TRIM)
    start_b = table.start_b + _heads(length_b - keep_b, drafts, stream, lane=LANE_TRIM + 1)
    return replace(
        table,
        document_a=table.document_a[has_b],
        start_a=start_a[has_b],
        end_a=(start_a + keep_a)[has_b],
        document_b=table.document_b[has_b],
        start_b=start_b[has_b],
        end_b=(start_b + keep_b)[has_b],
        next_sentence_label=table.next_sentence_label[has_b],
        trimmed_tokens=int((length_a - keep_a + length_b - keep_b)[has_b].sum()),
    )


def _heads(coins: NDArray[np.int64], drafts: PairDrafts, stream: Stream, *, lane: int) -> NDArray[np.int64]:
    """The number of heads in `coins` fair coins, (rows,)."""
    heads = np.zeros_like(coins)
    rows = np.flatnonzero(coins)
    words = Stream(stream.seed, "trim", stream.epoch)
    turn = 0
    while len(rows):
        bits = words.bits(index=drafts.document[rows], lane=lane_of(drafts.pair[rows], lane) + (turn << 32))
        here = np.minimum(coins[rows] - 64 * turn, 64).astype(np.uint64)
        bits = np.where(here < 64, bits & ((np.uint64(1) << (here & np.uint64(63))) - np.uint64(1)), bits)
        heads[rows] += np.bitwise_count(bits)
        turn += 1
        rows = rows[coins[rows] > 64 * turn]
    return heads
