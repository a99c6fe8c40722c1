"""What a model fine-tuned elsewhere was trained for, where no task.json says it: worked out from config.json.

In: a Hugging Face folder.  Out: a SavedTask, or an error that says what is not known.  Next: opening.py
"""

from dataclasses import replace
from pathlib import Path

from bertkit.errors import InputError
from bertkit.model.architectures import ARCHITECTURES, CLASSIFIERS, TASKS, Head, TaskModel, head_of, trained_classifier
from bertkit.model.contents import CONFIG, SHOWN_NAMES, contents_of
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.tasks.task_file import SavedTask
from bertkit.tasks.task_settings import Knowledge, TaskSettings

MAX_SEQ_LENGTH_OF_QUESTIONS = 384  # tokens, as in SQuAD since the paper; other rows may have all the model's positions
SPECIAL_TOKENS_OF_A_PAIR = 3


def foreign_task(directory: Path, *, allow_pickle_weights: bool) -> SavedTask:
    """Return the task of a folder without task.json: by its tensors and by `architectures` in config.json.

    Tags are taken one by one and every question is taken to have an answer, as `transformers` does.

    Raises:
        InputError: the folder holds no head of fine-tuning, or one of which nothing says what it was trained for.
    """
    with ForeignFolder(directory) as folder:
        found = contents_of(folder, allow_pickle_weights=allow_pickle_weights)
    head: Head | None = None
    if "qa_outputs.weight" in found.names:
        head = "question_answering"
    elif "classifier.weight" in found.names:
        head = trained_classifier(found.values)
        if head is None:
            raise InputError(
                "does not say what the classifier beside it was trained for: texts, tokens or choices",
                file=directory / CONFIG,
                field="architectures",
                value=found.values.get("architectures"),
                expected=" | ".join(f'["{ARCHITECTURES[head]}"]' for head in CLASSIFIERS),
                remedy="ask who made it, and write the one that is right into config.json",
            )
    if head is None:
        raise InputError(
            "was not fine-tuned: it holds no head for a task",
            file=found.path,
            expected="classifier.weight or qa_outputs.weight, as `bertkit finetune` and transformers write them",
            remedy="fine-tune it first: bertkit finetune",
        )
    settings = _settings(head, positions=found.config.max_position_embeddings)
    return SavedTask(head.replace("_", "-"), settings, Knowledge())


def _settings(head: Head, *, positions: int) -> TaskSettings:
    """Rows as long as the model has positions; of questions the usual windows, smaller where it has but few."""
    settings = TaskSettings(max_seq_length=positions, constrained_decoding=False)
    if head != "question_answering":
        return settings
    length = min(MAX_SEQ_LENGTH_OF_QUESTIONS, positions)
    query = max(1, min(settings.max_query_length, length // 4))
    stride = max(1, min(settings.doc_stride, (length - query - SPECIAL_TOKENS_OF_A_PAIR) // 2))
    return replace(settings, max_seq_length=length, max_query_length=query, doc_stride=stride)


def in_words(directory: Path, model: TaskModel, saved: SavedTask) -> str:
    """Return one line on what a model without task.json is taken for."""
    head, task = head_of(model), model.task
    assert head in TASKS
    parts = [f"{directory} has no task.json; by its config.json and tensors it is a {ARCHITECTURES[head]}"]
    if head == "sequence_classification":
        parts.append(task.problem_type)
    if head in ("sequence_classification", "token_classification"):
        more = f" … ({task.num_labels})" if task.num_labels > SHOWN_NAMES else ""
        parts.append(f"labels {', '.join(task.labels[:SHOWN_NAMES])}{more}")
    if head == "question_answering":
        parts.append("every question is taken to have an answer")
    return "; ".join([*parts, f"rows of at most {saved.settings.max_seq_length} tokens"])
