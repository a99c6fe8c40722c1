"""The one table between our tensor names and Hugging Face's, read in both directions.

In: a state dict of ours, or the names and shapes of a Hugging Face file.  Out: the other one, or the list of what is
missing and what is left over.  Next: weights.py
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertkit.errors import InputError

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
    ("classifier", ("classifier",)),
    ("span_head", ("qa_outputs",)),
)
_BARE = (  # single tensors, not modules with a weight and a bias
    ("encoder.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
    ("encoder.embeddings.position_embeddings.weight", "bert.embeddings.position_embeddings.weight"),
    ("encoder.embeddings.token_type_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"),
    ("mlm_head.bias", "cls.predictions.bias"),
    ("mlm_head.decoder", "cls.predictions.decoder.weight"),
    ("mix.weights", "layer_mix.weights"),  # ours; see architectures.py
    ("mix.gamma", "layer_mix.gamma"),
)
DECODER_WEIGHT, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_COPIES = {  # names under which a file may hold one of our tensors a second time
    DECODER_WEIGHT: "encoder.embeddings.word_embeddings.weight",
    DECODER_BIAS: "mlm_head.bias",
    "cls.predictions.bias": "mlm_head.bias",
}
PREFIX = "bert."  # Hugging Face leaves it out in a file that holds the encoder alone
WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"  # what an encoder's prefix is known by
_ENCODER_PARTS = ("embeddings.", "encoder.", "pooler.")
_OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}  # of LayerNorm, in files that come from TensorFlow
_PADDING = (8, 16, 32, 64, 128)  # multiples that a vocabulary's rows are filled up to
_WITH_VOCABULARY = ("encoder.embeddings.word_embeddings.weight", "mlm_head.decoder", "mlm_head.bias")
TASK_HEADS = ("classifier.", "span_head.", "mix.")  # made for one task: of another shape they are another task's

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """Which tensors on disk each of ours is made of, decided by names and shapes alone."""

    sources: dict[str, tuple[str, ...]]  # our name -> the names on disk it is made of
    missing: list[str]  # our names without a tensor on disk
    misshapen: dict[str, Shape]  # name on disk -> the shape that is wanted
    resized: dict[str, int]  # name on disk -> the rows that are read of it, the rest being padding
    copies: dict[str, str]  # name on disk that may repeat a tensor of ours -> our name
    ignored: list[str]  # names on disk that the model has no place for


@dataclass(frozen=True)
class Translation:
    """Tensors under our names, and what of the other side was not used or not found."""

    tensors: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]  # our name -> the names on disk it was made of
    missing: list[str]  # our names without a tensor on disk
    misshapen: dict[str, Shape]  # name on disk -> the shape that is wanted
    resized: dict[str, int]  # name on disk -> the rows that were read of it, the rest being padding
    ignored: list[str]  # names on disk that the model has no place for
    tied: list[str]  # names on disk that repeat, number for number, a tensor already loaded


def name_table(num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
    """Return {our tensor name: Hugging Face's tensor names} for every tensor that some model of ours can have."""
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


def canonical_names(names: Iterable[str]) -> dict[str, str]:
    """Return {Hugging Face's name for a tensor of BertForPreTraining and the like: its name in this file}.

    Read as one and the same are: the encoder with the prefix `bert.`, without one, and with another (`electra.`,
    `module.bert.`); a LayerNorm's weight and bias, and its gamma and beta.

    >>> canonical_names(["embeddings.word_embeddings.weight", "encoder.layer.0.output.LayerNorm.gamma"])["bert.encoder\
.layer.0.output.LayerNorm.weight"]
    'encoder.layer.0.output.LayerNorm.gamma'

    Raises:
        InputError: two tensors have one meaning, or there are two encoders.
    """
    names = list(names)
    prefixes = [name.removesuffix(WORD_EMBEDDINGS) for name in names if name.endswith(WORD_EMBEDDINGS)]
    if len(prefixes) > 1:
        shown = ", ".join(f"{prefix}{WORD_EMBEDDINGS}" for prefix in sorted(prefixes)[:2])
        raise InputError(f"holds {len(prefixes)} encoders: {shown}", expected="the tensors of one BERT")
    prefix = prefixes[0] if prefixes else PREFIX if any(name.startswith(PREFIX) for name in names) else ""
    around = prefix.removesuffix(PREFIX)  # what a wrapper put before every name, the heads' too
    found: dict[str, str] = {}
    for name in names:
        inner = name.removeprefix(prefix)
        if name.startswith(prefix) and inner.startswith(_ENCODER_PARTS):
            canonical = PREFIX + inner
        else:
            canonical = name.removeprefix(around)
        for old, new in _OLD_ENDS.items():
            if canonical.endswith(f"LayerNorm{old}"):
                canonical = canonical.removesuffix(old) + new
        if canonical in found:
            raise InputError(f"holds one tensor under two names: {found[canonical]}, {name}")
        found[canonical] = name
    return found


def match_names(shapes: Mapping[str, Shape], *, wanted: Mapping[str, torch.Size], num_hidden_layers: int) -> Match:
    """Return which tensors of a file (name → shape) become what `wanted` (our name → shape) asks for.

    A wanted tensor is missing when any of its parts is; what no wanted tensor uses is listed as ignored. Rows with
    which a vocabulary was filled up to a multiple of 8 … 128 are not read.

    Raises:
        InputError: what `canonical_names` raises.
    """
    on_disk = canonical_names(shapes)
    table = name_table(num_hidden_layers)
    sources: dict[str, tuple[str, ...]] = {}
    missing: list[str] = []
    misshapen: dict[str, Shape] = {}
    resized: dict[str, int] = {}
    for name, size in wanted.items():
        names = _bias_in_force(table[name], on_disk, tied="mlm_head.decoder" not in wanted)
        if not all(other in on_disk for other in names):
            missing.append(name)
            continue
        shape = (size[0] // len(names), *size[1:])  # of each part
        found = tuple(on_disk[other] for other in names)
        wrong = [source for source in found if tuple(shapes[source]) != shape]
        if wrong and name in _WITH_VOCABULARY and _is_padded(tuple(shapes[found[0]]), shape):
            resized[found[0]] = shape[0]
        elif wrong and name.startswith(TASK_HEADS):
            missing.append(name)
            continue
        else:
            misshapen |= dict.fromkeys(wrong, shape)
        sources[name] = found
    used = {source for names in sources.values() for source in names}
    copies = {
        on_disk[name]: ours
        for name, ours in _COPIES.items()
        if "mlm_head.bias" in sources and ours in sources and on_disk.get(name, "") in shapes.keys() - used
    }
    return Match(
        sources=sources,
        missing=missing,
        misshapen=misshapen,
        resized=resized,
        copies={name: ours for name, ours in copies.items() if _same(tuple(shapes[name]), tuple(wanted[ours]))},
        ignored=sorted(shapes.keys() - used),
    )


def assemble(
    match: Match, *, wanted: Mapping[str, torch.Size], read: Callable[[str, Tensor], None], dtype: torch.dtype
) -> Translation:
    """Return the tensors of a match, each made once and filled in place.

    read: fills a contiguous tensor (the second argument) with the first rows of the one on disk with this name.
    """
    tensors: dict[str, Tensor] = {}
    for name, sources in match.sources.items():
        tensors[name] = torch.empty(wanted[name], dtype=dtype)
        for source, part in zip(sources, tensors[name].chunk(len(sources)), strict=True):
            read(source, part)
    tied = []
    for copy, name in match.copies.items():
        other = torch.empty_like(tensors[name])
        read(copy, other)
        if torch.equal(other, tensors[name]):
            tied.append(copy)
    return Translation(
        tensors=tensors,
        sources=match.sources,
        missing=match.missing,
        misshapen=match.misshapen,
        resized=match.resized,
        ignored=[name for name in match.ignored if name not in tied],
        tied=sorted(tied),
    )


def from_hugging_face(
    tensors: Mapping[str, Tensor], *, wanted: Mapping[str, torch.Size], num_hidden_layers: int
) -> Translation:
    """Return the tensors that `wanted` asks for, made from those of a state dict in memory, in their own precision.

    Raises:
        InputError: what `canonical_names` raises.
    """

    def read(name: str, out: Tensor) -> None:
        out.copy_(tensors[name][: len(out)])

    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    match = match_names(shapes, wanted=wanted, num_hidden_layers=num_hidden_layers)
    whole = {name: sources for name, sources in match.sources.items() if not match.misshapen.keys() & set(sources)}
    copies = {name: ours for name, ours in match.copies.items() if ours in whole}
    dtype = next(iter(tensors.values())).dtype if tensors else torch.float32
    return assemble(replace(match, sources=whole, copies=copies), wanted=wanted, read=read, dtype=dtype)


def _is_padded(found: Shape, wanted: Shape) -> bool:
    """Whether rows were added to a vocabulary's to make their number a multiple of a power of 2."""
    rows = {-(-wanted[0] // multiple) * multiple for multiple in _PADDING}
    return found[:1] != wanted[:1] and found[1:] == wanted[1:] and bool(found) and found[0] in rows


def _same(found: Shape, wanted: Shape) -> bool:
    return found == wanted or _is_padded(found, wanted)


def _bias_in_force(names: tuple[str, ...], on_disk: Mapping[str, str], *, tied: bool) -> tuple[str, ...]:
    """With an untied decoder Hugging Face adds decoder.bias; the other name is then a tensor nobody reads."""
    if names == ("cls.predictions.bias",) and not tied and DECODER_BIAS in on_disk:
        return (DECODER_BIAS,)
    return names
