"""Being asked to stop: SIGTERM and SIGINT become a flag, which the loop reads between two micro-batches.

In: signals.  Out: which one came.  A second one, later than a moment, acts at once.  Next: watchdog.py
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bertkit.console import say

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
        first_at = 0.0

        def hear(number: int, _: FrameType | None) -> None:
            nonlocal first_at
            if not self.received:
                self.received, first_at = number, time.monotonic()
                say(f"{signal.Signals(number).name}: the state of the last whole step is saved, then this run ends")
            elif time.monotonic() - first_at > ONE_WISH_SECONDS:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        for number in before:
            signal.signal(number, hear)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
