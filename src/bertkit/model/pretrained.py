"""Loading and saving a model as a Hugging Face directory, with a report of what became of every tensor.

In: a folder with config.json and weights, or the id of a model on the hub.  Out: a model and its LoadReport; or the
bytes of such a folder.  Next: hub.py, card.py
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from bertkit.errors import InputError
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
from bertkit.model.contents import CONFIG, SHOWN_NAMES, Contents, contents_of, remarks_on, task_head_names, task_of
from bertkit.model.encoder import Encoder
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.model.hub import model_directory
from bertkit.model.huggingface import (
    DECODER_BIAS,
    DECODER_WEIGHT,
    PREFIX,
    TASK_HEADS,
    Match,
    Shape,
    Translation,
    assemble,
    match_names,
    name_table,
    to_hugging_face,
)
from bertkit.model.load_report import LoadReport
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
) -> tuple[Model, LoadReport]:
    """Return the model of a Hugging Face directory, in eval mode and float32, and what became of every tensor.

    directory: a folder, or a model of the hub as `owner/name` or `owner/name@revision` (see `hub.model_directory`).
    head: "pretraining" (both heads), "masked_lm", "next_sentence", one of the four of fine-tuning, or None for the
        encoder alone.
    allow_new_head: draw a head (or pooler) that the file lacks at random; never a part of the encoder's layers.
    allow_pickle_weights: open pytorch_model.bin where there is no safetensors file, for tensors and nothing else.
    task: what the head of fine-tuning is to be; None: what config.json says. A head in the file with other labels
        than these is one that the file lacks.

    Raises:
        InputError: no such folder or file, a config that is no BERT's, a tensor missing or of another shape than the
            config says, a head missing while allow_new_head is False, a decoder apart from the embeddings although
            the config says they are one, and whatever `ForeignFolder` and `open_weights` refuse.
    """
    path = model_directory(directory, allow_pickle_weights=allow_pickle_weights)
    with ForeignFolder(path) as folder:
        found = contents_of(folder, allow_pickle_weights=allow_pickle_weights)
        return _load(found, head=head, allow_new_head=allow_new_head, task=task)


def head_on_disk(directory: str | Path, *, allow_pickle_weights: bool = False) -> Head | None:
    """Return the head that a folder holds, by the names of its tensors; None for an encoder alone.

    Raises:
        InputError: what `load_with_report` raises before it reads a tensor.
    """
    with ForeignFolder(model_directory(directory, allow_pickle_weights=allow_pickle_weights)) as folder:
        found = contents_of(folder, allow_pickle_weights=allow_pickle_weights)
        return head_in(found.names, found.values)


def _load(
    found: Contents, *, head: Head | None, allow_new_head: bool, task: TaskConfig | None
) -> tuple[Model, LoadReport]:
    config, remarks = found.config, remarks_on(found)
    shapes = dict(found.weights.shapes)
    if head in TASKS:
        task, foreign = task_of(found, head, task)
        if foreign:
            remarks.append(foreign)
            shapes = {name: shape for name, shape in shapes.items() if name not in task_head_names(found)}
    with torch.device("meta"), Unfilled():
        model = build(config, head=head, task=task)
    prefix = "encoder." if isinstance(model, Encoder) else ""
    wanted = {prefix + name: tensor.shape for name, tensor in model.state_dict().items()}
    match = match_names(shapes, wanted=wanted, num_hidden_layers=config.num_hidden_layers)
    _check_shapes(match, found)
    _check_missing(match.missing, found, head=head, allow_new_head=allow_new_head, remarks=remarks)
    _check_room(wanted, found.path)
    tensors = assemble(match, wanted=wanted, read=found.weights.read, dtype=torch.float32)
    if "mlm_head.bias" in wanted and config.tie_word_embeddings:
        _check_tied(tensors, found)
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


def _check_shapes(match: Match, found: Contents) -> None:
    for name, shape in match.misshapen.items():
        raise InputError(
            f"{name} has shape {found.weights.shapes[name]}",
            file=found.path,
            expected=f"{shape}, as config.json says",
            remedy="the folder mixes two models, or config.json was edited; copy both files from one checkpoint",
        )
    for names in [*match.sources.values(), tuple(match.copies)]:
        for name in names:
            dtype = found.weights.dtypes[name]
            if dtype is None or not dtype.is_floating_point:
                raise InputError(
                    f"{name} holds no floating-point numbers",
                    file=found.path,
                    value=str(dtype) if dtype is not None else None,
                    expected="F32, F16, BF16 or F64",
                    remedy="use the model as it was before it was quantised",
                )


def _check_missing(
    missing: list[str], found: Contents, *, head: Head | None, allow_new_head: bool, remarks: list[str]
) -> None:
    config = found.config
    in_encoder = [name for name in missing if name.startswith(("encoder.embeddings.", "encoder.layers."))]
    if in_encoder:
        raise InputError(
            f"lacks {_absent(in_encoder, found)}",
            file=found.path,
            expected=f"every tensor of an encoder with {config.num_hidden_layers} layers, as config.json says",
            remedy="copy config.json and the weights again, both from one checkpoint",
        )
    if missing and not allow_new_head:
        parts = {
            "mlm_head": "masked-LM head (MLM head)",
            "nsp_head": "next-sentence head",
            "encoder": "pooler",
            "classifier": "classifier for this task",
            "span_head": "head for answers in a text",
            "mix": "mix of layers",
        }
        absent = ", ".join(sorted({parts[name.split(".")[0]] for name in missing}))
        said = f" ({'; '.join(remarks)})" if remarks else ""
        tuned = any(name.startswith(TASK_HEADS) for name in missing)
        raise InputError(
            f"has no {absent}{said}",
            file=found.path,
            expected=f"what head={head!r} needs: {_absent(missing, found)}",
            remedy="fine-tune it first; allow_new_head=True makes a new head to begin from, and says so"
            if tuned
            else "use a pre-trained checkpoint with this head, or train one with "
            "`bertkit pretrain --model_name_or_path` (it makes new heads and says so)",
        )


def _absent(missing: list[str], found: Contents) -> str:
    """Return, under the names that a file has for them, the first of the tensors that are not there."""
    table = name_table(found.config.num_hidden_layers)
    wanted = [other for name in missing for other in table[name]]
    names = [name for name in wanted if name not in found.names or name.startswith("classifier.")]
    rest = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _check_room(wanted: Mapping[str, Shape], path: Path) -> None:
    """Refuse a model that is larger than the machine's memory, before any of it is taken."""
    needed = sum(4 * torch.Size(shape).numel() for shape in wanted.values())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise InputError(
            f"is a model of {needed:,} bytes",
            file=path,
            expected=f"at most {there:,}, the memory of this machine",
            remedy="use a smaller model or a larger machine",
        )


def _check_tied(tensors: Translation, found: Contents) -> None:
    for name in (DECODER_WEIGHT, DECODER_BIAS):
        if found.names.get(name) in tensors.ignored:
            raise InputError(
                f"{name} differs from the tensor it should repeat",
                file=found.path,
                expected="two equal tensors, as tie_word_embeddings in config.json says (its default is true)",
                remedy="set tie_word_embeddings to false in config.json, if the decoder was trained apart",
            )


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
