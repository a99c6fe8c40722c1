"""Word boundaries that the tokens do not show: those of Chinese, or of a text that was segmented before.

In: sentences and where their tokens stand.  Out: for each token whether a word begins with it.  Next: data/encoding.py
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import InputError
from bertkit.text.fast import EncodedSentences, sentence_starts
from bertkit.text.records import load_function

Segmenter = Callable[[str], list[str]]
NO_SEGMENTER = "none"
_BY_SPACES = re.compile(r"\S+\s*|\s+")


def load_segmenter(name: str) -> Segmenter:
    """Return the function that cuts a sentence into words which join to it again.

    name: spaces (the text has spaces between its words), rjieba, jieba, or package.module:function.

    Raises:
        InputError: no such segmenter, or its package is not installed.
    """
    if name == "spaces":
        return _BY_SPACES.findall
    if name == "rjieba":
        try:
            import rjieba
        except ImportError:
            raise _missing(name, 'pip install "bertkit[zh]"') from None
        return lambda sentence: list(rjieba.cut(sentence))
    if name == "jieba":
        try:
            import jieba
        except ImportError:
            raise _missing(name, "pip install jieba") from None
        return lambda sentence: list(jieba.cut(sentence))
    if ":" in name:
        function = load_function(name, flag="--word_segmenter")
        return lambda sentence: list(function(sentence))  # type: ignore[call-overload]
    raise InputError(
        "is no word segmenter",
        field="--word_segmenter",
        value=name,
        expected="none, spaces, rjieba, jieba, or package.module:function",
    )


def _missing(name: str, remedy: str) -> InputError:
    return InputError("is not installed", field="--word_segmenter", value=name, remedy=remedy)


def word_starts(sentences: Sequence[str], encoded: EncodedSentences, segmenter: Segmenter) -> NDArray[np.bool_]:
    """Return whether a word begins with each token, (tokens,) bool.

    Where a word ends inside what the tokenizer takes as one (an English word, a number), the words on both sides fall
    back to single tokens.

    Raises:
        InputError: the words of a sentence do not join to it.
    """
    ends = []  # of all words, in the joined text
    for sentence, start in zip(sentences, sentence_starts(sentences).tolist(), strict=True):
        words = segmenter(sentence)
        if "".join(words) != sentence:
            raise InputError(
                "the words of the segmenter do not join to the sentence",
                field="--word_segmenter",
                value=(sentence[:80], words[:20]),
                expected="words which, joined without anything between them, are the sentence",
            )
        ends.append(start + np.cumsum([len(word) for word in words], dtype=np.int64))
    word_ends = np.concatenate(ends) if ends else np.zeros(0, dtype=np.int64)
    first = np.searchsorted(word_ends, encoded.starts, side="right")  # the word in which each token begins
    last = np.searchsorted(word_ends, encoded.ends - 1, side="right")  # and ends
    is_broken = np.zeros(len(word_ends) + 1, dtype=bool)
    crossing = first != last
    is_broken[first[crossing]] = is_broken[last[crossing]] = True
    begins = np.ones(len(first), dtype=bool)
    begins[1:] = first[1:] != first[:-1]
    return begins | is_broken[first]
