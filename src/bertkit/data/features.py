"""What all features have in common: windows over long texts, the share two texts get, and the count of what is cut.

In: numbers of tokens.  Out: where windows begin, how much of two texts stays, a CoverageReport.
Next: text_features.py, tag_features.py, question_features.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import InputError

IGNORE_INDEX = -100  # the same as in model/heads.py, which data/ does not import; a test holds them together
SINGLE_SPECIAL = 2  # [CLS] A [SEP]
PAIR_SPECIAL = 3  # [CLS] A [SEP] B [SEP]


@dataclass
class CoverageReport:
    """What of the data a model gets to see; exact, and shown at the end of every run."""

    num_examples: int = 0
    num_windows: int = 0
    num_tokens: int = 0  # of all texts, without special tokens
    num_unknown_tokens: int = 0  # of them [UNK]
    num_cut_tokens: int = 0  # of them in no window
    num_cut_examples: int = 0  # with such a token
    num_empty_examples: int = 0  # without any token
    num_unlike_examples: int = 0  # single texts for a model of pairs, or pairs for one of single texts
    num_words: int = 0  # of tagged sentences
    num_words_without_token: int = 0  # blanks and control characters: tagged O
    num_labels: int = 0  # of words
    num_lost_labels: int = 0  # of words without a token
    num_cut_questions: int = 0  # longer than max_query_length
    num_answers: int = 0  # questions with an answer
    num_lost_answers: int = 0  # whose answer lies whole in no window
    num_widened_answers: int = 0  # whose answer begins or ends inside a token

    def rows(self) -> list[tuple[str, int]]:
        """Return the counts that are not 0 as rows of a table."""
        names = {
            "examples": self.num_examples,
            "windows": self.num_windows,
            "tokens": self.num_tokens,
            "tokens that the vocabulary does not know, [UNK]": self.num_unknown_tokens,
            "tokens cut off": self.num_cut_tokens,
            "examples with tokens cut off": self.num_cut_examples,
            "examples without any token": self.num_empty_examples,
            "examples unlike the training's: one text for two, or two for one": self.num_unlike_examples,
            "words": self.num_words,
            "words without a token, tagged O": self.num_words_without_token,
            "labelled words": self.num_labels,
            "labels of words without a token": self.num_lost_labels,
            "questions cut to max_query_length": self.num_cut_questions,
            "questions with an answer": self.num_answers,
            "answers that lie whole in no window": self.num_lost_answers,
            "answers widened to whole tokens": self.num_widened_answers,
        }
        return [(name, count) for name, count in names.items() if count]


def require_room(max_seq_length: int, *, special: int, texts: int) -> int:
    """Return how many tokens a row has for its texts.

    special: special tokens of a row; texts: of which each needs a token.

    Raises:
        InputError: not one for each text.
    """
    room = max_seq_length - special
    if room < texts:
        raise InputError(
            "leaves no room for the text",
            field="--max_seq_length",
            value=max_seq_length,
            expected=f"{special + texts} or more: {special} special tokens and one of each text",
        )
    return room


def trimmed_lengths(first: int, second: int, *, room: int) -> tuple[int, int]:
    """Return how many tokens of two texts stay: the longer one loses tokens until both fit (Google's rule).

    Of two as long, the second loses first.  Neither loses its last token where room is 2 or more.

    >>> trimmed_lengths(10, 3, room=8), trimmed_lengths(10, 10, room=7), trimmed_lengths(2, 3, room=8)
    ((5, 3), (4, 3), (2, 3))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half


def window_starts(length: int, *, room: int, stride: int, flag: str = "--doc_stride") -> list[int]:
    """Return where windows of `room` tokens begin, `stride` tokens apart, so that they cover all `length` tokens.

    flag: what the stride is called.

    Raises:
        InputError: the stride is below 1, or above the room so that tokens between two windows would be in none.

    >>> window_starts(10, room=4, stride=3), window_starts(3, room=4, stride=3), window_starts(0, room=4, stride=3)
    ([0, 3, 6], [0], [0])
    """
    if not 1 <= stride <= room:
        raise InputError(
            f"a window holds {room} tokens, so windows {stride} apart would leave tokens out",
            field=flag,
            value=stride,
            expected=f"1 to {room} tokens from the start of a window to that of the next",
            remedy=f"lower {flag} or raise --max_seq_length",
        )
    return list(range(0, max(1, length - room + stride), stride))


def word_windows(token_counts: Sequence[int], *, room: int, stride: int) -> list[tuple[int, int]]:
    """Return (first word, behind the last word) of windows over words that are never cut apart; all words are in one.

    token_counts: tokens of each word, each from 1 to `room`; stride: tokens, about, from a window to the next.

    >>> word_windows([1, 2, 1, 3, 1], room=4, stride=2)
    [(0, 3), (2, 4), (4, 5)]
    """
    starts = np.concatenate([[0], np.cumsum(np.array(token_counts, np.int64))])
    windows: list[tuple[int, int]] = []
    first = 0
    while True:
        end = int(np.searchsorted(starts, starts[first] + room, side="right")) - 1
        windows.append((first, end))
        if end >= len(token_counts):
            return windows
        following = int(np.searchsorted(starts, starts[first] + stride, side="left"))
        first = min(max(following, first + 1), end)


def deciding_windows(token_counts: Sequence[int], windows: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return for each word the window in which it has the most context on its poorer side; of two as good, the first.

    (words,) int64.

    >>> deciding_windows([1, 1, 1, 1, 1, 1], [(0, 4), (2, 6)]).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    starts = np.concatenate([[0], np.cumsum(np.array(token_counts, np.int64))])
    best = np.full(len(token_counts), -1, np.int64)
    chosen = np.zeros(len(token_counts), np.int64)
    for number, (first, end) in enumerate(windows):
        left = starts[first:end] - starts[first]
        right = starts[end] - starts[first + 1 : end + 1]
        context = np.minimum(left, right)
        better = context > best[first:end]
        best[first:end][better] = context[better]
        chosen[first:end][better] = number
    assert all(end >= start for (_, end), (start, _) in pairwise(windows)), "a word is in no window"
    return chosen
