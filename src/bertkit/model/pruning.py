"""Heads taken out of a model, so that its matrices really get smaller; and put back as zeros.

In: a model and {layer: heads}.  Out: the same model, changed in place, its config saying which heads it lacks.
Next: importance.py (which heads matter)
"""

import dataclasses
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.model.attention import SelfAttention
from bertkit.model.config import BertConfig, checked_pruned_heads
from bertkit.model.encoder import Encoder


def prune_heads(model: nn.Module, heads: Mapping[int, Collection[int]]) -> None:
    """Take heads out of an encoder, or of a model that stands on one; those taken out before stay out.

    heads: {layer: numbers of heads}, both counted from 0 in the model as it was before any was taken out.
    The model gives what it gave with a head_mask of 0 at these heads. Its parameters are new ones: make the optimizer
    after this. Saving writes the key `pruned_heads` and the smaller matrices. `transformers` had them until its
    version 4 and has them no more: it refuses the folder for its shapes (`restore_heads` makes one that it opens).

    Raises:
        InputError: a layer or head that the model does not have; no head left in a layer.
    """
    config = encoder_of(model).config
    wanted = {layer: {*config.pruned_heads.get(layer, ()), *numbers} for layer, numbers in heads.items()}
    checked = checked_pruned_heads(wanted, config)
    _rebuild(model, dataclasses.replace(config, pruned_heads=config.pruned_heads | checked))


def restore_heads(model: nn.Module) -> None:
    """Give a model the heads back that were taken out, as zeros: it answers as before, and `transformers` opens it."""
    _rebuild(model, dataclasses.replace(encoder_of(model).config, pruned_heads={}))


def encoder_of(model: nn.Module) -> Encoder:
    """Return the encoder that a model is or stands on.

    Raises:
        InputError: there is none, or more than one.
    """
    encoders = [part for part in model.modules() if isinstance(part, Encoder)]
    if len(encoders) != 1:
        raise InputError(
            f"holds {len(encoders)} encoders", field="model", expected="a model that stands on one encoder"
        )
    return encoders[0]


def _rebuild(model: nn.Module, config: BertConfig) -> None:
    encoder = encoder_of(model)
    for number, layer in enumerate(encoder.layers):
        old = layer.attention
        assert isinstance(old, SelfAttention)
        if old.kept_heads != config.kept_heads(number):
            layer.attention = _with_heads(old, config, config.kept_heads(number))
    for part in model.modules():
        if isinstance(vars(part).get("config"), BertConfig):
            vars(part)["config"] = config


def _with_heads(old: SelfAttention, config: BertConfig, kept: tuple[int, ...]) -> SelfAttention:
    """The attention with these heads: those it had keep their numbers, others are 0."""
    new = SelfAttention(config, kept_heads=kept)
    new.to(old.output.weight).train(old.training)
    rows, had = _rows(kept, config.head_dim), _rows(old.kept_heads, config.head_dim)
    both = sorted(set(rows) & set(had))
    to, source = [rows.index(row) for row in both], [had.index(row) for row in both]
    with torch.no_grad():
        for ours, theirs in (
            (new.query_key_value.weight, old.query_key_value.weight),
            (new.query_key_value.bias, old.query_key_value.bias),
        ):
            for part, other in zip(ours.chunk(3), theirs.chunk(3), strict=True):  # query, key, value
                _copy(part, other, to, source)
        _copy(new.output.weight.T, old.output.weight.T, to, source)
        new.output.bias.copy_(old.output.bias)
    for ours, theirs in zip(new.parameters(), old.parameters(), strict=True):
        ours.requires_grad_(theirs.requires_grad)
    return new


def _rows(heads: tuple[int, ...], head_dim: int) -> list[int]:
    return [head * head_dim + row for head in heads for row in range(head_dim)]


def _copy(new: Tensor, old: Tensor, to: list[int], source: list[int]) -> None:
    new.zero_()
    new[to] = old[source]
