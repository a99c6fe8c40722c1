"""The one error users meet: it says where, what, what was expected, and what to do.

In: a problem found in a file, a flag or a model folder.  Out: one exception with one message.  Next: console.py
"""

from collections.abc import Callable, Iterable
from pathlib import Path

SIGNALLED = 128  # an exit code says by which signal: 128 and its number
SHOWN_PROBLEMS = 20  # a list of errors shows this many and then the total


class InputError(ValueError):
    """A problem a user can cause and mend; `str()` of it is the whole message, no traceback needed.

    >>> print(InputError("is empty", file="poems.txt", line=3, expected="one ci a line", remedy="remove the line"))
    poems.txt:3: is empty
      expected: one ci a line
      what to do: remove the line
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.file, self.line, self.field = problem, file, line, field
        self.value, self.expected, self.remedy = value, expected, remedy
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self._headline()]
        if self.value is not None:
            lines.append(f"  value: {_shortened(self.value)}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.remedy is not None:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)

    def _headline(self) -> str:
        """Where and what."""
        place = "" if self.file is None else str(self.file)
        if self.line is not None:
            place += f":{self.line}"
        parts = [part for part in (place, self.field) if part]
        return ": ".join([*parts, self.problem])

    def said_again(self) -> str:
        """Return the message in one line, for a list in which an error of the same kind was said in full."""
        return self._headline() + ("" if self.value is None else f": {_shortened(self.value)}")

    def is_like(self, other: "InputError") -> bool:
        """Return whether the same is wrong, expected and to be done, at another place."""
        return all(getattr(self, name) == getattr(other, name) for name in ("problem", "field", "expected", "remedy"))


class InputErrors(InputError):
    """Several problems found in one pass; shows the first 20 and the total, what to do about a kind of them once.

    total: their number, where only the first of them were kept; None: all are given.
    """

    def __init__(self, problems: Iterable[InputError], *, total: int | None = None) -> None:
        self.problems = list(problems)
        assert self.problems
        self.total = len(self.problems) if total is None else total
        super().__init__(f"{self.total} problems")

    def __reduce__(self) -> tuple[Callable[..., "InputErrors"], tuple[list[InputError], int]]:
        return _errors_again, (self.problems, self.total)  # for another process; by default it would get the message

    def _message(self) -> str:
        problems = self.problems[:SHOWN_PROBLEMS]
        lines: list[str] = []
        for place, problem in enumerate(problems):
            is_said = problem.remedy is not None and any(map(problem.is_like, problems[:place]))
            lines.append(problem.said_again() if is_said else str(problem))
        shown = "\n".join(lines)
        if self.total == 1:
            return shown
        return f"{shown}\n{min(len(self.problems), SHOWN_PROBLEMS)} of {self.total} problems shown"


def _errors_again(problems: list[InputError], total: int) -> InputErrors:
    return InputErrors(problems, total=total)


class Stopped(Exception):
    """A run that ended because a signal asked it to, its state saved; no error, but not finished either."""

    def __init__(self, signal_number: int, message: str) -> None:
        self.signal_number = signal_number
        super().__init__(message)


def _shortened(value: object, *, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
