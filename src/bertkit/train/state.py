"""What a run has come to: counters, weights, moments; taken as a snapshot, and put back.

In: a running job.  Out: a Snapshot whose tensors nothing changes any more; or the job as it was.  Next: checkpoint.py
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from bertkit.console import warn
from bertkit.errors import InputError
from bertkit.train.optimizer import load_optimizer_tensors, optimizer_tensors
from bertkit.train.parallel import ParallelModule
from bertkit.train.shards import part_like

TRAINING, STATE = "training", "state.json"
WEIGHTS, AVERAGE = "weights.safetensors", "average.safetensors"
FIRST_LOSS_SCALE = 2.0**16  # for fp16
LOWEST_LOSS_SCALE = 2.0**-10  # at this factor it is not fp16 that overflows
STEPS_BEFORE_A_HIGHER_SCALE = 2000  # good steps in a row after which the factor is doubled
# What may differ between two machines; all else that differs makes another run.
MACHINE = frozenset({"device", "threads", "versions", "processes"})


@dataclass
class Window:
    """Sums since the last line of the log."""

    losses: dict[str, float] = field(default_factory=dict)
    correct: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    tokens: int = 0  # padding not counted
    slots: int = 0  # padding counted
    flops: float = 0.0
    seconds: float = 0.0
    gradient_norm: float = 0.0  # of the last step, before clipping

    def add(self, other: "Window") -> None:
        """Add the sums of `other`."""
        for mine, theirs in ((self.losses, other.losses), (self.correct, other.correct)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0.0) + value
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.tokens += other.tokens
        self.slots += other.slots
        self.flops += other.flops
        self.seconds += other.seconds
        if other.counts:  # a step left out has none
            self.gradient_norm = other.gradient_norm


@dataclass
class TrainState:
    """What a run has come to; together with weights and moments it is all that a resume needs."""

    step: int = 0  # finished optimizer updates, those left out counted
    tokens: int = 0  # trained on, padding not counted
    training_seconds: float = 0.0  # evaluation and saving not counted
    best_step: int | None = None
    best_score: float | None = None  # the held-out metric that decides, at best_step
    evaluations_since_best: int = 0
    start_score: float | None = None  # the metric that decides, before training; None: not measured
    first_loss: float | None = None  # of training, in the first line of the log that has one
    lowest_loss: float | None = None  # in the lines behind it
    later_lines: int = 0  # behind that first one
    skipped_steps: int = 0  # left out because a loss or gradient was not finite
    skipped_in_a_row: int = 0
    loss_scale: float = FIRST_LOSS_SCALE  # fp16 only
    steps_since_scaled: int = 0  # fp16 only
    source: dict[str, Any] = field(default_factory=dict)  # what the source of batches wants back
    window: Window = field(default_factory=Window)  # so that the first line after a resume is the one without a stop

    def note_loss(self, loss: float) -> None:
        """Take the mean loss of a line of the log; one without a finite step is nan."""
        if self.first_loss is None:
            self.first_loss = loss if math.isfinite(loss) else None
            return
        self.later_lines += 1
        if math.isfinite(loss):
            self.lowest_loss = loss if self.lowest_loss is None else min(loss, self.lowest_loss)

    def note_good_step(self) -> None:
        """Count a step that was made, and double the factor of fp16 losses after many."""
        self.steps_since_scaled += 1
        if self.steps_since_scaled >= STEPS_BEFORE_A_HIGHER_SCALE:
            self.loss_scale, self.steps_since_scaled = 2.0 * self.loss_scale, 0

    def lower_loss_scale(self) -> bool:
        """Halve the factor of fp16 losses, as a gradient overflowed; return whether it was not the lowest already."""
        if self.loss_scale <= LOWEST_LOSS_SCALE:
            return False
        self.loss_scale, self.steps_since_scaled = self.loss_scale / 2.0, 0
        return True


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint in memory."""

    step: int
    best_step: int | None
    model_files: Mapping[str, bytes]
    tensors: dict[str, dict[str, Tensor]]  # file name under training/ -> tensors of its own memory
    state: dict[str, Any]
    facts: dict[str, Any]  # for the manifest

    @property
    def size(self) -> int:
        """Bytes that it takes on disk, nearly."""
        return sum(map(len, self.model_files.values())) + sum(
            t.nbytes for f in self.tensors.values() for t in f.values()
        )


def take_snapshot(
    state: TrainState,
    *,
    model_files: Mapping[str, bytes],
    module: ParallelModule,
    optimizers: list[torch.optim.Optimizer],
    fingerprint: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Snapshot:
    """Return the state of a run, copied; every process must call it, as parts are brought together.

    model_files: the Hugging Face directory. Where it does not hold the weights that training goes on from (because
        they are averaged), these are saved beside it.
    fingerprint: what must be the same for a resume to be exact; facts: what else the manifest should say.
    """
    tensors = {f"optimizer-{n}.safetensors": _copied(optimizer_tensors(each)) for n, each in enumerate(optimizers)}
    if module.average is not None:
        tensors[WEIGHTS] = _copied(module.whole_weights())
        tensors[AVERAGE] = _copied(module.average.whole_weights())
    # As JSON has it, so that the counters that go on after this cannot change it.
    values = json.loads(json.dumps({**asdict(state), "fingerprint": dict(fingerprint)}))
    return Snapshot(
        step=state.step,
        best_step=state.best_step,
        model_files=dict(model_files),
        tensors=tensors,
        state=values,
        facts={"step": state.step, "fingerprint": dict(fingerprint), **facts},
    )


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def read_state(directory: Path, *, fingerprint: Mapping[str, Any], allow_inexact: bool = False) -> TrainState:
    """Return the counters of a checkpoint.

    allow_inexact: go on although something differs, after a warning that lists it.

    Raises:
        InputError: something differs from the run that wrote it, so that the resume would not be exact; listed.
    """
    values = json.loads((directory / TRAINING / STATE).read_text(encoding="utf-8"))
    before = values.pop("fingerprint")
    now = json.loads(json.dumps(dict(fingerprint)))
    different = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    if different:
        listed = "; ".join(f"{name}: {before.get(name)!r} then, {now.get(name)!r} now" for name in sorted(different))
        if not allow_inexact:
            raise InputError(
                "was written by a run that differs: " + listed,
                file=directory,
                field="--resume_from",
                expected="the same settings, data and versions, so that resuming equals never having stopped",
                remedy="give the settings of that run (RUN/settings.yaml by --config_file); or go on all the same by "
                f"--allow_inexact; or start a new run from these weights: --model_name_or_path {directory}",
            )
        warn(f"this resume is not exact (--allow_inexact): {listed}")
    if different - MACHINE:
        values["source"] = {}  # where its epochs begin is found out again
    return TrainState(**{**values, "window": Window(**values["window"])})


def restore(directory: Path, module: ParallelModule, optimizers: list[torch.optim.Optimizer]) -> None:
    """Put the moments, and where weights are averaged these and their average, of a checkpoint back.

    (Weights that are not averaged are loaded with the model. Dropout needs no state: see runtime.seed_dropout.)

    Raises:
        InputError: the checkpoint has other moments than these optimizers keep.
    """
    folder = directory / TRAINING
    for number, optimizer in enumerate(optimizers):
        path = folder / f"optimizer-{number}.safetensors"
        if not path.is_file():
            raise InputError(
                "is missing: the checkpoint was written with another optimizer", file=path, field="--optimizer"
            )
        try:
            load_optimizer_tensors(optimizer, load_file(path))
        except ValueError as problem:
            raise InputError(
                f"was written with another optimizer or other trained weights ({problem})",
                file=path,
                field="--optimizer, --freeze_layers",
            ) from None
    average, is_averaged = module.average, (folder / AVERAGE).is_file()
    if is_averaged:  # training goes on from these; the model's file holds their average
        module.load_weights(load_file(folder / WEIGHTS))
    if average is not None and is_averaged:
        average.load({name: part_like(t, average.tensors[name]) for name, t in load_file(folder / AVERAGE).items()})
    elif average is not None:
        warn(f"{directory} has no averaged weights; the average begins anew with the weights of this step")
