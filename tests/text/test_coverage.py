"""How a tokenizer meets a text: the counts, whom to blame for [UNK], and what no text can ever give."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from toy_model import toy_tokenizer

from bertkit.errors import InputError
from bertkit.text.coverage import (
    batches_of_words,
    coverage_of,
    coverage_of_texts,
    described,
    encoded_words,
    greedy_path,
    is_chinese,
    why_never_made,
    word_counter,
)
from bertkit.text.learning import WordCounter
from bertkit.text.tokenizer import Tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TEXTS = ["我住长江头，君住长江尾。", "The U.S. team won, playing with an unseen ball.", "他说“好”……", "un seen unseens"]


def tokenizer_of(*tokens: str, do_lower_case: bool = True) -> Tokenizer:
    return make_tokenizer(Vocabulary((*SPECIAL_TOKENS, *tokens)), do_lower_case=do_lower_case)


# ---- the counts ----


@given(st.lists(st.text() | st.sampled_from([*TEXTS, "[UNK]", "[MASK]"]), max_size=5), st.booleans())
def test_tokens_and_unknown_ones_are_those_of_the_texts_encoded(texts: list[str], do_lower_case: bool) -> None:
    tokenizer = toy_tokenizer(do_lower_case=do_lower_case)
    coverage = coverage_of_texts(texts, tokenizer)
    used = Counter(int(id) for ids in tokenizer.encode_plain(texts) for id in ids)
    literal = sum(text.count("[UNK]") for text in texts)
    assert coverage.num_tokens == used.total() - literal
    assert coverage.num_unknown == used.pop(tokenizer.vocabulary.unk_id, 0) - literal
    assert coverage.num_literal_unknown == literal
    assert {id: int(n) for id, n in enumerate(coverage.token_counts) if n and id != 2} == used


def test_the_counts_are_those_made_by_hand() -> None:
    coverage = coverage_of_texts(["我住长江头。", "unseen Team, 鸟"], toy_tokenizer())
    assert (coverage.num_words, coverage.num_tokens, coverage.num_unknown) == (10, 11, 1)
    assert coverage.num_whole == 8  # all but un ##seen and 鸟
    assert coverage.num_characters == 6 + 6 + 4 + 1 + 1
    assert coverage.chinese == {"我": 1, "住": 1, "长": 1, "江": 1, "头": 1, "鸟": 1}
    assert coverage.unknown_share == 1 / 11


def test_no_text_has_no_unknown_share() -> None:
    assert coverage_of_texts([], toy_tokenizer()).unknown_share == 0


def test_the_counts_do_not_depend_on_how_many_words_are_held() -> None:
    texts = [f"{text} {n}" for n in range(300) for text in TEXTS]
    whole = coverage_of_texts(texts, toy_tokenizer())
    counter = word_counter(toy_tokenizer())
    assert len(list(batches_of_words(texts, counter, words_held=1))) > 1 or counter.num_held == 0
    for words_held in (1, 50):
        parts = coverage_of_texts(texts, toy_tokenizer(), words_held=words_held)
        assert (parts.token_counts == whole.token_counts).all()
        assert (parts.num_words, parts.characters, parts.chinese) == (whole.num_words, whole.characters, whole.chinese)


def test_different_words_are_encoded_some_thousand_at_a_time() -> None:
    words = Counter({f"w{n}": 1 for n in range(45_000)})
    sizes = [len(batch) for batch, _ in encoded_words(words, toy_tokenizer())]
    assert sum(sizes) == 45_000
    assert max(sizes) <= 20_000


def test_words_too_long_are_counted_and_blame_no_character() -> None:
    coverage = coverage_of_texts([f"{'ǂ' * 101} ǂ"], toy_tokenizer())
    assert (coverage.num_long, coverage.num_unknown) == (1, 2)
    assert coverage.characters == {"ǂ": 1}


def test_words_with_a_capital_are_counted_where_nothing_is_made_small() -> None:
    coverage = coverage_of_texts(["The team won The cup A"], tokenizer_of("team", "A", do_lower_case=False))
    assert (coverage.num_capital, coverage.num_capital_unknown) == (3, 2)
    assert coverage_of_texts(["The team"], tokenizer_of("team")).num_capital == 0


def test_added_tokens_in_a_text_are_tokens_and_no_words() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "<e>", "a", "b"))
    tokenizer = Tokenizer(vocabulary, True, added_tokens=(AddedToken("<e>", normalized=False),))
    coverage = coverage_of_texts(["a<e>b <e>"], tokenizer)
    assert (coverage.num_tokens, coverage.num_unknown, coverage.num_words) == (4, 0, 2)
    assert coverage.token_counts[vocabulary.ids["<e>"]] == 2


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError, match="half a surrogate pair"):
        coverage_of_texts(["花\ud83d"], toy_tokenizer())


# ---- whom to blame ----


def test_quotes_and_ellipses_that_the_vocabulary_lacks_are_named_by_count() -> None:
    coverage = coverage_of_texts(["他说“好”……", "“是”"], tokenizer_of("他", "说", "好", "是"))
    assert coverage.unknown_characters == [("“", 2), ("”", 2), ("…", 2)]


def test_every_character_without_an_entry_is_to_blame() -> None:
    coverage = coverage_of(Counter({"aǂbǁ": 3}), tokenizer_of("a", "##b"))
    assert coverage.characters == {"ǂ": 3, "ǁ": 3}


def test_a_character_that_has_no_entry_at_its_place_is_shown_as_the_entry_that_is_wanted() -> None:
    assert coverage_of(Counter({"ab": 3}), tokenizer_of("a", "b")).characters == {"##b": 3}
    assert coverage_of(Counter({"ba": 2}), tokenizer_of("##a", "##b")).characters == {"b": 2}


@pytest.mark.parametrize(
    ("character", "text"),
    [
        ("“", "“  U+201C LEFT DOUBLE QUOTATION MARK"),
        ("𠮷", "𠮷  U+20BB7 CJK UNIFIED IDEOGRAPH-20BB7"),
        ("\ue000", "\ue000  U+E000 (no name)"),
    ],
)
def test_a_character_is_described_by_code_point_and_name(character: str, text: str) -> None:
    assert described(character) == text


# ---- WordPiece by hand ----


@given(st.text(st.sampled_from("abseniu江住"), min_size=1, max_size=8))
def test_the_greedy_path_is_that_of_the_tokenizer(word: str) -> None:
    tokenizer = make_tokenizer(
        Vocabulary((*SPECIAL_TOKENS, "un", "uns", "##een", "##seen", "a", "##a", "s", "##b", "住", "##江")),
        do_lower_case=True,
    )
    tokenizer = Tokenizer(tokenizer.vocabulary, True, tokenize_chinese_chars=False)
    path, whole = greedy_path(word, tokenizer.vocabulary)
    assert (path if whole else ["[UNK]"]) == tokenizer.encode(word).tokens


def test_the_path_of_a_continuation_is_of_continuations() -> None:
    assert greedy_path("##seenab", tokenizer_of("##seen", "##a", "##b").vocabulary) == (["##seen", "##a", "##b"], True)
    assert greedy_path("##seenc", tokenizer_of("##seen").vocabulary) == (["##seen"], False)


# ---- what no text can give ----


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("tree", None),
        ("树", None),
        ("##ing", None),
        ("。", None),
        ("##树", "every Chinese character is a word of its own"),
        ("树木", "every Chinese character is a word of its own"),
        ("e-mail", "is cut at its punctuation"),
        ("##,", "is cut at its punctuation"),
        ("[new]", "is cut at its punctuation"),
        ("Tree", "has capital letters, but the tokenizer makes them small"),
        ("café", "the tokenizer takes off accents and control characters"),
        ("a\u200bb", "the tokenizer takes off accents and control characters"),
        ("new york", "holds a blank"),
        ("a" * 101, "is over 100 characters long"),
        ("##" + "a" * 100, "is over 100 characters long"),
    ],
)
def test_an_entry_that_no_text_gives_is_known_with_the_reason(token: str, reason: str | None) -> None:
    assert why_never_made(token, toy_tokenizer()) == reason


def test_the_rules_are_those_of_the_tokenizer() -> None:
    cased = Tokenizer(toy_tokenizer().vocabulary, False, tokenize_chinese_chars=False)
    assert [why_never_made(token, cased) for token in ("Tree", "café", "树木", "##树")] == [None] * 4


def test_an_added_token_inside_an_entry_is_cut_out_first() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "covid"))
    tokenizer = Tokenizer(vocabulary, True, added_tokens=(AddedToken("covid"),))
    assert why_never_made("covidian", tokenizer) == "holds an added token, which is cut out first"
    assert why_never_made("covid", tokenizer) is None


@given(st.text(min_size=1, max_size=6))
def test_whatever_has_no_reason_against_it_is_one_token_once_it_is_an_entry(text: str) -> None:
    if text in SPECIAL_TOKENS or text.startswith("##"):
        return
    tokenizer = tokenizer_of(text)
    made = tokenizer.encode_plain([text])[0].tolist() == [len(SPECIAL_TOKENS)]
    assert made == (why_never_made(text, tokenizer) is None)


def test_chinese_is_what_the_tokenizer_takes_for_it() -> None:
    points = [*range(0x3300, 0x4E10), *range(0x9F00, 0xA010), *range(0xF8F0, 0xFB10), *range(0x1FFF0, 0x20010)]
    points += [*range(0x2A6D0, 0x2A710), *range(0x2B730, 0x2B830), *range(0x2CEA0, 0x2CEC0), *range(0x2F7F0, 0x2FA30)]
    counter = WordCounter(do_lower_case=False)
    counter.add(" ".join(f"a{chr(point)}b" for point in points))
    words = counter.counts()
    for point in points:
        assert is_chinese(chr(point)) == (chr(point) in words and f"a{chr(point)}b" not in words), hex(point)
