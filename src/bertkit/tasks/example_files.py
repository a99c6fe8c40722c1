"""Labelled files read by task and part, without torch: what is wrong with them is said before anything slow is loaded.

In: paths, ReadingSettings, the name of a task.  Out: examples of each part, labels as they stand; an ExampleReport.
Next: finetuning_data.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bertkit.data.examples.choices import read_choice_examples
from bertkit.data.examples.classification import read_text_examples
from bertkit.data.examples.questions import read_question_examples
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.splits import split_validation
from bertkit.data.examples.tagging import read_tagged_examples
from bertkit.errors import InputError, InputErrors
from bertkit.tasks.task_settings import CHOICES, QUESTIONS, TAGS, TEXTS, TaskName, checked_task


class Reader(Protocol):
    """What reads the files of a task."""

    def __call__(
        self, paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool, flag: str
    ) -> list[Any]:
        """Return the examples of files; `labelled`: whether they must have labels; `flag`: what errors call them."""
        ...


READERS: Mapping[TaskName, Reader] = {
    TEXTS: read_text_examples,
    TAGS: read_tagged_examples,
    CHOICES: read_choice_examples,
    QUESTIONS: read_question_examples,
}


@dataclass(frozen=True)
class DataFiles:
    """Where the labelled data lies."""

    train: str
    validation: str | None
    test: str | None
    validation_split: float | None = None  # share of the training part that becomes the validation part
    split_seed: int = 0  # which of them


@dataclass(frozen=True)
class ReadParts:
    """The examples of each part as they stand in the files, and what became of every record."""

    examples: dict[str, list[Any]]
    report: ExampleReport


def read_examples(
    task: str, paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool, flag: str
) -> list[Any]:
    """Return the examples of files, in order.

    labelled: whether they must have labels; flag: what the errors call the paths.

    Raises:
        InputError: there is no such task.
        InputErrors: what is wrong with the files.
    """
    return READERS[checked_task(task)](paths, settings, report, labelled=labelled, flag=flag)


def read_parts(task: str, files: DataFiles, settings: ReadingSettings) -> ReadParts:
    """Return the parts of a run, a validation part split off where one is asked for.

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
                read[part] = read_examples(task, path, settings, report, labelled=True, flag=f"--{part}_file")
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
    return ReadParts(read, report)
