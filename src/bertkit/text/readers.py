"""Files on a disk → lines of text: paths, compression, line ends and encoding, each fault named with its place.

In: what `--input_file` says.  Out: Sources, and for each its numbered lines.  Next: documents.py
"""

import glob
import gzip
import io
import lzma
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from bertkit.console import warn
from bertkit.errors import InputError, InputErrors

LINE_LIMIT = (
    64 * 2**20
)  # bytes; a longer line is no line, and memory must not grow with the corpus (nor with a gz bomb)
COMPRESSED = (".gz", ".xz", ".zst")
MAGIC = {  # first bytes of files that are no text, whatever their name says
    b"\x1f\x8b": "gzip-compressed: give it a name that ends in .gz",
    b"\xfd7zXZ": "xz-compressed: give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "zstandard-compressed: give it a name that ends in .zst",
    b"PK\x03\x04": "a zip archive (or an office document): unpack it and give the text inside",
    b"PAR1": "a Parquet file: save its text column as JSONL",
    b"%PDF": "a PDF: save it as plain text",
}
FIRST_LINES = 1000  # the format of a .txt is guessed from this many lines at most
FIRST_CHARACTERS = 2**20  # and from this many characters at most
# A semicolon ends a line of Google's sample too; a comma or colon means that the sentence runs on in the next line.
_WHOLE = re.compile(r"""[.!?;…。！？；]["'”’」』)\]）】》]*$""")
_SEVERAL = re.compile(r"""[.!?]["'”’)\]]*\s+["'“‘(\[]*[A-Z]|[。！？]["'”’」』）》]*[^"'”’」』）》\s]""")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a corpus, and the name it has in document ids: the same on every machine."""

    path: Path
    name: str

    @property
    def plain_name(self) -> str:
        """The file's name in lower case without the ending of its compression."""
        name = self.path.name.lower()
        return os.path.splitext(name)[0] if name.endswith(COMPRESSED) else name


def find_sources(input_file: str | None) -> list[Source]:
    """Return the files that `--input_file` names, in the order given; folders and globs sorted, hidden files left out.

    Raises:
        InputError: no path; a path, glob or folder without files; an empty file; something that is not a regular file.
    """
    if not input_file or not input_file.strip():
        raise InputError("no text was given", field="--input_file", expected="paths, comma separated; globs; folders")
    # A comma may be part of a name, so the whole value is tried as a path first.
    parts = [input_file] if os.path.lexists(input_file) else [part.strip() for part in input_file.split(",")]
    paths: list[Path] = []
    problems: list[InputError] = []
    for part in filter(None, parts):
        try:
            paths += _files_of(part)
        except InputError as problem:
            problems.append(problem)
    once = {os.path.realpath(path): path for path in reversed(paths)}  # the first way to name a file wins
    unique = [path for path in paths if once[os.path.realpath(path)] is path]
    if len(unique) < len(paths):
        warn(f"--input_file names {len(paths) - len(unique)} files more than once; each is read once")
    for path in unique:
        if path.stat().st_size == 0:
            problems.append(InputError("is empty", file=path, remedy="remove the file from --input_file"))
    if problems:
        raise InputErrors(problems)
    return _named(unique)


def _files_of(part: str) -> list[Path]:
    """The files of one path, glob or folder."""
    path = Path(part).expanduser()
    if not os.path.lexists(path):
        if not glob.has_magic(part):
            raise InputError("does not exist", file=part, remedy="check --input_file")
        matches = sorted(glob.glob(str(path), recursive=True))
        files = [
            file for match in matches for file in (_folder(Path(match)) if os.path.isdir(match) else [Path(match)])
        ]
        if not files:
            raise InputError("no file has a name like this", file=part, remedy="check --input_file")
        return [_regular(file) for file in files]
    if path.is_dir():
        files = _folder(path)
        if not files:
            raise InputError("is a folder without files", file=path, remedy="check --input_file")
        return files
    return [_regular(path)]


def _folder(folder: Path) -> list[Path]:
    """All regular files below the folder, sorted; hidden files and folders left out."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


def _regular(path: Path) -> Path:
    """The path, if a regular file stands there; opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path, remedy="check --input_file") from error
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "not a regular file"
        raise InputError(f"is {kind}", file=path, expected="a regular file", remedy="save the text as a file first")
    return path


def _named(paths: list[Path]) -> list[Source]:
    """Sources called by their file names, or by their paths below the common folder where file names repeat."""
    if len({path.name for path in paths}) == len(paths):
        return [Source(path, path.name) for path in paths]
    common = os.path.commonpath([path.absolute().parent for path in paths])
    return [Source(path, path.absolute().relative_to(common).as_posix()) for path in paths]


def read_lines(source: Source, *, changed: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); byte order mark and CRLF vanish and are counted.

    LF, CRLF and a lone CR end a line; NEL, U+2028, form feed and the like do not, so `str.splitlines` is not used.
    changed: gets a count for everything that was not passed on as it stood.

    Raises:
        InputError: a byte that is not UTF-8, a NUL, a line over 64 MiB, a file cut short, or one that is no text.
    """
    number = 0
    with _open(source.path) as stream:
        while True:
            try:
                raw = stream.readline(LINE_LIMIT)
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                raise InputError(
                    f"cannot be read to its end: {error}",
                    file=source.path,
                    line=number + 1,
                    remedy="the file is cut short or damaged: get it again",
                ) from error
            if not raw:
                return
            if number == 0:
                raw = _without_mark(raw, source.path, changed)
            for text in _decoded(raw, source.path, number + 1, changed):
                number += 1
                yield number, text


def _open(path: Path) -> BinaryIO:
    """The file's bytes, decompressed by the ending of its name."""
    try:
        if path.suffix.lower() == ".gz":
            return cast(BinaryIO, gzip.open(path, "rb"))
        if path.suffix.lower() == ".xz":
            return cast(BinaryIO, lzma.open(path, "rb"))
        if path.suffix.lower() == ".zst":
            from pyarrow import input_stream  # unlike the package zstandard it says when a file is cut short

            return io.BufferedReader(input_stream(path, compression="zstd"), 2**20)
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot be opened: {error.strerror}", file=path, remedy="check its permissions") from error


def _without_mark(raw: bytes, path: Path, changed: Counter[str]) -> bytes:
    """The first line without the UTF-8 byte order mark."""
    for magic, meaning in MAGIC.items():
        if raw.startswith(magic):
            raise InputError(f"is no text: it is {meaning.split(':')[0]}", file=path, remedy=meaning.split(": ")[1])
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            "is UTF-16 (it begins with that encoding's mark)",
            file=path,
            expected="UTF-8",
            remedy=_iconv("UTF-16", path),
        )
    if raw.startswith(b"\xef\xbb\xbf"):
        changed["byte order mark taken off"] += 1
        return raw[3:]
    return raw


def _decoded(raw: bytes, path: Path, number: int, changed: Counter[str]) -> list[str]:
    """The one text of a line that ends in LF or CRLF, or the several that lone CRs make of it."""
    if len(raw) >= LINE_LIMIT and not raw.endswith(b"\n"):
        raise InputError(
            f"a line of more than {LINE_LIMIT // 2**20} MiB",
            file=path,
            line=number,
            expected="documents, paragraphs or sentences on lines of their own",
            remedy="break the text into lines",
        )
    if b"\0" in raw:
        utf16 = raw.count(b"\0") * 3 >= len(raw) > 1  # every other byte of ASCII in UTF-16 is a NUL
        raise InputError(
            f"byte {raw.index(0) + 1} of the line is NUL: " + ("likely UTF-16" if utf16 else "a binary file?"),
            file=path,
            line=number,
            expected="text in UTF-8",
            remedy=_iconv("UTF-16", path) if utf16 else "give a text file, or remove the NUL bytes",
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _encoding_problem(raw, error, path, number) from None
    if text.endswith("\n"):
        text = text[:-1]
        if text.endswith("\r"):
            text = text[:-1]
            changed["CRLF line end made LF"] += 1
    if "\r" not in text:
        return [text]
    parts = text.removesuffix("\r").split("\r")
    changed["lone CR taken as a line end"] += text.count("\r")
    return parts


def _encoding_problem(raw: bytes, error: UnicodeDecodeError, path: Path, number: int) -> InputError:
    """The error for a byte that is not UTF-8, with the encoding the line is likely in."""
    lenient = raw.decode("utf-8", errors="replace")
    sound = sum(character > "\x7f" and character != "\ufffd" for character in lenient)
    if sound > lenient.count("\ufffd"):  # GB18030 reads most UTF-8 too, as wrong characters: so this is asked first
        remedy = "the rest of the line is UTF-8: mend or remove this byte"
    elif _reads_as_chinese(raw):
        remedy = _iconv("GB18030", path)
    else:
        remedy = "likely Latin-1 or Windows-1252: " + _iconv("WINDOWS-1252", path)
    return InputError(
        f"byte {error.start + 1} of the line is not UTF-8",
        file=path,
        line=number,
        value=f"0x{raw[error.start]:02X}",
        expected="text in UTF-8",
        remedy=remedy,
    )


def _reads_as_chinese(raw: bytes) -> bool:
    """Whether GB18030 makes Chinese characters and punctuation of all bytes that are not ASCII."""
    try:
        foreign = [character for character in raw.decode("gb18030") if character > "\x7f"]
    except UnicodeDecodeError:
        return False
    return len(foreign) > 1 and all(
        "\u4e00" <= c <= "\u9fff" or c in "，。、；：？！“”‘’《》（）—…·\u3000" for c in foreign
    )


def _iconv(encoding: str, path: Path) -> str:
    return f"convert it from {encoding}: iconv -f {encoding} -t UTF-8 {path} > {path.name}.utf8.txt"


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
