"""`bertkit report RUN`."""

from pathlib import Path

import pytest
from sample_run import write_sample_run

from bertkit import cli
from bertkit.report import frame

pytest.importorskip("plotly", reason='the report needs the extra "report"')


def test_the_page_is_written_again_and_its_path_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_sample_run(tmp_path / "宋词")
    (run / "report.html").write_text("old", encoding="utf-8")
    assert cli.main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}/report.html\n"
    assert (run / "report.html").stat().st_size > 1_000_000


def test_a_folder_that_is_no_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "metrics.jsonl: does not exist" in capsys.readouterr().err


def test_without_plotly_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    assert cli.main(["report", str(write_sample_run(tmp_path))]) == 2
    message = capsys.readouterr().err
    assert "the report needs plotly, which is not installed" in message
    assert 'pip install "bertkit[report]"' in message
