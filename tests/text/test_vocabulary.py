"""Vocabularies: read and written, their flags, and learning that gives the same bytes every time."""

import hashlib
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertkit.errors import InputError, InputErrors
from bertkit.text.documents import part_of
from bertkit.text.learning import WordCounter, learn_from_words, learn_wordpiece
from bertkit.text.vocabulary import (
    SPECIAL_TOKENS,
    Vocabulary,
    has_capital,
    is_continuation,
    is_unused,
    joined_tokens,
    read_vocabulary,
)

TOKENS = (*SPECIAL_TOKENS, "[unused1]", "花", "。", "##s", "##,", "tree", "##", "$", "a.")


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    return path


# ---- the file ----


def test_a_vocabulary_written_is_read_again(tmp_path: Path) -> None:
    vocabulary = Vocabulary(TOKENS)
    assert read_vocabulary(written(tmp_path, vocabulary.to_bytes())) == vocabulary
    assert vocabulary.hash == hashlib.sha256(vocabulary.to_bytes()).hexdigest()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_are_no_part_of_a_token_but_blanks_are(tmp_path: Path, end: str) -> None:
    tokens = (*SPECIAL_TOKENS, "花 ", "\u2028", "\x85", " a")
    content = end.join(tokens)
    assert read_vocabulary(written(tmp_path, content.encode())).tokens == tokens
    assert read_vocabulary(written(tmp_path, (content + end).encode())).tokens == tokens


@pytest.mark.parametrize("content", ["", "a\n\n", "\n", "a \r\nb\rc\n", "\u2028\n\x1c\nb"])
def test_lines_are_those_of_transformers(tmp_path: Path, content: str) -> None:
    from transformers.models.bert.tokenization_bert import load_vocab

    path = written(tmp_path, ("\n".join(SPECIAL_TOKENS) + "\n" + content).encode())
    assert list(read_vocabulary(path).tokens) == list(load_vocab(str(path)))


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "size", "ids"),
    [("bert-base-chinese", 21128, [0, 100, 101, 102, 103]), ("bert-base-uncased", 30522, [0, 100, 101, 102, 103])],
)
def test_the_vocabularies_of_the_two_public_models_are_read(
    shared_data: Path, name: str, size: int, ids: list[int]
) -> None:
    path = shared_data / "vocabs" / f"{name}-vocab.txt"
    vocabulary = read_vocabulary(path)
    special = [vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id]
    assert (vocabulary.size, special) == (size, ids)
    assert vocabulary.hash == hashlib.sha256(path.read_bytes()).hexdigest()
    assert vocabulary.ordinary.sum() == size - 5 - sum(token.startswith("[unused") for token in vocabulary.tokens)
    for token, is_punctuation in [
        ("，", True),
        ("。", True),
        ("##s", False),
        ("a", False),
        ("[MASK]", False),
        ("$", True),
    ]:
        assert token not in vocabulary.ids or vocabulary.punctuation[vocabulary.id_of(token)] == is_punctuation


def test_only_ordinary_tokens_may_be_masked_or_drawn() -> None:
    assert Vocabulary(TOKENS).ordinary.tolist() == [False] * 6 + [True] * 8
    assert Vocabulary(TOKENS).ordinary.dtype == np.bool_


def test_punctuation_is_what_holds_nothing_else() -> None:
    vocabulary = Vocabulary(TOKENS)
    found = [token for token, flag in zip(TOKENS, vocabulary.punctuation, strict=True) if flag]
    assert found == ["。", "##,", "##", "$"]


@pytest.mark.parametrize(
    ("token", "flags"),
    [
        ("[unused12]", (True, False, False)),
        ("[unused]", (False, False, False)),
        ("##s", (False, True, False)),
        ("##", (False, False, False)),
        ("##S", (False, True, True)),
        ("Tree", (False, False, True)),
        ("树", (False, False, False)),
        ("<S>", (False, False, False)),
        ("[MASK]", (False, False, False)),
    ],
)
def test_a_token_shows_what_it_is(token: str, flags: tuple[bool, bool, bool]) -> None:
    assert (is_unused(token), is_continuation(token), has_capital(token)) == flags


def test_an_unknown_token_has_the_id_of_unk() -> None:
    assert Vocabulary(TOKENS).id_of("花") == 6
    assert Vocabulary(TOKENS).id_of("鸟") == 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"vocab\.txt: does not exist"):
        read_vocabulary(tmp_path / "vocab.txt")


def test_a_file_that_is_not_utf8_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    content = "[PAD]\n花\n".encode() + "鸟".encode("gb18030")
    with pytest.raises(InputError, match=r"vocab\.txt:3: byte 10: is not UTF-8"):
        read_vocabulary(written(tmp_path, content))


def test_a_byte_order_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="begins with a byte order mark"):
        read_vocabulary(written(tmp_path, b"\xef\xbb\xbf" + Vocabulary(TOKENS).to_bytes()))


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty"):
        read_vocabulary(written(tmp_path, b""))


def test_every_token_that_stands_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    tokens = [*SPECIAL_TOKENS, "花", "tree", "花", "tree"]
    with pytest.raises(InputErrors, match=r"(?s):8: .*first in line 6.*'花'.*:9: .*first in line 7.*'tree'"):
        read_vocabulary(written(tmp_path, "\n".join(tokens).encode()))


def test_a_missing_special_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)has no \[SEP\] and no \[MASK\].*what to do: add \[SEP\] \[MASK\]"):
        read_vocabulary(written(tmp_path, "[PAD]\n[UNK]\n[CLS]\n花\n".encode()))


# ---- text for people ----


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["我", "喜", "欢", "python", "，", "really", "!"], "我喜欢python，really!"),
        (["the", "u", ".", "s", ".", "team", "un", "##seen"], "the u. s. team unseen"),
        (["it", "cost", "3", ".", "5", "(", "ok", ")", ",", "$", "4"], "it cost 3.5 (ok), $4"),
        (["he", "said", ":", '"', "no", '"', "to", '"', "me", '"'], 'he said: "no" to "me"'),
        (["well", "-", "known", "don", "'", "t"], "well-known don't"),
        (["##s", "[MASK]", "hello"], "##s [MASK] hello"),
        ([], ""),
    ],
)
def test_tokens_are_joined_as_people_write(tokens: list[str], text: str) -> None:
    assert joined_tokens(tokens) == text


# ---- learning ----


@given(st.lists(st.text(), max_size=4), st.booleans())
def test_words_counted_are_those_of_the_tokenizer(texts: list[str], do_lower_case: bool) -> None:
    counter = WordCounter(do_lower_case=do_lower_case)
    expected: Counter[str] = Counter()
    for text in texts:
        counter.add(text)
        normalized = BertNormalizer(lowercase=do_lower_case).normalize_str(text)
        expected.update(word for word, _ in BertPreTokenizer().pre_tokenize_str(normalized))
    assert counter.counts() == expected


def test_words_of_one_text_do_not_run_into_the_next() -> None:
    counter = WordCounter(do_lower_case=True)
    for text in ("tree", "s Éa", "花[UNK]树"):
        counter.add(text)
    assert counter.counts() == {"tree": 1, "s": 1, "ea": 1, "花": 1, "树": 1}


def test_strings_that_are_tokens_where_they_stand_are_counted_apart() -> None:
    counter = WordCounter(do_lower_case=True, literal=("[UNK]", "<e>"))
    counter.add("花<e>树[UNK]<e>")
    assert counter.counts() == {"花": 1, "树": 1}
    assert counter.literal_counts == {"[UNK]": 1, "<e>": 2}


def test_the_rules_for_accents_and_chinese_are_those_given() -> None:
    counter = WordCounter(do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)
    counter.add("Café 树木")
    assert counter.counts() == {"café": 1, "树木": 1}


def test_words_taken_are_held_no_longer_and_none_is_lost() -> None:
    counter, total = WordCounter(do_lower_case=True), Counter()
    for text in ("a tree", "树 tree", "a a"):
        counter.add(text)
        total += counter.taken()
        assert counter.num_held == 0
    assert total == {"a": 3, "tree": 2, "树": 1}


def test_over_the_limit_the_rarest_words_are_forgotten_and_counted() -> None:
    counter = WordCounter(do_lower_case=True, max_words=10)
    for number in range(100):
        counter.add(f"often 常 w{number} w{number % 3}")
        counter.counts()  # each text is a batch of its own
        assert counter.num_held <= 10
    words = counter.counts()
    assert words["often"] == words["常"] == 100
    assert words.total() + counter.num_forgotten == 400
    assert counter.num_forgotten > 80


def test_below_the_limit_nothing_is_forgotten() -> None:
    counter = WordCounter(do_lower_case=True, max_words=300)
    for number in range(300):
        counter.add(f"w{number}")
    assert len(counter.counts()) == 300
    assert counter.num_forgotten == 0


def test_half_a_surrogate_pair_is_refused() -> None:
    counter = WordCounter(do_lower_case=True)
    counter.add("花\ud83d")
    with pytest.raises(InputError, match="half a surrogate pair is no character"):
        counter.counts()


def test_characters_come_by_falling_count_and_merges_behind_them() -> None:
    words = Counter({"春": 5, "花": 7, "月": 7, "稀": 1, "low": 5, "lower": 2, "newest": 6, "widest": 3})
    tokens = learn_from_words(words, vocab_size=60).tokens[5:]
    assert tokens[:4] == ("e", "##e", "w", "##w")
    assert [token for token in tokens if not token.isascii()] == ["月", "花", "春"]
    merges = [token for token in tokens if len(token.removeprefix("##")) > 1]
    # est is in 9 words: the pairs es and st occur 9 times each, and the smaller text goes first.
    assert merges[:2] == ["##es", "##est"]
    assert "稀" not in tokens


@given(
    st.dictionaries(st.text(alphabet="abc", min_size=1, max_size=8), st.integers(1, 5), max_size=12),
    st.integers(6, 60),
    st.integers(1, 4),
)
def test_merges_are_those_of_the_plain_algorithm(words: dict[str, int], vocab_size: int, min_frequency: int) -> None:
    found = learn_from_words(Counter(words), vocab_size=vocab_size, min_frequency=min_frequency)
    assert found.tokens == slow_learning(words, vocab_size=vocab_size, min_frequency=min_frequency)


def slow_learning(words: dict[str, int], *, vocab_size: int, min_frequency: int) -> tuple[str, ...]:
    """Counts everything again before every merge."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    tokens = [*SPECIAL_TOKENS]
    for character in sorted(counts, key=lambda c: (-counts[c], c)):
        if counts[character] >= min_frequency:
            tokens.append(character)
            if any(character in word[1:] for word in words):
                tokens.append(f"##{character}")
    del tokens[vocab_size:]
    cut = [([word[0], *(f"##{c}" for c in word[1:])], count) for word, count in words.items()]
    cut = [(pieces, count) for pieces, count in cut if all(piece in tokens for piece in pieces)]
    while len(tokens) < vocab_size:
        pairs: Counter[tuple[str, str]] = Counter()
        for pieces, count in cut:
            for pair in pairwise(pieces):
                pairs[pair] += count
        best = min(pairs, key=lambda p: (-pairs[p], p[0] + p[1].removeprefix("##"), p), default=None)
        if best is None or pairs[best] < min_frequency:
            break
        merged = best[0] + best[1].removeprefix("##")
        for pieces, _ in cut:
            at = 0
            while at + 1 < len(pieces):
                if (pieces[at], pieces[at + 1]) == best:
                    pieces[at : at + 2] = [merged]
                at += 1
        if merged not in tokens:
            tokens.append(merged)
    return tuple(tokens)


def test_chinese_gives_characters_only() -> None:
    vocabulary = learn_wordpiece(["明月几时有？把酒问青天。", "明月明月"], vocab_size=99, do_lower_case=True)
    assert vocabulary.tokens[5:] == ("明", "月")


def test_text_in_capitals_is_learnt_in_small_letters_only_if_asked() -> None:
    texts = ["TREE TREE 树树", "Tree tree"]
    assert "tree" in learn_wordpiece(texts, vocab_size=99, do_lower_case=True).ids
    assert "TREE" in learn_wordpiece(texts, vocab_size=99, do_lower_case=False).ids


def test_an_alphabet_larger_than_the_vocabulary_keeps_its_most_frequent_characters() -> None:
    words = Counter({"春": 3, "江": 4, "花": 2, "月": 5})
    assert learn_from_words(words, vocab_size=7).tokens[5:] == ("月", "江")


def test_a_word_the_tokenizer_will_not_cut_teaches_nothing() -> None:
    assert learn_from_words(Counter({"a" * 101: 5, "b": 2}), vocab_size=99).tokens[5:] == ("b",)


@pytest.mark.parametrize(
    ("vocab_size", "min_frequency", "message"),
    [(5, 2, "--vocab_size: leaves no room"), (99, 0, "--min_frequency: is below 1")],
)
def test_a_setting_that_cannot_be_is_refused(vocab_size: int, min_frequency: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn_from_words(Counter({"花": 9}), vocab_size=vocab_size, min_frequency=min_frequency)


def test_learning_gives_the_same_bytes_whatever_the_hash_seed_and_the_threads() -> None:
    program = (
        "from bertkit.text.learning import learn_wordpiece\n"
        "texts = ['the cat sat on the mat, the rat ate the cat', '明月几时有，明月', 'banana bandana cabana'] * 3\n"
        "print(learn_wordpiece(texts, vocab_size=70, do_lower_case=True).hash)"
    )
    hashes = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("2", "1")):
        environment = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path)}
        answer = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        hashes.add(answer.stdout)
    assert len(hashes) == 1


@pytest.mark.shared_data
def test_the_training_part_of_the_ci_has_4922_characters(shared_data: Path) -> None:
    lines = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if part_of(line, validation_split=True) == "train"]
    vocabulary = learn_wordpiece(lines, vocab_size=30_000, do_lower_case=True)
    assert vocabulary.size == 4_922 + 5
    assert not any(token.startswith("##") for token in vocabulary.tokens)


@pytest.mark.shared_data
def test_english_pieces_are_learnt_in_seconds(shared_data: Path) -> None:
    lines = (shared_data / "us_speeches" / "us_speeches.txt").read_text(encoding="utf-8").splitlines()
    began = time.process_time()
    vocabulary = learn_wordpiece(lines, vocab_size=8_000, do_lower_case=True)
    assert time.process_time() - began < 30
    assert vocabulary.size == 8_000
    assert {"the", "government", "##ing", "##tion", "people", "congress"} <= set(vocabulary.tokens)
