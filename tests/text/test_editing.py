"""A vocabulary made larger or smaller: what is asked for is there, and everything else is cut as before."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from toy_model import toy_tokenizer

from bertkit.errors import InputError
from bertkit.text.coverage import batches_of_words, word_counter
from bertkit.text.editing import Needs, Trimmed, add_words, read_words
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TEXTS = ["我住长江头，君住长江尾。", "The U.S. team won gold, unseen in the night!", "naïve café", "鸟 unseens plays"]
PIECES = ("un", "uns", "##een", "##seen", "##s", "##e", "##n", "u", "s", "##u", "长", "江", "[unused7]", "a", "##a")


def tokens_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token_of(int(id)) for id in tokenizer.encode_plain([text])[0]]


def trimmed_to(tokenizer: Tokenizer, texts: list[str], *, min_frequency: int = 1, words_held: int = 9) -> Trimmed:
    needs = Needs(tokenizer)
    for words in batches_of_words(texts, word_counter(tokenizer), words_held=words_held):
        needs.add(words)
    return needs.trimmed(min_frequency=min_frequency)


# ---- adding ----


@pytest.mark.parametrize("use_unused", [True, False])
def test_an_added_word_is_one_token_and_no_other_id_moves(use_unused: bool) -> None:
    old = toy_tokenizer()
    result = add_words(old, ["covid", "苓"], use_unused=use_unused)
    new = result.tokenizer
    assert tokens_of(new, "covid 苓") == ["covid", "苓"]
    assert result.added == ("covid", "苓")
    for id, token in enumerate(old.vocabulary.tokens):
        assert new.vocabulary.tokens[id] == token or (use_unused and token.startswith("[unused"))
    assert new.vocabulary.size == old.vocabulary.size + (0 if use_unused else 2)
    assert result.num_unused_taken == (2 if use_unused else 0)
    for text in TEXTS:
        assert tokens_of(new, text) == tokens_of(old, text)


def test_unused_entries_are_taken_from_the_front() -> None:
    tokens = add_words(toy_tokenizer(), ["covid"], use_unused=True).tokenizer.vocabulary.tokens
    assert tokens[1] == "covid"
    assert tokens[-1] == "[unused1]"


def test_a_row_is_the_old_id_or_the_pieces_that_the_word_replaces() -> None:
    old = toy_tokenizer()
    ids = old.vocabulary.ids
    rows = add_words(old, ["unseens", "鸟", "##seens", "##q", "seen"], use_unused=False).rows
    assert rows[: old.vocabulary.size] == tuple(range(old.vocabulary.size))
    assert rows[old.vocabulary.size :] == (
        (ids["un"], ids["##seen"], ids["##s"]),
        (),  # it was [UNK]
        (ids["##seen"], ids["##s"]),
        (),
        (),
    )
    rows = add_words(old, ["unseens"], use_unused=True).rows
    assert rows[1] == (ids["un"], ids["##seen"], ids["##s"])


def test_a_longer_word_is_cut_at_the_added_one() -> None:
    new = add_words(toy_tokenizer(), ["unse", "##ens"], use_unused=False).tokenizer
    assert tokens_of(new, "unseens") == ["unse", "##ens"]


def test_what_became_of_every_word_is_counted_and_named() -> None:
    given_words = ["covid", "the", "Tree", "new york", "苏轼", "covid", "e-mail", "[unused0]", "##树"]
    result = add_words(toy_tokenizer(), given_words, use_unused=False)
    assert (result.added, result.present, result.repeated) == (("covid",), ("the", "[unused0]"), ("covid",))
    assert [word for word, _ in result.refused] == ["Tree", "new york", "苏轼", "e-mail", "##树"]
    text = "\n".join(result.lines())
    for line in (
        "refused: 苏轼: every Chinese character is a word of its own: 苏 轼",
        "refused: Tree: has capital letters, but the tokenizer makes them small: tree",
        "refused: e-mail: is cut at its punctuation: e - mail",
        "refused: ##树: every Chinese character is a word of its own",
        "given twice: covid",
        "an entry already: the",
    ):
        assert line in text.splitlines()
    assert re.search(r"words given +9\n", text)


def test_of_many_named_words_the_first_are_shown_and_the_rest_counted() -> None:
    lines = add_words(toy_tokenizer(), ["ok", *(f"a-{n}" for n in range(50))], use_unused=False).lines()
    assert len(lines) == 22
    assert lines[-1] == "and 30 more"


def test_a_word_of_which_nothing_is_left_says_so() -> None:
    result = add_words(toy_tokenizer(), ["covid", "\u0301"], use_unused=False)
    assert result.refused[0][1] == "the tokenizer takes off accents and control characters: nothing is left"


def test_words_that_are_all_refused_are_an_error_with_the_first_reason() -> None:
    with pytest.raises(InputError, match=r"(?s)none of the 2 words.*1 are entries.*'Tree: has capital letters"):
        add_words(toy_tokenizer(), ["Tree", "the"], use_unused=False)


def test_more_words_than_unused_entries_are_refused() -> None:
    with pytest.raises(InputError, match=r"--use_unused: there are 3 words to add, but 2 \[unused…\] entries"):
        add_words(toy_tokenizer(), ["x", "y", "z"], use_unused=True)


# ---- words given ----


def test_words_are_given_by_commas_or_one_a_line(tmp_path: Path) -> None:
    assert read_words("covid, 苓 ,,netizen") == ["covid", "苓", "netizen"]
    path = tmp_path / "words"
    path.write_bytes("\ufeffcovid\r\n\n苓,芷\nnew york\n".encode())
    assert read_words(str(path)) == ["covid", "苓,芷", "new york"]


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"words\.txt: does not exist"):
        read_words("words.txt")
    with pytest.raises(InputError, match="nowhere: does not exist"):
        read_words(str(tmp_path / "nowhere"))


def test_words_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"a\n" + "苓".encode("gb18030"))
    with pytest.raises(InputError, match="words: byte 2: is not UTF-8"):
        read_words(str(tmp_path / "words"))


# ---- trimming ----


@given(
    st.lists(st.text(st.sampled_from("uneas 长江鸟,"), max_size=12) | st.text(max_size=5), max_size=6),
    st.sets(st.sampled_from(PIECES)),
    st.booleans(),
)
def test_every_text_of_the_corpus_is_cut_as_before(texts: list[str], pieces: set[str], chinese: bool) -> None:
    old = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *sorted(pieces))), True, tokenize_chinese_chars=chinese)
    new = trimmed_to(old, texts).tokenizer
    for text in texts:
        assert tokens_of(new, text) == tokens_of(old, text)


@given(
    st.lists(st.text(st.sampled_from("uneas 长江鸟,"), max_size=12), max_size=6),
    st.sets(st.sampled_from(PIECES)),
    st.integers(2, 4),
)
def test_nothing_becomes_unknown_that_was_not(texts: list[str], pieces: set[str], min_frequency: int) -> None:
    old = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, *sorted(pieces))), do_lower_case=True)
    new = trimmed_to(old, texts, min_frequency=min_frequency).tokenizer
    for text in texts:
        for word in text.replace(",", " , ").split():
            assert ("[UNK]" in tokens_of(new, word)) == ("[UNK]" in tokens_of(old, word))


def test_a_word_that_was_unknown_stays_so_although_a_shorter_entry_would_do() -> None:
    old = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "uns", "un", "##seen")), do_lower_case=True)
    assert tokens_of(old, "unseen") == ["[UNK]"]  # uns comes first, and there is no ##een
    new = trimmed_to(old, ["unseen un"]).tokenizer
    assert tokens_of(new, "unseen") == ["[UNK]"]
    assert "uns" in new.vocabulary.ids


def test_rare_entries_go_and_their_words_are_spelt() -> None:
    old = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "ab", "a", "##a", "##b", "c", "d")), do_lower_case=True)
    result = trimmed_to(old, ["ab c c"], min_frequency=2)
    assert result.tokenizer.vocabulary.tokens[5:] == ("a", "##b", "c")
    assert (result.num_frequent, result.num_needed, result.num_dropped) == (1, 2, 3)


def test_a_rare_entry_stays_where_nothing_can_take_its_place() -> None:
    old = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "ab", "a", "鸟")), do_lower_case=True)
    assert trimmed_to(old, ["ab 鸟"], min_frequency=9).tokenizer.vocabulary.tokens[5:] == ("ab", "a", "鸟")


def test_special_tokens_stay_and_unused_ones_go_in_the_order_they_had() -> None:
    old = toy_tokenizer()
    result = trimmed_to(old, ["江头 gold"])
    assert result.tokenizer.vocabulary.tokens == (*SPECIAL_TOKENS, "gold", *sorted("江头"))
    assert result.rows == tuple(old.vocabulary.ids[token] for token in result.tokenizer.vocabulary.tokens)
    assert (result.num_special, result.num_unused) == (5, 2)


def test_the_counts_add_up() -> None:
    old = toy_tokenizer()
    result = trimmed_to(old, TEXTS)
    kept = result.num_special + result.num_frequent + result.num_needed
    assert kept == result.tokenizer.vocabulary.size == len(result.rows)
    assert kept + result.num_unused + result.num_dropped == old.vocabulary.size
    rows = dict(result.counts())
    assert rows["entries before"] - rows["dropped: [unused…]"] - rows["dropped: too rare, and not needed"] == kept


def test_a_word_too_long_needs_nothing() -> None:
    old = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "##a")), do_lower_case=True)
    assert trimmed_to(old, ["a" * 101]).tokenizer.vocabulary.size == 5


def test_added_tokens_stay_and_what_stands_beside_them_is_cut_as_before() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "<e>", "new york", "er", "##er", "a", "b"))
    added = (AddedToken("<e>", normalized=False), AddedToken("new york", normalized=False))
    old = Tokenizer(vocabulary, True, added_tokens=added)
    text = "a<e>b new yorker"
    new = trimmed_to(old, [text]).tokenizer
    assert tokens_of(new, text) == tokens_of(old, text) == ["a", "<e>", "b", "new york", "er"]
    assert {"<e>", "new york"} <= new.vocabulary.ids.keys()
    assert "##er" not in new.vocabulary.ids


def test_the_result_does_not_depend_on_how_the_words_come() -> None:
    texts = [f"{text} {n}" for n in range(50) for text in TEXTS]
    results = [trimmed_to(toy_tokenizer(), texts, words_held=held, min_frequency=3) for held in (1, 10_000)]
    assert results[0] == results[1]


def test_a_frequency_below_one_is_refused() -> None:
    needs = Needs(toy_tokenizer())
    needs.add(Counter({"gold": 1}))
    with pytest.raises(InputError, match="--min_frequency: is below 1"):
        needs.trimmed(min_frequency=0)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("vocabulary", "corpus", "lines"),
    [
        ("bert-base-chinese", "songci/songci.txt", 20_021),
        ("bert-base-uncased", "us_speeches/us_speeches.txt", 8_033),
    ],
)
def test_real_corpora_are_cut_as_before(shared_data: Path, vocabulary: str, corpus: str, lines: int) -> None:
    old = load_tokenizer(shared_data / "vocabs" / f"{vocabulary}-vocab.txt")
    texts = (shared_data / corpus).read_text(encoding="utf-8").splitlines()
    assert len(texts) == lines
    result = trimmed_to(old, texts, words_held=5_000)
    assert result.tokenizer.vocabulary.size < old.vocabulary.size / 2 + 1_000
    new_ids = {old_id: id for id, old_id in enumerate(result.rows)}
    some = texts[::5]
    for before, after in zip(old.encode_plain(some), result.tokenizer.encode_plain(some), strict=True):
        assert [new_ids[int(id)] for id in before] == after.tolist()
