"""The one way a model folder is read: named files of known kinds and bounded size, opened inside it and nowhere else.

In: a folder that anybody may have made.  Out: descriptors and bytes of regular files, or an InputError.
Next: weights.py
"""

import os
import re
import stat
from pathlib import Path

from bertkit.errors import InputError

# What may be read: the name, and the most bytes it may have.  Everything else in the folder is left alone.
MEBIBYTE = 2**20
MAX_WEIGHTS_BYTES = 64 * 2**30  # the largest BERT published has 15 GB
_SIZES = (
    (re.compile(r"config\.json"), MEBIBYTE),
    (re.compile(r"task\.json"), MEBIBYTE),
    (re.compile(r"(model\.safetensors|pytorch_model\.bin)\.index\.json"), 4 * MEBIBYTE),
    (re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors"), MAX_WEIGHTS_BYTES),
    (re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin"), MAX_WEIGHTS_BYTES),
    (re.compile(r"vocab\.txt"), 64 * MEBIBYTE),
    (re.compile(r"tokenizer\.json"), 256 * MEBIBYTE),
    (re.compile(r"(tokenizer_config|special_tokens_map|added_tokens)\.json"), 16 * MEBIBYTE),
)
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# A file of the Hugging Face cache is a link of this form, `blobs` standing beside `snapshots`.
_BLOB = re.compile(r"\.\./\.\./blobs/([0-9a-f]{40}|[0-9a-f]{64})")


class ForeignFolder:
    """A model folder, opened once; use it in a `with` statement, which closes it and every file opened by it.

    A file is found by its name alone, below the descriptor of the folder, and must be a regular file: no symbolic
    link (save those of the Hugging Face cache, which lead into the cache's own `blobs`), no FIFO, socket or device,
    and no larger than its kind may be. A hard link is such a file: nothing tells it from a copy.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._opened: list[int] = []

    def __enter__(self) -> "ForeignFolder":
        if not self.path.is_dir():
            raise InputError(
                "is not a model folder" if self.path.exists() else "does not exist",
                file=self.path,
                expected="a folder with config.json and weights",
                remedy="name a RUN of `bertkit pretrain`, one of its checkpoints/step-N, a folder of transformers, or "
                "a model of the Hugging Face hub by its id, such as google-bert/bert-base-chinese",
            )
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._opened.append(self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def has(self, name: str) -> bool:
        """Return whether anything of this name stands in the folder."""
        try:
            os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, name: str, *, what: str, remedy: str) -> int:
        """Return a descriptor of the file for reading, closed with the folder.

        what, remedy: what the file is, and what to do where it is missing.

        Raises:
            InputError: a name of no known kind; nothing, or no regular file, of that name; a file too large.
        """
        limit = limit_of(name, file=self.path)
        folder, entry = self._folder, name
        try:
            found = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                folder, entry = self._behind_link(name)
                found = os.stat(entry, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise InputError("does not exist", file=self.path / name, expected=what, remedy=remedy) from None
        if not stat.S_ISREG(found.st_mode):
            raise InputError("is not a file", file=self.path / name, expected=what, remedy=remedy)
        # Not blocking, should a FIFO have taken its place since.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(entry, flags, dir_fd=folder)
        self._opened.append(descriptor)
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise InputError(
                f"has {size:,} bytes",
                file=self.path / name,
                expected=f"{what}, of at most {limit:,} bytes",
                remedy="check where the folder comes from",
            )
        return descriptor

    def read(self, name: str, *, what: str, remedy: str) -> bytes:
        """Return the bytes of a small file.

        Raises:
            InputError: what `open` raises.
        """
        descriptor = self.open(name, what=what, remedy=remedy)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read()

    def _behind_link(self, name: str) -> tuple[int, str]:
        """The descriptor of the cache's `blobs` and the name in it that a link of the Hugging Face cache leads to."""
        target = os.readlink(name, dir_fd=self._folder)
        blob = _BLOB.fullmatch(target)
        if blob is None or self.path.resolve().parent.name != "snapshots":
            raise InputError(
                "is a symbolic link, which is followed nowhere but in the Hugging Face cache",
                file=self.path / name,
                expected="a file in the folder",
                remedy="copy the file there in place of the link",
            )
        blobs = os.open("../../blobs", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._folder)
        self._opened.append(blobs)
        return blobs, blob[1]


def limit_of(name: str, *, file: Path) -> int:
    """Return the most bytes that a file of this name may have.

    Raises:
        InputError: no file of a model folder has such a name; `file` is where it was asked for.
    """
    for pattern, limit in _SIZES:
        if pattern.fullmatch(name):
            return limit
    raise InputError(
        "is no file of a model folder",
        file=file,
        field="file name",
        value=name,
        expected="config.json, model.safetensors, model-00001-of-00002.safetensors and the like, without a path",
    )


def require_plain_tokenizer_files(directory: str | Path) -> None:
    """Refuse a model folder in which a file of the tokenizer is a link, no file, or too large.

    Raises:
        InputError: with the file's name.
    """
    with ForeignFolder(directory) as folder:
        for name in TOKENIZER_FILES:
            if folder.has(name):
                folder.open(name, what="a file of the tokenizer", remedy="copy the tokenizer again")
