"""The training loop; it knows no task and no model.

In: a module that gives sums of losses, a source of batches, and two callables: evaluate and save.
Out: the weights changed, metrics written, checkpoints saved.  Next: tasks/pretraining.py (whose losses these are)
"""

import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from bertkit.console import Progress
from bertkit.errors import InputError
from bertkit.train.log import MetricsLog
from bertkit.train.optimizer import set_rates
from bertkit.train.runtime import Runtime, generator_state, gradient_norm, restore_generators
from bertkit.train.schedule import rate_factor
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState, Window

MEASURED_STEPS, MEASURED_SECONDS = 20, 5.0  # at least this much is run to tell how many steps fit into minutes


@dataclass(frozen=True)
class StepBatches:
    """One global batch, cut for this machine."""

    micro_batches: list[dict[str, Tensor]]
    counts: Mapping[str, int]  # labels of each loss in the whole step: the denominators, known before any backward
    epoch: int
    tokens: int  # padding not counted
    slots: int  # padding counted


@dataclass(frozen=True)
class LossSums:
    """What a module gives for one micro-batch; the loss of a step is the sum over losses of all sums ÷ count."""

    sums: dict[str, Tensor]  # () each, with gradient
    counts: dict[str, int]  # labels in this micro-batch
    correct: dict[str, Tensor]  # () each: how many of the labels the highest score hits


class Source(Protocol):
    """Where batches come from: the batches of a step depend on the step's number only."""

    def step(self, step: int) -> StepBatches:
        """Return the batches of the step that follows `step` finished ones."""
        ...

    def state(self) -> dict[str, object]:
        """Return what a resume may spare itself to find out again."""
        ...


@dataclass(frozen=True)
class Job:
    """All that a run consists of."""

    module: nn.Module  # module(batch) → LossSums
    source: Source
    optimizers: list[torch.optim.Optimizer]
    settings: TrainSettings
    max_steps: int
    runtime: Runtime
    log: MetricsLog
    evaluate: Callable[[int], Mapping[str, float]]  # held-out metrics at a step; "loss" decides which is best
    save: Callable[[TrainState], None]
    eval_every: int
    save_every: int


def train(job: Job, state: TrainState) -> TrainState:
    """Train until max_steps, evaluating, saving and logging on the way; `state` says where to start.

    Raises:
        InputError: the loss or the gradient is not finite (the weights are then those before that step), or the
            held-out loss is not.
    """
    with Progress("training", total=job.max_steps, unit="steps", start=state.step) as progress:
        while state.step < job.max_steps:
            began = time.perf_counter()
            norm = _update(job, state)
            seconds = time.perf_counter() - began
            state.step += 1
            state.training_seconds += seconds
            state.window.seconds += seconds
            progress.advance(extra=_summary(state.window))
            last = state.step == job.max_steps
            if state.step % job.settings.log_every == 0 or last:
                job.log.write("train", state.step, _metrics(job, state, norm))
                state.window = Window()
            evaluated = state.step % job.eval_every == 0 or last
            is_best = evaluated and _note_best(state, job.evaluate(state.step))
            if is_best or state.step % job.save_every == 0 or last:
                state.source = job.source.state()
                job.save(state)
    return state


def _update(job: Job, state: TrainState) -> float:
    """Make one optimizer update; return the length of the gradient before clipping."""
    window, loss_of_step = state.window, 0.0
    job.module.train()
    batches = job.source.step(state.step)
    for batch in batches.micro_batches:
        with job.runtime.autocast():
            sums: LossSums = job.module(job.runtime.to_device(batch))
        # One fraction over the whole step, so that its cut into micro-batches changes nothing.
        loss = torch.stack([total / max(1, batches.counts[name]) for name, total in sums.sums.items()]).sum()
        job.runtime.accelerator.backward(loss)
        loss_of_step += loss.item()
        for name, total in sums.sums.items():
            window.losses[name] = window.losses.get(name, 0.0) + total.item()
            window.correct[name] = window.correct.get(name, 0.0) + float(sums.correct[name])
    for name, count in batches.counts.items():
        window.counts[name] = window.counts.get(name, 0) + count
    window.tokens += batches.tokens
    window.slots += batches.slots
    norm = gradient_norm(job.module).item()
    _require_finite(job, state.step + 1, loss=loss_of_step, gradient=norm)
    if norm > job.settings.max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(job.module.parameters(), job.settings.max_grad_norm, torch.tensor(norm))
    set_rates(job.optimizers, rate_factor(state.step, max_steps=job.max_steps, settings=job.settings))
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    state.tokens += batches.tokens
    return norm


def _require_finite(job: Job, step: int, *, loss: float, gradient: float) -> None:
    """Stop before the optimizers are called: a factor of 0 would not do, as 0 × NaN is NaN."""
    for name, value in (("loss", loss), ("gradient", gradient)):
        if not math.isfinite(value):
            raise InputError(
                f"the {name} of step {step} is {value}; this step was not made",
                field="--learning_rate",
                value=job.settings.learning_rate,
                remedy="start anew with a lower rate, a longer warm-up or --precision fp32; from the weights of the "
                "last checkpoint, if they are good, by --model_name_or_path",
            )


def _summary(window: Window) -> str:
    losses = [f"{name} {total / max(1, window.counts[name]):.3f}" for name, total in window.losses.items()]
    return ", ".join([*losses, f"{window.tokens / max(window.seconds, 1e-9):,.0f} tokens/s"])


def _metrics(job: Job, state: TrainState, norm: float) -> dict[str, float]:
    window = state.window
    losses = {f"{name}_loss": total / max(1, window.counts[name]) for name, total in window.losses.items()}
    accuracies = {f"{name}_accuracy": hits / max(1, window.counts[name]) for name, hits in window.correct.items()}
    return {
        **losses,
        "loss": sum(losses.values()),
        **accuracies,
        "learning_rate": job.optimizers[0].param_groups[0]["lr"],
        "gradient_norm": norm,
        "tokens": state.tokens,
        "tokens_per_second": window.tokens / max(window.seconds, 1e-9),
        "padding": 1.0 - window.tokens / max(1, window.slots),
        "training_seconds": state.training_seconds,
    }


def _note_best(state: TrainState, metrics: Mapping[str, float]) -> bool:
    """Note the held-out loss if it is the lowest so far, and return whether it is: the best is always saved."""
    if not math.isfinite(metrics["loss"]):
        raise InputError(
            f"the held-out loss after step {state.step} is {metrics['loss']}",
            remedy="start anew with a lower --learning_rate or a longer warm-up; earlier checkpoints are as they were",
        )
    is_best = state.best_loss is None or metrics["loss"] < state.best_loss
    if is_best:
        state.best_step, state.best_loss = state.step, metrics["loss"]
    return is_best


def steps_that_fit(job: Job, minutes: float) -> int:
    """Return how many steps take `minutes` of training here, measured on a copy that is thrown away.

    At least 20 steps and 5 seconds are run; weights, moments and generators are afterwards as before.
    """
    generators = generator_state(job.runtime)
    module, optimizers = copy.deepcopy((job.module, job.optimizers))
    trial = replace(job, module=module, optimizers=optimizers)
    seconds: list[float] = []
    with Progress("measuring", total=None, unit="steps") as progress:
        while len(seconds) < MEASURED_STEPS or sum(seconds) < MEASURED_SECONDS:
            began = time.perf_counter()
            _update(trial, TrainState(step=len(seconds)))
            seconds.append(time.perf_counter() - began)
            progress.advance()
    restore_generators(job.runtime, generators)
    # The median of blocks of four: a step's time varies with its batch, and the first ones warm up.
    blocks = [sum(seconds[i : i + 4]) / 4 for i in range(4, len(seconds) - 3, 4)]
    return max(1, round(minutes * 60 / statistics.median(blocks)))
