"""A run that is asked to stop saves and goes on to the same weights, to the last bit; so does one that is killed."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from disturbed_runs import SECONDS, ToyRuns, assert_same_end, has_checkpoint, last_step
from processes import Forge, begin_anew, ended, moments, orphans, steps_logged, wait_until

from bertkit.train.signals import ONE_WISH_SECONDS

DURABLE_SECONDS = 5.0


@pytest.fixture(scope="module")
def runs(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> ToyRuns:
    return ToyRuns(forge, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def undisturbed(runs: ToyRuns) -> Path:
    runs.finish(runs.folder / "undisturbed")
    return runs.folder / "undisturbed"


@pytest.fixture(scope="module")
def undisturbed_on_two(runs: ToyRuns) -> Path:
    runs.finish(runs.folder / "undisturbed-2", ranks=2)
    return runs.folder / "undisturbed-2"


def stop(runs: ToyRuns, run: Path, *, number: int, wait: float, ranks: int = 1, heard_by: str = "all") -> float:
    """Send a signal so long after the first step; return the seconds until all was saved (0: before)."""
    with runs.in_step(run, 1, ranks=ranks) as processes:
        time.sleep(wait)
        listeners = {"all": processes, "first": processes[:1], "last": processes[-1:]}[heard_by]
        logged = steps_logged(run)
        began = time.time()
        for process in listeners:
            process.send(number)
        codes = [process.wait(SECONDS) for process in processes]
        said = processes[0].said()
    assert "Traceback" not in said, said
    # While the best model is evaluated at the end, a signal ends the run at once: all that was trained is saved.
    if steps_logged(run) < runs.steps:
        assert codes == [128 + number] * ranks, said
        assert "stopped after step " in said
        assert logged <= last_step(run) == steps_logged(run)
    else:
        assert last_step(run) == runs.steps
    return max(0.0, (run / "checkpoints" / "last.json").stat().st_mtime - began)  # it is written when all is durable


def test_a_run_asked_to_stop_saves_and_goes_on_to_the_same_weights(
    runs: ToyRuns, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stop(runs, run, number=signal.SIGTERM, wait=0.1)
    runs.finish(run)
    assert_same_end(run, undisturbed)


def test_a_signal_to_one_of_two_ranks_stops_both(runs: ToyRuns, tmp_path: Path) -> None:
    stop(runs, tmp_path / "run", number=signal.SIGINT, wait=0.1, ranks=2, heard_by="last")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_thirty_signals_at_random_times(
    runs: ToyRuns, undisturbed: Path, undisturbed_on_two: Path, tmp_path: Path, ranks: int
) -> None:
    """Promise B6."""
    longest = 0.0
    for turn, wait in enumerate(moments(2, 30, longest=1.0)):
        run, number = tmp_path / str(turn), (signal.SIGTERM, signal.SIGINT)[turn % 2]
        heard_by = ("all", "first", "last")[turn % 3]
        longest = max(longest, stop(runs, run, number=number, wait=wait, ranks=ranks, heard_by=heard_by))
        assert longest < DURABLE_SECONDS
        runs.finish(run, ranks=ranks)
        assert_same_end(run, undisturbed if ranks == 1 else undisturbed_on_two)
    print(f"{ranks} ranks: 30 of 30 signals, saved after {longest:.2f} s at most")  # noqa: T201


def test_a_second_signal_leaves_at_once_even_where_another_rank_hangs(runs: ToyRuns, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with runs.in_step(run, 12, ranks=2) as [first, second]:
        second.send(signal.SIGSTOP)
        first.send(signal.SIGTERM)
        time.sleep(ONE_WISH_SECONDS + 0.2)
        assert first.poll() is None  # it waits for the other one, in a call into C++
        first.send(signal.SIGTERM)
        assert first.wait(1.0) == 128 + signal.SIGTERM
    assert last_step(run) >= 10


def test_a_signal_to_the_whole_group_with_data_workers_is_one_wish(runs: ToyRuns, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with runs.in_step(run, 1, "--data_workers", 2) as [process]:
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(SECONDS) == 143, process.said()
        assert orphans(process.pid) == []
    assert last_step(run) == steps_logged(run)


def kill_and_resume(runs: ToyRuns, run: Path, undisturbed: Path, waits: list[float]) -> int:
    """Kill a run so long after each begin, go on each time, compare; return how many kills came before the end."""
    kills = 0
    for wait in waits:
        resume = ("--resume_from", "last") if has_checkpoint(run) else ()
        before = last_step(run) if resume else 0
        with runs.begun(run, *resume) as [process]:
            time.sleep(wait)
            kills += process.poll() is None
            process.send(signal.SIGKILL)
            assert process.wait(10) in (0, -signal.SIGKILL), process.said()
        assert not resume or last_step(run) >= before
    runs.finish(run)
    assert_same_end(run, undisturbed)
    return kills


def test_a_run_killed_twice_goes_on_to_the_same_weights(runs: ToyRuns, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with runs.in_step(run, 2) as [process]:  # before its first checkpoint: it then begins again
        process.send(signal.SIGKILL)
    resume = ("--resume_from", "last") if has_checkpoint(run) else ()
    with runs.in_step(run, 13, *resume) as [process]:
        process.send(signal.SIGKILL)
    assert last_step(run) >= 10
    runs.finish(run)
    assert_same_end(run, undisturbed)


@pytest.mark.slow
def test_ten_kills_at_random_times(runs: ToyRuns, undisturbed: Path, tmp_path: Path) -> None:
    """Acceptance 4, on the toy store: ten times over, ten kills each."""
    kills = sum(
        kill_and_resume(runs, tmp_path / str(seed), undisturbed, moments(seed, 10, longest=3.0)) for seed in range(3)
    )
    print(f"30 kills, {kills} of them in time: the same weights to the last bit")  # noqa: T201


@pytest.mark.slow
@pytest.mark.shared_data
def test_ten_kills_on_real_poems(forge: Forge, shared_data: Path, tmp_path: Path) -> None:
    """Acceptance 4, on 2,000 Song ci."""
    poems = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").split("\n")
    runs = ToyRuns(forge, tmp_path, documents=[poem for poem in poems if len(poem) > 20][:2000])
    runs.finish(tmp_path / "undisturbed")
    kills = kill_and_resume(runs, tmp_path / "run", tmp_path / "undisturbed", moments(7, 10, longest=6.0))
    print(f"real poems: 10 kills, {kills} of them in time: the same weights to the last bit")  # noqa: T201


@pytest.mark.slow
def test_the_command_line_itself_stops_and_goes_on(runs: ToyRuns, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "bertkit", *runs.words(run)]
    for number in (signal.SIGTERM, signal.SIGINT):
        resume = ["--resume_from", "last"] if has_checkpoint(run) else []
        done = steps_logged(run)
        process = begin_anew([*command, *resume], tmp_path / "output")
        with ended(process):
            wait_until(lambda done=done: steps_logged(run) > done, seconds=SECONDS, processes=[process])
            process.send(number)
            assert process.wait(DURABLE_SECONDS + 5) == 128 + number, process.said()
    runs.finish(run)
    assert_same_end(run, undisturbed)


@pytest.mark.slow
def test_torchrun_that_is_asked_to_stop_lets_its_ranks_save(
    runs: ToyRuns, undisturbed_on_two: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2, "-m", "bertkit"]
    process = begin_anew([*launcher, *runs.words(run)], tmp_path / "output")
    with ended(process):
        wait_until(lambda: steps_logged(run) > 3, seconds=SECONDS, processes=[process])
        began = time.monotonic()
        process.send(signal.SIGTERM)
        code = process.wait(60)
        seconds = time.monotonic() - began
        assert orphans(process.pid) == []
    assert "stopped after step" in process.said(), process.said()
    assert last_step(run) == steps_logged(run)
    print(f"torchrun: exit code {code} after {seconds:.1f} s, saved at step {last_step(run)}")  # noqa: T201
    runs.finish(run, ranks=2)
    assert_same_end(run, undisturbed_on_two)
