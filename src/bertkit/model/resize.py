"""The same model with another vocabulary: rows of the embeddings kept, dropped and made, everything else untouched.

In: a model, and for every new id where its row comes from.  Out: a new model whose embeddings, decoder, decoder bias
and config have all the new size.  Next: pretrained.py
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.card import model_card
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import WEIGHTS, LoadReport, head_of, head_on_disk, load_with_report, model_files

# Where the row of a new id comes from: the old id whose row it is, or the old ids whose mean it becomes (none: a draw).
Row = int | tuple[int, ...]

_MATRICES = ("encoder.embeddings.word_embeddings.weight", "mlm_head.decoder")
_BIAS = "mlm_head.bias"
_SHOWN_NAMES = 5


def resize_vocabulary(
    model: Encoder | PretrainingModel, *, rows: Sequence[Row], generator: torch.Generator
) -> Encoder | PretrainingModel:
    """Return a model in eval mode whose id i has the row `rows[i]` says; the given one is untouched.

    A row kept is equal to the bit, and so are the hidden states; its scores are so up to the rounding of a matrix
    product of another width (0 for most shapes, else some 1e-7). A new row is the mean of the rows named, its decoder
    bias the mean of theirs: its score is then the mean of their scores, whatever the text. Without a row to take the
    mean of it is drawn from N(0, initializer_range), with the bias 0, as in a model newly made.

    Raises:
        InputError: there is no row; an id is not below the old size; the row of `pad_token_id` is not kept.
    """
    config = model.config
    _check(rows, vocab_size=config.vocab_size, pad_token_id=config.pad_token_id)
    resized = dataclasses.replace(config, vocab_size=len(rows), pad_token_id=list(rows).index(config.pad_token_id))
    prefix = "encoder." if isinstance(model, Encoder) else ""
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if prefix + name in _MATRICES:
            state[name] = _resized(tensor, rows, std=config.initializer_range, generator=generator)  # (vocab, hidden)
        elif prefix + name == _BIAS:
            state[name] = _resized(tensor, rows, std=0.0, generator=generator)  # (vocab,)
        else:
            state[name] = tensor.clone()
    with torch.device("meta"):
        if isinstance(model, Encoder):
            other: Encoder | PretrainingModel = Encoder(resized, pooler=model.pooler is not None)
        else:
            other = PretrainingModel(resized, mlm=model.mlm_head is not None, nsp=model.nsp_head is not None)
    other.load_state_dict(state, assign=True)
    return other.eval()


def _resized(old: Tensor, rows: Sequence[Row], *, std: float, generator: torch.Generator) -> Tensor:
    """The rows of a matrix (vocab, hidden) or vector (vocab,), kept and new, in their new order."""
    kept = torch.tensor([row if isinstance(row, int) else 0 for row in rows])
    new = old[kept]
    for id, row in enumerate(rows):
        if isinstance(row, int):
            continue
        if row:
            new[id] = old[list(row)].mean(0)
        else:
            new[id] = torch.normal(0.0, std, old.shape[1:], generator=generator) if std else 0.0
    return new


def _check(rows: Sequence[Row], *, vocab_size: int, pad_token_id: int) -> None:
    if not rows:
        raise InputError("a vocabulary needs at least one entry", field="rows")
    wanted = [id for row in rows for id in ((row,) if isinstance(row, int) else row)]
    wrong = next((id for id in wanted if not 0 <= id < vocab_size), None)
    if wrong is not None:
        raise InputError("is no id of the model", field="rows", value=wrong, expected=f"0 to {vocab_size - 1}")
    if pad_token_id not in rows:
        raise InputError(
            "the row that pads is not kept",
            field="pad_token_id",
            value=pad_token_id,
            expected="the id of [PAD] in the vocabulary",
            remedy="correct pad_token_id in config.json",
        )


def resized_files(
    model: Encoder | PretrainingModel, *, rows: Sequence[Row], seed: int, made_from: str, wish: str
) -> dict[str, bytes]:
    """Return {file name: bytes} of the resized model: config.json, model.safetensors and its card.

    made_from: the folder the model is of; wish: what was done to its vocabulary. Both stand in the card.

    Raises:
        InputError: what `resize_vocabulary` raises.
    """
    resized = resize_vocabulary(model, rows=rows, generator=torch.Generator().manual_seed(seed))
    card = model_card(
        resized.config,
        training={"made from": made_from, "change": wish},
        results={},
        parameters=sum(parameter.numel() for parameter in resized.parameters()),
        next_sentence=head_of(resized) in ("pretraining", "next_sentence"),
    )
    return {"README.md": card.encode("utf-8"), **model_files(resized)}


def load_to_resize(directory: str | Path) -> tuple[Encoder | PretrainingModel, LoadReport]:
    """Return the model of a folder with all the heads that it has, and what became of every tensor.

    Raises:
        InputError: what `load_with_report` raises; a tensor has no place in the model, and would be lost.
    """
    head = head_on_disk(directory)
    model, report = load_with_report(
        directory, head=head if head in ("pretraining", "masked_lm", "next_sentence") else None
    )
    assert isinstance(model, Encoder | PretrainingModel)
    lost = [name for name in report.ignored if not name.endswith("position_ids")]  # 0 … 511: no weights
    if lost:
        shown = ", ".join(lost[:_SHOWN_NAMES]) + (
            f" and {len(lost) - _SHOWN_NAMES} more" if len(lost) > _SHOWN_NAMES else ""
        )
        raise InputError(
            f"holds tensors that are no part of a pre-trained model, and would be lost: {shown}",
            file=Path(directory) / WEIGHTS,
            expected="an encoder, with or without the masked-LM and the next-sentence head",
            remedy="resize the pre-trained model, and fine-tune the result",
        )
    return model, report
