"""Small stores for the tests: documents as lists of sentences of ids, in memory or on disk, and a toy vocabulary."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertkit.data.encoding import EncodedDocuments
from bertkit.data.pairs import PairTable
from bertkit.data.store import Store, open_store
from bertkit.data.store_writer import StoreWriter
from bertkit.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

Documents = Sequence[Sequence[Sequence[int]]]  # document → sentence → id

CHARACTERS = "明月几时有把酒问青天不知上宫阙今夕是何年，。"
WORDS = ["in", "the", "beginning", "god", "created", "heaven", "and", "earth", ",", ".", "##ning", "##s"]
# The special tokens stand apart, and not at the front, so that no test passes by a lucky id.
TOY = Vocabulary((PAD, "[unused1]", *CHARACTERS, UNK, CLS, "[unused2]", SEP, MASK, *WORDS, "[unused99]"))


def vocabulary_of(size: int) -> Vocabulary:
    """A vocabulary of that many tokens: the five special ones, ten unused ones, the rest ordinary."""
    head = [PAD, *(f"[unused{n}]" for n in range(5)), UNK, CLS, SEP, MASK, *(f"[unused{n}]" for n in range(5, 10))]
    return Vocabulary((*head, *(f"t{n}" for n in range(len(head), size))))


def toy_ids(text: str) -> list[int]:
    """Ids of the toy vocabulary: of English words, or of Chinese characters."""
    return [TOY.ids[token] for token in (text.split() if text.isascii() else text)]


def flat(documents: Documents) -> list[int]:
    """All tokens, one after the other."""
    return [token for document in documents for sentence in document for token in sentence]


def memory_store(documents: Documents) -> Store:
    """The store of these documents, without a disk."""
    sentences = [sentence for document in documents for sentence in document]
    tokens = np.array(flat(documents), dtype=np.uint16)
    return store_of_arrays(
        tokens, np.array([len(s) for s in sentences]), sentences_per_document=np.array([len(d) for d in documents])
    )


def store_of_arrays(
    tokens: NDArray[np.uint16], sentence_lengths: NDArray[np.int64], *, sentences_per_document: NDArray[np.int64]
) -> Store:
    """The store of these tokens, without a disk."""
    return Store(
        directory=Path("toy"),
        manifest={},
        sentence_starts=np.concatenate([[0], np.cumsum(sentence_lengths)]).astype(np.int64),
        document_sentences=np.concatenate([[0], np.cumsum(sentences_per_document)]).astype(np.int64),
        shard_starts=np.array([0, len(tokens)]),
        shard_tokens=[tokens],
    )


def song_ci_like_store(*, documents: int, seed: int = 0, vocab_size: int = 6000) -> Store:
    """A store with the lengths of the Song ci: 7.5 sentences of 10.7 tokens a document, 2 % of one sentence."""
    generator = np.random.default_rng(seed)
    counts = np.where(generator.random(documents) < 0.022, 1, generator.integers(2, 14, documents))
    lengths = generator.integers(4, 18, int(counts.sum()))
    tokens = generator.integers(15, vocab_size, int(lengths.sum())).astype(np.uint16)
    return store_of_arrays(tokens, lengths, sentences_per_document=counts)


def written_store(
    directory: Path, documents: Documents, *, vocab_size: int = 100, shard_tokens: int = 1 << 24
) -> Store:
    """The same, written to disk and opened."""
    writer = StoreWriter(directory, vocab_size=vocab_size, unk_id=6, shard_tokens=shard_tokens)
    writer.add(encoded(documents))
    writer.close(vocabulary_hash="0" * 64)
    return open_store(directory)


def encoded(documents: Documents) -> EncodedDocuments:
    """The documents as preparation hands them to the writer, ids poems.txt:0 …"""
    sentences = [sentence for document in documents for sentence in document]
    return EncodedDocuments(
        ids=[f"poems.txt:{number}" for number in range(len(documents))],
        tokens=np.array([token for sentence in sentences for token in sentence], dtype=np.int32),
        word_starts=None,
        sentence_lengths=np.array([len(sentence) for sentence in sentences], dtype=np.int64),
        sentence_counts=np.array([len(document) for document in documents], dtype=np.int64),
        dropped_sentences=np.zeros(len(documents), dtype=np.int64),
        unknown_characters=Counter(),
    )


def documents_of(store: Store) -> list[list[list[int]]]:
    """The documents that a store holds."""
    tokens = store.tokens(np.array([0]), np.array([store.num_tokens])).tolist()
    starts, documents = store.sentence_starts.tolist(), store.document_sentences.tolist()
    return [[tokens[starts[s] : starts[s + 1]] for s in range(first, end)] for first, end in pairwise(documents)]


def rows_of(table: PairTable) -> Iterator[tuple[int, ...]]:
    """(document_a, start_a, end_a, document_b, start_b, end_b, label) of every row, as Python's integers."""
    columns = (table.document_a, table.start_a, table.end_a, table.document_b, table.start_b, table.end_b)
    yield from zip(*(column.tolist() for column in (*columns, table.next_sentence_label)), strict=True)
