"""Which texts have come before: the same ones by 64-bit hashes, in bounded memory, and nearly the same ones by MinHash.

In: texts in their order.  Out: for each, whether (or where) it came before.  Next: clean.py
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import InputError

HASHES_IN_MEMORY = 2**19  # 4 MiB; one more and they go to a temporary file
HASHES_AT_ONCE = 2**18  # 2 MiB; how much of that file is in memory at a time
SHINGLE = 5  # characters; near duplicates share most of their runs of this length
PERMUTATIONS = 128  # the similarity of two texts is estimated to about ± 0.04


def hashes_of(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every text: (texts,) uint64.

    Among 10 million different texts two have the same hash with a probability of 3 in a million.
    """
    digests = b"".join(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8")


class SeenHashes:
    """The hashes met so far: the latest in memory, older ones in sorted runs one after another in a temporary file.

    A batch of hashes is sorted, and the file is read past it once, block by block.
    """

    def __init__(self) -> None:
        self._recent: NDArray[np.uint64] = np.empty(0, dtype="<u8")  # sorted
        self._file: BinaryIO | None = None
        self._runs: list[int] = []  # the number of hashes in each

    def first_times(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return (hashes,) bool: True where a hash is met for the first time, in this batch and all before it.

        Raises:
            InputError: the temporary folder is full or cannot be written.
        """
        unique, places = np.unique(hashes, return_index=True)  # sorted, with the place where each stands first
        known = _are_among(unique, self._recent)
        for values in self._blocks():
            first, last = np.searchsorted(unique, values[[0, -1]])
            known[first : last + 1] |= _are_among(unique[first : last + 1], values)
        answer = np.zeros(len(hashes), dtype=np.bool_)
        answer[places[~known]] = True
        self._recent = np.sort(np.concatenate([self._recent, unique[~known]]), kind="stable")
        if len(self._recent) > HASHES_IN_MEMORY:
            self._spill()
        return answer

    def _blocks(self) -> Iterator[NDArray[np.uint64]]:
        """The hashes in the file, in sorted blocks."""
        if self._file is None:
            return
        self._file.seek(0)
        for length in self._runs:
            for start in range(0, length, HASHES_AT_ONCE):
                yield np.frombuffer(self._file.read(8 * min(HASHES_AT_ONCE, length - start)), dtype="<u8")

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="bertkit-hashes-")  # noqa: SIM115  (closed by close())
            self._file.seek(0, os.SEEK_END)
            self._file.write(self._recent.tobytes())
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"the hashes of the texts cannot be kept in a temporary file: {error.strerror}",
                file=tempfile.gettempdir(),
                expected="8 bytes of free space for every document (or line)",
                remedy="make room, or name another folder: TMPDIR=FOLDER",
            ) from error
        self._runs.append(len(self._recent))
        self._recent = np.empty(0, dtype="<u8")

    def close(self) -> None:
        """Remove the temporary file."""
        if self._file is not None:
            self._file.close()


def _are_among(wanted: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each of `wanted` is among the sorted `values`."""
    if not len(values):
        return np.zeros(len(wanted), dtype=np.bool_)
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.asarray(values[places] == wanted)


def near_finder(threshold: float) -> Callable[[str], int | None]:
    """Return a function from a text to the number (from 0) of an earlier text that it is nearly the same as, or None.

    Only texts that are not nearly the same as an earlier one count; they are numbered as they come.  Two texts are
    compared by their runs of five characters, case and white space aside: the share that both have of all that one
    has, estimated by MinHash.  Memory grows by some 2 KB for every text that counts.

    Raises:
        InputError: the package datasketch is missing.
    """
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as error:
        raise InputError(
            "needs the package datasketch",
            field="--drop_duplicates near",
            remedy='pip install "bertkit[clean]"',
        ) from error
    # The index offers likely ones, too many rather than too few; the sketches decide, by the threshold itself.
    index = MinHashLSH(threshold=min(threshold, 0.95), num_perm=PERMUTATIONS, weights=(0.1, 0.9))
    sketches: list[MinHash] = []
    empty = MinHash(num_perm=PERMUTATIONS, seed=1)

    def earlier(text: str) -> int | None:
        sketch = empty.copy()
        sketch.update_batch(shingles(text))
        near = [number for number in index.query(sketch) if sketches[number].jaccard(sketch) >= threshold]
        if near:
            return int(min(near))
        index.insert(len(sketches), sketch)
        sketches.append(sketch)
        return None

    return earlier


def shingles(text: str) -> list[bytes]:
    """Return the different runs of five characters of a text, case and white space aside, as UTF-8, sorted.

    >>> [run.decode() for run in shingles("Moon light")], [run.decode() for run in shingles("明月 几时有？")]
    (['light', 'moonl', 'nligh', 'onlig', 'oonli'], ['明月几时有', '月几时有？'])
    """
    bare = "".join(text.split()).casefold()
    return sorted({bare[n : n + SHINGLE].encode() for n in range(max(1, len(bare) - SHINGLE + 1))})
