"""The end of a run that hangs: a thread that ends the process when nothing has moved for too long.

In: beats.  Out: the stacks of all threads on standard error, and exit code 3.
A thread, because Python's signal handlers do not run while a call into C++ blocks.  Next: runtime.py
"""

import faulthandler
import os
import sys
import threading
import time

from bertkit.console import error

EXIT_CODE = 3
LOOKS_PER_TIMEOUT = 20


class Watchdog:
    """Ends the process after `timeout` seconds without a beat; 0: never."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self._timeout > 0 and self._thread is None:
            self._last = time.monotonic()
            self._ended.clear()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """Say that something has moved."""
        self._last = time.monotonic()

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        while not self._ended.wait(self._timeout / LOOKS_PER_TIMEOUT):
            still = time.monotonic() - self._last
            if still > self._timeout:
                error(
                    f"nothing has moved for {still:.0f} seconds (--hang_timeout {self._timeout:g}); the stacks of this "
                    "process follow, and it ends; the last checkpoint is whole: go on by --resume_from last"
                )
                faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
                os._exit(EXIT_CODE)
