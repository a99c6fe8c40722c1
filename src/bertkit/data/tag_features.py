"""Tagged sentences → rows of ids in which each word is decided exactly once, however long the sentence.

In: TaggedExamples, a Tokenizer, a LabelMap.  Out: TagFeatures.  Next: tag_decoding.py
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.labels import LabelMap, require_known_labels
from bertkit.data.features import (
    IGNORE_INDEX,
    SINGLE_SPECIAL,
    CoverageReport,
    deciding_windows,
    require_room,
    word_windows,
)
from bertkit.data.tags import OUTSIDE
from bertkit.text.tokenizer import Ids, Tokenizer, with_special_tokens


@dataclass(frozen=True, slots=True)
class TagFeatures:
    """One window of a sentence; whole words only."""

    input_ids: Ids  # (seq,) int64
    token_type_ids: Ids  # (seq,) int64
    example: int  # place of its sentence
    words: NDArray[np.int64]  # (n,) the words that are decided in this window
    positions: NDArray[np.int64]  # (n,) where the first sub-token of each stands in it
    labels: NDArray[np.int64]  # (seq,) the id of the tag at those positions, IGNORE_INDEX everywhere else


class _WordEncoder:
    """Ids of single words; most words of a text have been met before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, Ids] = {}

    def encode(self, words: Sequence[str]) -> list[Ids]:
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        self._known.update(zip(new, self._tokenizer.encode_ids(new), strict=True))
        return [self._known[word] for word in words]


def build_tag_features(
    examples: Sequence[TaggedExample],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    labels: LabelMap | None,
    coverage: CoverageReport,
    stride: int | None = None,
) -> list[TagFeatures]:
    """Return the windows of all sentences, in order; every word with a token is decided in exactly one of them.

    That is the window in which it has the most context.  A word without a token (a blank, U+200B, "") is in none, and
    moves nobody else's tag.  Of a word with more tokens than a window holds, the first ones stay.
    labels: None where there are none to learn; stride: tokens between two windows; None: half a window.

    Raises:
        InputErrors: a tag that the map does not have.
        InputError: no room for a word.
    """
    if labels is not None:
        require_known_labels(examples, labels)
    room = require_room(max_seq_length, special=SINGLE_SPECIAL, texts=1)
    step = max(1, room // 2) if stride is None else stride
    encoder = _WordEncoder(tokenizer)
    features: list[TagFeatures] = []
    for place, example in enumerate(examples):
        pieces = encoder.encode(example.words)
        words = np.array([word for word, ids in enumerate(pieces) if len(ids)], np.int64)
        kept = [pieces[word][:room] for word in words]
        coverage.num_examples += 1
        coverage.num_words += len(pieces)
        coverage.num_words_without_token += len(pieces) - len(words)
        given, stay = sum(map(len, pieces)), sum(map(len, kept))
        coverage.num_tokens += given
        coverage.num_unknown_tokens += sum(int((ids == tokenizer.vocabulary.unk_id).sum()) for ids in pieces)
        coverage.num_cut_tokens += given - stay
        coverage.num_cut_examples += given > stay
        coverage.num_empty_examples += given == 0
        tags = None if labels is None or example.tags is None else [labels.label2id[tag] for tag in example.tags]
        if tags is not None and example.tags is not None:
            coverage.num_labels += len(tags)
            without = set(range(len(pieces))) - set(words.tolist())
            coverage.num_lost_labels += sum(example.tags[word] != OUTSIDE for word in without)
        rows = _rows(place, words, kept, tags, tokenizer, room=room, stride=step)
        coverage.num_windows += len(rows)
        features += rows
    return features


def _rows(
    place: int,
    words: NDArray[np.int64],
    kept: list[Ids],
    tags: list[int] | None,
    tokenizer: Tokenizer,
    *,
    room: int,
    stride: int,
) -> list[TagFeatures]:
    """The windows of one sentence."""
    counts = [len(ids) for ids in kept]
    windows = word_windows(counts, room=room, stride=stride) if counts else [(0, 0)]
    chosen = deciding_windows(counts, windows)
    rows = []
    for number, (first, end) in enumerate(windows):
        ids = np.concatenate(kept[first:end]) if end > first else np.zeros(0, np.int64)
        input_ids, token_type_ids = with_special_tokens(ids, None, tokenizer.vocabulary)
        begins = 1 + np.cumsum([0, *counts[first:end]])[:-1]  # behind [CLS]
        decided = chosen[first:end] == number
        positions = begins[decided].astype(np.int64)
        here = words[first:end][decided]
        targets = np.full(len(input_ids), IGNORE_INDEX, np.int64)
        if tags is not None:
            targets[positions] = [tags[word] for word in here]
        rows.append(TagFeatures(input_ids, token_type_ids, place, here, positions, targets))
    return rows
