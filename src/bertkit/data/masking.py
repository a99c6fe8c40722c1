"""Which tokens are hidden, and behind what.

In: rows of ids.  Out: the rows with tokens replaced, and where which token stood.  Next: order.py
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.random import Stream
from bertkit.errors import InputError
from bertkit.options import option

_POSITION_BITS = 20  # a row never has more tokens than these count
_LANE_REPLACE = 1 << _POSITION_BITS  # lanes below are positions in the row
_LANE_TOKEN = 2 << _POSITION_BITS


@dataclass(frozen=True)
class MaskingSettings:
    """How many tokens are hidden and what stands in their place."""

    mlm_probability: float = option(
        0.15, help="share of a row's ordinary tokens that are hidden", aliases=("masked_lm_prob",)
    )
    mask_replace_prob: float = option(0.8, help="share of the hidden tokens replaced by [MASK]")
    random_replace_prob: float = option(
        0.1, help="share of the hidden tokens replaced by a random ordinary token; the rest stays as it is"
    )
    max_predictions_per_seq: int | None = option(None, help="most tokens hidden in a row; null: no cap")

    def __post_init__(self) -> None:
        for name, value in (
            ("mlm_probability", self.mlm_probability),
            ("mask_replace_prob", self.mask_replace_prob),
            ("random_replace_prob", self.random_replace_prob),
        ):
            if not 0 <= value <= 1:
                raise InputError("is not a share", field=f"--{name}", value=value, expected="0 to 1")
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise InputError(
                f"{self.mask_replace_prob} + {self.random_replace_prob} is more than all hidden tokens",
                field="--mask_replace_prob, --random_replace_prob",
                expected="a sum of at most 1",
            )
        if self.max_predictions_per_seq is not None and self.max_predictions_per_seq < 1:
            raise InputError(
                "hides nothing", field="--max_predictions_per_seq", value=self.max_predictions_per_seq, expected="≥ 1"
            )


@dataclass(frozen=True)
class MaskedRows:
    """Rows with their hidden tokens.

    input_ids: (rows, seq) int64, replaced; selected: (rows, seq) bool, True where the token is to be predicted.
    """

    input_ids: NDArray[np.int64]
    selected: NDArray[np.bool_]


def num_targets(eligible: NDArray[np.int64], settings: MaskingSettings) -> NDArray[np.int64]:
    """Return how many tokens of each row are hidden, for rows of `eligible` ordinary tokens, (rows,) int64.

    >>> num_targets(np.array([0, 1, 10, 100]), MaskingSettings()).tolist()
    [0, 1, 2, 15]
    """
    rounded = np.floor(settings.mlm_probability * eligible + 0.5).astype(np.int64)
    if settings.mlm_probability > 0:
        rounded = np.maximum(rounded, 1)
    cap = math.inf if settings.max_predictions_per_seq is None else settings.max_predictions_per_seq
    wanted: NDArray[np.int64] = np.minimum(np.minimum(rounded, eligible), cap).astype(np.int64)
    return wanted


def mask_tokens(
    input_ids: NDArray[np.int64],
    *,
    index: NDArray[np.int64],
    ordinary: NDArray[np.bool_],
    mask_id: int,
    settings: MaskingSettings,
    seed: int,
    epoch: int,
) -> MaskedRows:
    """Return the rows with an exact number of tokens hidden, a pure function of (seed, epoch, index).

    input_ids: (rows, seq) int64; padding may follow a row, being no ordinary token.
    index: (rows,) which row of the epoch each is.
    ordinary: (vocab,) bool, the ids that may be hidden or drawn: not [PAD] [UNK] [CLS] [SEP] [MASK] [unused…].

    Source: Devlin et al. 2019, A.1. Google counts [CLS] and [SEP] in the length, hides [UNK], and draws from the
    whole vocabulary; we do none of the three.
    """
    seq = input_ids.shape[1]
    stream = Stream(seed, "mask", epoch)
    eligible = ordinary[input_ids]  # (rows, seq)
    lanes = np.arange(seq)
    # A random order of the positions: the low bits hold the position, so that no two keys are equal. (As many bits
    # whatever the padding, on which nothing may depend.)
    position_bits = np.uint64(_POSITION_BITS)
    keys = stream.bits(index=index[:, None], lane=lanes[None, :])  # (rows, seq)
    keys = (keys >> position_bits << position_bits) | lanes.astype(np.uint64)
    keys = np.where(eligible, keys, np.uint64(2**64 - 1))
    wanted = num_targets(eligible.sum(axis=1), settings)
    last = np.take_along_axis(np.sort(keys, axis=1), np.maximum(wanted - 1, 0)[:, None], axis=1)
    selected = eligible & (keys <= last) & (wanted > 0)[:, None]
    rows, columns = selected.nonzero()
    fate = stream.uniform(index=index[rows], lane=_LANE_REPLACE + columns)
    draw = stream.uniform(index=index[rows], lane=_LANE_TOKEN + columns)
    drawable = np.flatnonzero(ordinary)
    replacement = np.where(
        fate < settings.mask_replace_prob,
        mask_id,
        np.where(
            fate < settings.mask_replace_prob + settings.random_replace_prob,
            drawable[np.floor(draw * len(drawable)).astype(np.int64)],
            input_ids[rows, columns],
        ),
    )
    output = input_ids.copy()
    output[rows, columns] = replacement
    return MaskedRows(output, selected)
