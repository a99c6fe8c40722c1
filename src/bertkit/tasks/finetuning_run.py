"""One fine-tuning run put together: its model and batches, what is measured and saved on the way, its end.

In: TaskData, a model folder, settings.  Out: the loop's Job and TrainState; the finished RUN folder.
Next: ../train/loop.py
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertkit.console import Progress, say, warn
from bertkit.files import write_atomically
from bertkit.model.architectures import TaskModel, architecture_of, needs_bertkit
from bertkit.model.card import task_card
from bertkit.model.pretrained import load, model_files
from bertkit.tasks.finetuning import FineTuningTask, Metrics, Outputs
from bertkit.tasks.finetuning_data import TaskData
from bertkit.tasks.finetuning_source import FeatureSource, TaskLoss
from bertkit.tasks.layers import is_layer_matrix, layers_above, prepare
from bertkit.tasks.predicting import Predictor
from bertkit.tasks.task_file import TASK_FILE, task_file
from bertkit.tasks.task_settings import Knowledge, TaskSettings, thresholds_in_words
from bertkit.text.tokenizer import Tokenizer
from bertkit.train import trial
from bertkit.train.checkpoint import find_checkpoint
from bertkit.train.log import MetricsLog, closed_on_failure
from bertkit.train.loop import Job, Log
from bertkit.train.record import environment, update_run
from bertkit.train.run import Task, facts_at_the_end, fingerprint_of, make_job, put_back, require_disk, state_at
from bertkit.train.runtime import Runtime
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState

MODEL_CARD = "README.md"
PREDICTIONS = "predictions"  # RUN/predictions_PART.jsonl


@dataclass
class FineTuningRun:
    """What a run works with; `base` names the model it starts from."""

    directory: Path
    task: FineTuningTask[Any, Any, Any]
    data: TaskData
    settings: TaskSettings
    model: TaskModel
    tokenizer: Tokenizer
    runtime: Runtime
    checkpoint: Path | None
    base: str
    class_weights: NDArray[np.float32] | None  # (labels,); None: every example counts alike
    knowledge: Knowledge = field(init=False)  # with what was tuned on the validation part

    def __post_init__(self) -> None:
        self.knowledge = self.data.knowledge

    def source(self, training: TrainSettings) -> FeatureSource:
        """Return the batches of the training part."""
        return FeatureSource(
            self.task,
            self.data.features["train"],
            [example.id for example in self.data.examples["train"]],
            self.model,
            pad_id=self.tokenizer.vocabulary.pad_id,
            seed=training.seed,
            batch_size=training.batch_size,
            micro_batch_tokens=training.micro_batch_tokens,
            class_weights=self.class_weights,
            rank=self.runtime.rank,
            num_ranks=self.runtime.num_ranks,
        )

    def job(self, training: TrainSettings, *, log: Log, fingerprint: Mapping[str, Any]) -> Job:
        """Return the loop's job."""
        layers = self.model.config.num_hidden_layers
        weights = self.class_weights
        module = TaskLoss(
            self.model,
            self.task,
            class_weights=None if weights is None else torch.from_numpy(weights).to(self.runtime.device),
            label_smoothing=self.settings.label_smoothing,
        )

        def files(evaluated: nn.Module) -> dict[str, bytes]:
            assert isinstance(evaluated, TaskLoss)
            return self.files(evaluated.model, training, results={})

        metric, higher = self.task.best_by(self.data.config)
        held_out = self.data.watched_part is not None
        task = Task(
            module=module,
            units=list(self.model.encoder.layers),
            source=self.source(training),
            evaluate=self.evaluate,
            files=files,
            is_layer_matrix=is_layer_matrix,
            layers_above=lambda name: layers_above(name, layers),
            deciding_metric=metric if held_out else "step",
            higher_is_better=higher,
            begins_low=self.data.config.problem_type == "regression",
        )
        return make_job(
            task,
            training,
            self.runtime,
            directory=self.directory,
            log=log,
            fingerprint=fingerprint,
            peak_flops=trial.matrix_rate(self.runtime),
        )

    def seconds_a_step(self, training: TrainSettings) -> float:
        """Return how long a step takes here, measured on a copy of the model."""
        log = MetricsLog(self.directory, after_step=0, report_to="none", writes=False)
        training = replace(training, max_steps=None, max_minutes=None, num_train_epochs=None)
        model = copy.deepcopy(self.model)
        prepare(model.encoder, training)  # a copy is not compiled
        return trial.seconds_a_step(replace(self, model=model).job(training, log=log, fingerprint={}))

    def start(
        self, training: TrainSettings, *, settings: Mapping[str, Any], record: Mapping[str, Any]
    ) -> tuple[Job, TrainState]:
        """Return the job and where it starts.

        settings: what must be the same in a resumed run; record: all settings, for run.json.

        Raises:
            InputError: a resume that would not be exact, no room on the disk or in memory.
        """
        data = {"data": self._hash_of_data(), "model": self.model.config.to_json()}
        fingerprint = fingerprint_of(settings, self.runtime, data)
        state = state_at(self.checkpoint, fingerprint, allow_inexact=training.allow_inexact)
        log = MetricsLog(
            self.directory, after_step=state.step, report_to=training.report_to, writes=self.runtime.is_first
        )
        with closed_on_failure(log):
            job = self.job(training, log=log, fingerprint=fingerprint)
            require_disk(job, self.directory)
            parameters = sum(parameter.numel() for parameter in self.model.parameters())
            steps = f"{training.max_steps:,} steps of {training.batch_size} rows on {self.runtime.device}"
            say(f"{self.task.name}: {parameters:,} parameters; {training.optimizer}, {steps}")
            trial.try_longest_batch(job)
            if self.checkpoint is not None:
                put_back(self.checkpoint, job, state)
            elif self.runtime.is_first:
                facts = {"settings": dict(record), "seed": training.seed, "data": data["data"], "base": self.base}
                update_run(self.directory, {**environment(), **self.runtime.description(), **facts})
        return job, state

    def _hash_of_data(self) -> str:
        """The examples of all parts, as read."""
        digest = hashlib.sha256()
        for part, examples in self.data.examples.items():
            for example in examples:
                content = replace(example, file="")  # the same data may be named by another path
                digest.update(f"{part}\0{content!r}\0".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def evaluate(self, module: nn.Module, step: int, log: Log) -> Metrics:
        """Evaluate on the watched part, write down and say what was found; without one the step says which is best."""
        assert isinstance(module, TaskLoss)
        part = self.data.watched_part
        if part is None:
            return {"step": float(step)}
        metrics, _, _ = self.measure(module.model, part, self.scores(module.model, part))
        log.write("validation", step, metrics)
        say(f"step {step:,}, {part}: {in_words(metrics)}")
        return metrics

    def scores(self, model: TaskModel, part: str) -> Outputs:
        """Return what the model gives for each feature of a part."""
        features = self.data.features[part]
        with Progress(f"evaluating {part}", total=len(features), unit="rows", brief=True) as progress:
            return self._predictor(model).scores(features, runtime=self.runtime, progress=progress)

    def measure(self, model: TaskModel, part: str, scores: Outputs) -> tuple[Metrics, dict[str, Any], list[Any]]:
        """Return the figures, tables and answers of a part that its scores give."""
        predictor, examples = self._predictor(model), self.data.examples[part]
        answers = predictor.decode(examples, self.data.features[part], scores)
        return *predictor.metrics(examples, answers), answers

    def _predictor(self, model: TaskModel) -> Predictor:
        return Predictor(model, self.tokenizer, self.task, self.settings, self.knowledge)

    def finish(self, job: Job, state: TrainState) -> dict[str, Any]:
        """Put the best model into RUN with its tuned threshold, evaluate it on what is held out, return the results."""
        self.runtime.wait_for_all()
        best = find_checkpoint(self.directory, "best")
        model = load(best, head=self.task.head)
        assert isinstance(model, TaskModel)
        model.to(self.runtime.device)
        parts: list[str] = [part for part in ("validation", "test") if part in self.data.examples] or ["train"]
        scores = {part: self.scores(model, part) for part in parts}
        if "validation" in parts:
            _, _, answers = self.measure(model, "validation", scores["validation"])
            self.knowledge = self.task.tuned(self.data.examples["validation"], answers, self.knowledge)
            for line in thresholds_in_words(self.knowledge, self.settings):
                say(line)
        results: dict[str, Any] = {"task": self.task.name, "global_step": state.best_step}
        for part in parts:
            metrics, tables, answers = self.measure(model, part, scores[part])
            results[part] = {**metrics, **tables, "examples": len(answers)}
            say(f"best model (step {state.best_step:,}), {part}: {in_words(metrics)}")
            if "warning" in tables:
                warn(f"{part}: {tables['warning']}")
            if self.runtime.is_first:
                self._write_predictions(part, answers)
        if self.runtime.is_first:
            card = {name: value for name, value in results[parts[-1]].items() if isinstance(value, float)}
            for name, content in self.files(model, job.settings, results=card).items():
                write_atomically(self.directory / name, content)
            coverage = {part: dict(report.rows()) for part, report in self.data.coverage.items()}
            update_run(self.directory, {**facts_at_the_end(state), "coverage": coverage})
        self.runtime.wait_for_all()  # until the first process has written
        return results

    def _write_predictions(self, part: str, answers: list[Any]) -> None:
        """Write an answer a line, with what the file says is right: what report.html shows of errors."""
        lines = []
        for example, answer in zip(self.data.examples[part], answers, strict=True):
            record = self.task.record(example, answer, task=self.data.config)
            shown = {**record, "gold": self.task.gold(example), "text": self.task.text(example)}
            shown |= self.task.shown(example, answer, task=self.data.config)
            lines.append(json.dumps(shown, ensure_ascii=False) + "\n")
        write_atomically(self.directory / f"{PREDICTIONS}_{part}.jsonl", "".join(lines))

    def files(self, model: TaskModel, training: TrainSettings, *, results: Mapping[str, float]) -> dict[str, bytes]:
        """Return the Hugging Face directory of a model of this run: weights, tokenizer, task.json, model card."""
        described = {
            "base model": self.base,
            "training examples": len(self.data.examples["train"]),
            "steps": training.max_steps,
            "rows a step": training.batch_size,
            "learning rate": training.learning_rate,
            "seed": training.seed,
        }
        card = task_card(
            self.task.name,
            model.config,
            labels=model.task.labels,
            architecture=None if needs_bertkit(model) else architecture_of(model),
            training=described,
            results=results,
        )
        files = self.tokenizer.files(model_max_length=model.config.max_position_embeddings)
        saved = task_file(self.task, replace(self.settings, class_weights=None), self.knowledge)
        return {**model_files(model), **files, TASK_FILE: saved, MODEL_CARD: card.encode("utf-8")}


def in_words(metrics: Mapping[str, float]) -> str:
    """Return metrics as one short line for people.

    >>> in_words({"accuracy": 0.91234, "macro_f1": 0.9})
    'accuracy 0.912, macro_f1 0.900'
    """
    return ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
