"""Which tokens are hidden, and behind what.

In: rows of ids.  Out: the rows with tokens replaced, and where which token stood.  Next: instances.py
(Which tokens are hidden together: selection.py)
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.random import Stream
from bertkit.data.selection import NGRAM_LENGTHS, ONE_WORD, SPAN_LENGTHS, Phrases, select_units
from bertkit.errors import InputError
from bertkit.options import option

_POSITION_BITS = 20  # a row never has more tokens than these count
_LANE_REPLACE = 1 << _POSITION_BITS  # lanes below are positions in the row
_LANE_TOKEN = 2 << _POSITION_BITS
_LANE_LENGTH = 3 << _POSITION_BITS
_UNIT_LENGTHS = {"whole_word": ONE_WORD, "phrases": ONE_WORD, "span": SPAN_LENGTHS, "ngram": NGRAM_LENGTHS}


@dataclass(frozen=True)
class MaskingSettings:
    """How many tokens are hidden, which together, and what stands in their place."""

    masking: Literal["token", "whole_word", "span", "ngram", "phrases"] = option(
        "token",
        help="what is hidden together: token; whole_word; span (1 to 10 words, SpanBERT's lengths); ngram (1 to 4 "
        "words); phrases (the terms of --phrases_file first, then words)",
    )
    mlm_probability: float = option(
        0.15, help="share of a row's ordinary tokens that are hidden", aliases=("masked_lm_prob",)
    )
    mask_replace_prob: float = option(0.8, help="share of the hidden tokens replaced by [MASK]")
    random_replace_prob: float = option(
        0.1, help="share of the hidden tokens replaced by a random ordinary token; the rest stays as it is"
    )
    max_predictions_per_seq: int | None = option(None, help="most tokens hidden in a row; null: no cap")
    final_mlm_probability: float | None = option(
        None, help="share hidden at the end of training, reached in a straight line; null: mlm_probability throughout"
    )
    phrases_file: str | None = option(None, help="terms that --masking phrases hides first, one a line")

    def __post_init__(self) -> None:
        if (self.masking == "phrases") != (self.phrases_file is not None):
            raise InputError(
                "belong together",
                field="--masking phrases, --phrases_file",
                value=self.phrases_file,
                remedy="give both, or none of them",
            )
        final = self.mlm_probability if self.final_mlm_probability is None else self.final_mlm_probability
        for name, value in (
            ("mlm_probability", self.mlm_probability),
            ("final_mlm_probability", final),
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
        cap = self.max_predictions_per_seq
        if cap is not None and not 1 <= cap < 1 << _POSITION_BITS:
            raise InputError("is out of range", field="--max_predictions_per_seq", value=cap, expected="1 or more")

    def at(self, progress: float) -> "MaskingSettings":
        """Return the settings in force when the share `progress` (0 to 1) of the training is done."""
        if self.final_mlm_probability is None:
            return self
        rate = (1 - progress) * self.mlm_probability + progress * self.final_mlm_probability  # (exact at both ends)
        return replace(self, mlm_probability=rate, final_mlm_probability=None)


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
    word_starts: NDArray[np.bool_] | None = None,
    phrases: Phrases | None = None,
) -> MaskedRows:
    """Return the rows with tokens hidden, a pure function of (seed, epoch, index).

    input_ids: (rows, seq) int64; padding may follow a row, being no ordinary token.
    index: (rows,) which row of the epoch each is.
    ordinary: (vocab,) bool, the ids that may be hidden or drawn: not [PAD] [UNK] [CLS] [SEP] [MASK] [unused…].
    word_starts: (rows, seq) bool, for every scheme but `token`; phrases: for `phrases`.

    Source: Devlin et al. 2019, A.1. Google counts [CLS] and [SEP] in the length, hides [UNK], and draws from the
    whole vocabulary; we do none of the three.
    """
    stream = Stream(seed, "mask", epoch)
    eligible = ordinary[input_ids]  # (rows, seq)
    wanted = num_targets(eligible.sum(axis=1), settings)
    keys = _keys(stream, index, input_ids.shape[1])
    if settings.masking == "token":
        selected = _smallest(np.where(eligible, keys, np.uint64(2**64 - 1)), wanted) & eligible
        unit = np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape)
    else:
        assert word_starts is not None
        first = None
        if settings.masking == "phrases":
            assert phrases is not None
            word_starts, first = _joined(word_starts, phrases.find(input_ids))
        chosen = select_units(
            eligible,
            word_starts,
            wanted,
            keys,
            stream.uniform(index=index[:, None], lane=_LANE_LENGTH + np.arange(input_ids.shape[1])[None, :]),
            lengths=_UNIT_LENGTHS[settings.masking],
            first=first,
        )
        selected, unit = chosen.selected, chosen.unit
    rows, columns = selected.nonzero()
    # SpanBERT decides once for a whole span; every other scheme for each token.
    deciding = unit[rows, columns] if settings.masking == "span" else columns
    fate = stream.uniform(index=index[rows], lane=_LANE_REPLACE + deciding)
    draw = stream.uniform(index=index[rows], lane=_LANE_TOKEN + columns)
    output = input_ids.copy()
    output[rows, columns] = _replacements(
        input_ids[rows, columns], fate, draw, drawable=np.flatnonzero(ordinary), mask_id=mask_id, settings=settings
    )
    return MaskedRows(output, selected)


def _replacements(
    originals: NDArray[np.int64],
    fate: NDArray[np.float64],
    draw: NDArray[np.float64],
    *,
    drawable: NDArray[np.int64],
    mask_id: int,
    settings: MaskingSettings,
) -> NDArray[np.int64]:
    """What stands in the place of each hidden token, (hidden tokens,): [MASK], another token, or itself."""
    random_tokens = drawable[np.floor(draw * len(drawable)).astype(np.int64)]
    is_random = fate < settings.mask_replace_prob + settings.random_replace_prob
    return np.where(fate < settings.mask_replace_prob, mask_id, np.where(is_random, random_tokens, originals))


def _keys(stream: Stream, index: NDArray[np.int64], seq: int) -> NDArray[np.uint64]:
    """A random order of the positions of each row, (rows, seq).

    The low bits hold the position, so that no two keys are equal; as many bits whatever the padding, on which nothing
    may depend.
    """
    position_bits, lanes = np.uint64(_POSITION_BITS), np.arange(seq)
    keys = stream.bits(index=index[:, None], lane=lanes[None, :])
    return (keys >> position_bits << position_bits) | lanes.astype(np.uint64)


def _smallest(keys: NDArray[np.uint64], number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where the `number` smallest keys of each row stand, (rows, seq)."""
    last = np.take_along_axis(np.sort(keys, axis=1), np.maximum(number - 1, 0)[:, None], axis=1)
    return (keys <= last) & (number > 0)[:, None]


def _joined(
    word_starts: NDArray[np.bool_], phrases: list[tuple[int, int, int]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The words with every phrase made one of them, and where phrases start."""
    joined, first = word_starts.copy(), np.zeros_like(word_starts)
    for row, start, end in phrases:
        joined[row, start:end] = False
        joined[row, start] = first[row, start] = True
        if end < joined.shape[1]:
            joined[row, end] = True
    return joined, first
