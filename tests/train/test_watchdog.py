"""The watchdog: beats keep it quiet, silence ends the process with its stacks shown."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from bertkit.train.watchdog import EXIT_CODE, Watchdog

HANGING = """
import sys, time
from bertkit.train.watchdog import Watchdog
def where_it_hangs():
    time.sleep(30)
with Watchdog(float(sys.argv[1])).watching():
    where_it_hangs()
"""


def test_silence_ends_the_process_and_shows_where_it_hangs() -> None:
    answer = subprocess.run([sys.executable, "-c", HANGING, "0.4"], capture_output=True, encoding="utf-8", timeout=20)
    assert answer.returncode == EXIT_CODE == 3
    assert answer.stderr.startswith("error: nothing has moved for 0.4 seconds (--hang_timeout); the stacks of this")
    assert "--resume_from last" in answer.stderr
    assert "in where_it_hangs" in answer.stderr


def test_beats_keep_it_quiet_and_the_end_of_the_block_stops_it() -> None:
    watchdog = Watchdog(0.2)
    with watchdog.watching():
        for _ in range(40):
            watchdog.beat()
            time.sleep(0.01)
    assert "watchdog" not in [thread.name for thread in threading.enumerate()]
    time.sleep(0.3)  # (were it watching still, this process would end here)


def test_it_stops_however_the_block_ends() -> None:
    with pytest.raises(KeyError), Watchdog(0.2).watching():
        raise KeyError
    assert "watchdog" not in [thread.name for thread in threading.enumerate()]


def test_a_timeout_of_0_never_ends_anything() -> None:
    with Watchdog(0).watching():
        assert "watchdog" not in [thread.name for thread in threading.enumerate()]


def test_the_time_that_the_whole_process_stood_still_does_not_count() -> None:
    code = HANGING.replace("time.sleep(30)", "print('hangs', flush=True); time.sleep(0.5)")
    with subprocess.Popen([sys.executable, "-c", code, "1"], stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "hangs\n"
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
