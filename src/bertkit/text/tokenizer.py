"""Sentences → ids and back: BERT's WordPiece, by the `tokenizers` library.

In: strings; a vocab.txt, tokenizer.json or folder with them.  Out: ids, with their places in the given string, and the
files from which transformers makes the same tokenizer.  Next: data/store.py
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from bertkit.console import say
from bertkit.errors import InputError
from bertkit.files import require_file
from bertkit.text.fast import FastEncoder
from bertkit.text.learning import MAX_WORD_LENGTH
from bertkit.text.vocabulary import (
    CLS,
    CONTINUATION,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    Vocabulary,
    checked_vocabulary,
    has_capital,
    joined_tokens,
    read_vocabulary,
)

Ids = NDArray[np.int64]
StoredIds = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Encoding:
    """A text as tokens, without special tokens around it."""

    ids: Ids  # (seq,) int64
    offsets: list[tuple[int, int]]  # (start, end) of each token in characters of the given string, end exclusive
    tokens: list[str]


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary and the rules of normalization; made by `make_tokenizer` or `load_tokenizer`."""

    vocabulary: Vocabulary
    do_lower_case: bool
    strip_accents: bool | None = None  # None: where lower-casing
    tokenize_chinese_chars: bool = True  # every Chinese character a word
    added_tokens: tuple[AddedToken, ...] = ()  # found in a text as they stand, beside the special ones

    @cached_property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The smallest of the two integers in which ids are stored."""
        return np.uint16 if self.vocabulary.size < 2**16 else np.uint32

    @cached_property
    def _whole(self) -> tokenizers.Tokenizer:
        return self._built(SPECIAL_TOKENS)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        return self._built((UNK,))

    def _built(self, literal: Sequence[str]) -> tokenizers.Tokenizer:
        """The library's tokenizer that takes these special tokens literally when they stand in a text."""
        model = WordPiece(dict(self.vocabulary.ids), unk_token=UNK, max_input_chars_per_word=MAX_WORD_LENGTH)
        built = tokenizers.Tokenizer(model)
        built.normalizer = BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.tokenize_chinese_chars,
            strip_accents=self.strip_accents,
            lowercase=self.do_lower_case,
        )
        built.pre_tokenizer = BertPreTokenizer()
        built.decoder = WordPieceDecoder(prefix=CONTINUATION)
        built.post_processor = TemplateProcessing(
            single=f"{CLS}:0 $A:0 {SEP}:0",
            pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
            special_tokens=[(CLS, self.vocabulary.cls_id), (SEP, self.vocabulary.sep_id)],
        )
        built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in literal])
        for token in self.added_tokens:
            (built.add_special_tokens if token.special else built.add_tokens)([token])
        return built

    def encode(self, text: str) -> Encoding:
        """Return the tokens of `text`; a literal [MASK] (or another special token) in it is that token.

        Raises:
            InputError: the text holds half a surrogate pair.
        """
        _require_characters([text])
        encoding = self._whole.encode(text, add_special_tokens=False)
        return Encoding(np.array(encoding.ids, np.int64), encoding.offsets, encoding.tokens)

    def encode_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids that `encode` gives for each text: (seq,) int64 each.

        Raises:
            InputError: a text holds half a surrogate pair.
        """
        _require_characters(texts)
        encodings = self._whole.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def encode_plain(self, sentences: Sequence[str]) -> list[StoredIds]:
        """Return the ids of each sentence, as training data is made of them: a literal [MASK] is text like any other.

        Only a literal [UNK] (WikiText's <unk>) is the unknown token. Each array: (seq,) uint16, or uint32 where the
        vocabulary has 65,536 tokens or more.

        Raises:
            InputError: a sentence holds half a surrogate pair.
        """
        _require_characters(sentences)
        encodings = self._plain.encode_batch_fast(list(sentences), add_special_tokens=False)
        if self.dtype is np.uint16:
            return [np.array(encoding.ids, np.uint16) for encoding in encodings]
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    def fast_encoder(self) -> FastEncoder:
        """Return an encoder that gives what `encode_plain` gives, many times faster on a whole corpus."""
        literal = [UNK, *(token.content for token in self.added_tokens)]
        after_rules = [token.content for token in self.added_tokens if token.normalized]
        return FastEncoder(self._plain, literal=literal, after_rules=after_rules)

    def token_of(self, id: int) -> str:
        """Return the token with this id."""
        assert 0 <= id < self.vocabulary.size, f"id {id} is not below the vocabulary's size, {self.vocabulary.size}"
        return self.vocabulary.tokens[id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the tokens as text for people: continuations joined, no spaces between Chinese characters.

        Capitals, accents and unknown characters are not in the ids; to keep them, cut the given string by offsets.
        """
        return joined_tokens([self.token_of(int(id)) for id in ids])

    def files(self, *, model_max_length: int = 512) -> dict[str, bytes]:
        """Return vocab.txt, tokenizer.json and tokenizer_config.json, from which transformers makes this tokenizer.

        model_max_length: tokens, special ones included, that the model has positions for.
        """
        settings = {
            "cls_token": CLS,
            "do_lower_case": self.do_lower_case,
            "mask_token": MASK,
            "model_max_length": model_max_length,
            "pad_token": PAD,
            "sep_token": SEP,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            "tokenizer_class": "BertTokenizer",
            "unk_token": UNK,
        }
        return {
            "vocab.txt": self.vocabulary.to_bytes(),
            "tokenizer.json": f"{self._whole.to_str(pretty=True)}\n".encode(),
            "tokenizer_config.json": f"{json.dumps(settings, indent=2, ensure_ascii=False)}\n".encode(),
        }


def make_tokenizer(vocabulary: Vocabulary, *, do_lower_case: bool) -> Tokenizer:
    """Return the tokenizer of this vocabulary with BERT's usual rules."""
    return Tokenizer(vocabulary, do_lower_case)


def with_special_tokens(
    a_ids: Sequence[int] | NDArray[Any], b_ids: Sequence[int] | NDArray[Any] | None, vocabulary: Vocabulary
) -> tuple[Ids, Ids]:
    """Return `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` where B is given, and the token types 0…0 1…1.

    input_ids, token_type_ids: (seq,) int64.
    """
    first = [vocabulary.cls_id, *a_ids, vocabulary.sep_id]
    second = [] if b_ids is None else [*b_ids, vocabulary.sep_id]
    types = np.repeat(np.array([0, 1], np.int64), [len(first), len(second)])
    return np.array([*first, *second], np.int64), types


def _require_characters(texts: Sequence[str]) -> None:
    """The library takes text as UTF-8 only, in which half a surrogate pair cannot be written."""
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"half a surrogate pair, at character {error.start}, is no character",
                value=text[max(0, error.start - 10) : error.end + 10],
                expected="text that can be written as UTF-8",
                remedy="mend the text, often a JSON escape such as \\ud83d without its second half",
            ) from error


# ---- loading -----------------------------------------------------------------------------------------------------


def load_tokenizer(path: str | Path, *, do_lower_case: bool | None = None) -> Tokenizer:
    """Return the tokenizer of a folder (its tokenizer.json, else its vocab.txt), a vocab.txt or a tokenizer.json.

    do_lower_case: None reads it from tokenizer_config.json, else tokenizer.json, as transformers does; for a
    vocab.txt alone it is true if no entry has a capital letter, and this is said.

    Raises:
        InputError: nothing of the kind is there; a file is broken; the tokenizer is not BERT's WordPiece.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    file = path
    if path.is_dir():
        file = path / "tokenizer.json" if (path / "tokenizer.json").exists() else path / "vocab.txt"
    file = require_file(
        file,
        what="a folder with tokenizer.json or vocab.txt, or one of these files",
        remedy="name the folder of a model or of `bertkit vocab`, or a vocab.txt",
    )
    settings = _read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    if file.suffix == ".json":
        try:
            tokenizer = _from_tokenizer_json(file)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"lacks what a tokenizer.json has: {error}", file=file, remedy="make it anew") from error
    else:
        tokenizer = Tokenizer(read_vocabulary(file), _looks_uncased(file, settings, do_lower_case))
    lower = settings.get("do_lower_case", tokenizer.do_lower_case) if do_lower_case is None else do_lower_case
    return Tokenizer(
        tokenizer.vocabulary,
        lower,
        settings.get("strip_accents", tokenizer.strip_accents),
        settings.get("tokenize_chinese_chars", tokenizer.tokenize_chinese_chars),
        tokenizer.added_tokens,
    )


def _looks_uncased(file: Path, settings: dict[str, Any], do_lower_case: bool | None) -> bool:
    """Whether a bare vocab.txt is of lower-cased text: no entry but bracketed ones has a capital letter."""
    if do_lower_case is not None or "do_lower_case" in settings:
        return True  # not asked for
    cased = next(filter(has_capital, read_vocabulary(file).tokens), None)
    reason = "no entry has a capital letter" if cased is None else f"an entry, {cased}, has a capital letter"
    say(f"{file}: do_lower_case {'true' if cased is None else 'false'}, as {reason}; --do_lower_case says otherwise")
    return cased is None


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"is no JSON: {error.msg}", file=file, line=error.lineno, remedy="write it anew") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", file=file, remedy="write it anew") from error
    if not isinstance(value, dict):
        raise InputError("is no JSON object", file=file, value=value, remedy="write it anew")
    return value


def _from_tokenizer_json(file: Path) -> Tokenizer:
    """The tokenizer a tokenizer.json describes, built anew: the file's own truncation and padding are not ours."""
    content = _read_json(file)
    added = [token for token in content.get("added_tokens") or [] if token["content"] not in SPECIAL_TOKENS]
    model, normalizer = _part(content, "model", file), _part(content, "normalizer", file)
    _require(file, "model.type", model.get("type", "WordPiece"), "WordPiece")
    _require(file, "normalizer.type", normalizer.get("type"), "BertNormalizer")
    _require(file, "normalizer.clean_text", normalizer.get("clean_text", True), True)
    _require(file, "pre_tokenizer.type", _part(content, "pre_tokenizer", file).get("type"), "BertPreTokenizer")
    _require(file, "model.unk_token", model.get("unk_token"), UNK)
    _require(file, "model.continuing_subword_prefix", model.get("continuing_subword_prefix"), CONTINUATION)
    _require(file, "model.max_input_chars_per_word", model.get("max_input_chars_per_word"), MAX_WORD_LENGTH)
    ids = dict(_part(model, "vocab", file))
    ids |= {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    by_id = sorted(ids, key=lambda token: ids[token])
    if [ids[token] for token in by_id] != list(range(len(by_id))):
        raise InputError(
            "has gaps or doubles among its ids",
            file=file,
            field="model.vocab",
            expected=f"the ids 0 to {len(by_id) - 1}, each once",
            remedy="make the tokenizer anew from its vocab.txt",
        )
    return Tokenizer(
        checked_vocabulary(by_id, file=file),
        normalizer["lowercase"],
        normalizer.get("strip_accents"),
        normalizer.get("handle_chinese_chars", True),
        tuple(AddedToken(**{key: value for key, value in token.items() if key != "id"}) for token in added),
    )


def _part(content: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        raise _not_bert(file, name, part, "an object, as in BERT's")
    return part


def _require(file: Path, field: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise _not_bert(file, field, found, str(wanted))


def _not_bert(file: Path, field: str, found: object, wanted: str) -> InputError:
    return InputError(
        "is not the tokenizer of a BERT",
        file=file,
        field=field,
        value=found if found is not None else "nothing",
        expected=wanted,
        remedy="name a BERT model's folder; other models' tokenizers (byte-level, SentencePiece) are not read",
    )
