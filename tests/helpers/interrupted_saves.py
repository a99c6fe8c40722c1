"""Toy saves into which something is injected by strace, and what must hold of their checkpoints afterwards."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import Forge, Running, ended, wait_until
from toy_saves import COURSE, finished

from bertkit.train.checkpoint import damage, find_checkpoint

NAMES = re.compile(r"step-\d+(\.tmp|\.old|\.removed)?|(best|last)\.json|\.(best|last)\.json\.\d+\.tmp")
ORDER = [step for step, _ in COURSE]  # one of them comes twice


def assert_no_harm(folder: Path, *, turns: int = 1) -> None:
    """What is found is undamaged, and the newest that was finished or the one that was being written then."""
    run, done = folder / "run", finished(folder)
    course = [step + 6 * turn for turn in range(turns) for step in ORDER]
    allowed = {*done[-1:], *course[len(done) : len(done) + 1]}
    checkpoints = run / "checkpoints"
    names = [path.name for path in checkpoints.iterdir()] if checkpoints.exists() else []
    assert all(NAMES.fullmatch(name) for name in names), names
    if not done and not any(path.name[5:].isdigit() for path in checkpoints.glob("step-*")):
        return
    found = find_checkpoint(run, "last")
    assert int(found.name[5:]) in allowed
    whole = [path for path in checkpoints.glob("step-*") if path.name[5:].isdigit()]
    assert [damage(path) for path in whole] == [None] * len(whole)
    if (checkpoints / "best.json").exists():
        assert damage(find_checkpoint(run, "best")) is None


def require_strace(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", tmp_path / "trace", "true"], capture_output=True).returncode != 0:
        pytest.skip("strace may not trace here")


@contextmanager
def injected(forge: Forge, folder: Path, injection: str) -> Iterator[Running]:
    """A process that saves, with something injected into its n-th system call of a kind."""
    folder.mkdir(parents=True)
    process = forge.begin([folder, "wait"], folder / "output", target="toy_saves:saves")
    call = injection.split(":")[0]
    words = ["strace", "-f", "-o", folder / "trace", "-e", f"trace={call}", "-e", f"inject={injection}"]
    with ended(process):
        wait_until((folder / "ready").exists, seconds=20, processes=[process])
        with subprocess.Popen([*words, "-p", str(process.pid)], stderr=subprocess.PIPE, encoding="utf-8") as tracer:
            try:
                assert tracer.stderr is not None
                assert "attached" in tracer.stderr.readline()
                (folder / "go").touch()
                yield process
            finally:
                process.end()
                tracer.terminate()
