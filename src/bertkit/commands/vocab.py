"""`bertkit vocab`: learn a vocabulary from a corpus.

In: raw text.  Out: vocab.txt, tokenizer.json and tokenizer_config.json in one folder, and what they leave unknown.
Next: text/learning.py
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bertkit import console
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.options import group, option, write_settings
from bertkit.text.documents import CorpusSettings, ReadingReport, part_of, read_documents
from bertkit.text.learning import MAX_WORD_LENGTH, WordCounter, learn_from_words, require_learnable
from bertkit.text.tokenizer import Tokenizer, make_tokenizer
from bertkit.text.vocabulary import CONTINUATION, SPECIAL_TOKENS, UNK

SHOWN_UNKNOWN = 10  # unknown characters named in the report


@dataclass(frozen=True)
class Config:
    """Learn a vocabulary from a corpus."""

    output_dir: Path = option(help="folder for vocab.txt, tokenizer.json and tokenizer_config.json")
    corpus: CorpusSettings = group(CorpusSettings)
    vocab_size: int = option(30_000, help="entries at most; fewer where nothing more occurs --min_frequency times")
    min_frequency: int = option(2, help="times a character or a pair of pieces must occur to become an entry")
    do_lower_case: bool = option(True, help="small letters without accents only")
    validation_split: bool = option(True, help="learn from the training part only; false: from every document")


@dataclass(frozen=True)
class Coverage:
    """How a tokenizer meets the words of a text."""

    num_tokens: int
    num_unknown: int  # tokens that are [UNK]
    characters: Counter[str]  # characters that no entry has, in the words that became [UNK]

    @property
    def unknown_share(self) -> float:
        """Fraction of the tokens that are [UNK]; 0 where there is no token."""
        return self.num_unknown / max(1, self.num_tokens)


@dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary was learnt from and what it leaves unknown."""

    reading: ReadingReport
    num_documents: int  # learnt from
    num_held_out: int  # of the validation and test parts
    num_characters: int  # learnt from
    num_long: int  # words of the training part that the tokenizer will make [UNK], as they are too long
    training: Coverage
    held_out: Coverage | None  # None where nothing was held out
    tokens: tuple[str, ...]  # the entries
    vocab_size: int  # entries allowed
    min_frequency: int

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        size, num_special = len(self.tokens), len(SPECIAL_TOKENS)
        pieces = sum(len(token.removeprefix(CONTINUATION)) > 1 for token in self.tokens[num_special:])
        rows = [
            *self.reading.rows(),
            ("documents learnt from", self.num_documents),
            ("documents held out (validation, test)", self.num_held_out),
            ("characters learnt from", self.num_characters),
            ("entries", size),
            ("of them special tokens", num_special),
            ("of them single characters", size - num_special - pieces),
            ("of them pieces of several characters", pieces),
        ]
        if self.num_long:
            rows.append((f"words over {MAX_WORD_LENGTH} characters, which become {UNK}", self.num_long))
        lines = [console.table(rows)]
        if size < self.vocab_size:
            lines.append(
                f"{size:,} entries instead of {self.vocab_size:,}: no other character or pair of pieces occurs "
                f"{self.min_frequency} times in the text"
            )
        coverage, where = (self.held_out, "held-out part") if self.held_out else (self.training, "text learnt from")
        lines.append(
            f"{UNK} in the {where}: {coverage.num_unknown:,} of {coverage.num_tokens:,} tokens "
            f"({coverage.unknown_share:.3%})"
        )
        if coverage.characters:
            ranked = sorted(coverage.characters.items(), key=lambda item: (-item[1], item[0]))
            shown = "  ".join(f"{character} {count:,}" for character, count in ranked[:SHOWN_UNKNOWN])
            lines.append(f"unknown characters ({len(ranked):,} different), the most frequent: {shown}")
        return lines


def run(config: Config) -> None:
    """Learn, write the three files, and print what was learnt.

    Raises:
        InputError: what `learn_vocabulary` raises.
    """
    tokenizer, report = learn_vocabulary(
        config.corpus,
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        do_lower_case=config.do_lower_case,
        validation_split=config.validation_split,
    )
    for line in report.lines():
        console.result(line)
    for name, content in tokenizer.files().items():
        write_atomically(config.output_dir / name, content)
        console.result(f"written: {config.output_dir / name}")
    write_settings(config, config.output_dir)


def build_vocabulary(
    corpus: CorpusSettings,
    *,
    vocab_size: int = 30_000,
    min_frequency: int = 2,
    do_lower_case: bool = True,
    validation_split: bool = True,
) -> Tokenizer:
    """Return the tokenizer learnt from the training part of a corpus; the report of it is said.

    Raises:
        InputError: what `learn_vocabulary` raises.
    """
    tokenizer, report = learn_vocabulary(
        corpus,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        do_lower_case=do_lower_case,
        validation_split=validation_split,
    )
    for line in report.lines():
        console.say(line)
    return tokenizer


def learn_vocabulary(
    corpus: CorpusSettings, *, vocab_size: int, min_frequency: int, do_lower_case: bool, validation_split: bool
) -> tuple[Tokenizer, VocabularyReport]:
    """Return the tokenizer learnt from the training part of a corpus, and what was met on the way.

    Raises:
        InputError: the corpus cannot be read; the training part is empty; a setting cannot be.
    """
    require_learnable(vocab_size=vocab_size, min_frequency=min_frequency)  # before the hours of reading
    reading = ReadingReport()
    learnt, kept_back = (WordCounter(do_lower_case=do_lower_case) for _ in range(2))
    num_documents = num_characters = 0
    with console.Progress("reading", total=None, unit="documents") as progress:
        for document in read_documents(corpus, reading):
            if part_of(document.text, validation_split=validation_split) == "train":
                learnt.add(document.text)
                num_documents += 1
                num_characters += len(document.text)
            else:
                kept_back.add(document.text)
            progress.advance()
    if not num_documents:
        raise InputError(
            f"every one of the {reading.documents} documents belongs to the validation or test part",
            file=corpus.input_file,
            expected="documents to learn from",
            remedy="give more text, or --validation_split false to learn from all of it",
        )
    words, held_out = learnt.counts(), kept_back.counts()
    vocabulary = learn_from_words(words, vocab_size=vocab_size, min_frequency=min_frequency)
    tokenizer = make_tokenizer(vocabulary, do_lower_case=do_lower_case)
    return tokenizer, VocabularyReport(
        reading=reading,
        num_documents=num_documents,
        num_held_out=reading.documents - num_documents,
        num_characters=num_characters,
        num_long=sum(count for word, count in words.items() if len(word) > MAX_WORD_LENGTH),
        training=coverage_of(words, tokenizer),
        held_out=coverage_of(held_out, tokenizer) if held_out else None,
        tokens=vocabulary.tokens,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
    )


def coverage_of(words: Counter[str], tokenizer: Tokenizer) -> Coverage:
    """Return how many tokens these words make and what of them is unknown; each different word is encoded once."""
    unk_id, known = tokenizer.vocabulary.unk_id, tokenizer.vocabulary.ids
    num_tokens = num_unknown = 0
    characters: Counter[str] = Counter()
    for (word, count), ids in zip(words.items(), tokenizer.encode_plain(list(words)), strict=True):
        num_tokens += count * len(ids)
        if unk_id in ids:
            num_unknown += count * int((ids == unk_id).sum())
            for character in word:
                if character not in known and f"{CONTINUATION}{character}" not in known:
                    characters[character] += count
    return Coverage(num_tokens, num_unknown, characters)
