"""A fine-tuned model opened with its task, ready to answer.

In: a folder that `bertkit finetune` wrote, or one of transformers.  Out: a Predictor.  Next: predicting.py
"""

from pathlib import Path

from bertkit.console import say
from bertkit.model.architectures import TaskModel
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import load
from bertkit.tasks.foreign_task import foreign_task, in_words
from bertkit.tasks.predicting import Predictor
from bertkit.tasks.task_file import has_task_file, read_task_file
from bertkit.tasks.task_names import task_named
from bertkit.tasks.task_settings import QUESTIONS, for_any_question
from bertkit.tasks.tokenizers import fitting_tokenizer


def open_predictor(directory: str | Path, *, allow_bin: bool = False) -> Predictor:
    """Return the model of a folder, or of an id of the hub, with all that its answers depend on.

    Where no task.json says what the model was fine-tuned for, that is worked out and said.

    allow_bin: open a pickle where the folder has no safetensors.

    Raises:
        InputError: no such folder; a model that was not fine-tuned, or for nobody knows what.
    """
    folder = model_directory(directory, allow_pickle_weights=allow_bin)
    is_ours = has_task_file(folder)
    saved = read_task_file(folder) if is_ours else foreign_task(folder, allow_pickle_weights=allow_bin)
    task = task_named(saved.name)
    model = load(folder, head=task.head, allow_pickle_weights=allow_bin)
    assert isinstance(model, TaskModel)
    tokenizer = fitting_tokenizer(folder, vocab_size=model.config.vocab_size)
    if not is_ours:
        say(in_words(folder, model, saved))
    settings = for_any_question(saved.settings) if saved.name == QUESTIONS else saved.settings
    return Predictor(model, tokenizer, task, settings, saved.knowledge)
