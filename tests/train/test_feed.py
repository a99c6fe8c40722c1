"""Batches made here or ahead by other processes: the same ones in the same order, and a process that dies is named."""

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import dataloader
from toy_job import Batches, BrokenBatches, ManyBatches, toy_job

from bertkit.errors import InputError
from bertkit.train import feed as feeds
from bertkit.train.feed import StepBatches, feed
from bertkit.train.loop import train
from bertkit.train.state import TrainState


@pytest.fixture(scope="module", autouse=True)
def quick_start() -> None:
    """The server that forks the processes has torch loaded, unless it was started by a test before."""
    multiprocessing.set_forkserver_preload(["toy_job"])


def fed(source: Batches, *, workers: int, start: int = 3, end: int = 12) -> Iterator[StepBatches]:
    return feed(source, start=start, end=end, workers=workers, pin_memory=False)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_two_processes_give_the_same_batches_in_the_same_order() -> None:
    here, ahead = (list(fed(Batches(rows=2), workers=workers)) for workers in (0, 2))
    assert len(here) == len(ahead) == 9
    for mine, theirs in zip(here, ahead, strict=True):
        assert list(mine.numbers) == list(theirs.numbers)
        assert (mine.counts, mine.tokens, mine.slots, mine.flops) == (
            *(theirs.counts, theirs.tokens, theirs.slots, theirs.flops),
        )
        for one, other in zip(mine.micro_batches, theirs.micro_batches, strict=True):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_many_micro_batches_take_no_more_files_than_few() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    batches = fed(ManyBatches(), workers=1)
    next(batches)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, before[1]))
        assert [len(found.micro_batches) for found in batches] == [200] * 8
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("pin_memory", [False, True])
def test_what_is_made_ahead_for_a_gpu_is_pinned(pin_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    packed = feeds._Steps(Batches(rows=2))[3]
    assert not isinstance(packed, InputError)
    found = feeds._unpacked(packed, pin_memory=pin_memory)
    assert len(pinned) == (6 if pin_memory else 0)  # three micro-batches of two tensors
    for mine, theirs in zip(found.micro_batches, Batches(rows=2).step(3).micro_batches, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_nothing_is_made_before_it_is_asked_for_without_other_processes() -> None:
    source = Batches()
    batches = fed(source, workers=0)
    assert source.asked == []
    next(batches)
    assert source.asked == [3]


def test_a_run_that_is_over_asks_for_nothing() -> None:
    assert list(fed(Batches(), workers=0, start=4, end=4)) == []


def test_a_process_that_dies_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch looks every five seconds whether its workers live.
    monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (0.2,))
    made = toy_job(tmp_path, data_workers=1, max_steps=1000)
    evaluate = made.job.evaluate

    def kill_and_evaluate(step: int) -> object:
        if step == 5:
            workers = [each for each in started if each._workers]
            os.kill(workers[-1]._workers[0].pid, signal.SIGKILL)
            time.sleep(0.3)
        return evaluate(step)

    started: list[dataloader._MultiProcessingDataLoaderIter] = []
    begin = dataloader._MultiProcessingDataLoaderIter.__init__

    def noted(self: dataloader._MultiProcessingDataLoaderIter, loader: object) -> None:
        started.append(self)
        begin(self, loader)

    monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter, "__init__", noted)
    vars(made.job)["evaluate"] = kill_and_evaluate
    with pytest.raises(InputError, match=r"--data_workers: a process that makes batches has died \(.*exited") as caught:
        train(made.job, TrainState())
    assert "value: 1" in str(caught.value)
    assert "go on by --resume_from last" in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_the_source_refuses_is_said_as_it_is(workers: int) -> None:
    batches = fed(BrokenBatches(), workers=workers)
    next(batches)
    with pytest.raises(InputError) as caught:
        list(batches)
    assert str(caught.value) == "shard-00001.arrow: cannot be read\n  what to do: build the store anew"
