"""What a user may set about the tasks of fine-tuning; free of torch, so that `--help` is quick.

In: flags or YAML.  Out: one frozen TaskSettings, checked; what a model knows besides its weights.  Next: finetuning.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from bertkit.data.examples.reading import ReadingSettings, SchemeName
from bertkit.data.features import PAIR_SPECIAL
from bertkit.errors import InputError, InputErrors
from bertkit.model.task_config import Combine, Pooling
from bertkit.options import changed, option, values_of, without_effect

TaskName = Literal["sequence-classification", "token-classification", "multiple-choice", "question-answering"]
TEXTS: TaskName = "sequence-classification"
TAGS: TaskName = "token-classification"
CHOICES: TaskName = "multiple-choice"
QUESTIONS: TaskName = "question-answering"
# The tasks that know an option of TaskSettings or ReadingSettings; those that are not here belong to every task.
KNOWN_BY: Mapping[str, tuple[TaskName, ...]] = {
    "stride": (TEXTS, TAGS),
    "long_texts": (TEXTS,),
    "vote": (TEXTS,),
    "pooling": (TEXTS, CHOICES),
    "class_weights": (TEXTS, TAGS),
    "label_smoothing": (TEXTS, TAGS),
    "constrained_decoding": (TAGS,),
    "doc_stride": (QUESTIONS,),
    "max_query_length": (QUESTIONS,),
    "n_best_size": (QUESTIONS,),
    "max_answer_length": (QUESTIONS,),
    "null_score_diff_threshold": (QUESTIONS,),
    "text_pair_column": (TEXTS, QUESTIONS),
    "label_column": (TEXTS, TAGS, CHOICES),
    "pair_separator": (TEXTS,),
    "separator": (TEXTS, CHOICES, QUESTIONS),
    "tag_column": (TAGS,),
    "choice_columns": (CHOICES,),
    "context": (CHOICES,),
    "scheme": (TAGS,),
    "repair_tags": (TAGS,),
    "problem_type": (TEXTS,),
    "repair_offsets": (QUESTIONS,),
    "on_bad_answers": (QUESTIONS,),
}
# What says how labels are read, which matters only where they are looked at. (Columns of labels do matter: that a text
# has a tag for each character says what its words are, and a column that is named says that a file has a header.)
OF_LABELS = ("scheme", "problem_type", "repair_tags", "repair_offsets", "on_bad_answers")
# Of texts: what does something beside some values of another option only.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "stride": ("long_texts", ("windows",)),
    "vote": ("long_texts", ("windows",)),
}


@dataclass(frozen=True)
class TaskSettings:
    """How examples become rows, and scores become answers; kept beside the model, so that predictions do the same."""

    max_seq_length: int | None = option(
        None, help="tokens of a row, special ones included; null: 384 for questions, else 128, at most the model's"
    )
    stride: int | None = option(None, help="tokens from a window to the next, of long texts and sentences; null: half")
    long_texts: Literal["cut", "windows"] = option(
        "cut", help="of a text longer than a row (classification): cut it, or classify all its windows"
    )
    vote: Literal["mean", "max"] = option("mean", help="how the scores of a text's windows become one")
    pooling: Pooling = option(
        "pooler",
        help="texts and choices are read by the pooler's output, by [CLS] itself, or by the mean of all tokens",
        fixed=True,
    )
    layers: list[int] = option([-1], help="layers that the head reads: 0 the embeddings, -1 the last", fixed=True)
    combine: Combine = option(
        "last", help="how several layers become one; last: the deepest of them, and the model ends there", fixed=True
    )
    class_weights: str | None = option(
        None, help="auto (all classes count alike), or a JSON file {label: weight}; null: every example counts alike"
    )
    label_smoothing: float = option(0.0, help="share of the target spread over all labels")
    constrained_decoding: bool = option(True, help="tags: the best sequence that the scheme allows, not tag by tag")
    doc_stride: int = option(
        128, help="questions: tokens from the start of a window to the next (the step; windows overlap by the rest)"
    )
    max_query_length: int = option(64, help="questions: tokens of the question; the rest is cut and counted")
    n_best_size: int = option(20, help="questions: candidates kept")
    max_answer_length: int = option(30, help="questions: tokens of an answer")
    null_score_diff_threshold: float | None = option(
        None, help="questions: no answer above this score difference; null: tuned on the validation part, else 0"
    )

    def __post_init__(self) -> None:
        for name, number in {
            "max_seq_length": self.max_seq_length,
            "stride": self.stride,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
            "n_best_size": self.n_best_size,
            "max_answer_length": self.max_answer_length,
        }.items():
            if number is not None and number < 1:
                raise InputError("is not a number of 1 or more", field=f"--{name}", value=number)
        if not 0 <= self.label_smoothing < 1:
            raise InputError("is no share", field="--label_smoothing", value=self.label_smoothing, expected="0 ≤ s < 1")


def checked_task(name: str) -> TaskName:
    """Return the name of a task as one.

    Raises:
        InputError: there is no such task.
    """
    for task in get_args(TaskName):
        if task == name:
            found: TaskName = task
            return found
    raise InputError("is no task", field="TASK", value=name, expected=" | ".join(get_args(TaskName)))


def require_known(task: str, *groups: TaskSettings | ReadingSettings) -> None:
    """Refuse options that were set and that the task does not know, or that do nothing beside its others.

    Raises:
        InputErrors: all of them, with the tasks that know them.
    """
    problems: list[InputError] = []
    for settings in groups:
        values, defaults = values_of(settings), values_of(type(settings)())
        problems += [
            InputError(
                f"is no option of {task}",
                field=f"--{name}",
                value=value,
                expected=f"it belongs to {', '.join(KNOWN_BY[name])}",
                remedy="leave it out, or check the task",
            )
            for name, value in changed(values, defaults).items()
            if task not in KNOWN_BY.get(name, (task,))
        ]
        if task == TEXTS and isinstance(settings, TaskSettings):
            problems += without_effect(values, defaults, NEEDS)
    if problems:
        raise InputErrors(problems)


def length_of_rows(settings: TaskSettings) -> int:
    """Return the tokens of a row; the setting is fixed once the model is known."""
    assert settings.max_seq_length is not None
    return settings.max_seq_length


def for_any_question(settings: TaskSettings) -> TaskSettings:
    """Return the settings with questions cut to what leaves doc_stride tokens of room beside them.

    In training a longer one is an error; a question that is asked later must not be one, and is cut and counted.
    """
    room = length_of_rows(settings) - PAIR_SPECIAL - settings.doc_stride
    return replace(settings, max_query_length=max(1, min(settings.max_query_length, room)))


@dataclass(frozen=True)
class Knowledge:
    """What a trained model must be told again to answer as it was evaluated; task.json beside the model."""

    scheme: SchemeName | None = None  # of tags
    unanswerable: bool = False  # whether questions may have no answer
    threshold: float | None = None  # of a label's probability, or of null_odds
    pairs: bool | None = None  # whether what was learnt from were two texts each; None: not known, or some of both

    def __post_init__(self) -> None:
        known = get_args(SchemeName)
        if self.scheme not in (None, *known):
            raise InputError("is no scheme", field="scheme", value=self.scheme, expected=" | ".join(known))


def thresholds_in_words(knowledge: Knowledge, settings: TaskSettings) -> list[str]:
    """Return what decides between answer and none as a line for people; no line where nothing does.

    >>> thresholds_in_words(Knowledge(threshold=0.25), TaskSettings())
    ['a text gets every label of a probability from 0.250 up']
    """
    threshold = knowledge.threshold
    if knowledge.unanswerable and settings.null_score_diff_threshold is not None:
        threshold = settings.null_score_diff_threshold
    if threshold is None:
        return []
    if knowledge.unanswerable:
        return [f"a question gets no answer where its null_odds are above {threshold:.3f}"]
    return [f"a text gets every label of a probability from {threshold:.3f} up"]
