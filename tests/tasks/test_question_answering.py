"""Stretches of a text as answers: losses of windows by hand, thresholds, figures by the rules of the sets."""

from pathlib import Path

import numpy as np
import pytest
import torch
from task_parts import Parts, parts_of
from torch.nn import functional as F
from toy_run import toy_tokenizer

from bertkit.data.examples.example import Answer, QuestionExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import IGNORE_INDEX, CoverageReport
from bertkit.data.question_features import QuestionFeatures
from bertkit.errors import InputError
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.question_answering import QuestionAnswering
from bertkit.tasks.task_settings import Knowledge, TaskSettings

TASK, CONFIG = QuestionAnswering(), TaskConfig()
EITHER = Knowledge(unanswerable=True)


@pytest.fixture(scope="module", params=["questions", "questions2"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts_of(request.param, tmp_path_factory.mktemp("questions"), max_seq_length=14, doc_stride=4)


@torch.no_grad()
def test_the_loss_is_the_mean_of_both_ends_over_the_windows_with_a_target(parts: Parts) -> None:
    found = TASK.losses(parts.model, parts.batch(), class_weights=None, label_smoothing=0.0)
    total, right, windows = 0.0, 0, 0
    for feature in parts.features:
        if feature.start_position == IGNORE_INDEX:
            assert not parts.knowledge.unanswerable
            continue
        [logits] = TASK.scores(parts.model, parts.batch([feature]), [feature])
        ends = feature.start_position, feature.end_position
        sides = [F.cross_entropy(torch.from_numpy(logits[:, n]), torch.tensor(end)) for n, end in enumerate(ends)]
        total += (sides[0] + sides[1]).item() / 2
        right += tuple(logits.argmax(0)) == ends
        windows += 1
    assert len(parts.features) > len(parts.examples)
    assert found.sums["span"].item() == pytest.approx(total, rel=1e-5)
    assert found.correct["span"].item() == right
    assert TASK.weights(parts.features, None) == {"span": float(windows)}


def test_where_an_answer_stands_is_beside_the_rows() -> None:
    def feature(length: int, start: int, end: int) -> QuestionFeatures:
        zeros = np.zeros(length, np.int64)
        return QuestionFeatures(zeros, zeros, 0, np.zeros((length, 2), np.int64), start, end)

    none = IGNORE_INDEX
    batch = TASK.collate([feature(4, 2, 3), feature(6, none, none)], pad_id=0, task=CONFIG)
    assert batch["positions"].tolist() == [[2, 3], [none, none]]
    assert batch["input_ids"].shape == (2, 6)


CONTEXT = "the tower the hill"


def question(*answers: str, id: str = "1", context: str = CONTEXT) -> QuestionExample:
    found = tuple(Answer(text, context.index(text)) for text in answers)
    return QuestionExample(id, "", "the moon", context, found, not answers, "t", "f", 1)


def answered(example: QuestionExample, scores: dict[str, float], *, null: float = 0.0, **known: object) -> dict:
    """The record for scores of words as answers of their own."""
    settings = TaskSettings(max_seq_length=32, doc_stride=8, null_score_diff_threshold=known.pop("asked", None))  # type: ignore[arg-type]
    knowledge = Knowledge(**known)  # type: ignore[arg-type]
    features = TASK.features(
        [example],
        toy_tokenizer(),
        settings=settings,
        task=CONFIG,
        knowledge=knowledge,
        coverage=CoverageReport(),
    )
    [row] = features
    logits = np.full((len(row.input_ids), 2), -9.0, np.float32)
    logits[0] = null / 2
    for word, score in scores.items():
        begin = example.context.index(word)
        place = [tuple(each) for each in row.offsets.tolist()].index((begin, begin + len(word)))
        logits[place] = score / 2
    [answer] = TASK.answers([example], features, [logits], settings=settings, task=CONFIG, knowledge=knowledge)
    return TASK.record(example, answer, task=CONFIG)


def test_an_answer_is_a_piece_of_the_context_with_its_probability() -> None:
    record = answered(question("hill"), {"tower": 1.0, "hill": 3.0})
    assert (record["answer"], record["null_odds"]) == ("hill", None)
    assert CONTEXT[record["start"] : record["end"]] == "hill"
    # Beside the two words stands the stretch from the first to the second: (1 + 3) / 2.
    assert record["score"] == pytest.approx(np.exp(3) / (np.exp(3) + np.exp(1) + np.exp(2)), rel=1e-2)


def test_no_answer_is_given_above_the_threshold_and_scored_by_itself() -> None:
    scores = {"hill": 1.0}
    assert answered(question("hill"), scores, null=2.0)["answer"] == "hill"  # of data in which all have an answer
    assert answered(question("hill"), scores, null=0.5, unanswerable=True)["answer"] == "hill"
    none = answered(question("hill"), scores, null=2.0, unanswerable=True)
    assert (none["answer"], none["start"], none["end"]) == ("", 0, 0)
    assert none["null_odds"] == pytest.approx(1.0)
    assert none["score"] == pytest.approx(np.exp(2) / (np.exp(2) + np.exp(1)), rel=1e-2)
    lenient = answered(question("hill"), scores, null=2.0, unanswerable=True, threshold=1.5)
    assert lenient["answer"] == "hill"
    strict = answered(question("hill"), scores, null=0.5, unanswerable=True, threshold=-2.0)
    assert strict["answer"] == ""  # although another candidate has the higher score
    assert strict["score"] == pytest.approx(np.exp(0.5) / (np.exp(0.5) + np.exp(1)), rel=1e-2)


def test_the_threshold_of_the_flag_goes_before_the_tuned_one() -> None:
    asked = {"unanswerable": True, "threshold": -5.0, "asked": 5.0}
    assert answered(question("hill"), {"hill": 1.0}, null=2.0, **asked)["answer"] == "hill"


def test_a_context_without_a_token_has_the_empty_answer() -> None:
    # Case 45.
    example = QuestionExample("1", "", "the moon", "  ", (), True, "t", "f", 1)
    features = TASK.features(
        [example],
        toy_tokenizer(),
        settings=TaskSettings(max_seq_length=32, doc_stride=8),
        task=CONFIG,
        knowledge=EITHER,
        coverage=CoverageReport(),
    )
    outputs = [np.zeros((len(row.input_ids), 2), np.float32) for row in features]
    for knowledge in (EITHER, Knowledge()):
        [answer] = TASK.answers([example], features, outputs, settings=TaskSettings(), task=CONFIG, knowledge=knowledge)
        record = TASK.record(example, answer, task=CONFIG)
        assert (record["answer"], record["score"]) == ("", 1.0)


def test_a_step_that_leaves_tokens_out_is_refused_up_front() -> None:
    # Case 44.
    with pytest.raises(
        InputError, match=r"--doc_stride: a window holds 11 tokens.*\n.*\n.*the step between the starts"
    ):
        TASK.features(
            [question("hill")],
            toy_tokenizer(),
            settings=TaskSettings(max_seq_length=16, doc_stride=60),
            task=CONFIG,
            knowledge=Knowledge(),
            coverage=CoverageReport(),
        )


def metrics(examples: list[QuestionExample], texts: list[str], knowledge: Knowledge) -> tuple[dict, dict]:
    from bertkit.data.answers import Candidate, QuestionAnswer

    answers = [
        QuestionAnswer(e.id, text, (Candidate(text, 0, 0, 1.0, 0, len(text)),), 0.0 if knowledge.unanswerable else None)
        for e, text in zip(examples, texts, strict=True)
    ]
    return TASK.metrics(examples, answers, task=CONFIG, knowledge=knowledge)


def test_figures_are_those_of_the_set() -> None:
    examples = [question("tower", id="1"), question("the hill", id="2")]
    found, tables = metrics(examples, ["the tower", "tower the hill"], Knowledge())
    assert found == {"exact_match": pytest.approx(0.5), "f1": pytest.approx((1 + 2 / 3) / 2)}
    assert set(tables) == {"squad_v1"}
    assert tables["squad_v1"]["exact_match"] == pytest.approx(50.0)


def test_questions_with_and_without_an_answer_are_told_apart() -> None:
    # Case 46; also where the model was trained on data in which all have one.
    examples = [question("tower", id="1"), question(id="2"), question(id="3")]
    for knowledge in (EITHER, Knowledge()):
        found, tables = metrics(examples, ["tower", "", "hill"], knowledge)
        assert found["exact_match"] == pytest.approx(2 / 3)
        assert tables["squad_v2"]["HasAns_exact"] == 100.0
        assert tables["squad_v2"]["NoAns_exact"] == 50.0


def test_chinese_answers_are_measured_as_cmrc_does() -> None:
    example = question("明月", context="明月照江楼")
    found, tables = metrics([example], ["明月照"], Knowledge())
    assert set(tables) == {"squad_v1", "cmrc"}
    assert found["f1"] == pytest.approx(2 * (2 / 3) / (1 + 2 / 3))


def test_the_threshold_is_tuned_where_answers_may_be_empty(tmp_path: Path) -> None:
    from bertkit.data.answers import Candidate, QuestionAnswer

    examples = [question("tower", id="1"), question(id="2"), question("hill", id="3")]
    answers = [
        QuestionAnswer(id, text, (Candidate(text, 0, 0, 1.0, 0, len(text)),), odds)
        for id, text, odds in (("1", "tower", 0.5), ("2", "hill", 2.0), ("3", "hill", 1.0))
    ]
    assert TASK.tuned(examples, answers, EITHER).threshold == 1.5
    assert TASK.tuned(examples, answers, Knowledge()) == Knowledge()
    assert TASK.tuned([], [], EITHER) == EITHER


def test_the_training_part_says_whether_answers_may_be_empty() -> None:
    report = ExampleReport()
    _, _, knowledge = TASK.resolve({"train": [question("hill"), question()]}, ReadingSettings(), report)
    assert knowledge == EITHER
    assert report.notes == ["some questions have no answer (SQuAD 2.0): the model may say so"]
    assert TASK.resolve({"train": [question("hill")]}, ReadingSettings(), report)[2] == Knowledge()
    assert TASK.gold(question("hill")) == ["hill"]
    assert TASK.text(question("hill")) == f"the moon\n{CONTEXT}"
    assert TASK.check([question()], CONFIG, ReadingSettings(), report, knowledge=Knowledge()) == [question()]


def test_answers_stand_where_they_are_said_to_whatever_stands_before(tmp_path: Path) -> None:
    # Case 48.
    context = "\n\n\n\n\n\n\n\nthe  tower 明月 3.5 hill"
    record = answered(question("hill", context=context), {"hill": 2.0})
    assert context[record["start"] : record["end"]] == record["answer"] == "hill"
