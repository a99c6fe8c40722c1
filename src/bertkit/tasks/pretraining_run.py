"""One pre-training run put together: its data and optimizers, what is measured and saved on the way, its end.

In: a store, settings, a model size or folder.  Out: the loop's Job and TrainState; the finished RUN folder.
Next: train/loop.py
"""

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from bertkit.console import say, warn
from bertkit.data.instances import read_phrases
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import SPECIALS_OF_A_TEXT, PairSettings, require_pairs
from bertkit.data.prepared import open_prepared
from bertkit.data.store import MANIFEST, Store
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.model.card import model_card
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load, model_files
from bertkit.tasks.held_out import GOOGLE_NAMES, evaluate, held_out_pairs, in_words, sample_texts, unigram_loss
from bertkit.tasks.phases import Phase
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource, is_layer_matrix, layers_above
from bertkit.tasks.pretraining_model import ModelChoice, choose_model, num_parameters
from bertkit.text.tokenizer import Tokenizer
from bertkit.train import runtime as runtimes
from bertkit.train import trial
from bertkit.train.checkpoint import find_checkpoint
from bertkit.train.log import MetricsLog
from bertkit.train.loop import Job, Log
from bertkit.train.record import environment, update_run, write_results
from bertkit.train.run import Task, fingerprint_of, make_job, put_back, require_disk, state_at
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState

# A new model guesses: its losses are ln V and ln 2. Further off than this, something is wrong with it.
INITIAL_LOSS_TOLERANCE = 0.5
MODEL_CARD = "README.md"
Sampler = Callable[[PretrainingModel, Tokenizer, list[str]], list[dict[str, str]]]


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
    eval_rows: int
    sampler: Sampler
    peak_flops: float  # of matrix products on all processes, a second

    @property
    def watched_part(self) -> str:
        """The part that is evaluated on the way: validation, else test, else train (then nothing is held out)."""
        return next(name for name in ("validation", "test", "train") if name in self.parts)

    @property
    def held_out(self) -> Store:
        """What is evaluated on the way."""
        return self.parts[self.watched_part]

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
            return {**model_files(module.model), **self._other_files(training, {})}

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

    def seconds_a_step(self, training: TrainSettings) -> float:
        """Return how long a step takes here, measured on copies; of a run in phases the mean, each for its share."""
        log = MetricsLog(self.directory, after_step=0, report_to="none", writes=False)
        training = replace(training, max_steps=None, max_minutes=None, num_train_epochs=None)
        seconds = 0.0
        for number, phase in enumerate(self.source.phases or (Phase(self.source.pairs.max_seq_length, 1.0),)):
            source = replace(self.source, pairs=self.source.pairs_of(number), phases=(), epoch_starts=[])
            model = copy.deepcopy(self.model)
            job = self.job(training, source=source, model=model, log=log, fingerprint={})
            seconds += phase.share * trial.seconds_a_step(job)
        return seconds

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
        self.source.max_steps = training.max_steps
        job = self.job(training, source=self.source, model=self.model, log=log, fingerprint=fingerprint)
        require_disk(job, self.directory)
        self._announce(job)
        trial.try_longest_batch(job)
        if self.checkpoint is None:
            if self.runtime.is_first:
                self._record(training, record, store_key)
            self._check_initial_losses(job.evaluate(0))
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
            **{GOOGLE_NAMES[name]: value for name, value in found.metrics.items()},
            "global_step": state.best_step,
            "part": part,
            "masked_tokens": found.counts["mlm"],
            "pairs": found.counts["nsp"],
        }
        if self.runtime.is_first:
            self._write_finished(job, state, model, results, found.metrics)
        job.log.close()
        return results

    def _write_finished(
        self,
        job: Job,
        state: TrainState,
        model: PretrainingModel,
        results: Mapping[str, Any],
        metrics: Mapping[str, float],
    ) -> None:
        """Write the results, and the best model's files into RUN itself."""
        write_results(self.directory, results)
        other = self._other_files(job.settings, {GOOGLE_NAMES[name]: value for name, value in metrics.items()})
        for name, content in {**model_files(model), **other}.items():
            write_atomically(self.directory / name, content)
        update_run(
            self.directory,
            {
                "training_seconds": state.training_seconds,
                "tokens": state.tokens,
                "steps": state.step,
                "best_step": state.best_step,
                "skipped_steps": state.skipped_steps,
            },
        )

    def _other_files(self, training: TrainSettings, results: Mapping[str, float]) -> dict[str, bytes]:
        """The tokenizer's files and the model card."""
        config = self.model.config
        described = {
            "steps": training.max_steps,
            "rows a step": training.batch_size,
            "optimizer": training.optimizer,
            "learning rate": training.learning_rate,
            "tokens hidden in training": self.source.masking.mlm_probability,
            "pairing": self.source.pairs.pairing,
            "documents": self.source.store.num_documents,
            "tokens in the corpus": self.source.store.num_tokens,
        }
        card = model_card(
            config,
            training=described,
            results=results,
            parameters=num_parameters(self.model),
            next_sentence=self.model.nsp_head is not None,
        )
        files = self.tokenizer.files(model_max_length=config.max_position_embeddings)
        return {**files, MODEL_CARD: card.encode("utf-8")}

    def _announce(self, job: Job) -> None:
        settings, pairs = job.settings, self.source.pairs
        train = self.parts["train"]
        if missing := [name for name in ("validation", "test") if name not in self.parts]:
            what = (
                "nothing is held out: all figures are of the training text" if len(missing) == 2 else "the other serves"
            )
            warn(f"no {' and no '.join(missing)} part can be used (none in the store, or left out); {what}")
        unknown = 100 * train.manifest["unknown_tokens"] / train.num_tokens
        say(
            f"data: {train.num_documents:,} documents, {train.num_tokens:,} tokens, {unknown:.2f} % [UNK]; "
            f"pairing {pairs.pairing}, {100 * self.source.masking.mlm_probability:g} % hidden"
        )
        table_ = self.source.table(0)
        if table_.unresolved:
            warn(f"{table_.unresolved:,} pairs of epoch 0 left out: every random B drawn truly follows A by its text")
        if table_.hard_fallbacks:
            say(
                f"{table_.hard_fallbacks:,} random Bs come from another document: their own is too short for a hard one"
            )
        if table_.trimmed_tokens:
            say(f"pairs: {len(table_):,} in epoch 0; {table_.trimmed_tokens:,} tokens cut from over-long ones")
        say(
            f"model: {num_parameters(self.model):,} parameters, vocabulary {self.model.config.vocab_size:,}; "
            f"{settings.optimizer}, {job.max_steps:,} steps of {settings.batch_size} rows on {self.runtime.device}"
        )

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
                "unigram_loss": unigram_loss(self.parts["train"], self.held_out, self.tokenizer.vocabulary),
            },
        )

    def _check_initial_losses(self, metrics: Mapping[str, float]) -> None:
        if not self.is_new_model:
            return
        expected = {"mlm_loss": math.log(self.model.config.vocab_size), "nsp_loss": math.log(2)}
        for name, theory in expected.items():
            if name not in metrics:
                continue
            line = f"before training: {name} {metrics[name]:.3f}, a model that guesses has {theory:.3f}"
            (warn if abs(metrics[name] - theory) > INITIAL_LOSS_TOLERANCE else say)(line)


def open_run(
    directory: Path,
    *,
    store_directory: Path,
    pairs: PairSettings,
    masking: MaskingSettings,
    training: TrainSettings,
    choice: ModelChoice,
    phases: tuple[Phase, ...],
    eval_rows: int,
    sampler: Sampler,
) -> PretrainingRun:
    """Return the run with its data open and its model built or loaded; the folder is made.

    Raises:
        InputError: data on which the task is impossible, a model that does not fit the data, no such checkpoint.
    """
    runtime = runtimes.start(training)
    checkpoint = None if training.resume_from is None else _checkpoint(runtime, directory, training.resume_from)
    parts, tokenizer = open_prepared(store_directory)
    require_pairs(parts["train"], pairs)
    parts = {name: store for name, store in parts.items() if name == "train" or _has_pairs(store, pairs)}
    model, is_new = choose_model(choice, checkpoint, tokenizer, pairs)
    model.encoder.gradient_checkpointing = training.gradient_checkpointing
    if training.torch_compile:
        for layer in model.encoder.layers:
            layer.compile(dynamic=True)
    source = PretrainingSource(
        parts["train"],
        tokenizer.vocabulary,
        pairs,
        masking,
        seed=training.seed,
        batch_size=training.batch_size,
        micro_batch_tokens=training.micro_batch_tokens,
        phrases=read_phrases(masking, tokenizer),
        config=model.config,
        rank=runtime.rank,
        num_ranks=runtime.num_ranks,
        phases=phases,
    )
    _make_shared_folder(directory, runtime)
    return PretrainingRun(
        directory=directory,
        parts=parts,
        tokenizer=tokenizer,
        model=model.to(runtime.device),
        source=source,
        runtime=runtime,
        checkpoint=checkpoint,
        is_new_model=is_new,
        eval_rows=eval_rows,
        sampler=sampler,
        peak_flops=trial.matrix_rate(runtime),
    )


def _checkpoint(runtime: runtimes.Runtime, directory: Path, which: str) -> Path:
    """The checkpoint asked for; the first process looks first, as looking may put a folder back."""
    if not runtime.is_first:
        runtime.wait_for_all()
    found = find_checkpoint(directory, which)
    if runtime.is_first:
        runtime.wait_for_all()
    return found


def _make_shared_folder(directory: Path, runtime: runtimes.Runtime) -> None:
    """Make the run's folder, and check that every process sees it.

    Raises:
        InputError: one does not.
    """
    if runtime.is_first:
        directory.mkdir(parents=True, exist_ok=True)
    runtime.wait_for_all()
    unseen = sum(runtime.sums([0.0 if directory.is_dir() else 1.0]))
    if unseen:
        raise InputError(
            f"is not seen by {unseen:.0f} of the {runtime.num_ranks} processes",
            file=directory,
            field="--output_dir",
            expected="a folder on a disk that all hosts share",
        )


def _has_pairs(store: Store, pairs: PairSettings) -> bool:
    try:
        held_out_pairs(store, pairs)
    except InputError as problem:
        warn(f"a held-out part is left out: {problem.problem}")
        return False
    return True
