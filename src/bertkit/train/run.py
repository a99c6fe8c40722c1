"""A task and its folder made into a job: module, optimizers, log, checkpoints, state.

In: a Task, TrainSettings, a Runtime, perhaps a checkpoint.  Out: a Job and the TrainState it starts from.
Next: loop.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertkit.console import say, warn
from bertkit.errors import InputError
from bertkit.train.checkpoint import CHECKPOINTS, require_room
from bertkit.train.feed import Source
from bertkit.train.loop import Job, Log
from bertkit.train.optimizer import build_optimizers, num_moments
from bertkit.train.parallel import ParallelModule
from bertkit.train.record import code_hash, versions
from bertkit.train.runtime import Runtime
from bertkit.train.saver import Saver
from bertkit.train.settings import FREE_ON_RESUME, TrainSettings, rates_at_fault
from bertkit.train.state import TrainState, read_state, restore, take_snapshot

MOST_STEPS = 10**9  # of a job whose length is not known yet
BYTES = 4  # of a weight or moment
WORSE = 0.05  # of the figure before training, or of the first loss: a smaller difference may be chance
JUDGED_LINES = 5  # of the log, behind the first: fewer say nothing of a run


@dataclass(frozen=True)
class Task:
    """What training is given of a task."""

    module: nn.Module  # module(batch) → LossSums
    units: Sequence[nn.Module]  # its parts that FSDP2 cuts one by one
    source: Source
    evaluate: Callable[[nn.Module, int, Log], Mapping[str, float]]  # the module at a step, on held-out data
    files: Callable[[nn.Module], Mapping[str, bytes]]  # the Hugging Face directory of a module like `module`
    is_layer_matrix: Callable[[str], bool]  # by a parameter's name: whether Muon may have it
    layers_above: Callable[[str], int]  # by a parameter's name: how deep it lies
    deciding_metric: str = "loss"
    higher_is_better: bool = False
    begins_low: bool = False  # the loss, as that of a head that begins with the best constant: it need not fall


def make_job(
    task: Task,
    settings: TrainSettings,
    runtime: Runtime,
    *,
    directory: Path,
    log: Log,
    fingerprint: Mapping[str, Any],
    peak_flops: float,
) -> Job:
    """Return the job of a task; its checkpoints go into the run's `directory`.

    fingerprint: what must be the same for a resume to be exact.
    """
    module = ParallelModule(task.module, runtime, units=task.units, ema_decay=settings.ema_decay)
    optimizers = build_optimizers(
        module.module, settings, is_layer_matrix=task.is_layer_matrix, depth_of=task.layers_above
    )
    saver = Saver(directory, limit=settings.save_total_limit, keep_every=settings.keep_every, writes=runtime.is_first)
    facts = {**runtime.description(), "versions": versions(), "code": code_hash()}

    def save(state: TrainState) -> None:
        evaluated = module.refresh()
        saver.save(
            take_snapshot(
                state,
                model_files=task.files(evaluated) if runtime.is_first else {},
                module=module,
                optimizers=optimizers,
                fingerprint=fingerprint,
                facts=facts,
            )
        )

    return Job(
        module=module,
        source=task.source,
        optimizers=optimizers,
        settings=settings,
        max_steps=settings.max_steps or MOST_STEPS,
        runtime=runtime,
        log=log,
        evaluate=lambda step: task.evaluate(module.refresh(), step, log),
        save=save,
        eval_every=settings.eval_every or MOST_STEPS,
        save_every=settings.save_every or MOST_STEPS,
        saver=saver,
        deciding_metric=task.deciding_metric,
        higher_is_better=task.higher_is_better,
        begins_low=task.begins_low,
        peak_flops=peak_flops,
    )


def fingerprint_of(settings: Mapping[str, Any], runtime: Runtime, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in a resumed run for it to equal one that was never stopped.

    settings: all of the run's, of which those that change no number are left out; others: the model, the data.
    """
    machine = {
        "device": runtime.device.type,
        "threads": torch.get_num_threads(),
        "processes": runtime.num_ranks,
        "versions": versions(),
    }
    return {**{k: v for k, v in settings.items() if k not in FREE_ON_RESUME}, **machine, **others}


def state_at(checkpoint: Path | None, fingerprint: Mapping[str, Any], *, allow_inexact: bool) -> TrainState:
    """Return where a run starts: at step 0, or where a checkpoint says.

    Raises:
        InputError: the checkpoint is of a run that differs.
    """
    if checkpoint is None:
        return TrainState()
    state = read_state(checkpoint, fingerprint=fingerprint, allow_inexact=allow_inexact)
    best = state.best_step
    if best is not None and not checkpoint.with_name(f"step-{best}").is_dir():
        warn(f"the best checkpoint, of step {best:,}, is gone; the one of step {state.step:,} stands for it")
        state.best_step, state.best_score, state.evaluations_since_best = state.step, None, 0
    return state


def put_back(checkpoint: Path, job: Job, state: TrainState) -> None:
    """Give a job the moments and averages of a checkpoint, and say so."""
    restore(checkpoint, job.module, job.optimizers)
    say(f"resumed from {checkpoint}: {state.step:,} steps are done")


def require_disk(job: Job, directory: Path) -> int:
    """Return the bytes that the run's checkpoints will take, nearly.

    Raises:
        InputError: the disk has no room for them.
    """
    settings = job.settings
    numbers = sum(parameter.numel() for parameter in job.module.module.parameters())
    copies = 1 + (2 if settings.ema_decay is not None else 0)
    folders = settings.save_total_limit + 2  # the best one, and the one being written
    if settings.keep_every is not None and settings.max_steps is not None:
        folders += settings.max_steps // settings.keep_every
    size = (numbers * copies + num_moments(job.optimizers)) * BYTES * folders
    folder = directory / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    if job.runtime.is_first:
        there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())  # a resume makes it over
        require_room(folder, max(0, size - there), what=f"{folders} checkpoints")
    return size


def require_learned(job: Job, state: TrainState) -> None:
    """Refuse to end as if all were well where training made nothing better; the model and the log of it are on disk.

    Raises:
        InputError: no step was made, the best held-out figure is worse than before training, or the training loss
            never fell.
    """
    name, best, start = job.deciding_metric, state.best_score, state.start_score
    first, lowest = state.first_loss, state.lowest_loss
    problem = None
    if 0 < state.step == state.skipped_steps:
        problem = f"not one of the {state.step:,} steps was made: no loss or gradient was finite"
    elif (
        best is not None
        and start is not None
        and (best - start) * (-1 if job.higher_is_better else 1) > (WORSE * abs(start))
    ):
        problem = f"the held-out {name} was {start:.4f} before training and is {best:.4f} at best after it"
    elif (
        first is not None
        and lowest is not None
        and state.later_lines >= JUDGED_LINES
        and lowest - first >= (WORSE * abs(first) if job.begins_low else 0)
    ):
        problem = f"the training loss never fell: {first:.4f} at first, {lowest:.4f} at best"
    if problem is not None:
        raise InputError(
            f"{problem}; the model that this run leaves is worth nothing",
            **rates_at_fault(job.settings),
            remedy="start anew with a lower rate or a longer --warmup_ratio, in another --output_dir; report.html and "
            "metrics.jsonl show where it went wrong",
        )


def facts_at_the_end(state: TrainState) -> dict[str, Any]:
    """Return what run.json says of a finished run."""
    return {
        "training_seconds": state.training_seconds,
        "tokens": state.tokens,
        "steps": state.step,
        "best_step": state.best_step,
        "skipped_steps": state.skipped_steps,
    }


def one_batch(job: Job) -> Job:
    """Return a job like this one that trains on the batch of its first step again and again."""
    return replace(job, source=_OneBatch(job.source))


@dataclass(frozen=True)
class _OneBatch:
    source: Source

    def step(self, step: int) -> Any:
        return self.source.step(0)

    def longest(self) -> Any:
        return self.source.longest()

    def describe(self, step: int) -> str:
        return self.source.describe(0)
