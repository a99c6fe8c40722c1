"""The one place that prints: answers on standard output, everything else on standard error, one rank."""

import json
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from bertkit import console


def test_answers_go_to_standard_output_and_narration_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    console.result("明月几时有")
    console.say("reading")
    console.warn("3 lines are blank")
    console.error("is empty")
    printed = capsys.readouterr()
    assert printed.out == "明月几时有\n"
    assert printed.err == "reading\nwarning: 3 lines are blank\nerror: is empty\n"


def test_json_is_one_line_with_its_characters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"token_str": "时", "score": 0.25, "text": "a\nb"}
    console.result_json(value)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "时" in printed
    assert json.loads(printed) == value


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        console.result_json({"score": float("nan")})


def test_only_rank_0_speaks_but_another_names_an_error_of_its_own_after_a_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("bertkit.console.time.sleep", waited.append)
    monkeypatch.setenv("RANK", "1")
    console.result("answer")
    console.say("reading")
    with console.Progress("training", total=3, unit="step") as progress:
        progress.advance(3)
    console.error("is empty")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "error: process 1: is empty\n")
    assert waited == [console.OWN_ERROR_SECONDS]
    console.error("process 1 of 2: another one is gone")
    assert capsys.readouterr().err == "error: process 1 of 2: another one is gone\n"


def test_a_launcher_is_left_the_error_for_its_own_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    console.error("月.txt: is empty")
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(tmp_path / "error.json"))
    assert failure.message == "月.txt: is empty"
    assert failure.timestamp > 0
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "nowhere" / "error.json"))
    console.error("said all the same")


def test_a_table_aligns_wide_characters_and_numbers() -> None:
    text = console.table([("保留", 20021), ("dropped", 9)])
    assert text.splitlines() == ["  保留     20,021", "  dropped       9"]


def test_a_table_without_rows_is_empty() -> None:
    assert console.table([]) == ""


def test_a_table_may_have_rows_of_different_lengths() -> None:
    assert console.table([("a",), ("b", "c")], indent="") == "a\nb  c"


def test_without_a_terminal_progress_says_its_end_once(capsys: pytest.CaptureFixture[str]) -> None:
    with console.Progress("reading 诗", total=20, unit="line") as progress:
        for _ in range(20):
            progress.advance(extra="kept 20")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "reading 诗" in printed
    assert "20.0/20.0" in printed
    assert "kept 20" in printed


def test_without_a_terminal_progress_says_a_line_every_interval(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PLAIN_INTERVAL_SECONDS", 0.0)
    with console.Progress("training", total=None, unit="step", start=5) as progress:
        progress.advance(2)
        progress.advance(3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "10.0 step" in lines[-1]


def test_of_what_is_brief_nothing_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with console.Progress("evaluating", total=20, unit="rows", brief=True) as progress:
        progress.advance(20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(console, "PLAIN_INTERVAL_SECONDS", 0.0)
    with console.Progress("evaluating", total=20, unit="rows", brief=True) as progress:
        progress.advance(20)
    assert "20.0/20.0" in capsys.readouterr().err.splitlines()[-1]


def test_on_a_terminal_progress_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with console.Progress("training", total=4, unit="step") as progress:
        progress.advance(4, extra="loss 2.0")
    printed = capsys.readouterr().err
    assert "100%" in printed
    assert "loss 2.0" in printed
