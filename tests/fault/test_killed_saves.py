"""Once a checkpoint was finished, an undamaged one exists at every instant, whenever the process is killed."""

import shutil
import signal
import time
from pathlib import Path

import pytest
from interrupted_saves import assert_no_harm, injected, require_strace
from processes import Forge, ended, moments, wait_until

# What changes a file or a name, as Linux calls it.
SYSCALLS = ("write", "fsync", "rename", "unlink", "unlinkat", "rmdir", "mkdir", "openat", "ftruncate", "fallocate")


def go_on(forge: Forge, folder: Path) -> None:
    """Another process saves the whole course there, and nothing is left of the one that was killed."""
    (folder / "finished").unlink(missing_ok=True)
    process = forge.begin([folder], folder / "output", target="toy_saves:saves")
    with ended(process):
        assert process.wait(30) == 0, process.said()
    names = {path.name for path in (folder / "run" / "checkpoints").iterdir()}
    assert names == {"step-3", "step-5", "step-6", "best.json", "last.json"}


# --- before and after every call that changes a file ----------------------------------------------------------------


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_before_or_after_any_change_of_a_file_does_no_harm(forge: Forge, tmp_path: Path, every: int) -> None:
    moment, kills = 1, 0
    while True:
        folder = tmp_path / str(kills)
        folder.mkdir()
        signed = moment if kills % 2 else -moment
        process = forge.begin([folder, signed], folder / "output", target="toy_saves:saves_and_is_killed")
        with ended(process):
            code = process.wait(30)
        assert code in (0, -signal.SIGKILL), process.said()
        assert_no_harm(folder)
        if code == 0:
            break
        kills += 1
        if every > 1 and kills % 4 == 1:
            go_on(forge, folder)
        moment += every
    assert kills * every > 150


# --- at every system call -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("call", SYSCALLS)
def test_a_kill_at_any_system_call_does_no_harm(forge: Forge, tmp_path: Path, call: str) -> None:
    """Promise C1."""
    require_strace(tmp_path)
    number = 0
    while True:
        folder = tmp_path / str(number)
        with injected(forge, folder, f"{call}:signal=SIGKILL:when={number + 1}") as process:
            code = process.wait(60)
        assert code in (0, -signal.SIGKILL), process.said()
        assert_no_harm(folder)
        shutil.rmtree(folder)
        if code == 0:
            break
        number += 1
    print(f"{call}: {number} of {number} kills did no harm")  # noqa: T201 (the figure is what this test is run for)


@pytest.mark.parametrize("kills", [5, pytest.param(300, marks=pytest.mark.slow)])
def test_kills_at_random_moments_do_no_harm(forge: Forge, tmp_path: Path, kills: int) -> None:
    """Promise C1."""
    for number, moment in enumerate(moments(1, kills, longest=0.3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = forge.begin([folder, "wait", "forever"], folder / "output", target="toy_saves:saves")
        with ended(process):
            wait_until((folder / "ready").exists, seconds=20, processes=[process])
            (folder / "go").touch()
            time.sleep(moment)
            assert process.poll() is None, process.said()
            process.send(signal.SIGKILL)
            assert process.wait(10) == -signal.SIGKILL
        assert_no_harm(folder, turns=100)
        shutil.rmtree(folder)
