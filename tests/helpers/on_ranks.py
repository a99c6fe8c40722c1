"""Work on several processes of this machine: started as torchrun would, waited for, and ended whatever happens."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("rank_work.py")
SHOWN_CHARACTERS = 3000  # of what a process that failed has said


def on_ranks(num_ranks: int, work: str, folder: Path, *, timeout: float = 120.0, **arguments: Any) -> list[Any]:
    """Run the function `work` of rank_work.py on so many processes; return what each of them gave, by rank.

    folder: given to the function, and where each process leaves what it says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(num_ranks):
            with open(folder / f"said-{rank}.txt", "wb") as said:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(SCRIPT), work, str(folder), json.dumps(arguments)],
                        env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdout=said,
                        stderr=subprocess.STDOUT,
                    )
                )
        _wait(processes, folder, deadline=time.monotonic() + timeout)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{work}-{rank}.json").read_text(encoding="utf-8")) for rank in range(num_ranks)]


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, *, deadline: float) -> None:
    """Return when all have ended well; fail with what was said when one has not, or at the deadline."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes) or time.monotonic() > deadline:
            time.sleep(1.0)  # the others may be about to say why
            break
        time.sleep(0.05)
    codes = [process.poll() for process in processes]
    if any(code != 0 for code in codes):
        said = [(folder / f"said-{rank}.txt").read_text(encoding="utf-8") for rank in range(len(processes))]
        parts = [f"process {rank}: {text[-SHOWN_CHARACTERS:]}" for rank, text in enumerate(said)]
        raise AssertionError(f"exit codes {codes} (None: it was still running)\n" + "\n".join(parts))
