"""Saving behind the back of training: in order, one at a time, and a failure is not lost."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_checkpoint import SavedRun

from bertkit.errors import InputError
from bertkit.train import saver as module
from bertkit.train.checkpoint import find_checkpoint
from bertkit.train.saver import Saver
from bertkit.train.state import Snapshot


def saver_of(folder: Path, *, writes: bool = True) -> Saver:
    return Saver(folder, limit=2, keep_every=None, writes=writes)


def failing(run_directory: Path, snapshot: Snapshot, *, limit: int, keep_every: int | None) -> Path:
    raise InputError(f"step {snapshot.step} could not be written", file=run_directory)


def test_what_was_given_is_on_disk_after_waiting(tmp_path: Path) -> None:
    run, saver = SavedRun(tmp_path), saver_of(tmp_path)
    for step in (1, 2, 3):
        saver.save(run.snapshot(step))
    saver.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*")) == ["step-2", "step-3"]
    saver.check()
    saver.wait()


def test_saving_does_not_wait_for_the_disk_but_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, written = threading.Event(), []

    def slow(run_directory: Path, snapshot: Snapshot, *, limit: int, keep_every: int | None) -> Path:
        assert disk.wait(10)
        written.append(snapshot.step)
        return run_directory

    monkeypatch.setattr(module, "write_checkpoint", slow)
    run, saver = SavedRun(tmp_path), saver_of(tmp_path)
    saver.save(run.snapshot(1))
    saver.check()
    assert written == []
    threading.Timer(0.1, disk.set).start()
    saver.save(run.snapshot(2))
    assert written[0] == 1
    saver.wait()
    assert written == [1, 2]


@pytest.mark.parametrize("how", ["check", "save", "wait"])
def test_a_failure_is_raised_at_the_next_occasion_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(module, "write_checkpoint", failing)
    run, saver = SavedRun(tmp_path), saver_of(tmp_path)
    occasions: dict[str, Callable[[], None]] = {
        "check": saver.check,
        "save": lambda: saver.save(run.snapshot(2)),
        "wait": saver.wait,
    }
    saver.save(run.snapshot(1))
    assert saver._pending is not None
    saver._pending.exception(10)  # it has failed by now
    with pytest.raises(InputError, match="step 1 could not be written"):
        occasions[how]()
    saver.check()
    saver.wait()


def train_and_save(run: SavedRun, *, fails: bool) -> None:
    saver = saver_of(run.folder)
    with saver.finishing():
        saver.save(run.snapshot(1))
        if fails:
            raise KeyError


def test_what_was_begun_is_finished_when_training_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        train_and_save(SavedRun(tmp_path), fails=True)
    assert find_checkpoint(tmp_path, "last").name == "step-1"


def test_a_failure_to_save_does_not_hide_what_ended_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "write_checkpoint", failing)
    for fails, expected in ((True, KeyError), (False, InputError)):
        with pytest.raises(expected):
            train_and_save(SavedRun(tmp_path), fails=fails)


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    run, saver = SavedRun(tmp_path), saver_of(tmp_path, writes=False)
    saver.save(run.snapshot(1))
    saver.check()
    saver.wait()
    assert list(tmp_path.iterdir()) == []
