"""Being asked to stop: SIGTERM and SIGINT become a flag, which the loop reads between two micro-batches.

In: signals.  Out: which one came.  A second one, later than a moment, ends the process at once.
A thread hears the second, because Python's handlers do not run while a call into C++ blocks.  Next: watchdog.py
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bertkit.console import say
from bertkit.errors import SIGNALLED

# A launcher passes on what the terminal has sent already: two signals this close together are one wish.
ONE_WISH_SECONDS = 1.0


class StopFlag:
    """Whether this process was asked to stop; `received` is the signal's number, 0 while there was none."""

    def __init__(self) -> None:
        self.received = 0

    @contextmanager
    def listening(self) -> Iterator["StopFlag"]:
        """Let SIGTERM and SIGINT set the flag inside the block; only a main thread can hear them."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        heard, numbers = os.pipe()  # the interpreter writes the number of each signal into it, whatever else runs
        os.set_blocking(numbers, False)
        listener = threading.Thread(target=self._listen, args=(heard,), name="signals", daemon=True)
        listener.start()
        pipe_before = signal.set_wakeup_fd(numbers, warn_on_full_buffer=False)
        for number in before:
            signal.signal(number, self._note)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(pipe_before)
            os.close(numbers)
            listener.join()
            os.close(heard)

    def _note(self, number: int, _: object) -> None:
        """Set the flag; nothing is said here, as this may run in the middle of another line that is being said."""
        self.received = self.received or number

    def _listen(self, heard: int) -> None:
        """Say the first wish; act on a second one at once."""
        first_at: float | None = None
        while message := os.read(heard, 1):
            number = message[0]
            if number not in (signal.SIGTERM, signal.SIGINT):
                continue
            if first_at is None:
                first_at = time.monotonic()
                say(f"{signal.Signals(number).name}: the state of the last whole step is saved, then this run ends")
            elif time.monotonic() - first_at > ONE_WISH_SECONDS:
                os._exit(SIGNALLED + number)
