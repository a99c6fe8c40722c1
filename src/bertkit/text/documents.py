"""Raw text → documents, every line and record accounted for.

In: `--input_file` and `--format`.  Out: an iterator of Documents and a ReadingReport.  Next: sentences.py
(A file's compression, line ends and encoding: readers.py; JSON and the user's functions: records.py; csv, tsv and
Parquet: tables.py)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from bertkit.console import say
from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors
from bertkit.options import option
from bertkit.text.encodings import codec_name
from bertkit.text.parts import part_of
from bertkit.text.readers import Source, find_sources, guess_text_format, read_lines
from bertkit.text.records import (
    BLANK,
    Document,
    Item,
    join_lines,
    jsonl_documents,
    load_function,
    own_documents,
    poetry_documents,
)
from bertkit.text.tables import csv_documents, parquet_documents, tsv_documents

__all__ = ["CorpusSettings", "Document", "ReadingReport", "UnitCount", "part_of", "read_documents"]

EMPTY, IN_ERROR = "empty text", "in error"  # reasons, beside BLANK, why a line or record is not kept
BY_ENDING = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "chinese-poetry",
    "csv": "csv",
    "tsv": "tsv",
    "tab": "tsv",
    "parquet": "parquet",
}


@dataclass(frozen=True)
class CorpusSettings:
    """Where the raw text stands and how it is read."""

    input_file: str | None = option(
        None, help="raw text: paths, comma separated; globs; folders; also compressed as .gz, .xz or .zst"
    )
    format: str = option(
        "auto",
        help="auto, lines, sentences, paragraphs, jsonl, csv, tsv, parquet, wikitext, chinese-poetry, or "
        "package.module:function, a function from a path to an iterator of Documents, texts or lists of sentences",
    )
    encoding: str = option("utf-8", help="encoding of the text files, as Python names it: gb18030, utf-16, latin-1, …")
    text_column: str | None = option(
        None, help="field or column of the text, in csv and tsv also its number (none: text, else the first with text)"
    )
    column_names: str | None = option(None, help="names of the columns of a csv or tsv without header, comma separated")
    wikitext_unit: Literal["document", "line"] = option("document", help="what a document of wikitext is")
    sentence_end: str | None = option(None, help="characters that end a sentence (none: by the rules of the language)")
    language: str | None = option(
        None, help="language whose rules split sentences, by its code: de, ja, hi, … (none: Chinese and English)"
    )


@dataclass
class UnitCount:
    """How many lines or records were read; `read == kept + sum(dropped)` after every one of them."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def rows(self, unit: str) -> list[tuple[str, int]]:
        """Return the counts as rows of a table."""
        dropped = [(f"{unit} dropped: {reason}", count) for reason, count in self.dropped.items()]
        return [(f"{unit} read", self.read), (f"{unit} kept", self.kept), *dropped]


@dataclass
class ReadingReport:
    """What became of every line (text formats) and record (jsonl, tables, chinese-poetry, a user's function).

    A blank line is dropped with the reason "blank line", also where it ends a document.
    """

    lines: UnitCount = field(default_factory=UnitCount)
    records: UnitCount = field(default_factory=UnitCount)
    documents: int = 0
    changed: Counter[str] = field(default_factory=Counter)  # what was passed on otherwise than it stood in the file
    problems: list[InputError] = field(default_factory=list)  # the first 20
    num_problems: int = 0

    def add_problem(self, problem: InputError) -> None:
        """Note a problem, to be raised with all others at the end of the reading."""
        self.num_problems += 1
        if len(self.problems) < SHOWN_PROBLEMS:  # a file of another kind has one in every line: memory stays bounded
            self.problems.append(problem)

    def rows(self) -> list[tuple[str, int]]:
        """Return what was read, kept, dropped and changed as rows of a table."""
        rows = [*self.lines.rows("lines")] if self.lines.read else []
        rows += self.records.rows("records") if self.records.read else []
        return [*rows, ("documents", self.documents), *((f"changed: {what}", n) for what, n in self.changed.items())]


Reader = Callable[[Source, CorpusSettings, ReadingReport], Iterator[Document]]


def read_documents(settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """Return the documents of all files, one at a time, and count in `report` what becomes of every line and record.

    Paths and formats are checked at the call; a guessed format is said.  Problems inside the files are collected
    and raised together when the last file has been read.

    Raises:
        InputError: no text, an unknown format or encoding; a file that cannot be read, is no text of the encoding or
            has no document in it; a record that is broken or has no text.
    """
    codec_name(settings.encoding)  # asked before any file is
    plan: list[tuple[Source, Reader]] = []
    guesses: dict[tuple[str, str], list[str]] = {}
    for source in find_sources(settings.input_file, encoding=settings.encoding):
        name = settings.format
        try:
            if name == "auto":
                name, reason = _guess_format(source)
                guesses.setdefault((name, reason), []).append(source.name)
            plan.append((source, _reader(name)))
        except InputError as problem:
            report.add_problem(problem)
    if report.num_problems:
        raise InputErrors(report.problems, total=report.num_problems)
    for (name, reason), files in guesses.items():
        shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        say(f"{shown}: read as {name} ({reason}); --format {'|'.join(FORMATS)} says otherwise")
    return _documents_of(plan, settings, report)


def _documents_of(
    plan: list[tuple[Source, Reader]], settings: CorpusSettings, report: ReadingReport
) -> Iterator[Document]:
    """The documents of all files, and after them the problems."""
    for source, reader in plan:
        before = report.documents, report.num_problems
        try:
            for document in reader(source, settings, report):
                report.documents += 1
                yield document
        except InputError as problem:
            report.add_problem(problem)
        if (report.documents, report.num_problems) == before:
            report.add_problem(
                InputError(
                    "holds no document: only blank lines or empty texts, or a header alone",
                    file=source.path,
                    remedy="remove it",
                )
            )
    if report.num_problems:
        raise InputErrors(report.problems, total=report.num_problems)


def _guess_format(source: Source) -> tuple[str, str]:
    """The format of a file by its name, or by its first lines, and the reason."""
    name = source.plain_name
    ending = name.rpartition(".")[2]
    if ending in BY_ENDING:
        return BY_ENDING[ending], f"by its name, .{ending}"
    if "wikitext" in name or (name.startswith("wiki") and ending == "tokens"):
        return "wikitext", "by its name"
    return guess_text_format(source)


def _reader(name: str) -> Reader:
    """The function that reads this format."""
    if name in FORMATS:
        return FORMATS[name]
    if ":" not in name:
        expected = f"one of {', '.join(FORMATS)}, or package.module:function"
        near = get_close_matches(name, FORMATS, n=1, cutoff=0.6)
        remedy = f"did you mean {near[0]}?" if near else None
        raise InputError("is no format", field="--format", value=name, expected=expected, remedy=remedy)
    function = load_function(name)
    return lambda source, settings, report: _counted(
        own_documents(function, name, source, changed=report.changed), report
    )


def _stripped(text: str, report: ReadingReport) -> str:
    """The text without white space around it, which no later room uses; so that its part does not depend on it."""
    stripped = text.strip()
    if stripped and len(stripped) < len(text):
        report.changed["white space around a text taken off"] += 1
    return stripped


def _text_lines(source: Source, report: ReadingReport) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line; "" for a blank one."""
    for number, line in read_lines(source, changed=report.changed):
        text = _stripped(line, report)
        report.lines.read += 1
        if text:
            report.lines.kept += 1
        else:
            report.lines.dropped[BLANK] += 1
        yield number, text


def _lines(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """Every line is a document."""
    for number, text in _text_lines(source, report):
        if text:
            yield Document(f"{source.name}:{number}", text)


def _blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of every run of lines that are not ""."""
    first, block = 0, list[str]()
    for number, text in numbered:
        if text:
            first = first if block else number
            block.append(text)
        elif block:
            yield first, block
            block = []
    if block:
        yield first, block


def _sentences(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A line is a sentence, a blank line ends a document (Google's format)."""
    for first, block in _blocks(_text_lines(source, report)):
        yield Document(f"{source.name}:{first}", "\n".join(block), tuple(block))


def _paragraphs(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A blank line ends a document, whose lines are joined: a sentence may run over several."""
    for first, block in _blocks(_text_lines(source, report)):
        yield Document(f"{source.name}:{first}", join_lines(block))


def _wikitext(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """` = Headings = ` end a document, or every line is one; the marks ` @-@ `, ` @.@ `, ` @,@ ` are undone."""

    def numbered() -> Iterator[tuple[int, str]]:
        for number, text in _text_lines(source, report):
            if text and text[0] == text[-1] == "=" and text.strip("= "):
                report.lines.kept -= 1
                report.lines.dropped["heading"] += 1
                yield number, ""
            elif text:  # a blank line stands between any two paragraphs and ends nothing
                yield number, _unmarked(text, report.changed)

    if settings.wikitext_unit == "line":
        yield from (Document(f"{source.name}:{number}", text) for number, text in numbered() if text)
    else:
        yield from (Document(f"{source.name}:{first}", join_lines(block)) for first, block in _blocks(numbered()))


def _unmarked(text: str, changed: Counter[str]) -> str:
    """The line with WikiText's marks undone; `<unk>` becomes the literal [UNK], which the tokenizer knows."""
    for mark, meaning in ((" @-@ ", "-"), (" @.@ ", "."), (" @,@ ", ","), ("<unk>", "[UNK]")):
        if mark in text:
            changed[f"{mark.strip()} made {meaning}"] += text.count(mark)
            text = text.replace(mark, meaning)
    return text


def _jsonl(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A line is a JSON object."""
    return _counted(jsonl_documents(source, text_column=settings.text_column, changed=report.changed), report)


def _chinese_poetry(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A file is a JSON array of poems."""
    return _counted(poetry_documents(source, changed=report.changed), report)


def _csv(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A row is a document; the first row names the columns."""
    column, names = settings.text_column, settings.column_names
    return _counted(csv_documents(source, text_column=column, column_names=names, changed=report.changed), report)


def _tsv(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A line is a document; the first line names the columns."""
    column, names = settings.text_column, settings.column_names
    return _counted(tsv_documents(source, text_column=column, column_names=names, changed=report.changed), report)


def _parquet(source: Source, settings: CorpusSettings, report: ReadingReport) -> Iterator[Document]:
    """A row is a document."""
    return _counted(parquet_documents(source, text_column=settings.text_column), report)


def _counted(items: Iterable[Item], report: ReadingReport) -> Iterator[Document]:
    """The documents among the items; everything else is counted, and problems are noted."""
    counts = report.records
    for item in items:
        counts.read += 1
        if isinstance(item, str):
            counts.dropped[item] += 1
        elif isinstance(item, InputError):
            counts.dropped[IN_ERROR] += 1
            report.add_problem(item)
        elif text := _stripped(item.text, report):
            counts.kept += 1
            yield Document(item.id, text, item.sentences)
        else:
            counts.dropped[EMPTY] += 1


FORMATS: dict[str, Reader] = {
    "lines": _lines,
    "sentences": _sentences,
    "paragraphs": _paragraphs,
    "jsonl": _jsonl,
    "csv": _csv,
    "tsv": _tsv,
    "parquet": _parquet,
    "wikitext": _wikitext,
    "chinese-poetry": _chinese_poetry,
}
