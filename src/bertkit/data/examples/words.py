"""Words ↔ the text they stand in.

In: words without a text, a text without words, or both.  Out: the text and where each word stands in it.
Next: conll.py
"""

import re
import unicodedata
from collections.abc import Sequence

from bertkit.text.records import need_space

_CHINESE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # and Japanese kana
_RUN = re.compile(f"[^\\W{_CHINESE}]+")  # of other letters and digits
_WORD = re.compile(f"[{_CHINESE}]|{_RUN.pattern}|\\S")  # or any other character that is no blank
Offsets = tuple[tuple[int, int], ...]


def joined_words(words: Sequence[str]) -> tuple[str, Offsets]:
    """Return the words as one text, and where each stands in it; no space between Chinese characters.

    >>> joined_words(["the", "cat", "猫", "。"])
    ('the cat 猫。', ((0, 3), (4, 7), (8, 9), (9, 10)))
    """
    pieces: list[str] = []
    offsets: list[tuple[int, int]] = []
    place, last = 0, ""
    for word in words:
        if last and word and need_space(last, word[0]):
            pieces.append(" ")
            place += 1
        pieces.append(word)
        offsets.append((place, place + len(word)))
        place += len(word)
        last = word[-1] if word else last
    return "".join(pieces), tuple(offsets)


def places_of(words: Sequence[str], text: str) -> Offsets | None:
    """Return where the words stand in the text, one after the other with only blanks between; None: they do not.

    >>> places_of(["Don", "'t", "go"], "Don't  go"), places_of(["a", "b"], "a x b")
    (((0, 3), (3, 5), (7, 9)), None)
    """
    offsets: list[tuple[int, int]] = []
    place = 0
    for word in words:
        start = text.find(word, place)
        if start < 0 or text[place:start].strip():
            return None
        place = start + len(word)
        offsets.append((start, place))
    return tuple(offsets) if not text[place:].strip() else None


def words_of(text: str, *, cuts: Sequence[int] = ()) -> Offsets:
    """Return where the words of a text stand: Chinese characters one by one, runs of letters, other characters.

    A mark stands with what it is written on (é as two code points, the vowels of Hindi), and a run goes on behind it.

    cuts: places where a word ends in any case.

    >>> words_of("在WTO, 3年", cuts=[2])
    ((0, 1), (1, 2), (2, 4), (4, 5), (6, 7), (7, 8))
    """
    offsets: list[tuple[int, int]] = []
    places = sorted(set(cuts))
    for start, end in _whole_words(text):
        inside = [place for place in places if start < place < end] if places else []
        for cut in [*inside, end]:
            offsets.append((start, cut))
            start = cut
    return tuple(offsets)


def _whole_words(text: str) -> list[tuple[int, int]]:
    """The finds of _WORD, joined at combining marks, which are no letters to `re`."""
    found: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if found and found[-1][1] == start:
            begin = found[-1][0]
            goes_on = _is_mark(text[start - 1]) and _is_of_a_run(text[begin]) and _is_of_a_run(text[start])
            if _is_mark(text[start]) or goes_on:
                found[-1] = begin, end
                continue
        found.append((start, end))
    return found


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _is_of_a_run(character: str) -> bool:
    return _RUN.match(character) is not None
