"""Many sentences → ids at once: what the `tokenizers` library would say, looked up instead of computed again.

In: strings.  Out: all their ids in one array, and how many each string has.  Next: data/encoding.py

BERT's rules treat a character in one of three ways, whatever stands beside it: it is a token of its own (a Chinese
character, a punctuation mark), it parts words (white space), or it belongs to a word (letters, and what vanishes from
words: control characters, accents). Which, the library itself is asked once for each character that occurs; and what a
word gives, once for each word. The rest is arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import tokenizers
from numpy.typing import NDArray

_UNASKED, _ALONE, _SPACE, _WORD, _ODD = range(5)  # what a character is; _ODD: its whole sentence goes to the library
_CODE_POINTS = 0x110000
_SEPARATOR = "\n"  # stands between two sentences; white space to BERT
_PROBE = "a{}b"  # what becomes of this tells what the character is
MAX_CACHED_WORDS = 1_000_000  # then the memory of words is begun anew, so that it does not grow with the corpus


@dataclass(frozen=True)
class EncodedSentences:
    """Sentences as ids, one after the other; places are counted in all sentences joined by one character."""

    ids: NDArray[np.int32]  # (tokens,)
    lengths: NDArray[np.int64]  # (sentences,) tokens of each
    starts: NDArray[np.int64]  # (tokens,) where the word or character of each token begins
    ends: NDArray[np.int64]  # (tokens,) and ends


class FastEncoder:
    """Encodes with a `tokenizers.Tokenizer` of BERT's rules.

    literal: strings that are one token where they stand; after_rules: those that are looked for in the normalized text.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, *, literal: Sequence[str], after_rules: Sequence[str] = ()
    ) -> None:
        self._tokenizer, self._literal = tokenizer, tuple(literal)
        self._after_rules = tuple(self.normalized(token) for token in after_rules)
        self._kinds = np.zeros(_CODE_POINTS, dtype=np.uint8)
        self._ids = np.zeros(_CODE_POINTS, dtype=np.int32)  # of the characters that are tokens of their own
        self._forget_words()

    def _forget_words(self) -> None:
        self._places: dict[str, int] = {}
        self._starts = np.zeros(1, dtype=np.int64)  # (words + 1,) where each word's ids begin in _word_ids
        self._word_ids = np.zeros(0, dtype=np.int32)

    def encode(self, sentences: Sequence[str]) -> EncodedSentences:
        """Return the ids of all sentences, and where in `joined(sentences)` they stand; none holds half a surrogate."""
        odd = self._odd_sentences(sentences)
        if odd.any():
            return self._mixed(sentences, odd)
        return self._encode(sentences)

    def normalized(self, text: str) -> str:
        """Return the text as the vocabulary is asked for it: lower-cased and without accents where that is the rule."""
        normalized: str = self._tokenizer.normalizer.normalize_str(text)
        return normalized

    def is_literal(self, text: str) -> bool:
        """Return whether the text is one of the strings that are one token where they stand."""
        return text in self._literal

    def _odd_sentences(self, sentences: Sequence[str]) -> NDArray[np.bool_]:
        """Which sentences the arrays cannot do: a literal token stands in them, or a character that vanishes."""
        odd = np.zeros(len(sentences), dtype=bool)
        text = joined(sentences)
        if any(token in text for token in self._literal):
            odd |= [any(token in sentence for token in self._literal) for sentence in sentences]
        if self._after_rules:
            normalized = [self.normalized(sentence) for sentence in sentences]
            odd |= np.array([any(token in sentence for token in self._after_rules) for sentence in normalized], bool)
        points = _code_points(text)
        self._ask_about(points)
        is_odd = self._kinds[points] == _ODD
        if is_odd.any():
            starts = sentence_starts(sentences)
            odd[np.searchsorted(starts, np.flatnonzero(is_odd), side="right") - 1] = True
        return odd

    def _mixed(self, sentences: Sequence[str], odd: NDArray[np.bool_]) -> EncodedSentences:
        """The odd sentences by the library, the others by arrays."""
        plain = self._encode([s for s, is_odd in zip(sentences, odd, strict=True) if not is_odd])
        odd_sentences = [sentences[number] for number in np.flatnonzero(odd).tolist()]
        encodings = self._tokenizer.encode_batch(odd_sentences, add_special_tokens=False)
        lengths = np.zeros(len(sentences), dtype=np.int64)
        lengths[~odd], lengths[odd] = plain.lengths, [len(encoding.ids) for encoding in encodings]
        is_plain = np.repeat(~odd, lengths)
        ids = np.empty(len(is_plain), dtype=np.int32)
        ids[is_plain], ids[~is_plain] = plain.ids, [id for encoding in encodings for id in encoding.ids]
        places = np.zeros((2, len(is_plain)), dtype=np.int64)
        # Within its sentence first (the plain ones were joined without the odd ones), then from the sentence's start.
        own_starts = sentence_starts([s for s, is_odd in zip(sentences, odd, strict=True) if not is_odd])
        places[:, is_plain] = np.stack([plain.starts, plain.ends]) - np.repeat(own_starts, plain.lengths)
        places[:, ~is_plain] = np.array([p for e in encodings for p in _word_places(e)], np.int64).reshape(-1, 2).T
        places += np.repeat(sentence_starts(sentences), lengths)
        return EncodedSentences(ids, lengths, places[0], places[1])

    def _encode(self, sentences: Sequence[str]) -> EncodedSentences:
        text = joined(sentences)
        points = _code_points(text)
        kinds = self._kinds[points]
        alone = np.flatnonzero(kinds == _ALONE)
        in_word = np.concatenate([[False], kinds == _WORD, [False]])
        edges = np.flatnonzero(in_word[1:] != in_word[:-1])
        word_starts, word_ends = edges[0::2], edges[1::2]
        places = self._places_of([text[s:e] for s, e in zip(word_starts.tolist(), word_ends.tolist(), strict=True)])
        word_lengths = self._starts[places + 1] - self._starts[places]
        # Every unit (character alone, word) in the order of the text, and how many ids it gives.
        positions = np.concatenate([alone, word_starts])
        order = np.argsort(positions, kind="stable")
        counts = np.concatenate([np.ones(len(alone), dtype=np.int64), word_lengths])[order]
        ends = np.cumsum(counts)
        firsts = np.empty_like(ends)
        firsts[order] = ends - counts  # where the ids of each unit begin, units as in `positions`
        ids = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
        ids[firsts[: len(alone)]] = self._ids[points[alone]]
        steps = np.arange(int(word_lengths.sum())) - np.repeat(np.cumsum(word_lengths) - word_lengths, word_lengths)
        ids[np.repeat(firsts[len(alone) :], word_lengths) + steps] = self._word_ids[
            np.repeat(self._starts[places], word_lengths) + steps
        ]
        unit_starts, unit_ends = positions[order], np.concatenate([alone + 1, word_ends])[order]
        units_before = np.searchsorted(unit_starts, sentence_starts(sentences))
        lengths = np.diff(np.concatenate([[0], ends])[np.append(units_before, len(ends))])
        return EncodedSentences(ids, lengths, np.repeat(unit_starts, counts), np.repeat(unit_ends, counts))

    def _ask_about(self, points: NDArray[np.uint32]) -> None:
        """Learn from the library what each character is that was not met before."""
        new = np.unique(points[self._kinds[points] == _UNASKED])
        for point in new.tolist():
            character = chr(point)
            encoding = self._tokenizer.normalizer.normalize_str(_PROBE.format(character))
            pieces = [piece for piece, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(encoding)]
            if pieces == ["a", "b"]:
                kind = _SPACE
            elif len(pieces) == 1:
                kind = _WORD
            else:
                ids = self._tokenizer.encode(character, add_special_tokens=False).ids
                kind = _ALONE if len(pieces) == 3 and (pieces[0], pieces[2], len(ids)) == ("a", "b", 1) else _ODD
                self._ids[point] = ids[0] if kind == _ALONE else 0
            self._kinds[point] = kind

    def _places_of(self, words: list[str]) -> NDArray[np.int64]:
        """Return where each word stands in the memory of words; unknown ones are asked for first."""
        places, known = [self._places.get(word, -1) for word in words], self._places
        new = list(dict.fromkeys(word for word, place in zip(words, places, strict=True) if place < 0))
        if new:
            if len(known) + len(new) > MAX_CACHED_WORDS:
                self._forget_words()
                known, new = self._places, list(dict.fromkeys(words))
            encodings = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            lengths = [len(encoding.ids) for encoding in encodings]
            self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(lengths)])
            self._word_ids = np.concatenate(
                [self._word_ids, np.array([id for encoding in encodings for id in encoding.ids], dtype=np.int32)]
            )
            places = [known[word] for word in words]
        return np.array(places, dtype=np.int64)


def _word_places(encoding: tokenizers.Encoding) -> list[tuple[int, int]]:
    """(start, end) of the word of each token; the library gives those of its piece."""
    places: list[tuple[int, int]] = []
    for _, pieces in groupby(zip(encoding.word_ids, encoding.offsets, strict=True), key=lambda piece: piece[0]):
        offsets = [place for _, place in pieces]
        places += [(offsets[0][0], offsets[-1][1])] * len(offsets)
    return places


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def joined(sentences: Sequence[str]) -> str:
    """Return the sentences as one text; places of tokens are counted in it."""
    return _SEPARATOR.join(sentences)


def sentence_starts(sentences: Sequence[str]) -> NDArray[np.int64]:
    """Return where each sentence begins in the joined text, (sentences,) int64."""
    lengths = np.array([len(sentence) + len(_SEPARATOR) for sentence in sentences], dtype=np.int64)
    return np.cumsum(lengths) - lengths
