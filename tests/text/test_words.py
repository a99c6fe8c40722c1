"""Word boundaries: they are the segmenter's where the tokens allow it, single tokens where not, and never a guess."""

import builtins
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_data import TOY

from bertkit.errors import InputError
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.text.words import Segmenter, load_segmenter, word_starts

NEXT_WORD = "使用语言模型预测下一个词"
PIECES = Vocabulary((*SPECIAL_TOKENS, *NEXT_WORD, *"abcgpt，。 .", *(f"##{c}" for c in "abcgpt"), "##词"))
TOKENIZER = make_tokenizer(PIECES, do_lower_case=True)


def words_of(sentences: Sequence[str], segmenter: Segmenter, *, tokenizer: Tokenizer = TOKENIZER) -> list[list[str]]:
    """The tokens of all sentences, a list for each word."""
    encoded = tokenizer.fast_encoder().encode(sentences)
    words: list[list[str]] = []
    for id, begins in zip(encoded.ids.tolist(), word_starts(sentences, encoded, segmenter).tolist(), strict=True):
        if begins:
            words.append([])
        words[-1].append(tokenizer.token_of(id))
    return words


def cut_at(*places: int) -> Segmenter:
    return lambda sentence: [sentence[a:b] for a, b in zip((0, *places), (*places, len(sentence)), strict=True)]


# ---- Chinese ----


@pytest.mark.parametrize(
    ("name", "text"),
    [("rjieba", NEXT_WORD), ("spaces", "使用 语言 模型 预测 下 一个 词"), ("rjieba", NEXT_WORD + "。")],
)
def test_the_characters_of_a_chinese_word_are_together(name: str, text: str) -> None:
    if name == "rjieba":
        pytest.importorskip("rjieba")
    found = ["".join(word) for word in words_of([text], load_segmenter(name))]
    assert "".join(found) == text.replace(" ", "")
    assert {"使用", "语言", "预测"} <= set(found)
    assert ("模型" in found) or ("语言模型" in found)


def test_words_by_hand() -> None:
    found = words_of([NEXT_WORD, "下一个"], cut_at(2, 4))
    assert found == [["使", "用"], ["语", "言"], [*"模型预测下一个词"], ["下", "一"], ["个"]]


def test_two_sentences_never_share_a_word() -> None:
    assert words_of(["模", "型"], load_segmenter("spaces")) == [["模"], ["型"]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["使用", "语言", "abc", "gpt", "词", "，"]), min_size=1, max_size=8))
def test_words_between_spaces_come_back_as_they_were(words: list[str]) -> None:
    text = " ".join(words)
    found = words_of([text, text], load_segmenter("spaces"))
    assert ["".join(word).replace("##", "") for word in found] == words * 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text("使用语言abc ，", min_size=1, max_size=4), max_size=5), st.data())
def test_every_word_begins_at_its_first_token_and_no_token_is_without_one(
    sentences: list[str], data: st.DataObject
) -> None:
    cuts = {
        sentence: sorted(data.draw(st.sets(st.integers(1, max(1, len(sentence) - 1)), max_size=3)))
        for sentence in sentences
    }
    encoded = TOKENIZER.fast_encoder().encode(sentences)
    begins = word_starts(sentences, encoded, lambda sentence: cut_at(*cuts[sentence])(sentence))
    assert begins.shape == encoded.ids.shape
    first, place = 0, 0
    for sentence, length in zip(sentences, encoded.lengths.tolist(), strict=True):
        if length:
            assert begins[first]
        ends = [place + cut for cut in (*cuts[sentence], len(sentence))]
        for token in range(first + 1, first + length):
            same_word = all(not encoded.starts[token - 1] < end <= encoded.starts[token] for end in ends)
            if not same_word:
                assert begins[token]
        first, place = first + length, place + len(sentence) + 1


# ---- where the words and the tokens disagree ----


def test_a_cut_inside_an_english_word_makes_both_sides_single_tokens() -> None:
    # 用a | bc语 | 言: the cut stands inside abc, which the tokenizer takes as one.
    assert words_of(["用abc语言"], cut_at(2, 5)) == [["用"], ["a"], ["##b"], ["##c"], ["语"], ["言"]]
    assert words_of(["用abc语言"], cut_at(1, 4)) == [["用"], ["a", "##b", "##c"], ["语", "言"]]


def test_a_cut_inside_an_english_word_is_the_same_where_the_sentence_goes_to_the_library() -> None:
    """A literal [UNK] sends the sentence to the library, whose places are those of pieces."""
    plain, odd = "用abc语言", "用abc语言[UNK]"
    for cuts in [(2, 5), (3,), (2, 3, 5), (1, 4)]:
        assert words_of([odd], cut_at(*cuts, 6))[:-1] == words_of([plain], cut_at(*cuts))


def test_a_word_longer_than_what_the_tokenizer_takes_as_one_keeps_it_whole() -> None:
    assert words_of(["abc gpt词"], cut_at(7)) == [["a", "##b", "##c", "g", "##p", "##t"], ["词"]]


def test_blanks_and_characters_that_vanish_belong_to_no_word() -> None:
    assert words_of([" \u200b使用 \u200b 语言 "], load_segmenter("spaces")) == [["使", "用"], ["语", "言"]]


def test_a_sentence_without_tokens_and_no_sentence_are_no_trouble() -> None:
    assert words_of(["", " ", "\u200b", "词"], load_segmenter("spaces")) == [["词"]]
    assert words_of([], load_segmenter("spaces")) == []


@pytest.mark.parametrize(
    "words", [["使用"], ["使用", "语"], ["使用", " ", "语言"], [], ["使用语言", ""] * 2, ["使用", "語言"]]
)
def test_words_that_do_not_join_to_the_sentence_are_refused(words: list[str]) -> None:
    encoded = TOKENIZER.fast_encoder().encode(["使用语言"])
    with pytest.raises(
        InputError, match=r"--word_segmenter: the words .* do not join to the sentence\n  value: \('使用语言'"
    ):
        word_starts(["使用语言"], encoded, lambda sentence: words)


def test_an_empty_word_changes_nothing() -> None:
    assert words_of(["使用语言"], lambda _: ["", "使用", "", "语言", ""]) == [["使", "用"], ["语", "言"]]


# ---- which segmenter ----


@pytest.mark.parametrize(("name", "remedy"), [("rjieba", r"bertkit\[zh\]"), ("jieba", "pip install jieba")])
def test_a_segmenter_that_is_not_installed_is_named(name: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(module: str, *arguments: Any, **named: Any) -> Any:
        if module == name:
            raise ImportError(module)
        return real(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        InputError, match=rf"--word_segmenter: is not installed\n  value: '{name}'\n  what to do: .*{remedy}"
    ):
        load_segmenter(name)


def test_jieba_is_asked_for_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Jieba:
        @staticmethod
        def cut(sentence: str) -> Iterator[str]:
            yield from (sentence[:2], sentence[2:])

    monkeypatch.setitem(sys.modules, "jieba", Jieba)  # type: ignore[arg-type]
    assert words_of(["使用语言"], load_segmenter("jieba")) == [["使", "用"], ["语", "言"]]


def test_a_users_own_function_is_a_segmenter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_words.py").write_text("def halves(s):\n    yield s[:2]\n    yield s[2:]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert words_of(["使用语言"], load_segmenter("own_words:halves")) == [["使", "用"], ["语", "言"]]
    with pytest.raises(InputError, match="own_words has no function 'thirds'"):
        load_segmenter("own_words:thirds")
    sys.modules.pop("own_words")


@pytest.mark.parametrize("name", ["none", "jiaba", ""])
def test_another_name_is_refused_and_the_right_ones_listed(name: str) -> None:
    with pytest.raises(InputError, match=rf"is no word segmenter\n  value: '{name}'\n  expected: none, spaces, rjieba"):
        load_segmenter(name)


@pytest.mark.shared_data
def test_the_words_of_the_ci_join_to_their_tokens(shared_data: Path) -> None:
    pytest.importorskip("rjieba")
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-chinese-vocab.txt", do_lower_case=True)
    sentences = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()[:200]
    found = words_of(sentences, load_segmenter("rjieba"), tokenizer=tokenizer)
    lengths = [len(word) for word in found]
    assert sum(lengths) == sum(len(ids) for ids in tokenizer.encode_plain(sentences))
    assert 0.2 < sum(length == 2 for length in lengths) / len(lengths) < 0.6
    assert max(lengths) < 12


def test_the_toy_vocabulary_knows_english_words_by_their_signs() -> None:
    tokenizer = make_tokenizer(TOY, do_lower_case=True)
    found = words_of(["in the beginning god"], load_segmenter("spaces"), tokenizer=tokenizer)
    assert found == [["in"], ["the"], ["beginning"], ["god"]]
