"""How a tokenizer meets the words of a text, and which entries of its vocabulary no text can ever give.

In: a Tokenizer, and texts or word counts.  Out: a Coverage: tokens, [UNK], the characters to blame, use of every entry.
Next: editing.py
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from unicodedata import name as name_of_character

import numpy as np
from numpy.typing import NDArray
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertkit.console import Progress, say, table
from bertkit.text.clean import CleaningSettings
from bertkit.text.corpus import CorpusReport, open_corpus
from bertkit.text.documents import CorpusSettings, ReadingReport
from bertkit.text.learning import MAX_WORD_LENGTH, WordCounter
from bertkit.text.tokenizer import StoredIds, Tokenizer
from bertkit.text.vocabulary import CONTINUATION, UNK, Vocabulary, is_continuation

WORDS_HELD = 500_000  # different words counted before they are encoded and forgotten
_BATCH_WORDS = 20_000  # words encoded together
_CHINESE = (  # the library's ranges of Chinese characters, the last included; Google's has 2B820 in place of 2B920
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def is_chinese(character: str) -> bool:
    """Return whether the tokenizer takes the character for Chinese, and so for a word of its own."""
    point = ord(character)
    return point >= 0x3400 and any(first <= point <= last for first, last in _CHINESE)


# ---- words of a text ---------------------------------------------------------------------------------------------


def word_counter(tokenizer: Tokenizer) -> WordCounter:
    """Return a counter of the words that this tokenizer makes; its added tokens are counted apart."""
    return WordCounter(
        do_lower_case=tokenizer.do_lower_case,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        literal=(UNK, *(token.content for token in tokenizer.added_tokens if not token.single_word)),
    )


def texts_of(
    corpus: CorpusSettings, reading: ReadingReport, *, cleaning: CleaningSettings | None = None
) -> Iterator[str]:
    """Yield the texts of a corpus one at a time, with a line of progress, and count in `reading` what becomes of it.

    cleaning: as `prepare` will clean them, or not at all; its counts are said at the end.

    Raises:
        InputError: what reading and cleaning raise.
    """
    cleaning = CleaningSettings() if cleaning is None else replace(cleaning, rejects_file=None)
    report = CorpusReport(reading=reading)
    with (
        Progress("reading", total=None, unit="documents") as progress,
        open_corpus(corpus, cleaning, report) as documents,
    ):
        for document in documents:
            yield document.text
            progress.advance()
    if cleaning.active:
        say(table(report.cleaning.rows()))


def batches_of_words(
    texts: Iterable[str], counter: WordCounter, *, words_held: int = WORDS_HELD
) -> Iterator[Counter[str]]:
    """Yield the words of all texts with their counts; a word may come again in a later batch.

    words_held: so many different words are counted before they are given out, whatever the size of the corpus.
    """
    for text in texts:
        counter.add(text)
        if counter.num_held >= words_held:
            yield counter.taken()
    yield counter.taken()


def encoded_words(words: Counter[str], tokenizer: Tokenizer) -> Iterator[tuple[list[tuple[str, int]], list[StoredIds]]]:
    """Yield ([(word, count), …], [ids of each]) of some thousand words at a time, in their order."""
    items = iter(words.items())
    while batch := list(islice(items, _BATCH_WORDS)):
        yield batch, tokenizer.encode_plain([word for word, _ in batch])


def greedy_path(word: str, vocabulary: Vocabulary) -> tuple[list[str], bool]:
    """Return the entries that WordPiece finds one after the other, the longest first, and whether they end the word.

    Where they do not, the tokenizer makes the whole word [UNK].  A word that begins with ## goes on with another.
    """
    path: list[str] = []
    at, prefix = (len(CONTINUATION), CONTINUATION) if is_continuation(word) else (0, "")
    while at < len(word):
        ends = range(len(word), at, -1)
        end = next((end for end in ends if prefix + word[at:end] in vocabulary.ids), None)
        if end is None:
            return path, False
        path.append(prefix + word[at:end])
        at, prefix = end, CONTINUATION
    return path, True


# ---- coverage ----------------------------------------------------------------------------------------------------


@dataclass
class Coverage:
    """How a tokenizer meets the words of a text; words are counted with their repetitions."""

    token_counts: NDArray[np.int64]  # (vocab,) how often each entry was used
    num_words: int = 0
    num_whole: int = 0  # words that are one token, and known
    num_characters: int = 0  # of the words, so without blanks
    num_tokens: int = 0
    num_unknown: int = 0  # tokens that are [UNK], a literal [UNK] in the text not among them
    num_literal_unknown: int = 0  # literal [UNK] in the text
    num_long: int = 0  # words over 100 characters, all of them [UNK]
    num_capital: int = 0  # words with a capital letter (where nothing is lower-cased)
    num_capital_unknown: int = 0  # of them [UNK]
    characters: Counter[str] = field(default_factory=Counter)  # to blame for [UNK]; ##c: known, but not inside a word
    chinese: Counter[str] = field(default_factory=Counter)  # every Chinese character met

    @property
    def unknown_share(self) -> float:
        """Fraction of the tokens that are [UNK]; 0 where there is no token."""
        return self.num_unknown / max(1, self.num_tokens)

    @property
    def unknown_characters(self) -> list[tuple[str, int]]:
        """The characters to blame for [UNK], with how often each was met, the most frequent first."""
        return sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))

    def add(self, words: Counter[str], tokenizer: Tokenizer) -> None:
        """Count these words too; each different one is encoded once."""
        size = tokenizer.vocabulary.size
        for batch, encoded in encoded_words(words, tokenizer):
            lengths = [len(ids) for ids in encoded]
            counts = np.array([count for _, count in batch], np.int64)
            flat = np.concatenate([np.zeros(0, np.int64), *encoded]).astype(np.int64)
            used = np.zeros(size, np.int64)
            np.add.at(used, flat, np.repeat(counts, lengths))
            self.token_counts += used
            self.num_tokens += int(used.sum())
            self.num_unknown += int(used[tokenizer.vocabulary.unk_id])
            for (word, count), ids in zip(batch, encoded, strict=True):
                self._add_word(word, count, ids, tokenizer.vocabulary)

    def _add_word(self, word: str, count: int, ids: StoredIds, vocabulary: Vocabulary) -> None:
        unknown = vocabulary.unk_id in ids
        self.num_words += count
        self.num_characters += count * len(word)
        self.num_whole += count * (len(ids) == 1 and not unknown)
        if word != word.lower():
            self.num_capital += count
            self.num_capital_unknown += count * unknown
        for character in word:
            if is_chinese(character):
                self.chinese[character] += count
        if len(word) > MAX_WORD_LENGTH:
            self.num_long += count
        elif unknown:
            for culprit in _culprits(word, vocabulary):
                self.characters[culprit] += count

    def add_literal(self, counts: Counter[str], tokenizer: Tokenizer) -> None:
        """Count the tokens that stood in the text as they are: [UNK] apart, added tokens as tokens."""
        for token, count in counts.items():
            if token == UNK:
                self.num_literal_unknown += count
            else:
                self.token_counts[tokenizer.vocabulary.id_of(token)] += count
                self.num_tokens += count


def _culprits(word: str, vocabulary: Vocabulary) -> list[str]:
    """What makes a word [UNK]: its characters without any entry, else the piece at which WordPiece finds none."""
    known = vocabulary.ids
    absent = [c for c in word if c not in known and CONTINUATION + c not in known]
    if absent:
        return absent
    path, _ = greedy_path(word, vocabulary)
    at = sum(len(token.removeprefix(CONTINUATION)) for token in path)
    return [CONTINUATION + word[at] if path else word[at]]


def coverage_of(words: Counter[str], tokenizer: Tokenizer) -> Coverage:
    """Return how this tokenizer meets these words."""
    coverage = Coverage(np.zeros(tokenizer.vocabulary.size, np.int64))
    coverage.add(words, tokenizer)
    return coverage


def coverage_of_texts(texts: Iterable[str], tokenizer: Tokenizer, *, words_held: int = WORDS_HELD) -> Coverage:
    """Return how this tokenizer meets the words of texts; memory does not grow with their number.

    Raises:
        InputError: a text holds half a surrogate pair.
    """
    coverage, counter = coverage_of(Counter(), tokenizer), word_counter(tokenizer)
    for words in batches_of_words(texts, counter, words_held=words_held):
        coverage.add(words, tokenizer)
    coverage.add_literal(counter.literal_counts, tokenizer)
    return coverage


def described(character: str) -> str:
    """Return a character with its code point and its name.

    >>> described("…"), described("##é")
    ('…  U+2026 HORIZONTAL ELLIPSIS', '##é  U+00E9 LATIN SMALL LETTER E WITH ACUTE')
    """
    point = character[-1]
    return f"{character}  U+{ord(point):04X} {name_of_character(point, '(no name)')}"


# ---- what no text can give ---------------------------------------------------------------------------------------


def words_in(text: str, tokenizer: Tokenizer) -> list[str]:
    """Return the words that the tokenizer makes of a text, before they are cut in pieces.

    Raises:
        UnicodeEncodeError: the text holds half a surrogate pair.
    """
    normalizer = BertNormalizer(
        handle_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents,
        lowercase=tokenizer.do_lower_case,
    )
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))]


def why_never_made(token: str, tokenizer: Tokenizer) -> str | None:
    """Return why no text ever gives this entry, or None where one can."""
    text = f"a{token[len(CONTINUATION) :]}" if is_continuation(token) else token
    if any(added.content in token for added in tokenizer.added_tokens if added.content != token):
        return "holds an added token, which is cut out first"
    if len(text) > MAX_WORD_LENGTH:
        return f"is over {MAX_WORD_LENGTH} characters long"
    if any(character.isspace() for character in text):
        return "holds a blank"
    words = words_in(text, tokenizer)
    if words == [text]:
        return None
    if "".join(words) == text:
        if tokenizer.tokenize_chinese_chars and any(map(is_chinese, text)):
            return "every Chinese character is a word of its own"
        return "is cut at its punctuation"
    if tokenizer.do_lower_case and text != text.lower():
        return "has capital letters, but the tokenizer makes them small"
    return "the tokenizer takes off accents and control characters"
