"""A rank or a data worker that is killed, hangs or fails ends the run, soon, with a message and nothing left over."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from disturbed_runs import SECONDS, ToyRuns, last_step
from processes import Forge, begin_anew, ended, orphans, session_of, steps_logged, wait_until

KILLED_SECONDS = 15.0  # until a run ends of which a process was killed
HANG_TIMEOUT = 8
GONE = "another process of this run is gone, or has not answered within --hang_timeout"


@pytest.fixture(scope="module")
def runs(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> ToyRuns:
    return ToyRuns(forge, tmp_path_factory.mktemp("runs"), steps=20_000)


@pytest.mark.parametrize("lost", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_rank_ends_the_other(runs: ToyRuns, tmp_path: Path, lost: int) -> None:
    with runs.in_step(tmp_path / "run", 12, ranks=2) as processes:
        began = time.monotonic()
        processes[lost].send(signal.SIGKILL)
        left = processes[1 - lost]
        assert left.wait(KILLED_SECONDS) == 2
        print(f"rank {lost} killed: the other ended after {time.monotonic() - began:.2f} s")  # noqa: T201
        assert f"error: process {1 - lost} of 2: {GONE}" in left.said()
        assert "Traceback" not in left.said()
        assert [orphans(process.pid) for process in processes] == [[], []]
    assert last_step(tmp_path / "run") >= 10


@pytest.mark.slow
@pytest.mark.parametrize("hung", [0, 1])
def test_a_hung_rank_ends_the_other(runs: ToyRuns, tmp_path: Path, hung: int) -> None:
    """Promise B7: T + 5 seconds."""
    with runs.in_step(tmp_path / "run", 12, "--hang_timeout", HANG_TIMEOUT, ranks=2) as processes:
        began = time.monotonic()
        processes[hung].send(signal.SIGSTOP)
        left = processes[1 - hung]
        code = left.wait(HANG_TIMEOUT + 5)
        print(f"rank {hung} hung: the other ended after {time.monotonic() - began:.2f} s with {code}")  # noqa: T201
        assert code in (2, 3)
        assert GONE in left.said() or "nothing has moved for 8 seconds (--hang_timeout)" in left.said()
        processes[hung].send(signal.SIGCONT)
        assert processes[hung].wait(KILLED_SECONDS) in (2, 3)
    assert last_step(tmp_path / "run") >= 10


def workers_of(leader: int) -> list[int]:
    """The processes that make batches: those whose parent is the server that the leader has begun."""
    parents = {pid: _parent(pid) for pid in session_of(leader)}
    return [pid for pid, parent in parents.items() if parent in parents and parents[parent] == leader]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_a_killed_data_worker_ends_the_run(runs: ToyRuns, tmp_path: Path, number: int) -> None:
    with runs.in_step(tmp_path / "run", 12, "--data_workers", 2) as [process]:
        began = time.monotonic()
        workers = workers_of(process.pid)
        assert len(workers) == 2
        os.kill(workers[0], number)
        assert process.wait(KILLED_SECONDS) == 2
        print(f"data worker killed: the run ended after {time.monotonic() - began:.2f} s")  # noqa: T201
        assert "error: --data_workers: a process that makes batches has died" in process.said()
        assert "Traceback" not in process.said()
        assert orphans(process.pid) == []
    assert last_step(tmp_path / "run") >= 10


@pytest.mark.slow
def test_nothing_is_left_of_a_run_with_data_workers_that_is_killed(runs: ToyRuns, tmp_path: Path) -> None:
    with runs.in_step(tmp_path / "run", 3, "--data_workers", 2) as [process]:
        assert len(session_of(process.pid)) >= 4
        process.send(signal.SIGKILL)
        process.wait(10)
        began = time.monotonic()
        assert orphans(process.pid) == []
        print(f"run killed: its data workers were gone after {time.monotonic() - began:.2f} s")  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disturb", "number"),
    [("killed", signal.SIGKILL), ("hung", signal.SIGSTOP)],
)
def test_under_torchrun_the_loss_of_a_rank_ends_all(runs: ToyRuns, tmp_path: Path, disturb: str, number: int) -> None:
    run = tmp_path / "run"
    words = runs.words(run, "--hang_timeout", HANG_TIMEOUT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2, "-m", "bertkit"]
    process = begin_anew([*launcher, *words], tmp_path / "output", variables={"BERTKIT_TEST": str(tmp_path)})
    with ended(process):
        try:
            wait_until(lambda: steps_logged(run) > 12, seconds=SECONDS, processes=[process])
            [second] = [pid for pid in marked(tmp_path) if variable_of(pid, "RANK") == "1"]
            began = time.monotonic()
            os.kill(second, number)
            code = process.wait(60)
            seconds = time.monotonic() - began
            print(f"torchrun, rank 1 {disturb}: ended after {seconds:.1f} s with {code}")  # noqa: T201
            assert code != 0
            # (torchrun gives the processes it ends 30 s to obey before it kills them; a stopped one does not obey.)
            assert seconds < (KILLED_SECONDS if disturb == "killed" else HANG_TIMEOUT + 5 + 30)
            wait_until(lambda: not marked(tmp_path), seconds=10)
        finally:
            for pid in marked(tmp_path):
                os.kill(pid, signal.SIGKILL)
    assert last_step(run) >= 10


def variable_of(pid: int, name: str) -> str | None:
    """What a process has in its environment, as it began."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [entry for entry in entries if entry.startswith(f"{name}=".encode())]
    return found[0].decode().partition("=")[2] if found else None


def marked(folder: Path) -> list[int]:
    """The living processes that were begun for this test."""
    numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*") if path.name.isdigit()]
    return [pid for pid in numbers if variable_of(pid, "BERTKIT_TEST") == str(folder)]
