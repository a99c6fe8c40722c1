"""Before the run: what it would cost, whether the model can learn at all, whether a resume here is exact.

In: a PretrainingRun, or how to open one.  Out: rows of a table; an error where something does not hold.
Next: pretraining_run.py
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from bertkit.errors import InputError, Stopped
from bertkit.tasks.diagnosis import warn_of_unusual
from bertkit.tasks.pretraining_model import num_parameters
from bertkit.tasks.pretraining_run import MeanStep, PretrainingRun
from bertkit.train.checkpoint import find_checkpoint
from bertkit.train.loop import Job, train
from bertkit.train.optimizer import num_moments
from bertkit.train.run import BYTES, one_batch, require_disk
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TRAINING, TrainState

VERIFIED_STEPS, STOP_AT = 20, 10
OVERFIT_STEPS, SHOWN_STEPS = 200, (1, 20, 50, 100)
# Of the first loss: what is left after 200 steps on one batch of 32 rows is 0.01 to 0.1 for models that can learn.
OVERFITTED = 0.25
OpenRun = Callable[[Path, TrainSettings], PretrainingRun]
Rows = list[tuple[str, str]]


def costs(work: PretrainingRun, training: TrainSettings, *, step: MeanStep) -> Rows:
    """Return what a run of training.max_steps would cost: memory, operations, time, disk.

    step: what one takes here.

    Raises:
        InputError: the disk or the memory does not suffice.
    """
    assert training.max_steps is not None
    warn_of_unusual(training, work.source)
    job = work.start_nothing(training)
    numbers = num_parameters(work.model)
    averages = 0 if training.ema_decay is None else 2  # the average, and the copy of the model that is evaluated
    trained = sum(parameter.numel() for parameter in work.model.parameters() if parameter.requires_grad)
    weights = BYTES * (numbers * (1 + averages) + trained + num_moments(job.optimizers))
    rate = step.flops / step.seconds
    disk = require_disk(job, work.directory)
    work.runtime.wait_for_all()  # the first process may throw the folder away
    return [
        ("parameters", f"{numbers:,}"),
        ("weights, gradients and moments in memory", in_bytes(weights)),
        ("steps", f"{training.max_steps:,} of {training.batch_size} rows"),
        ("tokens a step (padding not counted)", f"{step.tokens:,.0f}"),
        ("operations a step", f"{step.flops:.3g}"),
        ("tokens a second, measured", f"{step.tokens / step.seconds:,.0f}"),
        ("share of the machine's matrix rate", f"{100 * rate / work.peak_flops:.0f} %"),
        ("time to finish, evaluation and saving not counted", in_time(training.max_steps * step.seconds)),
        ("disk for checkpoints", in_bytes(disk)),
    ]


def overfit(work: PretrainingRun, training: TrainSettings, *, settings: Mapping[str, Any]) -> Rows:
    """Train on the first batch again and again, max_steps times (200), and return its losses; dropout is as set.

    Raises:
        InputError: the loss does not fall as it does for a model that can learn.
        Stopped: a signal came.
    """
    steps = training.max_steps or OVERFIT_STEPS
    training = replace(
        training,
        max_steps=steps,
        max_minutes=None,
        num_train_epochs=None,
        eval_every=steps + 1,
        save_every=steps + 1,
        log_every=1,
        lr_scheduler_type="constant",
        report_to="none",
    )
    job, state = work.start(training, settings=settings, record={})
    job = one_batch(replace(job, settings=training, save=lambda _: None, evaluate=lambda _: {"loss": 0.0}))
    losses: list[float] = []
    _train(replace(job, log=_Losses(losses)), state)
    first, last = losses[0], min(losses[-10:])
    rows = [(f"loss after {step} steps", f"{losses[step - 1]:.4f}") for step in SHOWN_STEPS if step < steps]
    rows.append((f"loss after {steps} steps", f"{losses[-1]:.4f}"))
    if last > OVERFITTED * first:
        how = "only fell" if last < first else "rose"
        raise InputError(
            f"the loss of one batch {how} from {first:.3f} to {last:.3f} in {steps} steps",
            expected=f"below {OVERFITTED * first:.3f}: a model that learns knows one batch by heart",
            remedy=f"raise {' and '.join(training.peak_rates)} (or --max_steps) if it fell evenly, lower it if it "
            "jumped; set the dropouts to 0; look at the rows by `bertkit inspect data STORE --show 3`",
        )
    return rows


class _Losses:
    """In place of the log: the loss of each step."""

    def __init__(self, losses: list[float]) -> None:
        self._losses = losses

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "train":
            self._losses.append(values["loss"])

    def close(self) -> None:
        pass


def verify_resume(open_run: OpenRun, folder: Path, training: TrainSettings, settings: Mapping[str, Any]) -> Rows:
    """Train 20 steps in one go and with a stop after 10, and return how many tensors were compared.

    open_run: opens the run in a folder; both runs are thrown away.

    Raises:
        InputError: a weight or moment differs.
        Stopped: a signal came.
    """
    training = replace(
        training,
        max_steps=VERIFIED_STEPS,
        max_minutes=None,
        num_train_epochs=None,
        eval_every=VERIFIED_STEPS,
        save_every=VERIFIED_STEPS,
        report_to="none",
    )
    ends = []
    for stops in ([], [STOP_AT]):
        directory = folder / ("stopped" if stops else "straight")
        for number, until in enumerate([*stops, VERIFIED_STEPS]):
            now = replace(training, resume_from="last" if number else None)
            work = open_run(directory, now)
            job, state = work.start(now, settings={**settings, "max_steps": VERIFIED_STEPS}, record={})
            _train(job, state, until=until)
        work.runtime.wait_for_all()
        ends.append(_tensors(find_checkpoint(directory, "last")))
        work.runtime.wait_for_all()  # the first process may throw the folder away
    straight, stopped = ends
    different = [name for name, content in straight.items() if stopped.get(name) != content]
    if different or straight.keys() != stopped.keys():
        raise InputError(
            f"a resumed run differs from one never stopped in {len(different)} of {len(straight)} tensors, first in "
            f"{different[:3]}",
            remedy="fix OMP_NUM_THREADS; on a GPU set CUBLAS_WORKSPACE_CONFIG=:4096:8",
        )
    return [("tensors compared, equal to the last bit", f"{len(straight):,}")]


def _train(job: Job, state: TrainState, *, until: int | None = None) -> None:
    """Train, and go no further where a signal came."""
    train(job, state, until=until)
    if signal_number := job.runtime.asked_to_stop():
        raise Stopped(signal_number, "stopped; a rehearsal leaves nothing to go on from")


def _tensors(checkpoint: Path) -> dict[str, bytes]:
    """Every weight and moment of a checkpoint as bytes."""
    found = {}
    for path in [checkpoint / "model.safetensors", *sorted((checkpoint / TRAINING).glob("*.safetensors"))]:
        for name, tensor in load_file(path).items():
            found[f"{path.name}: {name}"] = tensor.contiguous().flatten().numpy().tobytes()
    return found


def in_bytes(number: float) -> str:
    """Return a number of bytes as people read it.

    >>> in_bytes(1_760_000_000)
    '1.76 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def in_time(seconds: float) -> str:
    """Return a time as people read it.

    >>> in_time(93784)
    '1 day 2 h 3 min'
    """
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    parts = [f"{days} day{'s' * (days > 1)}"] if days else []
    return " ".join([*parts, *([f"{hours} h"] if hours or days else []), f"{minutes % 60} min"])
