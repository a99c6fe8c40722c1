"""The labelled data of a fine-tuning run: its parts checked against each other, turned into features.

In: ReadParts, settings, a task.  Out: TaskData, everything wrong with it said before the first step.
Next: finetuning_run.py
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertkit.console import say, table, warn
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.splits import warn_of_leaks, warn_of_repeats
from bertkit.data.features import CoverageReport
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import ReadParts
from bertkit.tasks.finetuning import FineTuningTask
from bertkit.tasks.task_settings import Knowledge, TaskSettings
from bertkit.text.tokenizer import Tokenizer

PARTS = ("train", "validation", "test")


@dataclass
class TaskData:
    """The parts, and what a model must have to be trained on them."""

    examples: dict[str, list[Any]]
    config: TaskConfig
    knowledge: Knowledge
    report: ExampleReport
    features: dict[str, list[Any]] = field(default_factory=dict)
    coverage: dict[str, CoverageReport] = field(default_factory=dict)

    @property
    def watched_part(self) -> str | None:
        """The part that is evaluated on the way: validation, else test; None: nothing is held out."""
        return next((part for part in ("validation", "test") if part in self.examples), None)


def agree_on(task: FineTuningTask[Any, Any, Any], parts: ReadParts, settings: ReadingSettings) -> TaskData:
    """Return the parts with their labels agreed on, and say what was read, changed, dropped, shared and repeated.

    Raises:
        InputErrors: labels that do not fit the task.
    """
    report = parts.report
    examples, config, knowledge = task.resolve(parts.examples, settings, report)
    warn_of_leaks(examples, report)
    warn_of_repeats(examples, report)
    report.say()
    data = TaskData(examples, config, knowledge, report)
    counts = ", ".join(f"{len(data.examples[part]):,} for {part}" for part in PARTS if part in data.examples)
    say(f"data: {counts}")
    if data.watched_part is None:
        warn("nothing is held out: give --validation_file or --validation_split 0.1, or no figure says how good it is")
    elif data.watched_part == "test":
        warn("the test part decides which checkpoint is best, so its figures flatter: give --validation_split 0.1, say")
    return data


def build_features(
    task: FineTuningTask[Any, Any, Any], data: TaskData, tokenizer: Tokenizer, settings: TaskSettings
) -> None:
    """Make the features of every part, and say what of it a model does not get to see.

    Raises:
        InputError: rows too short for the texts.
    """
    for part, examples in data.examples.items():
        data.coverage[part] = CoverageReport()
        data.features[part] = task.features(
            examples,
            tokenizer,
            settings=settings,
            task=data.config,
            knowledge=data.knowledge,
            coverage=data.coverage[part],
        )
        say(f"{part}:\n{table(data.coverage[part].rows())}")


def label_counts(task: FineTuningTask[Any, Any, Any], examples: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return how many labels of each name the examples have."""
    counts: Counter[str] = Counter()
    for example in examples:
        gold = task.gold(example)
        counts.update([str(gold)] if isinstance(gold, str) else map(str, gold))
    return [counts[name] for name in names]
