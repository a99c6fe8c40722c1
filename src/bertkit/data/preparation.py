"""Raw text to a store of three parts: documents are read, split, tokenized and written, and every loss is counted.

In: CorpusSettings and a Tokenizer.  Out: STORE/{train,validation,test}, the tokenizer's files, one manifest.
Next: store.py
"""

import hashlib
import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.console import Progress
from bertkit.data.store import FORMAT_VERSION, MANIFEST, PARTS, StoreWriter
from bertkit.errors import InputError
from bertkit.files import directory_written_atomically, sha256_of_file, write_atomically
from bertkit.text.documents import CorpusSettings, Document, ReadingReport, part_of, read_documents
from bertkit.text.readers import find_sources
from bertkit.text.sentences import sentence_splitter, sentences_of
from bertkit.text.tokenizer import Tokenizer

DOCUMENTS_AT_ONCE = 1000  # tokenized in one call of the library


@dataclass
class PreparationReport:
    """What became of the text; printed, and kept in the store's manifest."""

    reading: ReadingReport = field(default_factory=ReadingReport)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)  # documents, sentences, tokens, unknown_tokens
    sentences_without_tokens: int = 0
    documents_without_tokens: int = 0
    documents_of_one_sentence: int = 0
    repeated_documents: int = 0

    def rows(self) -> list[tuple[str, object]]:
        """Return the corpus report as rows of a table."""
        total = Counter[str]()
        for counts in self.parts.values():
            total.update(counts)
        documents, tokens = total["documents"], max(1, total["tokens"])
        rows: list[tuple[str, object]] = [*self.reading.rows()]
        rows += [
            ("sentences dropped: no token in them", self.sentences_without_tokens),
            ("documents dropped: no token in them", self.documents_without_tokens),
            ("documents of one sentence (only ever a random B)", self.documents_of_one_sentence),
            ("documents that repeat an earlier one", self.repeated_documents),
            ("sentences", total["sentences"]),
            ("sentences in a document, mean", f"{total['sentences'] / max(1, documents):.1f}"),
            ("tokens in a sentence, mean", f"{tokens / max(1, total['sentences']):.1f}"),
            ("tokens", total["tokens"]),
            ("[UNK] among the tokens", f"{100 * total['unknown_tokens'] / tokens:.2f} %"),
        ]
        return rows + [(f"documents for {part}", self.parts[part]["documents"]) for part in self.parts]


def store_key(corpus: CorpusSettings, tokenizer: Tokenizer, *, validation_split: bool) -> str:
    """Return a hash of all that the bytes of a store depend on: settings, tokenizer, every file's name and content.

    Where the files stand is no part of it; their order is.
    """
    sources = [(source.name, sha256_of_file(source.path)) for source in find_sources(corpus.input_file)]
    settings = asdict(corpus)
    del settings["input_file"]
    described = {
        "format_version": FORMAT_VERSION,
        "sources": sources,
        "settings": settings,
        "reader": _function_hash(corpus.format),
        "tokenizer": {name: hashlib.sha256(content).hexdigest() for name, content in tokenizer.files().items()},
        "validation_split": validation_split,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _function_hash(format_name: str) -> str | None:
    """The content of the module of a user's own reader, which decides what its documents are."""
    if ":" not in format_name:
        return None
    from bertkit.text.records import load_function

    module = sys.modules[load_function(format_name).__module__]
    file = vars(module).get("__file__")  # a built-in module has none
    return sha256_of_file(file) if file else None


def prepare_store(
    corpus: CorpusSettings, tokenizer: Tokenizer, output_directory: Path, *, validation_split: bool
) -> PreparationReport:
    """Write a store and return what became of the text; the folder appears whole or not at all.

    validation_split: a tenth of the documents each for validation and test, by the hash of their text
        (documents.part_of); False puts all into train.

    Raises:
        InputError: no document with a token in it, or what reading raises; something else stands at the folder.
    """
    _require_free(output_directory)
    report = PreparationReport()
    with directory_written_atomically(output_directory) as folder:
        vocabulary = tokenizer.vocabulary
        writers = {
            part: StoreWriter(folder / part, vocab_size=vocabulary.size, unk_id=vocabulary.unk_id) for part in PARTS
        }
        seen = _write_documents(corpus, tokenizer, writers, report, validation_split)
        for part, writer in writers.items():
            manifest = writer.close(vocabulary_hash=vocabulary.hash)
            report.parts[part] = {
                name: manifest[name] for name in ("documents", "sentences", "tokens", "unknown_tokens")
            }
        if not any(counts["documents"] for counts in report.parts.values()):
            raise InputError(
                "holds no document with a token in it",
                file=corpus.input_file,
                remedy="look at it with `bertkit inspect corpus`",
            )
        report.repeated_documents = len(seen) - len(np.unique(np.frombuffer(seen, dtype=np.uint64)))
        for name, content in tokenizer.files().items():
            write_atomically(folder / name, content)
        _write_manifest(folder, corpus, tokenizer, report, validation_split)
    return report


def _require_free(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise InputError("is no folder", file=directory, field="--output_dir", remedy="name another folder")
    # (A training checkpoint has a manifest too; what is replaced must be a store.)
    is_store = all((directory / part / MANIFEST).is_file() for part in PARTS)
    if directory.exists() and not is_store and any(directory.iterdir()):
        raise InputError(
            "is a folder with other files in it",
            file=directory,
            field="--output_dir",
            expected="a new folder, or an older store to be replaced",
            remedy="name another folder",
        )


def _write_documents(
    corpus: CorpusSettings,
    tokenizer: Tokenizer,
    writers: dict[str, StoreWriter],
    report: PreparationReport,
    validation_split: bool,
) -> "array[int]":
    """Write all documents; return a 64-bit hash of each text (8 bytes a document: all that grows with the corpus)."""
    split = sentence_splitter(corpus.sentence_end)
    seen = array("Q")
    documents = read_documents(corpus, report.reading)
    with Progress("preparing", total=None, unit="documents") as progress:
        for chunk in _chunks(documents, DOCUMENTS_AT_ONCE):
            sentences = [sentences_of(document, split) for document in chunk]
            encoded = iter(tokenizer.encode_plain([sentence for group in sentences for sentence in group]))
            for document, group in zip(chunk, sentences, strict=True):
                ids = list(islice(encoded, len(group)))
                kept = [sentence for sentence in ids if len(sentence)]
                report.sentences_without_tokens += len(ids) - len(kept)
                if not kept:
                    report.documents_without_tokens += 1
                    continue
                report.documents_of_one_sentence += len(kept) == 1
                digest = hashlib.sha1(document.text.encode("utf-8")).digest()
                seen.append(int.from_bytes(digest[:8], "little"))
                writers[part_of(document.text, validation_split=validation_split)].add(document.id, kept)
            progress.advance(len(chunk))
    return seen


def _chunks(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    iterator = iter(documents)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _write_manifest(
    folder: Path, corpus: CorpusSettings, tokenizer: Tokenizer, report: PreparationReport, validation_split: bool
) -> None:
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "key": store_key(corpus, tokenizer, validation_split=validation_split),
        "parts": report.parts,
        "settings": {**asdict(corpus), "validation_split": validation_split},
        "vocabulary_sha256": tokenizer.vocabulary.hash,
        "report": dict(report.rows()),
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
