"""Token ids on disk: Arrow IPC files, one row a document, opened by memory map.

In: EncodedDocuments, flat arrays.  Out: shard-00000.arrow … and manifest.json; read back as a Store.
`datasets`, polars and pyarrow open the shards as they are.  Next: prepared.py, pairs.py
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.data.encoding import EncodedDocuments
from bertkit.errors import InputError
from bertkit.files import fsync_file, sha256_of_file, write_atomically

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PROGRESS = "progress.json"  # of a part that is being written
PARTS = ("train", "validation", "test")
COUNTS = ("documents", "sentences", "tokens", "unknown_tokens")
# Tokens in one file, which the writer holds in memory: at 1 << 24 the peak rose from 193 to 332 MB between 10 MB and
# 100 MB of text, at 1 << 20 from 216 to 228.
SHARD_TOKENS = 1 << 20


class StoreWriter:
    """Writes documents into a folder, a shard at a time; `close` writes the manifest last.

    After each shard `progress.json` says what stands, so that a writer for the same folder goes on behind it; which
    bytes a shard has depends on the documents alone, not on how they were handed over.
    """

    def __init__(
        self,
        directory: Path,
        *,
        vocab_size: int,
        unk_id: int,
        has_word_starts: bool = False,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        self._directory, self._shard_tokens, self._unk_id = directory, shard_tokens, unk_id
        self._token_type = np.uint16 if vocab_size <= 1 << 16 else np.uint32
        self._vocab_size, self._has_word_starts = vocab_size, has_word_starts
        directory.mkdir(parents=True, exist_ok=True)
        self._progress = _progress_in(directory)
        self.num_given = int(self._progress["documents_given"])  # documents of the part in finished shards, or dropped
        self._pending: list[EncodedDocuments] = []
        self._pending_tokens = 0

    def add(self, documents: EncodedDocuments) -> None:
        """Add documents; those without a token are counted, not written."""
        documents = replace(documents, tokens=documents.tokens.astype(self._token_type))  # (half of what is held)
        counts = documents.token_counts
        start = 0
        while start < len(counts):
            # As many as fit into the shard; one document alone may be longer than a shard.
            ends = self._pending_tokens + np.cumsum(counts[start:])
            fitting = int(np.searchsorted(ends, self._shard_tokens, side="right"))
            stop = start + (max(fitting, 1) if self._pending_tokens == 0 else fitting)
            taken = np.zeros(len(counts), dtype=bool)
            taken[start:stop] = True
            if stop > start:
                self._pending.append(documents if taken.all() else documents.take(taken))
                self._pending_tokens += int(counts[start:stop].sum())
            start = stop
            if start < len(counts):
                self._write_shard()

    def _write_shard(self) -> None:
        self._count(self._pending)
        has_tokens = [
            part if part.sentence_counts.all() else part.take(part.sentence_counts > 0) for part in self._pending
        ]
        self._pending, self._pending_tokens = [], 0
        if sum(len(part.ids) for part in has_tokens):
            self._progress["shards"].append(self._written(has_tokens))
        write_atomically(self._directory / PROGRESS, json.dumps(self._progress))
        self.num_given = self._progress["documents_given"]

    def _count(self, parts: list[EncodedDocuments]) -> None:
        counts = self._progress
        for part in parts:
            counts["documents_given"] += len(part.ids)
            counts["documents_without_tokens"] += int((part.sentence_counts == 0).sum())
            counts["documents_of_one_sentence"] += int((part.sentence_counts == 1).sum())
            counts["sentences_without_tokens"] += int(part.dropped_sentences.sum())

    def _written(self, parts: list[EncodedDocuments]) -> dict[str, Any]:
        """Write one shard; return its line of the manifest."""
        name = f"shard-{len(self._progress['shards']):05d}.arrow"
        tokens = np.concatenate([part.tokens for part in parts])
        token_counts = np.concatenate([part.token_counts for part in parts])
        sentence_lengths = np.concatenate([part.sentence_lengths for part in parts])
        sentence_counts = np.concatenate([part.sentence_counts for part in parts])
        columns = {
            "id": pa.array([id for part in parts for id in part.ids], pa.string()),
            "input_ids": _lists(pa.array(tokens), token_counts),
            "sentence_lengths": _lists(pa.array(sentence_lengths.astype(np.int32)), sentence_counts),
        }
        if self._has_word_starts:
            starts = np.concatenate([part.word_starts for part in parts if part.word_starts is not None])
            columns["word_starts"] = _lists(pa.array(starts), token_counts)
        batch = pa.record_batch(columns)
        with pa.OSFile(str(self._directory / name), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        fsync_file(self._directory / name)
        return {
            "file": name,
            "documents": len(sentence_counts),
            "sentences": len(sentence_lengths),
            "tokens": len(tokens),
            "unknown_tokens": int((tokens == self._unk_id).sum()),
            "sha256": sha256_of_file(self._directory / name),
        }

    def close(self, *, vocabulary_hash: str) -> dict[str, Any]:
        """Write what is pending and the manifest; return the manifest, with what was counted on the way."""
        if self._pending:
            self._write_shard()
        shards = self._progress["shards"]
        totals = {name: sum(shard[name] for shard in shards) for name in COUNTS}
        manifest = {
            "format_version": FORMAT_VERSION,
            **totals,
            **{name: self._progress[name] for name in _no_counts() if name != "documents_given"},
            "vocab_size": self._vocab_size,
            "vocabulary_sha256": vocabulary_hash,
            "has_word_starts": self._has_word_starts,
            "shards": shards,
        }
        write_atomically(self._directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        (self._directory / PROGRESS).unlink(missing_ok=True)
        return manifest


def _progress_in(directory: Path) -> dict[str, Any]:
    """What stands in the folder already: by its manifest where it was finished, else by its progress file."""
    if (directory / MANIFEST).exists():
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        given = manifest["documents"] + manifest["documents_without_tokens"]
        return {"shards": manifest["shards"], **{name: manifest.get(name, given) for name in _no_counts()}}
    if (directory / PROGRESS).exists():
        progress: dict[str, Any] = json.loads((directory / PROGRESS).read_text(encoding="utf-8"))
        return progress
    return {"shards": [], **_no_counts()}


def _no_counts() -> dict[str, int]:
    return dict.fromkeys(
        (
            "documents_given",
            "documents_without_tokens",
            "documents_of_one_sentence",
            "sentences_without_tokens",
        ),
        0,
    )


def _lists(values: pa.Array, lengths: NDArray[np.int64]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


@dataclass(frozen=True)
class Store:
    """One part (train, validation, test) of a store, all positions counted over all its shards.

    sentence_starts: (sentences + 1,) int64, the token at which each sentence starts, and the number of tokens.
    document_sentences: (documents + 1,) int64, the sentence at which each document starts, and their number.
    """

    directory: Path
    manifest: dict[str, Any]
    sentence_starts: NDArray[np.int64]
    document_sentences: NDArray[np.int64]
    shard_starts: NDArray[np.int64]  # (shards + 1,) tokens
    shard_tokens: list[NDArray[Any]] = field(repr=False)
    shard_word_starts: list["_Bits"] = field(default_factory=list, repr=False)  # empty: words are told by ##

    @property
    def num_documents(self) -> int:
        """Documents in this part."""
        return len(self.document_sentences) - 1

    @property
    def num_sentences(self) -> int:
        """Sentences in this part."""
        return len(self.sentence_starts) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens in this part, special tokens not counted."""
        return int(self.sentence_starts[-1])

    @property
    def sentences_per_document(self) -> NDArray[np.int64]:
        """(documents,) int64."""
        return np.diff(self.document_sentences)

    def tokens(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of the spans one after the other, (sum of ends − starts,) int64.

        A span may be empty; none crosses the end of a document (and so of a shard).
        """
        positions = _positions(starts, ends)
        if len(self.shard_tokens) == 1:
            only: NDArray[np.int64] = self.shard_tokens[0][positions].astype(np.int64)
            return only
        output = np.empty(len(positions), dtype=np.int64)
        for shard, inside, places in self._by_shard(positions):
            output[inside] = self.shard_tokens[shard][places]
        return output

    def word_starts(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether a word begins with each token of the spans, one after the other; the store must know it."""
        positions = _positions(starts, ends)
        output = np.empty(len(positions), dtype=bool)
        for shard, inside, places in self._by_shard(positions):
            output[inside] = self.shard_word_starts[shard].at(places)
        return output

    def _by_shard(self, positions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """(shard, which of the positions stand in it, where in it) of each shard that has any."""
        shard_of = np.searchsorted(self.shard_starts, positions, side="right") - 1
        order = np.argsort(shard_of, kind="stable")
        shards, firsts = np.unique(shard_of[order], return_index=True)
        for shard, inside in zip(shards.tolist(), np.split(order, firsts[1:]), strict=False):
            yield shard, inside, positions[inside] - self.shard_starts[shard]


@dataclass(frozen=True)
class _Bits:
    """A memory-mapped Arrow array of booleans, eight to a byte."""

    data: NDArray[np.uint8]
    offset: int

    def at(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        places = places + self.offset
        bits: NDArray[np.bool_] = (self.data[places >> 3] >> (places & 7).astype(np.uint8) & 1).astype(bool)
        return bits


def _positions(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The tokens of the spans, one span after the other."""
    lengths = ends - starts
    positions: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(
        starts - np.cumsum(lengths) + lengths, lengths
    )
    return positions


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest in a folder.

    Raises:
        InputError: there is none, it is damaged, or it was written by another format version.
    """
    path = directory / MANIFEST
    if not path.is_file():
        raise InputError(
            "holds no finished store",
            file=directory,
            expected=f"a folder with {MANIFEST}, as `bertkit prepare` writes it",
            remedy="run `bertkit prepare --input_file … --tokenizer … --output_dir STORE`",
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"is damaged ({problem!r})", file=path, remedy="run `bertkit prepare` again") from None
    if version != FORMAT_VERSION:
        raise InputError(
            "was written in another format version",
            file=path,
            field="format_version",
            value=version,
            expected=str(FORMAT_VERSION),
            remedy="run `bertkit prepare` again",
        )
    return manifest


def open_store(directory: str | Path) -> Store:
    """Return one part of a store, its tokens memory-mapped.

    Raises:
        InputError: no store there, or a shard that is missing or not what the manifest says.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    tokens, sentence_lengths, sentence_counts, word_starts = [], [], [], []
    for shard in manifest["shards"]:
        batch = _open_shard(directory / shard["file"], shard)
        if manifest.get("has_word_starts"):  # (older stores of this format never have them, and do not say so)
            bits = batch.column("word_starts").flatten()
            word_starts.append(_Bits(np.frombuffer(bits.buffers()[1], dtype=np.uint8), bits.offset))
        tokens.append(batch.column("input_ids").flatten().to_numpy())
        sentence_lengths.append(batch.column("sentence_lengths").flatten().to_numpy())
        sentence_counts.append(np.diff(batch.column("sentence_lengths").offsets.to_numpy()))
    return Store(
        directory=directory,
        manifest=manifest,
        sentence_starts=_starts(sentence_lengths),
        document_sentences=_starts(sentence_counts),
        shard_starts=np.concatenate([[0], np.cumsum([len(part) for part in tokens])]).astype(np.int64),
        shard_tokens=tokens,
        shard_word_starts=word_starts,
    )


def open_parts(directory: str | Path) -> dict[str, Store]:
    """Return the parts of a store that hold a document, by name (train, validation, test).

    Raises:
        InputError: no store there, only one part of a store, or no training part in it.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if "parts" not in manifest:
        raise InputError(
            f"is no whole store: its {MANIFEST} names no parts",
            file=directory,
            expected=f"the folder that `bertkit prepare` wrote, with {', '.join(PARTS)} in it",
            remedy=f"name the folder above, {directory.parent}" if directory.name in PARTS else "name another folder",
        )
    counts = manifest["parts"]
    if not counts["train"]["documents"]:
        raise InputError(
            "has an empty training part",
            file=directory,
            remedy="give a larger corpus, or prepare it with --validation_split false",
        )
    return {part: open_store(directory / part) for part in PARTS if counts[part]["documents"]}


def _open_shard(path: Path, expected: dict[str, Any]) -> pa.RecordBatch:
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        found = batch.num_rows, len(batch.column("input_ids").flatten())
    except (OSError, ValueError, KeyError) as problem:  # pyarrow's ArrowInvalid is a ValueError
        raise InputError(
            f"is missing or damaged ({problem})", file=path, remedy="run `bertkit prepare` again"
        ) from None
    if found != (expected["documents"], expected["tokens"]):
        raise InputError(
            f"holds {found[0]} documents and {found[1]} tokens",
            file=path,
            expected=f"{expected['documents']} and {expected['tokens']}, as {MANIFEST} says",
            remedy="run `bertkit prepare` again",
        )
    if sha256_of_file(path) != expected["sha256"]:
        raise InputError(
            f"is damaged: its SHA-256 is not that of {MANIFEST}",
            file=path,
            expected=expected["sha256"],
            remedy="run `bertkit prepare` again (a store in the cache: remove its folder first)",
        )
    return batch


def _starts(lengths: list[NDArray[Any]]) -> NDArray[np.int64]:
    joined = np.concatenate([np.zeros(1, dtype=np.int64), *lengths]).astype(np.int64)
    return np.cumsum(joined)
