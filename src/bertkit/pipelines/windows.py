"""A text as rows that a model has positions for: one row, cut or not, or windows that overlap.

In: a text or a pair.  Out: Windows; each token of the text is some window's own.  Next: embedding.py
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.pairs import SPECIALS_OF_A_PAIR, SPECIALS_OF_A_TEXT
from bertkit.errors import InputError
from bertkit.text.learning import MAX_WORD_LENGTH
from bertkit.text.tokenizer import Tokenizer, with_special_tokens

LongTexts = Literal["cut", "windows"]
FIRST_CHARACTERS = 4096  # of a text that may be cut: as many are read first, then eight times as many
OVERLAP = 4  # two neighbouring windows share one token in so many


@dataclass(frozen=True)
class Window:
    """One row of the model, and which of its tokens stand for the text."""

    input_ids: NDArray[np.int64]  # (seq,)
    token_type_ids: NDArray[np.int64]  # (seq,)
    own_start: int  # columns of the tokens that no other window has
    own_end: int
    cut: bool  # whether the text went on
    is_last: bool  # of its text


def windows_of(
    text: str | tuple[str, str], tokenizer: Tokenizer, *, what: str, length: int, how: LongTexts
) -> list[Window]:
    """Return the windows of a text or a pair; a special token that stands in it is text like any other.

    what: the text's name in an error. length: tokens of a row, special ones included.
    A pair is cut token by token at the end of its longer side, as Google's code does.

    Raises:
        InputError: a side without a token; a pair longer than `length` that is not to be cut.
    """
    sides = (text,) if isinstance(text, str) else text
    room = length - (SPECIALS_OF_A_TEXT if len(sides) == 1 else SPECIALS_OF_A_PAIR)
    if how == "cut" or len(sides) == 2:
        found = [_first_tokens(side, room, tokenizer) for side in sides]
    else:
        found = [tokenizer.encode_plain([side])[0].astype(np.int64) for side in sides]
    for name, side, ids in zip("AB"[: len(sides)], sides, found, strict=True):
        if not len(ids):
            field = what if len(sides) == 1 else f"{what}, {name}"
            raise InputError("holds no token", field=field, value=side, remedy="give a text with words")
    if len(found) == 1 and how == "windows" and len(found[0]) > room:
        return _windows(found[0], room, tokenizer)
    cut = sum(map(len, found)) > room
    if cut and how == "windows":
        raise InputError(
            f"is a pair of more than {length} tokens, and a pair has no windows",
            field=what,
            value="\t".join(sides)[:1000],
            remedy="use --long_texts cut, or shorten it",
        )
    first = found[0][:room]
    second = None
    if len(found) == 2:
        first, second = _cut_longer(found[0], found[1], room)
    ids, types = with_special_tokens(first, second, tokenizer.vocabulary)
    return [Window(ids, types, 0, len(ids), cut, True)]


def _first_tokens(text: str, room: int, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The first tokens of a text, all of them or more than `room`, without reading a text of megabytes to its end."""
    text, characters = text.lstrip(), FIRST_CHARACTERS  # blanks give no token
    while True:
        ids = tokenizer.encode_plain([text[:characters]])[0].astype(np.int64)
        if characters >= len(text):
            return ids
        # A word that was cut in two has tokens of its own: at most as many as a word may have characters.
        if len(ids) > room + MAX_WORD_LENGTH:
            return ids[: room + 1]
        characters *= 8


def _cut_longer(
    first: NDArray[np.int64], second: NDArray[np.int64], room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    a, b = len(first), len(second)
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return first[:a], second[:b]


def _windows(ids: NDArray[np.int64], room: int, tokenizer: Tokenizer) -> list[Window]:
    """Windows of `room` tokens; a token that stands in two is the own of that in which it is further from the edge."""
    step = max(1, room - room // OVERLAP)
    starts = [*range(0, len(ids) - room, step), len(ids) - room]
    edges = [0, *((left + room + right) // 2 for left, right in pairwise(starts)), len(ids)]
    windows = []
    for number, start in enumerate(starts):
        row, types = with_special_tokens(ids[start : start + room], None, tokenizer.vocabulary)
        is_last = number == len(starts) - 1
        own_start = 0 if number == 0 else edges[number] - start + 1  # 1: behind [CLS]
        own_end = len(row) if is_last else edges[number + 1] - start + 1
        windows.append(Window(row, types, own_start, own_end, False, is_last))
    return windows
