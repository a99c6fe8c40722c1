"""A vocabulary made larger or smaller, and where every entry of the new one comes from.

In: a Tokenizer, and words to add or the words of a corpus to keep.  Out: another Tokenizer, and for each of its ids the
old id, or the old ids whose pieces a new word replaces.  Next: model/resize.py
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertkit.console import table
from bertkit.errors import SHOWN_PROBLEMS, InputError
from bertkit.files import require_file
from bertkit.text.coverage import coverage_of, encoded_words, greedy_path, why_never_made, words_in
from bertkit.text.learning import MAX_WORD_LENGTH, require_frequency
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import CONTINUATION, SPECIAL_TOKENS, Vocabulary, is_continuation, is_unused

Row = int | tuple[int, ...]  # an old id kept; or the old ids that a new entry replaces (none: it was unknown)


# ---- adding ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enlarged:
    """A tokenizer with more words, and what became of every word given: their numbers add up."""

    tokenizer: Tokenizer
    rows: tuple[Row, ...]  # of every id of the new vocabulary
    added: tuple[str, ...]
    present: tuple[str, ...]  # they stood there before
    repeated: tuple[str, ...]  # given a second time
    refused: tuple[tuple[str, str], ...]  # (word, why the tokenizer would never make it)
    num_unused_taken: int  # [unusedN] entries in whose places words stand now

    def title(self) -> str:
        """Return what was done, in few words."""
        return f"{len(self.added):,} words added to the vocabulary"

    def lines(self) -> list[str]:
        """Return what became of every word as lines of text."""
        rows = [
            ("words given", sum(map(len, (self.added, self.present, self.repeated, self.refused)))),
            ("given twice", len(self.repeated)),
            ("entries already", len(self.present)),
            ("refused, as the tokenizer would never make them", len(self.refused)),
            ("added", len(self.added)),
            ("of them in the places of [unused…] entries", self.num_unused_taken),
            ("entries now", self.tokenizer.vocabulary.size),
        ]
        named = [
            *(f"given twice: {word}" for word in self.repeated),
            *(f"an entry already: {word}" for word in self.present),
            *(f"refused: {word}: {reason}" for word, reason in self.refused),
        ]
        rest = len(named) - SHOWN_PROBLEMS
        return [table(rows), *named[:SHOWN_PROBLEMS], *([f"and {rest:,} more"] if rest > 0 else [])]


def read_words(given: str) -> list[str]:
    """Return the words of a file, one a line, or those of a list separated by commas.

    >>> read_words("水调歌头, 苏轼,,covid")
    ['水调歌头', '苏轼', 'covid']

    Raises:
        InputError: `given` looks like a path and is no file; the file is not UTF-8.
    """
    if not Path(given).is_file() and not ("/" in given or given.endswith(".txt")):
        return [word.strip() for word in given.split(",") if word.strip()]
    path = require_file(
        given, what="a file with one word a line, or words separated by commas", remedy="check --add_words"
    )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "is not UTF-8", file=path, field=f"byte {error.start}", expected="one word a line, in UTF-8"
        ) from error
    return [line.strip() for line in text.split("\n") if line.strip()]


def add_words(tokenizer: Tokenizer, words: Sequence[str], *, use_unused: bool) -> Enlarged:
    """Return the tokenizer with these words as entries, behind the last one or in the places of [unusedN].

    use_unused: the words take the places of [unusedN] entries, so that the size stays; no id moves in either case.
    A longer word that begins with an added one is cut there from now on, as the longest entry always goes first.

    Raises:
        InputError: no word is left to add; more words than [unusedN] entries.
    """
    vocabulary = tokenizer.vocabulary
    added, present, repeated, refused = list[str](), list[str](), list[str](), list[tuple[str, str]]()
    for word, times in Counter(words).items():
        repeated += [word] * (times - 1)
        if word in vocabulary.ids:
            present.append(word)
        elif reason := _reason_against(word, tokenizer):
            refused.append((word, reason))
        else:
            added.append(word)
    if not added:
        raise InputError(
            f"none of the {len(words)} words can be added: {len(present)} are entries already, {len(repeated)} are "
            f"given twice, {len(refused)} can never be made by this tokenizer",
            field="--add_words",
            value=None if not refused else f"{refused[0][0]}: {refused[0][1]}",
            expected="words as the tokenizer cuts them",
            remedy="give other words",
        )
    tokens, rows = list(vocabulary.tokens), list[Row](range(vocabulary.size))
    places = _places_for(added, vocabulary, use_unused=use_unused)
    for word, place, pieces in zip(added, places, _pieces_replaced(added, tokenizer), strict=True):
        if place == len(tokens):
            tokens.append(word)
            rows.append(pieces)
        else:
            tokens[place], rows[place] = word, pieces
    return Enlarged(
        tokenizer=replace(tokenizer, vocabulary=Vocabulary(tuple(tokens))),
        rows=tuple(rows),
        added=tuple(added),
        present=tuple(present),
        repeated=tuple(repeated),
        refused=tuple(refused),
        num_unused_taken=len(added) if use_unused else 0,
    )


def _places_for(added: list[str], vocabulary: Vocabulary, *, use_unused: bool) -> list[int]:
    if not use_unused:
        return list(range(vocabulary.size, vocabulary.size + len(added)))
    unused = [id for id, token in enumerate(vocabulary.tokens) if is_unused(token)]
    if len(unused) < len(added):
        raise InputError(
            f"there are {len(added)} words to add, but {len(unused)} [unused…] entries",
            field="--use_unused",
            expected="an [unused…] entry for every word",
            remedy="give fewer words, or --use_unused false to append them",
        )
    return unused[: len(added)]


def _reason_against(word: str, tokenizer: Tokenizer) -> str | None:
    reason = why_never_made(word, tokenizer)
    if reason is None or len(word) > MAX_WORD_LENGTH or is_continuation(word):
        return reason
    return f"{reason}: {' '.join(words_in(word, tokenizer)) or 'nothing is left'}"


def _pieces_replaced(words: list[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The known pieces that each word is cut in before it is an entry; none where it is [UNK]."""
    vocabulary = tokenizer.vocabulary
    paths = [greedy_path(word, vocabulary) for word in words]
    return [tuple(vocabulary.ids[token] for token in path) if whole else () for path, whole in paths]


# ---- trimming ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trimmed:
    """A tokenizer with the entries that a corpus needs, and what became of the others: the numbers add up."""

    tokenizer: Tokenizer
    rows: tuple[Row, ...]  # of every id of the new vocabulary: the old id
    num_special: int  # kept: special and added tokens
    num_frequent: int  # kept: they occur often enough
    num_needed: int  # kept: rarer, but without them a word would be cut otherwise or become [UNK]
    num_unused: int  # dropped: [unusedN]
    num_dropped: int  # dropped: the other entries

    def title(self) -> str:
        """Return what was done, in few words."""
        return f"vocabulary trimmed to a corpus: {self.num_unused + self.num_dropped:,} entries dropped"

    def counts(self) -> list[tuple[str, int]]:
        """Return what became of the entries as rows of a table."""
        size = self.tokenizer.vocabulary.size
        return [
            ("entries before", size + self.num_unused + self.num_dropped),
            ("dropped: [unused…]", self.num_unused),
            ("dropped: too rare, and not needed", self.num_dropped),
            ("kept: special and added tokens", self.num_special),
            ("kept: frequent enough", self.num_frequent),
            ("kept: single characters, and what keeps words as they were", self.num_needed),
            ("entries now", size),
        ]


class Needs:
    """What a corpus needs of a vocabulary, gathered from batches of its words."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._ids = tokenizer, tokenizer.vocabulary.ids
        self.coverage = coverage_of(Counter(), tokenizer)
        self._needed: set[int] = set()  # ids kept however rare they are

    def add(self, words: Counter[str]) -> None:
        """Gather what these words need too."""
        self.coverage.add(words, self._tokenizer)
        unk_id = self._tokenizer.vocabulary.unk_id
        for batch, encoded in encoded_words(words, self._tokenizer):
            for (word, _), ids in zip(batch, encoded, strict=True):
                if len(word) > MAX_WORD_LENGTH:
                    continue  # [UNK] in any vocabulary
                forms = [word[0], *(CONTINUATION + character for character in word[1:])]
                self._needed |= {self._ids[form] for form in forms if form in self._ids}
                if unk_id in ids:
                    # The entries at which WordPiece fails: without them a shorter one might lead to the word's end.
                    self._needed |= {self._ids[token] for token in greedy_path(word, self._tokenizer.vocabulary)[0]}
                elif not all(form in self._ids for form in forms):
                    self._needed |= {int(id) for id in ids}  # nothing could take the place of these

    def trimmed(self, *, min_frequency: int) -> Trimmed:
        """Return the tokenizer without the entries that are not needed; the others keep their order.

        Kept are special and added tokens; entries that occur `min_frequency` times; the single characters of the
        corpus, so that a word that loses a rarer entry can still be spelt; and whatever keeps [UNK] as it was. With
        min_frequency 1 every text of the corpus gives the same tokens as before; above it, rare words more tokens.

        Raises:
            InputError: `min_frequency` is below 1.
        """
        require_frequency(min_frequency)
        tokens = self._tokenizer.vocabulary.tokens
        added = {token.content for token in self._tokenizer.added_tokens}
        kept = Counter[str]()
        rows: list[int] = []
        for id, token in enumerate(tokens):
            if token in SPECIAL_TOKENS or token in added:
                why = "special"
            elif self.coverage.token_counts[id] >= min_frequency:
                why = "frequent"
            elif id in self._needed:
                why = "needed"
            else:
                why = "unused" if is_unused(token) else "dropped"
            kept[why] += 1
            if why in ("special", "frequent", "needed"):
                rows.append(id)
        return Trimmed(
            tokenizer=replace(self._tokenizer, vocabulary=Vocabulary(tuple(tokens[id] for id in rows))),
            rows=tuple(rows),
            num_special=kept["special"],
            num_frequent=kept["frequent"],
            num_needed=kept["needed"],
            num_unused=kept["unused"],
            num_dropped=kept["dropped"],
        )
