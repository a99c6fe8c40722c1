"""A global batch made ready: rows built, tokens hidden, cut into micro-batches.

In: which rows of a PairTable.  Out: micro-batches as tensors, and the counts of their labels.  Next: collate.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.collate import Batch, collate
from bertkit.data.instances import masked_rows
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import micro_batches
from bertkit.data.pairs import PairTable
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class GlobalBatch:
    """The rows of one step, longest first, in the micro-batches of one rank."""

    micro_batches: list[Batch]
    positions: list[NDArray[np.int64]]  # for each micro-batch, which of the given rows it holds
    numbers: list[int]  # of the micro-batches among those of all ranks
    num_targets: int  # hidden tokens in all; this and what follows are counted over all ranks
    num_rows: int
    tokens: int  # padding not counted
    slots: int  # padding counted
    squares: int  # sum over the micro-batches of rows · length², padding counted: what attention costs


def build_global_batch(
    store: Store,
    table: PairTable,
    rows: NDArray[np.int64],
    *,
    vocabulary: Vocabulary,
    masking: MaskingSettings,
    seed: int,
    epoch: int,
    micro_batch_tokens: int,
    with_pairs: bool,
    phrases: Phrases | None = None,
    rank: int = 0,
    num_ranks: int = 1,
) -> GlobalBatch:
    """Return the rows of the table as micro-batches; what is hidden depends on (seed, epoch, row) only.

    rows: (n,) int64, which rows of the epoch's table.
    micro_batch_tokens: most tokens of a micro-batch, padding counted.
    with_pairs: whether the batches carry next_sentence_label.
    rank, num_ranks: whose micro-batches are made; all ranks have equally many.
    """
    built, masked = masked_rows(
        store, table, rows, vocabulary=vocabulary, masking=masking, phrases=phrases, seed=seed, epoch=epoch
    )
    labels = table.next_sentence_label[rows] if with_pairs else None
    ranks = micro_batches(built.lengths, micro_batch_tokens=micro_batch_tokens, num_ranks=num_ranks)
    filled = [cut.rows for cuts in ranks for cut in cuts if len(cut.rows)]
    widths = [(len(cut), int(built.lengths[cut].max())) for cut in filled]
    return GlobalBatch(
        micro_batches=[collate(built, masked, labels, positions=cut.rows) for cut in ranks[rank]],
        positions=[cut.rows for cut in ranks[rank]],
        numbers=[cut.number for cut in ranks[rank]],
        num_targets=int(masked.selected.sum()),
        num_rows=len(rows),
        tokens=int(built.lengths.sum()),
        slots=sum(number * width for number, width in widths),
        squares=sum(number * width * width for number, width in widths),
    )
