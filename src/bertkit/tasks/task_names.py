"""The four tasks of fine-tuning by their words on the command line.

In: a word.  Out: the task.  Next: finetuning_run.py
"""

from typing import Any

from bertkit.tasks.finetuning import FineTuningTask
from bertkit.tasks.multiple_choice import MultipleChoice
from bertkit.tasks.question_answering import QuestionAnswering
from bertkit.tasks.sequence_classification import SequenceClassification
from bertkit.tasks.task_settings import checked_task
from bertkit.tasks.token_classification import TokenClassification


def task_named(name: str) -> FineTuningTask[Any, Any, Any]:
    """Return the task of that name.

    Raises:
        InputError: there is none.
    """
    tasks: list[FineTuningTask[Any, Any, Any]] = [
        SequenceClassification(),
        TokenClassification(),
        MultipleChoice(),
        QuestionAnswering(),
    ]
    return next(task for task in tasks if task.name == checked_task(name))
