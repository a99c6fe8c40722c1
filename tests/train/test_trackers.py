"""--report_to: a tracker that is not installed is named with the way to get it; one that is gets the numbers."""

from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, get_args

import pytest

from bertkit.errors import InputError
from bertkit.train import log
from bertkit.train.log import MetricsLog
from bertkit.train.settings import Tracker

NAMES = [name for name in get_args(Tracker) if name not in ("none", "tensorboard")]


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_that_is_not_installed_says_how_to_get_it(
    tmp_path: Path, name: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=rf"--report_to: is not installed\n  value: '{name}'\n.*: pip install {name}$"):
        MetricsLog(tmp_path, after_step=0, report_to=name)


@pytest.mark.parametrize("has_folder", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_gets_every_number_under_its_kind(
    tmp_path: Path, name: Tracker, has_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    class Recorder:
        requires_logging_directory = has_folder

        def __init__(self, run_name: str, logging_dir: str | None = None) -> None:
            calls.append(("made", run_name, logging_dir))

        def start(self) -> None:
            calls.append(("start",))

        def log(self, values: Mapping[str, float], *, step: int) -> None:
            calls.append(("log", dict(values), step))

        def finish(self) -> None:
            calls.append(("finish",))

    monkeypatch.setattr(log, "find_spec", lambda name: ModuleSpec(name, None))
    assert name in log.LOGGER_TYPE_TO_CLASS
    monkeypatch.setitem(log.LOGGER_TYPE_TO_CLASS, name, Recorder)
    metrics = MetricsLog(tmp_path, after_step=0, report_to=name)
    metrics.write("train", 3, {"loss": 1.5, "tokens": 7, "bad": float("nan"), "note": "text"})
    metrics.close()
    made = ("made", name, str(tmp_path)) if has_folder else ("made", "bertkit", None)
    assert calls == [made, ("start",), ("log", {"train/loss": 1.5, "train/tokens": 7}, 3), ("finish",)]


def test_a_process_that_does_not_write_starts_no_tracker(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path, after_step=0, report_to="wandb", writes=False)
    metrics.write("train", 1, {"loss": 1.0})
    metrics.close()
    assert not list(tmp_path.iterdir())
