"""How many texts of a corpus stand in it more than once, in memory that does not grow with the corpus.

In: 64-bit hashes, one a text.  Out: the number of texts that repeat an earlier one.  Next: preparation.py
"""

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import numpy as np

HELD = 1 << 17  # hashes in memory before they are written down
BUCKETS = 64  # files, by the first six bits: equal hashes meet in one, and each is sorted alone


class RepeatCounter:
    """Collects hashes and counts those met before; a context manager, its files lie in `folder` until the end.

    Two different texts with one hash would be counted as a repeat: at a billion texts that is one chance in 37.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = TemporaryDirectory(dir=folder, prefix="hashes-")
        self._held = array("Q")
        self._spilled = False

    def __enter__(self) -> "RepeatCounter":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._folder.cleanup()

    def add(self, hash_of_text: int) -> None:
        """Take a 64-bit hash of a text, such as Python's own, which may be negative and differ from run to run."""
        self._held.append(hash_of_text & (1 << 64) - 1)
        if len(self._held) >= HELD:
            self._spill()

    def _spill(self) -> None:
        hashes = np.frombuffer(self._held, dtype=np.uint64)
        bucket_of = hashes >> np.uint64(64 - BUCKETS.bit_length() + 1)
        for bucket in np.unique(bucket_of).tolist():
            with open(Path(self._folder.name) / f"{bucket}", "ab") as file:
                file.write(hashes[bucket_of == bucket].tobytes())
        self._held, self._spilled = array("Q"), True

    def count(self) -> int:
        """Return how many of the hashes were met before."""
        if not self._spilled:
            return _repeats(np.frombuffer(self._held, dtype=np.uint64))
        self._spill()
        buckets = (np.fromfile(path, dtype=np.uint64) for path in Path(self._folder.name).iterdir())
        return sum(_repeats(hashes) for hashes in buckets)


def _repeats(hashes: "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]") -> int:
    return len(hashes) - len(np.unique(hashes))
