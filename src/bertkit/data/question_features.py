"""Questions on texts → windows over each text, the question before every one of them.

In: QuestionExamples, a Tokenizer.  Out: QuestionFeatures.  Next: answers.py
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.example import QuestionExample
from bertkit.data.features import IGNORE_INDEX, PAIR_SPECIAL, CoverageReport, window_starts
from bertkit.errors import InputError
from bertkit.text.tokenizer import Encoding, Ids, Tokenizer, with_special_tokens

CLS_POSITION = 0
OUTSIDE_CONTEXT = -1  # the offset of a token that is not of the context


@dataclass(frozen=True)
class WindowSettings:
    """How windows are laid over a context; all in tokens."""

    max_seq_length: int = 384  # of a row, special tokens included
    doc_stride: int = 128  # from the start of a window to that of the next; windows overlap by the rest
    max_query_length: int = 64  # of a question; the rest is cut off and counted


@dataclass(frozen=True, slots=True)
class QuestionFeatures:
    """One window: `[CLS] question [SEP] part of the context [SEP]`."""

    input_ids: Ids  # (seq,) int64
    token_type_ids: Ids  # (seq,) int64
    example: int  # place of its question
    offsets: NDArray[np.int64]  # (seq, 2) characters of the context, end exclusive; -1 outside the context
    start_position: int  # token where the answer begins; see build_question_features
    end_position: int  # its last token


def build_question_features(
    examples: Sequence[QuestionExample],
    tokenizer: Tokenizer,
    *,
    settings: WindowSettings,
    unanswerable: bool,
    coverage: CoverageReport,
) -> list[QuestionFeatures]:
    """Return the windows of all questions, in order; together they hold every token of each context.

    The target is the first answer of a question.  Where it does not lie whole in a window, both positions are 0
    ([CLS]) if `unanswerable`, that is if the data hold questions without an answer (SQuAD 2.0), else IGNORE_INDEX.

    Raises:
        InputError: windows too short for the longest question, or a doc_stride that would leave tokens out: before
            anything is built.
    """
    questions = tokenizer.encode_ids([example.question for example in examples])
    longest = min(max(map(len, questions), default=0), settings.max_query_length)
    _require_cover(settings, longest)
    features: list[QuestionFeatures] = []
    context, encoding = None, None
    for place, (example, asked) in enumerate(zip(examples, questions, strict=True)):
        if encoding is None or example.context != context:  # questions on one context follow each other
            context, encoding = example.context, tokenizer.encode(example.context)
        coverage.num_cut_questions += len(asked) > settings.max_query_length
        coverage.num_cut_tokens += max(0, len(asked) - settings.max_query_length)
        coverage.num_tokens += len(asked) + len(encoding.ids)
        unknown = tokenizer.vocabulary.unk_id
        coverage.num_unknown_tokens += int((asked == unknown).sum() + (encoding.ids == unknown).sum())
        coverage.num_examples += 1
        coverage.num_empty_examples += len(encoding.ids) == 0
        rows = _windows(place, asked[: settings.max_query_length], encoding, example, settings, tokenizer, unanswerable)
        _count_answer(example, encoding, rows, coverage)
        coverage.num_windows += len(rows)
        features += rows
    return features


def _require_cover(settings: WindowSettings, longest: int) -> None:
    """Refuse windows that would leave tokens of a context out beside a question of `longest` tokens.

    Raises:
        InputError: no room is left for the context, or doc_stride is more than that room.
    """
    room = settings.max_seq_length - PAIR_SPECIAL - longest
    if room < 1:
        raise InputError(
            f"leaves no room for the context beside a question of {longest} tokens",
            field="--max_seq_length",
            value=settings.max_seq_length,
            expected=f"more than {PAIR_SPECIAL + longest}",
            remedy="raise --max_seq_length or lower --max_query_length",
        )
    if not 1 <= settings.doc_stride <= room:
        raise InputError(
            f"a window holds {room} tokens of the context beside a question of {longest} tokens, so windows "
            f"{settings.doc_stride} apart would leave tokens out",
            field="--doc_stride",
            value=settings.doc_stride,
            expected=f"1 to {room}: the step between the starts of two windows, not their overlap",
            remedy="lower --doc_stride or --max_query_length, or raise --max_seq_length",
        )


def _windows(
    place: int,
    asked: Ids,
    encoding: Encoding,
    example: QuestionExample,
    settings: WindowSettings,
    tokenizer: Tokenizer,
    unanswerable: bool,
) -> list[QuestionFeatures]:
    """The windows of one question."""
    room = settings.max_seq_length - PAIR_SPECIAL - len(asked)
    before = len(asked) + 2  # [CLS] question [SEP]
    places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    gold = answer_tokens(example, encoding)
    elsewhere = CLS_POSITION if unanswerable else IGNORE_INDEX
    rows = []
    for start in window_starts(len(encoding.ids), room=room, stride=settings.doc_stride):
        end = min(start + room, len(encoding.ids))
        input_ids, token_type_ids = with_special_tokens(asked, encoding.ids[start:end], tokenizer.vocabulary)
        offsets = np.full((len(input_ids), 2), OUTSIDE_CONTEXT, np.int64)
        offsets[before : before + end - start] = places[start:end]
        first = last = elsewhere
        if gold is not None and start <= gold[0] and gold[1] < end:
            first, last = gold[0] - start + before, gold[1] - start + before
        rows.append(QuestionFeatures(input_ids, token_type_ids, place, offsets, first, last))
    return rows


def answer_tokens(example: QuestionExample, encoding: Encoding) -> tuple[int, int] | None:
    """Return the first and the last token of the context that share a character with the first answer.

    None: there is no answer, or no token has a character of it.
    """
    if not example.answers:
        return None
    answer = example.answers[0]
    places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    inside = np.flatnonzero((places[:, 1] > answer.start) & (places[:, 0] < answer.start + len(answer.text)))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def _count_answer(
    example: QuestionExample, encoding: Encoding, rows: list[QuestionFeatures], coverage: CoverageReport
) -> None:
    if not example.answers:
        return
    coverage.num_answers += 1
    gold = answer_tokens(example, encoding)
    if gold is None or not any(row.start_position > CLS_POSITION for row in rows):
        coverage.num_lost_answers += 1
        return
    answer = example.answers[0]
    start, end = encoding.offsets[gold[0]][0], encoding.offsets[gold[1]][1]
    text = answer.text
    trimmed = answer.start + len(text) - len(text.lstrip()), answer.start + len(text.rstrip())
    coverage.num_widened_answers += (start, end) != trimmed
