"""Words ↔ the text they stand in.

In: words without a text, a text without words, or both.  Out: the text and where each word stands in it.
Next: conll.py
"""

import re
from collections.abc import Sequence

from bertkit.text.records import need_space

# One Chinese (or Japanese) character, a run of other letters and digits, or any other character that is no blank.
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "|[^\\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
    "|\\S"
)
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

    cuts: places where a word ends in any case.

    >>> words_of("在WTO, 3年", cuts=[2])
    ((0, 1), (1, 2), (2, 4), (4, 5), (6, 7), (7, 8))
    """
    offsets: list[tuple[int, int]] = []
    places = sorted(set(cuts))
    for match in _WORD.finditer(text):
        start, end = match.span()
        inside = [place for place in places if start < place < end] if places else []
        for cut in [*inside, end]:
            offsets.append((start, cut))
            start = cut
    return tuple(offsets)
