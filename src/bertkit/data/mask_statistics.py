"""What masking and batching make of the rows: which tokens are hidden, behind what, and how much is padding.

In: a Store and its PairTable.  Out: MaskStatistics and PaddingStatistics, of the first steps of the real order, which
is a uniform sample of the rows.  Next: statistics.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertkit.data.distributions import Distribution, distribution_of
from bertkit.data.instances import masked_rows
from bertkit.data.masking import MaskedRows, MaskingSettings, num_targets
from bertkit.data.order import global_batch, micro_batches, steps_in_epoch
from bertkit.data.pairs import PairTable
from bertkit.data.rows import Rows, row_lengths
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.text.vocabulary import Vocabulary

SAMPLE_ROWS = 1 << 15  # rows whose tokens are hidden and counted
ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class MaskStatistics:
    """What was hidden in the rows looked at; an ordinary token is one that may be hidden."""

    masking: str
    mlm_probability: float  # asked for, at the start of training
    rows: int  # looked at
    rows_share: float  # of the epoch's
    ordinary_tokens: int
    targets: int  # hidden tokens
    targets_wanted: int  # by the rate alone; words that do not fit may leave it unreached
    selected_share: float  # targets in ordinary_tokens
    mask_share: float  # of the targets: replaced by [MASK]
    random_share: float  # replaced by another token
    kept_share: float  # left as they are; a random token that happens to be the same is one of them
    has_word_boundaries: bool  # kept in the store; else ## alone tells words
    words: int  # with an ordinary token in them
    word_share: float  # words with a hidden token
    whole_word_share: float  # of these, hidden from end to end
    row_targets: Distribution
    rows_without_target: int


@dataclass(frozen=True)
class PaddingStatistics:
    """What filling up to the longest row of each micro-batch costs."""

    batch_size: int
    micro_batch_tokens: int
    steps: int  # looked at
    steps_in_epoch: int
    micro_batches_a_step: float
    tokens: int
    slots: int  # tokens and padding
    padding_share: float


@dataclass
class _Counts:
    """Sums over the chunks of rows; (rows,) arrays in a list."""

    targets_wanted: int = 0
    ordinary: int = 0
    masked: int = 0
    kept: int = 0
    words: int = 0
    words_hit: int = 0
    words_whole: int = 0
    row_targets: list[NDArray[np.int64]] = field(default_factory=list)


def mask_statistics(
    store: Store,
    table: PairTable,
    rows: NDArray[np.int64],
    *,
    vocabulary: Vocabulary,
    masking: MaskingSettings,
    phrases: Phrases | None,
    seed: int,
) -> MaskStatistics:
    """Return what is hidden in rows of the table, (n,) int64, in the first epoch."""
    masking = masking.at(0.0)
    counts = _Counts()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        built, masked = masked_rows(
            store,
            table,
            rows[start : start + ROWS_AT_ONCE],
            vocabulary=vocabulary,
            masking=masking,
            phrases=phrases,
            seed=seed,
            epoch=0,
        )
        _count(counts, built, masked, vocabulary, masking)
    row_targets = np.concatenate(counts.row_targets)
    targets = int(row_targets.sum())
    return MaskStatistics(
        masking=masking.masking,
        mlm_probability=masking.mlm_probability,
        rows=len(rows),
        rows_share=len(rows) / len(table),
        ordinary_tokens=counts.ordinary,
        targets=targets,
        targets_wanted=counts.targets_wanted,
        selected_share=_share(targets, counts.ordinary),
        mask_share=_share(counts.masked, targets),
        random_share=_share(targets - counts.masked - counts.kept, targets),
        kept_share=_share(counts.kept, targets),
        has_word_boundaries=bool(store.shard_word_starts),
        words=counts.words,
        word_share=_share(counts.words_hit, counts.words),
        whole_word_share=_share(counts.words_whole, counts.words_hit),
        row_targets=distribution_of(row_targets),
        rows_without_target=int((row_targets == 0).sum()),
    )


def _count(counts: _Counts, built: Rows, masked: MaskedRows, vocabulary: Vocabulary, masking: MaskingSettings) -> None:
    ordinary, selected = vocabulary.ordinary[built.input_ids], masked.selected
    before, after = built.input_ids[selected], masked.input_ids[selected]
    counts.targets_wanted += int(num_targets(ordinary.sum(axis=1), masking).sum())
    counts.ordinary += int(ordinary.sum())
    counts.masked += int((after == vocabulary.mask_id).sum())
    counts.kept += int((after == before).sum())
    counts.row_targets.append(selected.sum(axis=1))
    # A number for every word of every row, so that one count serves them all.
    num_rows, words_in_a_row = len(built.lengths), built.input_ids.shape[1] + 1
    word = np.cumsum(built.word_starts, axis=1) + words_in_a_row * np.arange(num_rows)[:, None]
    size = np.bincount(word[ordinary], minlength=words_in_a_row * num_rows)
    hidden = np.bincount(word[selected], minlength=len(size))
    counts.words += int((size > 0).sum())
    counts.words_hit += int((hidden > 0).sum())
    counts.words_whole += int(((hidden > 0) & (hidden == size)).sum())


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def first_steps(num_rows: int, *, batch_size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of the first steps of the first epoch, until SAMPLE_ROWS are reached."""
    seen = 0
    for step in range(steps_in_epoch(num_rows, batch_size)):
        if seen >= SAMPLE_ROWS:
            return
        rows = global_batch(seed=seed, epoch=0, step=step, num_rows=num_rows, batch_size=batch_size)
        seen += len(rows)
        yield rows


def padding_statistics(
    table: PairTable, steps: list[NDArray[np.int64]], *, batch_size: int, micro_batch_tokens: int
) -> PaddingStatistics:
    """Return the padding of these steps; each is the rows of a global batch, (n,) int64."""
    tokens = slots = cuts = 0
    for rows in steps:
        lengths = row_lengths(table, rows)
        [parts] = micro_batches(lengths, micro_batch_tokens=micro_batch_tokens)
        tokens += int(lengths.sum())
        slots += sum(len(part.rows) * int(lengths[part.rows].max()) for part in parts)
        cuts += len(parts)
    return PaddingStatistics(
        batch_size=batch_size,
        micro_batch_tokens=micro_batch_tokens,
        steps=len(steps),
        steps_in_epoch=steps_in_epoch(len(table), batch_size),
        micro_batches_a_step=cuts / len(steps),
        tokens=tokens,
        slots=slots,
        padding_share=1 - tokens / slots,
    )
