"""A contender of the benchmarks that counts: its steps tell the process they are made in, and their number."""

import os
from typing import NamedTuple

import torch

SET_IN_THIS_PROCESS = False


class Counted(NamedTuple):
    """A step."""

    number: int
    process: int
    threads: int
    is_set: bool  # whether it knows what another process has set


class Counting:
    """Counts from `first`; with `last` its steps fail after that."""

    def __init__(self, first: int, *, last: int | None = None) -> None:
        self._number, self._last = first, last

    def step(self) -> Counted:
        """Count."""
        if self._number == self._last:
            raise ValueError(f"no step after {self._last}")
        self._number += 1
        return Counted(self._number, os.getpid(), torch.get_num_threads(), SET_IN_THIS_PROCESS)
