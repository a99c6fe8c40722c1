"""Token ids to disk: Arrow IPC files, one row a document, a shard at a time.

In: EncodedDocuments, flat arrays.  Out: shard-00000.arrow … and manifest.json in the folder of one part.
Next: store.py
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.data.encoding import EncodedDocuments
from bertkit.data.store import COUNTS, FORMAT_VERSION, MANIFEST, SHARD_TOKENS
from bertkit.files import fsync_file, sha256_of_file, write_atomically

PROGRESS = "progress.json"  # of a part that is being written


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
        documents = replace(documents, tokens=documents.tokens.astype(self._token_type, copy=False))
        counts = documents.token_counts
        start = 0
        while start < len(counts):
            # As many as fit into the shard; one document alone may be longer than a shard.
            ends = self._pending_tokens + np.cumsum(counts[start:])
            fitting = int(np.searchsorted(ends, self._shard_tokens, side="right"))
            stop = start + (max(fitting, 1) if self._pending_tokens == 0 else fitting)
            if stop > start:
                self._pending.append(documents if stop - start == len(counts) else documents.between(start, stop))
                self._pending_tokens += int(counts[start:stop].sum())
            start = stop
            if start < len(counts):
                self._write_shard()

    def _write_shard(self) -> None:
        parts, self._pending, self._pending_tokens = self._pending, [], 0
        self._count(parts)
        if any(part.sentence_counts.any() for part in parts):
            self._progress["shards"].append(self._written(parts))
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
        """Write one shard, without the documents that have no token; return its line of the manifest."""
        name = f"shard-{len(self._progress['shards']):05d}.arrow"
        tokens = np.concatenate([part.tokens for part in parts])
        sentence_lengths = np.concatenate([part.sentence_lengths for part in parts])
        sentence_counts = np.concatenate([part.sentence_counts for part in parts])
        has_tokens = sentence_counts > 0
        token_counts = np.concatenate([part.token_counts for part in parts])[has_tokens]
        sentence_counts = sentence_counts[has_tokens]
        ids = pa.array([id for part in parts for id in part.ids], pa.string())
        columns = {
            "id": ids.filter(pa.array(has_tokens)),
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
