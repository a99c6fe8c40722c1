"""Files on a disk → lines of text: paths and compression, each fault named with its place.

In: what `--input_file` says.  Out: Sources, and for each its numbered lines.  Next: documents.py
(Encodings, marks and line ends: encodings.py)
"""

import glob
import gzip
import io
import lzma
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertkit.console import warn
from bertkit.errors import InputError, InputErrors
from bertkit.text.encodings import decoded_lines

COMPRESSED = (".gz", ".xz", ".zst")
FIRST_LINES = 1000  # the format of a .txt is guessed from this many lines at most
FIRST_CHARACTERS = 2**20  # and from this many characters at most
# A semicolon ends a line of Google's sample too; a comma or colon means that the sentence runs on in the next line.
_WHOLE = re.compile(r"""[.!?;…。！？；]["'”’」』)\]）】》]*$""")
_SEVERAL = re.compile(r"""[.!?]["'”’)\]]*\s+["'“‘(\[]*[A-Z]|[。！？]["'”’」』）》]*[^"'”’」』）》\s]""")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a corpus."""

    path: Path
    name: str  # in document ids: the same on every machine
    encoding: str = "utf-8"  # of its text

    @property
    def plain_name(self) -> str:
        """The file's name in lower case without the ending of its compression."""
        name = self.path.name.lower()
        return os.path.splitext(name)[0] if name.endswith(COMPRESSED) else name


def find_sources(input_file: str | None, *, encoding: str = "utf-8", flag: str = "--input_file") -> list[Source]:
    """Return the files that `--input_file` names, in the order given; folders and globs sorted, hidden files left out.

    encoding: of all of them; flag: what the errors call the value.

    Raises:
        InputError: no path; a path, glob or folder without files; an empty file; something that is not a regular file.
    """
    if not input_file or not input_file.strip():
        raise InputError("no text was given", field=flag, expected="paths, comma separated; globs; folders")
    paths, problems = _paths_of(input_file, flag)
    once = {os.path.realpath(path): path for path in reversed(paths)}  # the first way to name a file wins
    unique = [path for path in paths if once[os.path.realpath(path)] is path]
    if len(unique) < len(paths):
        warn(f"{flag} names {len(paths) - len(unique)} files more than once; each is read once")
    for path in unique:
        if path.stat().st_size == 0:
            problems.append(InputError("is empty", file=path, remedy=f"remove the file from {flag}"))
    if problems:
        raise InputErrors(problems)
    return _named(unique, encoding)


def require_no_input(outputs: Iterable[Path], input_file: str, *, flag: str = "--output_file") -> None:
    """Refuse to write over a file that `--input_file` names, by its path, a folder or a glob.

    outputs: the files to be written; flag: what the error calls them.

    Raises:
        InputError: one of them is an input. (What is wrong with the inputs themselves `find_sources` says.)
    """
    inputs, _ = _paths_of(input_file, flag)
    for output in outputs:
        if output.exists() and any(output.samefile(path) for path in inputs):
            raise InputError(
                "is the input, which would be overwritten", field=flag, value=str(output), remedy="name another file"
            )


def _paths_of(input_file: str, flag: str) -> tuple[list[Path], list[InputError]]:
    """The files that are named, in order, and what is wrong with the names."""
    # A comma may be part of a name, so the whole value is tried as a path first.
    parts = [input_file] if os.path.lexists(input_file) else [part.strip() for part in input_file.split(",")]
    paths: list[Path] = []
    problems: list[InputError] = []
    for part in filter(None, parts):
        try:
            paths += _files_of(part, flag)
        except InputError as problem:
            problems.append(problem)
    return paths, problems


def _files_of(part: str, flag: str) -> list[Path]:
    """The files of one path, glob or folder."""
    path = Path(part).expanduser()
    if not os.path.lexists(path):
        if not glob.has_magic(part):
            raise InputError("does not exist", file=part, remedy=f"check {flag}")
        matches = sorted(glob.glob(str(path), recursive=True))
        files = [
            file for match in matches for file in (_folder(Path(match)) if os.path.isdir(match) else [Path(match)])
        ]
        if not files:
            raise InputError("no file has a name like this", file=part, remedy=f"check {flag}")
        return [_regular(file, flag) for file in files]
    if path.is_dir():
        files = _folder(path)
        if not files:
            raise InputError("is a folder without files", file=path, remedy=f"check {flag}")
        return files
    return [_regular(path, flag)]


def _folder(folder: Path) -> list[Path]:
    """All regular files below the folder, sorted; hidden files and folders left out."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


def _regular(path: Path, flag: str) -> Path:
    """The path, if a regular file stands there; opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path, remedy=f"check {flag}") from error
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "not a regular file"
        raise InputError(f"is {kind}", file=path, expected="a regular file", remedy="save the text as a file first")
    return path


def _named(paths: list[Path], encoding: str) -> list[Source]:
    """Sources called by their file names, or by their paths below the common folder where file names repeat."""
    if len({path.name for path in paths}) == len(paths):
        return [Source(path, path.name, encoding) for path in paths]
    common = os.path.commonpath([path.absolute().parent for path in paths])
    return [Source(path, path.absolute().relative_to(common).as_posix(), encoding) for path in paths]


def read_lines(source: Source, *, changed: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); byte order mark and CRLF vanish and are counted.

    LF, CRLF and a lone CR end a line; NEL, U+2028, form feed and the like do not, so `str.splitlines` is not used.
    changed: gets a count for everything that was not passed on as it stood.

    Raises:
        InputError: a byte that is not of the file's encoding, a NUL, a line over 64 MiB, a file cut short, or no text.
    """
    with _open(source.path) as stream:
        yield from decoded_lines(stream, source.path, encoding=source.encoding, changed=changed)


def _open(path: Path) -> io.BufferedIOBase:
    """The file's bytes, decompressed by the ending of its name."""
    try:
        if path.suffix.lower() == ".gz":
            return gzip.open(path, "rb")
        if path.suffix.lower() == ".xz":
            return lzma.open(path, "rb")
        if path.suffix.lower() == ".zst":
            from pyarrow import input_stream  # unlike the package zstandard it says when a file is cut short

            return io.BufferedReader(input_stream(path, compression="zstd"), 2**20)
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot be opened: {error.strerror}", file=path, remedy="check its permissions") from error


def guess_text_format(source: Source) -> tuple[str, str]:
    """Return (format, reason) for a file of plain text: `lines`, `sentences` or `paragraphs`, by its first lines.

    Without a blank line between its lines: lines.  With blank lines: sentences, if at least 90 % of the lines end as
    a sentence does and at most 20 % hold the end of one inside; else paragraphs.
    """
    texts: list[str] = []
    characters, blank, inner_blank = 0, False, False
    for number, line in read_lines(source, changed=Counter()):
        text = line.strip()
        if text:
            inner_blank |= blank and bool(texts)
            texts.append(text)
        blank = not text
        characters += len(line)
        if number >= FIRST_LINES or characters >= FIRST_CHARACTERS:
            break
    if not inner_blank:
        return "lines", "no blank line between lines"
    whole = sum(bool(_WHOLE.search(text)) for text in texts)
    several = sum(bool(_SEVERAL.search(text)) for text in texts)
    if 10 * whole >= 9 * len(texts) and 5 * several <= len(texts):
        return "sentences", "blank lines, and a line is one sentence"
    return "paragraphs", "blank lines, and lines that are not one sentence each"
