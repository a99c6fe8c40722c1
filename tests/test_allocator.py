"""Freed memory is kept where the C library can: the next tensor of its size touches no new page."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bertkit.allocator import keep_freed_memory
from bertkit.data import exchange, helpers
from bertkit.data.encoding import EncodingSettings
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.train import runtime
from bertkit.train.settings import TrainSettings

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
OF_ALLOCATORS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "THP_")  # beginnings of variables
# In a process of its own, as it cannot be undone: page faults of filling 64 MB again and again. (The first few times
# something small may stand in the gap that was left, so that the memory is taken elsewhere.)
FAULTS = """
import resource, sys, torch
from bertkit.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.zeros(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not (sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")),
    reason="this C library has no mallopt",
)
@pytest.mark.skipif(
    HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text("utf-8"), reason="this system has few pages to count"
)
def test_pages_of_freed_tensors_are_touched_anew_only_without_it() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_ALLOCATORS)}
    faults = {}
    for way in ("keep", "leave"):
        command = [sys.executable, "-c", FAULTS, way]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        faults[way] = int(answer)
    assert faults["keep"] < faults["leave"] / 2


def test_another_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


def test_a_c_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory() is False


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_training_keeps_it_on_a_processor(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr(runtime, "keep_freed_memory", lambda: asked.append("runtime"))
    state = SimpleNamespace(device=torch.device(device), num_processes=1)
    monkeypatch.setattr(runtime, "PartialState", lambda **how: state)
    runtime.start(TrainSettings())
    assert asked == (["runtime"] if device == "cpu" else [])


def test_encoding_keeps_it_in_our_own_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(helpers, "keep_freed_memory", lambda: asked.append("this process"))
    monkeypatch.setattr(exchange, "keep_freed_memory", lambda: asked.append("one of a pool"))
    monkeypatch.setattr(exchange, "_REMEMBERED", [])
    tokenizer = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "a")), do_lower_case=True)
    monkeypatch.setattr(exchange, "load_tokenizer", lambda folder: tokenizer)
    with helpers.open_helpers(EncodingSettings(tokenizer, None, None, "none"), tmp_path, workers=1, dask=None):
        exchange.remember(tmp_path, None, None, "none")
    assert asked == ["this process", "one of a pool"]
