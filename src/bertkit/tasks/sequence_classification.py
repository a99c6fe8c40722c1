"""Texts and pairs of texts → one class, several classes, or a number.

In: labelled tables.  Out: rows, losses, TextAnswers, accuracy, F1, correlations.  Next: token_classification.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bertkit.data.collate import Batch, padded
from bertkit.data.examples.example import TextExample
from bertkit.data.examples.labels import LabelMap, only_known, resolve_labels
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import IGNORE_INDEX, CoverageReport
from bertkit.data.text_features import TextFeatures, build_text_features
from bertkit.errors import InputError
from bertkit.metrics.classification import (
    best_label_threshold,
    classification_scores,
    multi_label_scores,
    regression_scores,
)
from bertkit.model.architectures import Head, TaskModel
from bertkit.model.losses import cross_entropy, in_float32
from bertkit.model.task_config import TaskConfig
from bertkit.model.task_heads import SequenceClassificationModel
from bertkit.tasks.finetuning import Metrics, Outputs, inputs_of
from bertkit.tasks.task_settings import Knowledge, TaskName, TaskSettings, length_of_rows
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.loop import LossSums

THRESHOLD = 0.5  # of a label's probability where several may hold, until it is tuned
LOSS = "label"
NO_CORRELATION = "all labels or all answers are the same number: no correlation is defined, and 0 stands for it"


@dataclass(frozen=True)
class TextAnswer:
    """What is said of a text."""

    scores: dict[str, float]  # probability of each label; empty for a regression
    label: str | None  # the likeliest
    labels: tuple[str, ...] | None  # those from the threshold upwards, where several may hold
    score: float  # the label's probability; the number of a regression


class SequenceClassification:
    """Single texts and pairs; the labels decide which of three problems it is."""

    name: TaskName = "sequence-classification"
    head: Head = "sequence_classification"

    def best_by(self, task: TaskConfig) -> tuple[str, bool]:
        """Accuracy, micro F1 where several labels may hold, Pearson's correlation of numbers."""
        names = {"single_label_classification": "accuracy", "multi_label_classification": "micro_f1"}
        return names.get(task.problem_type, "pearson"), True

    def resolve(
        self, splits: Mapping[str, Sequence[TextExample]], settings: ReadingSettings, report: ExampleReport
    ) -> tuple[dict[str, list[TextExample]], TaskConfig, Knowledge]:
        """See `data/examples/labels.py`; a regression has one label, called score."""
        problem, resolved, labels = resolve_labels(splits, problem_type=settings.problem_type, report=report)
        threshold = THRESHOLD if problem == "multi_label_classification" else None
        task = TaskConfig(labels=labels.names or ("score",), problem_type=problem)
        kinds = {example.text_pair is not None for example in resolved.get("train", ())}
        return resolved, task, Knowledge(threshold=threshold, pairs=kinds.pop() if len(kinds) == 1 else None)

    def check(
        self,
        examples: Sequence[TextExample],
        model: TaskConfig,
        settings: ReadingSettings,
        report: ExampleReport,
        *,
        knowledge: Knowledge,
    ) -> list[TextExample]:
        """Return the examples with the kind of label that the model has.

        Raises:
            InputErrors: labels of another kind, or that the model does not have.
            InputError: another problem_type than the model's.
        """
        if settings.problem_type not in (None, model.problem_type):
            raise InputError(
                "is not what the model was trained for",
                field="--problem_type",
                value=settings.problem_type,
                expected=model.problem_type,
                remedy="leave it out",
            )
        _, resolved, _ = resolve_labels({"data": examples}, problem_type=model.problem_type, report=report)
        if model.problem_type == "regression":
            return resolved["data"]
        return only_known(resolved["data"], LabelMap(model.labels), report)

    def features(
        self,
        examples: Sequence[TextExample],
        tokenizer: Tokenizer,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
        coverage: CoverageReport,
    ) -> list[TextFeatures]:
        """See `data/text_features.py`; texts where pairs were learnt from, or the other way, are counted."""
        if knowledge.pairs is not None:
            coverage.num_unlike_examples += sum((e.text_pair is not None) != knowledge.pairs for e in examples)
        return build_text_features(
            examples,
            tokenizer,
            max_seq_length=length_of_rows(settings),
            labels=LabelMap(() if task.problem_type == "regression" else task.labels),
            coverage=coverage,
            long_texts=settings.long_texts,
            stride=settings.stride,
        )

    def lengths(self, feature: TextFeatures) -> list[int]:
        """Return the tokens of the row."""
        return [len(feature.input_ids)]

    def collate(self, features: Sequence[TextFeatures], *, pad_id: int, task: TaskConfig) -> Batch:
        """Return the rows, and `labels`: (batch,) int64 or float32, or (batch, labels) float32."""
        batch = padded([(feature.input_ids, feature.token_type_ids) for feature in features], pad_id=pad_id)
        if task.problem_type == "single_label_classification":
            batch["labels"] = torch.tensor([feature.label for feature in features], dtype=torch.int64)
        elif task.problem_type == "regression":
            scores = [np.nan if feature.score is None else feature.score for feature in features]
            batch["labels"] = torch.tensor(scores, dtype=torch.float32)
        else:
            none = np.full(task.num_labels, np.nan, dtype=np.float32)
            rows = [none if feature.labels is None else feature.labels for feature in features]
            batch["labels"] = torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, task.num_labels)
        return batch

    def weights(self, features: Sequence[TextFeatures], class_weights: NDArray[np.float32] | None) -> dict[str, float]:
        """Return the number of numbers a loss is the mean of, or the weight of the classes."""
        if features and features[0].labels is not None:
            return {LOSS: float(sum(f.labels.size for f in features if f.labels is not None))}
        if class_weights is None or (features and features[0].score is not None):
            return {LOSS: float(sum(f.score is not None or f.label != IGNORE_INDEX for f in features))}
        return {LOSS: float(sum(class_weights[f.label] for f in features if f.label != IGNORE_INDEX))}

    def losses(
        self, model: TaskModel, batch: Batch, *, class_weights: Tensor | None, label_smoothing: float
    ) -> LossSums:
        """Return the sum of cross entropies, of binary ones, or of squared errors."""
        assert isinstance(model, SequenceClassificationModel)
        labels = batch["labels"]
        logits = in_float32(model(**inputs_of(batch)).logits)  # (batch, labels)
        problem = model.task.problem_type
        if problem == "regression":
            return LossSums({LOSS: (logits.squeeze(-1) - labels.to(logits)).square().sum()}, {})
        if problem == "multi_label_classification":
            loss = F.binary_cross_entropy_with_logits(
                logits, labels.to(logits), pos_weight=class_weights, reduction="sum"
            )
            return LossSums({LOSS: loss}, {LOSS: ((logits > 0) == (labels > THRESHOLD)).sum()})
        total, _ = cross_entropy("labels", logits, labels, class_weights=class_weights, label_smoothing=label_smoothing)
        hits = (logits.argmax(-1) == labels).to(logits)
        weighted = hits if class_weights is None else hits * class_weights[labels.clamp(min=0)]
        return LossSums({LOSS: total}, {LOSS: weighted.sum()})

    def scores(self, model: TaskModel, batch: Batch, features: Sequence[TextFeatures]) -> Outputs:
        """Return the logits, (labels,) float32 each."""
        return list(model(**inputs_of(batch)).logits.float().cpu().numpy())

    def answers(
        self,
        examples: Sequence[TextExample],
        features: Sequence[TextFeatures],
        outputs: Outputs,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> list[TextAnswer]:
        """Return an answer a text; the windows of a long one vote, by the mean or the maximum of their logits."""
        windows: list[list[NDArray[np.float32]]] = [[] for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            windows[feature.example].append(output)
        vote = np.mean if settings.vote == "mean" else np.max
        logits = np.stack([vote(np.stack(own), axis=0) for own in windows]) if windows else np.zeros((0, 1))
        if task.problem_type == "regression":
            return [TextAnswer({}, None, None, float(row[0])) for row in logits]
        found = torch.from_numpy(logits).double()
        several = task.problem_type == "multi_label_classification"
        probabilities = (found.sigmoid() if several else found.softmax(-1)).numpy()
        tuned = THRESHOLD if knowledge.threshold is None else knowledge.threshold
        threshold = tuned if several else None
        return [_answer(row, task.labels, threshold) for row in probabilities]

    def tuned(self, examples: Sequence[TextExample], answers: Sequence[TextAnswer], knowledge: Knowledge) -> Knowledge:
        """Return the knowledge with the threshold of a label's probability that has the best micro F1."""
        if knowledge.threshold is None or not examples:
            return knowledge
        names = list(answers[0].scores)
        gold = np.array([[name in (example.labels or ()) for name in names] for example in examples])
        scores = np.array([list(answer.scores.values()) for answer in answers])
        return replace(knowledge, threshold=best_label_threshold(gold, scores)[0])

    def metrics(
        self,
        examples: Sequence[TextExample],
        answers: Sequence[TextAnswer],
        *,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> tuple[Metrics, dict[str, Any]]:
        """Return figures, and tables by class; see `metrics/classification.py`.

        A correlation that is not defined is 0, as chance gives, and a `warning` among the tables says so.
        """
        names = list(task.labels)
        if task.problem_type == "regression":
            found = asdict(regression_scores([_score(e) for e in examples], [answer.score for answer in answers]))
            undefined = {"warning": NO_CORRELATION} if found["pearson"] is None else {}
            return {name: 0.0 if value is None else value for name, value in found.items()}, undefined
        if task.problem_type == "multi_label_classification":
            gold, predicted = (
                np.array([[name in (row or ()) for name in names] for row in rows])
                for rows in ([e.labels for e in examples], [a.labels for a in answers])
            )
            several = asdict(multi_label_scores(gold, predicted, names=names))
            return _numbers(several), {"by_class": several["by_class"]}
        ids = {name: place for place, name in enumerate(names)}
        single = asdict(
            classification_scores(
                [ids[str(example.label)] for example in examples],
                [ids[str(answer.label)] for answer in answers],
                names=names,
            )
        )
        tables = {"by_class": single["by_class"], "confusion": {"labels": names, "rows": single["confusion"]}}
        if single["only_class"] is not None:
            tables["warning"] = f"every text is given the one class {single['only_class']!r}"
        return _numbers(single), tables

    def record(self, example: TextExample, answer: TextAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {label, score, scores}, {labels, scores} or {score}, with the example's id."""
        if not answer.scores:
            return {"id": example.id, "score": answer.score}
        if answer.labels is not None:
            return {"id": example.id, "labels": list(answer.labels), "scores": answer.scores}
        return {"id": example.id, "label": answer.label, "score": answer.score, "scores": answer.scores}

    def gold(self, example: TextExample) -> Any:
        """Return the example's label as it was given."""
        if example.labels is not None:
            return list(example.labels)
        return example.label if example.label is not None else example.score

    def text(self, example: TextExample) -> str:
        """Return the text or both texts."""
        return example.text if example.text_pair is None else f"{example.text} ‖ {example.text_pair}"

    def shown(self, example: TextExample, answer: TextAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {error}: the probability of what is wrong; of a regression the distance."""
        if not answer.scores:
            return {"error": abs(answer.score - _score(example))}
        if answer.labels is None:
            return {"error": 0.0 if answer.label == example.label else answer.score}
        gold = set(example.labels or ())
        wrong = [abs(answer.scores[name] - (name in gold)) for name in gold.symmetric_difference(answer.labels)]
        return {"error": max(wrong, default=0.0)}


def _answer(probabilities: NDArray[np.float64], labels: Sequence[str], threshold: float | None) -> TextAnswer:
    best = int(probabilities.argmax())
    scores = dict(zip(labels, probabilities.tolist(), strict=True))
    several = None if threshold is None else tuple(name for name, score in scores.items() if score >= threshold)
    return TextAnswer(scores, labels[best], several, float(probabilities[best]))


def _score(example: TextExample) -> float:
    assert example.score is not None
    return example.score


def _numbers(figures: Mapping[str, Any]) -> Metrics:
    return {name: value for name, value in figures.items() if isinstance(value, float)}
