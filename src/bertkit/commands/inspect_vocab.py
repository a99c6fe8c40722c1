"""`bertkit inspect vocab DIR`: what stands in a vocabulary, and how it covers a corpus.

In: a tokenizer, and a corpus or none.  Out: the kinds of its entries; [UNK] and the characters to blame for it, tokens
per character, entries never used, capitals that do not fit.  Next: text/coverage.py
"""

from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np

from bertkit import console
from bertkit.errors import InputError
from bertkit.options import argument, group, option
from bertkit.text.coverage import Coverage, coverage_of_texts, described, is_chinese, texts_of, why_never_made
from bertkit.text.documents import CorpusSettings, ReadingReport
from bertkit.text.learning import MAX_WORD_LENGTH
from bertkit.text.tokenizer import Tokenizer, load_tokenizer
from bertkit.text.vocabulary import CONTINUATION, SPECIAL_TOKENS, UNK, has_capital, is_continuation, is_unused

NUM_LONGEST = 10  # longest entries named
Row = tuple[str, int | str]


@dataclass(frozen=True)
class Config:
    """Which vocabulary, the corpus it is to cover, how much is shown."""

    path: str = argument(help="a folder with tokenizer.json or vocab.txt, or one of these files")
    corpus: CorpusSettings = group(CorpusSettings)
    show: int = option(3, help="unknown characters and unused entries printed")
    do_lower_case: bool | None = option(
        None, help="whether text is made small letters without accents (none: what the tokenizer says)"
    )
    json: bool = option(False, help="print everything as one line of JSON")


def run(config: Config) -> None:
    """Print what stands in the vocabulary and, with --input_file, how it covers the corpus.

    Raises:
        InputError: a --show below 0; the tokenizer or the corpus cannot be read.
    """
    if config.show < 0:
        raise InputError("is below 0", field="--show", value=config.show, expected="0 or more", remedy="use 3")
    show_vocabulary(
        config.path,
        config.corpus if config.corpus.input_file else None,
        do_lower_case=config.do_lower_case,
        show=config.show,
        as_json=config.json,
    )


@dataclass(frozen=True)
class Entries:
    """What stands in a vocabulary; an entry is special, unused or ordinary."""

    size: int
    special: dict[str, int]  # token -> id
    added: dict[str, int]  # tokens added beside the special ones -> id
    num_unused: int  # [unusedN]
    num_characters: int  # ordinary entries of one character, ## aside
    num_continuations: int  # ordinary entries that begin with ##
    num_chinese: int  # different Chinese characters
    num_capital: int  # ordinary entries with a capital letter
    never_made: dict[str, int]  # why no text ever gives an entry -> how many
    longest: list[str]  # the longest ordinary entries, ## aside
    do_lower_case: bool

    def rows(self) -> list[Row]:
        """Return the counts as rows of a table."""
        return [
            ("entries", self.size),
            *((f"id of {token}", str(id)) for token, id in self.special.items()),
            *((f"id of {token} (added)", str(id)) for token, id in self.added.items()),
            ("[unused…]", self.num_unused),
            ("ordinary entries", self.num_ordinary),
            ("of them single characters", self.num_characters),
            ("of them pieces inside a word (##…)", self.num_continuations),
            ("of them with a capital letter", self.num_capital),
            ("different Chinese characters", self.num_chinese),
            ("do_lower_case", str(self.do_lower_case).lower()),
            *((f"can never occur: {reason}", count) for reason, count in sorted(self.never_made.items())),
        ]

    @property
    def num_ordinary(self) -> int:
        """Number of entries that are neither special nor added nor unused."""
        return self.size - len(self.special) - len(self.added) - self.num_unused


def show_vocabulary(
    path: str, corpus: CorpusSettings | None, *, do_lower_case: bool | None, show: int, as_json: bool
) -> None:
    """Print what stands in the vocabulary at `path` and, where a corpus is given, how it covers it.

    show: unknown characters and unused entries printed.

    Raises:
        InputError: the tokenizer or the corpus cannot be read.
    """
    tokenizer = load_tokenizer(path, do_lower_case=do_lower_case)
    entries = entries_of(tokenizer)
    reading = ReadingReport()
    coverage = None if corpus is None else coverage_of_texts(texts_of(corpus, reading), tokenizer)
    if as_json:
        covered = None if coverage is None else _as_json(reading, coverage, tokenizer)
        said = [] if coverage is None else remarks(coverage, entries)
        console.result_json({"vocabulary": asdict(entries), "corpus": covered, "remarks": said})
        return
    console.result(console.table(entries.rows()))
    console.result(f"longest entries: {'  '.join(entries.longest)}")
    if coverage is None:
        return
    console.result(f"on the corpus:\n{console.table([*reading.rows(), *coverage_rows(coverage, tokenizer)])}")
    for line in [*_named(coverage, tokenizer, show=show), *remarks(coverage, entries)]:
        console.result(line)


def entries_of(tokenizer: Tokenizer) -> Entries:
    """Return what stands in a tokenizer's vocabulary."""
    vocabulary = tokenizer.vocabulary
    added = {token.content: vocabulary.ids[token.content] for token in tokenizer.added_tokens}
    ordinary = [t for t in vocabulary.tokens if t not in SPECIAL_TOKENS and t not in added and not is_unused(t)]
    bare = {token: token[len(CONTINUATION) :] if is_continuation(token) else token for token in ordinary}
    reasons = (why_never_made(token, tokenizer) for token in ordinary)
    return Entries(
        size=vocabulary.size,
        special={token: vocabulary.ids[token] for token in SPECIAL_TOKENS},
        added=added,
        num_unused=sum(map(is_unused, vocabulary.tokens)),
        num_characters=sum(len(text) == 1 for text in bare.values()),
        num_continuations=sum(map(is_continuation, ordinary)),
        num_chinese=len({text for text in bare.values() if len(text) == 1 and is_chinese(text)}),
        num_capital=sum(map(has_capital, ordinary)),
        never_made=dict(Counter(reason for reason in reasons if reason is not None)),
        longest=sorted(ordinary, key=lambda token: -len(bare[token]))[:NUM_LONGEST],
        do_lower_case=tokenizer.do_lower_case,
    )


def never_used(coverage: Coverage, tokenizer: Tokenizer) -> list[str]:
    """Return the ordinary entries that the corpus never used, by id."""
    ids = np.flatnonzero((coverage.token_counts == 0) & tokenizer.vocabulary.ordinary)
    return [tokenizer.vocabulary.tokens[id] for id in ids]


def coverage_rows(coverage: Coverage, tokenizer: Tokenizer) -> list[Row]:
    """Return how a vocabulary covers a corpus as rows of a table."""
    words, unk_share = max(1, coverage.num_words), f"{coverage.unknown_share:.4%}"
    known = {character for character in coverage.chinese if character in tokenizer.vocabulary.ids}
    met = coverage.chinese.total()
    rows: list[Row] = [
        ("words", coverage.num_words),
        ("characters of words", coverage.num_characters),
        ("tokens", coverage.num_tokens),
        (f"of them {UNK}", coverage.num_unknown),
        (f"share of {UNK}", unk_share),
        ("tokens per character", f"{coverage.num_tokens / max(1, coverage.num_characters):.3f}"),
        ("tokens per word", f"{coverage.num_tokens / words:.3f}"),
        ("words kept whole", f"{coverage.num_whole / words:.2%}"),
    ]
    if coverage.num_literal_unknown:
        rows.append((f"literal {UNK} in the text, not counted above", coverage.num_literal_unknown))
    if coverage.num_long:
        rows.append((f"words over {MAX_WORD_LENGTH} characters, which become {UNK}", coverage.num_long))
    if met:
        share = sum(coverage.chinese[character] for character in known) / met
        rows += [
            ("different Chinese characters", len(coverage.chinese)),
            ("of them with an entry", len(known)),
            ("share of the Chinese text they make", f"{share:.4%}"),
        ]
    return [*rows, ("ordinary entries never used", len(never_used(coverage, tokenizer)))]


def _named(coverage: Coverage, tokenizer: Tokenizer, *, show: int) -> list[str]:
    """The unknown characters by count, and the first entries never used."""
    lines = []
    unknown, unused = coverage.unknown_characters, never_used(coverage, tokenizer)
    if unknown and show:
        rows = [(described(character), count) for character, count in unknown[:show]]
        lines.append(f"characters that make a word {UNK} ({len(unknown):,} different), the most frequent:")
        lines.append(console.table(rows))
    if unused and show:
        lines.append(f"entries never used ({len(unused):,}), the first: {'  '.join(unused[:show])}")
    return lines


def remarks(coverage: Coverage, entries: Entries) -> list[str]:
    """Return what is wrong between the letters of the vocabulary, of the text and the rule for them."""
    lines = []
    if entries.do_lower_case and entries.num_capital:
        lines.append(
            f"case mismatch: {entries.num_capital:,} entries have a capital letter, but do_lower_case is true, so that "
            "no text gives them; is it a cased vocabulary? --do_lower_case false shows the other way"
        )
    if not entries.do_lower_case and not entries.num_capital and coverage.num_capital:
        lines.append(
            f"case mismatch: {coverage.num_capital:,} words of the text have a capital letter and no entry has one, "
            f"but do_lower_case is false: {coverage.num_capital_unknown:,} of them became {UNK}; is it an uncased "
            "vocabulary? --do_lower_case true shows the other way"
        )
    return lines


def _as_json(reading: ReadingReport, coverage: Coverage, tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "reading": dict(reading.rows()),
        "num_words": coverage.num_words,
        "num_whole": coverage.num_whole,
        "num_characters": coverage.num_characters,
        "num_tokens": coverage.num_tokens,
        "num_unknown": coverage.num_unknown,
        "unknown_share": coverage.unknown_share,
        "num_literal_unknown": coverage.num_literal_unknown,
        "num_long": coverage.num_long,
        "num_capital": coverage.num_capital,
        "num_capital_unknown": coverage.num_capital_unknown,
        "num_chinese": len(coverage.chinese),
        "num_chinese_known": sum(character in tokenizer.vocabulary.ids for character in coverage.chinese),
        "unknown_characters": [
            {"character": character, "description": described(character), "count": count}
            for character, count in coverage.unknown_characters
        ],
        "never_used": never_used(coverage, tokenizer),
    }
