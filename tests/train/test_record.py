"""run.json and the two eval_results files."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from bertkit.train import record
from bertkit.train.record import environment, update_run, versions, write_results


def test_facts_are_added_to_run_json_and_replace_those_of_their_name(tmp_path: Path) -> None:
    update_run(tmp_path, {"seed": 1, "corpus": "宋词"})
    update_run(tmp_path, {"seed": 2, "steps": 10})
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"seed": 2, "corpus": "宋词", "steps": 10}
    assert "宋词" in (tmp_path / "run.json").read_text(encoding="utf-8")


def test_results_stand_as_json_and_as_sorted_lines(tmp_path: Path) -> None:
    write_results(tmp_path, {"masked_lm_loss": 5.5, "global_step": 100, "part": "test"})
    values = json.loads((tmp_path / "eval_results.json").read_text(encoding="utf-8"))
    assert values == {"masked_lm_loss": 5.5, "global_step": 100, "part": "test"}
    text = (tmp_path / "eval_results.txt").read_text(encoding="utf-8")
    assert text == "global_step = 100\nmasked_lm_loss = 5.5\npart = test\n"


def test_the_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pretrain", "--output_dir", "my runs/宋词", "--max_steps", "5"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/bertkit", *words])
    assert shlex.split(environment()["command"]) == ["bertkit", *words]


def test_the_versions_of_what_numbers_depend_on_are_named() -> None:
    found = environment()["versions"]
    assert set(found) == {"python", *record._PACKAGES}
    assert found["torch"] == sys.modules["torch"].__version__ if "torch" in sys.modules else found["torch"]


def test_a_package_that_is_not_there_has_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_PACKAGES", ("no-such-package-at-all",))
    assert versions() == {"no-such-package-at-all": "unknown"}


def test_what_tells_that_a_run_is_finished_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr("bertkit.train.record.write_atomically", lambda path, _: written.append(path.name))
    write_results(tmp_path, {"part": "test"})
    assert written == ["eval_results.txt", "eval_results.json"]
