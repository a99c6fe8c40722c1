"""Vectors into a file, one text at a time, whatever their number: .npz, .jsonl or .parquet.

In: Embeddings, in order.  Out: a file that is whole or absent.  Next: commands/embed.py
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertkit.errors import InputError
from bertkit.files import file_written_atomically
from bertkit.pipelines.embedding import Embedding
from bertkit.text.vocabulary import Vocabulary

DECIMALS = 6  # of a number in JSON, as in Google's extract_features.py
ROWS_AT_ONCE = 256  # of a row group

Write = Callable[[Embedding], None]


@contextmanager
def vector_file(
    path: Path, *, width: int, tokens: bool, layers: Sequence[int | str], vocabulary: Vocabulary
) -> Iterator[Write]:
    """Yield a function that writes one Embedding; at the end the file is there.

    width: of a vector. tokens: whether there is one vector a token.
    layers: what stands side by side in a vector of a token, for JSON: [−1, −2], or ["sum"].

    Raises:
        InputError: the name ends in none of .npz, .jsonl, .parquet.
    """
    kinds = {".npz": _npz, ".jsonl": _jsonl, ".parquet": _parquet}
    if path.suffix not in kinds:
        expected = "a name that ends in .npz, .jsonl or .parquet"
        raise InputError("says no format by its name", field="--output_file", value=str(path), expected=expected)
    path.parent.mkdir(parents=True, exist_ok=True)
    with kinds[path.suffix](path, width, tokens, layers, vocabulary) as write:
        yield write


@contextmanager
def _npz(path: Path, width: int, tokens: bool, _layers: Sequence[int | str], _: Vocabulary) -> Iterator[Write]:
    """NumPy: vectors (texts or tokens, width) float32, cut (texts,); with tokens also offsets (texts + 1,), input_ids.

    The tokens of text i are vectors[offsets[i]:offsets[i + 1]].
    """
    with ExitStack() as stack:
        # Their lengths are known at the end only, so the arrays are first written without their headers.
        vectors, ids = (stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for _ in range(2))
        lengths, cut = list[int](), list[bool]()

        def write(embedding: Embedding) -> None:
            vectors.write(np.ascontiguousarray(embedding.vectors, dtype=np.float32).data)
            ids.write(embedding.input_ids.data)
            lengths.append(len(embedding.input_ids))
            cut.append(embedding.cut)

        yield write
        rows = sum(lengths) if tokens else len(lengths)
        with file_written_atomically(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            _member(archive, "vectors", vectors, np.dtype(np.float32), (rows, width))
            if tokens:
                _member(archive, "input_ids", ids, np.dtype(np.int64), (rows,))
                _array(archive, "offsets", np.cumsum([0, *lengths], dtype=np.int64))
            _array(archive, "cut", np.array(cut, dtype=bool))


def _member(archive: zipfile.ZipFile, name: str, source: IO[bytes], dtype: Any, shape: tuple[int, ...]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(member, header)
        source.seek(0)
        shutil.copyfileobj(source, member, 2**20)


def _array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def _jsonl(
    path: Path, _width: int, tokens: bool, layers: Sequence[int | str], vocabulary: Vocabulary
) -> Iterator[Write]:
    """One object a text; with tokens Google's: linex_index, features[token, layers[index, values]]."""
    with file_written_atomically(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        number = 0

        def write(embedding: Embedding) -> None:
            nonlocal number
            if tokens:
                features = list(_features(embedding, layers, vocabulary))
                row = {"linex_index": number, "cut": embedding.cut, "features": features}
            else:
                row = {"index": number, "cut": embedding.cut, "vector": _numbers(embedding.vectors)}
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            number += 1

        yield write
        file.flush()


def _features(embedding: Embedding, layers: Sequence[int | str], vocabulary: Vocabulary) -> Iterable[dict[str, Any]]:
    for id, vector in zip(embedding.input_ids.tolist(), embedding.vectors, strict=True):
        parts = np.split(vector, len(layers))
        values = [{"index": layer, "values": _numbers(part)} for layer, part in zip(layers, parts, strict=True)]
        yield {"token": vocabulary.tokens[id], "layers": values}


def _numbers(vector: NDArray[np.float32]) -> list[float]:
    return [round(number, DECIMALS) for number in vector.tolist()]


@contextmanager
def _parquet(
    path: Path, width: int, tokens: bool, _layers: Sequence[int | str], vocabulary: Vocabulary
) -> Iterator[Write]:
    """Columns index, cut, and vector (a list of width numbers), or tokens and vectors (a list of such lists)."""
    vector = pa.list_(pa.float32(), width)
    kind = [("tokens", pa.list_(pa.string())), ("vectors", pa.list_(vector))] if tokens else [("vector", vector)]
    schema = pa.schema([("index", pa.int64()), ("cut", pa.bool_()), *kind])
    waiting: list[Embedding] = []
    start = 0
    with file_written_atomically(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:

        def write(embedding: Embedding) -> None:
            waiting.append(embedding)
            if len(waiting) == ROWS_AT_ONCE:
                flush()

        def flush() -> None:
            nonlocal start
            if not waiting:
                return
            flat = pa.array(np.concatenate([one.vectors.reshape(-1) for one in waiting]), pa.float32())
            columns: list[Any] = [
                pa.array(range(start, start + len(waiting)), pa.int64()),
                pa.array([one.cut for one in waiting], pa.bool_()),
            ]
            vectors = pa.FixedSizeListArray.from_arrays(flat, width)
            if tokens:
                columns.append(pa.array([[vocabulary.tokens[id] for id in one.input_ids.tolist()] for one in waiting]))
                ends = np.cumsum([0, *(len(one.input_ids) for one in waiting)])
                vectors = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), vectors)
            writer.write_table(pa.Table.from_arrays([*columns, vectors], schema=schema))
            start += len(waiting)
            waiting.clear()

        yield write
        flush()
