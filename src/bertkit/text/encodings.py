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
from io import BufferedIOBase, BytesIO
from pathlib import Path

from bertkit.errors import InputError
from bertkit.text.line_faults import LineFault, checked_line, other_encoding, too_long, without_nul, wrong_byte

LINE_LIMIT = (
    64 * 2**20
)  # bytes; a longer line is no line, and memory must not grow with the corpus (nor with a gz bomb)
BLOCK = 2**16  # bytes that are read, decoded and cut into lines at once; 2**20 was slower, its memory always new
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


def decoded_lines(
    stream: BufferedIOBase, path: Path, *, encoding: str, changed: Counter[str]
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of an open file.

    changed: gets a count for everything that was not passed on as it stood.

    Raises:
        InputError: a byte that is not of the encoding, a NUL, a line over 64 MiB, a file cut short, or no text.
    """
    name = codec_name(encoding)
    by_line = not name.startswith(_STATEFUL) and "\n".encode(name) == b"\n"
    texts = _by_blocks if by_line else _by_pieces
    number = 0
    try:
        for text in texts(stream, path, name, changed):
            for line in _without_ends(text, changed):
                number += 1
                yield number, line
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot be read to its end: {error}",
            file=path,
            line=number + 1,
            remedy="the file is cut short or damaged: get it again",
        ) from error
    except LineFault as fault:
        raise fault.at(path, number + 1) from None


def _by_blocks(stream: BufferedIOBase, path: Path, name: str, changed: Counter[str]) -> Iterator[str]:
    """Many lines at once, in an encoding in which the byte of a line feed is one wherever it stands, as in most."""
    first = True
    for block in _blocks(stream):
        if first:
            block, first = _without_mark(block, path, name, changed), False
        text = None if b"\0" in block or len(block) >= LINE_LIMIT else _decoded(block, name)
        if text is None:
            yield from _up_to_the_fault(block, path, name)
        else:
            yield text


def _up_to_the_fault(block: bytes, path: Path, name: str) -> Iterator[str]:
    """The lines of a block one by one, up to the one that something is wrong with."""
    for line in BytesIO(block):
        if len(line.removesuffix(b"\n")) >= LINE_LIMIT:
            raise too_long(LINE_LIMIT)
        yield checked_line(line, path, name)


def _decoded(block: bytes, name: str) -> str | None:
    try:
        return block.decode(name)
    except UnicodeDecodeError:
        return None


def _blocks(stream: BufferedIOBase) -> Iterator[bytes]:
    """The bytes of a file cut behind line feeds; a block is longer than BLOCK only where a line is."""
    held: list[bytes] = []  # of the line that has no end yet
    length = 0
    while piece := stream.read1(BLOCK):  # (not `read`: it loses what precedes a damage)
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*held, piece[:end]])
            held, length = [], 0
        held.append(piece[end:])
        length += len(piece) - end
        if length >= LINE_LIMIT:
            break
    if length:
        yield b"".join(held)


def _by_pieces(stream: BufferedIOBase, path: Path, name: str, changed: Counter[str]) -> Iterator[str]:
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
            wrong = wrong_byte(place, error.object[error.start], name, remedy)
            wrong.lines_on = "".join([*held, sound]).count("\n")
            raise wrong from None
        if before <= 0 and not held:
            text = _without_mark_of_text(text, path, name, changed)
        *whole, rest = text.split("\n")
        for line in whole:
            yield without_nul("".join([*held, line, "\n"]))
            held, length = [], 0
        held.append(rest)
        length += len(rest)
        if length > LINE_LIMIT:
            raise too_long(LINE_LIMIT)
        if not raw:
            if length:
                yield without_nul("".join(held))
            return


def _without_mark(raw: bytes, path: Path, name: str, changed: Counter[str]) -> bytes:
    """The first line without its byte order mark."""
    _require_text(raw, path)
    if raw.startswith(_MARKED["utf-16"]):
        remedy = other_encoding("UTF-16", path)
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
    """The lines of a text that stops behind one; LF, CRLF or a lone CR end a line, a CR before CRLF no other one."""
    if "\r" not in text:
        return text.removesuffix("\n").split("\n")
    stop = "\n" if text.endswith("\n") else "\r"
    unix = text.replace("\r\n", "\n")
    if len(unix) < len(text):
        changed["CRLF line end made LF"] += len(text) - len(unix)
    if "\r" in unix:
        changed["lone CR taken as a line end"] += unix.count("\r")
    return unix.replace("\r\n", "\n").removesuffix(stop).replace("\r", "\n").split("\n")
