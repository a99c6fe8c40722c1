"""Rows as tensors: the only place of data/ that knows torch.

In: rows of ids, what is hidden in them, labels.  Out: the batch that every model takes.  Next: model/encoder.py
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.masking import MaskedRows
from bertkit.data.rows import Rows

Batch = dict[str, Tensor]
IdRow = tuple[NDArray[np.int64], NDArray[np.int64]]  # input ids and token types of one row, (seq,) each


def padded(rows: Sequence[IdRow], *, pad_id: int) -> Batch:
    """Return rows as the inputs of an encoder, (batch, seq) int64 each.

    Left out is what says nothing: token_type_ids where all are 0, attention_mask where nothing is padded.
    """
    lengths = np.array([len(ids) for ids, _ in rows], dtype=np.int64)
    width = int(lengths.max(initial=1))
    input_ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    token_types = np.zeros((len(rows), width), dtype=np.int64)
    for row, (ids, types) in enumerate(rows):
        input_ids[row, : len(ids)], token_types[row, : len(ids)] = ids, types
    batch = {"input_ids": torch.from_numpy(input_ids)}
    if token_types.any():
        batch["token_type_ids"] = torch.from_numpy(token_types)
    if (lengths < width).any():
        batch["attention_mask"] = torch.from_numpy(np.arange(width)[None, :] < lengths[:, None])
    return batch


def collate(
    rows: Rows, masked: MaskedRows, next_sentence_label: NDArray[np.int64] | None, *, positions: NDArray[np.int64]
) -> Batch:
    """Return one micro-batch: the rows at `positions`, cut to the longest of them.

    input_ids, token_type_ids: (batch, seq) int64.
    attention_mask: (batch, seq) bool, True = token; left out when nothing is padded.
    mlm_positions, mlm_targets: (n,) int64, flat index row · seq + column, and the true id there.
    next_sentence_label: (batch,) int64, 0 = B follows A; left out when None.
    """
    lengths = rows.lengths[positions]
    width = int(lengths.max()) if len(lengths) else 1  # a micro-batch without rows still has a shape
    originals = rows.input_ids[positions, :width]
    selected = np.flatnonzero(masked.selected[positions, :width])
    batch = {
        "input_ids": torch.from_numpy(masked.input_ids[positions, :width]),
        "token_type_ids": torch.from_numpy(rows.token_type_ids[positions, :width]),
        "mlm_positions": torch.from_numpy(selected),
        "mlm_targets": torch.from_numpy(originals.reshape(-1)[selected]),
    }
    if (lengths < width).any():
        batch["attention_mask"] = torch.from_numpy(np.arange(width)[None, :] < lengths[:, None])
    if next_sentence_label is not None:
        batch["next_sentence_label"] = torch.from_numpy(next_sentence_label[positions])
    return batch
