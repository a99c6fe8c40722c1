"""The one table between our tensor names and Hugging Face's, read in both directions.

In: a state dict of ours, or the tensors of a Hugging Face file.  Out: the other one, or the list of what is missing
and what is left over.  Next: pretrained.py
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Row = tuple[str, tuple[str, ...]]
# One row: our name, Hugging Face's names. {n} is the layer; a row of three is our fused matrix, theirs stacked in
# this order along the first axis. Every row stands for its .weight and its .bias.
_SELF = "bert.encoder.layer.{n}.attention.self"
_LAYER: tuple[Row, ...] = (
    ("encoder.layers.{n}.attention.query_key_value", (f"{_SELF}.query", f"{_SELF}.key", f"{_SELF}.value")),
    ("encoder.layers.{n}.attention.output", ("bert.encoder.layer.{n}.attention.output.dense",)),
    ("encoder.layers.{n}.attention_norm", ("bert.encoder.layer.{n}.attention.output.LayerNorm",)),
    ("encoder.layers.{n}.intermediate", ("bert.encoder.layer.{n}.intermediate.dense",)),
    ("encoder.layers.{n}.output", ("bert.encoder.layer.{n}.output.dense",)),
    ("encoder.layers.{n}.output_norm", ("bert.encoder.layer.{n}.output.LayerNorm",)),
)
_OUTSIDE_THE_LAYERS: tuple[Row, ...] = (
    ("encoder.embeddings.layer_norm", ("bert.embeddings.LayerNorm",)),
    ("encoder.pooler", ("bert.pooler.dense",)),
    ("mlm_head.dense", ("cls.predictions.transform.dense",)),
    ("mlm_head.layer_norm", ("cls.predictions.transform.LayerNorm",)),
    ("nsp_head", ("cls.seq_relationship",)),
)
_BARE = (  # single tensors, not modules with a weight and a bias
    ("encoder.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
    ("encoder.embeddings.position_embeddings.weight", "bert.embeddings.position_embeddings.weight"),
    ("encoder.embeddings.token_type_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"),
    ("mlm_head.bias", "cls.predictions.bias"),
    ("mlm_head.decoder", "cls.predictions.decoder.weight"),
)
DECODER_WEIGHT, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_COPIES = {  # names under which a file may hold one of our tensors a second time
    DECODER_WEIGHT: "encoder.embeddings.word_embeddings.weight",
    DECODER_BIAS: "mlm_head.bias",
    "cls.predictions.bias": "mlm_head.bias",
}
PREFIX = "bert."  # Hugging Face leaves it out in a file that holds the encoder alone


@dataclass(frozen=True)
class Translation:
    """Tensors under our names, and what of the other side was not used or not found."""

    tensors: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]  # our name -> the names on disk it was made of
    missing: list[str]  # our names without a tensor on disk
    misshapen: dict[str, tuple[int, ...]]  # name on disk -> the shape that is wanted
    ignored: list[str]  # names on disk that the model has no place for
    tied: list[str]  # names on disk that repeat, number for number, a tensor already loaded


def name_table(num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
    """Return {our tensor name: Hugging Face's tensor names} for every tensor a pre-training model can have."""
    modules = list(_OUTSIDE_THE_LAYERS)
    for n in range(num_hidden_layers):
        modules += [(ours.format(n=n), tuple(name.format(n=n) for name in theirs)) for ours, theirs in _LAYER]
    table = {
        f"{ours}.{part}": tuple(f"{name}.{part}" for name in theirs)
        for ours, theirs in modules
        for part in ("weight", "bias")
    }
    return table | {ours: (theirs,) for ours, theirs in _BARE}


def to_hugging_face(state: Mapping[str, Tensor], *, num_hidden_layers: int) -> dict[str, Tensor]:
    """Return the tensors of `state` (our names) under Hugging Face's names; the fused matrix is cut in three.

    A tied decoder is written once, as the embedding matrix. An untied one gets its bias under both names that
    Hugging Face keeps for it.
    """
    table = name_table(num_hidden_layers)
    theirs: dict[str, Tensor] = {}
    for name, tensor in state.items():
        names = table[name]
        for other, part in zip(names, tensor.chunk(len(names)), strict=True):
            theirs[other] = part.contiguous()
    if DECODER_WEIGHT in theirs:
        theirs[DECODER_BIAS] = theirs["cls.predictions.bias"].clone()
    return theirs


def from_hugging_face(
    tensors: Mapping[str, Tensor], *, wanted: Mapping[str, torch.Size], num_hidden_layers: int
) -> Translation:
    """Return the tensors that `wanted` (our name → shape) asks for, made from those on disk.

    A wanted tensor is missing when any of its parts is; what no wanted tensor uses is listed as ignored.
    """
    bare = not any(name.startswith(PREFIX) for name in tensors)
    on_disk = {PREFIX + name if bare and not name.startswith("cls.") else name: name for name in tensors}
    table = name_table(num_hidden_layers)
    found: dict[str, Tensor] = {}
    sources: dict[str, tuple[str, ...]] = {}
    missing: list[str] = []
    misshapen: dict[str, tuple[int, ...]] = {}
    used: set[str] = set()
    for name in wanted:
        names = _bias_in_force(table[name], tensors, tied="mlm_head.decoder" not in wanted)
        if all(other in on_disk for other in names):
            sources[name] = tuple(on_disk[other] for other in names)
            used |= set(sources[name])
            shape = (wanted[name][0] // len(names), *wanted[name][1:])  # of each part
            wrong = [source for source in sources[name] if tensors[source].shape != shape]
            misshapen |= dict.fromkeys(wrong, shape)
            if not wrong:
                # Joining copies, a single part too: a model must not change when the file it came from does.
                found[name] = torch.cat([tensors[source] for source in sources[name]])
        else:
            missing.append(name)
    left = tensors.keys() - used
    copies = _COPIES if "mlm_head.bias" in found else {}
    tied = {
        name
        for name in left & copies.keys()
        if copies[name] in found and torch.equal(tensors[name], found[copies[name]])
    }
    return Translation(
        tensors=found,
        sources=sources,
        missing=missing,
        misshapen=misshapen,
        ignored=sorted(left - tied),
        tied=sorted(tied),
    )


def _bias_in_force(names: tuple[str, ...], tensors: Mapping[str, Tensor], *, tied: bool) -> tuple[str, ...]:
    """With an untied decoder Hugging Face adds decoder.bias; the other name is then a tensor nobody reads."""
    if names == ("cls.predictions.bias",) and not tied and DECODER_BIAS in tensors:
        return (DECODER_BIAS,)
    return names
