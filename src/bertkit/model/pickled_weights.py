"""Weights in PyTorch's own format, a pickle: opened only where the user asks for it, and then for tensors alone.

In: pytorch_model.bin or its shards.  Out: names, shapes, numbers, as from safetensors.  Next: pretrained.py
"""

import os
import zipfile
from collections.abc import Mapping

import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.model.huggingface import Shape

SAFE_FROM = (2, 10)  # weights_only=True of older releases of PyTorch has known holes
_ZIP = b"PK\x03\x04"


class PickledFiles:
    """The tensors of one or several .bin files, read as a whole when this is made, each let go once it was read.

    Raises:
        InputError: PyTorch is older than SAFE_FROM; a file holds anything but tensors by name, or is damaged.
    """

    def __init__(self, folder: ForeignFolder, names: list[str], table: Mapping[str, str] | None = None) -> None:
        require_safe_torch()
        self.file, self._tensors = names[0], dict[str, Tensor]()
        for name in names:
            tensors = _tensors(folder, name)
            twice = tensors.keys() & self._tensors.keys()
            if twice:
                raise InputError(f"{min(twice)} stands in another shard too", file=folder.path / name)
            self._tensors |= tensors
        missing = sorted((table or {}).keys() - self._tensors.keys())
        if missing:
            raise InputError(f"does not hold {missing[0]}, as the index says", file=folder.path / self.file)
        self.shapes: dict[str, Shape] = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        self.dtypes: dict[str, torch.dtype | None] = {name: tensor.dtype for name, tensor in self._tensors.items()}
        self.num_bytes = sum(tensor.numel() * tensor.itemsize for tensor in self._tensors.values())

    def read(self, name: str, out: Tensor) -> None:
        """Fill `out` with the first rows of the tensor, which is let go then."""
        out.copy_(self._tensors.pop(name)[: len(out)])


def require_safe_torch() -> None:
    """Refuse to unpickle by a PyTorch whose weights_only=True has known holes.

    Raises:
        InputError: with the version.
    """
    version = torch.__version__
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < SAFE_FROM:
        wanted = ".".join(map(str, SAFE_FROM))
        raise InputError(
            "is too old to open a pickle safely",
            field="torch",
            value=version,
            expected=f"{wanted} or newer",
            remedy="pip install -U torch, or use safetensors",
        )


def _tensors(folder: ForeignFolder, name: str) -> dict[str, Tensor]:
    path = folder.path / name
    descriptor = folder.open(name, what="the model's weights", remedy="copy the checkpoint again")
    if os.pread(descriptor, len(_ZIP), 0) == _ZIP:
        _require_stored(descriptor, path)
    os.lseek(descriptor, 0, os.SEEK_SET)  # a copy of a descriptor shares its place in the file
    with os.fdopen(os.dup(descriptor), "rb") as file:
        try:
            values = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as problem:  # it may raise whatever a parser of hostile bytes can; there is no second try
            reason = str(problem).split("\n")[0][:200] or type(problem).__name__
            raise InputError(
                f"is damaged, or holds more than tensors ({reason})",
                file=path,
                expected="tensors by name, as torch.save writes a state dict",
                remedy="ask its maker for safetensors; it is not opened in any other way",
            ) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError("holds no state dict", file=path, expected="tensors by name")
    other = [key for key, value in values.items() if type(value) not in (Tensor, torch.nn.Parameter)]
    if other or any(value.layout is not torch.strided or value.device.type != "cpu" for value in values.values()):
        raise InputError("holds something else than plain tensors", file=path, value=other[:1] or None)
    return {key: value.detach() for key, value in values.items()}


def _require_stored(descriptor: int, path: os.PathLike[str]) -> None:
    """Refuse an archive that would grow when it is opened: PyTorch compresses nothing."""
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(os.dup(descriptor), "rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as problem:
        raise InputError(f"is damaged ({problem})", file=os.fspath(path), remedy="copy the checkpoint again") from None
    whole = sum(entry.file_size for entry in entries)
    if whole > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise InputError(
            f"is an archive of {size:,} bytes that holds {whole:,}",
            file=os.fspath(path),
            expected="what torch.save writes, which compresses nothing",
        )
