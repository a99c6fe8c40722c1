"""Token ids on disk: Arrow IPC files, one row a document, opened by memory map.

In: the folder of one part, as store_writer.py fills it.  Out: a Store.
`datasets`, polars and pyarrow open the shards as they are.  Next: prepared.py, pairs.py
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.errors import InputError
from bertkit.files import sha256_of_file

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PARTS = ("train", "validation", "test")
COUNTS = ("documents", "sentences", "tokens", "unknown_tokens")
# Tokens in one file, which the writer holds in memory: at 1 << 24 the peak rose from 193 to 332 MB between 10 MB and
# 100 MB of text, at 1 << 20 from 216 to 228.
SHARD_TOKENS = 1 << 20


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

    def __reduce__(self) -> tuple[Callable[[Path], "Store"], tuple[Path]]:
        """Travel to another process as a path: the files are opened there anew."""
        return _open_again, (self.directory,)

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

    def token_counts(self, vocab_size: int) -> NDArray[np.int64]:
        """Return how often each id stands in this part, (vocab_size,); every id must be below it."""
        counts = np.zeros(vocab_size, np.int64)
        for tokens in self.shard_tokens:
            counts += np.bincount(tokens, minlength=vocab_size)
        return counts

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


def open_store(directory: str | Path, *, check_hashes: bool = True) -> Store:
    """Return one part of a store, its tokens memory-mapped.

    check_hashes: whether every byte is read and compared with the manifest.

    Raises:
        InputError: no store there, or a shard that is missing or not what the manifest says.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    tokens, sentence_lengths, sentence_counts, word_starts = [], [], [], []
    for shard in manifest["shards"]:
        batch = _open_shard(directory / shard["file"], shard, check_hashes=check_hashes)
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


def _open_again(directory: Path) -> Store:
    """What was checked when it was opened first."""
    return open_store(directory, check_hashes=False)


def _open_shard(path: Path, expected: dict[str, Any], *, check_hashes: bool) -> pa.RecordBatch:
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
    if check_hashes and sha256_of_file(path) != expected["sha256"]:
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
