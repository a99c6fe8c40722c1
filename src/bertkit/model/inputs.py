"""What the encoder is given, checked where looking is cheap: shapes, lengths, ids outside their tables.

In: the tensors of a batch.  Out: nothing, or the error that names row and column.  Next: encoder.py
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.config import BertConfig


def check_given(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """Return the one of the two that is there.

    Raises:
        InputError: both or neither is; its shape is wrong.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise InputError("give input_ids or inputs_embeds, one of the two", field="input_ids")
    given = input_ids if input_ids is not None else inputs_embeds
    assert given is not None
    if given.dim() != (2 if inputs_embeds is None else 3) or given.size(1) == 0:
        raise InputError(
            f"has shape {tuple(given.shape)}",
            field="input_ids" if inputs_embeds is None else "inputs_embeds",
            expected="(batch, seq)" if inputs_embeds is None else "(batch, seq, hidden)",
        )
    return given


def check_inputs(
    config: BertConfig,
    given: Tensor,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor,
    position_ids: Tensor,
) -> None:
    """Refuse a row longer than the positions the model has, an input of another shape, an id outside its table.

    Raises:
        InputError: one of these, with its row and column.
    """
    batch, seq = given.shape[:2]
    positions = config.max_position_embeddings
    if seq > positions:
        row = 0 if attention_mask is None else int(attention_mask.sum(dim=1).argmax())
        raise InputError(
            f"a row is {seq} tokens wide (the longest is row {row}), but the model has {positions} positions",
            field="input_ids",
            remedy=f"cut the text or use windows of at most {positions} tokens",
        )
    for name, tensor, limit in (
        ("attention_mask", attention_mask, None),
        ("input_ids", input_ids, config.vocab_size),
        ("token_type_ids", token_type_ids, config.type_vocab_size),
        ("position_ids", position_ids, positions),
    ):
        if tensor is not None:
            _check_input(name, tensor, batch=batch, seq=seq, limit=limit)


def check_positions(positions: Tensor, *, batch: int, seq: int, name: str = "read_positions") -> None:
    """Refuse flat positions, called `name` in errors, that are not (n,) or not of the batch.

    Raises:
        InputError: one of these.
    """
    if positions.dim() != 1:
        raise InputError(f"has shape {tuple(positions.shape)}", field=name, expected="(n,)")
    if positions.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = (positions < 0) | (positions >= batch * seq)
    if wrong.any():
        raise InputError(
            "is no position of the batch",
            field=name,
            value=int(positions[wrong][0]),
            expected=f"0 to {batch * seq - 1}, row · {seq} + column",
        )


def by_layer(name: str, mask: Tensor | None, shape: tuple[int, ...], *, batch: int) -> Sequence[Tensor | None]:
    """Return for each layer its part of a mask, (batch or 1, …), or None without a mask.

    mask: of that shape, whose first axis is the layers, or with one for each row before it.

    Raises:
        InputError: it has another shape.
    """
    if mask is None:
        return [None] * shape[0]
    if mask.shape not in (shape, (batch, *shape)):
        expected = f"{shape}, or {(batch, *shape)} with one for each row"
        raise InputError(f"has shape {tuple(mask.shape)}", field=name, expected=expected)
    return (mask[None] if mask.shape == shape else mask).unbind(1)


def _check_input(name: str, tensor: Tensor, *, batch: int, seq: int, limit: int | None) -> None:
    """Refuse a tensor that is not (batch or 1, seq or 1), or that holds an id outside 0 … limit − 1."""
    if tensor.dim() != 2 or tensor.size(0) not in (1, batch) or tensor.size(1) not in (1, seq):
        raise InputError(f"has shape {tuple(tensor.shape)}", field=name, expected=f"({batch}, {seq})")
    # Only where looking costs no wait for a device; a wrong id there would end the process without a word.
    if limit is None or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = (tensor < 0) | (tensor >= limit)
    if not wrong.any():
        return
    row, column = wrong.nonzero()[0].tolist()
    raise InputError(
        f"row {row}, column {column} is {int(tensor[row, column])}, but the table has {limit} entries",
        field=name,
        expected=f"0 to {limit - 1}",
        remedy="check that the tokenizer belongs to this model",
    )
