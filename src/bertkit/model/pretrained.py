"""Loading and saving a model as a Hugging Face directory, with a report of what became of every tensor.

In: a folder with config.json and model.safetensors.  Out: a model and its LoadReport; or the bytes of such a folder.
Next: card.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from bertkit.errors import InputError
from bertkit.files import require_file, write_atomically
from bertkit.model.config import BertConfig, config_from_json, read_json_object, unknown_keys
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.huggingface import (
    DECODER_BIAS,
    DECODER_WEIGHT,
    PREFIX,
    Translation,
    from_hugging_face,
    name_table,
    to_hugging_face,
)

Head = Literal["pretraining", "masked_lm", "next_sentence"]
ARCHITECTURES: dict[Head | None, str] = {
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "next_sentence": "BertForNextSentencePrediction",
    None: "BertModel",
}
WEIGHTS, CONFIG = "model.safetensors", "config.json"
SHOWN_NAMES = 5  # an error lists this many tensor names and then the number of the others


@dataclass
class LoadReport:
    """What became of every tensor: its name on the side where it exists, sorted."""

    loaded: list[str] = field(default_factory=list)
    tied: list[str] = field(default_factory=list)  # a second copy on disk of a tensor that was loaded
    newly_made: list[str] = field(default_factory=list)  # our names, drawn at random
    ignored: list[str] = field(default_factory=list)  # on disk, but this model has no place for them
    unknown_config_keys: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return one line with the counts, and the names of what is new or ignored.

        >>> LoadReport(loaded=["a", "b"], newly_made=["nsp_head.bias"]).summary()
        '2 tensors loaded; newly made: nsp_head.bias'
        """
        parts = [f"{len(self.loaded)} tensors loaded"]
        for title, names in (
            ("tied", self.tied),
            ("newly made", self.newly_made),
            ("ignored", self.ignored),
            ("config.json keys not read", self.unknown_config_keys),
        ):
            if names:
                parts.append(f"{title}: {', '.join(names)}")
        return "; ".join(parts)


def build(config: BertConfig, *, head: Head | None) -> Encoder | PretrainingModel:
    """Return a randomly initialised model; None builds the encoder with its pooler.

    Raises:
        InputError: no such head.
    """
    if head not in ARCHITECTURES:
        raise InputError("is no head", field="head", value=head, expected=" | ".join(map(repr, ARCHITECTURES)))
    if head is None:
        return Encoder(config)
    return PretrainingModel(config, mlm=head != "next_sentence", nsp=head != "masked_lm")


def load(
    directory: str | Path, *, head: Head | None = "pretraining", allow_new_head: bool = False
) -> Encoder | PretrainingModel:
    """Return the model in a Hugging Face directory, in eval mode; see `load_with_report` for the rest."""
    return load_with_report(directory, head=head, allow_new_head=allow_new_head)[0]


def load_with_report(
    directory: str | Path, *, head: Head | None = "pretraining", allow_new_head: bool = False
) -> tuple[Encoder | PretrainingModel, LoadReport]:
    """Return the model in a Hugging Face directory, in eval mode and float32, and what became of every tensor.

    head: "pretraining" (both heads), "masked_lm", "next_sentence", or None for the encoder alone.
    allow_new_head: draw a head (or pooler) that the file lacks at random; never a part of the encoder's layers.

    Raises:
        InputError: no such folder or file, a config that is no BERT's, a tensor missing or of another shape than the
            config says, a head missing while allow_new_head is False, a decoder apart from the embeddings although
            the config says they are one.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(
            "is not a model folder" if directory.exists() else "does not exist",
            file=directory,
            expected="a folder with config.json and weights",
            remedy="name a RUN of `bertkit pretrain`, one of its checkpoints/step-N, or a folder of transformers",
        )
    values = read_json_object(directory / CONFIG)
    config = config_from_json(values, file=directory / CONFIG)
    with torch.device("meta"):
        model = build(config, head=head)
    prefix = "encoder." if isinstance(model, Encoder) else ""
    wanted = {prefix + name: tensor.shape for name, tensor in model.state_dict().items()}
    path = directory / WEIGHTS
    tensors = _read_weights(path)
    found = from_hugging_face(tensors, wanted=wanted, num_hidden_layers=config.num_hidden_layers)
    _check_shapes(found, tensors, path)
    _check_missing(found.missing, tensors, config, path=path, head=head, allow_new_head=allow_new_head)
    if "mlm_head.bias" in wanted and config.tie_word_embeddings:
        _check_tied(found, path)
    state = found.tensors | {name: _first_values(name, wanted[name], config) for name in found.missing}
    model.load_state_dict({name.removeprefix(prefix): tensor.float() for name, tensor in state.items()}, assign=True)
    report = LoadReport(
        loaded=sorted(name for names in found.sources.values() for name in names),
        tied=found.tied,
        newly_made=sorted(found.missing),
        ignored=found.ignored,
        unknown_config_keys=unknown_keys(values),
    )
    return model.eval(), report


def _read_weights(path: Path) -> dict[str, Tensor]:
    require_file(path, what="the model's weights", remedy="save the model as safetensors into this folder")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    except SafetensorError as problem:
        raise InputError(
            f"is damaged or no safetensors file ({problem})", file=path, remedy="copy the checkpoint again"
        ) from None


def _check_shapes(found: Translation, tensors: Mapping[str, Tensor], path: Path) -> None:
    for name, shape in found.misshapen.items():
        raise InputError(
            f"{name} has shape {tuple(tensors[name].shape)}",
            file=path,
            expected=f"{shape}, as config.json says",
            remedy="the folder mixes two models, or config.json was edited; copy both files from one checkpoint",
        )


def _check_missing(
    missing: list[str],
    tensors: Mapping[str, Tensor],
    config: BertConfig,
    *,
    path: Path,
    head: Head | None,
    allow_new_head: bool,
) -> None:
    in_encoder = [name for name in missing if name.startswith(("encoder.embeddings.", "encoder.layers."))]
    if in_encoder:
        raise InputError(
            f"lacks {_absent(in_encoder, tensors, config)}",
            file=path,
            expected=f"every tensor of an encoder with {config.num_hidden_layers} layers, as config.json says",
            remedy="copy config.json and the weights again, both from one checkpoint",
        )
    if missing and not allow_new_head:
        parts = {"mlm_head": "masked-LM head (MLM head)", "nsp_head": "next-sentence head", "encoder": "pooler"}
        absent = ", ".join(sorted({parts[name.split(".")[0]] for name in missing}))
        raise InputError(
            f"has no {absent}",
            file=path,
            expected=f"what head={head!r} needs: {_absent(missing, tensors, config)}",
            remedy="use a pre-trained checkpoint with this head, or train one with "
            "`bertkit pretrain --model_name_or_path` (it makes new heads and says so)",
        )


def _absent(missing: list[str], tensors: Mapping[str, Tensor], config: BertConfig) -> str:
    """Return, under the names that a file has for them, the first of the tensors that are not there."""
    table = name_table(config.num_hidden_layers)
    wanted = [other for name in missing for other in table[name]]
    names = [name for name in wanted if name not in tensors and name.removeprefix(PREFIX) not in tensors]
    rest = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _check_tied(found: Translation, path: Path) -> None:
    for name in (DECODER_WEIGHT, DECODER_BIAS):
        if name in found.ignored:
            raise InputError(
                f"{name} differs from the tensor it should repeat",
                file=path,
                expected="two equal tensors, as tie_word_embeddings in config.json says (its default is true)",
                remedy="set tie_word_embeddings to false in config.json, if the decoder was trained apart",
            )


def _first_values(name: str, shape: torch.Size, config: BertConfig) -> Tensor:
    """Return what a head's tensor begins with, by the rule of `initialise`: our `name` says what it is."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name.endswith("layer_norm.weight"):
        return torch.ones(shape)
    return torch.normal(0.0, config.initializer_range, shape)


def model_files(model: Encoder | PretrainingModel) -> dict[str, bytes]:
    """Return {file name: bytes} of config.json and model.safetensors as `transformers` opens them.

    The same model gives the same bytes each time.
    """
    config = model.config
    head = head_of(model)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    if isinstance(model, Encoder):
        state = {f"encoder.{name}": tensor for name, tensor in state.items()}
    tensors = to_hugging_face(state, num_hidden_layers=config.num_hidden_layers)
    if isinstance(model, Encoder):
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    entries: dict[str, Any] = {"architectures": [ARCHITECTURES[head]], "dtype": dtype, **config.to_json()}
    return {
        CONFIG: (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode("utf-8"),
        WEIGHTS: safetensors_bytes(tensors, metadata={"format": "pt"}),
    }


def head_of(model: Encoder | PretrainingModel) -> Head | None:
    """Return the name of the head a model has."""
    if isinstance(model, Encoder):
        return None
    if model.mlm_head is not None and model.nsp_head is not None:
        return "pretraining"
    return "masked_lm" if model.mlm_head is not None else "next_sentence"


def save(directory: str | Path, model: Encoder | PretrainingModel, *, files: Mapping[str, bytes]) -> None:
    """Write the model and `files` (the tokenizer's, the model card) into a folder, each file whole or not at all."""
    for name, content in {**files, **model_files(model)}.items():
        write_atomically(Path(directory) / name, content)
