"""metrics.jsonl: whole lines, cut back on a resume; the tracker."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bertkit.errors import InputError
from bertkit.train import runtime
from bertkit.train.log import METRICS, MetricsLog, closed_on_failure
from bertkit.train.settings import TrainSettings

SAMPLE = {"samples": [{"original": "明月\u2028几时有\x85？", "filled": "a line\u2029break"}]}


def written(run: Path, steps: range) -> Path:
    log = MetricsLog(run, after_step=0, report_to="none")
    for step in steps:
        log.write("train", step, {"loss": 1.0 / step})
    log.close()
    return run / METRICS


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_every_write_is_one_whole_line_of_json(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, after_step=0, report_to="none")
    log.write("train", 1, {"loss": 2.5, "tokens": 7})
    log.write("samples", 1, SAMPLE)
    first, second, end = (tmp_path / METRICS).read_bytes().split(b"\n")
    assert json.loads(first) == {"kind": "train", "step": 1, "loss": 2.5, "tokens": 7}
    assert json.loads(second) == {"kind": "samples", "step": 1, **SAMPLE}
    assert "明月".encode() in second
    assert end == b""


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_written_as_null(tmp_path: Path, number: float) -> None:
    MetricsLog(tmp_path, after_step=0, report_to="none").write("train", 1, {"loss": number, "tokens": 1})
    assert json.loads((tmp_path / METRICS).read_bytes()) == {"kind": "train", "step": 1, "loss": None, "tokens": 1}


def test_a_resume_cuts_the_file_back_to_the_step_of_the_checkpoint(tmp_path: Path) -> None:
    path = written(tmp_path, range(1, 8))
    before = path.read_bytes().split(b"\n")
    MetricsLog(tmp_path, after_step=5, report_to="none").write("train", 6, {"loss": 0.5})
    assert steps_in(path) == [1, 2, 3, 4, 5, 6]
    assert path.read_bytes().split(b"\n")[:5] == before[:5]


def test_a_resume_that_fails_before_its_first_line_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, range(1, 8))
    MetricsLog(tmp_path, after_step=5, report_to="none").close()
    assert steps_in(path) == list(range(1, 8))


def test_a_failure_closes_the_log(tmp_path: Path) -> None:
    log, ended = MetricsLog(tmp_path, after_step=0, report_to="none"), list[bool]()
    log._tracker = SimpleNamespace(finish=lambda: ended.append(True))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), closed_on_failure(log):
        raise KeyboardInterrupt
    log.close()
    assert ended == [True]
    with closed_on_failure(MetricsLog(tmp_path, after_step=0, report_to="none")) as open_still:
        open_still._tracker = SimpleNamespace(finish=lambda: ended.append(True))  # type: ignore[assignment]
    assert ended == [True]


def test_a_new_run_begins_an_empty_file(tmp_path: Path) -> None:
    path = written(tmp_path, range(1, 4))
    MetricsLog(tmp_path, after_step=0, report_to="none")
    assert path.read_bytes() == b""


def test_a_sample_with_a_line_separator_in_it_survives_a_resume(tmp_path: Path) -> None:
    MetricsLog(tmp_path, after_step=0, report_to="none").write("samples", 3, SAMPLE)
    before = (tmp_path / METRICS).read_bytes()
    MetricsLog(tmp_path, after_step=3, report_to="none").write("train", 4, {"loss": 0.5})
    assert (tmp_path / METRICS).read_bytes() == before + b'{"kind": "train", "step": 4, "loss": 0.5}\n'


@pytest.mark.parametrize("text", ["明月几时有？", "The moon, the wine."])
def test_a_line_cut_by_a_kill_is_dropped_and_counted_wherever_the_cut_falls(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, range(1, 3))
    whole = path.read_bytes()
    line = json.dumps({"kind": "samples", "step": 2, "samples": [text]}, ensure_ascii=False).encode()
    for end in range(1, len(line)):  # also in the middle of a character
        path.write_bytes(whole + line[:end])
        MetricsLog(tmp_path, after_step=2, report_to="none").write("train", 3, {"loss": 0.5})
        assert path.read_bytes() == whole + b'{"kind": "train", "step": 3, "loss": 0.5}\n'
        assert "metrics.jsonl: 1 broken lines dropped, as a kill leaves one" in capsys.readouterr().err


def test_the_numbers_also_go_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runtime.start(TrainSettings())
    log = MetricsLog(tmp_path, after_step=0, report_to="tensorboard")
    for step in (1, 2):
        log.write("train", step, {"loss": 1.0 / step, "note": "不是数字"})
    log.write("samples", 2, SAMPLE)
    log.close()
    [file] = [path for path in tmp_path.rglob("*") if "tfevents" in path.name]
    events = EventAccumulator(str(file))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 1.0), (2, 0.5)]


def test_a_tracker_that_is_not_installed_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"--report_to: is not installed\n  value: 'tensorboard'") as caught:
        MetricsLog(tmp_path, after_step=0, report_to="tensorboard")
    assert 'pip install "bertkit[tensorboard]"' in str(caught.value)


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, after_step=0, report_to="none")
    (tmp_path / METRICS).unlink()
    (tmp_path / METRICS).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        log.write("train", 1, {"loss": 1.0})
    assert caught.value.filename == str(tmp_path / METRICS)
