"""Freed memory is kept where the C library can: the next tensor of its size touches no new page."""

import ctypes
import subprocess
import sys

import pytest

from bertkit.allocator import keep_freed_memory

CAN = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")
# In a process of its own, as it cannot be undone: page faults of filling 64 MB again and again. (The first few times
# something small may stand in the gap that was left, so that the memory is taken elsewhere.)
FAULTS = """
import resource, sys, torch
from bertkit.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(40):
    torch.zeros(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not CAN, reason="this C library has no mallopt")
def test_pages_of_freed_tensors_are_touched_anew_only_without_it() -> None:
    faults = {}
    for way in ("keep", "leave"):
        command = [sys.executable, "-c", FAULTS, way]
        faults[way] = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert faults["keep"] < faults["leave"] / 2


def test_another_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


def test_a_c_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory() is False
