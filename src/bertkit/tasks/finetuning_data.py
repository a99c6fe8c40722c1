"""The labelled data of a fine-tuning run: its parts read, checked against each other, turned into features.

In: paths, settings, a task.  Out: TaskData, everything wrong with it said before the first step.
Next: finetuning_run.py
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertkit.console import say, table, warn
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.splits import split_validation, warn_of_leaks, warn_of_repeats
from bertkit.data.features import CoverageReport
from bertkit.errors import InputError, InputErrors
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.finetuning import FineTuningTask
from bertkit.tasks.task_settings import Knowledge, TaskSettings
from bertkit.text.tokenizer import Tokenizer

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class DataFiles:
    """Where the labelled data lies."""

    train: str
    validation: str | None
    test: str | None
    validation_split: float | None = None  # share of the training part that becomes the validation part
    split_seed: int = 0  # which of them


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


def read_data(task: FineTuningTask[Any, Any, Any], files: DataFiles, settings: ReadingSettings) -> TaskData:
    """Return the parts with their labels agreed on, and say what was read, changed, dropped, shared and repeated.

    Raises:
        InputErrors: what is wrong with the files, all of it.
    """
    report = ExampleReport(settings.on_bad)
    paths = {"train": files.train, "validation": files.validation, "test": files.test}
    read: dict[str, list[Any]] = {}
    problems: list[InputError] = []
    for part, path in paths.items():
        if path is not None:
            try:
                read[part] = task.read(path, settings, report, labelled=True, flag=f"--{part}_file")
            except InputErrors as several:
                problems += several.problems
            except InputError as problem:
                problems.append(problem)
    if problems:  # those that the report counts, and what kept a file from being opened
        others = [problem for problem in problems if not any(problem is known for known in report.problems)]
        raise InputErrors([*others, *report.problems], total=report.num_problems + len(others))
    if files.validation_split is not None:
        read["train"], read["validation"] = split_validation(
            read["train"], fraction=files.validation_split, seed=files.split_seed
        )
        report.note(f"{len(read['validation']):,} of the training examples are kept for validation")
    examples, config, knowledge = task.resolve(read, settings, report)
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
