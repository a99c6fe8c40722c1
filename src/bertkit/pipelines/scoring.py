"""How likely a model finds a whole text: each token is hidden alone, and guessed from all the others.

In: texts without [MASK].  Out: a ScoredText each: pseudo-perplexity, and every token's log-probability.
Next: commands/fill_mask.py
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.data.pairs import SPECIALS_OF_A_TEXT
from bertkit.errors import InputError
from bertkit.pipelines.batches import in_order, require_length, require_short
from bertkit.pipelines.scores import MaskScores
from bertkit.text.vocabulary import MASK


@dataclass(frozen=True)
class ScoredText:
    """One text, and how likely the model finds it."""

    text: str
    pseudo_perplexity: float  # exp(−pseudo_log_likelihood ÷ number of tokens scored)
    pseudo_log_likelihood: float  # the sum of the tokens' log-probabilities, in nats
    tokens: list[dict[str, Any]]  # token, token_str, log_probability, in the order of the text
    unknown: int  # tokens left out because the vocabulary does not know them


@dataclass(frozen=True)
class _Hidden:
    """A text with one token hidden."""

    index: int  # of the text
    ids: NDArray[np.int64]  # (seq,) with [MASK] in place
    column: int
    token: int


@dataclass(frozen=True)
class _Encoded:
    text: str
    ids: NDArray[np.int64]  # (seq,) without special tokens around
    columns: list[int]  # which tokens are scored


def scored_texts(scores: MaskScores, texts: Iterable[str]) -> Iterator[ScoredText]:
    """Yield one ScoredText a text, in order.

    Raises:
        InputError: a text that holds [MASK], without a token of the vocabulary, or too long.
    Source: Salazar et al. 2020, equations 1 and 2; unknown tokens are left out and counted.
    """
    waiting: list[_Encoded] = []  # texts of which not all tokens are answered yet, the first first

    def hidden() -> Iterator[_Hidden]:
        for index, text in enumerate(texts):
            encoded = score_problem(scores, text, index)
            waiting.append(encoded)
            for column in encoded.columns:
                ids = encoded.ids.copy()
                ids[column] = scores.tokenizer.vocabulary.mask_id
                yield _Hidden(index, ids, column, int(encoded.ids[column]))

    def answer(rows: list[_Hidden]) -> list[float]:
        found = scores.log_probabilities([row.ids for row in rows], [[row.column] for row in rows])
        return [float(found[place, row.token]) for place, row in enumerate(rows)]

    answers: list[float] = []
    for value in in_order(hidden(), length=lambda row: len(row.ids), answer=answer):
        answers.append(value)
        if len(answers) == len(waiting[0].columns):
            yield _scored(waiting.pop(0), answers, scores)
            answers = []


def score_problem(scores: MaskScores, text: str, index: int) -> _Encoded:
    """Return a text as tokens, with the places of those that are scored.

    Raises:
        InputError: the text holds [MASK] or no token of the vocabulary, or is too long.
    """
    what, vocabulary = f"text {index + 1}", scores.tokenizer.vocabulary
    require_short(text, what=what)
    ids = scores.tokenizer.encode(text).ids
    if (ids == vocabulary.mask_id).any():
        raise InputError(f"holds {MASK}", field=what, value=text, expected="a whole text", remedy="leave --score away")
    columns = np.flatnonzero(ids != vocabulary.unk_id).tolist()
    if not columns:
        raise InputError(
            "holds no token of the vocabulary", field=what, value=text, remedy="give a text of the model's language"
        )
    positions = scores.model.config.max_position_embeddings
    require_length(len(ids) + SPECIALS_OF_A_TEXT, positions=positions, what=what, text=text)
    return _Encoded(text, ids, columns)


def _scored(encoded: _Encoded, values: list[float], scores: MaskScores) -> ScoredText:
    tokens = [
        {"token": int(encoded.ids[column]), "token_str": scores.tokenizer.token_of(int(encoded.ids[column]))}
        | {"log_probability": value}
        for column, value in zip(encoded.columns, values, strict=True)
    ]
    total = math.fsum(values)
    unknown = len(encoded.ids) - len(encoded.columns)
    return ScoredText(encoded.text, math.exp(-total / len(values)), total, tokens, unknown)
