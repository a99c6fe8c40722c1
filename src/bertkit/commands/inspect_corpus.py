"""`bertkit inspect corpus PATH`: the two-dimensional shape of a corpus, and its counts.

In: where the text stands.  Out: [[sentence, …], …] of the first documents, and the counts of all.
Next: text/documents.py, text/sentences.py
"""

import json
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from bertkit import console
from bertkit.errors import InputError
from bertkit.options import argument, group, option
from bertkit.text.documents import CorpusSettings, ReadingReport, read_documents
from bertkit.text.sentences import sentence_splitter, sentences_of


@dataclass(frozen=True)
class Config:
    """Which text, how it is read, how much of it is shown."""

    path: str | None = argument(None, help="the text: paths, comma separated; globs; folders (or: --input_file)")
    corpus: CorpusSettings = group(CorpusSettings)
    show: int = option(3, help="documents printed")
    json: bool = option(False, help="print everything as one line of JSON")


def run(config: Config) -> None:
    """Print the first documents and the counts of all.

    Raises:
        InputError: no path, or two; a --show below 0; what reading raises.
    """
    if (config.path is None) == (config.corpus.input_file is None):
        problem = "no text was named" if config.path is None else "the text is named twice"
        raise InputError(
            problem, field="path", value=config.path, expected="one path", remedy="bertkit inspect corpus poems.txt"
        )
    if config.show < 0:
        raise InputError("is below 0", field="--show", value=config.show, expected="0 or more", remedy="use 3")
    settings = replace(config.corpus, input_file=config.path or config.corpus.input_file)
    show_corpus(settings, show=config.show, as_json=config.json)


@dataclass
class CorpusCounts:
    """What a corpus consists of."""

    reading: ReadingReport = field(default_factory=ReadingReport)
    documents: int = 0
    sentences: int = 0
    characters: int = 0
    one_sentence: int = 0  # documents of one sentence
    no_sentence: int = 0  # documents of blanks only
    most_sentences: int = 0
    longest_sentence: int = 0  # characters
    duplicates: int = 0  # documents whose text stood before
    examples: list[list[str]] = field(default_factory=list)  # [[sentence, ...], ...] of the first documents

    def rows(self) -> list[tuple[str, int | str]]:
        """Return the counts as rows of a table."""
        documents = max(1, self.documents)
        return [
            *self.reading.rows(),
            ("sentences", self.sentences),
            ("sentences per document, on average", f"{self.sentences / documents:.1f}"),
            ("sentences per document, at most", self.most_sentences),
            ("characters", self.characters),
            ("characters per sentence, on average", f"{self.characters / max(1, self.sentences):.1f}"),
            ("characters per sentence, at most", self.longest_sentence),
            ("documents of one sentence", self.one_sentence),
            *([("documents of blanks only", self.no_sentence)] if self.no_sentence else []),
            ("documents whose text stood before", self.duplicates),
        ]


def show_corpus(settings: CorpusSettings, *, show: int, as_json: bool) -> None:
    """Print the first documents as [[sentence, …], …] and the counts of all, or the same as one line of JSON.

    Raises:
        InputError: what reading raises.
    """
    counts = count_corpus(settings, show=show)
    if as_json:
        console.result_json({"documents": counts.examples, "counts": dict(counts.rows()), "remarks": _remarks(counts)})
        return
    for line in _two_dimensional(counts.examples, more=counts.documents > len(counts.examples)):
        console.result(line)
    console.result(console.table(counts.rows()))
    for line in _remarks(counts):
        console.result(line)


def count_corpus(settings: CorpusSettings, *, show: int) -> CorpusCounts:
    """Return the counts of a corpus, and the sentences of its first `show` documents.

    Raises:
        InputError: what reading raises.
    """
    counts = CorpusCounts()
    split = sentence_splitter(settings.sentence_end, language=settings.language)
    seen: set[bytes] = set()  # 8 bytes a text stand for it: a billion texts give one false repeat in 37 runs
    with console.Progress("reading", total=None, unit="documents") as progress:
        for document in read_documents(settings, counts.reading):
            sentences = sentences_of(document, split)
            if counts.documents < show:
                counts.examples.append([sentence.strip() for sentence in sentences])
            counts.documents += 1
            counts.sentences += len(sentences)
            counts.characters += len(document.text)
            counts.one_sentence += len(sentences) == 1
            counts.no_sentence += not sentences
            counts.most_sentences = max(counts.most_sentences, len(sentences))
            counts.longest_sentence = max([counts.longest_sentence, *map(len, sentences)])
            key = blake2b(document.text.encode("utf-8"), digest_size=8).digest()
            counts.duplicates += key in seen
            seen.add(key)
            progress.advance()
    return counts


def _two_dimensional(examples: list[list[str]], *, more: bool) -> list[str]:
    """The documents as JSON, one a line; without the `...` that stands for the rest, they are one JSON value."""
    rows = [json.dumps(sentences, ensure_ascii=False) for sentences in examples]
    rows = [f" {row}," for row in rows[:-1]] + [f" {row}{',' if more else ''}" for row in rows[-1:]]
    return ["[", *rows, *([" ..."] if more else []), "]"]


def _remarks(counts: CorpusCounts) -> list[str]:
    remarks = []
    if counts.one_sentence:
        remarks.append(
            f"{counts.one_sentence:,} of {counts.documents:,} documents have one sentence: useless for next-sentence "
            "pairs of their own, kept as random second sentences"
        )
    if counts.one_sentence + counts.no_sentence == counts.documents:
        remarks.append(
            "no document has two sentences, so there are 0 positive pairs: is there a blank line after every line, "
            "or is the --format another one?"
        )
    if counts.duplicates:
        remarks.append(f"{counts.duplicates:,} documents ({counts.duplicates / counts.documents:.1%}) are duplicates")
    return remarks
