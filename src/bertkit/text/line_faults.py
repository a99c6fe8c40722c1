"""What may be wrong with a line of a text file, and what to do about it: the encoding it is likely in.

In: the bytes of a line, or its text.  Out: its text, or a LineFault, to which who counts lines adds the place.
Next: encodings.py
"""

from pathlib import Path

from bertkit.errors import InputError


class LineFault(Exception):
    """What is wrong with the line that comes next, or `lines_on` later; its number is known to who counts."""

    def __init__(
        self, problem: str, *, expected: str, remedy: str, value: str | None = None, lines_on: int = 0
    ) -> None:
        super().__init__(problem)
        self.problem, self.value, self.expected, self.remedy = problem, value, expected, remedy
        self.lines_on = lines_on

    def at(self, path: Path, number: int) -> InputError:
        """Return the problem of the file at `path`, of which line `number` comes next."""
        return InputError(
            self.problem,
            file=path,
            line=number + self.lines_on,
            value=self.value,
            expected=self.expected,
            remedy=self.remedy,
        )


def checked_line(raw: bytes, path: Path, name: str) -> str:
    """Return the text of a line in the encoding `name`.

    Raises:
        LineFault: the line has a NUL in it, or is not of the encoding.
    """
    if b"\0" in raw:
        utf16 = raw.count(b"\0") * 3 >= len(raw) > 1  # every other byte of ASCII in UTF-16 is a NUL
        raise LineFault(
            f"byte {raw.index(0) + 1} of the line is NUL: " + ("likely UTF-16" if utf16 else "a binary file?"),
            expected=f"text in {name.upper()}",
            remedy=other_encoding("UTF-16-LE", path) if utf16 else "give a text file, or remove the NUL bytes",
        )
    try:
        return raw.decode(name)
    except UnicodeDecodeError as error:
        remedy = _utf8_remedy(raw, path) if name == "utf-8" else _foreign_remedy(raw)
        raise wrong_byte(f"byte {error.start + 1} of the line", raw[error.start], name, remedy) from None


def without_nul(text: str) -> str:
    """Return the text of a line that was decoded among others.

    Raises:
        LineFault: the line has a NUL in it.
    """
    if "\0" in text:
        raise LineFault(
            f"character {text.index(chr(0)) + 1} of the line is NUL",
            expected="text",
            remedy="name the encoding of the file: --encoding; or remove the NUL",
        )
    return text


def too_long(limit: int) -> LineFault:
    """Return the fault of a line of more than `limit` bytes."""
    return LineFault(
        f"a line of more than {limit // 2**20} MiB",
        expected="documents, paragraphs or sentences on lines of their own",
        remedy="break the text into lines",
    )


def wrong_byte(place: str, byte: int, name: str, remedy: str) -> LineFault:
    """Return the fault of a byte that is not of the encoding `name`."""
    title = name.upper()
    return LineFault(f"{place} is not {title}", value=f"0x{byte:02X}", expected=f"text in {title}", remedy=remedy)


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
        return other_encoding("GB18030", path)
    return "likely Latin-1 or Windows-1252: " + other_encoding("CP1252", path)


def _reads_as_chinese(raw: bytes) -> bool:
    """Whether GB18030 makes Chinese characters and punctuation of all bytes that are not ASCII."""
    try:
        foreign = [character for character in raw.decode("gb18030") if character > "\x7f"]
    except UnicodeDecodeError:
        return False
    return len(foreign) > 1 and all(
        "\u4e00" <= c <= "\u9fff" or c in "，。、；：？！“”‘’《》（）—…·\u3000" for c in foreign
    )


def other_encoding(encoding: str, path: Path) -> str:
    """Return what to do about a file that is in another encoding."""
    convert = f"iconv -f {encoding} -t UTF-8 {path} > {path.name}.utf8.txt"
    return f"read a corpus with --encoding {encoding.lower()}, or convert the file: {convert}"
