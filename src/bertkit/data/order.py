"""Which rows make the global batch of a step, and how the batch is cut for the machine.

In: (seed, epoch, step) and the rows' lengths.  Out: row numbers; micro-batches for every rank.
The first depends on nothing else, so that the order of data is the same on any machine.  Next: tasks/pretraining.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.random import Stream


def steps_in_epoch(num_rows: int, batch_size: int) -> int:
    """Return the steps of an epoch; the last global batch is short, not dropped.

    >>> steps_in_epoch(65, 32)
    3
    """
    return -(-num_rows // batch_size)


def global_batch(*, seed: int, epoch: int, step: int, num_rows: int, batch_size: int) -> NDArray[np.int64]:
    """Return the rows of one step of an epoch (step counted from the epoch's start), int64, at most batch_size.

    Over the steps of an epoch every row comes exactly once.
    """
    places = np.arange(step * batch_size, min((step + 1) * batch_size, num_rows))
    return Stream(seed, "order", epoch).permuted(places, size=num_rows)


@dataclass(frozen=True)
class MicroBatch:
    """Rows that go through the model together."""

    number: int  # among those of all ranks
    rows: NDArray[np.int64]  # positions in the global batch, longest rows first; may be empty


def micro_batches(lengths: NDArray[np.int64], *, micro_batch_tokens: int, num_ranks: int = 1) -> list[list[MicroBatch]]:
    """Return, for each rank, its micro-batches.

    lengths: (rows,) tokens of each row of the global batch.
    micro_batch_tokens: most tokens of a micro-batch, padding counted; one row may exceed it alone.
    Sorting inside the uniform batch changes neither what is sampled nor any sum; ranks get the same number of
    micro-batches, dealt in snake order, and an empty one fills up, so that no collective waits for ever.
    """
    order = np.argsort(-lengths, kind="stable")
    cuts: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        rows = max(1, micro_batch_tokens // int(lengths[order[start]]))
        cuts.append(order[start : start + rows])
        start += rows
    while len(cuts) % num_ranks:
        cuts.append(order[:0])
    numbered = [MicroBatch(number, cut) for number, cut in enumerate(cuts)]
    ranks: list[list[MicroBatch]] = [[] for _ in range(num_ranks)]
    for turn in range(0, len(cuts), num_ranks):
        dealt = numbered[turn : turn + num_ranks]
        for rank, micro_batch in enumerate(dealt if turn // num_ranks % 2 == 0 else reversed(dealt)):
            ranks[rank].append(micro_batch)
    return ranks


def largest_shape(length: int, *, micro_batch_tokens: int, batch_size: int) -> tuple[int, int]:
    """Return (rows, tokens of each) of the micro-batch with most tokens, where rows have up to `length` tokens.

    >>> largest_shape(512, micro_batch_tokens=1000, batch_size=32)  # 2 · 500 is more than 1 · 512
    (2, 500)
    """
    full = max(1, micro_batch_tokens // length)
    if full >= batch_size:
        return batch_size, length
    shorter = full + 1, micro_batch_tokens // (full + 1)
    return max((full, length), shorter, key=lambda shape: shape[0] * shape[1])
