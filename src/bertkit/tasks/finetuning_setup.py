"""A fine-tuning run opened: its data agreed on, its model loaded with the head that the data needs, its folder made.

In: ReadParts, settings, a model folder.  Out: a FineTuningRun.  Next: finetuning_run.py
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.console import say
from bertkit.data.examples.example import TextExample
from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError
from bertkit.model.architectures import Head, TaskModel, build
from bertkit.model.config import BertConfig, read_json_object
from bertkit.model.contents import CONFIG
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import load_with_report
from bertkit.model.task_config import TaskConfig, reading_from_json
from bertkit.model.task_heads import SequenceClassificationModel
from bertkit.tasks.class_weights import weights_of_classes
from bertkit.tasks.example_files import ReadParts
from bertkit.tasks.finetuning import FineTuningTask
from bertkit.tasks.finetuning_data import TaskData, agree_on, build_features, label_counts
from bertkit.tasks.finetuning_run import FineTuningRun
from bertkit.tasks.foreign_task import MAX_SEQ_LENGTH_OF_QUESTIONS
from bertkit.tasks.layers import cut_after, freeze, prepare, with_dropout
from bertkit.tasks.task_file import read_task_file
from bertkit.tasks.task_names import task_named
from bertkit.tasks.task_settings import QUESTIONS, TaskName, TaskSettings
from bertkit.tasks.tokenizers import fitting_tokenizer
from bertkit.train import runtime as runtimes
from bertkit.train.checkpoint import find_checkpoint_on_all
from bertkit.train.settings import TrainSettings

MAX_SEQ_LENGTH = 128  # tokens of a row, unless said otherwise; of questions below


@dataclass(frozen=True)
class BaseModel:
    """The model that fine-tuning starts from."""

    name_or_path: str
    allow_pickle_weights: bool
    hidden_dropout_prob: float | None  # None: as its configuration says
    attention_probs_dropout_prob: float | None
    classifier_dropout: float | None
    freeze_layers: int | None
    new_head: bool  # also where the folder has one that fits


def open_run(
    directory: Path,
    *,
    task: str,
    base: BaseModel,
    parts: ReadParts,
    reading: ReadingSettings,
    settings: TaskSettings,
    training: TrainSettings,
) -> FineTuningRun:
    """Return the run with its labels agreed on and its model loaded; the folder is made.

    Raises:
        InputError: data with anything wrong in it, a model that does not fit, no such checkpoint.
    """
    chosen = task_named(task)
    data = agree_on(chosen, parts, reading)
    weights = _class_weights(chosen, data, settings)
    runtime = runtimes.start(training)
    checkpoint = None
    if training.resume_from is not None:
        checkpoint = find_checkpoint_on_all(runtime, directory, training.resume_from)
    config = replace(data.config, pooling=settings.pooling, classifier_dropout=base.classifier_dropout)
    data.config = config
    model, newly_made = _model(base, checkpoint, config, chosen.head, settings)
    if config.problem_type == "regression" and "classifier.bias" in newly_made:
        _begin_at_the_mean(model, data.examples["train"])
    folder = checkpoint or model_directory(base.name_or_path, allow_pickle_weights=base.allow_pickle_weights)
    tokenizer = fitting_tokenizer(folder, vocab_size=model.config.vocab_size)
    settings = _within(settings, model.config, chosen.name)
    build_features(chosen, data, tokenizer, settings)
    if base.freeze_layers is not None:
        freeze(model.encoder, base.freeze_layers)
    prepare(model.encoder, training)
    runtimes.make_shared_folder(directory, runtime)
    return FineTuningRun(
        directory=directory,
        task=chosen,
        data=data,
        settings=settings,
        model=model.to(runtime.device),
        tokenizer=tokenizer,
        runtime=runtime,
        checkpoint=checkpoint,
        base=base.name_or_path,
        class_weights=weights,
    )


def _class_weights(
    task: FineTuningTask[Any, Any, Any], data: TaskData, settings: TaskSettings
) -> NDArray[np.float32] | None:
    """The weight of each class, (labels,), or None where every example counts alike.

    Raises:
        InputError: weights or smoothing of a loss that is not over classes; a file of weights that does not fit.
    """
    names, problem = data.config.labels, data.config.problem_type
    if settings.class_weights is not None and problem == "regression":
        raise InputError(f"has no meaning for {problem}", field="--class_weights", value=settings.class_weights)
    if settings.label_smoothing and problem != "single_label_classification":
        raise InputError(f"has no meaning for {problem}", field="--label_smoothing", value=settings.label_smoothing)
    counts = label_counts(task, data.examples["train"], names) if settings.class_weights else []
    return weights_of_classes(settings.class_weights, counts, names)


def _model(
    base: BaseModel, checkpoint: Path | None, task: TaskConfig, head: Head, settings: TaskSettings
) -> tuple[TaskModel, list[str]]:
    """The model with the head that the data needs, and what of it is new; a head of the folder with other labels, or
    that reads something else of the encoder, is not taken.

    Layers above those that the head reads are left away; those of a checkpoint were when the run began.
    """
    if checkpoint is None:
        task = replace(task, layers=tuple(settings.layers), combine=settings.combine)
    else:
        _require_same_reading(checkpoint, settings)
        task = replace(task, **reading_from_json(read_json_object(checkpoint / CONFIG), file=checkpoint / CONFIG))
    model, report = load_with_report(
        checkpoint or base.name_or_path,
        head=head,
        allow_new_head=checkpoint is None,
        allow_pickle_weights=base.allow_pickle_weights,
        task=task,
        new_head=base.new_head and checkpoint is None,
    )
    say(f"model loaded from {checkpoint or base.name_or_path}: {report.summary()}")
    assert isinstance(model, TaskModel)
    config = with_dropout(
        model.config,
        hidden_dropout_prob=base.hidden_dropout_prob,
        attention_probs_dropout_prob=base.attention_probs_dropout_prob,
    )
    if checkpoint is None:
        config, mix = cut_after(config, settings.layers, combine=settings.combine)
        task = replace(task, **{"layers": None, "combine": "last", **mix})
        if config.num_hidden_layers < model.config.num_hidden_layers:
            say(f"the model ends after layer {config.num_hidden_layers} of {model.config.num_hidden_layers}")
    if config == model.config:
        return model, report.newly_made
    again, state = build(config, head=head, task=task), model.state_dict()
    again.load_state_dict({name: state[name] for name in again.state_dict()})
    assert isinstance(again, TaskModel)
    return again, report.newly_made


def _require_same_reading(checkpoint: Path, settings: TaskSettings) -> None:
    """Refuse to go on with a head that reads something else of the encoder than is asked for now, however inexactly.

    Raises:
        InputError: it does.
    """
    before = read_task_file(checkpoint).settings
    for name in ("pooling", "layers", "combine"):
        then, now = getattr(before, name), getattr(settings, name)
        if then != now:
            raise InputError(
                "contradicts the run that is resumed",
                field=f"--{name}",
                value=now,
                expected=f"{then}, as when it began",
                remedy="leave it out, or start a new run in another --output_dir",
            )


def _begin_at_the_mean(model: TaskModel, examples: Sequence[TextExample]) -> None:
    """Let the new head of a regression answer the mean of the training labels before its first step.

    Hugging Face begins at 0. At a rate of 1e-4 the bias alone would need ten thousand steps for a mean of 1, so that
    the encoder is bent in its place, by what has nothing to do with the texts (docs/performance.md).
    """
    assert isinstance(model, SequenceClassificationModel)
    scores = [example.score for example in examples if example.score is not None]
    mean = math.fsum(scores) / len(scores)
    torch.nn.init.constant_(model.classifier.bias, mean)
    say(f"the new head begins with the mean of the labels in training, {mean:.4g}")


def _within(settings: TaskSettings, config: BertConfig, task: TaskName) -> TaskSettings:
    """The settings with the length of a row fixed: as asked, or the task's usual one, at most the model's positions.

    Raises:
        InputError: more was asked for than the model has positions.
    """
    positions, asked = config.max_position_embeddings, settings.max_seq_length
    if asked is not None and asked > positions:
        raise InputError(
            f"is longer than the {positions} positions of the model",
            field="--max_seq_length",
            value=asked,
            remedy=f"use at most {positions}",
        )
    usual = MAX_SEQ_LENGTH_OF_QUESTIONS if task == QUESTIONS else MAX_SEQ_LENGTH
    return replace(settings, max_seq_length=asked or min(usual, positions))
