"""Loading and saving a model as a Hugging Face directory, with a report of what became of every tensor.

In: a folder with config.json and weights, or the id of a model on the hub.  Out: a model and its LoadReport; or the
bytes of such a folder.  Next: hub.py, card.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from bertkit.files import write_atomically
from bertkit.model.architectures import (
    ARCHITECTURES,
    TASKS,
    Head,
    Model,
    Unfilled,
    architecture_of,
    build,
    head_in,
    head_of,
)
from bertkit.model.config import BertConfig, unknown_keys
from bertkit.model.contents import CONFIG, Contents, contents_of, remarks_on, task_head_names, task_of
from bertkit.model.encoder import Encoder
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.model.hub import model_directory
from bertkit.model.huggingface import (
    PREFIX,
    assemble,
    match_names,
    to_hugging_face,
)
from bertkit.model.load_report import LoadReport
from bertkit.model.loading_checks import check_finite, check_missing, check_room, check_shapes, check_tied
from bertkit.model.task_config import TaskConfig
from bertkit.model.task_entries import task_entries
from bertkit.model.weights import WEIGHTS

__all__ = [
    "ARCHITECTURES",
    "CONFIG",
    "WEIGHTS",
    "Head",
    "LoadReport",
    "Model",
    "build",
    "head_of",
    "head_on_disk",
    "load",
    "load_with_report",
    "model_files",
    "save",
]


def load(
    directory: str | Path,
    *,
    head: Head | None = "pretraining",
    allow_new_head: bool = False,
    allow_pickle_weights: bool = False,
    task: TaskConfig | None = None,
) -> Model:
    """Return the model of a Hugging Face directory, in eval mode; see `load_with_report` for the rest."""
    return load_with_report(
        directory,
        head=head,
        allow_new_head=allow_new_head,
        allow_pickle_weights=allow_pickle_weights,
        task=task,
    )[0]


def load_with_report(
    directory: str | Path,
    *,
    head: Head | None = "pretraining",
    allow_new_head: bool = False,
    allow_pickle_weights: bool = False,
    task: TaskConfig | None = None,
    new_head: bool = False,
) -> tuple[Model, LoadReport]:
    """Return the model of a Hugging Face directory, in eval mode and float32, and what became of every tensor.

    directory: a folder, or a model of the hub as `owner/name` or `owner/name@revision` (see `hub.model_directory`).
    head: "pretraining" (both heads), "masked_lm", "next_sentence", one of the four of fine-tuning, or None for the
        encoder alone.
    allow_new_head: draw a head (or pooler) that the file lacks at random; never a part of the encoder's layers.
    allow_pickle_weights: open pytorch_model.bin where there is no safetensors file, for tensors and nothing else.
    task: what the head of fine-tuning is to be; None: what config.json says. A head in the file with other labels,
        of another problem type, or that reads something else of the encoder, is one that the file lacks.
    new_head: take the file for one that lacks a head of fine-tuning (with allow_new_head).

    Raises:
        InputError: no such folder or file, a config that is no BERT's, a tensor missing or of another shape than the
            config says, a head missing while allow_new_head is False, a decoder apart from the embeddings although
            the config says they are one, and whatever `ForeignFolder` and `open_weights` refuse.
    """
    path = model_directory(directory, allow_pickle_weights=allow_pickle_weights)
    with ForeignFolder(path) as folder:
        found = contents_of(folder, allow_pickle_weights=allow_pickle_weights)
        return _load(found, head=head, allow_new_head=allow_new_head, task=task, new_head=new_head)


def head_on_disk(directory: str | Path, *, allow_pickle_weights: bool = False) -> Head | None:
    """Return the head that a folder holds, by the names of its tensors; None for an encoder alone.

    Raises:
        InputError: what `load_with_report` raises before it reads a tensor.
    """
    with ForeignFolder(model_directory(directory, allow_pickle_weights=allow_pickle_weights)) as folder:
        found = contents_of(folder, allow_pickle_weights=allow_pickle_weights)
        return head_in(found.names, found.values)


def _load(
    found: Contents, *, head: Head | None, allow_new_head: bool, task: TaskConfig | None, new_head: bool
) -> tuple[Model, LoadReport]:
    config, remarks = found.config, remarks_on(found)
    shapes = dict(found.weights.shapes)
    if head in TASKS:
        task, foreign = task_of(found, head, task)
        if new_head and not foreign:
            foreign = "a new head was asked for"
        if foreign:
            remarks.append(foreign)
            shapes = {name: shape for name, shape in shapes.items() if name not in task_head_names(found)}
    with torch.device("meta"), Unfilled():
        model = build(config, head=head, task=task)
    prefix = "encoder." if isinstance(model, Encoder) else ""
    wanted = {prefix + name: tensor.shape for name, tensor in model.state_dict().items()}
    match = match_names(shapes, wanted=wanted, num_hidden_layers=config.num_hidden_layers)
    check_shapes(match, found)
    check_missing(match.missing, found, head=head, allow_new_head=allow_new_head, remarks=remarks)
    check_room(wanted, found.path)
    tensors = assemble(match, wanted=wanted, read=found.weights.read, dtype=torch.float32)
    if "mlm_head.bias" in wanted and config.tie_word_embeddings:
        check_tied(tensors, found)
    check_finite(tensors.tensors, found)
    state = tensors.tensors | {name: _first_values(name, wanted[name], config) for name in match.missing}
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in state.items()}, assign=True)
    resized = sorted(match.resized)
    report = LoadReport(
        loaded=sorted(name for names in match.sources.values() for name in names if name not in match.resized),
        tied=tensors.tied,
        resized=resized,
        newly_made=sorted(match.missing),
        ignored=sorted({*tensors.ignored, *(found.weights.shapes.keys() - shapes.keys())}),
        unknown_config_keys=unknown_keys(found.values),
        remarks=remarks,
    )
    return model.eval(), report


def _first_values(name: str, shape: torch.Size, config: BertConfig) -> Tensor:
    """Return what a head's tensor begins with, by the rule of `initialise`: our `name` says what it is."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name == "mix.weights":
        return torch.zeros(shape)
    if name.endswith(("layer_norm.weight", "mix.gamma")):
        return torch.ones(shape)
    return torch.normal(0.0, config.initializer_range, shape)


def model_files(model: Model) -> dict[str, bytes]:
    """Return {file name: bytes} of config.json and model.safetensors as `transformers` opens them.

    The same model gives the same bytes each time.
    """
    config = model.config
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    if isinstance(model, Encoder):
        state = {f"encoder.{name}": tensor for name, tensor in state.items()}
    tensors = to_hugging_face(state, num_hidden_layers=config.num_hidden_layers)
    if isinstance(model, Encoder):
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    entries: dict[str, Any] = {
        "architectures": [architecture_of(model)],
        "dtype": dtype,
        **config.to_json(),
        **task_entries(model),
    }
    return {
        CONFIG: (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode("utf-8"),
        WEIGHTS: safetensors_bytes(tensors, metadata={"format": "pt"}),
    }


def save(directory: str | Path, model: Model, *, files: Mapping[str, bytes]) -> None:
    """Write the model and `files` (the tokenizer's, the model card) into a folder, each file whole or not at all."""
    for name, content in {**files, **model_files(model)}.items():
        write_atomically(Path(directory) / name, content)
