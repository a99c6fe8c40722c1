"""The one place that prints.

In: what a command has to say.  Out: answers on standard output; narration, warnings and progress on standard error.
Under several processes only rank 0 speaks.  Next: cli.py
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from tqdm import tqdm

OWN_ERROR_SECONDS = 3.0  # after which an error is one that the first process does not have
PLAIN_INTERVAL_SECONDS = 10.0  # without a terminal, progress is one line this often


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def result(text: str) -> None:
    """Print an answer the user asked for, on standard output."""
    if _speaks():
        print(text, flush=True)


def result_json(value: Any) -> None:
    """Print `value` as one line of JSON, characters unescaped, on standard output."""
    result(json.dumps(value, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """Print one line of narration on standard error; a progress bar on screen stays below it."""
    if _speaks():
        tqdm.write(text, file=sys.stderr)


def warn(text: str) -> None:
    """Print one warning on standard error."""
    say(f"warning: {text}")


def error(text: str) -> None:
    """Print an error on standard error; of several processes only the first, or the one that has an error of its own.

    The others wait a moment: what is wrong for all is said by the first one, upon whose end a launcher ends them.
    torchrun is left the text for its own last lines, which would bury it otherwise.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not _speaks():
        time.sleep(OWN_ERROR_SECONDS)
        who = f"process {os.environ['RANK']}"
        text = text if text.startswith(who) else f"{who}: {text}"
    if file:
        with suppress(OSError), open(file, "w", encoding="utf-8") as report:
            json.dump({"message": text, "timestamp": str(int(time.time()))}, report)
    print(f"error: {text}", file=sys.stderr, flush=True)


def table(rows: Iterable[Sequence[object]], *, indent: str = "  ") -> str:
    """Return the rows as text with aligned columns, numbers to the right.

    >>> print(table([("kept", 20021), ("dropped: lacuna mark", 879)]))
      kept                  20,021
      dropped: lacuna mark     879
    """
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    numeric = [[isinstance(cell, int | float) for cell in row] for row in rows] if isinstance(rows, Sequence) else []
    widths = [max(_width(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells), default=0))]
    lines = []
    for r, row in enumerate(cells):
        padded = []
        for c, cell in enumerate(row):
            space = " " * (widths[c] - _width(cell))
            padded.append(space + cell if numeric and numeric[r][c] else cell + space)
        lines.append((indent + "  ".join(padded)).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


class Progress:
    """A bar with rate and ETA on a terminal; elsewhere one plain line every ten seconds and one at the end.

    total: expected number of units, or None when unknown.
    brief: nothing stays of it on a terminal, and elsewhere nothing is said of what takes less than ten seconds.
    """

    def __init__(self, description: str, *, total: int | None, unit: str, start: int = 0, brief: bool = False) -> None:
        terminal = sys.stderr.isatty()
        self._description, self._plain, self._brief = description, not terminal, brief
        self._bar = tqdm(
            desc=description,
            total=total,
            unit=f" {unit}",
            initial=start,
            unit_scale=True,
            file=sys.stderr,
            disable=not _speaks() or not terminal,
            dynamic_ncols=True,
            mininterval=0.2,
            leave=not brief,
        )
        self._total, self._unit, self._done, self._start = total, unit, start, start
        self._began = self._spoke = time.monotonic()
        self._extra = ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self, count: int = 1, *, extra: str = "") -> None:
        """Count `count` more units done; `extra` (losses, say) is shown behind the rate."""
        self._done += count
        self._extra = extra or self._extra
        if self._plain:
            if time.monotonic() - self._spoke >= PLAIN_INTERVAL_SECONDS:
                self._line()
        else:
            if extra:
                self._bar.set_postfix_str(extra, refresh=False)
            self._bar.update(count)

    def close(self) -> None:
        """End the bar; without a terminal, say the final count and rate."""
        if self._plain and not (self._brief and self._spoke == self._began):
            self._line()
        self._bar.close()

    def _line(self) -> None:
        self._spoke = time.monotonic()
        meter = tqdm.format_meter(
            self._done,
            self._total or None,
            max(self._spoke - self._began, 1e-9),
            prefix=self._description,
            unit=f" {self._unit}",
            unit_scale=True,
            initial=self._start,
            ncols=0,
            postfix=self._extra or None,
        )
        say(meter)
