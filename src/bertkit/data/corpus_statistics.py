"""What stands in a store before anything is drawn from it: counts, lengths, repeats, [UNK], frequent tokens.

In: a Store and its Vocabulary.  Out: CorpusStatistics.  Next: pair_statistics.py
Tokens are read a million at a time; some 60 bytes a sentence grow with the corpus, as when its pairs are drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertkit.console import Progress
from bertkit.data.distributions import Distribution, distribution_of
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.text.vocabulary import Vocabulary, joined_tokens

TOKENS_AT_ONCE = 1 << 20
NUM_FREQUENT = 10  # most frequent tokens named
NUM_REPEATED = 3  # most repeated sentences named


@dataclass(frozen=True)
class Named:
    """A token or a sentence, and how often it stands in the store."""

    text: str
    count: int
    share: float  # of all tokens, or of all sentences


@dataclass(frozen=True)
class CorpusStatistics:
    """One part of a store in numbers; a repeat has the very tokens of one before it, and the first is none."""

    documents: int
    sentences: int
    tokens: int
    document_sentences: Distribution
    document_tokens: Distribution
    sentence_tokens: Distribution
    documents_of_one_sentence: int
    repeated_documents: int
    repeated_sentences: int
    most_repeated: list[Named]  # sentences that stand there more than once
    unknown_tokens: int
    unknown_share: float
    entries_used: int  # ordinary entries of the vocabulary that occur
    entries: int  # ordinary entries of the vocabulary
    most_frequent: list[Named]  # tokens


def corpus_statistics(store: Store, vocabulary: Vocabulary) -> CorpusStatistics:
    """Return the numbers of a part.

    Repeats are found by 64-bit hashes of token ids: among 10⁸ different sentences the odds of one false repeat are
    3 in 10,000.

    Raises:
        InputError: the part is empty, or holds an id that the vocabulary lacks.
    """
    if store.num_documents == 0:
        raise InputError("holds no document", file=store.directory, remedy="give a larger corpus, or name another part")
    counts, hashes = _counts_and_hashes(store, vocabulary)
    repeated, most_repeated = _repeats(store, vocabulary, hashes)
    unknown = int(counts[vocabulary.unk_id])
    return CorpusStatistics(
        documents=store.num_documents,
        sentences=store.num_sentences,
        tokens=store.num_tokens,
        document_sentences=distribution_of(store.sentences_per_document),
        document_tokens=distribution_of(np.diff(store.sentence_starts[store.document_sentences])),
        sentence_tokens=distribution_of(np.diff(store.sentence_starts)),
        documents_of_one_sentence=int((store.sentences_per_document == 1).sum()),
        repeated_documents=_num_repeats(np.sort(_document_hashes(store, hashes))),
        repeated_sentences=repeated,
        most_repeated=most_repeated,
        unknown_tokens=unknown,
        unknown_share=unknown / store.num_tokens,
        entries_used=int((counts[vocabulary.ordinary] > 0).sum()),
        entries=int(vocabulary.ordinary.sum()),
        most_frequent=_most_frequent(counts, vocabulary),
    )


def _counts_and_hashes(store: Store, vocabulary: Vocabulary) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """How often each id stands there, (vocab,), and a hash of each sentence, (sentences,); one pass over the tokens."""
    counts, hashes = np.zeros(vocabulary.size, np.int64), np.empty(store.num_sentences, np.uint64)
    stream = Stream(0, "repeats", 0)
    with Progress("counting", total=store.num_tokens, unit="tokens") as progress:
        for first, end in _chunks(store):
            starts = store.sentence_starts[first : end + 1]
            tokens = store.tokens(starts[:1], starts[-1:])
            if int(tokens.max()) >= vocabulary.size:
                raise InputError(
                    "holds an id that the vocabulary lacks",
                    file=store.directory,
                    value=int(tokens.max()),
                    expected=f"ids below {vocabulary.size}, the size of the vocabulary",
                    remedy="take the tokenizer that the store was prepared with",
                )
            begins = starts[:-1] - starts[0]
            place = np.arange(len(tokens)) - np.repeat(begins, np.diff(starts))
            hashes[first:end] = np.add.reduceat(stream.bits(index=tokens, lane=place), begins)
            counts += np.bincount(tokens, minlength=vocabulary.size)
            progress.advance(len(tokens))
    return counts, hashes


def _chunks(store: Store) -> Iterator[tuple[int, int]]:
    """Runs of sentences of about TOKENS_AT_ONCE tokens."""
    marks = np.arange(TOKENS_AT_ONCE, store.num_tokens, TOKENS_AT_ONCE)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(store.sentence_starts, marks), [store.num_sentences]]))
    yield from pairwise(cuts.tolist())


def _document_hashes(store: Store, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    begins = store.document_sentences[:-1]
    place = np.arange(store.num_sentences) - np.repeat(begins, store.sentences_per_document)
    of_documents: NDArray[np.uint64] = np.add.reduceat(
        Stream(0, "repeated documents", 0).bits(index=hashes, lane=place), begins
    )
    return of_documents


def _num_repeats(ordered: NDArray[np.uint64]) -> int:
    return int((ordered[1:] == ordered[:-1]).sum())


def _repeats(store: Store, vocabulary: Vocabulary, hashes: NDArray[np.uint64]) -> tuple[int, list[Named]]:
    """How many sentences repeat an earlier one, and those that stand there most often."""
    ordered = np.sort(hashes)
    kinds, more = np.unique(ordered[1:][ordered[1:] == ordered[:-1]], return_counts=True)
    # By count, then by hash: the same order on any machine.
    most = np.argsort(-more, kind="stable")[:NUM_REPEATED].tolist()
    named = []
    for kind in most:
        place, count = int(np.argmax(hashes == kinds[kind])), int(more[kind]) + 1
        ids = store.tokens(store.sentence_starts[place : place + 1], store.sentence_starts[place + 1 : place + 2])
        text = joined_tokens([vocabulary.tokens[id] for id in ids.tolist()])
        named.append(Named(text, count, count / len(hashes)))
    return int(more.sum()), named


def _most_frequent(counts: NDArray[np.int64], vocabulary: Vocabulary) -> list[Named]:
    ids = np.argsort(-counts, kind="stable")[:NUM_FREQUENT].tolist()
    total = int(counts.sum())
    return [Named(vocabulary.tokens[id], int(counts[id]), int(counts[id]) / total) for id in ids if counts[id]]
