"""Many sentences at once are what the library makes of each: every character, every script, and where tokens stand."""

import random
import sys
import unicodedata
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from toy_data import TOY, toy_ids

from bertkit.text import fast
from bertkit.text.fast import joined, sentence_starts
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

SCRIPTS = (
    *("abcdefghij KLMNOP", "àéîõüçßÆœİıſ", "ΑΒΓαβγΣσς", "АБВабвйЙё", "אבגשׁ", "ابتثضَّ", "कखगाि्क्ष", "กขคกำ้", "ກຂ"),
    *(
        "가각힣각",
        "ひらがなカタカナばバ",
        "明月几时有把酒问青天繁體龘",
        "𠀀𪚥丽",
        "ⅣⅷＡ１！",
        "𝒜𝔅",
        "🌍🀄👩‍🚀",
        "0123456789",
    ),
    *(
        " \t\n\r\u00a0\u2003\u3000\u2028",
        "\x00\x07\x7f\u200b\u200d\ufeff\ufffd\u00ad\ue000",
        "\u0300\u0301\u0338\u20dd",
    ),
    *("，。！？…——“”‘’《》【】", ".,!?;:'\"()[]{}<>-_#@/\\|~^`+=$%&*", "≠≤∀€£¥§"),
)
CHARACTERS = st.sampled_from(SCRIPTS).flatmap(st.sampled_from) | st.characters(exclude_categories=["Cs"])
SENTENCES = st.lists(st.text(CHARACTERS, max_size=30), max_size=8)
LETTERS = [chr(point) for point in (*range(97, 123), *range(0x3B1, 0x3CA), *range(0x430, 0x450))]
PIECES = Vocabulary(
    (*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), *"明月几时有，。.!?'İＡ1éÉ", "##é", "##1")
)
TOKENIZERS = {
    "uncased": make_tokenizer(PIECES, do_lower_case=True),
    "cased": make_tokenizer(PIECES, do_lower_case=False),
    "accents kept": Tokenizer(PIECES, True, strip_accents=False),
    "chinese in words": Tokenizer(PIECES, True, tokenize_chinese_chars=False),
    "toy": make_tokenizer(TOY, do_lower_case=True),
}
VOCABULARIES = [("bert-base-uncased", True), ("bert-base-uncased", False), ("bert-base-chinese", True)]
real_vocabularies = pytest.mark.parametrize(("name", "do_lower_case"), VOCABULARIES)


def real_tokenizer(shared_data: Path, name: str, do_lower_case: bool) -> Tokenizer:
    return load_tokenizer(shared_data / "vocabs" / f"{name}-vocab.txt", do_lower_case=do_lower_case)


def split_ids(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[list[int]]:
    """The ids of each sentence by the fast encoder."""
    encoded = tokenizer.fast_encoder().encode(sentences)
    assert encoded.lengths.shape == (len(sentences),)
    assert encoded.ids.shape == encoded.starts.shape == encoded.ends.shape == (encoded.lengths.sum(),)
    return [ids.tolist() for ids in np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])] if len(sentences) else []


def assert_equal(tokenizer: Tokenizer, sentences: Sequence[str]) -> None:
    wanted = [ids.tolist() for ids in tokenizer.encode_plain(sentences)]
    for sentence, found, expected in zip(sentences, split_ids(tokenizer, sentences), wanted, strict=True):
        assert found == expected, repr(sentence)


# ---- equal to the library ----


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=60)
@given(sentences=SENTENCES)
def test_ids_are_those_of_the_library_in_every_script(kind: str, sentences: list[str]) -> None:
    assert_equal(TOKENIZERS[kind], sentences)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(
    "sentences",
    [
        [],
        [""],
        ["", "", ""],
        ["明月", "", "in the beginning"],
        ["明月\n几时", "有。"],
        ["\n", "明", "\n\n", "月\n"],
        ["a\nb"],
        ["", "\n", ""],
        ["[UNK]"],
        ["明[UNK]月", "几时有", "x[UNK]", "[unk] [ UNK ]"],
        ["[MASK] [CLS][SEP] [PAD]"],
        ["a\u200bb", "\u200b", "\x00\x07", "a\x00", "\ufffd明\ufffd"],
        ["e\u0301 é É E\u0301", "明\u0301月", "\u0301", "!\u0338", "=\u0338 ≠", "\u0301明"],
        ["İ I\u0307 ı ſ ß ΑΣ σς"],
        ["a" * 100, "a" * 101, "明" * 300, "é" * 101, "a" * 99 + "\u200bb"],
        ["naïve café が バ", "naïve café が バ"],
        ["ab", "c", "ab c", "abc"],  # words do not run on into the next sentence
    ],
)
def test_known_traps_give_what_the_library_gives(kind: str, sentences: list[str]) -> None:
    assert_equal(TOKENIZERS[kind], sentences)


@pytest.mark.parametrize("normalized", [True, False])
def test_added_tokens_are_found_as_the_library_finds_them(normalized: bool) -> None:
    added = ("a b", "明月", "Ab", "<e1>", "é1")
    vocabulary = Vocabulary((*PIECES.tokens, *added))
    tokens = tuple(AddedToken(content, normalized=normalized) for content in added)
    tokenizer = Tokenizer(vocabulary, True, added_tokens=tokens)
    for text in ("A B c", "a b", "明月几", "明 月", "ab Ab abc", "<E1>x", "x<e1>", "É1 é1 e1", "c"):
        assert_equal(tokenizer, [text])
        assert_equal(tokenizer, ["c。", text, "明", text])


def test_a_literal_unknown_token_of_a_text_is_one_token_and_a_literal_mask_is_none() -> None:
    tokenizer = TOKENIZERS["toy"]
    assert split_ids(tokenizer, ["明[UNK]月", "明月"]) == [
        [*toy_ids("明"), TOY.unk_id, *toy_ids("月")],
        toy_ids("明月"),
    ]
    assert TOY.mask_id not in split_ids(tokenizer, ["明[MASK]月"])[0]


@pytest.mark.shared_data
@real_vocabularies
def test_a_sample_of_all_characters_is_what_the_library_says(shared_data: Path, name: str, do_lower_case: bool) -> None:
    tokenizer = real_tokenizer(shared_data, name, do_lower_case)
    points = [*range(0, 0x3000, 7), *range(0x3000, 0x20000, 61), *range(0x20000, sys.maxunicode, 997)]
    assert_equal(tokenizer, in_contexts(points))


def in_contexts(points: Sequence[int]) -> list[str]:
    """Each character alone, within a word, between Chinese ones, and beside a mark."""
    characters = [chr(point) for point in points if unicodedata.category(chr(point)) != "Cs"]
    return [f"{c} the{c}moon 明{c}月 {c}\u0301 .{c}" for c in characters]


@pytest.mark.slow
@pytest.mark.shared_data
@real_vocabularies
def test_every_character_is_what_the_library_says(shared_data: Path, name: str, do_lower_case: bool) -> None:
    tokenizer = real_tokenizer(shared_data, name, do_lower_case)
    for start in range(0, sys.maxunicode + 1, 1 << 16):
        assert_equal(tokenizer, in_contexts(range(start, start + (1 << 16))))


@pytest.mark.slow
@pytest.mark.shared_data
@real_vocabularies
def test_two_hundred_thousand_generated_strings_have_no_difference(
    shared_data: Path, name: str, do_lower_case: bool
) -> None:
    """Promise A7: every script, controls, combining marks, U+FFFD, emoji; words of the vocabulary among them."""
    tokenizer = real_tokenizer(shared_data, name, do_lower_case)
    words = [token.removeprefix("##") for token in tokenizer.vocabulary.tokens[1000:]]
    generator = random.Random(7)
    for _ in range(40):
        assert_equal(tokenizer, [generated(generator, words) for _ in range(5000)])


def generated(generator: random.Random, words: Sequence[str]) -> str:
    parts = []
    for _ in range(generator.randint(0, 12)):
        kind = generator.random()
        if kind < 0.4:
            script = generator.choice(SCRIPTS)
            parts.append("".join(generator.choices(script, k=generator.randint(1, 8))))
        elif kind < 0.7:
            parts.append(generator.choice(words))
        elif kind < 0.8:
            parts.append(generator.choice(words).capitalize())
        elif kind < 0.85:
            parts.append(chr(generator.choice([*range(0xD800), *range(0xE000, 0x10000)][:: generator.randint(1, 50)])))
        elif kind < 0.9:
            parts.append(unicodedata.normalize("NFD", generator.choice(["é", "ǚ", "が", "각", "ü"])))
        else:
            parts.append(generator.choice([" ", "[UNK]", "##", "\n", "[MASK]", "\u200b"]))
    return "".join(parts)


# ---- where tokens stand ----


def pieces_of(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[tuple[str, str]]:
    """(characters at the token's place, token) of every token."""
    encoded, text = tokenizer.fast_encoder().encode(sentences), joined(sentences)
    places = zip(encoded.starts.tolist(), encoded.ends.tolist(), encoded.ids.tolist(), strict=True)
    return [(text[start:end], tokenizer.token_of(id)) for start, end, id in places]


def test_a_token_stands_at_its_character_or_its_word() -> None:
    found = pieces_of(TOKENIZERS["uncased"], ["明月，Éa  b", "", "有\u200b。"])
    assert found == [
        *[("明", "明"), ("月", "月"), ("，", "，"), ("Éa", "e"), ("Éa", "##a"), ("b", "b"), ("有", "有")],
        ("。", "。"),
    ]


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=60)
@given(sentences=SENTENCES)
def test_every_token_is_found_in_the_characters_at_its_place(kind: str, sentences: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    encoder = tokenizer.fast_encoder()
    encoded = encoder.encode(sentences)
    starts = sentence_starts(sentences)
    of_sentence = np.repeat(np.arange(len(sentences)), encoded.lengths)
    assert (encoded.starts >= starts[of_sentence]).all()
    assert (encoded.ends <= np.array([s + len(t) for s, t in zip(starts, sentences, strict=True)])[of_sentence]).all()
    assert (np.diff(encoded.starts) >= 0).all()
    for characters, token in pieces_of(tokenizer, sentences):
        if token != "[UNK]":
            assert token.removeprefix("##") in encoder.normalized(characters)
        assert characters.strip()


def test_sentences_begin_where_the_joined_text_has_them() -> None:
    sentences = ["明月", "", "a\nb", "c"]
    text = joined(sentences)
    for sentence, start in zip(sentences, sentence_starts(sentences).tolist(), strict=True):
        assert text[start : start + len(sentence)] == sentence


# ---- its memory ----


@settings(deadline=None, max_examples=30)
@given(st.lists(SENTENCES, max_size=4))
def test_what_was_met_before_changes_nothing(chunks: list[list[str]]) -> None:
    tokenizer = TOKENIZERS["uncased"]
    encoder = tokenizer.fast_encoder()
    for sentences in chunks:
        again, fresh = encoder.encode(sentences), tokenizer.fast_encoder().encode(sentences)
        for name in ("ids", "lengths", "starts", "ends"):
            assert vars(again)[name].tolist() == vars(fresh)[name].tolist()


def test_a_memory_of_words_begun_anew_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MAX_CACHED_WORDS", 20)
    tokenizer, generator = TOKENIZERS["uncased"], random.Random(1)
    encoder = tokenizer.fast_encoder()
    words = ["".join(generator.choices("abcde", k=generator.randint(1, 3))) for _ in range(400)]
    for start in range(0, 400, 8):
        sentences = [" ".join(islice(words, start, start + 8)), "明月 ab"]
        found = np.split(encoder.encode(sentences).ids, np.cumsum(encoder.encode(sentences).lengths)[:-1])
        assert [ids.tolist() for ids in found] == [ids.tolist() for ids in tokenizer.encode_plain(sentences)]
        assert len(encoder._places) <= 20


def test_more_words_at_once_than_are_remembered_are_encoded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MAX_CACHED_WORDS", 3)
    assert_equal(TOKENIZERS["uncased"], ["a b c d e f ab cd ef", "a b 明"])


def test_places_do_not_depend_on_whether_a_sentence_goes_to_the_library() -> None:
    """A literal [UNK] sends it there; the library's own places are those of pieces."""
    tokenizer = TOKENIZERS["uncased"]
    for text in ("明月，Éa  bcd", "a\u200bbc 有", "abc abc"):
        plain, odd = (tokenizer.fast_encoder().encode([sentence]) for sentence in (text, f"{text}[UNK]"))
        assert odd.starts[:-1].tolist() == plain.starts.tolist()
        assert odd.ends[:-1].tolist() == plain.ends.tolist()
