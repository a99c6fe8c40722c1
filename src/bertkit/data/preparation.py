"""Raw text to a store of three parts: documents are read, split, tokenized and written, and every loss is counted.

In: CorpusSettings and a Tokenizer.  Out: STORE/{train,validation,test}, the tokenizer's files, one manifest.
Bytes depend on text and settings only: not on processes, chunks, or how often the build was killed and begun again.
Next: chunks.py, then helpers.py
"""

import json
import shutil
import time
from concurrent.futures import BrokenExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertkit.console import Progress, say
from bertkit.data.chunks import Chunk, read_chunks
from bertkit.data.encoding import EncodedDocuments, EncodingSettings
from bertkit.data.helpers import encoded_in_order, open_helpers
from bertkit.data.preparation_report import PreparationReport
from bertkit.data.repeats import RepeatCounter
from bertkit.data.store import COUNTS, FORMAT_VERSION, MANIFEST, PARTS
from bertkit.data.store_key import PreparationSettings, store_key
from bertkit.data.store_writer import StoreWriter
from bertkit.errors import InputError
from bertkit.files import finish_directory, put_back, write_atomically
from bertkit.text.documents import CorpusSettings
from bertkit.text.readers import COMPRESSED, find_sources
from bertkit.text.tokenizer import Tokenizer

__all__ = ["PreparationReport", "PreparationSettings", "prepare_store", "store_key"]

ESTIMATE_BYTES = 1 << 20
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
        for name, content in tokenizer.files().items():  # first, as other processes read them
            write_atomically(folder / name, content)
        report = _build(corpus, tokenizer, folder, settings)
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
        for unfinished in [*folder.rglob(".*.tmp")]:  # of the killed process: a file half written, its hashes
            shutil.rmtree(unfinished) if unfinished.is_dir() else unfinished.unlink()
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
    total = _size_of(corpus)
    estimate = _Estimate(total)
    with (
        RepeatCounter(folder) as repeats,
        open_helpers(encoding, folder, workers=settings.workers, dask=settings.dask) as helpers,
        Progress("preparing", total=total, unit="bytes") as progress,
    ):
        chunks = read_chunks(corpus, settings, done, report.corpus, repeats)
        for chunk, encoded in encoded_in_order(chunks, encoding, helpers):
            if helpers is None:
                estimate.add(chunk, encoded)
            first = 0
            for writer, end in zip(writers, chunk.ends, strict=True):
                if first < end:
                    writer.add(encoded.between(first, end))
                first = end
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


@dataclass
class _Estimate:
    """What the whole will take, said once, going by the first megabyte of its text."""

    total: int | None  # bytes of text
    began: float = field(default_factory=time.perf_counter)
    size: int = 0
    stored: float = 0.0  # bytes

    def add(self, chunk: Chunk, encoded: EncodedDocuments) -> None:
        before, self.size = self.size, self.size + chunk.size
        self.stored += encoded.tokens.nbytes + encoded.sentence_lengths.nbytes / 2  # (int32 on disk)
        if self.total is not None and before < ESTIMATE_BYTES <= self.size < self.total / 2:
            times = self.total / self.size
            megabytes, seconds = times * self.stored / 1e6, times * (time.perf_counter() - self.began)
            say(f"about {megabytes:,.0f} MB on disk and {seconds:,.0f} seconds, by the first megabyte")


def _size_of(corpus: CorpusSettings) -> int | None:
    """The bytes of text to be read; unknown where files are compressed."""
    sources = find_sources(corpus.input_file)
    if any(source.path.name.lower().endswith(COMPRESSED) for source in sources):
        return None
    return sum(source.path.stat().st_size for source in sources)


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
