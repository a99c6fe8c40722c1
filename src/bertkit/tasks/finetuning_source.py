"""Features of fine-tuning as the loop wants them: the batches of a step, and the losses of a batch.

In: features of any task.  Out: the loop's source and its module.  Next: finetuning_run.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.data.collate import Batch
from bertkit.data.order import global_batch, largest_shape, micro_batches, steps_in_epoch
from bertkit.model.architectures import TaskModel
from bertkit.model.costs import training_flops
from bertkit.model.task_heads import MultipleChoiceModel, SequenceClassificationModel
from bertkit.tasks.finetuning import FineTuningTask, padded_lengths
from bertkit.train.feed import StepBatches
from bertkit.train.loop import LossSums

SHOWN_EXAMPLES = 8  # named in a message


class TaskLoss(nn.Module):
    """A model with its task's losses: a batch in, sums of losses out.

    class_weights: (labels,), or None where every label counts alike.
    """

    def __init__(
        self,
        model: TaskModel,
        task: FineTuningTask[Any, Any, Any],
        *,
        class_weights: Tensor | None,
        label_smoothing: float,
    ) -> None:
        super().__init__()
        self.model, self.task, self.label_smoothing = model, task, label_smoothing
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)

    def forward(self, batch: Batch) -> LossSums:
        """Return the sums of the losses over one micro-batch."""
        return self.task.losses(
            self.model, batch, class_weights=self.class_weights, label_smoothing=self.label_smoothing
        )


@dataclass
class FeatureSource:
    """Batches by step number: the order of features is a function of (seed, epoch), each once an epoch.

    ids: of the examples, by the number that a feature has of its example.
    class_weights: (labels,) float32, or None.
    rank, num_ranks: whose share of each global batch is made.
    """

    task: FineTuningTask[Any, Any, Any]
    features: Sequence[Any]
    ids: Sequence[str]
    model: TaskModel
    pad_id: int
    seed: int
    batch_size: int
    micro_batch_tokens: int
    class_weights: NDArray[np.float32] | None = None
    rank: int = 0
    num_ranks: int = 1

    def __post_init__(self) -> None:
        lengths = [self.task.lengths(feature) for feature in self.features]
        self._lengths = padded_lengths(lengths)  # (features,), as the other arrays of a number for each feature
        self._tokens = np.array([sum(each) for each in lengths], dtype=np.int64)
        self._widths = np.array([max(each) for each in lengths], dtype=np.int64)
        self._rows_of_each = np.array([len(each) for each in lengths], dtype=np.int64)
        self._config, self._shape = self.model.task, self.model.config
        is_of_rows = isinstance(self.model, SequenceClassificationModel | MultipleChoiceModel)
        reads_cls = self.model.mix is None and self.model.task.pooling != "mean"
        self._reads_rows = is_of_rows and reads_cls  # of the last layer [CLS] alone

    def __getstate__(self) -> dict[str, Any]:
        """Travel to another process without the model."""
        return {**vars(self), "model": None}

    @property
    def steps_in_epoch(self) -> int:
        """Steps of an epoch, its last and shorter one included."""
        return steps_in_epoch(len(self.features), self.batch_size)

    def step(self, step: int) -> StepBatches:
        """Return the batches of the step that follows `step` finished ones."""
        rows = self._rows(step)
        ranks = micro_batches(self._lengths[rows], micro_batch_tokens=self.micro_batch_tokens, num_ranks=self.num_ranks)
        batches = [self._collate(rows[cut.rows]) for cut in ranks[self.rank]]
        places = [rows[cut.rows] for cuts in ranks for cut in cuts if len(cut.rows)]
        shapes = [(len(here) * int(self._rows_of_each[here].max()), int(self._widths[here].max())) for here in places]
        slots = sum(number * width for number, width in shapes)
        squares = sum(number * width**2 for number, width in shapes)
        return StepBatches(
            batches,
            [cut.number for cut in ranks[self.rank]],
            self.task.weights([self.features[row] for row in rows], self.class_weights),
            tokens=int(self._tokens[rows].sum()),
            slots=slots,
            flops=training_flops(
                self._shape,
                tokens=int(self._tokens[rows].sum()),
                squares=squares,
                targets=0,
                pairs=0,
                read=int(self._rows_of_each[rows].sum()) if self._reads_rows else None,
            ),
        )

    def longest(self) -> Batch:
        """Return the largest micro-batch that these features can make, with a mask, as padded ones take more."""
        order = np.argsort(-self._lengths, kind="stable")
        longest = int(self._lengths[order[0]])
        budget = {"micro_batch_tokens": self.micro_batch_tokens, "batch_size": self.batch_size}
        rows, length = largest_shape(longest, **budget)
        fitting = order[self._lengths[order] <= length][:rows]  # the shape may be one of more and shorter rows
        full = order[: min(self.batch_size, max(1, self.micro_batch_tokens // longest))]
        batch = self._collate(max((fitting, full), key=lambda places: int(self._lengths[places].sum())))
        return {"attention_mask": torch.ones_like(batch["input_ids"], dtype=torch.bool), **batch}

    def describe(self, step: int) -> str:
        """Return which examples a step has, in words."""
        names = [self.ids[self.features[row].example] for row in self._rows(step)]
        rest = len(names) - SHOWN_EXAMPLES
        shown = ", ".join(names[:SHOWN_EXAMPLES])
        return f"examples {shown}" + (f" and {rest} more" if rest > 0 else "")

    def _rows(self, step: int) -> NDArray[np.int64]:
        epoch, inside = divmod(step, self.steps_in_epoch)
        return global_batch(
            seed=self.seed, epoch=epoch, step=inside, num_rows=len(self.features), batch_size=self.batch_size
        )

    def _collate(self, rows: NDArray[np.int64]) -> Batch:
        # A micro-batch without rows is one row that counts for nothing, as not every task has a shape for none.
        if not len(rows):
            batch = self.task.collate([self.features[0]], pad_id=self.pad_id, task=self._config)
            return {name: tensor[:0] for name, tensor in batch.items()}
        return self.task.collate([self.features[row] for row in rows], pad_id=self.pad_id, task=self._config)
