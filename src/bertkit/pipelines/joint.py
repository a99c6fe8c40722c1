"""Several tokens together: the best fillings of all the masks of a text, and targets of more than one token.

In: a text with its masks.  Out: records with the probability of the tokens in turn, each given those to its left.
Next: fill_mask.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.data.pairs import SPECIALS_OF_A_TEXT
from bertkit.errors import InputError, InputErrors
from bertkit.pipelines.batches import require_length
from bertkit.pipelines.filled import Candidate, MaskedText, string_of
from bertkit.pipelines.scores import MaskScores
from bertkit.text.tokenizer import Tokenizer

BEAM_WIDTH = 16  # fillings kept after each mask, or top_k where that is more


def joint_candidates(scores: MaskScores, row: MaskedText, *, top_k: int) -> list[dict[str, Any]]:
    """Return the top k fillings of all masks: score, tokens, token_strs, sequence; best first.

    score: the product of each token's probability, the masks to its left filled, those to its right not. A beam finds
    them, so that a filling whose first tokens are unlikely alone may be missed.
    """
    width = max(BEAM_WIDTH, top_k)
    beams: list[tuple[float, list[int]]] = [(0.0, [])]  # log-probability and the tokens so far
    for place, column in enumerate(row.columns):
        texts = []
        for _, tokens in beams:
            ids = row.ids.copy()
            ids[row.columns[:place]] = tokens
            texts.append(ids)
        found, ids_found = scores.best(scores.log_probabilities(texts, [[column]] * len(texts)), top_k=width)
        longer = [
            (before + value, [*tokens, id])
            for (before, tokens), values, ids in zip(beams, found.tolist(), ids_found.tolist(), strict=True)
            for value, id in zip(values, ids, strict=True)
        ]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    records = []
    for log_probability, tokens in beams[:top_k]:
        strings = [string_of(scores.tokenizer.token_of(token)) for token in tokens]
        records.append(
            {
                "score": float(np.exp(log_probability)),
                "tokens": tokens,
                "token_strs": strings,
                "sequence": row.with_strings(strings),
            }
        )
    return records


def target_ids(targets: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens of each target: one that stands in the vocabulary as it is written, else those of its text.

    Raises:
        InputErrors: no target, or targets with a part that the vocabulary does not know.
    """
    vocabulary = tokenizer.vocabulary
    problems, found = list[InputError](), list[list[int]]()
    for target in targets:
        ids = [vocabulary.ids[target]] if target in vocabulary.ids else tokenizer.encode_plain([target])[0].tolist()
        found.append(ids)
        if not ids or (vocabulary.unk_id in ids and target not in vocabulary.ids):
            expected = "words or characters of the model's vocabulary"
            problems.append(InputError("is not in the vocabulary", field="--targets", value=target, expected=expected))
    if not targets:
        problems.append(InputError("names no target", field="--targets", expected="words, separated by commas"))
    if problems:
        raise InputErrors(problems)
    return found


def long_target_score(scores: MaskScores, row: MaskedText, *, place: int, ids: Sequence[int]) -> float:
    """Return the probability of a target of several tokens at one mask, the others left as they are.

    The mask is as many masks as the target has tokens: the score is the product of each token's probability, those to
    its left filled in. It is given the number of tokens; targets of different lengths compare with care.

    Raises:
        InputError: there is no room for so many tokens.
    """
    column, count = row.columns[place], len(ids)
    length = len(row.ids) + count - 1 + SPECIALS_OF_A_TEXT
    positions = scores.model.config.max_position_embeddings
    require_length(length, positions=positions, what="a target's text", text=row.text)
    mask_id = scores.tokenizer.vocabulary.mask_id
    texts = [
        np.concatenate([row.ids[:column], ids[:known], [mask_id] * (count - known), row.ids[column + 1 :]])
        for known in range(count)
    ]
    found = scores.log_probabilities(
        [text.astype(np.int64) for text in texts], [[column + known] for known in range(count)]
    )
    return float(np.exp(sum(float(found[known, id]) for known, id in enumerate(ids))))


def target_candidates(
    scores: MaskScores,
    row: MaskedText,
    *,
    place: int,
    known: dict[int, float],
    targets: Sequence[tuple[str, list[int]]],
) -> list[Candidate]:
    """Return every target as a candidate of one mask, best first; known: scores of the tokens that are one id."""
    found = []
    for string, ids in targets:
        if len(ids) == 1:
            found.append(Candidate(known[ids[0]], ids[0], string_of(string)))
        else:
            score = long_target_score(scores, row, place=place, ids=ids)
            found.append(Candidate(score, list(ids), string))
    return sorted(found, key=lambda candidate: -candidate.score)
