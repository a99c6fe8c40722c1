"""Scores of where an answer begins and ends, over all windows of a question → answers, each a piece of its context.

In: QuestionExamples, their QuestionFeatures, start and end logits.  Out: QuestionAnswers, and the contents of
predictions.json, nbest_predictions.json, null_odds.json.  Next: metrics/question_answering.py
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.example import QuestionExample
from bertkit.data.question_features import CLS_POSITION, QuestionFeatures

Logits = NDArray[np.floating]


@dataclass(frozen=True)
class SearchSettings:
    """How answers are looked for."""

    n_best_size: int = 20  # candidates that are kept
    max_answer_length: int = 30  # tokens
    null_score_diff_threshold: float = 0.0  # no answer where null_odds is above it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible answer, `context[start:end]`; or none at all: empty, from 0 to 0."""

    text: str
    start_logit: float
    end_logit: float
    probability: float  # softmax over the candidates of the question
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What is answered to a question."""

    id: str
    text: str  # "" says that there is no answer
    candidates: tuple[Candidate, ...]  # by score, at least one
    null_odds: float | None  # score of no answer less that of the best one; None: data without unanswerable questions

    @property
    def best(self) -> Candidate:
        """The best candidate that is an answer, if there is one."""
        return next((candidate for candidate in self.candidates if candidate.text), self.candidates[0])

    def text_at(self, threshold: float) -> str:
        """Return what is answered where no answer is given above this threshold of null_odds."""
        return self.best.text if self.null_odds is None or self.null_odds <= threshold else ""


@dataclass(frozen=True, slots=True)
class _Found:
    score: float
    start_logit: float
    end_logit: float
    start: int
    end: int


def decode_answers(
    examples: Sequence[QuestionExample],
    features: Sequence[QuestionFeatures],
    start_logits: Sequence[Logits],
    end_logits: Sequence[Logits],
    *,
    settings: SearchSettings,
    unanswerable: bool,
) -> list[QuestionAnswer]:
    """Return the answer to each question, in the order of the examples.

    start_logits, end_logits: (seq,) for each feature; longer ones (padding) are cut.
    Every pair of tokens of a context no further apart than max_answer_length is looked at, in every window; a span that
    stands in several counts once, by its best score.  (Google and Hugging Face look at the best n_best_size starts and
    ends only.)  The score of no answer is the smallest over the windows.
    unanswerable: whether "no answer" is one; otherwise it is given only where a context has no token.
    """
    answers: list[QuestionAnswer] = []
    windows = _windows_of(len(examples), features)
    for example, own in zip(examples, windows, strict=True):
        firsts = [(float(start_logits[n][CLS_POSITION]), float(end_logits[n][CLS_POSITION])) for n in own]
        null = min((_Found(start + end, start, end, 0, 0) for start, end in firsts), key=lambda found: found.score)
        best: dict[tuple[int, int], _Found] = {}
        for number in own:
            for found in _spans(features[number], start_logits[number], end_logits[number], settings):
                known = best.get((found.start, found.end))
                if known is None or found.score > known.score:
                    best[found.start, found.end] = found
        ranked = sorted(best.values(), key=lambda found: (-found.score, found.start, found.end))
        ranked = ranked[: settings.n_best_size]
        answers.append(_answer(example, ranked, null, settings, unanswerable=unanswerable))
    return answers


def _windows_of(num_examples: int, features: Sequence[QuestionFeatures]) -> list[list[int]]:
    windows: list[list[int]] = [[] for _ in range(num_examples)]
    for number, feature in enumerate(features):
        windows[feature.example].append(number)
    return windows


def _spans(feature: QuestionFeatures, start: Logits, end: Logits, settings: SearchSettings) -> Iterator[_Found]:
    """The best spans of one window, tokens of the question and special ones left out."""
    inside = np.flatnonzero(feature.offsets[:, 0] >= 0)  # the context's tokens stand side by side
    if not len(inside):
        return
    first, length = int(inside[0]), len(inside)
    starts = np.asarray(start[first : first + length], np.float64)
    ends = np.asarray(end[first : first + length], np.float64)
    reach = min(settings.max_answer_length, length)
    scores = np.full((reach, length), -np.inf)  # (tokens of the answer - 1, its first token)
    for more in range(reach):
        scores[more, : length - more] = starts[: length - more] + ends[more:]
    flat = scores.ravel()
    count = min(settings.n_best_size, flat.size)
    for place in np.argpartition(-flat, count - 1)[:count].tolist():
        more, token = divmod(place, length)
        if np.isfinite(flat[place]):
            begin = int(feature.offsets[first + token, 0])
            stop = int(feature.offsets[first + token + more, 1])
            yield _Found(float(flat[place]), float(starts[token]), float(ends[token + more]), begin, stop)


def _answer(
    example: QuestionExample, ranked: list[_Found], null: _Found, settings: SearchSettings, *, unanswerable: bool
) -> QuestionAnswer:
    odds = None
    if unanswerable:
        odds = null.score - ranked[0].score if ranked else 0.0  # an empty context: nothing to compare with
    listed = [*ranked, null] if unanswerable or not ranked else ranked
    listed.sort(key=lambda found: -found.score)
    scores = np.array([found.score for found in listed])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    candidates = tuple(
        Candidate(
            example.context[found.start : found.end],
            found.start_logit,
            found.end_logit,
            float(share),
            found.start,
            found.end,
        )
        for found, share in zip(listed, shares, strict=True)
    )
    answer = QuestionAnswer(example.id, "", candidates, odds)
    return replace(answer, text=answer.text_at(settings.null_score_diff_threshold))


def best_threshold(
    answers: Sequence[QuestionAnswer], scores: Mapping[str, float], *, unanswerable_ids: frozenset[str]
) -> tuple[float, float]:
    """Return (null_score_diff_threshold, mean score) that is best on these questions, of a validation part.

    scores: id → exact match or F1, 0 to 1, of the answer's best text, for questions that have an answer.
    A question without one scores 1 where none is given.  Of cuts between two questions as good, the lowest: fewest
    answers; the threshold lies in its middle, and beyond all questions as near to 0 as may be.
    """
    ranked = sorted(answers, key=_odds)
    odds = [_odds(answer) for answer in ranked]
    current = float(len(unanswerable_ids & {answer.id for answer in answers}))  # no question is answered
    best, answered = current, 0
    for place, answer in enumerate(ranked):
        if answer.best.text:
            current += -1.0 if answer.id in unanswerable_ids else scores[answer.id]
        last_of_ties = place + 1 == len(ranked) or odds[place + 1] != odds[place]
        if last_of_ties and current > best:
            best, answered = current, place + 1
    if not ranked:
        threshold = 0.0
    elif answered == 0:
        threshold = min(0.0, float(np.nextafter(odds[0], -np.inf)))
    elif answered == len(ranked):
        threshold = max(0.0, odds[-1])
    else:
        threshold = (odds[answered - 1] + odds[answered]) / 2
    return threshold, best / max(1, len(ranked))


def _odds(answer: QuestionAnswer) -> float:
    return 0.0 if answer.null_odds is None else answer.null_odds


def predictions_json(answers: Sequence[QuestionAnswer]) -> dict[str, str]:
    """Return the content of predictions.json: id → text."""
    return {answer.id: answer.text for answer in answers}


def nbest_json(answers: Sequence[QuestionAnswer]) -> dict[str, list[dict[str, str | float | int]]]:
    """Return the content of nbest_predictions.json: id → candidates, best first."""
    return {
        answer.id: [
            {
                "text": candidate.text,
                "start_logit": candidate.start_logit,
                "end_logit": candidate.end_logit,
                "probability": candidate.probability,
                "start": candidate.start,
                "end": candidate.end,
            }
            for candidate in answer.candidates
        ]
        for answer in answers
    }


def null_odds_json(answers: Sequence[QuestionAnswer]) -> dict[str, float]:
    """Return the content of null_odds.json: id → score of no answer less that of the best answer."""
    return {answer.id: answer.null_odds for answer in answers if answer.null_odds is not None}
