"""What cleaning drops, written down.

In: a document's id, a text, the reason.  Out: rejects.jsonl, whole or absent.  Next: clean.py
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bertkit.errors import InputError
from bertkit.files import fsync_directory
from bertkit.text.encodings import LINE_LIMIT

FIELDS = ["id", "text", "reason"]


class RejectWriter:
    """A JSON line for everything that is dropped."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, id: str, text: str, reason: str) -> None:
        """Append one line."""
        row = dict(zip(FIELDS, (id, text, reason), strict=True))
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def rejects_written(path: Path | None) -> Iterator[RejectWriter | None]:
    """Yield a writer to a file beside `path` that takes its name at the end; an exception leaves what stood there.

    path: None yields None.

    Raises:
        InputError: the file cannot be written, or another file than one of rejects stands there.
    """
    if path is None:
        yield None
        return
    _require_no_other_file(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path, field="--rejects_file") from error
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            yield RejectWriter(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def _require_no_other_file(path: Path) -> None:
    """Refuse to write over a file that is no rejects file: the corpus itself, say."""
    if path.is_dir() or (path.is_file() and not _holds_rejects(path)):
        raise InputError(
            "is a folder" if path.is_dir() else "is another file, and would be lost",
            file=path,
            field="--rejects_file",
            expected="a new file, or an older one of rejects",
            remedy="name another file",
        )


def _holds_rejects(path: Path) -> bool:
    """Whether the file is empty or begins with a line as `RejectWriter` writes it."""
    with open(path, "rb") as file:
        first = file.readline(LINE_LIMIT)
    try:
        return not first or list(json.loads(first)) == FIELDS
    except (ValueError, TypeError, RecursionError):  # no JSON; a number; nested too deep
        return False
