"""Nothing leaks: memory and descriptors of a long run."""

import time
from pathlib import Path

import numpy as np
import pytest
from disturbed_runs import SECONDS, ToyRuns
from processes import Forge, steps_logged, wait_until

WARM_STEPS = 2_000  # by then the allocator has what it needs
WATCHED_SECONDS = 150.0
MOST_BYTES_A_THOUSAND_STEPS = 2**20


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * 4096


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.slow
def test_a_long_run_leaks_neither_memory_nor_descriptors(forge: Forge, tmp_path: Path) -> None:
    """Promise B9."""
    runs, run = ToyRuns(forge, tmp_path, steps=1_000_000), tmp_path / "run"
    flags = ("--eval_every", 200, "--save_every", 200)
    with runs.begun(run, *flags) as [process]:
        wait_until(lambda: steps_logged(run) >= WARM_STEPS, seconds=4 * SECONDS, processes=[process])
        steps, sizes, opened = [], [], []
        end = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < end:
            steps.append(steps_logged(run))
            sizes.append(resident_bytes(process.pid))
            opened.append(descriptors(process.pid))
            time.sleep(1.0)
        assert process.poll() is None, process.said()
    slope = 1000 * float(np.polyfit(steps, sizes, 1)[0])
    count = f"{steps[-1] - steps[0]:,} steps"
    print(f"{count}: {slope / 2**20:.3f} MiB a 1,000 steps, {min(opened)} to {max(opened)} descriptors")  # noqa: T201
    assert slope <= MOST_BYTES_A_THOUSAND_STEPS
    assert np.median(opened[: len(opened) // 4]) == np.median(opened[-(len(opened) // 4) :])
