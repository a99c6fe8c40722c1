"""To which part of a corpus a text belongs, by a hash of it: training, validation or test.

In: texts.  Out: the part of one, or the digests and the parts of many at once.  Next: data/chunks.py
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray


def part_of(text: str, *, validation_split: bool) -> Literal["train", "validation", "test"]:
    """Return the part of the corpus to which a document with this text belongs, wherever it stands.

    validation_split: False puts every document into the training part.

    >>> [part_of(text, validation_split=True) for text in ("十年生死两茫茫。", "雨恨云愁。", "Gold, surely!")]
    ['train', 'validation', 'test']
    """
    if not validation_split:
        return "train"
    tenth = int.from_bytes(hashlib.sha1(text.encode("utf-8")).digest(), "big") % 10
    return "test" if tenth == 0 else "validation" if tenth == 1 else "train"


def digests_of(texts: Iterable[str]) -> NDArray[np.uint8]:
    """Return the SHA-1 of every text: (texts, 20) uint8."""
    digests = b"".join([hashlib.sha1(text.encode("utf-8")).digest() for text in texts])
    return np.frombuffer(digests, np.uint8).reshape(-1, hashlib.sha1().digest_size)


def parts_of(digests: NDArray[np.uint8], *, validation_split: bool) -> NDArray[np.int64]:
    """Return what `part_of` says of the texts with these digests: (texts,) int64, 0 train, 1 validation, 2 test."""
    if not validation_split:
        return np.zeros(len(digests), np.int64)
    # The digest is a number of 20 digits to base 256, and 256, 256², … all leave 6 when divided by ten.
    tenths = (6 * digests[:, :-1].sum(axis=1, dtype=np.int64) + digests[:, -1]) % 10
    return np.where(tenths == 0, 2, np.where(tenths == 1, 1, 0))
