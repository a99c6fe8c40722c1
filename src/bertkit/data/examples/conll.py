"""CoNLL's columns → sentences of tagged words: by space or tab, comments, -DOCSTART-, any number of columns.

In: a Source.  Out: TaggedExamples with the tags as they stand.  Next: tagging.py, which looks at all splits
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bertkit.data.examples.columns import LABELS, TEXTS, first_of, known_columns
from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.words import joined_words, places_of, words_of
from bertkit.data.tags import OUTSIDE, split_tag
from bertkit.errors import InputError
from bertkit.text.readers import Source, read_lines
from bertkit.text.records import checked_text
from bertkit.text.tables import column_place

DOCUMENT_START = "-DOCSTART-"
LONGEST_CHINESE_WORD = 12  # characters
LONGEST_MEAN = 2.5  # words (Chinese characters) that stand alone on the lines of a file of words, on average
FEWEST_LETTERS = 4  # rows of a column of bare letters (B, I, E, S …) from which they are tags
_COMMENT = re.compile(r"#\s*(newdoc|newpar|[\w.]+(\s\w+)?\s*=)")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # CoNLL-U: the id of several words written as one, or of a word left out


@dataclass
class _Sentence:
    """The lines of one sentence so far."""

    lines: list[int] = field(default_factory=list)
    fields: list[list[str]] = field(default_factory=list)
    text: str | None = None  # of a comment `# text = …`


@dataclass(frozen=True)
class _Columns:
    word: int
    tag: int | None
    width: int


def holds_plain_text(source: Source) -> bool:
    """Return whether the lines are texts, not words with columns; asked where no tags are needed.

    Columns: most lines have as many as the first, and behind the word stand tags such as B-PER, or bare letters of a
    scheme and nothing else, or in the last column classes in capitals that repeat. So "I live in Paris" is a text.
    """
    lines = [line for _, line in read_lines(source, changed=Counter()) if line.strip() and not _COMMENT.match(line)]
    if not lines or any("\t" in line or line.startswith(DOCUMENT_START) for line in lines):
        return False
    rows = [_by_space(line) for line in lines]
    width = len(rows[0])
    whole = [row for row in rows if len(row) == width]
    if 2 * len(whole) <= len(rows):
        return True
    if width == 1:
        return sum(len(words_of(row[0])) for row in whole) > LONGEST_MEAN * len(whole)
    columns = list(zip(*whole, strict=True))[1:]
    return not (any(map(_is_tag_column, columns)) or _holds_classes(columns[-1]))


def conll_examples(
    source: Source, settings: ReadingSettings, report: ExampleReport, *, labelled: bool
) -> list[TaggedExample]:
    """Return the sentences of a file, tags as they stand; broken ones go into the report.

    The tag is in the last column that holds tags, else in the last; the word in the first, or the second behind ids.

    Raises:
        InputError: the file cannot be read to its end, has no sentence, or no column of tags.
    """
    lines = list(read_lines(source, changed=report.changed))
    first = next((line for _, line in lines if line.strip() and not line.startswith("#")), "")
    tabbed = "\t" in first
    numbered = tabbed and _are_numbered(lines)
    sentences, documents = _sentences(lines, report, tabbed=tabbed, numbered=numbered)
    if not sentences:
        raise InputError("holds no sentence", file=source.path, remedy="give a file with a word and its tag on a line")
    columns = _columns(sentences, source, settings, labelled=labelled, numbered=numbered)
    if tabbed:
        _refuse_texts(sentences, columns, source)
    names = f"word = column {columns.word + 1}"
    names += f", tag = column {columns.tag + 1}" if columns.tag is not None else ", no tags"
    if not labelled:
        names += "; where each line is a text: --column_names text"
    report.note(f"{source.name}: CoNLL, {columns.width} columns by {'tab' if tabbed else 'space'}; {names}")
    examples = []
    for sentence, document in zip(sentences, documents, strict=True):
        try:
            examples.append(_example(sentence, document, columns, source))
        except InputError as problem:
            report.add_problem(problem)
        else:
            report.keep()
    return examples


def _sentences(
    lines: list[tuple[int, str]], report: ExampleReport, *, tabbed: bool, numbered: bool
) -> tuple[list[_Sentence], list[int]]:
    """The sentences, and the number of the document of each; what is no word is counted."""
    sentences: list[_Sentence] = []
    documents: list[int] = []
    current, document = _Sentence(), 0

    def close() -> None:
        nonlocal current
        if current.fields:
            sentences.append(current)
            documents.append(document)
        current = _Sentence()

    for number, line in lines:
        if not line.strip():
            close()
            continue
        if line.startswith("#") and (("\t" not in line) if tabbed else _COMMENT.match(line)):
            report.drop("comment line")
            if line[1:].strip().startswith("newdoc"):
                close()
                document += 1
            elif line[1:].lstrip().startswith("text ="):
                current.text = line.split("=", 1)[1].strip()
            continue
        fields = line.split("\t") if tabbed else _by_space(line)
        if fields[0] == DOCUMENT_START:
            report.drop(f"{DOCUMENT_START} line")
            close()
            document += 1
            continue
        if numbered and _NOT_A_WORD.fullmatch(fields[0]):
            report.drop("CoNLL-U line that is no word")
            continue
        current.lines.append(number)
        current.fields.append(fields)
    close()
    return sentences, documents


def _are_numbered(lines: list[tuple[int, str]]) -> bool:
    """Whether the first column counts the words of a sentence, as in CoNLL-U."""
    rows = [line.split("\t") for _, line in lines[:1000] if line.strip() and not line.startswith("#")]
    ids = [row[0] for row in rows if not _NOT_A_WORD.fullmatch(row[0])]
    return len(rows) > 1 and len(rows[0]) > 2 and ids[:1] == ["1"] and all(id.isdigit() for id in ids)


def _by_space(line: str) -> list[str]:
    """The fields between spaces; a line that begins with one has a blank for a word."""
    fields = re.split("[ \t]+", line.strip(" \t"))
    return [" ", *fields] if line[0] in " \t" else fields


def _columns(
    sentences: list[_Sentence], source: Source, settings: ReadingSettings, *, labelled: bool, numbered: bool
) -> _Columns:
    rows = [fields for sentence in sentences for fields in sentence.fields]
    width = len(rows[0])
    whole = [row for row in rows if len(row) == width]
    names = settings.names() or [str(place) for place in range(1, width + 1)]
    word = 1 if numbered else 0
    if settings.text_column is not None:
        word = column_place(names, settings.text_column, source, None, flag="--text_column")
    wanted = settings.tag_column or settings.label_column
    tag: int | None = None
    if not labelled:
        pass
    elif wanted is not None:
        tag = column_place(names, wanted, source, None, flag="--tag_column")
    else:
        holding = [place for place in range(width) if place != word and _holds_tags([row[place] for row in whole])]
        tag = holding[-1] if holding else width - 1 if width > 1 else None
    if (tag is None and labelled) or tag == word:
        raise InputError(
            "has one column" if width == 1 else f"word and tag are both in column {word + 1}",
            file=source.path,
            line=sentences[0].lines[0],
            value=rows[0],
            expected="a word and its tag on a line, with a tab or a space between",
            remedy="mend the file; or name columns by number: --text_column 1 --tag_column 2",
        )
    return _Columns(word, tag, width)


def _refuse_texts(sentences: list[_Sentence], columns: _Columns, source: Source) -> None:
    """Refuse a table of texts with a label each, which would be read as one sentence of very long words."""
    first = sentences[0]
    rows = [row for sentence in sentences for row in sentence.fields]
    is_header = all(first_of(first.fields[0], names) is not None for names in (TEXTS, LABELS))
    is_header |= known_columns().issuperset(first.fields[0])
    num_texts = sum(any(map(_is_text, row)) for row in rows)
    if is_header or 2 * num_texts > len(rows):
        shown = "\t".join(first.fields[0])
        raise InputError(
            "its first line is the header of a table of texts" if is_header else "holds texts where words should be",
            file=source.path,
            line=first.lines[0],
            value=shown,
            expected="a word and its tag on a line, a blank line between sentences",
            remedy="a text with a label of its own is the task sequence-classification; a text on each line, and "
            "nothing else, is --column_names text",
        )


def _is_text(word: str) -> bool:
    """Whether this is more than a word: it has a blank inside, or many Chinese characters."""
    return len(word.split()) > 1 or _num_chinese(word) > LONGEST_CHINESE_WORD


def _num_chinese(text: str) -> int:
    return sum("一" <= character <= "龥" for character in text)


def _is_tag_column(values: Sequence[str]) -> bool:
    """Whether these can be nothing but tags: some name a type, or all are bare letters and many."""
    if not _holds_tags(values):
        return False
    return any("-" in value for value in values) or (
        len(values) >= FEWEST_LETTERS and all(split_tag(value) is not None for value in values)
    )


def _holds_classes(values: Sequence[str]) -> bool:
    """Whether these are plain classes: a few at least, mostly in capitals (NN, PROPN), and without small letters."""
    capitals = sum(any(map(str.isupper, value)) for value in values)
    is_small = any(character.islower() for value in values for character in value)
    return len(values) >= FEWEST_LETTERS and 2 * capitals >= len(values) and not is_small


def _holds_tags(values: Sequence[str]) -> bool:
    """Whether most of the values are tags of a scheme, some with a letter other than O."""
    parts = [split_tag(value) for value in values]
    found = sum(part is not None for part in parts)
    return 2 * found >= len(values) and any(part is not None and part[0] != OUTSIDE for part in parts)


def _example(sentence: _Sentence, document: int, columns: _Columns, source: Source) -> TaggedExample:
    words, tags = [], []
    for number, fields in zip(sentence.lines, sentence.fields, strict=True):
        if len(fields) != columns.width:
            raise InputError(
                f"the line has {len(fields)} columns",
                file=source.path,
                line=number,
                value=" ".join(fields),
                expected=f"{columns.width} columns, as in the first line",
                remedy="mend the line; a blank line ends a sentence",
            )
        words.append(fields[columns.word])
        if columns.tag is not None:
            tag = fields[columns.tag]
            if not tag.strip():
                raise InputError("the tag is empty", file=source.path, line=number, field="tag", value=" ".join(fields))
            tags.append(tag)
    offsets = places_of(words, sentence.text) if sentence.text is not None else None
    text = sentence.text or ""
    if offsets is None:
        text, offsets = joined_words(words)
    return TaggedExample(
        id=f"{source.name}:{sentence.lines[0]}",
        text=checked_text(text, source, sentence.lines[0], "word"),
        words=tuple(words),
        offsets=offsets,
        tags=tuple(tags) if columns.tag is not None else None,
        document=document,
        file=str(source.path),
        lines=tuple(sentence.lines),
    )
