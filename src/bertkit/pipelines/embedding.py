"""Texts as vectors: some layers combined, one vector a text or one a token.

In: texts or pairs and a model folder.  Out: an Embedding each, in order.  Next: windows.py, vector_files.py
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.hub import model_directory
from bertkit.model.layer_mix import LayerMix
from bertkit.model.pretrained import load_with_report
from bertkit.model.task_config import Combine
from bertkit.pipelines.batches import device_of, in_order, padded
from bertkit.pipelines.opened import own_tokenizer
from bertkit.pipelines.windows import LongTexts, Window, windows_of
from bertkit.tasks.tokenizers import fitting_tokenizer
from bertkit.text.tokenizer import Tokenizer

Pooling = Literal["cls", "pooler", "mean", "max", "none"]


@dataclass(frozen=True)
class EmbeddingSettings:
    """Which vectors.

    layers: 0 the embeddings, 1 the first layer, −1 the last.
    pooling: cls: the vector of [CLS]; pooler: the pooler's output for it, of the last layer; mean, max: over the
        text's tokens, [CLS] and [SEP] among them, padding never; none: a vector for every token.
    layer_weights: for combine="weighted", one positive number a layer; their sum is made 1. None: all equal.
    max_seq_length: tokens of a row, special ones included; None: the positions of the model.
    long_texts: cut: a longer text loses its end; windows: it is read in windows that overlap.
    """

    layers: tuple[int, ...] = (-1,)
    combine: Combine = "last"
    pooling: Pooling = "mean"
    layer_weights: tuple[float, ...] | None = None
    max_seq_length: int | None = None
    long_texts: LongTexts = "cut"


@dataclass(frozen=True)
class Embedding:
    """One text as numbers."""

    vectors: NDArray[np.float32]  # (width,), or (tokens, width) with pooling="none"
    input_ids: NDArray[np.int64]  # (tokens,) [CLS] and [SEP] included
    cut: bool  # whether the text was longer and lost its end


class Embedder:
    """Turns texts into vectors.

    model: a model folder, whatever head it has, an id of the hub, or a model already loaded (then give its tokenizer).
    allow_bin: open a pickle where the folder has no safetensors.

    Raises:
        InputError: a layer that the model does not have, a pooler that is not in the folder, wrong settings.
    """

    def __init__(
        self,
        model: str | Path | Encoder | PretrainingModel,
        *,
        tokenizer: Tokenizer | None = None,
        settings: EmbeddingSettings | None = None,
        allow_bin: bool = False,
    ) -> None:
        self.settings = settings or EmbeddingSettings()
        if isinstance(model, str | Path):
            model = model_directory(model, allow_pickle_weights=allow_bin)
            encoder, report = load_with_report(model, head=None, allow_new_head=True, allow_pickle_weights=allow_bin)
            assert isinstance(encoder, Encoder)
            has_pooler = not any(name.startswith("encoder.pooler") for name in report.newly_made)
            tokenizer = tokenizer or fitting_tokenizer(model, vocab_size=encoder.config.vocab_size)
        else:
            tokenizer = own_tokenizer(tokenizer)
            encoder = model if isinstance(model, Encoder) else model.encoder
            has_pooler = encoder.pooler is not None
        self.encoder, self.tokenizer = encoder.eval(), tokenizer
        self._check(has_pooler)
        self._mix = self._layer_mix()
        self.width = self._mix.output_size
        self._last_only = self._mix.layers == (encoder.config.num_hidden_layers,)

    def __call__(self, text: str | tuple[str, str]) -> NDArray[np.float32]:
        """Return the vectors of one text, or of a pair: (width,), or (tokens, width) with pooling="none"."""
        [embedding] = self.embed([text])
        return embedding.vectors

    def embed(self, texts: Iterable[str | tuple[str, str]]) -> Iterator[Embedding]:
        """Yield one Embedding a text or pair, in order, as a window of texts is done.

        Raises:
            InputError: a text without a token; a pair that is too long, where long texts are read in windows.
        """
        windows = (window for index, text in enumerate(texts) for window in self._windows(index, text))
        parts: list[tuple[Window, Tensor, int]] = []
        for part in in_order(windows, length=lambda window: len(window.input_ids), answer=self._answer):
            parts.append(part)
            if part[0].is_last:
                yield self._joined(parts)
                parts = []

    def problems(self, texts: Iterable[str | tuple[str, str]]) -> Iterator[tuple[int, InputError]]:
        """Yield (place in the order, problem) for each text that `embed` would refuse, without asking the model."""
        for index, text in enumerate(texts):
            try:
                self._windows(index, text)
            except InputError as problem:
                yield index, problem

    def _windows(self, index: int, text: str | tuple[str, str]) -> list[Window]:
        length = self.settings.max_seq_length or self.encoder.config.max_position_embeddings
        return windows_of(text, self.tokenizer, what=f"text {index + 1}", length=length, how=self.settings.long_texts)

    @torch.inference_mode()
    def _answer(self, windows: list[Window]) -> list[tuple[Window, Tensor, int]]:
        """For each window its vectors, pooled over the tokens that are its own, and their number."""
        rows = [(window.input_ids, window.token_type_ids) for window in windows]
        device = device_of(self.encoder)
        batch = padded(rows, pad_id=self.tokenizer.vocabulary.pad_id, device=device)
        pooling = self.settings.pooling
        if pooling in ("cls", "pooler") and self._last_only:
            count, seq = batch["input_ids"].shape
            first = torch.arange(0, count * seq, seq, device=device)  # [CLS] of each row: all that is read
            output = self.encoder(**batch, read_positions=first)
            vectors = output.pooler_output if pooling == "pooler" else output.last_hidden_state  # (batch, width)
            return [(window, vector.float().cpu(), 1) for window, vector in zip(windows, vectors, strict=True)]
        output = self.encoder(**batch, padding_is_read=False, output_hidden_states=not self._last_only)
        states = output.last_hidden_state if self._last_only else self._mix(output.hidden_states)
        states = states.float().cpu()  # (batch, seq, width)
        return [(window, *_pooled(states[row], window, pooling)) for row, window in enumerate(windows)]

    def _joined(self, parts: list[tuple[Window, Tensor, int]]) -> Embedding:
        """One text of its windows: each of its tokens counts once."""
        vectors = [vector for _, vector, _ in parts]
        if self.settings.pooling == "none":
            joined = torch.cat(vectors)  # (tokens, width)
        elif self.settings.pooling == "max":
            joined = torch.stack(vectors).amax(0)  # (width,)
        else:
            joined = torch.stack(vectors).sum(0) / sum(count for _, _, count in parts)
        own = [window.input_ids[window.own_start : window.own_end] for window, _, _ in parts]
        return Embedding(joined.numpy(), np.concatenate(own), parts[-1][0].cut)

    def _layer_mix(self) -> LayerMix:
        config, settings = self.encoder.config, self.settings
        mix = LayerMix(
            settings.layers,
            combine=settings.combine,
            num_hidden_layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
        )
        if mix.combine == "last":
            mix.layers = (max(mix.layers),)
        if settings.layer_weights is not None and mix.weights is not None:
            with torch.no_grad():
                mix.weights.copy_(torch.tensor(settings.layer_weights).log())
        return mix.to(device_of(self.encoder))

    def _check(self, has_pooler: bool) -> None:
        settings, positions = self.settings, self.encoder.config.max_position_embeddings
        if settings.pooling not in get_args(Pooling):
            expected = " | ".join(get_args(Pooling))
            raise InputError("is no way to pool", field="--pooling", value=settings.pooling, expected=expected)
        if settings.pooling == "pooler":
            if not has_pooler:
                remedy = "use --pooling cls or mean"
                raise InputError("needs a pooler, which this model does not have", field="--pooling", remedy=remedy)
            if settings.layers not in ((-1,), (self.encoder.config.num_hidden_layers,)):
                remedy = "leave --layers away, or use --pooling cls"
                raise InputError("reads the last layer only", field="--pooling", value="pooler", remedy=remedy)
        weights = settings.layer_weights
        if weights is not None:
            if settings.combine != "weighted":
                raise InputError("are for --combine weighted", field="--layer_weights", remedy="leave one away")
            if len(weights) != len(settings.layers) or not all(0 < weight < float("inf") for weight in weights):
                expected = f"{len(settings.layers)} positive numbers, one a layer"
                raise InputError("do not fit", field="--layer_weights", value=list(weights), expected=expected)
        if settings.max_seq_length is not None and not 4 <= settings.max_seq_length <= positions:
            expected = f"4 to {positions}, the positions of the model"
            raise InputError(
                "is out of range", field="--max_seq_length", value=settings.max_seq_length, expected=expected
            )


def _pooled(states: Tensor, window: Window, pooling: Pooling) -> tuple[Tensor, int]:
    """The vectors of a window's own tokens, (seq, width) given: their sum and number, their maximum, or all of them."""
    own = states[window.own_start : window.own_end]  # (own, width)
    if pooling == "none":
        return own.clone(), len(own)
    if pooling == "max":
        return own.amax(0), len(own)
    if pooling == "mean":
        return own.sum(0), len(own)
    return states[0].clone(), 1  # [CLS]
