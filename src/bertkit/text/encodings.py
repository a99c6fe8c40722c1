"""Bytes of a text file → its lines: encoding, byte order mark and line ends, each fault named with its place.

In: an open file and the name of its encoding.  Out: numbered lines of text.  Next: readers.py, which asks for them
"""

import codecs
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from encodings.aliases import aliases
from pathlib import Path
from typing import BinaryIO

from bertkit.errors import InputError

LINE_LIMIT = (
    64 * 2**20
)  # bytes; a longer line is no line, and memory must not grow with the corpus (nor with a gz bomb)
PIECE = 2**16  # bytes that are decoded at once where lines cannot be found among the bytes
MAGIC = {  # first bytes of files that are no text, whatever their name says
    b"\x1f\x8b": "gzip-compressed: give it a name that ends in .gz",
    b"\xfd7zXZ": "xz-compressed: give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "zstandard-compressed: give it a name that ends in .zst",
    b"PK\x03\x04": "a zip archive (or an office document): unpack it and give the text inside",
    b"PAR1": "a Parquet file: give it a name that ends in .parquet, or --format parquet",
    b"%PDF": "a PDF: save it as plain text",
}
USUAL = "utf-8, gb18030, big5, utf-16, shift-jis, latin-1 or cp1252"
_UTF8_MARK = b"\xef\xbb\xbf"
_MARKED = {"utf-16": (b"\xff\xfe", b"\xfe\xff"), "utf-32": (b"\xff\xfe\0\0", b"\0\0\xfe\xff")}  # nothing without mark
_NO_FILES = ("idna", "punycode", "undefined")  # Python's names for what is no encoding of files
_STATEFUL = ("iso2022", "hz", "utf-7")  # what a byte means depends on the lines before


def codec_name(encoding: str) -> str:
    """Return Python's own name of a text encoding.

    Raises:
        InputError: there is no such encoding.

    >>> codec_name("UTF8"), codec_name("Latin-1"), codec_name("GB18030")
    ('utf-8', 'iso8859-1', 'gb18030')
    """
    try:
        name = codecs.lookup(encoding).name
        if name not in _NO_FILES:
            "a".encode(name)  # codecs such as base64 are found too, but are not of text
            return "utf-8" if name == "utf-8-sig" else name
    except (LookupError, ValueError):
        pass  # the error is the same as for a name that is found but is no encoding of files
    known = sorted(({*aliases, *aliases.values()} - {*_NO_FILES}), key=lambda name: (len(name), name))
    near = get_close_matches(encoding.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    raise InputError(
        "is no encoding of text",
        field="--encoding",
        value=encoding,
        expected=f"a name that Python knows, such as {USUAL}",
        remedy=f"did you mean {near[0].replace('_', '-')}?" if near else None,
    )


def decoded_lines(stream: BinaryIO, path: Path, *, encoding: str, changed: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of an open file.

    changed: gets a count for everything that was not passed on as it stood.

    Raises:
        InputError: a byte that is not of the encoding, a NUL, a line over 64 MiB, a file cut short, or no text.
    """
    name = codec_name(encoding)
    by_line = not name.startswith(_STATEFUL) and "\n".encode(name) == b"\n"
    lines = _lines_by_bytes if by_line else _lines_by_pieces
    number = 0
    try:
        for text in lines(stream, path, name, changed):
            for part in _without_ends(text, changed):
                number += 1
                yield number, part
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot be read to its end: {error}",
            file=path,
            line=number + 1,
            remedy="the file is cut short or damaged: get it again",
        ) from error
    except _LineFault as fault:
        raise fault.at(path, number + 1) from None


class _LineFault(Exception):
    """What is wrong with the line that comes next, or `lines_on` later; its number is known to who counts."""

    def __init__(
        self, problem: str, *, expected: str, remedy: str, value: str | None = None, lines_on: int = 0
    ) -> None:
        super().__init__(problem)
        self.problem, self.value, self.expected, self.remedy = problem, value, expected, remedy
        self.lines_on = lines_on

    def at(self, path: Path, number: int) -> InputError:
        return InputError(
            self.problem,
            file=path,
            line=number + self.lines_on,
            value=self.value,
            expected=self.expected,
            remedy=self.remedy,
        )


def _lines_by_bytes(stream: BinaryIO, path: Path, name: str, changed: Counter[str]) -> Iterator[str]:
    """The lines of an encoding in which the byte of a line feed is one wherever it stands: UTF-8 and most others."""
    first = True
    while raw := stream.readline(LINE_LIMIT):
        if first:
            raw, first = _without_mark(raw, path, name, changed), False
        if len(raw) >= LINE_LIMIT and not raw.endswith(b"\n"):
            raise _too_long()
        if b"\0" in raw:
            utf16 = raw.count(b"\0") * 3 >= len(raw) > 1  # every other byte of ASCII in UTF-16 is a NUL
            raise _LineFault(
                f"byte {raw.index(0) + 1} of the line is NUL: " + ("likely UTF-16" if utf16 else "a binary file?"),
                expected=f"text in {name.upper()}",
                remedy=_other("UTF-16-LE", path) if utf16 else "give a text file, or remove the NUL bytes",
            )
        try:
            yield raw.decode(name)
        except UnicodeDecodeError as error:
            if name == "utf-8":
                remedy = _utf8_remedy(raw, path)
            else:
                remedy = _foreign_remedy(raw)
            raise _wrong_byte(f"byte {error.start + 1} of the line", raw[error.start], name, remedy) from None


def _lines_by_pieces(stream: BinaryIO, path: Path, name: str, changed: Counter[str]) -> Iterator[str]:
    """The lines of any other encoding (UTF-16, UTF-32, ISO-2022, EBCDIC): first decoded, then cut."""
    decoder = codecs.getincrementaldecoder(name)()
    held: list[str] = []  # the line that has no end yet
    length = offset = 0
    while True:
        raw = stream.read(PIECE)
        state = decoder.getstate()
        before = offset - len(state[0])  # where the bytes stand that are decoded now
        if offset == 0:
            _require_mark(raw, path, name, changed)
        offset += len(raw)
        try:
            text = decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            decoder.setstate(state)
            sound = decoder.decode(raw[: max(0, error.start - len(state[0]))])
            place = f"byte {before + error.start + 1} of the file"
            remedy = "name the encoding of the file: --encoding; or mend or remove this byte"
            wrong = _wrong_byte(place, error.object[error.start], name, remedy)
            wrong.lines_on = "".join([*held, sound]).count("\n")
            raise wrong from None
        if before <= 0 and not held:
            text = _without_mark_of_text(text, path, name, changed)
        *whole, rest = text.split("\n")
        for line in whole:
            yield _without_nul("".join([*held, line, "\n"]))
            held, length = [], 0
        held.append(rest)
        length += len(rest)
        if length > LINE_LIMIT:
            raise _too_long()
        if not raw:
            if length:
                yield _without_nul("".join(held))
            return


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise _LineFault(
            f"character {text.index(chr(0)) + 1} of the line is NUL",
            expected="text",
            remedy="name the encoding of the file: --encoding; or remove the NUL",
        )
    return text


def _without_mark(raw: bytes, path: Path, name: str, changed: Counter[str]) -> bytes:
    """The first line without its byte order mark."""
    _require_text(raw, path)
    if raw.startswith(_MARKED["utf-16"]):
        remedy = _other("UTF-16", path)
        raise InputError(
            "is UTF-16 (it begins with that encoding's mark)", file=path, expected=name.upper(), remedy=remedy
        )
    if raw.startswith(_UTF8_MARK) and name != "utf-8":
        remedy = "leave --encoding out, and read the files in other encodings apart"
        raise InputError(
            "is UTF-8 (it begins with that encoding's mark)", file=path, expected=name.upper(), remedy=remedy
        )
    mark = _UTF8_MARK if name == "utf-8" else b"\x84\x31\x95\x33" if name == "gb18030" else b""
    if mark and raw.startswith(mark):
        changed["byte order mark taken off"] += 1
        return raw[len(mark) :]
    return raw


def _require_text(raw: bytes, path: Path) -> None:
    for magic, meaning in MAGIC.items():
        if raw.startswith(magic):
            raise InputError(f"is no text: it is {meaning.split(':')[0]}", file=path, remedy=meaning.split(": ")[1])


def _require_mark(raw: bytes, path: Path, name: str, changed: Counter[str]) -> None:
    """Refuse what is no text, and UTF-16 that does not say which of two bytes comes first."""
    _require_text(raw, path)
    if name in _MARKED and raw:
        if not raw.startswith(_MARKED[name]):
            raise InputError(
                "has no byte order mark, so that either byte may come first",
                file=path,
                expected=f"{name.upper()} that begins with a mark",
                remedy=f"name the order: --encoding {name}-le (files of Windows) or --encoding {name}-be",
            )
        changed["byte order mark taken off"] += 1  # by the decoder


def _without_mark_of_text(text: str, path: Path, name: str, changed: Counter[str]) -> str:
    if text.startswith("\ufffe"):  # no character; what a byte order mark is in the other order
        raise InputError(
            "begins with the byte order mark of the other order",
            file=path,
            expected=name.upper(),
            remedy="read it with --encoding utf-16, which heeds the mark",
        )
    if text.startswith("\ufeff"):
        changed["byte order mark taken off"] += 1
        return text[1:]
    return text


def _without_ends(text: str, changed: Counter[str]) -> list[str]:
    """The one text of a line that ends in LF or CRLF, or the several that lone CRs make of it."""
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


def _too_long() -> _LineFault:
    return _LineFault(
        f"a line of more than {LINE_LIMIT // 2**20} MiB",
        expected="documents, paragraphs or sentences on lines of their own",
        remedy="break the text into lines",
    )


def _wrong_byte(place: str, byte: int, name: str, remedy: str) -> _LineFault:
    title = name.upper()
    return _LineFault(f"{place} is not {title}", value=f"0x{byte:02X}", expected=f"text in {title}", remedy=remedy)


def _foreign_remedy(raw: bytes) -> str:
    """What to do about a line that is not of the encoding that was named."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "name the encoding of the file: --encoding; or mend or remove this byte"
    return "the line is UTF-8: leave --encoding out"


def _utf8_remedy(raw: bytes, path: Path) -> str:
    """What to do about a line that is not UTF-8: the encoding it is likely in."""
    lenient = raw.decode("utf-8", errors="replace")
    sound = sum(character > "\x7f" and character != "\ufffd" for character in lenient)
    if sound >= lenient.count("\ufffd"):  # GB18030 reads most UTF-8 too, as wrong characters: so this is asked first
        return "the rest of the line is UTF-8: mend or remove this byte"
    if _reads_as_chinese(raw):
        return _other("GB18030", path)
    return "likely Latin-1 or Windows-1252: " + _other("CP1252", path)


def _reads_as_chinese(raw: bytes) -> bool:
    """Whether GB18030 makes Chinese characters and punctuation of all bytes that are not ASCII."""
    try:
        foreign = [character for character in raw.decode("gb18030") if character > "\x7f"]
    except UnicodeDecodeError:
        return False
    return len(foreign) > 1 and all(
        "\u4e00" <= c <= "\u9fff" or c in "，。、；：？！“”‘’《》（）—…·\u3000" for c in foreign
    )


def _other(encoding: str, path: Path) -> str:
    convert = f"iconv -f {encoding} -t UTF-8 {path} > {path.name}.utf8.txt"
    return f"read a corpus with --encoding {encoding.lower()}, or convert the file: {convert}"
