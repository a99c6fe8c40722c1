"""P8: how much memory a training step takes over weights and optimizer; each system in processes of its own.

In: a size of model, rows × tokens.  Out: MB at the peak.  The baseline is the resident memory after a small step has
made weights, moments and the libraries' own rooms; gradients and activations count, and what the allocator keeps.
    OMP_NUM_THREADS=1 python benchmarks/training_memory.py bertkit
Next: pretraining.py
"""

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

SYSTEMS = ("bertkit", "HF-d", "HF-t")
SIZE, ROWS, LENGTH, VOCAB_SIZE = "mini", 32, 128, 21_128
STEPS = 3


def peaks(*, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the peak MB over weights and optimizer of every system, round by round."""
    found: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for _ in range(rounds):
        for system in SYSTEMS:
            command = [sys.executable, str(Path(__file__).resolve()), system]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[system].append(float(answer.split()[-1]))
            print(f"{system}: {found[system][-1]:.0f} MB", file=sys.stderr, flush=True)
    return {"megabytes": found}


def peak_of(system: str) -> float:
    """Return the peak MB of one system, in this process."""
    import torch
    from contenders import HF_D, HF_T, Bertkit, Contender, Transformers
    from uniform_rows import SMALL, SmallFirst, dense_uniform_batches, uniform_store

    from bertkit.model.config import config_of_size

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    config = config_of_size(SIZE, vocab_size=VOCAB_SIZE)
    contender: Contender
    if system == "bertkit":
        values = {"model_size": SIZE, "batch_size": ROWS}
        contender = Bertkit(uniform_store(VOCAB_SIZE), values, source=SmallFirst(config, rows=ROWS))
    else:
        tuning = replace(HF_D if system == "HF-d" else HF_T, rows=ROWS)
        small, large = (dense_uniform_batches(config, tuning.rows_at_once, length=length) for length in (SMALL, LENGTH))
        whole = ROWS // tuning.rows_at_once
        contender = Transformers(config, chain(islice(small, whole), large), tuning)
    contender.step()
    forget_the_peak()
    before = memory("VmRSS")
    for _ in range(STEPS):
        contender.step()
    return memory("VmHWM") - before


def memory(key: str) -> float:
    """Return a size in MB that Linux keeps of this process: VmRSS, or VmHWM, its peak."""
    return int(Path("/proc/self/status").read_text("utf-8").split(key + ":")[1].split()[0]) / 1024


def forget_the_peak() -> None:
    """Give back what is free, and let VmHWM begin anew."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


if __name__ == "__main__":
    print(f"{peak_of(sys.argv[1]):.1f}")
