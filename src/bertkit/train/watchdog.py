"""The end of a run that hangs: a thread that ends the process when nothing has moved for too long.

In: beats.  Out: the stacks of all threads on standard error, and exit code 3.
A thread, because Python's signal handlers do not run while a call into C++ blocks.  Next: runtime.py
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bertkit.console import error

EXIT_CODE = 3
LOOKS_PER_TIMEOUT = 20


class Watchdog:
    """Ends the process after `timeout` seconds without a beat; 0: never.

    The seconds are counted as looks, not read from a clock: those that the whole process stood still for
    (Ctrl-Z, a suspended machine) are nobody's fault.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._beats = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs, and no longer, however it ends."""
        if self._timeout <= 0:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,), name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def beat(self) -> None:
        """Say that something has moved."""
        self._beats += 1

    def _watch(self, ended: threading.Event) -> None:
        seen, looks = self._beats, 0
        while not ended.wait(self._timeout / LOOKS_PER_TIMEOUT):
            seen, looks = self._beats, looks + 1 if self._beats == seen else 0
            if looks >= LOOKS_PER_TIMEOUT:
                error(
                    f"nothing has moved for {self._timeout:g} seconds (--hang_timeout); the stacks of this process "
                    "follow, and it ends; the last checkpoint is whole: go on by --resume_from last"
                )
                faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
                os._exit(EXIT_CODE)
