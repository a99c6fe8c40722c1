"""The texts a command is given, on its command line or as the lines of files: read again as often as they are needed.

In: texts, or what `--input_file` says.  Out: GivenTexts, which know the file and line of each.  Next: readers.py
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors
from bertkit.text.readers import Source, find_sources, read_lines


@dataclass(frozen=True)
class GivenTexts:
    """Texts in the order given; iterating reads files anew, a line at a time."""

    texts: tuple[str, ...]  # of the command line
    sources: tuple[Source, ...]  # in place of them

    def __iter__(self) -> Iterator[str]:
        """Yield the texts."""
        return (text for text, _, _ in self._placed())

    def _placed(self) -> Iterator[tuple[str, Source | None, int]]:
        yield from ((text, None, 0) for text in self.texts)
        for source in self.sources:
            yield from ((line, source, number) for number, line in read_lines(source, changed=Counter()))

    def refuse(self, problems: Iterable[tuple[int, InputError]]) -> None:
        """Raise the problems found in the texts, where there are any: of a file's lines with file and line.

        problems: (place of the text in the order, problem), rising. The field of a problem is "text 3" or, of a part
            of a text, "pair 3, A".

        Raises:
            InputErrors: there is a problem; the first of them are shown, and their number.
        """
        first: dict[int, InputError] = {}
        total = 0
        for index, problem in problems:
            total += 1
            if len(first) < SHOWN_PROBLEMS:
                first[index] = problem
        if not total:
            return
        shown = []
        for index, (_, source, number) in enumerate(self._placed()):
            if index in first:
                shown.append(_in_file(first[index], source, number))
            if len(shown) == len(first):
                break
        raise InputErrors(shown, total=total)


def _in_file(problem: InputError, source: Source | None, line: int) -> InputError:
    if source is None:
        return problem
    return InputError(
        problem.problem,
        file=source.path,
        line=line,
        field=(problem.field or "").partition(", ")[2] or None,
        value=problem.value,
        expected=problem.expected,
        remedy=problem.remedy,
    )


def given_texts(texts: list[str], input_file: str | None, *, example: str) -> GivenTexts:
    """Return the texts of the command line, or the lines of the files, none of them blank.

    example: a command line that works, for the error.

    Raises:
        InputError: neither or both were given; a file that cannot be read as text; blank lines, all of them named.
    """
    if bool(texts) == bool(input_file):
        raise InputError(
            "give texts on the command line or --input_file, one of the two", field="texts", remedy=example
        )
    if input_file is None:
        return GivenTexts(tuple(texts), ())
    given = GivenTexts((), tuple(find_sources(input_file)))
    blank = InputError("is a blank line", expected="a text", remedy="remove it")
    given.refuse((index, blank) for index, text in enumerate(given) if not text.strip())
    return given
