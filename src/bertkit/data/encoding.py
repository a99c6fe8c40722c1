"""A chunk of documents as ids: split, tokenized, counted; the work that is shared out to processes.

In: Documents.  Out: EncodedDocuments, flat arrays that travel cheaply.  Next: store.py
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.text.documents import Document
from bertkit.text.fast import EncodedSentences, FastEncoder, joined
from bertkit.text.sentences import sentence_splitter, sentences_of
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import CONTINUATION, Vocabulary
from bertkit.text.words import NO_SEGMENTER, Segmenter, load_segmenter, word_starts


@dataclass(frozen=True)
class EncodingSettings:
    """All that decides the ids of a document; equal settings in every process."""

    tokenizer: Tokenizer
    sentence_end: str | None
    language: str | None
    word_segmenter: str  # "none": no word boundaries are kept

    @property
    def has_word_starts(self) -> bool:
        """Whether word boundaries are kept."""
        return self.word_segmenter != NO_SEGMENTER


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents one after the other; a sentence without a token is left out and counted."""

    ids: list[str]
    tokens: NDArray[np.integer[Any]]  # (tokens,) of the smallest type that holds the ids
    word_starts: NDArray[np.bool_] | None  # (tokens,) whether a word begins with it
    sentence_lengths: NDArray[np.int64]  # (sentences,) tokens of each, at least 1
    sentence_counts: NDArray[np.int64]  # (documents,) sentences kept of each; 0 for a document without a token
    dropped_sentences: NDArray[np.int64]  # (documents,) sentences without a token
    unknown_characters: Counter[str]  # of the words that became [UNK]

    @property
    def token_counts(self) -> NDArray[np.int64]:
        """(documents,) int64."""
        ends = np.concatenate([[0], np.cumsum(self.sentence_lengths)])
        counts: NDArray[np.int64] = np.diff(ends[np.concatenate([[0], np.cumsum(self.sentence_counts)])])
        return counts

    def called(self, ids: list[str]) -> "EncodedDocuments":
        """Return the documents with these ids."""
        return replace(self, ids=ids)

    def between(self, first: int, end: int) -> "EncodedDocuments":
        """Return a copy of the documents from `first` up to `end`; the unknown characters stay with the whole."""
        first_sentence, end_sentence = (int(self.sentence_counts[:place].sum()) for place in (first, end))
        first_token, end_token = (int(self.sentence_lengths[:place].sum()) for place in (first_sentence, end_sentence))
        starts = self.word_starts
        return EncodedDocuments(
            ids=self.ids[first:end],
            tokens=self.tokens[first_token:end_token].copy(),
            word_starts=None if starts is None else starts[first_token:end_token].copy(),
            sentence_lengths=self.sentence_lengths[first_sentence:end_sentence].copy(),
            sentence_counts=self.sentence_counts[first:end].copy(),
            dropped_sentences=self.dropped_sentences[first:end].copy(),
            unknown_characters=Counter(),
        )


Columns = tuple[list[str], list[tuple[str, ...] | None]]  # documents as they travel: far less to pickle


def columns_of(documents: Sequence[Document]) -> Columns:
    """Return texts and given sentences of the documents."""
    return [d.text for d in documents], [d.sentences for d in documents]


def encode_columns(columns: Columns, settings: EncodingSettings) -> EncodedDocuments:
    """Return what `encode_documents` gives for the documents of these columns, but for their own ids."""
    return encode_documents([Document("", *row) for row in zip(*columns, strict=True)], settings).called([])


def encode_documents(documents: Sequence[Document], settings: EncodingSettings) -> EncodedDocuments:
    """Return the documents as ids; a function of them and the settings, in whichever process.

    Raises:
        InputError: what the word segmenter raises.
    """
    split, encoder, segmenter = _tools(settings)
    groups = [sentences_of(document, split) for document in documents]
    sentences = [sentence for group in groups for sentence in group]
    encoded = encoder.encode(sentences)
    has_tokens = encoded.lengths > 0
    counts = np.array([len(group) for group in groups], dtype=np.int64)
    kept = np.diff(np.concatenate([[0], np.cumsum(has_tokens)])[np.concatenate([[0], np.cumsum(counts)])])
    return EncodedDocuments(
        ids=[document.id for document in documents],
        tokens=encoded.ids.astype(settings.tokenizer.dtype),  # half as much to send to another process
        word_starts=None if segmenter is None else word_starts(sentences, encoded, segmenter),
        sentence_lengths=encoded.lengths[has_tokens],
        sentence_counts=kept,
        dropped_sentences=counts - kept,
        unknown_characters=_unknown(sentences, encoded, encoder, settings.tokenizer.vocabulary),
    )


@functools.lru_cache(maxsize=2)
def _tools(settings: EncodingSettings) -> tuple[Callable[[str], list[str]], FastEncoder, Segmenter | None]:
    """The splitter, the encoder and the segmenter, made once in a process."""
    segmenter = load_segmenter(settings.word_segmenter) if settings.has_word_starts else None
    return (
        sentence_splitter(settings.sentence_end, language=settings.language),
        settings.tokenizer.fast_encoder(),
        segmenter,
    )


def _unknown(
    sentences: Sequence[str], encoded: EncodedSentences, encoder: FastEncoder, vocabulary: Vocabulary
) -> Counter[str]:
    """The characters that no entry of the vocabulary has, in the words that became [UNK]; a literal [UNK] is none."""
    counts = Counter[str]()
    unknown = np.flatnonzero(encoded.ids == vocabulary.unk_id)
    if not len(unknown):
        return counts
    text = joined(sentences)
    places = zip(encoded.starts[unknown].tolist(), encoded.ends[unknown].tolist(), strict=True)
    for word, number in Counter(text[start:end] for start, end in places).items():
        for character in "" if encoder.is_literal(word) else encoder.normalized(word).strip():
            if character not in vocabulary.ids and f"{CONTINUATION}{character}" not in vocabulary.ids:
                counts[character] += number
    return counts
