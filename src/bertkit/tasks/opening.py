"""A fine-tuned model opened with its task, ready to answer.

In: a folder that `bertkit finetune` wrote.  Out: a Predictor.  Next: predicting.py
"""

from pathlib import Path

from bertkit.model.architectures import TaskModel
from bertkit.model.pretrained import load
from bertkit.tasks.predicting import Predictor
from bertkit.tasks.task_file import read_task_file
from bertkit.tasks.task_names import task_named
from bertkit.text.tokenizer import load_tokenizer


def open_predictor(directory: str | Path) -> Predictor:
    """Return the model of a folder with all that its answers depend on.

    Raises:
        InputError: no such folder, or a model that was not fine-tuned by bertkit.
    """
    saved = read_task_file(Path(directory))
    task = task_named(saved.name)
    model = load(directory, head=task.head)
    assert isinstance(model, TaskModel)
    return Predictor(model, load_tokenizer(directory), task, saved.settings, saved.knowledge)
