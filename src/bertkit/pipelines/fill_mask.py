"""What stands behind [MASK]: given ones, or tokens hidden for the purpose.

In: texts and a model folder with a masked-LM head.  Out: FilledTexts, in order.  Next: filled.py, joint.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bertkit.data.masking import MaskingSettings, mask_tokens
from bertkit.data.pairs import SPECIALS_OF_A_TEXT
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.pipelines.batches import in_order, require_length, require_short, require_top_k
from bertkit.pipelines.filled import Candidate, FilledText, MaskedText, string_of
from bertkit.pipelines.joint import joint_candidates, target_candidates, target_ids
from bertkit.pipelines.opened import opened
from bertkit.pipelines.scores import MaskScores
from bertkit.pipelines.scoring import ScoredText, score_problem, scored_texts
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import MASK


@dataclass(frozen=True)
class _Wish:
    """What is shown of each mask."""

    top_k: int
    joint: bool
    targets: list[tuple[str, list[int]]] | None  # the strings and their ids


class FillMask:
    """Fills [MASK] in texts, or hides tokens itself and fills them.

    model: a model folder with a masked-LM head, an id of the hub, or a model already loaded (then give its
        tokenizer).
    allow_bin: open a pickle where the folder has no safetensors.
    """

    def __init__(
        self, model: str | Path | PretrainingModel, *, tokenizer: Tokenizer | None = None, allow_bin: bool = False
    ) -> None:
        self.model, self.tokenizer = opened(model, head="masked_lm", tokenizer=tokenizer, allow_bin=allow_bin)
        self._scores = MaskScores(self.model, self.tokenizer)

    def __call__(
        self, text: str, *, top_k: int = 5, targets: Sequence[str] | None = None
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """Return the top k records (score, token, token_str, sequence) of the one [MASK]; of each, where several are.

        score: probability over the whole vocabulary. Unlike Hugging Face's pipeline no special or unused token is
        offered, and `sequence` is the given string with only this mask filled.
        targets: records of these alone, best first; one of several tokens is scored as such, not cut to its first.
        """
        [filled] = self.fill([text], masked=True, top_k=top_k, targets=targets)
        return filled.candidates[0] if len(filled.candidates) == 1 else filled.candidates

    def fill(
        self,
        texts: Iterable[str],
        *,
        masked: bool | None = None,
        mlm_probability: float = 0.15,
        seed: int = 12345,
        top_k: int = 5,
        joint: bool = False,
        targets: Sequence[str] | None = None,
    ) -> Iterator[FilledText]:
        """Yield one FilledText a text, in order, as a window of texts is done.

        masked: True: the texts hold [MASK]; False: hide mlm_probability of the tokens, at least one, the same places
            for the same seed, text and place in the order, and fill these and every [MASK] that stands there
            already; None: by whether the text holds a [MASK].
        joint: also fill all masks of a text together, and show the best such filling.
        targets: only these are scored at each mask.

        Raises:
            InputError: a text without a [MASK] (masked=True) or without a token that could be hidden, a text longer
                than the model has positions, a top_k below 1, a target that is not in the vocabulary.
        """
        require_top_k(top_k, field="--top_k")
        if joint and targets is not None:
            raise InputError("is for one mask at a time", field="--targets", remedy="leave --joint or --targets away")
        found = None if targets is None else list(zip(targets, target_ids(targets, self.tokenizer), strict=True))
        settings = _settings(mlm_probability)
        rows = (self._prepared(text, index, masked, settings, seed) for index, text in enumerate(texts))
        wish = _Wish(top_k, joint, found)
        yield from in_order(rows, length=lambda row: len(row.ids), answer=lambda batch: self._answer(batch, wish))

    def problems(
        self, texts: Iterable[str], *, masked: bool | None = None, mlm_probability: float = 0.15, seed: int = 12345
    ) -> Iterator[tuple[int, InputError]]:
        """Yield (place in the order, problem) for each text that `fill` would refuse, without asking the model."""
        settings = _settings(mlm_probability)
        for index, text in enumerate(texts):
            try:
                self._prepared(text, index, masked, settings, seed)
            except InputError as problem:
                yield index, problem

    def score(self, texts: Iterable[str]) -> Iterator[ScoredText]:
        """Yield the pseudo-perplexity of each text, in order: each of its tokens is hidden alone and guessed.

        Raises:
            InputError: a text that holds [MASK], without a token of the vocabulary, or too long.
        """
        return scored_texts(self._scores, texts)

    def score_problems(self, texts: Iterable[str]) -> Iterator[tuple[int, InputError]]:
        """Yield (place in the order, problem) for each text that `score` would refuse, without asking the model."""
        for index, text in enumerate(texts):
            try:
                score_problem(self._scores, text, index)
            except InputError as problem:
                yield index, problem

    def _prepared(self, text: str, index: int, masked: bool | None, settings: MaskingSettings, seed: int) -> MaskedText:
        require_short(text, what=f"text {index + 1}")
        row = _prepare(text, index, masked, settings, seed, self.tokenizer)
        require_length(
            len(row.ids) + SPECIALS_OF_A_TEXT,
            positions=self.model.config.max_position_embeddings,
            what=f"text {index + 1}",
            text=text,
        )
        return row

    def _answer(self, rows: list[MaskedText], wish: _Wish) -> Iterator[FilledText]:
        found = self._scores.log_probabilities([row.ids for row in rows], [row.columns for row in rows])
        tops = self._by_targets(rows, found, wish.targets) if wish.targets else self._tops(found, wish.top_k)
        for row in rows:
            joint = joint_candidates(self._scores, row, top_k=wish.top_k) if wish.joint else None
            yield row.filled([next(tops) for _ in row.columns], joint)

    def _tops(self, found: Tensor, top_k: int) -> Iterator[list[Candidate]]:
        """The best candidates of each mask, log-probabilities (masks, vocab) given."""
        values, ids = self._scores.best(found, top_k=top_k)
        for scores, tokens in zip(values.exp().tolist(), ids.tolist(), strict=True):
            yield [
                Candidate(score, token, string_of(self.tokenizer.token_of(token)))
                for score, token in zip(scores, tokens, strict=True)
            ]

    def _by_targets(
        self, rows: list[MaskedText], found: Tensor, targets: list[tuple[str, list[int]]]
    ) -> Iterator[list[Candidate]]:
        single = sorted({ids[0] for _, ids in targets if len(ids) == 1})
        known = iter(found[:, single].exp().tolist())
        for row in rows:
            for place in range(len(row.columns)):
                scores = dict(zip(single, next(known), strict=True))
                yield target_candidates(self._scores, row, place=place, known=scores, targets=targets)


def _settings(mlm_probability: float) -> MaskingSettings:
    return MaskingSettings(mlm_probability=mlm_probability, mask_replace_prob=1.0, random_replace_prob=0.0)


def _prepare(
    text: str, index: int, masked: bool | None, settings: MaskingSettings, seed: int, tokenizer: Tokenizer
) -> MaskedText:
    encoding = tokenizer.encode(text)
    mask_id = tokenizer.vocabulary.mask_id
    given = np.flatnonzero(encoding.ids == mask_id).tolist()
    if masked is None:
        masked = bool(given)
    if masked:
        if not given:
            raise InputError(
                f"holds no {MASK}",
                field=f"text {index + 1}",
                value=text,
                expected=f"a text with {MASK} in it",
                remedy="write one, or leave --masked away: tokens are then hidden for you",
            )
        return MaskedText(text, encoding, encoding.ids, given)
    if not len(encoding.ids):
        raise InputError("holds no token", field=f"text {index + 1}", value=text, remedy="give a text with words")
    hidden = mask_tokens(
        encoding.ids[None, :],
        index=np.array([index]),
        ordinary=tokenizer.vocabulary.ordinary,
        mask_id=mask_id,
        settings=settings,
        seed=seed,
        epoch=0,
    )
    columns = np.flatnonzero(hidden.selected[0] | (encoding.ids == mask_id)).tolist()
    if not columns:
        raise InputError(
            "holds no token that could be hidden",
            field=f"text {index + 1}",
            value=text,
            expected="at least one token of the vocabulary that is not special, and --mlm_probability above 0",
            remedy="is this the vocabulary of the text's language? See `bertkit inspect vocab`",
        )
    return MaskedText(text, encoding, hidden.input_ids[0], columns)
