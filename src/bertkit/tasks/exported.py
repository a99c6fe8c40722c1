"""How well exported files answer labelled examples, beside the model that they were made of.

In: a Predictor, examples with labels, a function that asks each file.  Out: figures by file.
Next: ../model/export.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.data.features import CoverageReport
from bertkit.model.architectures import TaskModel
from bertkit.model.export import Answer
from bertkit.model.task_heads import TaskOutput
from bertkit.tasks.predicting import Predictor


def figures_of_files(
    predictor: Predictor, examples: Sequence[Any], files: Mapping[str, Answer]
) -> dict[str, dict[str, float]]:
    """Return {"model" or file name: figures by name} of the model and of what asks each of its files."""
    asked = {"model": predictor}
    for name, answer in files.items():
        stand_in = cast(TaskModel, _FromFile(predictor.model, answer))  # is called as one, and that is all
        asked[name] = replace(predictor, model=stand_in, coverage=CoverageReport())
    return {name: one.metrics(examples, list(one.answers(examples)))[0] for name, one in asked.items()}


class _FromFile(nn.Module):
    """A model whose logits come from a file; the one it was made of says the labels, and where tensors lie."""

    def __init__(self, model: TaskModel, answer: Answer) -> None:
        super().__init__()
        self.model, self.task, self._answer = model, model.task, answer

    def forward(
        self,
        input_ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        choice_mask: Tensor | None = None,
    ) -> TaskOutput:
        """Return the logits; choice_mask: not read, as scores of choices that are not there are cut off later."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        inputs = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": types}
        found = self._answer({name: tensor.cpu().numpy() for name, tensor in inputs.items()})
        logits = found[0] if len(found) == 1 else np.stack(found, axis=-1)  # of a span: (batch, seq, 2)
        return TaskOutput(None, torch.from_numpy(logits))
