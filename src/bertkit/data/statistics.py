"""A part of a store in numbers: what stands in it, what an epoch draws from it, what is hidden, what is padding.

In: a Store and the settings of training.  Out: StoreStatistics, as tables for people, as JSON, as histograms.
Next: finished_rows.py
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertkit.data.corpus_statistics import CorpusStatistics, Named, corpus_statistics
from bertkit.data.distributions import Distribution
from bertkit.data.mask_statistics import (
    SAMPLE_ROWS,
    MaskStatistics,
    PaddingStatistics,
    first_steps,
    mask_statistics,
    padding_statistics,
)
from bertkit.data.masking import MaskingSettings
from bertkit.data.pair_statistics import PairStatistics, pair_statistics
from bertkit.data.pairs import PairSettings, build_pairs
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.text.vocabulary import UNK, Vocabulary

Row = tuple[object, ...]
Section = tuple[str, str, list[Row]]  # heading, the same in Chinese, rows of a table
LENGTHS_HEAD = ("", "min", "median", "mean", "p95", "max")


@dataclass(frozen=True)
class StoreStatistics:
    """Everything `bertkit inspect data` tells of one part; pairs, masks and padding are those of the first epoch."""

    corpus: CorpusStatistics
    why_no_pairs: str | None  # why nothing below could be drawn with these settings
    remedy: str | None  # and what to do about it
    pairs: PairStatistics | None
    masks: MaskStatistics | None
    padding: PaddingStatistics | None

    def rows(self) -> list[Row]:
        """Return all rows of all tables, one after the other."""
        return [row for _, _, rows in self.sections() for row in rows]

    def sections(self) -> list[Section]:
        """Return the numbers as headed tables, as people read them."""
        sections: list[Section] = [
            ("Corpus", "语料", _corpus_rows(self.corpus)),
            ("Lengths", "长度", self._length_rows()),
            ("Most frequent tokens", "最常见词元", _named_rows(self.corpus.most_frequent)),
        ]
        if self.corpus.most_repeated:
            sections.append(("Most repeated sentences", "重复最多的句子", _named_rows(self.corpus.most_repeated)))
        if self.pairs is None:
            reasons: list[Row] = [("none can be drawn", str(self.why_no_pairs)), ("what to do", str(self.remedy))]
            return [*sections, ("Pairs of one epoch", "一轮的句对", reasons)]
        assert self.masks is not None
        assert self.padding is not None
        return [
            *sections,
            ("Pairs of one epoch", "一轮的句对", _pair_rows(self.pairs)),
            ("Masks", "掩码", _mask_rows(self.masks)),
            ("Padding", "填充", _padding_rows(self.padding)),
        ]

    def histograms(self) -> dict[str, Any]:
        """Return {name: {start, width, counts, beyond}} of the lengths and of the hidden tokens a row."""
        return {name: asdict(found.histogram) for name, _, found in self._distributions()}

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as JSON can hold them; what could not be drawn is null."""
        return asdict(self)

    def _distributions(self) -> list[tuple[str, str, Distribution]]:
        found = [
            ("document_sentences", "sentences in a document", self.corpus.document_sentences),
            ("document_tokens", "tokens in a document", self.corpus.document_tokens),
            ("sentence_tokens", "tokens in a sentence", self.corpus.sentence_tokens),
        ]
        if self.pairs is not None and self.masks is not None:
            found.append(("row_tokens", "tokens in a row, special tokens too", self.pairs.row_tokens))
            found.append(("row_targets", "hidden tokens in a row", self.masks.row_targets))
        return found

    def _length_rows(self) -> list[Row]:
        return [LENGTHS_HEAD, *((label, *found.cells()) for _, label, found in self._distributions())]


def store_statistics(
    store: Store,
    vocabulary: Vocabulary,
    pairs: PairSettings,
    masking: MaskingSettings,
    *,
    seed: int,
    batch_size: int,
    micro_batch_tokens: int,
    phrases: Phrases | None = None,
) -> StoreStatistics:
    """Return the numbers of a part; the seed is that of training, whose first epoch this is.

    Where pairs cannot be made with these settings, the numbers of the corpus stand alone, with the reason.

    Raises:
        InputError: the part is empty, or holds an id that the vocabulary lacks.
    """
    corpus = corpus_statistics(store, vocabulary)
    try:
        table = build_pairs(store, pairs, seed=seed, epoch=0)
    except InputError as problem:  # it stops a training, but is what one inspects a store for
        return StoreStatistics(corpus, problem.problem, problem.remedy, None, None, None)
    steps = list(first_steps(len(table), batch_size=batch_size, seed=seed))
    masks = mask_statistics(
        store,
        table,
        np.concatenate(steps)[:SAMPLE_ROWS],
        vocabulary=vocabulary,
        masking=masking,
        phrases=phrases,
        seed=seed,
    )
    padding = padding_statistics(table, steps, batch_size=batch_size, micro_batch_tokens=micro_batch_tokens)
    return StoreStatistics(corpus, None, None, pair_statistics(store, table, pairs, seed=seed), masks, padding)


# ---- in words ----------------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    """Return a share as people read it.

    >>> percent(0.12345)
    '12.35 %'
    """
    return f"{100 * share:.2f} %"


def _counted(count: int, share: float) -> tuple[int, str]:
    return count, percent(share)


def _corpus_rows(corpus: CorpusStatistics) -> list[Row]:
    return [
        ("documents", corpus.documents),
        ("sentences", corpus.sentences),
        ("tokens", corpus.tokens),
        (
            "documents of one sentence",
            *_counted(corpus.documents_of_one_sentence, corpus.documents_of_one_sentence / corpus.documents),
        ),
        (
            "documents that repeat an earlier one",
            *_counted(corpus.repeated_documents, corpus.repeated_documents / corpus.documents),
        ),
        (
            "sentences that repeat an earlier one",
            *_counted(corpus.repeated_sentences, corpus.repeated_sentences / corpus.sentences),
        ),
        (f"{UNK} among the tokens", *_counted(corpus.unknown_tokens, corpus.unknown_share)),
        (
            "ordinary vocabulary entries that occur",
            *_counted(corpus.entries_used, corpus.entries_used / max(1, corpus.entries)),
        ),
    ]


def _named_rows(named: Sequence[Named]) -> list[Row]:
    return [(one.text, *_counted(one.count, one.share)) for one in named]


def _pair_rows(pairs: PairStatistics) -> list[Row]:
    has_pairs = pairs.is_next_share is not None
    rows: list[Row] = [
        ("--pairing", pairs.pairing),
        ("rows", pairs.rows),
        ("rows at --max_seq_length", *_counted(pairs.rows_at_cap, pairs.rows_at_cap_share)),
        ("sentences that stand in a row", *_counted(pairs.sentences_used, pairs.sentences_used_share)),
    ]
    if not has_pairs:
        return rows
    assert pairs.is_next_share is not None
    in_order = "A and B in order" if pairs.pairing == "sop" else "B truly follows A"
    rows += [
        (in_order, "", percent(pairs.is_next_share)),
        ("tokens trimmed from over-long pairs", *_counted(pairs.trimmed_tokens, pairs.trimmed_share)),
        ("pairs left out: no random B was found", *_counted(pairs.unresolved, 1 - pairs.usable_share)),
    ]
    if pairs.hard_fallbacks:
        rows.append(("hard random Bs taken from another document", pairs.hard_fallbacks))
    guess = pairs.length_guess
    if guess is None:
        return [*rows, ("label guessed from lengths alone", "too few pairs to tell")]
    return [
        *rows,
        ("label guessed by always saying the same", "", percent(guess.majority)),
        (
            "label guessed from lengths alone: the floor for NSP",
            "",
            f"{percent(guess.accuracy)} ± {percent(2 * guess.standard_error)}",
        ),
    ]


def _mask_rows(masks: MaskStatistics) -> list[Row]:
    return [
        ("--masking", masks.masking),
        ("rows looked at", *_counted(masks.rows, masks.rows_share)),
        ("ordinary tokens in them", masks.ordinary_tokens),
        ("hidden tokens", *_counted(masks.targets, masks.selected_share)),
        (
            "hidden tokens asked for (at the start of training)",
            *_counted(masks.targets_wanted, masks.targets_wanted / max(1, masks.ordinary_tokens)),
        ),
        ("of the hidden: replaced by [MASK]", "", percent(masks.mask_share)),
        ("of the hidden: replaced by another token", "", percent(masks.random_share)),
        ("of the hidden: left as they are", "", percent(masks.kept_share)),
        ("words are told by", "the store's word boundaries" if masks.has_word_boundaries else "## alone"),
        ("words with a hidden token", "", percent(masks.word_share)),
        ("of these, hidden whole", "", percent(masks.whole_word_share)),
        ("rows without a hidden token", masks.rows_without_target),
    ]


def _padding_rows(padding: PaddingStatistics) -> list[Row]:
    return [
        ("--batch_size", padding.batch_size),
        ("--micro_batch_tokens", padding.micro_batch_tokens),
        ("steps in an epoch", padding.steps_in_epoch),
        ("steps looked at", padding.steps),
        ("micro-batches a step, mean", round(padding.micro_batches_a_step, 1)),
        ("padding in the micro-batches", "", percent(padding.padding_share)),
    ]
