"""A chunk to another process of this machine and back, its text and its ids by a file.

A pipe holds 64 KiB: who writes more to a process that is busy waits for it, and a worker did so half of its time.
In: documents.  Out: EncodedDocuments that another process made.  Next: encoding.py
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.allocator import keep_freed_memory
from bertkit.data.encoding import EncodedDocuments, EncodingSettings, encode_documents
from bertkit.text.documents import Document
from bertkit.text.tokenizer import load_tokenizer


@dataclass(frozen=True)
class SentText:
    """Documents whose texts lie in a file, one after the other."""

    path: Path
    num_bytes: int  # of all texts; what lies behind them is older
    lengths: list[int]  # (documents,) characters
    sentences: list[tuple[str, ...] | None] | None  # None: no document brings its own


@dataclass(frozen=True)
class SentIds:
    """EncodedDocuments whose arrays lie in a file, one after the other."""

    path: Path
    arrays: list[tuple[str, int]]  # type and length of each
    unknown_characters: Counter[str]


def send(documents: Sequence[Document], path: Path) -> SentText:
    """Write the texts of the documents over what a file has, and return what another process needs to know beside."""
    text = "".join([document.text for document in documents]).encode("utf-8")
    with open(path, "r+b") as file:
        file.write(text)
    given = [document.sentences for document in documents]
    lengths = [len(document.text) for document in documents]
    return SentText(path, len(text), lengths, given if any(given) else None)


_REMEMBERED: list[EncodingSettings] = []  # of this process, one at most


def remember(tokenizer_folder: Path, sentence_end: str | None, language: str | None, word_segmenter: str) -> None:
    """Keep the settings for all that this process will encode: what a new process of a pool calls first.

    The tokenizer comes from its files: handed over, it would not fit into the pipe, and each process that is started
    would have to wait until the one before has imported everything.
    """
    keep_freed_memory()
    _REMEMBERED[:] = [EncodingSettings(load_tokenizer(tokenizer_folder), sentence_end, language, word_segmenter)]


def encode_sent(sent: SentText) -> SentIds:
    """Do in another process what `encode_documents` does, with what was remembered; the ids overwrite the text.

    Raises:
        InputError: what the word segmenter raises.
    """
    with open(sent.path, "rb") as text_file:
        text = text_file.read(sent.num_bytes).decode("utf-8")
    ends = accumulate(sent.lengths)
    texts = [text[end - length : end] for end, length in zip(ends, sent.lengths, strict=True)]
    sentences = sent.sentences or [None] * len(texts)
    documents = [Document("", *row) for row in zip(texts, sentences, strict=True)]
    encoded = encode_documents(documents, _REMEMBERED[0])
    arrays: list[NDArray[Any]] = [encoded.sentence_lengths, encoded.sentence_counts, encoded.dropped_sentences]
    arrays += [encoded.tokens] if encoded.word_starts is None else [encoded.tokens, encoded.word_starts]
    with open(sent.path, "r+b") as file:
        for array in arrays:
            file.write(array.data)
    return SentIds(sent.path, [(array.dtype.str, len(array)) for array in arrays], encoded.unknown_characters)


def take(sent: SentIds) -> EncodedDocuments:
    """Return what `encode_documents` gave, but for the documents' own ids."""
    with open(sent.path, "rb") as file:
        lengths, counts, dropped, tokens, *starts = [np.fromfile(file, type, length) for type, length in sent.arrays]
    return EncodedDocuments(
        ids=[],
        tokens=tokens,
        word_starts=starts[0] if starts else None,
        sentence_lengths=lengths,
        sentence_counts=counts,
        dropped_sentences=dropped,
        unknown_characters=sent.unknown_characters,
    )
