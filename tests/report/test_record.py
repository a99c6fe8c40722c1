"""Reading what a run wrote down: whole runs, running ones, damaged ones."""

import json
from pathlib import Path

import pytest
from sample_run import write_sample_run

from bertkit.errors import InputError
from bertkit.report.record import read_record


def test_a_run_is_read_by_kind(tmp_path: Path) -> None:
    record = read_record(write_sample_run(tmp_path / "宋词"))
    assert record.name == "宋词"
    assert [row["step"] for row in record.train] == list(range(10, 401, 10))
    assert [row["step"] for row in record.validation] == [100, 200, 300, 400]
    assert len(record.samples) == 4
    assert record.results["global_step"] == 400
    assert record.notes == []


def test_a_line_cut_by_a_kill_is_left_out_and_counted(tmp_path: Path) -> None:
    run = write_sample_run(tmp_path)
    whole = (run / "metrics.jsonl").read_bytes()
    cut = '{"kind": "train", "step": 410, "note": "明'.encode()[:-1]  # in the middle of a character
    (run / "metrics.jsonl").write_bytes(whole + cut)
    record = read_record(run)
    assert record.train[-1]["step"] == 400
    assert record.notes == [
        "1 line of metrics.jsonl was cut short, as by a kill while it was written, and is left out."
    ]


def test_a_damaged_line_elsewhere_is_an_error_with_its_place(tmp_path: Path) -> None:
    run = write_sample_run(tmp_path)
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = lines[2][:20]
    (run / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics.jsonl:3: is not JSON"):
        read_record(run)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", r"metrics.jsonl:1: has no kind"),
        ('{"step": 1}', r"metrics.jsonl:1: has no kind"),
        ('{"kind": "train"}', r"metrics.jsonl:1: step: is not a step\n  value: 'absent'"),
        ('{"kind": "train", "step": "one"}', r"metrics.jsonl:1: step: is not a step"),
        ('{"kind": "train", "step": true}', r"metrics.jsonl:1: step: is not a step"),
    ],
)
def test_a_row_of_a_wrong_shape_is_an_error_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_record(tmp_path)


def test_kinds_that_are_not_shown_and_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    rows = ['{"kind": "hardware"}'] * 3 + ['{"kind": "train", "step": 1, "loss": NaN, "mlm_loss": Infinity}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows), encoding="utf-8")
    notes = read_record(tmp_path).notes
    assert "3 lines of metrics.jsonl are of the kind 'hardware', not shown." in notes
    assert "2 values are not finite; the curves have gaps there." in notes


def test_a_run_that_goes_on_says_so(tmp_path: Path) -> None:
    run = write_sample_run(tmp_path, ended=False)
    (run / "run.json").unlink()
    notes = "\n".join(read_record(run).notes)
    assert "eval_results.json is absent: the run has not ended" in notes
    assert "run.json is absent" in notes


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent: is not a folder"):
        read_record(tmp_path / "absent")
    with pytest.raises(InputError, match=r"metrics.jsonl: does not exist"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "run.json: is not JSON"), ("[]", "run.json: is not a JSON object")]
)
def test_a_damaged_run_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    run = write_sample_run(tmp_path)
    (run / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_record(run)


def test_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    run = write_sample_run(tmp_path)
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    record = read_record(run)
    assert [json.loads(line) for line in lines if '"kind": "train"' in line] == record.train
