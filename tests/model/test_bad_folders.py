"""No model folder, however it was made, runs code, is followed outside, or costs time or memory to refuse."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import load_under_hook
import pytest
from bad_folders import LOADS, Case, bad_folders, good_folder

from bertkit.errors import InputError
from bertkit.model.pretrained import load

MOST_SECONDS, MOST_MEGABYTES = 2.0, 200.0


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Case, dict[str, Any]]], Path]:
    """Every case with what came of it, all in one process under the hook; and the file that no code may make."""
    root = tmp_path_factory.mktemp("bad")
    secret, marker = root / "secret", root / "marker"
    secret.write_bytes(b'{"vocab_size": 60}')
    (root / "empty").mkdir()
    cases = bad_folders(root / "cases", secret=secret, marker=marker)
    good = str(good_folder(root / "good"))
    pickled = next(case for case in cases if case.name == "a pickle asked for")
    warm = [{"directory": good}, {"directory": pickled.folder, **pickled.arguments}]
    told = {"warm": warm, "cases": [{"folder": c.folder, "arguments": c.arguments} for c in cases]}
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", load_under_hook.__file__],  # printing a warning reads source code
        input=json.dumps(told),
        capture_output=True,
        text=True,
        cwd=root / "empty",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    return list(zip(cases, json.loads(answer.stdout), strict=True)), marker


def test_there_are_enough_of_them(outcomes: tuple[list[tuple[Case, dict[str, Any]]], Path]) -> None:
    refused = [case for case, _ in outcomes[0] if case.expected != LOADS]
    assert len(refused) >= 100
    assert len({case.name for case, _ in outcomes[0]}) == len(outcomes[0])


def test_each_ends_in_the_error_that_names_its_fault(
    outcomes: tuple[list[tuple[Case, dict[str, Any]]], Path],
) -> None:
    wrong = {
        case.name: result["error"] or "it loads"
        for case, result in outcomes[0]
        if (case.expected not in result["error"] if case.expected else result["error"])
        or "no InputError" in result["error"]
    }
    assert wrong == {}


def test_none_opens_a_file_elsewhere_or_runs_anything(
    outcomes: tuple[list[tuple[Case, dict[str, Any]]], Path],
) -> None:
    assert {case.name: result["seen"] for case, result in outcomes[0] if result["seen"]} == {}
    assert not outcomes[1].exists()


def test_none_takes_long_or_much_memory(outcomes: tuple[list[tuple[Case, dict[str, Any]]], Path]) -> None:
    assert {case.name: r["seconds"] for case, r in outcomes[0] if r["seconds"] > MOST_SECONDS} == {}
    assert {case.name: r["peak"] for case, r in outcomes[0] if r["peak"] > MOST_MEGABYTES} == {}


def test_no_error_says_what_stands_in_a_file_outside(
    outcomes: tuple[list[tuple[Case, dict[str, Any]]], Path],
) -> None:
    assert not [case.name for case, result in outcomes[0] if '{"vocab_size": 60}' in result["error"]]


def test_a_hub_link_is_followed_by_no_other_path(tmp_path: Path) -> None:
    folder = good_folder(tmp_path / "snapshots" / "x")
    (tmp_path / "blobs").symlink_to(tmp_path / "snapshots" / "x")
    (folder / "model.safetensors").rename(folder / ("c" * 64))
    (folder / "model.safetensors").symlink_to("../../blobs/" + "c" * 64)
    with pytest.raises((InputError, OSError)):
        load(folder)
