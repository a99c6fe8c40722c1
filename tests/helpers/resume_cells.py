"""Runs that are stopped and go on, in every way that promise B1 names; a straight run is one of no stops."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from toy_run import metrics_of, toy_config

from bertkit.commands import pretrain as command
from bertkit.commands import running
from bertkit.errors import Stopped
from bertkit.train import loop, trial
from bertkit.train.feed import StepBatches
from bertkit.train.state import TrainState, Window

EPOCH, STEPS, EVALUATION = 12, 26, 13  # steps of the first epoch, of the run, and between two evaluations
# After how many steps a run is asked to stop; .5: while the next step is being made.
STOPS: dict[str, tuple[float, ...]] = {
    "step 1": (1,),
    "mid-epoch": (7,),
    "mid-accumulation": (4.5,),
    "epoch end": (EPOCH,),
    "just after evaluation": (EVALUATION,),
    "last step": (STEPS - 0.5,),
    "two stops": (6, 18.5),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon"},
    "ema": {"optimizer": "adamw", "ema_decay": 0.9},
}
# --micro_batch_tokens by (processes, micro-batches of each): 8 rows of up to 32 tokens.
TOKENS = {(1, 1): 10**6, (1, 4): 40, (2, 1): 128, (2, 4): 1}


@dataclass(frozen=True)
class Cell:
    """One way to be stopped."""

    stop: str
    workers: int
    micro_batches: int  # of each process in a step, at least
    optimizer: str

    def __str__(self) -> str:
        return f"{self.optimizer}, {self.stop}, {self.workers} workers, {self.micro_batches} micro-batches"


def all_cells(optimizer: str) -> list[Cell]:
    """The 28 cells of one optimizer and one number of processes."""
    return [Cell(stop, workers, cut, optimizer) for stop, workers, cut in product(STOPS, (0, 2), (1, 4))]


def straight_run(store: Path, folder: Path, *, num_ranks: int, micro_batches: int, optimizer: str) -> Path:
    """Make a run that is never stopped, once, and return its folder."""
    run = folder / f"straight-{optimizer}-{micro_batches}"
    if not run.exists():
        with _quick():
            command.pretrain(_config(store, run, Cell("", 0, micro_batches, optimizer), num_ranks))
    return run


def stopped_run(store: Path, folder: Path, cell: Cell, *, num_ranks: int, is_last_rank: bool = True) -> Path:
    """Make a run that is stopped and goes on as the cell says; only the last process is asked to stop."""
    run = folder / "-".join(map(str, asdict(cell).values())).replace(" ", "-")
    with _quick():
        for number, stop in enumerate(STOPS[cell.stop]):
            with pytest.raises(Stopped), _asked_to_stop(stop if is_last_rank else -1.0, cell.micro_batches):
                command.pretrain(_config(store, run, cell, num_ranks, resume_from="last" if number else None))
        command.pretrain(_config(store, run, cell, num_ranks, resume_from="last"))
    return run


def differences(first: Path, second: Path) -> list[str]:
    """What differs between the ends of two runs: losses, every weight and moment, counters, the finished model."""
    one, other = (_end_of(run) for run in (first, second))
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def _end_of(run: Path) -> dict[str, Any]:
    folder = run / "checkpoints" / f"step-{STEPS}"
    state = json.loads((folder / "training" / "state.json").read_text(encoding="utf-8"))
    del state["training_seconds"], state["window"]["seconds"]
    tensors = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}
    return {**tensors, "state": state, "metrics": metrics_of(run), "best": (run / "model.safetensors").read_bytes()}


def _config(store: Path, run: Path, cell: Cell, num_ranks: int, *, resume_from: str | None = None) -> command.Config:
    return toy_config(
        store,
        run,
        max_steps=STEPS,
        eval_every=EVALUATION,
        save_every=4,
        log_every=3,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        micro_batch_tokens=TOKENS[num_ranks, cell.micro_batches],
        data_workers=cell.workers,
        hang_timeout=60.0,
        resume_from=resume_from,
        **OPTIMIZERS[cell.optimizer],
    )


@contextmanager
def _quick() -> Iterator[None]:
    """Leave out what says nothing of the numbers of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "matrix_rate", lambda _: 1e9)
        patch.setattr(running, "write_report", lambda _: None)
        yield


@contextmanager
def _asked_to_stop(after: float, micro_batches: int) -> Iterator[None]:
    """A signal comes to runs inside, between two steps or (.5) after the first micro-batch of the next one."""
    update, seed_dropout = loop.update, loop.seed_dropout
    job: loop.Job | None = None

    def update_and_look(given: loop.Job, state: TrainState, batches: Iterator[StepBatches]) -> Window | None:
        nonlocal job
        job = given
        if state.step == after:
            job.runtime.stop.received = signal.SIGTERM
        return update(job, state, _counted(batches, micro_batches))

    def seed_and_look(seed: int, *, step: int, micro_batch: int) -> None:
        if job is not None and step + 0.5 == after:
            job.runtime.stop.received = signal.SIGTERM
        seed_dropout(seed, step=step, micro_batch=micro_batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "update", update_and_look)
        patch.setattr(loop, "seed_dropout", seed_and_look)
        yield


def _counted(batches: Iterator[StepBatches], micro_batches: int) -> Iterator[StepBatches]:
    """The batches; a full one has as many micro-batches as the cell says."""
    for batch in batches:
        found = len(batch.micro_batches)
        assert found == 1 if micro_batches == 1 else found >= micro_batches or batch.counts["nsp"] < 8
        yield batch
