"""Texts with one class, several, or a number: losses, weights and answers by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sklearn_metrics
from task_parts import Parts, parts_of
from torch.nn import functional as F
from toy_tasks import write_task

from bertkit.data.examples.example import TextExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import IGNORE_INDEX
from bertkit.data.text_features import TextFeatures
from bertkit.errors import InputError, InputErrors
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.sequence_classification import NO_CORRELATION, SequenceClassification, TextAnswer
from bertkit.tasks.task_settings import Knowledge, TaskSettings

LABELS = TaskConfig(labels=("a", "b"))
SEVERAL = TaskConfig(labels=("a", "b"), problem_type="multi_label_classification")
NUMBER = TaskConfig(labels=("score",), problem_type="regression")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parts]:
    folder = tmp_path_factory.mktemp("texts")
    return {kind: parts_of(kind, folder) for kind in ("single", "pair", "multi", "regression")}


def logits_of(parts: Parts) -> torch.Tensor:
    return torch.from_numpy(np.stack(parts.task.scores(parts.model, parts.batch(), parts.features)))


def loss_of(parts: Parts, *, weights: list[float] | None = None, smoothing: float = 0.0) -> float:
    tensor = None if weights is None else torch.tensor(weights)
    found = parts.task.losses(parts.model, parts.batch(), class_weights=tensor, label_smoothing=smoothing)
    array = None if weights is None else np.array(weights, np.float32)
    return found.sums["label"].item() / parts.task.weights(parts.features, array)["label"]


@torch.no_grad()
@pytest.mark.parametrize("weights", [None, [0.5, 3.0]])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_one_class_is_cross_entropy(parts: dict[str, Parts], weights: list[float] | None, smoothing: float) -> None:
    for kind in ("single", "pair"):
        part = parts[kind]
        tensor = None if weights is None else torch.tensor(weights)
        expected = F.cross_entropy(
            logits_of(part), part.batch()["labels"], weight=tensor, label_smoothing=smoothing
        ).item()
        assert loss_of(part, weights=weights, smoothing=smoothing) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def test_a_text_without_a_label_counts_for_nothing(parts: dict[str, Parts]) -> None:
    part = parts["single"]
    batch = part.batch()
    batch["labels"][3:] = IGNORE_INDEX
    features = [
        TextFeatures(f.input_ids, f.token_type_ids, f.example, f.label if place < 3 else IGNORE_INDEX, None, None)
        for place, f in enumerate(part.features)
    ]
    weights = np.array([0.5, 3.0], np.float32)
    for given in (None, weights):
        tensor = None if given is None else torch.from_numpy(given)
        found = part.task.losses(part.model, batch, class_weights=tensor, label_smoothing=0.0)
        first = part.task.losses(part.model, part.batch(part.features[:3]), class_weights=tensor, label_smoothing=0.0)
        assert found.sums["label"].item() == pytest.approx(first.sums["label"].item(), rel=1e-5)
        assert found.correct["label"].item() == first.correct["label"].item()
        assert part.task.weights(features, given) == part.task.weights(part.features[:3], given)


@torch.no_grad()
@pytest.mark.parametrize("weights", [None, [0.5, 3.0]])
def test_several_classes_are_binary_cross_entropies(parts: dict[str, Parts], weights: list[float] | None) -> None:
    part = parts["multi"]
    tensor = None if weights is None else torch.tensor(weights)
    expected = F.binary_cross_entropy_with_logits(logits_of(part), part.batch()["labels"], pos_weight=tensor).item()
    assert loss_of(part, weights=weights) == pytest.approx(expected, rel=1e-5)
    found = part.task.losses(part.model, part.batch(), class_weights=None, label_smoothing=0.0)
    assert found.correct["label"].item() == ((logits_of(part) > 0) == part.batch()["labels"].bool()).sum()


@torch.no_grad()
def test_a_number_is_a_squared_error(parts: dict[str, Parts]) -> None:
    part = parts["regression"]
    expected = F.mse_loss(logits_of(part)[:, 0], part.batch()["labels"]).item()
    assert loss_of(part) == pytest.approx(expected, rel=1e-5)


def test_rows_are_padded_and_labels_stand_beside_them(parts: dict[str, Parts]) -> None:
    task = SequenceClassification()
    rows = [(np.array([2, 7, 3]), np.array([0, 0, 0])), (np.array([2, 7, 3, 8, 3]), np.array([0, 0, 0, 1, 1]))]
    features = [TextFeatures(ids, types, place, place, None, None) for place, (ids, types) in enumerate(rows)]
    batch = task.collate(features, pad_id=9, task=LABELS)
    assert batch["input_ids"].tolist() == [[2, 7, 3, 9, 9], [2, 7, 3, 8, 3]]
    assert batch["token_type_ids"].tolist() == [[0] * 5, [0, 0, 0, 1, 1]]
    assert batch["attention_mask"].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert (batch["labels"].tolist(), batch["labels"].dtype) == ([0, 1], torch.int64)
    scored = [TextFeatures(*rows[0], 0, IGNORE_INDEX, None, 2.5)]
    assert task.collate(scored, pad_id=9, task=NUMBER)["labels"].tolist() == [2.5]
    several = [TextFeatures(*rows[0], 0, IGNORE_INDEX, np.array([0, 1], np.float32), None)]
    assert task.collate(several, pad_id=9, task=SEVERAL)["labels"].tolist() == [[0, 1]]
    unlabelled = [TextFeatures(*rows[0], 0, IGNORE_INDEX, None, None)]
    assert torch.isnan(task.collate(unlabelled, pad_id=9, task=SEVERAL)["labels"]).all()
    assert torch.isnan(task.collate(unlabelled, pad_id=9, task=NUMBER)["labels"]).all()


def example(place: int, **label: Any) -> TextExample:
    values = {"label": None, "labels": None, "score": None, **label}
    return TextExample(str(place), "t", None, values["label"], values["labels"], values["score"], "f", place + 1)


def answer(
    outputs: list[list[float]], task: TaskConfig, *, owners: list[int] | None = None, vote: str = "mean", **known: Any
) -> list[TextAnswer]:
    owners = list(range(len(outputs))) if owners is None else owners
    row = np.array([2, 3])
    features = [TextFeatures(row, row * 0, owner, IGNORE_INDEX, None, None) for owner in owners]
    return SequenceClassification().answers(
        [example(place) for place in range(max(owners) + 1)],
        features,
        [np.array(output, np.float32) for output in outputs],
        settings=TaskSettings(vote=vote),  # type: ignore[arg-type]
        task=task,
        knowledge=Knowledge(**known),
    )


def test_the_likeliest_class_is_the_answer() -> None:
    [found] = answer([[0.0, np.log(3.0)]], LABELS)
    assert (found.label, found.labels) == ("b", None)
    assert found.scores == pytest.approx({"a": 0.25, "b": 0.75})
    assert found.score == pytest.approx(0.75)
    assert SequenceClassification().record(example(0), found, task=LABELS) == {
        "id": "0",
        "label": "b",
        "score": found.score,
        "scores": found.scores,
    }


def test_classes_from_the_threshold_upwards_are_the_answer() -> None:
    outputs = [[0.0, -10.0], [-1.0, 2.0]]  # 0.5 and nearly 0, 0.27 and 0.88
    assert [found.labels for found in answer(outputs, SEVERAL, threshold=0.5)] == [("a",), ("b",)]
    assert [found.labels for found in answer(outputs, SEVERAL, threshold=0.9)] == [(), ()]
    assert [found.labels for found in answer(outputs, SEVERAL, threshold=0.0)] == [("a", "b"), ("a", "b")]
    [first, _] = answer(outputs, SEVERAL)
    record = SequenceClassification().record(example(0), first, task=SEVERAL)
    assert record == {"id": "0", "labels": ["a"], "scores": first.scores}


def test_the_number_is_the_answer() -> None:
    [found] = answer([[2.5]], NUMBER)
    assert (found.score, found.scores, found.label) == (2.5, {}, None)
    assert SequenceClassification().record(example(0), found, task=NUMBER) == {"id": "0", "score": 2.5}


def test_the_windows_of_a_text_vote() -> None:
    outputs, owners = [[4.0, 0.0], [0.0, 1.0], [0.0, 9.0], [3.0, 2.0]], [0, 1, 1, 0]
    mean = answer(outputs, LABELS, owners=owners)
    assert mean[0].scores == pytest.approx(dict(zip("ab", torch.tensor([3.5, 1.0]).softmax(0).tolist(), strict=True)))
    assert mean[1].scores == pytest.approx(dict(zip("ab", torch.tensor([0.0, 5.0]).softmax(0).tolist(), strict=True)))
    most = answer(outputs, LABELS, owners=owners, vote="max")
    assert most[0].scores == pytest.approx(dict(zip("ab", torch.tensor([4.0, 2.0]).softmax(0).tolist(), strict=True)))
    assert [found.score for found in answer([[1.0], [2.0]], NUMBER, owners=[0, 0])] == [1.5]


@torch.no_grad()
def test_long_texts_are_cut_into_windows_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    long = " ".join(["the tower"] * 30)
    path.write_text(f"text,label\n{long},a\nthe moon,b\n", encoding="utf-8")
    parts = parts_of("single", tmp_path, file=path, max_seq_length=12, long_texts="windows")
    assert [feature.example for feature in parts.features] == [0] * (len(parts.features) - 1) + [1]
    assert len(parts.features) > 5
    answers = parts.answers(parts.task.scores(parts.model, parts.batch(), parts.features))
    assert len(answers) == 2


def figures(gold: list[dict[str, Any]], answers: list[TextAnswer], task: TaskConfig) -> tuple[dict[str, float], dict]:
    examples = [example(place, **label) for place, label in enumerate(gold)]
    return SequenceClassification().metrics(examples, answers, task=task, knowledge=Knowledge())


def test_figures_of_one_class_are_scikit_learns() -> None:
    gold, said = list("aabbab"), list("ababab")
    outputs = [[1.0, 0.0] if name == "a" else [0.0, 1.0] for name in said]
    found, tables = figures([{"label": name} for name in gold], answer(outputs, LABELS), LABELS)
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(gold, said))
    assert found["macro_f1"] == pytest.approx(sklearn_metrics.f1_score(gold, said, average="macro"))
    assert found["matthews_correlation"] == pytest.approx(sklearn_metrics.matthews_corrcoef(gold, said))
    assert tables["confusion"] == {"labels": ["a", "b"], "rows": [[2, 1], [1, 2]]}
    assert set(tables["by_class"]) == {"a", "b"}
    assert "warning" not in tables


def test_one_class_that_is_always_given_is_warned_of() -> None:
    _, tables = figures([{"label": "a"}, {"label": "b"}], answer([[1.0, 0.0]] * 2, LABELS), LABELS)
    assert tables["warning"] == "every text is given the one class 'a'"


def test_figures_of_several_classes_are_scikit_learns() -> None:
    gold = [("a",), (), ("a", "b"), ("b",)]
    answers = answer([[9.0, -9.0], [9.0, -9.0], [9.0, 9.0], [-9.0, -9.0]], SEVERAL)
    found, _ = figures([{"labels": labels} for labels in gold], answers, SEVERAL)
    wanted = np.array([[name in labels for name in "ab"] for labels in gold])
    given = np.array([[name in (each.labels or ()) for name in "ab"] for each in answers])
    assert found["micro_f1"] == pytest.approx(sklearn_metrics.f1_score(wanted, given, average="micro"))
    assert found["macro_f1"] == pytest.approx(sklearn_metrics.f1_score(wanted, given, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(0.5)


def test_figures_of_numbers_are_scipys() -> None:
    gold, said = [1.0, 2.0, 4.0, 3.0], [1.5, 1.0, 3.0, 3.5]
    found, tables = figures([{"score": score} for score in gold], answer([[one] for one in said], NUMBER), NUMBER)
    assert found["pearson"] == pytest.approx(stats.pearsonr(gold, said).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(gold, said).statistic)
    assert found["mean_squared_error"] == pytest.approx(np.mean((np.array(gold) - said) ** 2))
    assert tables == {}


@pytest.mark.parametrize(("gold", "said"), [([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, 1.0]), ([1.0], [2.0])])
def test_a_correlation_that_is_not_defined_is_zero_and_that_is_said(gold: list[float], said: list[float]) -> None:
    found, tables = figures([{"score": score} for score in gold], answer([[one] for one in said], NUMBER), NUMBER)
    assert (found["pearson"], found["spearman"]) == (0.0, 0.0)
    assert tables == {"warning": NO_CORRELATION}


def test_the_threshold_is_tuned_to_the_best_micro_f1() -> None:
    gold = [("a",), ("a", "b"), ()]
    answers = answer([[-1.0, -3.0], [0.5, -2.0], [-2.5, -4.0]], SEVERAL)
    examples = [example(place, labels=labels) for place, labels in enumerate(gold)]
    task = SequenceClassification()
    tuned = task.tuned(examples, answers, Knowledge(threshold=0.5))
    between = torch.tensor([-2.0, -2.5]).sigmoid().mean().item()
    assert tuned.threshold == pytest.approx(between)
    again = answer([[-1.0, -3.0], [0.5, -2.0], [-2.5, -4.0]], SEVERAL, threshold=tuned.threshold)
    assert [set(each.labels or ()) for each in again] == [set(labels) for labels in gold]
    assert task.tuned(examples, answers, Knowledge()) == Knowledge()
    assert task.tuned([], [], Knowledge(threshold=0.5)).threshold == 0.5


def test_another_problem_type_than_the_models_is_refused() -> None:
    reading = ReadingSettings(problem_type="regression")
    said = r"--problem_type: is not what the model was trained for\n  value: 'regression'\n  expected: single_label"
    with pytest.raises(InputError, match=said):
        SequenceClassification().check([example(0, label="1")], LABELS, reading, ExampleReport(), knowledge=Knowledge())


def test_the_labels_of_other_data_must_be_the_models() -> None:
    task, reading = SequenceClassification(), ReadingSettings()
    with pytest.raises(InputErrors, match=r"f:2: label: the label is not one of the model's\n  value: 'c'"):
        task.check(
            [example(0, label="a"), example(1, label="c")], LABELS, reading, ExampleReport(), knowledge=Knowledge()
        )
    with pytest.raises(InputErrors, match=r"f:1: label: the label is no number to train on"):
        task.check([example(0, label="a")], NUMBER, reading, ExampleReport(), knowledge=Knowledge())
    with pytest.raises(InputErrors, match=r"f:1: label: the label is a list"):
        task.check([example(0, labels=("a",))], LABELS, reading, ExampleReport(), knowledge=Knowledge())
    [found] = task.check([example(0, label="2")], NUMBER, reading, ExampleReport(), knowledge=Knowledge())
    assert (found.score, found.label) == (2.0, None)


def test_what_is_right_is_given_as_it_is() -> None:
    task = SequenceClassification()
    golds = [task.gold(example(0, **label)) for label in ({"label": "a"}, {"labels": ()}, {"score": 0.0}, {})]
    assert golds == ["a", [], 0.0, None]


def test_whole_numbers_are_classes_unless_a_regression_is_asked_for(tmp_path: Path) -> None:
    # Case 34: labels 0 and 1.
    path = tmp_path / "x.csv"
    path.write_text("text,label\nthe moon,1\nthe sand,0\n", encoding="utf-8")
    task = SequenceClassification()
    for problem, labels in ((None, ("0", "1")), ("regression", ("score",))):
        reading, report = ReadingSettings(problem_type=problem), ExampleReport()  # type: ignore[arg-type]
        read = read_examples(task.name, str(path), reading, report, labelled=True, flag="--train_file")
        resolved, config, _ = task.resolve({"train": read}, reading, report)
        assert config.labels == labels
        assert [each.score for each in resolved["train"]] == ([None, None] if problem is None else [1.0, 0.0])


def test_the_order_of_names_is_not_that_in_which_they_come(tmp_path: Path) -> None:
    # Case 33.
    task, reading = SequenceClassification(), ReadingSettings()
    lines = (tmp_path / "x.jsonl", write_task(tmp_path, "single", number=6).read_text("utf-8").splitlines())
    maps = []
    for order in (lines[1], lines[1][::-1]):
        lines[0].write_text("\n".join(order) + "\n", encoding="utf-8")
        report = ExampleReport()
        read = read_examples(task.name, str(lines[0]), reading, report, labelled=True, flag="--train_file")
        maps.append(task.resolve({"train": read}, reading, report)[1].labels)
    assert maps[0] == maps[1] == ("english", "中文")
