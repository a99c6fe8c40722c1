"""Token ids on disk: Arrow IPC files, one row a document, opened by memory map.

In: documents as lists of sentences of ids.  Out: shard-00000.arrow … and manifest.json; read back as a Store.
`datasets`, polars and pyarrow open the shards as they are.  Next: pairs.py
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.errors import InputError
from bertkit.files import sha256_of_file, write_atomically

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PARTS = ("train", "validation", "test")
SHARD_TOKENS = 1 << 24  # tokens in one file; what the writer holds in memory


class StoreWriter:
    """Writes documents into a folder, a shard at a time; `close` writes the manifest last.

    The folder's own atomicity is the caller's (files.directory_written_atomically).
    """

    def __init__(self, directory: Path, *, vocab_size: int, unk_id: int, shard_tokens: int = SHARD_TOKENS) -> None:
        self._directory, self._shard_tokens, self._unk_id = directory, shard_tokens, unk_id
        self._token_type = pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()
        self._vocab_size = vocab_size
        self._shards: list[dict[str, Any]] = []
        self._totals = {"documents": 0, "sentences": 0, "tokens": 0, "unknown_tokens": 0}
        self._start_shard()
        directory.mkdir(parents=True, exist_ok=True)

    def _start_shard(self) -> None:
        self._ids: list[str] = []
        self._tokens: list[NDArray[Any]] = []
        self._document_lengths: list[int] = []
        self._sentence_lengths: list[int] = []
        self._sentence_counts: list[int] = []
        self._pending = 0

    def add(self, document_id: str, sentences: Sequence[NDArray[Any]]) -> None:
        """Add one document; every sentence has at least one token."""
        lengths = [len(sentence) for sentence in sentences]
        assert lengths
        assert min(lengths) > 0
        total = sum(lengths)
        if self._pending and self._pending + total > self._shard_tokens:
            self._write_shard()
        self._ids.append(document_id)
        self._tokens.append(np.concatenate(sentences))  # an array a sentence: 350 MB a shard of short ones, not 180
        self._document_lengths.append(total)
        self._sentence_lengths.extend(lengths)
        self._sentence_counts.append(len(lengths))
        self._pending += total

    def _write_shard(self) -> None:
        name = f"shard-{len(self._shards):05d}.arrow"
        tokens = np.concatenate(self._tokens)
        batch = pa.record_batch(
            {
                "id": pa.array(self._ids, pa.string()),
                "input_ids": _lists(pa.array(tokens, self._token_type), self._document_lengths),
                "sentence_lengths": _lists(pa.array(self._sentence_lengths, pa.int32()), self._sentence_counts),
            }
        )
        with pa.OSFile(str(self._directory / name), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        counts = {
            "documents": len(self._ids),
            "sentences": len(self._sentence_lengths),
            "tokens": len(tokens),
            "unknown_tokens": int((tokens == self._unk_id).sum()),
        }
        self._shards.append({"file": name, **counts, "sha256": sha256_of_file(self._directory / name)})
        self._totals = {key: value + counts[key] for key, value in self._totals.items()}
        self._start_shard()

    def close(self, *, vocabulary_hash: str) -> dict[str, Any]:
        """Write what is pending and the manifest; return the manifest."""
        if self._ids:
            self._write_shard()
        manifest = {
            "format_version": FORMAT_VERSION,
            **self._totals,
            "vocab_size": self._vocab_size,
            "vocabulary_sha256": vocabulary_hash,
            "shards": self._shards,
        }
        write_atomically(self._directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        return manifest


def _lists(values: pa.Array, lengths: list[int]) -> pa.Array:
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
        lengths = ends - starts
        positions = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        if len(self.shard_tokens) == 1:
            only: NDArray[np.int64] = self.shard_tokens[0][positions].astype(np.int64)
            return only
        output = np.empty(len(positions), dtype=np.int64)
        shard_of = np.searchsorted(self.shard_starts, positions, side="right") - 1
        for shard in np.unique(shard_of):
            inside = shard_of == shard
            output[inside] = self.shard_tokens[shard][positions[inside] - self.shard_starts[shard]]
        return output


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
    tokens, sentence_lengths, sentence_counts = [], [], []
    for shard in manifest["shards"]:
        batch = _open_shard(directory / shard["file"], shard)
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
    return batch


def _starts(lengths: list[NDArray[Any]]) -> NDArray[np.int64]:
    joined = np.concatenate([np.zeros(1, dtype=np.int64), *lengths]).astype(np.int64)
    return np.cumsum(joined)
