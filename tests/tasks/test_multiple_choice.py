"""Choices of different number: the softmax is over those that are there, by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from task_parts import Parts, parts_of
from torch.nn import functional as F

from bertkit.data.examples.example import ChoiceExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.text_features import ChoiceFeatures
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.multiple_choice import ChoiceAnswer, MultipleChoice
from bertkit.tasks.task_settings import Knowledge, TaskSettings

TASK, CONFIG = MultipleChoice(), TaskConfig()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts_of("choices", tmp_path_factory.mktemp("choices"))


@torch.no_grad()
def test_the_loss_is_cross_entropy_over_each_questions_own_choices(parts: Parts) -> None:
    # Case 42: a batch of questions with two and three choices.
    assert {len(feature.input_ids) for feature in parts.features} == {2, 3}
    found = TASK.losses(parts.model, parts.batch(), class_weights=None, label_smoothing=0.0)
    alone, right = 0.0, 0
    for feature in parts.features:
        [logits] = TASK.scores(parts.model, parts.batch([feature]), [feature])
        alone += F.cross_entropy(torch.from_numpy(logits)[None], torch.tensor([feature.label])).item()
        right += int(logits.argmax() == feature.label)
    assert found.sums["choice"].item() == pytest.approx(alone, rel=1e-5)
    assert found.correct["choice"].item() == right
    assert TASK.weights(parts.features, None) == {"choice": float(len(parts.features))}


def row(*ids: int) -> np.ndarray:
    return np.array(ids)


def test_a_choice_that_is_not_there_is_masked() -> None:
    none = row(0, 0, 0)
    two = ChoiceFeatures((row(2, 7, 3), row(2, 8, 3)), (none, none), 0, 1)
    three = ChoiceFeatures((row(2, 7, 3),) * 3, (none,) * 3, 1, 2)
    batch = TASK.collate([two, three], pad_id=0, task=CONFIG)
    assert batch["input_ids"].shape == (2, 3, 3)
    assert batch["choice_mask"].tolist() == [[True, True, False], [True, True, True]]
    assert batch["labels"].tolist() == [1, 2]
    assert "choice_mask" not in TASK.collate([three], pad_id=0, task=CONFIG)
    assert "attention_mask" not in batch
    longer = ChoiceFeatures((row(2, 7, 3), row(2, 7, 8, 3)), (none, row(0, 0, 0, 0)), 0, 0)
    mask = TASK.collate([longer], pad_id=0, task=CONFIG)["attention_mask"]
    assert mask.tolist() == [[[True, True, True, False], [True] * 4]]
    assert TASK.lengths(longer) == [3, 4]


def test_probabilities_of_choices_sum_to_one(parts: Parts) -> None:
    with torch.no_grad():
        answers = parts.answers(TASK.scores(parts.model, parts.batch(), parts.features))
    for example, answer in zip(parts.examples, answers, strict=True):
        assert len(answer.scores) == len(example.choices)
        assert sum(answer.scores) == pytest.approx(1.0, abs=1e-12)
        assert answer.label == int(np.argmax(answer.scores))
        record = TASK.record(example, answer, task=CONFIG)
        assert record["choice"] == example.choices[answer.label]
        assert (record["label"], record["scores"]) == (answer.label, list(answer.scores))


def test_scores_far_apart_stay_finite() -> None:
    example = ChoiceExample("1", "q", ("a", "b"), 0, "f", 1)
    [answer] = TASK.answers(
        [example],
        [],
        [np.array([1e4, -1e4], np.float32)],
        settings=TaskSettings(),
        task=CONFIG,
        knowledge=Knowledge(),
    )
    assert answer == ChoiceAnswer(0, (1.0, 0.0))


def test_the_accuracy_stands_beside_what_guessing_has() -> None:
    examples = [ChoiceExample(str(n), "q", ("a",) * choices, 1, "f", 1) for n, choices in enumerate((2, 4, 5))]
    answers = [ChoiceAnswer(1, ()), ChoiceAnswer(0, ()), ChoiceAnswer(1, ())]
    found, tables = TASK.metrics(examples, answers, task=CONFIG, knowledge=Knowledge())
    assert found == {"accuracy": pytest.approx(2 / 3), "chance": pytest.approx((1 / 2 + 1 / 4 + 1 / 5) / 3)}
    assert tables == {}
    assert TASK.best_by(CONFIG) == ("accuracy", True)
    assert TASK.tuned(examples, answers, Knowledge()) == Knowledge()


def test_letters_are_places(tmp_path: Path) -> None:
    # Case 43.
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "q", "choices": ["a", "b", "c"], "label": "C"}\n', encoding="utf-8")
    reading, report = ReadingSettings(), ExampleReport()
    [example] = read_examples(TASK.name, str(path), reading, report, labelled=True, flag="--train_file")
    assert TASK.gold(example) == 2
    assert TASK.text(example) == "q\n0. a\n1. b\n2. c"
    assert TASK.check([example], CONFIG, reading, report, knowledge=Knowledge()) == [example]
