"""How many texts of a corpus stand in it more than once, in memory that does not grow with the corpus.

In: 64-bit hashes, one a text.  Out: the number of texts that repeat an earlier one.  Next: preparation.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

HELD = 1 << 17  # hashes in memory before they are written down
BUCKETS = 64  # files, by the first six bits: equal hashes meet in one, and each is sorted alone


class RepeatCounter:
    """Collects hashes and counts those met before; a context manager, its files lie in `folder` until the end.

    Two different texts with one hash would be counted as a repeat: at a billion texts that is one chance in 37.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = TemporaryDirectory(dir=folder, prefix=".hashes-", suffix=".tmp")
        self._held: list[NDArray[np.uint64]] = []
        self._num_held, self._spilled = 0, False

    def __enter__(self) -> "RepeatCounter":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._folder.cleanup()

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Take 64-bit hashes of texts, (texts,) uint64; equal in all of a build."""
        self._held.append(hashes)
        self._num_held += len(hashes)
        if self._num_held >= HELD:
            self._spill()

    def _spill(self) -> None:
        hashes = self._taken()
        bucket_of = hashes >> np.uint64(64 - BUCKETS.bit_length() + 1)
        for bucket in np.unique(bucket_of).tolist():
            with open(Path(self._folder.name) / f"{bucket}", "ab") as file:
                file.write(hashes[bucket_of == bucket].tobytes())
        self._spilled = True

    def _taken(self) -> NDArray[np.uint64]:
        """The hashes in memory, which are there no longer."""
        hashes = np.concatenate([*self._held, np.zeros(0, np.uint64)])
        self._held, self._num_held = [], 0
        return hashes

    def count(self) -> int:
        """Return how many of the hashes were met before."""
        if not self._spilled:
            return _repeats(self._taken())
        self._spill()
        buckets = (np.fromfile(path, dtype=np.uint64) for path in Path(self._folder.name).iterdir())
        return sum(_repeats(hashes) for hashes in buckets)


def _repeats(hashes: NDArray[np.uint64]) -> int:
    return len(hashes) - len(np.unique(hashes))
