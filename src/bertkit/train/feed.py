"""The batches of each step, made here or ahead of time by other processes; the same ones either way.

In: a Source, and from which step to which.  Out: StepBatches, in the order of the steps.  Next: loop.py
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, parent_process
from multiprocessing.connection import wait
from multiprocessing.resource_tracker import ensure_running
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bertkit.errors import InputError

STEPS_AHEAD = 4  # of each process
NOTICED_SECONDS = 1.0  # within which the end of a process is known


@dataclass(frozen=True)
class StepBatches:
    """One global batch: this process's share of it, in micro-batches."""

    micro_batches: list[dict[str, Tensor]]
    numbers: Sequence[int]  # of the micro-batches among those of all processes
    counts: Mapping[str, float]  # labels of each loss in the whole step (or their weight): the denominators
    tokens: int  # of all processes, padding not counted
    slots: int  # padding counted
    flops: float = 0.0  # multiplications and additions of a forward and a backward pass over the whole step
    source: Mapping[str, Any] = field(default_factory=dict)  # what the source wants back in a resume


class Source(Protocol):
    """Where batches come from: the batches of a step depend on the step's number only."""

    def step(self, step: int) -> StepBatches:
        """Return the batches of the step that follows `step` finished ones."""
        ...

    def longest(self) -> dict[str, Tensor]:
        """Return the largest micro-batch there can be."""
        ...

    def describe(self, step: int) -> str:
        """Return which examples the step's batches hold, in words."""
        ...


_Packed = tuple[StepBatches, list[dict[str, NDArray[Any]]]]


class _Steps(Dataset[_Packed | InputError]):
    """A Source as a Dataset of steps, on their way to another process.

    Micro-batches travel as arrays: PyTorch would open a file for every tensor, and a process has 1,024 as a rule. An
    error of the user's travels as it is, without a traceback around it.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, step: int) -> _Packed | InputError:
        try:
            batches = self._source.step(step)
        except InputError as problem:  # raised here, it would come out as the text of a traceback
            return problem
        arrays = [{name: tensor.numpy() for name, tensor in each.items()} for each in batches.micro_batches]
        return replace(batches, micro_batches=[]), arrays


def feed(source: Source, *, start: int, end: int, workers: int, pin_memory: bool) -> Iterator[StepBatches]:
    """Yield the batches of the steps from `start` to before `end`.

    workers: processes that make them ahead; 0: each is made when it is asked for.
    pin_memory: keep those made ahead where a GPU can fetch them by itself.

    Raises:
        InputError: a process that makes batches has died, or what the source raises.
    """
    if workers == 0:
        for step in range(start, end):
            yield source.step(step)
        return
    loader = DataLoader(
        _Steps(source),
        batch_size=None,
        sampler=range(start, end),
        num_workers=workers,
        collate_fn=_as_it_is,  # type: ignore[arg-type]  # (without batching it gets what the dataset gives)
        prefetch_factor=STEPS_AHEAD,
        worker_init_fn=_end_with_the_run,
        # A fork of a process whose libraries have started threads may never wake up.
        multiprocessing_context="forkserver",
    )
    others = set(active_children())
    batches_of_steps = _deaf_to_signals(loader)
    processes = set(active_children()) - others
    try:
        for found in batches_of_steps:
            if isinstance(found, InputError):
                raise found
            yield _unpacked(found, pin_memory=pin_memory)
    except (RuntimeError, OSError, EOFError) as problem:  # the latter two while a batch was being handed over
        if not wait((process.sentinel for process in processes), timeout=NOTICED_SECONDS):
            raise
        raise InputError(
            f"a process that makes batches has died ({(str(problem) or repr(problem)).splitlines()[0]})",
            field="--data_workers",
            value=workers,
            remedy="if memory ran out, use fewer; then go on by --resume_from last",
        ) from problem
    finally:
        del batches_of_steps  # which lets its processes end by themselves
        for process in processes:
            process.kill()


def _end_with_the_run(_: int) -> None:
    """Let this process end when the one that trains does, even if that one is killed.

    PyTorch's own watch looks at the parent, which is the server that forks: that one lives as long as its children.
    """
    trainer = parent_process()
    assert trainer is not None

    def watch() -> None:
        trainer.join()
        os._exit(1)

    threading.Thread(target=watch, name="trainer", daemon=True).start()


def _deaf_to_signals(loader: DataLoader[_Packed | InputError]) -> Iterator[_Packed | InputError]:
    """Start the loader's processes so that they do not hear SIGTERM and SIGINT, and return what they make.

    Such a signal often goes to every process of a terminal or a job; the one that trains decides what it means,
    and needs a batch to come to the place where it does.
    """
    ensure_running()  # the tracker of shared memory, which would open the mask again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        return iter(loader)  # new processes, the server that forks them too, inherit the mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_it_is(batches: _Packed | InputError) -> _Packed | InputError:
    return batches


def _unpacked(packed: _Packed, *, pin_memory: bool) -> StepBatches:
    batches, arrays = packed
    tensors = [{name: torch.from_numpy(array) for name, array in each.items()} for each in arrays]
    if pin_memory:
        tensors = [{name: tensor.pin_memory() for name, tensor in each.items()} for each in tensors]
    return replace(batches, micro_batches=tensors)
