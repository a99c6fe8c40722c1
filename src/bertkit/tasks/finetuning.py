"""What the four tasks of fine-tuning have in common, as the run, the evaluation and the predictions see them.

In: nothing.  Out: the protocol FineTuningTask, and how a model's scores come about.  Next: sequence_classification.py
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.collate import Batch
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import CoverageReport
from bertkit.model.architectures import Head, TaskModel
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.task_settings import Knowledge, TaskName, TaskSettings
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.loop import LossSums

Example = TypeVar("Example")
Feature = TypeVar("Feature")
Answer = TypeVar("Answer")
Metrics = dict[str, float]
Outputs = list[NDArray[np.float32]]  # for each feature what the model gives for it, padding cut off


class FineTuningTask(Protocol[Example, Feature, Answer]):
    """One task: files to examples, examples to features, features to losses and scores, scores to answers."""

    @property
    def name(self) -> TaskName:
        """Its word on the command line."""
        ...

    @property
    def head(self) -> Head:
        """The head of the model."""
        ...

    def best_by(self, task: TaskConfig) -> tuple[str, bool]:
        """Return which of `metrics` says what is best, and whether more of it is better."""
        ...

    def resolve(
        self, splits: Mapping[str, Sequence[Example]], settings: ReadingSettings, report: ExampleReport
    ) -> tuple[dict[str, list[Example]], TaskConfig, Knowledge]:
        """Return the examples of all splits with their labels as one map has them, the head they need, what to keep."""
        ...

    def check(
        self,
        examples: Sequence[Example],
        model: TaskConfig,
        settings: ReadingSettings,
        report: ExampleReport,
        *,
        knowledge: Knowledge,
    ) -> list[Example]:
        """Return labelled examples with the labels of a trained model."""
        ...

    def features(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
        coverage: CoverageReport,
    ) -> list[Feature]:
        """Return the rows of the examples, in order."""
        ...

    def lengths(self, feature: Feature) -> list[int]:
        """Return the tokens of each row that a feature gives the encoder; most tasks have one."""
        ...

    def collate(self, features: Sequence[Feature], *, pad_id: int, task: TaskConfig) -> Batch:
        """Return features as a batch, labels included where there are any."""
        ...

    def weights(self, features: Sequence[Feature], class_weights: NDArray[np.float32] | None) -> dict[str, float]:
        """Return the labels of features, or their weight where classes have weights, for each loss."""
        ...

    def losses(
        self, model: TaskModel, batch: Batch, *, class_weights: Tensor | None, label_smoothing: float
    ) -> LossSums:
        """Return the sums of the losses over a batch."""
        ...

    def scores(self, model: TaskModel, batch: Batch, features: Sequence[Feature]) -> Outputs:
        """Return what the model gives for each feature of a batch."""
        ...

    def answers(
        self,
        examples: Sequence[Example],
        features: Sequence[Feature],
        outputs: Outputs,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> list[Answer]:
        """Return the answer for each example, in order."""
        ...

    def tuned(self, examples: Sequence[Example], answers: Sequence[Answer], knowledge: Knowledge) -> Knowledge:
        """Return the knowledge with the threshold that is best on these examples, of a validation part."""
        ...

    def metrics(
        self, examples: Sequence[Example], answers: Sequence[Answer], *, task: TaskConfig, knowledge: Knowledge
    ) -> tuple[Metrics, dict[str, Any]]:
        """Return figures by name, and tables (per class, confusion) for eval_results.json."""
        ...

    def record(self, example: Example, answer: Answer, *, task: TaskConfig) -> dict[str, Any]:
        """Return an answer as a line of the predictions, JSON."""
        ...

    def gold(self, example: Example) -> Any:
        """Return what the example's file says is right."""
        ...

    def text(self, example: Example) -> str:
        """Return what a person reads of an example, for the report."""
        ...

    def shown(self, example: Example, answer: Answer, *, task: TaskConfig) -> dict[str, Any]:
        """Return what the report needs besides: `error`, 0 where the answer is right, else how wrong it is; places."""
        ...


LABELS = frozenset({"labels", "positions"})  # of a batch: what the encoder is not given


def inputs_of(batch: Batch) -> Batch:
    """Return what of a batch a model is given."""
    return {name: tensor for name, tensor in batch.items() if name not in LABELS}


def padded_lengths(lengths: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return (features,) the most tokens that each takes beside any others no longer, padding counted.

    lengths: of the rows of each; one that has fewer of them than another is filled up with more of its own.

    >>> padded_lengths([[5, 3], [4], [2, 2, 2]]).tolist()
    [15, 12, 6]
    """
    most = max(map(len, lengths), default=1)
    return np.array([most * max(each) for each in lengths], dtype=np.int64)


def no_gradient_scores(
    task: FineTuningTask[Example, Feature, Answer],
    model: TaskModel,
    features: Sequence[Feature],
    *,
    pad_id: int,
    config: TaskConfig,
    micro_batch_tokens: int,
    device: torch.device,
) -> Iterator[tuple[list[int], Outputs]]:
    """Yield (places, scores) batch by batch, features of like length together; dropout is off."""
    model.eval()
    lengths = padded_lengths([task.lengths(feature) for feature in features])
    order = np.argsort(-lengths, kind="stable").tolist()
    start = 0
    while start < len(order):
        rows = max(1, micro_batch_tokens // max(1, int(lengths[order[start]])))
        places = order[start : start + rows]
        start += rows
        here = [features[place] for place in places]
        batch = {name: t.to(device) for name, t in task.collate(here, pad_id=pad_id, task=config).items()}
        with torch.inference_mode():
            yield places, task.scores(model, batch, here)
