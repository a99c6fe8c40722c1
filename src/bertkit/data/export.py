"""Finished instances as files for other trainers, in Hugging Face's column names.

In: Instances, of a store (as training sees them) or of google.py.  Out: one .jsonl or .parquet file.
A few thousand rows are in memory at a time.  Next: ../commands/prepare.py
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertkit.console import Progress
from bertkit.data.instances import masked_rows
from bertkit.data.masking import MaskedRows, MaskingSettings
from bertkit.data.order import global_batch, steps_in_epoch
from bertkit.data.pairs import PairSettings, build_pairs
from bertkit.data.rows import Rows
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.files import file_written_atomically
from bertkit.text.vocabulary import Vocabulary

IGNORE_INDEX = -100  # a position without a label, to PyTorch and Hugging Face
ROWS_AT_ONCE = 4096  # in memory, in a row group of parquet


@dataclass(frozen=True, eq=False)
class Instance:
    """A finished row of training: special tokens in it, tokens hidden, nothing padded."""

    input_ids: NDArray[np.int32]  # (seq,)
    token_type_ids: NDArray[np.int8]  # (seq,): 0 up to and with the first [SEP], then 1
    next_sentence_label: int | None  # 0: B follows A; 1: B is random; None: there is no B
    masked_lm_positions: NDArray[np.int32]  # (n,) ascending
    masked_lm_ids: NDArray[np.int32]  # (n,) the ids that stood there


def store_instances(
    store: Store,
    pairs: PairSettings,
    masking: MaskingSettings,
    vocabulary: Vocabulary,
    *,
    seed: int,
    epochs: int,
    phrases: Phrases | None = None,
) -> Iterator[Instance]:
    """Yield the rows of the first `epochs` epochs, hidden tokens included, in the order in which training takes them.

    Raises:
        InputError: fewer than one epoch; what build_pairs raises.
    """
    if epochs < 1:
        raise InputError("makes no instance", field="epochs", value=epochs, expected="1 or more")
    return chain.from_iterable(
        _instances_of_epoch(store, pairs, masking, vocabulary, phrases, seed, epoch) for epoch in range(epochs)
    )


def _instances_of_epoch(
    store: Store,
    pairs: PairSettings,
    masking: MaskingSettings,
    vocabulary: Vocabulary,
    phrases: Phrases | None,
    seed: int,
    epoch: int,
) -> Iterator[Instance]:
    table = build_pairs(store, pairs, seed=seed, epoch=epoch)
    for step in range(steps_in_epoch(len(table), ROWS_AT_ONCE)):  # the order does not depend on the batch size
        rows = global_batch(seed=seed, epoch=epoch, step=step, num_rows=len(table), batch_size=ROWS_AT_ONCE)
        built, masked = masked_rows(
            store,
            table,
            rows,
            vocabulary=vocabulary,
            masking=masking,
            phrases=phrases,
            seed=seed,
            epoch=0 if pairs.static else epoch,
        )
        labels = None if pairs.pairing == "none" else table.next_sentence_label[rows]
        yield from _cut(built, masked, labels)


def _cut(built: Rows, masked: MaskedRows, labels: NDArray[np.int64] | None) -> Iterator[Instance]:
    """The rows one by one, without their padding."""
    for place, length in enumerate(built.lengths.tolist()):
        positions = np.flatnonzero(masked.selected[place])
        yield Instance(
            input_ids=masked.input_ids[place, :length].astype(np.int32),
            token_type_ids=built.token_type_ids[place, :length].astype(np.int8),
            next_sentence_label=None if labels is None else int(labels[place]),
            masked_lm_positions=positions.astype(np.int32),
            masked_lm_ids=built.input_ids[place, positions].astype(np.int32),
        )


# ---- writing -----------------------------------------------------------------------------------------------------


def write_instances(
    instances: Iterable[Instance],
    path: str | Path,
    *,
    format: Literal["jsonl", "parquet"],
    with_positions: bool = False,
    pad_to: int | None = None,
    pad_id: int | None = None,
) -> int:
    """Write the instances to a file, which appears whole or not at all, and return their number.

    Columns: input_ids, token_type_ids, attention_mask, next_sentence_label (where the rows are pairs) and labels (-100
    where nothing was hidden).
    with_positions: write Google's masked_lm_positions and masked_lm_ids too.
    pad_to: tokens of every row, filled up with [PAD]; None: rows are as long as they are.
    pad_id: the id of [PAD]; needed with pad_to only.

    Raises:
        InputError: no instance; one longer than pad_to; a folder stands at the path.
    """
    assert pad_to is None or pad_id is not None, "pad_to needs the id of [PAD]"
    path = Path(path)
    if path.is_dir():
        raise InputError(
            "is a folder", file=path, expected="the name of a file", remedy=f"name {path / 'train'}.{format}"
        )
    chunks = _chunks(instances, ROWS_AT_ONCE)
    first = next(chunks, None)
    if first is None:
        raise InputError("no instance to write", file=path, remedy="look at the corpus with `bertkit inspect corpus`")
    columns = (_columns(chunk, with_positions, pad_to, pad_id) for chunk in chain([first], chunks))
    write = _write_parquet if format == "parquet" else _write_jsonl
    with file_written_atomically(path) as temporary:
        return write(temporary, columns)


def _chunks(instances: Iterable[Instance], size: int) -> Iterator[list[Instance]]:
    iterator = iter(instances)
    while chunk := list(islice(iterator, size)):
        yield chunk


@dataclass(frozen=True)
class _Column:
    """A column of some rows: row r is values[starts[r] : starts[r + 1]], or values[r] where starts is None."""

    values: NDArray[Any]
    starts: NDArray[np.int32] | None = None


def _columns(chunk: list[Instance], with_positions: bool, pad_to: int | None, pad_id: int | None) -> dict[str, _Column]:
    """The instances as columns by name."""
    lengths = np.array([len(instance.input_ids) for instance in chunk])
    if pad_to is not None and int(lengths.max()) > pad_to:
        raise InputError(
            f"an instance of {lengths.max()} tokens does not fit",
            field="--pad_to",
            value=pad_to,
            expected="at least --max_seq_length",
            remedy="raise --pad_to, or prepare with a smaller --max_seq_length",
        )
    starts = _starts(lengths if pad_to is None else np.full(len(chunk), pad_to))
    slots = np.arange(int(lengths.sum())) + np.repeat(starts[:-1] - _starts(lengths)[:-1], lengths)

    def laid_out(values: NDArray[Any], places: NDArray[np.int64], elsewhere: int) -> _Column:
        column = np.full(starts[-1], elsewhere, dtype=values.dtype)
        column[places] = values
        return _Column(column, starts)

    counts = np.array([len(instance.masked_lm_ids) for instance in chunk])
    positions = np.concatenate([instance.masked_lm_positions for instance in chunk])
    hidden = np.concatenate([instance.masked_lm_ids for instance in chunk])
    input_ids = np.concatenate([instance.input_ids for instance in chunk])
    token_type_ids = np.concatenate([instance.token_type_ids for instance in chunk])
    columns = {
        "input_ids": laid_out(input_ids, slots, pad_id or 0),
        "token_type_ids": laid_out(token_type_ids, slots, 0),
        "attention_mask": laid_out(np.ones(len(slots), np.int8), slots, 0),
    }
    sentence_labels = [instance.next_sentence_label for instance in chunk if instance.next_sentence_label is not None]
    if sentence_labels:
        assert len(sentence_labels) == len(chunk), "some rows are pairs and some are not"
        columns["next_sentence_label"] = _Column(np.array(sentence_labels, np.int64))
    columns["labels"] = laid_out(hidden, np.repeat(starts[:-1], counts) + positions, IGNORE_INDEX)
    if with_positions:
        columns |= {
            "masked_lm_positions": _Column(positions, _starts(counts)),
            "masked_lm_ids": _Column(hidden, _starts(counts)),
        }
    return columns


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _write_jsonl(path: Path, chunks: Iterable[dict[str, _Column]]) -> int:
    """Write an object a row, and return the number of rows."""
    written = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file, _progress() as progress:
        for columns in chunks:
            rows = zip(*(_python_rows(column) for column in columns.values()), strict=True)
            lines = [json.dumps(dict(zip(columns, row, strict=True)), separators=(",", ":")) for row in rows]
            file.write("\n".join([*lines, ""]))
            progress.advance(len(lines))
            written += len(lines)
    return written


def _python_rows(column: _Column) -> list[Any]:
    values: list[Any] = column.values.tolist()
    if column.starts is None:
        return values
    return [values[start:end] for start, end in pairwise(column.starts.tolist())]


def _write_parquet(path: Path, chunks: Iterable[dict[str, _Column]]) -> int:
    """Write a row group a chunk, and return the number of rows."""
    batches = (pa.record_batch({name: _arrow(column) for name, column in columns.items()}) for columns in chunks)
    first = next(batches)
    written = 0
    with pq.ParquetWriter(path, first.schema) as writer, _progress() as progress:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            progress.advance(batch.num_rows)
            written += batch.num_rows
    return written


def _arrow(column: _Column) -> pa.Array:
    values = pa.array(column.values)
    return values if column.starts is None else pa.ListArray.from_arrays(pa.array(column.starts), values)


def _progress() -> Progress:
    return Progress("exporting", total=None, unit="instances")
