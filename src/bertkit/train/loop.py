"""The training loop; it knows no task and no model.

In: a module that gives sums of losses, a source of batches, and two callables: evaluate and save.
Out: the weights changed, metrics written, checkpoints saved.  Next: ../tasks/ (whose losses these are)
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from bertkit.console import Progress, say, warn
from bertkit.errors import InputError
from bertkit.train.feed import Source, StepBatches, feed
from bertkit.train.optimizer import rates_now, set_rates
from bertkit.train.parallel import ParallelModule
from bertkit.train.runtime import Runtime, seed_dropout
from bertkit.train.saver import Saver
from bertkit.train.schedule import rate_factor
from bertkit.train.settings import TrainSettings, rates_at_fault
from bertkit.train.state import TrainState, Window


class LossSums(NamedTuple):
    """What a module gives for one micro-batch; the loss of a step is the sum over losses of all sums ÷ count."""

    sums: dict[str, Tensor]  # () each, with gradient
    correct: dict[str, Tensor]  # () each: how many of the labels the highest score hits; losses without may be left out


class Log(Protocol):
    """Where the numbers of a run go."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Take one line; `kind` is train, validation or samples."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


@dataclass(frozen=True)
class Job:
    """All that a run consists of."""

    module: ParallelModule  # module(batch) → LossSums
    source: Source
    optimizers: list[torch.optim.Optimizer]
    settings: TrainSettings
    max_steps: int
    runtime: Runtime
    log: Log
    evaluate: Callable[[int], Mapping[str, float]]  # held-out metrics at a step
    save: Callable[[TrainState], None]  # begins to write a checkpoint
    eval_every: int
    save_every: int
    saver: Saver | None = None  # what `save` hands the checkpoint to; None: it is written when `save` returns
    deciding_metric: str = "loss"  # of the held-out metrics: which says what is best
    higher_is_better: bool = False
    begins_low: bool = False  # the loss is near the least there may be: that it never fell means nothing
    peak_flops: float = math.inf  # of this machine's matrix products a second, over all processes


def train(job: Job, state: TrainState, *, until: int | None = None) -> TrainState:
    """Train until max_steps, evaluating, saving and logging on the way; `state` says where to start.

    until: stop after so many steps in all, as if asked to by a signal.
    Where a signal asks to stop, the open step is thrown away and the last whole one saved: see runtime.stop.received.

    Raises:
        InputError: the loss or the gradient is not finite (the weights are then those before that step), the held-out
            metric is not, a checkpoint cannot be written, or another process is gone.
    """
    end = job.max_steps if until is None else min(until, job.max_steps)
    batches = feed(
        job.source,
        start=state.step,
        end=end,
        workers=job.settings.data_workers,
        pin_memory=job.runtime.device.type == "cuda",
    )
    saved_at = state.step
    with (
        job.runtime.watchdog.watching(),
        job.runtime.answering(),
        job.runtime.stop.listening(),
        nullcontext() if job.saver is None else job.saver.finishing(),
        Progress("training", total=job.max_steps, unit="steps", start=state.step) as progress,
    ):
        while state.step < end and not _has_stalled(job, state):
            if not _step(job, state, batches, progress):
                break
            if _evaluate_and_log(job, state):
                job.save(state)
                saved_at = state.step
            if job.saver is not None:
                job.saver.check()
        if saved_at != state.step:
            job.save(state)
    return state


def _step(job: Job, state: TrainState, batches: Iterator[StepBatches], progress: Progress) -> bool:
    """Make one update and count it; return False where a signal came before it was whole."""
    began = time.perf_counter()
    found = update(job, state, batches)
    if found is None:
        return False
    found.seconds = time.perf_counter() - began
    state.step += 1
    state.training_seconds += found.seconds
    state.window.add(found)
    progress.advance(extra=_summary(state.window))
    return True


def _evaluate_and_log(job: Job, state: TrainState) -> bool:
    """Write down what is due after a step; return whether a checkpoint is."""
    last = state.step == job.max_steps
    if state.step % job.settings.log_every == 0 or last:
        _write_line(job, state)
    evaluated = state.step % job.eval_every == 0 or last
    is_best = evaluated and _note_best(job, state, job.evaluate(state.step))
    job.runtime.watchdog.beat()
    if _has_stalled(job, state) and state.window.counts:  # the last line of a run that ends early
        _write_line(job, state)
    return is_best or state.step % job.save_every == 0 or last or _has_stalled(job, state)


def _write_line(job: Job, state: TrainState) -> None:
    metrics = _metrics(job, state)
    job.log.write("train", state.step, metrics)
    state.note_loss(metrics["loss"])
    state.window = Window()


def update(job: Job, state: TrainState, batches: Iterator[StepBatches]) -> Window | None:
    """Make one optimizer update, unless something is not finite; return the step's sums, None where a signal came."""
    job.module.module.train()
    batch = next(batches)
    state.source = dict(batch.source)
    sums = _forward_and_backward(job, state, batch)
    if sums is None:
        _drop_gradients(job)
        return None
    found, ranks = sums
    scale = _loss_scale(job, state)
    if scale != 1.0:
        gradients = [p.grad for p in job.module.module.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / scale)
    norm = job.module.gradient_norm().item()
    loss = sum(total / (batch.counts[name] or 1) for name, total in found.losses.items())
    if not (math.isfinite(loss) and math.isfinite(norm)):
        _drop_gradients(job)
        _leave_out(job, state, loss=loss, gradient=norm, ranks=ranks)
        return Window()
    if norm > job.settings.max_grad_norm:
        factor = torch.tensor(norm)
        torch.nn.utils.clip_grads_with_norm_(job.module.module.parameters(), job.settings.max_grad_norm, factor)
    set_rates(job.optimizers, rate_factor(state.step, max_steps=job.max_steps, settings=job.settings))
    for optimizer in job.optimizers:
        optimizer.step()
    _drop_gradients(job)
    if job.module.average is not None:
        job.module.average.update()
    state.skipped_in_a_row = 0
    if job.runtime.precision == "fp16":
        state.note_good_step()
    state.tokens += batch.tokens
    found.gradient_norm = norm
    return found


def _forward_and_backward(job: Job, state: TrainState, batch: StepBatches) -> tuple[Window, list[int]] | None:
    """Add up the gradients of this process's micro-batches.

    Return the step's sums over all processes, and on which of them a sum is not finite; None where a signal came.
    """
    names, judged, rows = list(batch.counts), list[str](), []
    factor = _loss_scale(job, state) * job.module.loss_factor
    for turn, (number, micro_batch) in enumerate(zip(batch.numbers, batch.micro_batches, strict=True)):
        job.runtime.watchdog.beat()
        if job.runtime.asked_to_stop():
            return None
        seed_dropout(job.settings.seed, step=state.step, micro_batch=number)
        with job.module.gradients(exchanged=turn == len(batch.micro_batches) - 1):
            with job.runtime.autocast():
                found: LossSums = job.module(job.runtime.to_device(micro_batch))
            # One fraction over the whole step, so that its cut into micro-batches changes nothing.
            loss = torch.stack([found.sums[name] / (batch.counts[name] or 1) for name in names]).sum()
            torch.autograd.backward(loss * factor if factor != 1 else loss)
        judged = list(found.correct)
        numbers = [found.sums[name].detach() for name in names] + [found.correct[name] for name in judged]
        rows.append(torch.stack([number.float() for number in numbers]))
    everyones = job.runtime.gathered(torch.stack(rows).cpu().double().sum(dim=0).tolist())
    totals = [sum(column) for column in zip(*everyones, strict=True)]
    window = Window(
        losses=dict(zip(names, totals[: len(names)], strict=True)),
        correct=dict(zip(judged, totals[len(names) :], strict=True)),
        counts=dict(batch.counts),
        tokens=batch.tokens,
        slots=batch.slots,
        flops=batch.flops,
    )
    return window, [rank for rank, numbers in enumerate(everyones) if not all(map(math.isfinite, numbers))]


def _drop_gradients(job: Job) -> None:
    for optimizer in job.optimizers:
        optimizer.zero_grad(set_to_none=True)


# --- numbers that are not finite ----------------------------------------------------------------------------------


def _loss_scale(job: Job, state: TrainState) -> float:
    """What a loss is multiplied by, so that small gradients do not vanish in fp16."""
    return state.loss_scale if job.runtime.precision == "fp16" else 1.0


def _leave_out(job: Job, state: TrainState, *, loss: float, gradient: float, ranks: list[int]) -> None:
    """Count a step that is not made, or stop: the optimizers are not called, as 0 × NaN is NaN.

    ranks: the processes on which a loss is not finite; none where only a gradient is not, which is summed by then.
    """
    name, value = ("loss", loss) if not math.isfinite(loss) else ("gradient", gradient)
    state.skipped_steps += 1
    if job.runtime.precision == "fp16" and name == "gradient" and state.lower_loss_scale():
        return
    state.skipped_in_a_row += 1
    examples = job.source.describe(state.step)
    if job.runtime.num_ranks > 1 and ranks:
        examples += f"; on process {', '.join(map(str, ranks))} of {job.runtime.num_ranks}"
    if job.settings.on_non_finite == "skip" and state.skipped_in_a_row < job.settings.max_skipped_steps:
        warn(f"step {state.step + 1} is left out: its {name} is {value} ({examples})")
        return
    raise InputError(
        f"the {name} of step {state.step + 1} is {value}; this step was not made ({examples})",
        **rates_at_fault(job.settings),
        expected=None
        if job.settings.on_non_finite == "stop"
        else f"fewer than {job.settings.max_skipped_steps} such steps in a row (--max_skipped_steps)",
        remedy="start anew with a lower rate, a longer warm-up or --precision fp32; from the weights of the "
        "last checkpoint, if they are good, by --model_name_or_path",
    )


# --- what is said and decided -------------------------------------------------------------------------------------


def _summary(window: Window) -> str:
    losses = [f"{name} {total / (window.counts[name] or 1):.3f}" for name, total in window.losses.items()]
    return ", ".join([*losses, f"{window.tokens / max(window.seconds, 1e-9):,.0f} tokens/s"])


def _metrics(job: Job, state: TrainState) -> dict[str, float]:
    window, seconds = state.window, max(state.window.seconds, 1e-9)
    losses = {f"{name}_loss": total / (window.counts[name] or 1) for name, total in window.losses.items()}
    accuracies = {f"{name}_accuracy": hits / (window.counts[name] or 1) for name, hits in window.correct.items()}
    metrics = {
        **losses,
        "loss": sum(losses.values()) if losses else math.nan,  # every step of this line was left out
        **accuracies,
        **rates_now(job.optimizers),
        "gradient_norm": window.gradient_norm,
        "tokens": state.tokens,
        "tokens_per_second": window.tokens / seconds,
        "padding": 1.0 - window.tokens / max(1, window.slots),
        "mfu": window.flops / seconds / job.peak_flops,
        "training_seconds": state.training_seconds,
        "skipped_steps": state.skipped_steps,
    }
    if job.runtime.precision == "fp16":
        metrics["loss_scale"] = state.loss_scale
    return metrics


def _note_best(job: Job, state: TrainState, metrics: Mapping[str, float]) -> bool:
    """Note the deciding metric if it is the best so far, and return whether it is: the best is always saved."""
    # The first process's: were two to round it apart, one would stop or save, and the others wait for it.
    score = job.runtime.gathered([metrics[job.deciding_metric]])[0][0]
    if not math.isfinite(score):
        raise InputError(
            f"the held-out {job.deciding_metric} after step {state.step} is {score}",
            remedy=f"start anew with a lower {' and '.join(job.settings.peak_rates)} or a longer warm-up; earlier "
            "checkpoints are as they were",
        )
    best = state.best_score
    is_best = best is None or (score > best if job.higher_is_better else score < best)
    state.evaluations_since_best = 0 if is_best else state.evaluations_since_best + 1
    if is_best:
        state.best_step, state.best_score = state.step, score
    elif _has_stalled(job, state) and state.step < job.max_steps:
        say(f"no better {job.deciding_metric} in {state.evaluations_since_best} evaluations: training ends early")
    return is_best


def _has_stalled(job: Job, state: TrainState) -> bool:
    patience = job.settings.early_stopping_patience
    return patience is not None and state.evaluations_since_best >= patience
