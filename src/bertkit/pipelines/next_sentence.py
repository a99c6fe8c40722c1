"""Does B follow A?

In: pairs of texts and a model folder with a next-sentence head.  Out: is_next and its probability, in order.
Next: commands/next_sentence.py
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.data.pairs import IS_NEXT
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.pipelines.batches import (
    Row,
    device_of,
    in_order,
    padded,
    require_length,
    require_short,
)
from bertkit.pipelines.opened import opened
from bertkit.text.tokenizer import Tokenizer, with_special_tokens


class NextSentence:
    """Judges whether B follows A.

    model: a model folder with a next-sentence head, an id of the hub, or a model already loaded (then give its
        tokenizer).
    allow_bin: open a pickle where the folder has no safetensors.
    """

    def __init__(
        self, model: str | Path | PretrainingModel, *, tokenizer: Tokenizer | None = None, allow_bin: bool = False
    ) -> None:
        self.model, self.tokenizer = opened(model, head="next_sentence", tokenizer=tokenizer, allow_bin=allow_bin)

    def __call__(self, first: str, second: str) -> dict[str, Any]:
        """Return {"is_next": bool, "score": probability that `second` follows `first`}."""
        [answer] = self.judge([(first, second)])
        return answer

    def judge(self, pairs: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield one record a pair, in order, as a window of pairs is done.

        Raises:
            InputError: a side without a token, or a pair longer than the model has positions.
        """
        rows = (self._encode(index, first, second) for index, (first, second) in enumerate(pairs))
        yield from in_order(rows, length=lambda row: len(row[0]), answer=self._answer)

    def problems(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[int, InputError]]:
        """Yield (place in the order, problem) for each pair that `judge` would refuse, without asking the model."""
        for index, (first, second) in enumerate(pairs):
            try:
                self._encode(index, first, second)
            except InputError as problem:
                yield index, problem

    def _encode(self, index: int, first: str, second: str) -> Row:
        for name, text in zip("AB", (first, second), strict=True):
            require_short(text, what=f"pair {index + 1}, {name}")
        sides = [self.tokenizer.encode_plain([text])[0].astype(np.int64) for text in (first, second)]
        for name, text, ids in zip("AB", (first, second), sides, strict=True):
            if not len(ids):
                raise InputError(
                    "holds no token", field=f"pair {index + 1}, {name}", value=text, remedy="give a text with words"
                )
        ids, types = with_special_tokens(sides[0], sides[1], self.tokenizer.vocabulary)
        positions = self.model.config.max_position_embeddings
        require_length(len(ids), positions=positions, what=f"pair {index + 1}", text=f"{first}\t{second}")
        return ids, types

    @torch.inference_mode()
    def _answer(self, rows: list[Row]) -> list[dict[str, Any]]:
        device = device_of(self.model)
        batch = padded(rows, pad_id=self.tokenizer.vocabulary.pad_id, device=device)
        nothing = torch.zeros(0, dtype=torch.int64, device=device)
        pooled = self.model.encoder(**batch, read_positions=nothing).pooler_output  # (batch, hidden): [CLS] alone
        assert self.model.nsp_head is not None
        logits = self.model.nsp_head(pooled).float().cpu()  # (batch, 2)
        scores = logits.softmax(dim=-1)[:, IS_NEXT].tolist()
        answers = (logits.argmax(dim=-1) == IS_NEXT).tolist()
        return [{"is_next": answer, "score": score} for answer, score in zip(answers, scores, strict=True)]
