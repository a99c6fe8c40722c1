"""A vocabulary learnt from text: the same bytes on every run, whatever the threads and the hash seed.

In: texts.  Out: word counts, and the Vocabulary of characters and WordPieces learnt from them.
Words are exactly those that the tokenizer will make: its own normalizer and pre-tokenizer.  Next: tokenizer.py
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from sys import intern

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertkit.errors import InputError
from bertkit.text.vocabulary import CONTINUATION, SPECIAL_TOKENS, UNK, Vocabulary

MAX_WORD_LENGTH = 100  # characters; the tokenizer makes longer words [UNK], as Google's does
MAX_WORDS = 1_000_000  # different words counted at most: some 200 MB, and 1.1 GB while their pieces are merged
_BATCH_CHARACTERS = 1_000_000  # normalized together: a call a text would cost more than the work

Pair = tuple[str, str]


class WordCounter:
    """Counts the words of texts as they come; memory grows with the number of different words, up to a limit."""

    def __init__(
        self,
        *,
        do_lower_case: bool,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        literal: Sequence[str] = (UNK,),
        max_words: int = MAX_WORDS,
    ) -> None:
        """Begin with nothing counted; the rules are the tokenizer's.

        literal: strings that are one token where they stand, and so no words; counted apart.
        max_words: different words held at most, and half as many different chunks between blanks.
        """
        self._normalizer = BertNormalizer(
            handle_chinese_chars=tokenize_chinese_chars, strip_accents=strip_accents, lowercase=do_lower_case
        )
        self._pre_tokenizer = BertPreTokenizer()
        self._literal, self._max_words = tuple(literal), max_words
        self._batch: list[str] = []
        self._batch_length = 0
        self._chunks: Counter[str] = Counter()  # what stands between blanks
        self._words: Counter[str] = Counter()
        self.literal_counts: Counter[str] = Counter()
        self.num_forgotten = 0  # occurrences of rare words left out to stay below the limit

    def add(self, text: str) -> None:
        """Count the words of one text.

        Raises:
            InputError: the text holds half a surrogate pair, which is no character.
        """
        for token in self._literal:
            if token in text:
                self.literal_counts[token] += text.count(token)
                text = text.replace(token, " ")
        self._batch.append(text)
        self._batch_length += len(text) + 1
        if self._batch_length >= _BATCH_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        try:
            normalized = self._normalizer.normalize_str("\n".join(self._batch))
        except UnicodeEncodeError as error:
            raise InputError(
                "half a surrogate pair is no character",
                value=error.object[max(0, error.start - 10) : error.end + 10],
                expected="text that can be written as UTF-8",
                remedy="mend the text, often a JSON escape such as \\ud83d without its second half",
            ) from error
        # Blanks separate words in the pre-tokenizer too, so that it need see every different chunk only once.
        self._chunks.update(normalized.split())
        self._batch, self._batch_length = [], 0
        if len(self._chunks) > self._max_words // 2:
            self._cut_chunks()

    def _cut_chunks(self) -> None:
        """Count the words of all chunks, and forget the rarest words where there are too many."""
        for chunk, count in self._chunks.items():
            for word, _ in self._pre_tokenizer.pre_tokenize_str(chunk):
                self._words[word] += count
        self._chunks = Counter()
        rare = 0
        while len(self._words) > self._max_words:
            # Lossy counting: a word is left out with all its occurrences so far, the rarest words first.
            rare += 1
            forgotten = [word for word, count in self._words.items() if count <= rare]
            self.num_forgotten += sum(self._words.pop(word) for word in forgotten)

    def counts(self) -> Counter[str]:
        """Return how often each word was met."""
        self._flush()
        self._cut_chunks()
        return self._words.copy()

    def taken(self) -> Counter[str]:
        """Return how often each word was met since the last call, and hold it no longer."""
        words = self.counts()
        self._words = Counter()
        return words

    @property
    def num_held(self) -> int:
        """Number of different words and chunks held now."""
        return len(self._words) + len(self._chunks)


def learn_wordpiece(
    texts: Iterable[str], *, vocab_size: int, min_frequency: int = 2, do_lower_case: bool
) -> Vocabulary:
    """Return the vocabulary learnt from `texts`; see `learn_from_words`."""
    counter = WordCounter(do_lower_case=do_lower_case)
    for text in texts:
        counter.add(text)
    return learn_from_words(counter.counts(), vocab_size=vocab_size, min_frequency=min_frequency)


def learn_from_words(words: Counter[str], *, vocab_size: int, min_frequency: int = 2) -> Vocabulary:
    """Return special tokens, then characters by falling count, then merges by falling count of their pair.

    Ties go to the smaller text. A character has its ## form behind it if it ever goes on with a word.
    The size stays below `vocab_size` when nothing more occurs `min_frequency` times: in Chinese, where every
    character is a word, there is nothing to merge.

    >>> learn_from_words(Counter({"她": 3, "他": 2, "水": 1, "aab": 2}), vocab_size=99).tokens[5:]
    ('a', '##a', '她', 'b', '##b', '他', '##ab', 'aab')

    Raises:
        InputError: what `require_learnable` raises.
    """
    require_learnable(vocab_size=vocab_size, min_frequency=min_frequency)
    tokens = dict.fromkeys(SPECIAL_TOKENS)  # a dict keeps the order and each token once
    for token in _alphabet(words, min_frequency):
        if len(tokens) == vocab_size:
            break
        tokens[token] = None
    cut = ((_pieces_of(word), words[word]) for word in sorted(words) if 1 < len(word) <= MAX_WORD_LENGTH)
    merges = _Merges([(pieces, count) for pieces, count in cut if all(piece in tokens for piece in pieces)])
    while len(tokens) < vocab_size and (merged := merges.next(min_frequency)) is not None:
        tokens[merged] = None
    return Vocabulary(tuple(tokens))


def require_learnable(*, vocab_size: int, min_frequency: int) -> None:
    """Do nothing if a vocabulary can be learnt with these settings.

    Raises:
        InputError: `vocab_size` has no room for a character, or `min_frequency` is below 1.
    """
    if vocab_size <= len(SPECIAL_TOKENS):
        raise InputError(
            f"leaves no room beside the {len(SPECIAL_TOKENS)} special tokens",
            field="--vocab_size",
            value=vocab_size,
            expected=f"more than {len(SPECIAL_TOKENS)}",
            remedy="30000 is usual for English; Chinese needs one entry a character, a few thousand",
        )
    require_frequency(min_frequency)


def require_frequency(min_frequency: int) -> None:
    """Do nothing if this can be a least number of occurrences.

    Raises:
        InputError: it is below 1.
    """
    if min_frequency < 1:
        raise InputError(
            "is below 1", field="--min_frequency", value=min_frequency, expected="1 or more", remedy="use 2"
        )


def _alphabet(words: Counter[str], min_frequency: int) -> list[str]:
    """Characters that occur often enough, the most frequent first, each followed by its ## form if it has one."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        if len(word) <= MAX_WORD_LENGTH:
            for character in word:
                counts[character] += count
            inside.update(word[1:])
    kept = sorted((c for c, count in counts.items() if count >= min_frequency), key=lambda c: (-counts[c], c))
    return [form for c in kept for form in ([c, CONTINUATION + c] if c in inside else [c])]


def _pieces_of(word: str) -> list[str]:
    # Interned: a million words would else hold ten million strings of their own.
    return [intern(word[0]), *(intern(CONTINUATION + character) for character in word[1:])]


class _Merges:
    """Merges the most frequent pair of neighbours again and again, looking only at the words that hold it."""

    def __init__(self, words: list[tuple[list[str], int]]) -> None:
        self._words = words
        self._counts: Counter[Pair] = Counter()
        # pair -> words that hold it, or once did; a word may stand there twice (sets take eight times the memory)
        self._places: defaultdict[Pair, list[int]] = defaultdict(list)
        for place, (pieces, count) in enumerate(words):
            for pair in pairwise(pieces):
                self._counts[pair] += count
                self._places[pair].append(place)
        self._heap = [(-count, _joined(pair), pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def next(self, min_frequency: int) -> str | None:
        """Merge the most frequent pair and return its text, or None if none is frequent enough."""
        while self._heap:
            negative, merged, pair = heapq.heappop(self._heap)
            count = self._counts[pair]
            if count != -negative:  # the entry is old: merges since then have taken occurrences away
                if count >= min_frequency:
                    heapq.heappush(self._heap, (-count, merged, pair))
                continue
            if count < min_frequency:
                return None
            self._merge(pair, merged)
            return merged
        return None

    def _merge(self, pair: Pair, merged: str) -> None:
        grown: set[Pair] = set()
        for place in self._places.pop(pair):
            before, count = self._words[place]
            pieces = _merged_pieces(before, pair, merged)
            if len(pieces) == len(before):
                continue  # it holds the pair no longer
            self._words[place] = pieces, count
            for old in pairwise(before):
                self._counts[old] -= count
            for new in pairwise(pieces):
                self._counts[new] += count
                if merged in new:
                    self._places[new].append(place)
                    grown.add(new)
        del self._counts[pair]
        for new in grown:
            heapq.heappush(self._heap, (-self._counts[new], _joined(new), new))


def _merged_pieces(pieces: list[str], pair: Pair, merged: str) -> list[str]:
    result, at = [], 0
    while at < len(pieces):
        if at + 1 < len(pieces) and (pieces[at], pieces[at + 1]) == pair:
            result.append(merged)
            at += 2
        else:
            result.append(pieces[at])
            at += 1
    return result


def _joined(pair: Pair) -> str:
    return pair[0] + pair[1].removeprefix(CONTINUATION)
