"""Documents → cleaner documents: what is changed or dropped is asked for, counted, and on demand written down.

In: an iterator of Documents.  Out: those that stay, a CleaningReport, and the others in rejects.jsonl with a reason.
(Which texts have come before: duplicates.py; the file of rejects: rejects.py)  Next: sentences.py
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertkit.errors import InputError
from bertkit.options import option
from bertkit.text.documents import Document, UnitCount
from bertkit.text.duplicates import SeenHashes, hashes_of, near_finder
from bertkit.text.rejects import RejectWriter

DOCUMENTS_AT_ONCE = 2**14  # looked up together among the earlier ones
CHARACTERS_AT_ONCE = 2**23  # that many in memory at most; the result depends on neither
_KEPT_FULL_WIDTH = "！（），：；？～"  # punctuation of Chinese: half-width it would be of another language
_HALF_WIDTH = {full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F) if chr(full) not in _KEPT_FULL_WIDTH}
_LINE_ENDS = re.compile("[\v\f\x1c-\x1e\x85]")  # controls that end a line for the sentence splitter
# Zero-width joiners (U+200C, U+200D) spell words and emoji, so they are none of these.
_CONTROLS = re.compile(
    "[\0-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)

Step = tuple[str, Callable[[str], str]]  # what it does, and does it


@dataclass(frozen=True)
class CleaningSettings:
    """What is changed and dropped, in the order of the fields; nothing by default."""

    fix_mojibake: bool = option(False, help="mend text decoded from a wrong encoding, â€œ for “ (needs ftfy)")
    remove_control_characters: bool = option(
        False, help="take off control and invisible characters: U+200B, U+00AD, marks of direction"
    )
    normalize: Literal["none", "nfkc"] = option(
        "none", help="Unicode normal form; nfkc makes ，！？：；（） half-width too, and ① 1"
    )
    full_width_to_half_width: bool = option(
        False, help="full-width letters, digits and signs to ASCII; ，！？：；（）～ and 。、 stay"
    )
    traditional_to_simplified: bool = option(False, help="traditional Chinese to simplified (needs opencc)")
    min_characters: int | None = option(None, help="drop documents of fewer characters (none: keep them)")
    max_characters: int | None = option(None, help="drop documents of more characters (none: keep them)")
    drop_duplicates: Literal["none", "documents", "lines", "near"] = option(
        "none", help="drop what came before: whole documents, lines anywhere, or nearly the same documents (datasketch)"
    )
    near_duplicate_threshold: float = option(
        0.8, help="share of runs of five characters from which documents are nearly the same, above 0 and up to 1"
    )
    rejects_file: Path | None = option(
        None, help="write what was dropped to this JSONL, id, text and reason (none: do not)"
    )

    def __post_init__(self) -> None:
        if not 0 < self.near_duplicate_threshold <= 1:
            _refuse("near_duplicate_threshold", self.near_duplicate_threshold, "above 0 and at most 1")
        for name, value in (("min_characters", self.min_characters), ("max_characters", self.max_characters)):
            if value is not None and value < 1:
                _refuse(name, value, "at least 1")
        if self.min_characters is not None and self.min_characters > (self.max_characters or self.min_characters):
            _refuse("min_characters", self.min_characters, f"at most --max_characters, {self.max_characters}")

    @property
    def active(self) -> bool:
        """Whether anything would be changed or dropped."""
        changes = self.fix_mojibake or self.remove_control_characters or self.full_width_to_half_width
        changes = changes or self.traditional_to_simplified or self.normalize != "none"
        return changes or self.drop_duplicates != "none" or (self.min_characters, self.max_characters) != (None, None)


def _refuse(name: str, value: object, expected: str) -> None:
    raise InputError("is out of range", field=f"--{name}", value=value, expected=expected)


@dataclass
class CleaningReport:
    """What became of every document, and of every line where lines are dropped; `read == kept + sum(dropped)`."""

    documents: UnitCount = field(default_factory=UnitCount)
    lines: UnitCount = field(default_factory=UnitCount)
    changed: Counter[str] = field(default_factory=Counter)  # documents, by what was done to them
    empty_sentences: int = 0  # given as boundaries by the file, and nothing after cleaning

    def rows(self) -> list[tuple[str, int]]:
        """Return what was read, kept, dropped and changed as rows of a table."""
        rows = self.documents.rows("documents")
        rows += self.lines.rows("lines of documents") if self.lines.read else []
        rows += [("sentences dropped: empty after cleaning", self.empty_sentences)] if self.empty_sentences else []
        return [*rows, *((f"documents changed: {what}", count) for what, count in self.changed.items())]


def clean_documents(
    documents: Iterable[Document], settings: CleaningSettings, report: CleaningReport, *, rejects: RejectWriter | None
) -> Iterator[Document]:
    """Return the documents that stay, cleaned, in their order, and count in `report` what becomes of every one.

    The order of the steps is that of the settings.  Where a document brings its sentences, each is cleaned for itself.
    Of duplicates the first stays; they are compared after cleaning.  Rejects hold a document as it was read.

    Raises:
        InputError: a package is missing, at the call; what reading the documents raises.
    """
    desk = _Desk(report, rejects)
    cleaned = _cleaned(documents, _steps(settings), settings, desk)
    match settings.drop_duplicates:
        case "none":
            return _all(cleaned, desk)
        case "documents":
            return _without_duplicates(cleaned, desk)
        case "lines":
            return _without_duplicate_lines(cleaned, desk)
        case "near":
            return _without_near(cleaned, near_finder(settings.near_duplicate_threshold), desk)


@dataclass(frozen=True)
class _Desk:
    """Where every document is counted once."""

    report: CleaningReport
    rejects: RejectWriter | None

    def keep(self, document: Document) -> Document:
        self.report.documents.read += 1
        self.report.documents.kept += 1
        return document

    def drop(self, document: Document, reason: str, *, because: str = "") -> None:
        self.report.documents.read += 1
        self.report.documents.dropped[reason] += 1
        if self.rejects is not None:
            self.rejects.write(document.id, document.text, reason + because)


def _steps(settings: CleaningSettings) -> list[Step]:
    """What is done to every text, in order."""
    steps: list[Step] = []
    if settings.fix_mojibake:  # first: what is mojibake holds controls, and must not be normalized before it is mended
        steps.append(("mojibake mended", _mojibake_mender()))
    if settings.remove_control_characters:
        steps.append(("control characters taken off", remove_control_characters))
    if settings.normalize == "nfkc":
        steps.append(("normalized (NFKC)", lambda text: unicodedata.normalize("NFKC", text)))
    if settings.full_width_to_half_width:
        steps.append(("full-width made half-width", to_half_width))
    if settings.traditional_to_simplified:
        steps.append(("traditional made simplified", _simplifier()))
    return steps


def remove_control_characters(text: str) -> str:
    r"""Return the text without control and invisible characters; tab, LF, CR stay, other line ends become LF.

    >>> remove_control_characters("明\u200b月\0几时有\f把酒")
    '明月几时有\n把酒'
    """
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))


def to_half_width(text: str) -> str:
    """Return the text with full-width letters, digits and signs as ASCII; Chinese punctuation stays.

    >>> to_half_width("ＢＥＲＴ有１２层，准确率９８．５％！")
    'BERT有12层，准确率98.5%！'
    """
    return text.translate(_HALF_WIDTH)


def _mojibake_mender() -> Callable[[str], str]:
    try:
        from ftfy import fix_encoding
    except ImportError as error:
        raise _missing("ftfy", "--fix_mojibake") from error
    return lambda text: "\n".join(fix_encoding(line) for line in text.split("\n"))  # a line may be sound or not


def _simplifier() -> Callable[[str], str]:
    try:
        from opencc import OpenCC
    except ImportError as error:
        raise _missing("opencc", "--traditional_to_simplified") from error
    converter = OpenCC("t2s")
    return lambda text: str(converter.convert(text))


def _missing(package: str, flag: str) -> InputError:
    return InputError(f"needs the package {package}", field=flag, remedy='pip install "bertkit[clean]"')


def _cleaned(
    documents: Iterable[Document], steps: list[Step], settings: CleaningSettings, desk: _Desk
) -> Iterator[tuple[Document, Document]]:
    """(the document as it was read, and cleaned) of those that are not empty, too short or too long."""
    shortest, longest = settings.min_characters, settings.max_characters
    for original in documents:
        document = _clean(original, steps, desk.report) if steps else original
        length = len(document.text)
        if not document.text:
            desk.drop(original, "empty after cleaning")
        elif shortest is not None and length < shortest:
            desk.drop(original, f"fewer than {shortest} characters")
        elif longest is not None and length > longest:
            desk.drop(original, f"more than {longest} characters")
        else:
            yield original, document


def _clean(document: Document, steps: list[Step], report: CleaningReport) -> Document:
    parts = [document.text] if document.sentences is None else list(document.sentences)
    before = parts
    for what, step in steps:
        after = [step(part) for part in before]
        report.changed[what] += after != before
        before = after
    if before == parts:
        return document
    kept = [part for part in map(str.strip, before) if part]
    if document.sentences is None:
        return Document(document.id, kept[0] if kept else "")
    report.empty_sentences += len(parts) - len(kept)
    return Document(document.id, "\n".join(kept), tuple(kept))


def _all(cleaned: Iterable[tuple[Document, Document]], desk: _Desk) -> Iterator[Document]:
    for _, document in cleaned:
        yield desk.keep(document)


def _batches(cleaned: Iterable[tuple[Document, Document]]) -> Iterator[list[tuple[Document, Document]]]:
    batch: list[tuple[Document, Document]] = []
    characters = 0
    for pair in cleaned:
        batch.append(pair)
        characters += len(pair[1].text)
        if len(batch) >= DOCUMENTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _without_duplicates(cleaned: Iterable[tuple[Document, Document]], desk: _Desk) -> Iterator[Document]:
    seen = SeenHashes()
    try:
        for batch in _batches(cleaned):
            first = seen.first_times(hashes_of(document.text for _, document in batch))
            for (original, document), is_first in zip(batch, first.tolist(), strict=True):
                if is_first:
                    yield desk.keep(document)
                else:
                    desk.drop(original, "duplicate document")
    finally:
        seen.close()


def _without_duplicate_lines(cleaned: Iterable[tuple[Document, Document]], desk: _Desk) -> Iterator[Document]:
    """A line is a sentence where the file gives them; blank lines inside a text are no lines."""
    seen = SeenHashes()
    try:
        for batch in _batches(cleaned):
            lines = [document.sentences or document.text.split("\n") for _, document in batch]
            texts = [line.strip() for group in lines for line in group if line.strip()]
            first = iter(seen.first_times(hashes_of(texts)).tolist())
            for (original, document), group in zip(batch, lines, strict=True):
                kept = [line for line in group if not line.strip() or _line_stays(line, next(first), document, desk)]
                if not any(line.strip() for line in kept):
                    desk.drop(original, "only duplicate lines")
                elif len(kept) == len(group):
                    yield desk.keep(document)
                else:
                    desk.report.changed["duplicate lines dropped"] += 1
                    text = "\n".join(kept).strip()
                    yield desk.keep(Document(document.id, text, tuple(kept) if document.sentences else None))
    finally:
        seen.close()


def _line_stays(line: str, is_first: bool, document: Document, desk: _Desk) -> bool:
    lines = desk.report.lines
    lines.read += 1
    if is_first:
        lines.kept += 1
        return True
    lines.dropped["duplicate line"] += 1
    if desk.rejects is not None:
        desk.rejects.write(document.id, line, "duplicate line")
    return False


def _without_near(
    cleaned: Iterable[tuple[Document, Document]], earlier: Callable[[str], int | None], desk: _Desk
) -> Iterator[Document]:
    kept: list[str] = []  # ids, as the finder numbers the texts
    for original, document in cleaned:
        number = earlier(document.text)
        if number is None:
            kept.append(document.id)
            yield desk.keep(document)
        else:
            desk.drop(original, "near duplicate document", because=f" of {kept[number]}")
