"""What a model folder must hold to become the model that is asked for; what is not so is refused with its reason.

In: the contents of a folder, the match of its tensors with the model's.  Out: an InputError, or nothing.
Next: pretrained.py
"""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.architectures import Head
from bertkit.model.contents import SHOWN_NAMES, Contents
from bertkit.model.huggingface import DECODER_BIAS, DECODER_WEIGHT, TASK_HEADS, Match, Shape, Translation, name_table

LOOKED_AT = 1024  # numbers of a tensor


def check_shapes(match: Match, found: Contents) -> None:
    """Refuse tensors of another shape than the config says, and such as hold no floating-point numbers."""
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


def check_missing(
    missing: list[str], found: Contents, *, head: Head | None, allow_new_head: bool, remarks: list[str]
) -> None:
    """Refuse a folder that lacks a part of the encoder, or of the head unless a new one is allowed."""
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


def check_room(wanted: Mapping[str, Shape], path: Path) -> None:
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


def check_tied(tensors: Translation, found: Contents) -> None:
    """Refuse a decoder apart from the embeddings that the config says are one."""
    for name in (DECODER_WEIGHT, DECODER_BIAS):
        if found.names.get(name) in tensors.ignored:
            raise InputError(
                f"{name} differs from the tensor it should repeat",
                file=found.path,
                expected="two equal tensors, as tie_word_embeddings in config.json says (its default is true)",
                remedy="set tie_word_embeddings to false in config.json, if the decoder was trained apart",
            )


def check_finite(tensors: Mapping[str, Tensor], found: Contents) -> None:
    """Refuse weights of a training that diverged, which leaves NaN in every tensor: the beginning of each is read."""
    for name, tensor in tensors.items():
        if not tensor.flatten()[:LOOKED_AT].isfinite().all():
            raise InputError(
                f"{name} holds NaN or infinity",
                file=found.path,
                expected="finite numbers",
                remedy="the training diverged, or the file is damaged: use an earlier checkpoint",
            )
