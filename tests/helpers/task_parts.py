"""A task of fine-tuning taken apart: examples, features and a model with its head, without a run around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from toy_run import toy_model_config, toy_tokenizer
from toy_tasks import TASK_OF, write_task

from bertkit.data.collate import Batch
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import CoverageReport
from bertkit.model.architectures import TaskModel, build
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.finetuning import FineTuningTask
from bertkit.tasks.task_names import task_named
from bertkit.tasks.task_settings import Knowledge, TaskSettings


@dataclass
class Parts:
    """What a run would work with."""

    task: FineTuningTask[Any, Any, Any]
    examples: list[Any]
    config: TaskConfig
    knowledge: Knowledge
    features: list[Any]
    model: TaskModel
    settings: TaskSettings

    def batch(self, features: Sequence[Any] | None = None) -> Batch:
        """The features (all of them) as one batch; [PAD] has id 0."""
        return self.task.collate(self.features if features is None else features, pad_id=0, task=self.config)

    def answers(self, outputs: list[Any]) -> list[Any]:
        """The answers that scores give."""
        return self.task.answers(
            self.examples,
            self.features,
            outputs,
            settings=self.settings,
            task=self.config,
            knowledge=self.knowledge,
        )


def parts_of(
    kind: str, folder: Path, *, number: int = 12, dropout: float = 0.0, file: Path | None = None, **settings: Any
) -> Parts:
    """The parts of a toy task (see toy_tasks), its model's weights random and not small."""
    task, reading, report = task_named(TASK_OF[kind]), ReadingSettings(), ExampleReport()
    path = file or write_task(folder, kind, number=number)
    read = read_examples(task.name, str(path), reading, report, labelled=True, flag="--train_file")
    splits, config, knowledge = task.resolve({"train": read}, reading, report)
    chosen = TaskSettings(**{"max_seq_length": 48, "doc_stride": 8, "max_query_length": 8, **settings})
    features = task.features(
        splits["train"],
        toy_tokenizer(),
        settings=chosen,
        task=config,
        knowledge=knowledge,
        coverage=CoverageReport(),
    )
    torch.manual_seed(0)
    model = build(toy_model_config(dropout=dropout), head=task.head, task=config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert isinstance(model, TaskModel)
    return Parts(task, splits["train"], config, knowledge, features, model.eval(), chosen)
