"""Saving while training goes on: one thread writes what was copied, and its failure ends the run.

In: Snapshots.  Out: checkpoints, in the order given.  Next: checkpoint.py
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from bertkit.train.checkpoint import write_checkpoint
from bertkit.train.state import Snapshot


class Saver:
    """Writes checkpoints of a run behind its back, one at a time; `writes`: whether this process is the one to."""

    def __init__(self, run_directory: Path, *, limit: int, keep_every: int | None, writes: bool) -> None:
        self._directory, self._limit, self._keep_every, self._writes = run_directory, limit, keep_every, writes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._pending: Future[Path] | None = None

    def save(self, snapshot: Snapshot) -> None:
        """Begin to write a checkpoint; wait for the one before it first.

        Raises:
            InputError: the one before it failed.
        """
        self.wait()
        if self._writes:
            self._pending = self._thread.submit(
                write_checkpoint, self._directory, snapshot, limit=self._limit, keep_every=self._keep_every
            )

    def check(self) -> None:
        """Return at once, unless a checkpoint has failed.

        Raises:
            InputError: it has.
        """
        if self._pending is not None and self._pending.done():
            self.wait()

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Let all that was given inside be on disk when the block ends, whether well or by an exception.

        Raises:
            InputError: it could not be written, and no other exception ended the block.
        """
        try:
            yield
        except BaseException:
            if self._pending is not None:
                wait([self._pending])
            raise
        self.wait()

    def wait(self) -> None:
        """Return when all that was given is on disk.

        Raises:
            InputError: it could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
