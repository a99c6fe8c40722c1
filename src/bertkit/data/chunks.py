"""A corpus in chunks, each sorted by part, without what an earlier, killed build has finished.

In: CorpusSettings and how many documents of each part are done.  Out: Chunks; reports filled on the way.
Next: encoding.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.data.repeats import RepeatCounter
from bertkit.data.store import PARTS
from bertkit.data.store_key import PreparationSettings
from bertkit.text.corpus import CorpusReport, open_corpus
from bertkit.text.documents import CorpusSettings, Document
from bertkit.text.parts import digests_of, parts_of

CHUNK_BYTES = 1 << 18  # text encoded at a time
BYTES_OF_A_CHARACTER = 3  # of Chinese in UTF-8; near enough for chunks and progress


@dataclass(frozen=True)
class Chunk:
    """Documents that are encoded together: those of the first part, then of the second, then of the third."""

    documents: list[Document]
    ends: list[int]  # (parts,) where the documents of each part end
    size: int  # bytes of text, those of documents that an earlier build has done included


def read_chunks(
    corpus: CorpusSettings,
    settings: PreparationSettings,
    done: Sequence[int],
    report: CorpusReport,
    repeats: RepeatCounter,
) -> Iterator[Chunk]:
    """Yield the documents of a corpus in chunks of about CHUNK_BYTES, those of one part in their order.

    done: for each part, how many of its documents are passed over, as they stand in finished files.

    Raises:
        InputError: what reading and cleaning raise.
    """
    met = [0] * len(PARTS)
    with open_corpus(corpus, settings.cleaning, report) as read:
        for documents, size in _groups(read):
            digests = digests_of(document.text for document in documents)
            repeats.add(digests[:, :8].copy().view(np.uint64).ravel())
            parts = parts_of(digests, validation_split=settings.validation_split)
            chunk, ends = list[Document](), list[int]()
            for part in range(len(PARTS)):
                places = np.flatnonzero(parts == part)
                chunk += [documents[place] for place in places[max(0, done[part] - met[part]) :].tolist()]
                ends.append(len(chunk))
                met[part] += len(places)
            yield Chunk(chunk, ends, size)


def _groups(read: Iterator[Document]) -> Iterator[tuple[list[Document], int]]:
    """(documents, about how many bytes their text takes), CHUNK_BYTES or a little more but for the last."""
    documents, size = list[Document](), 0
    for document in read:
        documents.append(document)
        size += len(document.text) * (1 if document.text.isascii() else BYTES_OF_A_CHARACTER)
        if size >= CHUNK_BYTES:
            yield documents, size
            documents, size = [], 0
    if documents:
        yield documents, size
