"""Scores of tags → the best allowed tags of each word, and the entities they mark.

In: TaggedExamples, their TagFeatures, logits, a LabelMap.  Out: TaggedAnswers.  Next: metrics/entities.py
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.labels import LabelMap
from bertkit.data.tag_features import TagFeatures
from bertkit.data.tags import OUTSIDE, spans_of, split_tag

Floats = NDArray[np.float64]
SENTENCES_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TaggedAnswer:
    """The tags of one sentence."""

    tags: tuple[str, ...]  # a tag for each word
    scores: tuple[float, ...]  # probability of that tag; 1 of a word without a token
    entities: tuple[dict[str, str | float | int], ...]  # entity_group, score, word, start, end (characters of text)


def allowed_transitions(labels: LabelMap) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which tags may begin a sentence, (labels,) bool, and which may follow which, (labels, labels) bool.

    An I- follows a B- or an I- of its own type, everything else follows anything; plain classes know no rule.

    >>> start, follow = allowed_transitions(LabelMap(("B-X", "I-X", "O")))
    >>> start.tolist(), follow[2].tolist()
    ([True, False, True], [True, False, True])
    """
    parts = [split_tag(name) for name in labels.names]
    if any(part is None for part in parts):
        parts = [None] * len(parts)
    start = np.array([part is None or part[0] != "I" for part in parts], bool)
    follow = np.array(
        [
            [
                to is None or to[0] != "I" or (origin is not None and origin[0] in ("B", "I") and origin[1] == to[1])
                for to in parts
            ]
            for origin in parts
        ],
        bool,
    )
    return start, follow


def viterbi(scores: Sequence[Floats], start: NDArray[np.bool_], follow: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return for each sentence the allowed sequence of labels with the highest sum of scores.

    scores: (words, labels) for each sentence, words ≥ 1.  start: (labels,), follow: (labels, labels), True = allowed.
    Of sequences as good, labels with the lower ids win, later words first.  Each result: (words,) int64.
    """
    if not scores:
        return []
    lengths = np.array([len(sentence) for sentence in scores])
    width, num_labels = int(lengths.max()), len(start)
    padded = np.zeros((len(scores), width, num_labels))
    for row, sentence in enumerate(scores):
        padded[row, : len(sentence)] = sentence
    step = np.where(follow, 0.0, -np.inf)  # (labels from, labels to)
    total = padded[:, 0] + np.where(start, 0.0, -np.inf)  # (batch, labels)
    back = np.zeros((len(scores), width, num_labels), np.int64)
    for word in range(1, width):
        paths = total[:, :, None] + step  # (batch, labels from, labels to)
        back[:, word] = paths.argmax(axis=1)
        moved = paths.max(axis=1) + padded[:, word]
        total = np.where((word < lengths)[:, None], moved, total)  # a sentence that has ended keeps its sums
    found = np.zeros((len(scores), width), np.int64)
    rows = np.arange(len(scores))
    current = total.argmax(axis=1)
    for word in range(width - 1, -1, -1):
        found[:, word] = current
        inside = (word < lengths) & (word > 0)
        current = np.where(inside, back[rows, word, current], current)
    return [found[row, :length] for row, length in enumerate(lengths)]


def decode_tags(
    examples: Sequence[TaggedExample],
    features: Sequence[TagFeatures],
    logits: Sequence[NDArray[np.floating]],
    labels: LabelMap,
    *,
    classes: bool = False,
    constrained: bool = True,
) -> list[TaggedAnswer]:
    """Return the tags of each sentence, as many as it has words, and its entities.

    logits: (seq, labels) for each feature; rows behind its tokens (padding) are not read.
    A word without a token is O, and parts the words before it from those behind.
    classes: the tags are plain classes: any may follow any, and none marks an entity, whatever their names.
    constrained: the best sequence that IOB2 allows; otherwise each word's best tag, whatever stands before it.
    """
    logs = [np.full((len(example.words), len(labels)), np.nan) for example in examples]
    for feature, scores in zip(features, logits, strict=True):
        logs[feature.example][feature.words] = _log_softmax(np.asarray(scores, np.float64)[feature.positions])
    start, follow = allowed_transitions(labels)
    if classes or not constrained:
        start, follow = np.ones_like(start), np.ones_like(follow)
    answers: list[TaggedAnswer] = []
    for begin in range(0, len(examples), SENTENCES_AT_ONCE):
        part = range(begin, min(begin + SENTENCES_AT_ONCE, len(examples)))
        runs = [(place, first, end) for place in part for first, end in _runs(logs[place])]
        paths = viterbi([logs[place][first:end] for place, first, end in runs], start, follow)
        chosen = {place: np.full(len(examples[place].words), -1, np.int64) for place in part}
        for (place, first, end), path in zip(runs, paths, strict=True):
            chosen[place][first:end] = path
        answers += [_answer(examples[place], chosen[place], logs[place], labels, classes=classes) for place in part]
    return answers


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_shares: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_shares


def _runs(logs: Floats) -> list[tuple[int, int]]:
    """The stretches of words that have a token, as (first, behind the last)."""
    has = np.concatenate([[False], ~np.isnan(logs[:, 0]), [False]])
    edges = np.flatnonzero(has[1:] != has[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _answer(
    example: TaggedExample, chosen: NDArray[np.int64], logs: Floats, labels: LabelMap, *, classes: bool
) -> TaggedAnswer:
    tags = tuple(labels.names[id] if id >= 0 else OUTSIDE for id in chosen.tolist())
    scores = tuple(float(np.exp(logs[word, id])) if id >= 0 else 1.0 for word, id in enumerate(chosen.tolist()))
    entities: list[dict[str, str | float | int]] = []
    for type, first, end in () if classes else spans_of(tags):
        start, stop = example.offsets[first][0], example.offsets[end - 1][1]
        entities.append(
            {
                "entity_group": type,
                "score": float(np.mean(scores[first:end])),
                "word": example.text[start:stop],
                "start": start,
                "end": stop,
            }
        )
    return TaggedAnswer(tags, scores, tuple(entities))
