"""Scores over windows → answers: the best of all spans, always a piece of the context."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.answers import (
    QuestionAnswer,
    SearchSettings,
    best_threshold,
    decode_answers,
    nbest_json,
    null_odds_json,
    predictions_json,
)
from bertkit.data.examples.example import Answer, QuestionExample
from bertkit.data.features import CoverageReport
from bertkit.data.question_features import QuestionFeatures, WindowSettings, build_question_features
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

TOKENIZER = make_tokenizer(Vocabulary((PAD, UNK, CLS, SEP, MASK, *"abcdefgh月明?")), do_lower_case=True)
CONTEXT = "a  b\n\n\n\n\n\n\n\nc 月明 d e. f"


def question(id: str, context: str = CONTEXT, *, is_impossible: bool = False) -> QuestionExample:
    return QuestionExample(
        id, "", "g h?", context, () if is_impossible else (Answer("b", 3),), is_impossible, id, "x", 1
    )


def rows_of(examples: list[QuestionExample], *, length: int = 11, stride: int = 2) -> list[QuestionFeatures]:
    settings = WindowSettings(max_seq_length=length, doc_stride=stride)
    return build_question_features(
        examples, TOKENIZER, settings=settings, unanswerable=False, coverage=CoverageReport()
    )


def random_logits(rows: list[QuestionFeatures], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    generator = np.random.default_rng(seed)
    return tuple([generator.normal(size=len(row.input_ids)) for row in rows] for _ in range(2))  # type: ignore[return-value]


@given(seed=st.integers(0, 10_000), longest=st.integers(1, 8), n_best=st.integers(1, 30))
def test_the_answers_are_the_best_of_all_spans_of_all_windows(seed: int, longest: int, n_best: int) -> None:
    examples = [question("1"), question("2", "h")]
    rows = rows_of(examples)
    starts, ends = random_logits(rows, seed)
    settings = SearchSettings(n_best_size=n_best, max_answer_length=longest)
    answers = decode_answers(examples, rows, starts, ends, settings=settings, unanswerable=False)
    for place, answer in enumerate(answers):
        best: dict[tuple[int, int], float] = {}
        for number, row in enumerate(rows):
            tokens = [n for n in range(len(row.input_ids)) if row.example == place and row.offsets[n, 0] >= 0]
            for first, last in product(tokens, tokens):
                if first <= last < first + longest:
                    span = (int(row.offsets[first, 0]), int(row.offsets[last, 1]))
                    best[span] = max(best.get(span, -np.inf), starts[number][first] + ends[number][last])
        expected = sorted(best.values(), reverse=True)[:n_best]
        assert [c.start_logit + c.end_logit for c in answer.candidates] == pytest.approx(expected)
        assert {(c.start, c.end) for c in answer.candidates} <= set(best)
        assert sum(c.probability for c in answer.candidates) == pytest.approx(1)
        assert answer.text == answer.candidates[0].text
        assert all(examples[place].context[c.start : c.end] == c.text for c in answer.candidates)  # public case 48
        assert answer.null_odds is None


def test_an_answer_never_reaches_into_the_question_or_the_padding() -> None:
    examples = [question("1")]
    rows = rows_of(examples)
    starts = [np.where(row.offsets[:, 0] >= 0, 0.0, 100.0) for row in rows]
    padded = [np.concatenate([scores, [200.0, 200.0]]) for scores in starts]
    [answer] = decode_answers(examples, rows, padded, padded, settings=SearchSettings(), unanswerable=False)
    assert all(c.start_logit + c.end_logit == 0 for c in answer.candidates)


def test_the_score_of_no_answer_is_the_smallest_over_the_windows() -> None:  # public case 46
    examples = [question("1", is_impossible=True)]
    rows = rows_of(examples)
    assert len(rows) >= 3
    starts, ends = ([np.zeros(len(row.input_ids)) for row in rows] for _ in range(2))
    for number, null in enumerate([5.0, -3.0, 7.0]):
        starts[number][0] = null
    starts[0][6], ends[0][6] = 2.0, 2.0
    [answer] = decode_answers(examples, rows, starts, ends, settings=SearchSettings(), unanswerable=True)
    assert answer.null_odds == -3.0 - 4.0
    assert answer.text == answer.best.text == CONTEXT[slice(*rows[0].offsets[6])]
    strict = SearchSettings(null_score_diff_threshold=-7.5)
    [none] = decode_answers(examples, rows, starts, ends, settings=strict, unanswerable=True)
    assert (none.text, none.best.text) == ("", answer.text)
    assert "" in {candidate.text for candidate in none.candidates}


def test_an_empty_context_has_the_empty_answer_and_leaves_others_alone() -> None:  # public case 45
    examples = [question("1"), question("2", ""), question("3", " \n"), question("4")]
    rows = rows_of(examples)
    starts, ends = random_logits(rows, 1)
    for unanswerable in (True, False):
        answers = decode_answers(examples, rows, starts, ends, settings=SearchSettings(), unanswerable=unanswerable)
        assert [answer.id for answer in answers] == ["1", "2", "3", "4"]
        assert [answer.text for answer in answers[1:3]] == ["", ""]
        assert answers[1].candidates[0].probability == 1
        alone = decode_answers(
            [examples[0]],
            [row for row in rows if row.example == 0],
            starts,
            ends,
            settings=SearchSettings(),
            unanswerable=unanswerable,
        )
        assert alone[0] == answers[0]


def test_the_files_hold_what_their_names_say() -> None:
    examples = [question("1"), question("2", is_impossible=True)]
    rows = rows_of(examples)
    starts, ends = random_logits(rows, 2)
    answers = decode_answers(examples, rows, starts, ends, settings=SearchSettings(n_best_size=3), unanswerable=True)
    assert predictions_json(answers) == {answer.id: answer.text for answer in answers}
    nbest = nbest_json(answers)
    assert list(nbest["1"][0]) == ["text", "start_logit", "end_logit", "probability", "start", "end"]
    assert len(nbest["1"]) == 4  # three answers, and none
    assert null_odds_json(answers) == {answer.id: answer.null_odds for answer in answers}
    json.dumps([predictions_json(answers), nbest, null_odds_json(answers)], allow_nan=False)


@given(seed=st.integers(0, 5000))
def test_the_best_threshold_is_the_best_of_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    examples = [question(str(n), is_impossible=bool(generator.random() < 0.4)) for n in range(8)]
    examples.append(question("8", "", is_impossible=True))
    rows = rows_of(examples, length=16, stride=8)
    starts, ends = random_logits(rows, seed)
    starts = [np.round(scores) for scores in starts]  # ties
    ends = [np.round(scores) for scores in ends]
    answers = decode_answers(examples, rows, starts, ends, settings=SearchSettings(), unanswerable=True)
    impossible = frozenset(example.id for example in examples if example.is_impossible)
    scores = {example.id: float(generator.random()) for example in examples if not example.is_impossible}

    def value(threshold: float) -> float:
        def one(answer: QuestionAnswer) -> float:
            text = answer.text_at(threshold)
            return float(not text) if answer.id in impossible else scores[answer.id] if text else 0.0

        return sum(map(one, answers)) / len(answers)

    threshold, best = best_threshold(answers, scores, unanswerable_ids=impossible)
    assert value(threshold) == pytest.approx(best)
    assert best == pytest.approx(max(value(t) for t in [-1e9, 1e9, *(answer.null_odds or 0.0 for answer in answers)]))
