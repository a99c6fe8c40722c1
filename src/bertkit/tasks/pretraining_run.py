"""One pre-training run put together: its data and optimizers, what is measured and saved on the way, its end.

In: a store, settings, a model size or folder.  Out: the loop's Job and TrainState; the finished RUN folder.
Next: train/loop.py
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from bertkit.console import say
from bertkit.data.pairs import SPECIALS_OF_A_TEXT
from bertkit.data.store import MANIFEST, Store
from bertkit.files import write_atomically
from bertkit.model.card import model_card
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load, model_files
from bertkit.tasks import diagnosis
from bertkit.tasks.held_out import GOOGLE_NAMES, evaluate, in_words, sample_texts, unigram_loss
from bertkit.tasks.layers import is_layer_matrix, layers_above, prepare
from bertkit.tasks.phases import Phase
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.tasks.pretraining_model import num_parameters
from bertkit.text.tokenizer import Tokenizer
from bertkit.train import runtime as runtimes
from bertkit.train import trial
from bertkit.train.checkpoint import find_checkpoint
from bertkit.train.log import MetricsLog, closed_on_failure
from bertkit.train.loop import Job, Log
from bertkit.train.record import environment, update_run
from bertkit.train.run import Task, facts_at_the_end, fingerprint_of, make_job, put_back, require_disk, state_at
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState

MODEL_CARD = "README.md"
Sampler = Callable[[PretrainingModel, Tokenizer, list[str]], list[dict[str, str]]]


@dataclass(frozen=True)
class MeanStep:
    """What a step takes, the mean over a run's phases, each for its share."""

    seconds: float
    tokens: float  # padding not counted
    flops: float


@dataclass
class PretrainingRun:
    """What a run works with; `sampler` fills masks in a few held-out texts at each evaluation."""

    directory: Path
    parts: dict[str, Store]
    tokenizer: Tokenizer
    model: PretrainingModel
    source: PretrainingSource
    runtime: runtimes.Runtime
    checkpoint: Path | None  # resumed from
    is_new_model: bool
    has_head_start: bool  # a new model that knows the frequencies of the training part
    eval_rows: int
    sampler: Sampler
    peak_flops: float  # of matrix products on all processes, a second
    plateau_said: bool = False

    @property
    def watched_part(self) -> str:
        """The part that is evaluated on the way: validation, else test, else train (then nothing is held out)."""
        return next(name for name in ("validation", "test", "train") if name in self.parts)

    @property
    def held_out(self) -> Store:
        """What is evaluated on the way."""
        return self.parts[self.watched_part]

    @cached_property
    def unigram_loss(self) -> float:
        """The held-out masked-LM loss of guessing by frequency alone."""
        return unigram_loss(self.parts["train"], self.held_out, self.tokenizer.vocabulary)

    def job(
        self,
        training: TrainSettings,
        *,
        source: PretrainingSource,
        model: PretrainingModel,
        log: Log,
        fingerprint: Mapping[str, Any],
    ) -> Job:
        """Return the loop's job; `model` then belongs to it."""
        layers = self.model.config.num_hidden_layers

        def files(module: nn.Module) -> dict[str, bytes]:
            assert isinstance(module, PretrainingLoss)
            return self.files(module.model, training, results={})

        task = Task(
            module=PretrainingLoss(model),
            units=list(model.encoder.layers),
            source=source,
            evaluate=self.evaluate,
            files=files,
            is_layer_matrix=is_layer_matrix,
            layers_above=lambda name: layers_above(name, layers),
        )
        return make_job(
            task,
            training,
            self.runtime,
            directory=self.directory,
            log=log,
            fingerprint=fingerprint,
            peak_flops=self.peak_flops,
        )

    def mean_step(self, training: TrainSettings) -> MeanStep:
        """Return what a step takes here, its time measured on copies."""
        log = MetricsLog(self.directory, after_step=0, report_to="none", writes=False)
        training = replace(training, max_steps=None, max_minutes=None, num_train_epochs=None)
        seconds = tokens = flops = 0.0
        for number, phase in enumerate(self.source.phases or (Phase(self.source.pairs.max_seq_length, 1.0),)):
            source = replace(self.source, pairs=self.source.pairs_of(number), phases=(), epoch_starts=[])
            model = copy.deepcopy(self.model)
            prepare(model.encoder, training)  # a copy is not compiled
            job = self.job(training, source=source, model=model, log=log, fingerprint={})
            first = source.step(0)
            seconds += phase.share * trial.seconds_a_step(job)
            tokens, flops = tokens + phase.share * first.tokens, flops + phase.share * first.flops
        return MeanStep(seconds, tokens, flops)

    def start_nothing(self, training: TrainSettings) -> Job:
        """Return a job that was tried with its longest batch, and whose checkpoints and log nobody wants.

        Raises:
            InputError: memory does not suffice.
        """
        log = MetricsLog(self.directory, after_step=0, report_to="none", writes=False)
        self.source.max_steps = training.max_steps
        job = self.job(training, source=self.source, model=self.model, log=log, fingerprint={})
        trial.try_longest_batch(job)
        return job

    def start(
        self, training: TrainSettings, *, settings: Mapping[str, Any], record: Mapping[str, Any]
    ) -> tuple[Job, TrainState]:
        """Return the job and where it starts: at step 0 after a first evaluation, or at the checkpoint.

        settings: what must be the same in a resumed run; record: all settings, for run.json.

        Raises:
            InputError: a resume that would not be exact, no room on the disk or in memory.
        """
        store_key = json.loads((self.parts["train"].directory.parent / MANIFEST).read_text(encoding="utf-8"))["key"]
        fingerprint = fingerprint_of(settings, self.runtime, {"model": self.model.config.to_json(), "store": store_key})
        state = state_at(self.checkpoint, fingerprint, allow_inexact=training.allow_inexact)
        log = MetricsLog(
            self.directory, after_step=state.step, report_to=training.report_to, writes=self.runtime.is_first
        )
        with closed_on_failure(log):
            self.source.max_steps = training.max_steps
            job = self.job(training, source=self.source, model=self.model, log=log, fingerprint=fingerprint)
            require_disk(job, self.directory)
            diagnosis.announce(self.parts, self.source, training, self.model, device=self.runtime.device)
            trial.try_longest_batch(job)
            if self.checkpoint is None:
                if self.runtime.is_first:
                    self._record(training, record, store_key)
                first = job.evaluate(0)
                state.start_score = first[job.deciding_metric]
                diagnosis.check_first_losses(
                    first,
                    vocab_size=self.model.config.vocab_size,
                    is_new=self.is_new_model,
                    unigram=self.unigram_loss if self.has_head_start else None,
                )
            else:
                self.source.epoch_starts = [list(starts) for starts in state.source.get("epoch_starts", [])] or (
                    self.source.epoch_starts
                )
                put_back(self.checkpoint, job, state)
        return job, state

    def evaluate(self, module: nn.Module, step: int, log: Log) -> dict[str, float]:
        """Evaluate on the held-out part, fill a few masks, write both down, say the first."""
        assert isinstance(module, PretrainingLoss)
        found = evaluate(
            module.model,
            self.held_out,
            vocabulary=self.tokenizer.vocabulary,
            pairs=self.source.pairs,
            max_rows=self.eval_rows,
            runtime=self.runtime,
        )
        log.write("validation", step, found.metrics)
        room = self.source.pairs.max_seq_length - SPECIALS_OF_A_TEXT
        texts = sample_texts(self.held_out, self.tokenizer, max_tokens=room)
        if self.runtime.is_first:
            log.write("samples", step, {"samples": self.sampler(module.model, self.tokenizer, texts)})
        say(f"step {step:,}, {self.watched_part}: {in_words(found.metrics)}")
        if not self.plateau_said and step >= diagnosis.PLATEAU_STEPS:
            self.plateau_said = diagnosis.warn_of_plateau(found.metrics["mlm_loss"], unigram=self.unigram_loss)
        return found.metrics

    def finish(self, job: Job, state: TrainState) -> dict[str, Any]:
        """Put the best model into RUN, evaluate it on the whole test part, and return the results by Google's names."""
        self.runtime.wait_for_all()
        best = find_checkpoint(self.directory, "best")
        model = load(best, head="masked_lm" if self.model.nsp_head is None else "pretraining")
        assert isinstance(model, PretrainingModel)
        model.to(self.runtime.device)
        part = next(name for name in ("test", "validation", "train") if name in self.parts)
        say(f"evaluating the best model (step {state.best_step:,}) on the {part} part")
        found = evaluate(
            model,
            self.parts[part],
            vocabulary=self.tokenizer.vocabulary,
            pairs=self.source.pairs,
            max_rows=None,
            runtime=self.runtime,
        )
        results = {
            **google_names(found.metrics),
            "global_step": state.best_step,
            "part": part,
            "masked_tokens": found.counts["mlm"],
            "pairs": found.counts["nsp"],
        }
        if self.runtime.is_first:
            for name, content in self.files(model, job.settings, results=google_names(found.metrics)).items():
                write_atomically(self.directory / name, content)
            update_run(self.directory, facts_at_the_end(state))
        self.runtime.wait_for_all()  # until the first process has written
        return results

    def files(
        self, model: PretrainingModel, training: TrainSettings, *, results: Mapping[str, float]
    ) -> dict[str, bytes]:
        """Return the Hugging Face directory of a model of this run: weights, tokenizer, model card."""
        config, source = model.config, self.source
        described = {
            "steps": training.max_steps,
            "rows a step": training.batch_size,
            "optimizer": training.optimizer,
            "learning rate": training.learning_rate,
            **({"learning rate of Muon": training.muon_learning_rate} if training.optimizer == "muon" else {}),
            "head start by counting": "yes" if self.has_head_start else "no",
            "tokens hidden in training": source.masking.mlm_probability,
            "pairing": source.pairs.pairing,
            "documents": source.store.num_documents,
            "tokens in the corpus": source.store.num_tokens,
        }
        card = model_card(
            config,
            training=described,
            results=results,
            parameters=num_parameters(model),
            next_sentence=model.nsp_head is not None,
        )
        files = self.tokenizer.files(model_max_length=config.max_position_embeddings)
        return {**model_files(model), **files, MODEL_CARD: card.encode("utf-8")}

    def _record(self, training: TrainSettings, record: Mapping[str, Any], store_key: str) -> None:
        update_run(
            self.directory,
            {
                **environment(),
                "settings": dict(record),
                "seed": training.seed,
                "store": {"directory": str(self.source.store.directory.parent), "key": store_key},
                **self.runtime.description(),
                "parameters": num_parameters(self.model),
                "vocab_size": self.model.config.vocab_size,
                "evaluated_on": self.watched_part,
                "unigram_loss": self.unigram_loss,
            },
        )


def google_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return held-out metrics under the names of Google's eval_results.txt."""
    return {GOOGLE_NAMES[name]: value for name, value in metrics.items()}
