"""The tensors of a model folder: what their headers say, and one after the other read to where it is wanted.

In: a ForeignFolder with model.safetensors, its shards, or (on demand) pytorch_model.bin.  Out: names, shapes, numbers.
Next: pretrained.py
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.config import json_object
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.model.huggingface import Shape

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
EXPORTED = ("model.onnx", "model.pt2")  # what `bertkit export` writes
MAX_HEADER_BYTES = 4 * 2**20  # some 25,000 tensors; a BERT of 24 layers needs 50,000 bytes
MAX_TENSORS = 20_000
MAX_SHARDS = 1_000
_LENGTH = struct.Struct("<Q")  # a file begins with the length of its header
_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8},
    "BOOL": torch.bool,
}
_REMEDY = "save the model as safetensors into this folder"


class Weights(Protocol):
    """Tensors on disk (or just read from it), by name."""

    file: str  # the name of the file, or of the first, for errors
    num_bytes: int  # of all tensors together
    shapes: dict[str, Shape]
    dtypes: dict[str, torch.dtype | None]  # None: one that PyTorch's tensors here do not have

    def read(self, name: str, out: Tensor) -> None:
        """Fill the contiguous `out` with the first rows of the tensor, in the precision of `out`."""


def open_weights(folder: ForeignFolder, *, allow_pickle_weights: bool) -> Weights:
    """Return the weights of a model folder: safetensors where there are any; a pickle only if that is allowed.

    Raises:
        InputError: no weights, weights that are a pickle alone, a file damaged or of another form.
    """
    if folder.has(WEIGHTS):
        return SafetensorsFiles(folder, [WEIGHTS])
    if folder.has(INDEX):
        return SafetensorsFiles(folder, *_shards(folder, INDEX))
    pickled = PICKLED if folder.has(PICKLED) else PICKLED_INDEX
    if not folder.has(pickled):
        exported = next((name for name in EXPORTED if folder.has(name)), None)
        if exported is not None:
            raise InputError(
                "holds an exported model, which other programs run, and no weights",
                file=folder.path / exported,
                expected=WEIGHTS,
                remedy="ask the model that it was made of; `bertkit export --input_file` measures the file itself",
            )
        raise InputError("does not exist", file=folder.path / WEIGHTS, expected="the model's weights", remedy=_REMEDY)
    if not allow_pickle_weights:
        raise InputError(
            "is a pickle, which is not opened unless you ask for it",
            file=folder.path / pickled,
            expected=f"{WEIGHTS}, which holds numbers and nothing else",
            remedy="ask its maker for safetensors; or, where you trust the file, --allow_bin (in Python "
            "allow_pickle_weights=True), and `bertkit.save` to keep it as safetensors",
        )
    from bertkit.model.pickled_weights import PickledFiles

    return PickledFiles(folder, *(([PICKLED],) if pickled == PICKLED else _shards(folder, PICKLED_INDEX)))


def _shards(folder: ForeignFolder, index: str) -> tuple[list[str], dict[str, str]]:
    """The names of the shards, sorted, and which tensor is said to lie in which."""
    path = folder.path / index
    values = json_object(folder.read(index, what="an index of shards", remedy=_REMEDY), file=path)
    table = values.get("weight_map")
    kind = ".safetensors" if index == INDEX else ".bin"
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
        raise InputError("names no shards", file=path, field="weight_map", expected='{"tensor": "file", …}')
    wrong = next((name for name in table.values() if "-of-" not in name or not name.endswith(kind)), None)
    shards = sorted(set(table.values()))
    if wrong is not None or len(shards) > MAX_SHARDS or len(table) > MAX_TENSORS:
        raise InputError(
            "names what is no shard" if wrong is not None else f"names {len(shards)} shards of {len(table)} tensors",
            file=path,
            field="weight_map",
            value=wrong,
            expected=f"files like model-00001-of-00002{kind} beside the index, at most {MAX_SHARDS} with "
            f"{MAX_TENSORS} tensors",
        )
    return shards, table


@dataclass(frozen=True)
class _Place:
    """Where the numbers of a tensor lie."""

    descriptor: int
    file: str
    dtype: str
    start: int  # byte of the file
    num_bytes: int


class SafetensorsFiles:
    """One safetensors file or several, whose headers are read and checked before any number is.

    Nothing is mapped into memory: a file cut short while it is read is an error then, not the end of the process.

    Source: the format of huggingface/safetensors; read here, because its reader takes a path and no descriptor.
    """

    def __init__(self, folder: ForeignFolder, names: list[str], table: Mapping[str, str] | None = None) -> None:
        self._folder, self.file, self.num_bytes = folder, names[0], 0
        self._places: dict[str, _Place] = {}
        self.shapes: dict[str, Shape] = {}
        for name in names:
            self._add(name)
        for tensor, name in (table or {}).items():
            if tensor not in self._places or self._places[tensor].file != name:
                raise InputError(f"does not hold {tensor}, as the index says", file=folder.path / name, remedy=_REMEDY)
        self.dtypes = {name: _DTYPES.get(place.dtype) for name, place in self._places.items()}

    def _add(self, name: str) -> None:
        path = self._folder.path / name
        descriptor = self._folder.open(name, what="the model's weights", remedy=_REMEDY)
        header, begin = _header(descriptor, path)
        size = os.fstat(descriptor).st_size - begin
        end = 0
        entries = [(tensor, *_entry(tensor, values, path)) for tensor, values in header.items()]
        for tensor, dtype, shape, first, last in sorted(entries, key=lambda entry: entry[3:]):
            if tensor in self._places:
                raise _damaged(path, f"{tensor} stands in {self._places[tensor].file} too")
            if first != end:
                raise _damaged(path, f"{tensor} begins at byte {first}, the one before it ends at {end}")
            end = last
            self._places[tensor] = _Place(descriptor, name, dtype, begin + first, last - first)
            self.shapes[tensor] = shape
        if end != size:
            raise _damaged(path, f"the header speaks of {end} bytes, {size} follow")
        self.num_bytes += size

    def read(self, name: str, out: Tensor) -> None:
        """Fill the contiguous `out` with the first rows of the tensor, in the precision of `out`.

        Raises:
            InputError: the file became shorter since it was opened.
        """
        place, dtype = self._places[name], self.dtypes[name]
        assert dtype is not None
        target = out if dtype is out.dtype else torch.empty(out.shape, dtype=dtype)
        left = target.view(-1).view(torch.uint8).numpy().data
        at = place.start
        while left:
            count = os.preadv(place.descriptor, [left], at)
            if count == 0:
                raise _damaged(self._folder.path / place.file, f"it ends inside {name}")
            left, at = left[count:], at + count
        if target is not out:
            out.copy_(target)


def _header(descriptor: int, path: os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """The entries of a header without its remarks, and the byte at which the numbers begin."""
    start = os.pread(descriptor, _LENGTH.size, 0)
    if len(start) < _LENGTH.size:
        raise _damaged(path, "it has no header")
    [length] = _LENGTH.unpack(start)
    if length > MAX_HEADER_BYTES:
        raise _damaged(path, f"its header would have {length:,} bytes, more than {MAX_HEADER_BYTES:,}")
    content = os.pread(descriptor, length, _LENGTH.size)
    if len(content) < length:
        raise _damaged(path, "it ends inside its header")
    try:
        header = json_object(content, file=path)
    except InputError as problem:
        raise _damaged(path, f"its header {problem.problem}") from None
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise _damaged(path, f"it names {len(header):,} tensors, more than {MAX_TENSORS:,}")
    return header, _LENGTH.size + length


def _entry(name: str, values: Any, path: os.PathLike[str]) -> tuple[str, Shape, int, int]:
    """Precision, shape, first and last byte of a tensor, as its header has them."""
    if not isinstance(values, dict) or values.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"{name} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = values["dtype"], values["shape"], values["data_offsets"]
    counts = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [-1]
    if not isinstance(dtype, str) or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 2**63 for n in counts):
        raise _damaged(path, f"{name} has dtype {dtype!r}, shape {shape!r}, data_offsets {offsets!r}"[:200])
    number = 1
    for count in shape:
        number *= count
    known = _DTYPES.get(dtype)
    if offsets[1] < offsets[0] or (known is not None and offsets[1] - offsets[0] != number * known.itemsize):
        raise _damaged(path, f"{name} of shape {shape} in {dtype} has {offsets[1] - offsets[0]} bytes"[:200])
    return dtype, tuple(shape), offsets[0], offsets[1]


def _damaged(path: os.PathLike[str], problem: str) -> InputError:
    return InputError(
        f"is damaged or no safetensors file ({problem})", file=os.fspath(path), remedy="copy the checkpoint again"
    )
