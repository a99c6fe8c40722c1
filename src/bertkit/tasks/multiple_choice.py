"""A beginning and ways to go on → the right one; any number of choices, different in every row.

In: questions with choices.  Out: rows, losses, ChoiceAnswers, accuracy.  Next: question_answering.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.collate import Batch, padded
from bertkit.data.examples.example import ChoiceExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import IGNORE_INDEX, CoverageReport
from bertkit.data.text_features import ChoiceFeatures, build_choice_features
from bertkit.model.architectures import Head, TaskModel
from bertkit.model.losses import cross_entropy
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.finetuning import Metrics, Outputs, inputs_of
from bertkit.tasks.task_settings import Knowledge, TaskName, TaskSettings, length_of_rows
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.loop import LossSums

LOSS = "choice"


@dataclass(frozen=True)
class ChoiceAnswer:
    """Which choice is taken."""

    label: int
    scores: tuple[float, ...]  # probability of each choice


class MultipleChoice:
    """One score for each choice beside its question; the softmax is over the choices that are there."""

    name: TaskName = "multiple-choice"
    head: Head = "multiple_choice"

    def best_by(self, task: TaskConfig) -> tuple[str, bool]:
        """Accuracy."""
        return "accuracy", True

    def resolve(
        self, splits: Mapping[str, Sequence[ChoiceExample]], settings: ReadingSettings, report: ExampleReport
    ) -> tuple[dict[str, list[ChoiceExample]], TaskConfig, Knowledge]:
        """Labels are places among the choices: there is nothing to agree on."""
        return {name: list(examples) for name, examples in splits.items()}, TaskConfig(), Knowledge()

    def check(
        self,
        examples: Sequence[ChoiceExample],
        model: TaskConfig,
        settings: ReadingSettings,
        report: ExampleReport,
        *,
        knowledge: Knowledge,
    ) -> list[ChoiceExample]:
        """Every example fits every model."""
        return list(examples)

    def features(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
        coverage: CoverageReport,
    ) -> list[ChoiceFeatures]:
        """See `data/text_features.py`."""
        max_seq_length = length_of_rows(settings)
        return build_choice_features(examples, tokenizer, max_seq_length=max_seq_length, coverage=coverage)

    def lengths(self, feature: ChoiceFeatures) -> list[int]:
        """Return the tokens of the row of each choice."""
        return list(map(len, feature.input_ids))

    def collate(self, features: Sequence[ChoiceFeatures], *, pad_id: int, task: TaskConfig) -> Batch:
        """Return (batch, choices, seq) rows, `choice_mask` where their numbers differ, and `labels` (batch,) int64."""
        most = max((len(feature.input_ids) for feature in features), default=1)
        rows = []
        for feature in features:
            rows += list(zip(feature.input_ids, feature.token_type_ids, strict=True))
            # In the place of a choice that is not there stands the first one; the mask takes its score out.
            rows += [(feature.input_ids[0], feature.token_type_ids[0])] * (most - len(feature.input_ids))
        flat = padded(rows, pad_id=pad_id)
        batch = {name: tensor.view(len(features), most, -1) for name, tensor in flat.items()}
        counts = np.array([len(feature.input_ids) for feature in features], dtype=np.int64)
        if (counts < most).any():
            batch["choice_mask"] = torch.from_numpy(np.arange(most)[None, :] < counts[:, None])
        batch["labels"] = torch.tensor([feature.label for feature in features], dtype=torch.int64)
        return batch

    def weights(
        self, features: Sequence[ChoiceFeatures], class_weights: NDArray[np.float32] | None
    ) -> dict[str, float]:
        """Return the number of questions."""
        return {LOSS: float(sum(feature.label != IGNORE_INDEX for feature in features))}

    def losses(
        self, model: TaskModel, batch: Batch, *, class_weights: Tensor | None, label_smoothing: float
    ) -> LossSums:
        """Return the sum of cross entropies over the choices of each question."""
        logits, labels = model(**inputs_of(batch)).logits, batch["labels"]
        total, _ = cross_entropy("labels", logits, labels)
        return LossSums({LOSS: total}, {LOSS: (logits.argmax(-1) == labels).sum()})

    def scores(self, model: TaskModel, batch: Batch, features: Sequence[ChoiceFeatures]) -> Outputs:
        """Return the logits of each question's own choices, (choices,) float32."""
        logits = model(**inputs_of(batch)).logits.float().cpu().numpy()
        return [logits[row, : len(feature.input_ids)] for row, feature in enumerate(features)]

    def answers(
        self,
        examples: Sequence[ChoiceExample],
        features: Sequence[ChoiceFeatures],
        outputs: Outputs,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> list[ChoiceAnswer]:
        """Return the choice with the highest score, and the probability of each."""
        found = []
        for logits in outputs:
            shares = np.exp(logits.astype(np.float64) - logits.max())
            found.append(ChoiceAnswer(int(logits.argmax()), tuple((shares / shares.sum()).tolist())))
        return found

    def tuned(
        self, examples: Sequence[ChoiceExample], answers: Sequence[ChoiceAnswer], knowledge: Knowledge
    ) -> Knowledge:
        """Nothing is tuned."""
        return knowledge

    def metrics(
        self,
        examples: Sequence[ChoiceExample],
        answers: Sequence[ChoiceAnswer],
        *,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> tuple[Metrics, dict[str, Any]]:
        """Return the accuracy, and what guessing would have, the numbers of choices being what they are."""
        right = [example.label == answer.label for example, answer in zip(examples, answers, strict=True)]
        chance = [1 / len(example.choices) for example in examples]
        return {"accuracy": float(np.mean(right)), "chance": float(np.mean(chance))}, {}

    def record(self, example: ChoiceExample, answer: ChoiceAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {label, choice, scores}."""
        choice = example.choices[answer.label]
        return {"id": example.id, "label": answer.label, "choice": choice, "scores": list(answer.scores)}

    def gold(self, example: ChoiceExample) -> Any:
        """Return the place of the right choice."""
        return example.label

    def text(self, example: ChoiceExample) -> str:
        """Return the beginning and all choices."""
        return "\n".join([example.context, *(f"{n}. {choice}" for n, choice in enumerate(example.choices))])

    def shown(self, example: ChoiceExample, answer: ChoiceAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {error, context, choices}: the probability of a wrong choice."""
        error = 0.0 if answer.label == example.label else answer.scores[answer.label]
        return {"error": error, "context": example.context, "choices": list(example.choices)}
