"""One pre-training run put together: its data and optimizers, what is measured and saved on the way, its end.

In: a store, settings, a model size or folder.  Out: the loop's Job and TrainState; the finished RUN folder.
Next: train/loop.py
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

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
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource, is_layer_matrix
from bertkit.tasks.pretraining_model import ModelChoice, choose_model, num_parameters
from bertkit.text.tokenizer import Tokenizer
from bertkit.train import runtime as runtimes
from bertkit.train.log import MetricsLog
from bertkit.train.loop import Job, steps_that_fit
from bertkit.train.optimizer import build_optimizers
from bertkit.train.record import environment, update_run, versions, write_results
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState, find_checkpoint, read_state, restore, save_checkpoint

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

    @property
    def watched_part(self) -> str:
        """The part that is evaluated on the way: validation, else test, else train (then nothing is held out)."""
        return next(name for name in ("validation", "test", "train") if name in self.parts)

    @property
    def held_out(self) -> Store:
        """What is evaluated on the way."""
        return self.parts[self.watched_part]

    def job(self, training: TrainSettings, *, log: MetricsLog, fingerprint: Mapping[str, Any]) -> Job:
        """Return the loop's job; training has max_steps, eval_every and save_every."""
        assert training.max_steps
        assert training.eval_every
        assert training.save_every
        self.source.max_steps = training.max_steps
        module = PretrainingLoss(self.model)
        optimizers = build_optimizers(module, training, is_layer_matrix=is_layer_matrix)

        def save(state: TrainState) -> None:
            save_checkpoint(
                self.directory,
                state,
                model_files={**model_files(self.model), **self._other_files(training, {})},
                optimizers=optimizers,
                runtime=self.runtime,
                fingerprint=fingerprint,
                limit=training.save_total_limit,
            )

        return Job(
            module=module,
            source=self.source,
            optimizers=optimizers,
            settings=training,
            max_steps=training.max_steps,
            runtime=self.runtime,
            log=log,
            evaluate=lambda step: self.evaluate(step, log),
            save=save,
            eval_every=training.eval_every,
            save_every=training.save_every,
        )

    def steps_that_fit(self, training: TrainSettings, minutes: float) -> int:
        """Return how many steps take so many minutes of training, measured on a copy of the model."""
        # Nothing is written: the schedule of a very long run, and a log that stays empty.
        long = replace(training, max_steps=10**6, max_minutes=None, eval_every=10**6, save_every=10**6)
        log = MetricsLog(self.directory, after_step=0, report_to="none")
        return steps_that_fit(self.job(long, log=log, fingerprint={}), minutes)

    def start(
        self, training: TrainSettings, *, settings: Mapping[str, Any], record: Mapping[str, Any]
    ) -> tuple[Job, TrainState]:
        """Return the job and where it starts: at step 0 after a first evaluation, or at the checkpoint.

        settings: what must be the same in a resumed run; record: all settings, for run.json.
        """
        store_key = json.loads((self.parts["train"].directory.parent / MANIFEST).read_text(encoding="utf-8"))["key"]
        model_config = {"model": self.model.config.to_json()}
        machine = {"device": self.runtime.device.type, "threads": torch.get_num_threads(), "versions": versions()}
        fingerprint = {**settings, **model_config, **machine, "store": store_key}
        state = TrainState() if self.checkpoint is None else read_state(self.checkpoint, fingerprint=fingerprint)
        log = MetricsLog(self.directory, after_step=state.step, report_to=training.report_to)
        job = self.job(training, log=log, fingerprint=fingerprint)
        self._announce(job)
        if self.checkpoint is None:
            self._record(training, record, store_key)
            self._check_initial_losses(self.evaluate(0, log))
            runtimes.seed(training.seed)  # whatever came before, the first step's dropout is the same
        else:
            self.source.epoch_starts = list(state.source["epoch_starts"])
            restore(self.checkpoint, job.optimizers, self.runtime)
            say(f"resumed from {self.checkpoint}: {state.step:,} steps are done")
        return job, state

    def evaluate(self, step: int, log: MetricsLog) -> dict[str, float]:
        """Evaluate on the held-out part, fill a few masks, write both down, say the first."""
        vocabulary = self.tokenizer.vocabulary
        found = evaluate(
            self.model, self.held_out, vocabulary=vocabulary, pairs=self.source.pairs, max_rows=self.eval_rows
        )
        log.write("validation", step, found.metrics)
        room = self.source.pairs.max_seq_length - SPECIALS_OF_A_TEXT
        texts = sample_texts(self.held_out, self.tokenizer, max_tokens=room)
        log.write("samples", step, {"samples": self.sampler(self.model, self.tokenizer, texts)})
        say(f"step {step:,}, {self.watched_part}: {in_words(found.metrics)}")
        return found.metrics

    def finish(self, job: Job, state: TrainState) -> dict[str, Any]:
        """Put the best model into RUN, evaluate it on the whole test part, and return the results by Google's names."""
        best = find_checkpoint(self.directory, "best")
        model = load(best, head="masked_lm" if self.model.nsp_head is None else "pretraining")
        assert isinstance(model, PretrainingModel)
        model.to(self.runtime.device)
        part = next(name for name in ("test", "validation", "train") if name in self.parts)
        say(f"evaluating the best model (step {state.best_step:,}) on the {part} part")
        found = evaluate(
            model, self.parts[part], vocabulary=self.tokenizer.vocabulary, pairs=self.source.pairs, max_rows=None
        )
        results = {
            **{GOOGLE_NAMES[name]: value for name, value in found.metrics.items()},
            "global_step": state.best_step,
            "part": part,
            "masked_tokens": found.counts["mlm"],
            "pairs": found.counts["nsp"],
        }
        write_results(self.directory, results)
        other = self._other_files(job.settings, {GOOGLE_NAMES[name]: value for name, value in found.metrics.items()})
        for name, content in {**model_files(model), **other}.items():
            write_atomically(self.directory / name, content)
        update_run(
            self.directory,
            {
                "training_seconds": state.training_seconds,
                "tokens": state.tokens,
                "steps": state.step,
                "best_step": state.best_step,
            },
        )
        job.log.close()
        return results

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
    eval_rows: int,
    sampler: Sampler,
) -> PretrainingRun:
    """Return the run with its data open and its model built or loaded; the folder is made.

    Raises:
        InputError: data on which the task is impossible, a model that does not fit the data, no such checkpoint.
    """
    checkpoint = None if training.resume_from is None else find_checkpoint(directory, training.resume_from)
    parts, tokenizer = open_prepared(store_directory)
    require_pairs(parts["train"], pairs)
    parts = {name: store for name, store in parts.items() if name == "train" or _has_pairs(store, pairs)}
    runtime = runtimes.start(training)
    model, is_new = choose_model(choice, checkpoint, tokenizer, pairs)
    source = PretrainingSource(
        parts["train"],
        tokenizer.vocabulary,
        pairs,
        masking,
        seed=training.seed,
        batch_size=training.batch_size,
        micro_batch_tokens=training.micro_batch_tokens,
        phrases=read_phrases(masking, tokenizer),
    )
    directory.mkdir(parents=True, exist_ok=True)
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
    )


def _has_pairs(store: Store, pairs: PairSettings) -> bool:
    try:
        held_out_pairs(store, pairs)
    except InputError as problem:
        warn(f"a held-out part is left out: {problem.problem}")
        return False
    return True
