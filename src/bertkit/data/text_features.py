"""Labelled texts → rows of ids with their labels, every token in a row or counted as cut.

In: TextExamples, ChoiceExamples, a Tokenizer, a LabelMap.  Out: TextFeatures, ChoiceFeatures.
Next: tag_features.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.example import ChoiceExample, TextExample
from bertkit.data.examples.labels import LabelMap, require_known_labels
from bertkit.data.features import (
    IGNORE_INDEX,
    PAIR_SPECIAL,
    SINGLE_SPECIAL,
    CoverageReport,
    require_room,
    trimmed_lengths,
    window_starts,
)
from bertkit.errors import InputError
from bertkit.text.tokenizer import Ids, Tokenizer, with_special_tokens

TEXTS_AT_ONCE = 1024  # texts whose tokens are in memory together


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """One row: a text, two texts, or a window of a text."""

    input_ids: Ids  # (seq,) int64
    token_type_ids: Ids  # (seq,) int64
    example: int  # place of its example
    label: int  # id of its class, or IGNORE_INDEX
    labels: NDArray[np.float32] | None  # (num_labels,) 0 or 1: where a text may have several classes
    score: float | None  # regression


@dataclass(frozen=True, slots=True)
class ChoiceFeatures:
    """The rows of one question, a row a choice."""

    input_ids: tuple[Ids, ...]  # choices times (seq,) int64
    token_type_ids: tuple[Ids, ...]  # choices times (seq,) int64
    example: int
    label: int  # place of the right one, or IGNORE_INDEX


def build_text_features(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    labels: LabelMap,
    coverage: CoverageReport,
    long_texts: Literal["cut", "windows"] = "cut",
    stride: int | None = None,
) -> list[TextFeatures]:
    """Return the rows of all examples, in order; one a text, or with long_texts="windows" several of a long one.

    Of two texts the longer is trimmed at its end, until both fit.
    labels: of the model; empty for a regression.  stride: tokens between two windows; None: half a window.

    Raises:
        InputErrors: a label that the map does not have.
        InputError: no room for a text; windows of two texts; a stride that leaves tokens out.
    """
    require_known_labels(examples if len(labels) else (), labels)
    features: list[TextFeatures] = []
    for begin in range(0, len(examples), TEXTS_AT_ONCE):
        part = examples[begin : begin + TEXTS_AT_ONCE]
        first = tokenizer.encode_ids([example.text for example in part])
        second = iter(tokenizer.encode_ids([e.text_pair for e in part if e.text_pair is not None]))
        for place, (example, ids) in enumerate(zip(part, first, strict=True), start=begin):
            pair = next(second) if example.text_pair is not None else None
            if long_texts == "windows" and pair is not None:
                raise InputError(
                    "windows are made of single texts only",
                    file=example.file,
                    line=example.line,
                    expected="long_texts cut for pairs",
                )
            if long_texts == "windows":
                rows = _windows(ids, tokenizer, max_seq_length, stride, coverage)
            else:
                rows = [_row(ids, pair, tokenizer, max_seq_length, coverage)]
            coverage.num_examples += 1
            coverage.num_windows += len(rows)
            label, several = _targets(example, labels)
            features += [TextFeatures(row, types, place, label, several, example.score) for row, types in rows]
    return features


def build_choice_features(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, *, max_seq_length: int, coverage: CoverageReport
) -> list[ChoiceFeatures]:
    """Return for each example the rows (context, choice), as many as it has choices.

    Of context and choice the longer is trimmed at its end, until both fit.

    Raises:
        InputError: no room for two texts.
    """
    features = []
    for place, example in enumerate(examples):
        context, *choices = tokenizer.encode_ids([example.context, *example.choices])
        before = coverage.num_cut_examples, coverage.num_empty_examples
        rows = [_row(context, choice, tokenizer, max_seq_length, coverage) for choice in choices]
        coverage.num_cut_examples = min(coverage.num_cut_examples, before[0] + 1)  # an example, not its rows
        coverage.num_empty_examples = min(coverage.num_empty_examples, before[1] + 1)
        coverage.num_examples += 1
        coverage.num_windows += len(rows)
        input_ids, token_type_ids = zip(*rows, strict=True)
        label = IGNORE_INDEX if example.label is None else example.label
        features.append(ChoiceFeatures(tuple(input_ids), tuple(token_type_ids), place, label))
    return features


def _row(
    ids: Ids, pair: Ids | None, tokenizer: Tokenizer, max_seq_length: int, coverage: CoverageReport
) -> tuple[Ids, Ids]:
    """One row, what does not fit cut off and counted."""
    if pair is None:
        kept, kept_pair = min(len(ids), require_room(max_seq_length, special=SINGLE_SPECIAL, texts=1)), 0
    else:
        room = require_room(max_seq_length, special=PAIR_SPECIAL, texts=2)
        kept, kept_pair = trimmed_lengths(len(ids), len(pair), room=room)
    given = [ids] if pair is None else [ids, pair]
    _count(given, sum(map(len, given)) - kept - kept_pair, tokenizer, coverage)
    return with_special_tokens(ids[:kept], None if pair is None else pair[:kept_pair], tokenizer.vocabulary)


def _windows(
    ids: Ids, tokenizer: Tokenizer, max_seq_length: int, stride: int | None, coverage: CoverageReport
) -> list[tuple[Ids, Ids]]:
    room = require_room(max_seq_length, special=SINGLE_SPECIAL, texts=1)
    _count([ids], 0, tokenizer, coverage)
    starts = window_starts(len(ids), room=room, stride=max(1, room // 2) if stride is None else stride, flag="--stride")
    return [with_special_tokens(ids[start : start + room], None, tokenizer.vocabulary) for start in starts]


def _count(texts: Sequence[Ids], num_cut: int, tokenizer: Tokenizer, coverage: CoverageReport) -> None:
    num_tokens = sum(map(len, texts))
    coverage.num_tokens += num_tokens
    coverage.num_unknown_tokens += sum(int((ids == tokenizer.vocabulary.unk_id).sum()) for ids in texts)
    coverage.num_cut_tokens += num_cut
    coverage.num_cut_examples += num_cut > 0
    coverage.num_empty_examples += num_tokens == 0


def _targets(example: TextExample, labels: LabelMap) -> tuple[int, NDArray[np.float32] | None]:
    if example.labels is not None:
        several = np.zeros(len(labels), np.float32)
        several[[labels.label2id[name] for name in example.labels]] = 1
        return IGNORE_INDEX, several
    return (IGNORE_INDEX if example.label is None else labels.label2id[example.label]), None
