"""The wish to stop: the first signal sets a flag, one soon after is the same wish, a later one ends the process."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from bertkit.train.signals import StopFlag

# Says what it hears; then, in C that no handler of Python's can interrupt, waits for the second signal.
STUBBORN = """
import sys, threading, time
from bertkit.train.signals import StopFlag
with StopFlag().listening() as stop:
    print("listens", flush=True)
    while not stop.received:
        time.sleep(0.01)
    print("heard", stop.received, flush=True)
    lock = threading.Lock()
    lock.acquire()
    if sys.argv[1] == "blocked":
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))  # this thread does not run handlers
    time.sleep(60)
"""


def wait_for(stop: StopFlag) -> None:
    end = time.monotonic() + 5
    while not stop.received and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_sets_the_flag_and_says_so(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with StopFlag().listening() as stop:
        assert stop.received == 0
        signal.raise_signal(number)
        wait_for(stop)
    assert stop.received == number
    expected = f"{number.name}: the state of the last whole step is saved, then this run ends\n"
    assert capfd.readouterr().err == expected


def test_a_second_signal_within_a_moment_is_the_same_wish(capfd: pytest.CaptureFixture[str]) -> None:
    with StopFlag().listening() as stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        wait_for(stop)
        time.sleep(0.05)
    assert stop.received == signal.SIGINT
    assert capfd.readouterr().err.count("\n") == 1


def test_other_signals_are_no_wish() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopFlag().listening() as stop:
            signal.raise_signal(signal.SIGUSR1)
            time.sleep(0.05)
        assert stop.received == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("how", ["sleeping", "blocked"])
def test_a_later_signal_ends_the_process_at_once_whatever_it_does(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listens\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == f"heard {int(signal.SIGINT)}\n"
            time.sleep(1.1)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=5) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_the_handlers_before_it_are_put_back_and_nothing_is_left() -> None:
    def mine(*_: object) -> None:
        pass

    before = {number: signal.signal(number, mine) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(KeyError), StopFlag().listening():
            raise KeyError
        assert all(signal.getsignal(number) is mine for number in before)
        assert signal.set_wakeup_fd(-1) == -1
        assert "signals" not in [thread.name for thread in threading.enumerate()]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_outside_the_main_thread_nothing_is_listened_to() -> None:
    handlers, found = signal.getsignal(signal.SIGINT), []

    def listen() -> None:
        with StopFlag().listening() as stop:
            found.append((stop.received, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [(0, handlers)]
