"""A process that saves a few toy checkpoints with retention, and may be killed or refused while it does.

Each step that was finished is a line of FOLDER/finished: the folder of a run is FOLDER/run.
"""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toy_checkpoint import FINGERPRINT, SavedRun

from bertkit.console import error, result
from bertkit.errors import InputError
from bertkit.train import checkpoint
from bertkit.train.checkpoint import damage, find_checkpoint
from bertkit.train.state import read_state, restore

# Step and best step: the best changes, a step is saved again (as after a resume), one before the last comes again.
COURSE = ((1, 1), (2, 1), (3, 3), (4, 3), (4, 3), (5, 3), (6, 6))
LIMIT, KEEP_EVERY = 1, 5
CHANGES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("replace", "fsync", "unlink", "rmdir", "mkdir")),
    (Path, ("write_bytes", "write_text")),
    (checkpoint, ("save_file",)),
)
NEW_MOUNTS = 0x00020000  # CLONE_NEWNS


def saves(words: list[str]) -> int:
    """Save the whole course, over and over with `forever`; wait for the file FOLDER/go first, if asked to."""
    folder, *how = words
    saved = SavedRun(Path(folder) / "run")
    if "wait" in how:
        Path(folder, "ready").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.002)
    try:
        turn = 0
        while turn == 0 or "forever" in how:
            for step, best in COURSE:
                save(saved, Path(folder), step + 6 * turn, best + 6 * turn)
            turn += 1
    except InputError as problem:
        error(str(problem))
        return 2
    return 0


def save(saved: SavedRun, folder: Path, step: int, best: int) -> None:
    """Save one checkpoint and note that it is finished."""
    saved.save(step, best=best, limit=LIMIT, keep_every=KEEP_EVERY, content=b"weights" * 2000)
    descriptor = os.open(folder / "finished", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, f"{step}\n".encode())
    os.close(descriptor)


def finished(folder: Path) -> list[int]:
    """Return the steps whose checkpoints were finished, in order."""
    path = folder / "finished"
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


def saves_and_is_killed(words: list[str]) -> int:
    """Save the course; at the n-th change of a file the process is killed before it, or (n < 0) after it."""
    folder, moment = words[0], int(words[1])
    calls = iter(range(1, abs(moment) + 1))
    last = abs(moment)

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            is_it = next(calls, None) == last
            if is_it and moment > 0:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return original(*arguments, **named)
            finally:
                if is_it:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for owner, names in CHANGES:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))
    return saves([folder])


def saves_under_an_audit(words: list[str]) -> int:
    """Save, find and resume once, so that all is imported; then again, counting what would run code."""
    saved = SavedRun(Path(words[0]) / "run", ema_decay=0.5)
    counts = dict.fromkeys(("pickle.find_class", "exec", "compile"), 0)
    listening = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event in counts:
            counts[event] += 1
            error(f"{event}: {arguments!r:.200}")

    sys.addaudithook(hook)
    for turn in (1, 2):
        listening = turn == 2
        for step in (1, 2, 3):
            saved.save(step + 3 * turn, best=4, limit=1)
        found = find_checkpoint(saved.folder, "last")
        read_state(found, fingerprint=FINGERPRINT)
        restore(found, saved.module, saved.optimizers)
    listening = False
    result(f"{find_checkpoint(saved.folder, 'last').name}: {counts}")
    return 0


# --- disks that refuse: a file system of its own, in a mount namespace of its own ---------------------------------


def mount_small(folder: Path, *, size: str) -> None:
    """Mount an empty file system of so many bytes, seen by this process only."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)


def can_mount(words: list[str]) -> int:
    """Return 0 where mounting works here."""
    try:
        mount_small(Path(words[0]), size="64k")
    except (OSError, subprocess.CalledProcessError) as problem:
        error(str(problem))
        return 1
    return 0


def saves_on_a_full_disk(words: list[str]) -> int:
    """Save step 1, then step 2 on a disk that fills up at the file named; say what stands then."""
    folder, full_at = Path(words[0]), words[1]
    mount_small(folder, size="2m")
    saved = SavedRun(folder / "run")
    first = saved.save(1, best=1)
    filler = folder / "filler"

    def fill_up() -> None:
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                return

    def filling(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            fill_up()
            return original(*arguments)

        return call

    if full_at == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    elif full_at == "before":
        fill_up()
    else:
        setattr(checkpoint, full_at, filling(getattr(checkpoint, full_at)))
    return _refused(saved, first)


def _refused(saved: SavedRun, first: Path) -> int:
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    try:
        saved.save(2, best=2, content=b"weights" * 50_000)
    except InputError as problem:
        error(str(problem))
    else:
        return 1
    after = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    is_whole = damage(first) is None and before == after
    names = ", ".join(sorted(path.name for path in first.parent.iterdir()))
    result(f"whole: {is_whole}; last: {find_checkpoint(first.parents[1], 'last').name}; there are: {names}")
    return 2


def _fill_after(awaited: Path, folder: Path) -> None:
    while not awaited.exists():
        time.sleep(0.01)
    with contextlib.suppress(OSError), open(folder / "others", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def trains_on_a_small_disk(words: list[str]) -> int:
    """Mount FOLDER, call bertkit with the other words there, and say what its checkpoints are worth.

    Somebody else fills the disk once step 4 is saved.
    """
    from bertkit.cli import main

    folder, size, run, *rest = words
    mount_small(Path(folder), size=size)
    threading.Thread(target=_fill_after, args=(Path(run) / "checkpoints" / "step-4", Path(folder)), daemon=True).start()
    code = main(rest)
    steps = sorted(Path(run).glob("checkpoints/step-*[0-9]"))
    result(f"code {code}; {len(steps)} checkpoints, {sum(damage(step) is not None for step in steps)} damaged")
    result(f"last: {find_checkpoint(Path(run), 'last').name}")
    return code


if __name__ == "__main__":
    sys.exit(saves(sys.argv[1:]))
