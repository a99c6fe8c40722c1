"""A text with hidden tokens, and what it looks like with something in their place: no other character is changed.

In: a text's encoding and the columns hidden.  Out: masked and filled strings, records of candidates.
Next: fill_mask.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertkit.text.tokenizer import Encoding
from bertkit.text.vocabulary import CONTINUATION, MASK


@dataclass(frozen=True)
class FilledText:
    """One text with its masks filled."""

    original: str
    masked: str  # the original with [MASK] where a token was hidden
    filled: str  # the original with the best token at each mask, no other character changed
    candidates: list[list[dict[str, Any]]]  # for each mask by itself: score, token, token_str, sequence; best first
    joint: list[dict[str, Any]] | None = None  # for all together, if asked for: score, tokens, token_strs, sequence


@dataclass(frozen=True)
class Candidate:
    """What may stand at one mask."""

    score: float
    token: int | list[int]  # several for a target that is more than one token
    string: str

    def record(self, sequence: str) -> dict[str, Any]:
        """Return it under the keys of Hugging Face's pipeline; sequence: the text with it in place."""
        return {"score": self.score, "token": self.token, "token_str": self.string, "sequence": sequence}


@dataclass(frozen=True)
class MaskedText:
    """A text with hidden tokens: what the model sees, and where in the string they stand."""

    text: str
    encoding: Encoding  # of the text as given
    ids: NDArray[np.int64]  # (seq,) with [MASK] in place, no special tokens around
    columns: list[int]  # which tokens are hidden, rising

    def filled(self, tops: Sequence[Sequence[Candidate]], joint: list[dict[str, Any]] | None) -> FilledText:
        """Return the record, given the best candidates at each hidden token, and those for all together."""
        masks = [MASK] * len(self.columns)
        candidates = []
        for place, found in enumerate(tops):
            candidates.append(
                [one.record(self.with_strings([*masks[:place], one.string, *masks[place + 1 :]])) for one in found]
            )
        best = joint[0]["token_strs"] if joint else [found[0].string for found in tops]
        return FilledText(self.text, self.with_strings(masks), self.with_strings(best), candidates, joint)

    @cached_property
    def _places(self) -> list[tuple[int, int, list[int]]]:
        """(start, end, columns) of each run of characters in which a token is hidden, in the order of the text.

        The run is one token's, with the accents behind it that were taken off; but a character that the normalizer
        takes apart (한 → ᄒ ᅡ ᆫ where lower-casing) is several tokens.
        """
        offsets, hidden = self.encoding.offsets, set(self.columns)
        starts = {start for start, _ in offsets}
        places = []
        for start, group in groupby(range(len(offsets)), key=lambda column: offsets[column][0]):
            columns = list(group)
            end = offsets[columns[-1]][1]
            while end < len(self.text) and end not in starts and category(self.text[end]) == "Mn":
                end += 1
            if not hidden.isdisjoint(columns):
                places.append((start, end, columns))
        return places

    def with_strings(self, strings: Sequence[str]) -> str:
        """Return the text with the hidden tokens replaced, one string each, every other character as given.

        Where what is put in is what stood there, it has the original's spelling (The, not the).
        """
        shown = dict(zip(self.columns, strings, strict=True))
        parts, end = [], 0
        for start, next_end, columns in self._places:
            old = [string_of(self.encoding.tokens[column]) for column in columns]
            new = [shown.get(column, string) for column, string in zip(columns, old, strict=True)]
            # Accents that were taken off go with the last piece: hidden with it, or left standing behind it.
            accents = "" if columns[-1] in shown else self.text[self.encoding.offsets[columns[-1]][1] : next_end]
            parts += [self.text[end:start], self.text[start:next_end] if new == old else "".join(new) + accents]
            end = next_end
        return "".join([*parts, self.text[end:]])


def string_of(token: str) -> str:
    """Return the token as it stands in a text: without the ## of a continuation."""
    return token.removeprefix(CONTINUATION) or token
