"""What is tried before a run: its longest batch, the length of a step, the machine's rate."""

import math
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from toy_job import toy_job

from bertkit.errors import InputError
from bertkit.train import runtime, trial
from bertkit.train.settings import TrainSettings


def ticking(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A clock that goes on by so many seconds with each look."""
    ticks = count()
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * seconds))


def test_twenty_steps_are_measured_at_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy_job(tmp_path)
    ticking(monkeypatch, 0.5)
    assert trial.seconds_a_step(made.job) == 0.5
    assert made.job.source.asked == list(range(20))  # type: ignore[attr-defined]
    assert made.lines() == []


def test_five_seconds_are_measured_where_steps_are_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy_job(tmp_path)
    ticking(monkeypatch, 1 / 8)
    assert trial.seconds_a_step(made.job) == 1 / 8
    assert len(made.job.source.asked) == 40  # type: ignore[attr-defined]


def test_the_first_steps_and_single_slow_ones_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [60.0] * 4 + [1.0] * 6 + [300.0] + [1.0] * 9  # warming up, and one stall
    clock = [0.0]
    for length in lengths:
        clock += [clock[-1], clock[-1] + length]
    times = iter(clock[1:])
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert trial.seconds_a_step(toy_job(tmp_path).job) == 1.0


def test_the_longest_batch_leaves_no_trace(tmp_path: Path) -> None:
    made = toy_job(tmp_path)
    before = [parameter.detach().clone() for parameter in made.scores.parameters()]
    trial.try_longest_batch(made.job)
    assert all(torch.equal(a, b) for a, b in zip(before, made.scores.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in made.scores.parameters())
    assert not any(optimizer.state for optimizer in made.job.optimizers)


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore of it"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory: you tried to"),
    ],
    ids=["gpu", "processor"],
)
def test_a_batch_that_memory_does_not_hold_is_an_input_error_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: RuntimeError
) -> None:
    made = toy_job(tmp_path)

    def full(*_: object) -> None:
        raise problem

    monkeypatch.setattr(made.scores, "forward", full)
    made.job.source.longest = lambda: {"input_ids": torch.zeros(8, 128)}  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"--micro_batch_tokens: memory does not suffice for 8 rows of 128 tokens"):
        trial.try_longest_batch(made.job)


def test_another_failure_of_the_longest_batch_is_not_taken_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy_job(tmp_path)

    def broken(*_: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(made.scores, "forward", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        trial.try_longest_batch(made.job)


def test_the_rate_of_matrix_products_is_that_of_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 3.0, 3.0, 5.0, 5.0, 6.0, 6.0, 8.0, 8.0, 11.0])
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert math.isclose(trial.matrix_rate(runtime.start(TrainSettings())), 2 * 512**3 / 1.0)
