"""Writing so that a kill leaves the old file or the new one, never half of it.

In: bytes and paths.  Out: files and folders that are whole or absent.  Next: errors.py
"""

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bertkit.errors import InputError


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Write `content` (text as UTF-8) beside `path`, fsync it, rename it over `path`, fsync the folder."""
    with file_written_atomically(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def file_written_atomically(path: str | Path) -> Iterator[Path]:
    """Yield a name beside `path` to write a file at, piece by piece; at the end fsync it and rename it over `path`.

    An exception removes what was written and leaves what stood at `path` untouched.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path):
            yield temporary
        fsync_file(temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # which would hide what went wrong before
            temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def require_folder_or_nothing(path: Path, *, flag: str) -> None:
    """Refuse a place where no folder can be made, before any work whose result would be lost.

    Raises:
        InputError: a file stands there, or in the place of a folder above it.
    """
    there = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise InputError("is no folder", file=there, field=flag, value=str(path), remedy="name another folder")
    if not os.access(there, os.W_OK):
        raise InputError("cannot be written to", file=there, field=flag, value=str(path), remedy="name another folder")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError inside the path that it is about, where the system names none: a full disk, say."""
    try:
        yield
    except OSError as problem:
        if problem.errno is not None and problem.filename is None:
            problem.filename = str(path)
        raise


@contextmanager
def directory_written_atomically(path: str | Path) -> Iterator[Path]:
    """Yield an empty `path.tmp` to fill; at the end fsync every file in it and rename it to `path` in one step.

    An exception removes the temporary and leaves what stood at `path` untouched.
    A folder that stands at `path` is replaced: moved aside for the instant of the rename, and put back by the next
    call should the process be killed in that instant.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_back(path)
    temporary = path.with_name(f"{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        finish_directory(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        put_back(path)


def put_back(path: Path) -> None:
    """Give the folder at `path` its name again where a killed `finish_directory` had moved it aside."""
    old = path.with_name(f"{path.name}.old")
    if old.exists() and not path.exists():
        os.replace(old, path)


def finish_directory(temporary: Path, path: Path) -> None:
    """Fsync every file in the folder `temporary` and rename it to `path`, a folder that stands there being replaced."""
    old = path.with_name(f"{path.name}.old")
    for file in sorted(temporary.rglob("*")):
        if file.is_file():
            fsync_file(file)
    for folder in [*(f for f in sorted(temporary.rglob("*")) if f.is_dir()), temporary]:
        fsync_directory(folder)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(path, old)
        os.replace(temporary, path)
        fsync_directory(path.parent)
        shutil.rmtree(old)
    else:
        os.replace(temporary, path)
    fsync_directory(path.parent)


def fsync_file(path: Path) -> None:
    """Ask the disk to keep what was written to the file at `path`."""
    with naming(path), open(path, "rb") as file:
        os.fsync(file.fileno())


def fsync_directory(path: Path) -> None:
    """Ask the disk to keep the names in the folder at `path`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_directory() -> Path:
    """Return the folder for what is made once: $BERTKIT_CACHE, else `bertkit` in the user's cache folder."""
    given = os.environ.get("BERTKIT_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "bertkit"
    local = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(local) if local else Path.home() / ".cache") / "bertkit"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path` inside the block, and wait for it first; a killed holder lets it go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_bytes(path: Path) -> int:
    """Return the bytes that are free on the disk where `path` stands, or would stand."""
    return shutil.disk_usage(next(place for place in (path, *path.absolute().parents) if place.exists())).free


def sha256_of_file(path: str | Path) -> str:
    """Return the hexadecimal SHA-256 of the file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_file(path: str | Path, *, what: str, remedy: str) -> Path:
    """Return `path` as a Path.

    Raises:
        InputError: nothing stands there, or what stands there is not a regular file.
    """
    path = Path(path)
    if not path.exists():
        raise InputError("does not exist", file=path, expected=what, remedy=remedy)
    if not path.is_file():
        raise InputError("is not a file", file=path, expected=what, remedy=remedy)
    return path
