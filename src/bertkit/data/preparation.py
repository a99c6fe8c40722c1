"""Raw text to a store of three parts: documents are read, split, tokenized and written, and every loss is counted.

In: CorpusSettings and a Tokenizer.  Out: STORE/{train,validation,test}, the tokenizer's files, one manifest.
Bytes depend on text and settings only: not on processes, chunks, or how often the build was killed and begun again.
Next: encoding.py
"""

import functools
import json
import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.console import Progress, say
from bertkit.data.encoding import (
    EncodedDocuments,
    EncodingSettings,
    columns_of,
    encode_columns,
    encode_documents,
    remember,
)
from bertkit.data.executors import open_executor
from bertkit.data.preparation_report import PreparationReport
from bertkit.data.repeats import RepeatCounter
from bertkit.data.store import COUNTS, FORMAT_VERSION, MANIFEST, PARTS
from bertkit.data.store_key import PreparationSettings, store_key
from bertkit.data.store_writer import StoreWriter
from bertkit.errors import InputError
from bertkit.files import finish_directory, put_back, write_atomically
from bertkit.text.corpus import CorpusReport, open_corpus
from bertkit.text.documents import CorpusSettings, Document, part_of
from bertkit.text.readers import COMPRESSED, find_sources
from bertkit.text.tokenizer import Tokenizer

__all__ = ["PreparationReport", "PreparationSettings", "prepare_store", "store_key"]

CHUNK_BYTES = 1 << 20  # text handed to a process at a time
BYTES_OF_A_CHARACTER = 3  # of Chinese in UTF-8; near enough for chunks and progress
JOURNAL = "building.json"  # in STORE.tmp: whose half-built store it is


def prepare_store(
    corpus: CorpusSettings, tokenizer: Tokenizer, output_directory: Path, settings: PreparationSettings
) -> PreparationReport:
    """Write a store and return what became of the text; the folder appears whole or not at all.

    A build that was killed is gone on with: its finished files are kept.

    Raises:
        InputError: no document with a token in it, or what reading raises; something else stands at the folder.
    """
    _require_free(output_directory)
    key = store_key(corpus, tokenizer, settings)
    folder = _begun_folder(output_directory, key)
    try:
        report = _build(corpus, tokenizer, folder, settings)
        for name, content in tokenizer.files().items():
            write_atomically(folder / name, content)
        _write_manifest(folder, corpus, tokenizer, settings, report, key)
        (folder / JOURNAL).unlink(missing_ok=True)
        finish_directory(folder, output_directory)
    except BrokenExecutor as problem:
        raise InputError(
            f"a process that tokenized was ended from outside ({problem})",
            field="--workers",
            value=settings.workers,
            remedy="run the same command again: what is finished is kept; fewer workers need less memory",
        ) from problem
    except InputError:  # the text or a setting is to change, and with it the key: what was built is of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except Exception:  # a full disk, a scheduler that is gone: what is finished is kept, as after a kill
        say(f"stopped; what is finished is kept in {folder}, and the same command goes on with it")
        raise
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


def _begun_folder(output_directory: Path, key: str) -> Path:
    """The folder in which the store is built: the one of a killed build of the very same store, or a new one."""
    put_back(output_directory)
    folder = output_directory.with_name(f"{output_directory.name}.tmp")
    # (The manifest is written before the journal goes, so that one of the two names the key at every instant.)
    named = next((folder / name for name in (JOURNAL, MANIFEST) if (folder / name).is_file()), None)
    if named is not None and json.loads(named.read_text(encoding="utf-8"))["key"] == key:
        say(f"going on with the build that was stopped: {folder}")
        for unfinished in folder.rglob(".*.tmp"):  # of a file that the killed process was writing
            unfinished.unlink()
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_atomically(folder / JOURNAL, json.dumps({"key": key}))
    return folder


def _build(
    corpus: CorpusSettings, tokenizer: Tokenizer, folder: Path, settings: PreparationSettings
) -> PreparationReport:
    report, vocabulary = PreparationReport(), tokenizer.vocabulary
    encoding = EncodingSettings(replace(tokenizer), corpus.sentence_end, corpus.language, settings.word_segmenter)
    writers = [
        StoreWriter(
            folder / part,
            vocab_size=vocabulary.size,
            unk_id=vocabulary.unk_id,
            has_word_starts=encoding.has_word_starts,
            shard_tokens=settings.shard_tokens,
        )
        for part in PARTS
    ]
    report.cleaning = settings.cleaning
    done = [writer.num_given for writer in writers]
    total, began, is_first = _size_of(corpus), time.perf_counter(), True
    with (
        RepeatCounter(folder) as repeats,
        open_executor(workers=settings.workers, dask=settings.dask, at_start=functools.partial(remember, encoding)) as (
            executor,
            num_workers,
        ),
        Progress("preparing", total=total, unit="bytes") as progress,
    ):
        chunks = _Reader(corpus, settings, done, report.corpus, repeats).chunks()
        # Processes of our own know the settings from their start; Dask's are told with every chunk.
        told = encoding if executor is None or settings.dask else None
        for chunk, encoded in _encoded(chunks, told, executor, in_flight=2 * num_workers + 1):
            if executor is None and is_first and chunk.documents and total:
                _say_estimate(total / chunk.size, encoded, time.perf_counter() - began)
            is_first = False
            for number, writer in enumerate(writers):
                in_part = chunk.parts == number
                if in_part.any():
                    writer.add(encoded.take(in_part))
            report.unknown_characters.update(encoded.unknown_characters)
            progress.advance(chunk.size)
        report.repeated_documents = repeats.count()
    for part, writer in zip(PARTS, writers, strict=True):
        manifest = writer.close(vocabulary_hash=vocabulary.hash)
        report.parts[part] = {name: manifest[name] for name in COUNTS}
        report.sentences_without_tokens += manifest["sentences_without_tokens"]
        report.documents_without_tokens += manifest["documents_without_tokens"]
        report.documents_of_one_sentence += manifest["documents_of_one_sentence"]
    if not any(counts["documents"] for counts in report.parts.values()):
        raise InputError(
            "holds no document with a token in it",
            file=corpus.input_file,
            remedy="look at it with `bertkit inspect corpus`",
        )
    report.documents_kept = sum(done)
    return report


def _say_estimate(chunks: float, first: EncodedDocuments, seconds: float) -> None:
    """Say what the whole will take, going by its first chunk."""
    megabytes = chunks * (first.tokens.nbytes / 2 + first.sentence_lengths.nbytes / 2) / 1e6  # uint16, int32 on disk
    if chunks > 2:
        say(f"about {megabytes:,.0f} MB on disk and {chunks * seconds:,.0f} seconds, by the first megabyte")


def _size_of(corpus: CorpusSettings) -> int | None:
    """The bytes of text to be read; unknown where files are compressed."""
    sources = find_sources(corpus.input_file)
    if any(source.path.name.lower().endswith(COMPRESSED) for source in sources):
        return None
    return sum(source.path.stat().st_size for source in sources)


@dataclass(frozen=True)
class _Chunk:
    """Documents that are encoded together."""

    documents: list[Document]
    parts: "np.ndarray[Any, np.dtype[np.int64]]"  # (documents,) place in PARTS
    size: int  # bytes of text, those of documents that an earlier build has done included


@dataclass
class _Reader:
    """Reads documents, tells their parts, and passes over those that an earlier, killed build has finished."""

    corpus: CorpusSettings
    settings: PreparationSettings
    done: list[int]  # for each part, how many of its documents stand in finished files
    report: CorpusReport
    repeats: RepeatCounter

    def chunks(self) -> Iterator[_Chunk]:
        """Yield the documents in chunks of about CHUNK_BYTES."""
        with open_corpus(self.corpus, self.settings.cleaning, self.report) as documents:
            yield from self._chunks(documents)

    def _chunks(self, read: Iterator[Document]) -> Iterator[_Chunk]:
        documents: list[Document] = []
        parts: list[int] = []
        size, met = 0, [0] * len(PARTS)
        for document in read:
            text = document.text
            self.repeats.add(hash(text))
            part = PARTS.index(part_of(text, validation_split=self.settings.validation_split))
            size += len(text) * (1 if text.isascii() else BYTES_OF_A_CHARACTER)
            met[part] += 1
            if met[part] > self.done[part]:
                documents.append(document)
                parts.append(part)
            if size >= CHUNK_BYTES:
                yield _Chunk(documents, np.array(parts, dtype=np.int64), size)
                documents, parts, size = [], [], 0
        yield _Chunk(documents, np.array(parts, dtype=np.int64), size)


def _encoded(
    chunks: Iterator[_Chunk], settings: EncodingSettings | None, executor: Executor | None, *, in_flight: int
) -> Iterator[tuple[_Chunk, EncodedDocuments]]:
    """Yield the chunks with their ids, in order; with an executor at most `in_flight` wait at a time."""
    if executor is None:
        assert settings is not None
        for chunk in chunks:
            yield chunk, encode_documents(chunk.documents, settings)
        return
    waiting: deque[tuple[_Chunk, Future[EncodedDocuments]]] = deque()
    for chunk in chunks:
        waiting.append((chunk, executor.submit(encode_columns, columns_of(chunk.documents), settings)))
        if len(waiting) >= in_flight:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _write_manifest(
    folder: Path,
    corpus: CorpusSettings,
    tokenizer: Tokenizer,
    settings: PreparationSettings,
    report: PreparationReport,
    key: str,
) -> None:
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "key": key,
        "parts": report.parts,
        "settings": {
            **asdict(corpus),
            "validation_split": settings.validation_split,
            "word_segmenter": settings.word_segmenter,
        },
        "vocabulary_sha256": tokenizer.vocabulary.hash,
        "report": dict(report.rows()),
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
