"""What a fine-tuned model must be told again to answer as it was evaluated: task.json beside its weights.

In: a task, its settings, what it learned besides weights.  Out: JSON, and back.  Next: predicting.py
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.errors import InputError
from bertkit.model.config import json_object
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.tasks.task_settings import Knowledge, TaskSettings

if TYPE_CHECKING:
    from bertkit.tasks.finetuning import FineTuningTask

TASK_FILE = "task.json"


@dataclass(frozen=True)
class SavedTask:
    """The content of task.json."""

    name: str
    settings: TaskSettings
    knowledge: Knowledge


def task_of_model(folder: Path, *, allow_pickle_weights: bool) -> str:
    """Return the name of a model's task; torch is only needed for models of others.

    Raises:
        InputError: a model that was not fine-tuned, or for nobody knows what.
    """
    if has_task_file(folder):
        return read_task_file(folder).name
    from bertkit.tasks.foreign_task import foreign_task

    return foreign_task(folder, allow_pickle_weights=allow_pickle_weights).name


def task_file(task: "FineTuningTask[Any, Any, Any]", settings: TaskSettings, knowledge: Knowledge) -> bytes:
    """Return the content of task.json."""
    saved = {
        "task": task.name,
        "settings": dataclasses.asdict(settings),
        "knowledge": dataclasses.asdict(knowledge),
    }
    return (json.dumps(saved, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def has_task_file(directory: Path) -> bool:
    """Return whether a folder has a task.json, whatever is in it.

    Raises:
        InputError: there is no such folder.
    """
    with ForeignFolder(directory) as folder:
        return folder.has(TASK_FILE)


def read_task_file(directory: Path) -> SavedTask:
    """Return what stands in a model's task.json.

    Raises:
        InputError: there is none, or it holds something else.
    """
    path, remedy = directory / TASK_FILE, "fine-tune it first: bertkit finetune"
    with ForeignFolder(directory) as folder:
        content = folder.read(TASK_FILE, what="a model that `bertkit finetune` wrote", remedy=remedy)
    values = json_object(content, file=path)
    try:
        settings, knowledge = _settings(TaskSettings, values["settings"]), _settings(Knowledge, values["knowledge"])
        if type(settings.max_seq_length) is not int:
            raise TypeError("max_seq_length is no number")
        return SavedTask(str(values["task"]), settings, knowledge)
    except (KeyError, TypeError, AttributeError, InputError) as problem:
        raise InputError(
            f"is damaged ({problem!r})", file=path, remedy="copy it from the run's checkpoint again"
        ) from None


def _settings(kind: type, values: dict[str, Any]) -> Any:
    """An instance of a settings class; entries that this version does not know are left out."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})
