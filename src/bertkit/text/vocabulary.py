"""The vocabulary: the list of tokens that ids are places in.

In: vocab.txt, one token a line.  Out: a Vocabulary with its special ids, its flags and its hash.
(How one is learnt from text: learning.py)  Next: tokenizer.py
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unicodedata import category, east_asian_width

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors
from bertkit.files import require_file

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
CONTINUATION = "##"  # stands before a piece that goes on with a word
_UNUSED = re.compile(r"\[unused\d+\]")
_BYTE_ORDER_MARK = "\ufeff"

_NO_SPACE_BEFORE = ".,!?;:%)]}”’…"
_NO_SPACE_AFTER = "([{“‘$"
_JOINS = "-'’/"  # between letters or digits they have no space on either side


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id; all five special tokens are among them, wherever they stand."""

    tokens: tuple[str, ...]  # id -> token

    def __post_init__(self) -> None:
        assert len(self.ids) == len(self.tokens), "a token stands twice"
        assert all(token in self.ids for token in SPECIAL_TOKENS), "a special token is missing"

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """token -> id."""
        return {token: id for id, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """Number of tokens; every id is below it."""
        return len(self.tokens)

    def id_of(self, token: str) -> int:
        """Return the id of `token`, or that of [UNK] where the vocabulary lacks it."""
        return self.ids.get(token, self.unk_id)

    @property
    def pad_id(self) -> int:
        """The id of [PAD]."""
        return self.ids[PAD]

    @property
    def unk_id(self) -> int:
        """The id of [UNK]."""
        return self.ids[UNK]

    @property
    def cls_id(self) -> int:
        """The id of [CLS]."""
        return self.ids[CLS]

    @property
    def sep_id(self) -> int:
        """The id of [SEP]."""
        return self.ids[SEP]

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.ids[MASK]

    @cached_property
    def ordinary(self) -> NDArray[np.bool_]:
        """(vocab,) bool: True where a token may be masked or drawn at random: no special one, no [unused…]."""
        return np.array([bool(t) and t not in SPECIAL_TOKENS and not is_unused(t) for t in self.tokens], bool)

    @cached_property
    def punctuation(self) -> NDArray[np.bool_]:
        """(vocab,) bool: True where a token is of punctuation and symbols only, ## of a continuation set aside."""
        return np.array([_is_punctuation(token) for token in self.tokens], bool)

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """(vocab,) bool: True where a token goes on with the word before it (##)."""
        return np.array([token.startswith(CONTINUATION) and token != CONTINUATION for token in self.tokens], bool)

    @cached_property
    def hash(self) -> str:
        """The hexadecimal SHA-256 of `to_bytes()`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        r"""Return the bytes of vocab.txt: a token a line, UTF-8, every line ended by "\n"."""
        return "".join(f"{token}\n" for token in self.tokens).encode("utf-8")


def is_unused(token: str) -> bool:
    """Return whether the token is [unusedN], which holds a place and stands for nothing."""
    return _UNUSED.fullmatch(token) is not None


def has_capital(token: str) -> bool:
    """Return whether the token has a capital letter; a marker in brackets, such as [MASK] or <S>, counts as none."""
    return token != token.lower() and not (token[0] in "[<" and token[-1] in "]>")


def is_continuation(token: str) -> bool:
    """Return whether the token goes on with a word: it begins with ## and has something behind it."""
    return token.startswith(CONTINUATION) and token != CONTINUATION


def _is_punctuation(token: str) -> bool:
    piece = token[len(CONTINUATION) :] if is_continuation(token) else token
    return piece != "" and all(category(character)[0] in "PS" for character in piece)


def read_vocabulary(path: str | Path) -> Vocabulary:
    r"""Return the vocabulary of a vocab.txt; a token is a line without its end ("\n", "\r\n" or "\r"), blanks kept.

    Raises:
        InputError: the file is missing, empty or not UTF-8; a token stands twice; a special token is missing.
    """
    path = require_file(path, what="a vocab.txt, one token a line", remedy="name the file, or make one: bertkit vocab")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            "is not UTF-8",
            file=path,
            line=content.count(b"\n", 0, error.start) + 1,
            field=f"byte {error.start}",
            value=content[error.start : error.start + 4],
            expected="a vocab.txt in UTF-8, one token a line",
            remedy="convert the file to UTF-8, or name another",
        ) from error
    if text.startswith(_BYTE_ORDER_MARK):
        raise InputError(
            "begins with a byte order mark, which would be part of the first token",
            file=path,
            line=1,
            remedy="save the file as UTF-8 without byte order mark",
        )
    # Not splitlines(): U+2028 and its like are tokens of real vocabularies.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return checked_vocabulary(lines[:-1] if lines[-1] == "" else lines, file=path)


def checked_vocabulary(tokens: list[str], *, file: Path) -> Vocabulary:
    """Return the vocabulary of these tokens, the first with id 0 and on line 1 of `file`.

    Raises:
        InputError: there is none; one stands twice or holds a line end; a special token is missing.
    """
    if not tokens:
        raise InputError("is empty", file=file, expected="one token a line", remedy="make one: bertkit vocab")
    first: dict[str, int] = {}
    problems = []
    for line, token in enumerate(tokens, start=1):
        if "\n" in token or "\r" in token:  # from a tokenizer.json only
            remedy = "make the tokenizer anew without this token"
            problems.append(
                InputError("holds a line end", file=file, field=f"id {line - 1}", value=token, remedy=remedy)
            )
        if first.setdefault(token, line) != line:
            problems.append(
                InputError(
                    f"the token stands twice: first in line {first[token]}",
                    file=file,
                    line=line,
                    value=token,
                    expected="every token once, as its line is its id",
                    remedy="remove or rename one of the two; a model trained with this file keeps its ids only if "
                    "the line stays (write [unused0], say, in its place)",
                )
            )
    if problems:
        raise InputErrors(problems[:SHOWN_PROBLEMS], total=len(problems))
    missing = [token for token in SPECIAL_TOKENS if token not in first]
    if missing:
        raise InputError(
            f"has no {' and no '.join(missing)}",
            file=file,
            expected=f"the five special tokens {' '.join(SPECIAL_TOKENS)}, each in a line of its own",
            remedy=f"add {' '.join(missing)} at the end, or put it in place of an [unused…] line so that no id moves",
        )
    return Vocabulary(tuple(tokens))


def joined_tokens(tokens: Sequence[str]) -> str:
    """Return tokens as text for people.

    >>> joined_tokens(["明", "月", "[MASK]", "时", "有", "？"]), joined_tokens(["it", "'", "s", "un", "##seen", "."])
    ('明月[MASK]时有？', "it's unseen.")
    """
    text, quotes = "", 0
    for before, token in zip(["", *tokens], tokens, strict=False):
        if is_continuation(token) and text:
            text += token[len(CONTINUATION) :]
            continue
        closes = token == '"' and quotes % 2 == 1
        opened = before == '"' and quotes % 2 == 1
        quotes += token == '"'
        text += token if closes or opened or not _has_space_between(text, before, token) else f" {token}"
    return text


def _has_space_between(text: str, before: str, token: str) -> bool:
    if not text or not token:
        return False
    last, first = text[-1], token[0]
    if _is_wide(last) or _is_wide(first) or token in _NO_SPACE_BEFORE or before in _NO_SPACE_AFTER:
        return False
    if token in _JOINS:
        return not last.isalnum()
    if before in _JOINS:
        return not text[-2:-1].isalnum()
    return not (before in ".,:" and first.isdigit() and text[-2:-1].isdigit())


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"
