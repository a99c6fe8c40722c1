"""A chunk of documents as ids: counts agree with arrays, parts may be taken, the unknown characters are named."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from toy_data import TOY, toy_ids

from bertkit.data.encoding import EncodedDocuments, EncodingSettings, encode_documents
from bertkit.errors import InputError
from bertkit.text.documents import Document
from bertkit.text.sentences import sentences_of, split_sentences
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
PLAIN = EncodingSettings(TOKENIZER, sentence_end=None, language=None, word_segmenter="none")
SPACES = replace(PLAIN, word_segmenter="spaces")
DROPPED = "\u200b"  # the tokenizer makes no token of it
TEXTS = st.lists(st.text("明月几 有。，\u200b\naé.", max_size=20), max_size=6)


def encoded(*texts: str, settings: EncodingSettings = PLAIN) -> EncodedDocuments:
    return encode_documents([Document(f"{n}", text) for n, text in enumerate(texts)], settings)


def unknown_of(text: str, tokenizer: Tokenizer) -> Counter[str]:
    return encoded(text, settings=replace(PLAIN, tokenizer=tokenizer)).unknown_characters


def documents_of(encoded: EncodedDocuments) -> list[list[list[int]]]:
    """document → sentence → id."""
    sentences = [s.tolist() for s in np.split(encoded.tokens, np.cumsum(encoded.sentence_lengths))][:-1]
    ends = np.cumsum(encoded.sentence_counts).tolist()
    return [sentences[end - count : end] for end, count in zip(ends, encoded.sentence_counts.tolist(), strict=True)]


# ---- ids ----


def test_documents_become_sentences_of_ids() -> None:
    found = encoded("明月几时有。把酒问青天。", "In the beginning God created heaven. The earth.")
    assert found.ids == ["0", "1"]
    assert documents_of(found) == [
        [toy_ids("明月几时有。"), toy_ids("把酒问青天。")],
        [toy_ids("in the beginning god created heaven ."), toy_ids("the earth .")],
    ]
    assert found.token_counts.tolist() == [12, 10]
    assert found.tokens.dtype == np.uint16


def test_a_documents_own_sentences_are_kept_as_they_are() -> None:
    own = Document("a", "明。月", ("明。月", "几"))
    assert documents_of(encode_documents([own], PLAIN)) == [[toy_ids("明。月"), toy_ids("几")]]


def test_characters_of_the_users_choice_end_a_sentence() -> None:
    found = encoded("明月，几时。有", settings=replace(PLAIN, sentence_end="，"))
    assert documents_of(found) == [[toy_ids("明月，"), toy_ids("几时。有")]]


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_the_sentences_are_those_of_the_splitter_and_the_ids_those_of_the_tokenizer(texts: list[str]) -> None:
    found = encoded(*texts)
    split = [sentences_of(Document("", text), split_sentences) for text in texts]
    wanted = [[ids.tolist() for ids in TOKENIZER.encode_plain(sentences)] for sentences in split]
    assert documents_of(found) == [[sentence for sentence in document if sentence] for document in wanted]
    assert found.dropped_sentences.tolist() == [sum(not sentence for sentence in document) for document in wanted]


@settings(deadline=None, max_examples=40)
@given(TEXTS, st.data())
def test_a_document_is_encoded_alike_alone_and_among_others_and_may_be_taken_out(
    texts: list[str], data: st.DataObject
) -> None:
    whole = encoded(*texts, settings=SPACES)
    first, end = sorted((data.draw(st.integers(0, len(texts))), data.draw(st.integers(0, len(texts)))))
    part = whole.between(first, end)
    one_by_one = [encoded(text, settings=SPACES) for text in texts[first:end]]
    assert part.ids == [str(number) for number in range(first, end)]
    for name in ("tokens", "word_starts", "sentence_lengths", "sentence_counts", "dropped_sentences", "token_counts"):
        alone = [getattr(document, name).tolist() for document in one_by_one]
        assert getattr(part, name).tolist() == [value for values in alone for value in values]


def test_no_document_and_a_document_without_a_token_are_counted() -> None:
    nothing = encoded()
    assert (nothing.ids, len(nothing.tokens), len(nothing.sentence_counts)) == ([], 0, 0)
    found = encoded(DROPPED, "明。", settings=SPACES)
    assert found.sentence_counts.tolist() == [0, 1]
    assert found.dropped_sentences.tolist() == [1, 0]
    assert found.token_counts.tolist() == [0, 2]


# ---- words ----


def test_without_a_segmenter_no_word_starts_are_kept() -> None:
    assert encoded("明月").word_starts is None
    assert not PLAIN.has_word_starts
    assert SPACES.has_word_starts


def test_words_begin_where_the_segmenter_says() -> None:
    found = encoded("明月 几时 有。", "In the beginnings", settings=SPACES)
    assert found.word_starts is not None
    assert found.word_starts.tolist() == [*[True, False] * 2, True, False, True, True, True, False]


def test_what_the_segmenter_makes_wrong_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_words.py").write_text("def first(sentence):\n    return [sentence[:1]]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="do not join to the sentence"):
        encoded("明月", settings=replace(PLAIN, word_segmenter="wrong_words:first"))


# ---- unknown characters ----


def test_the_unknown_characters_of_a_quotation_are_counted() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *"他说好,."))
    found = encoded(
        "他说“好”……", "“好”", settings=replace(PLAIN, tokenizer=make_tokenizer(vocabulary, do_lower_case=True))
    )
    assert found.unknown_characters == {"“": 2, "”": 2, "…": 2}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("明[UNK]月", {}),  # WikiText's <unk>: no character is to blame
        ("God goX", {"g": 1, "x": 1}),  # asked for as lower case; "o" is there within words only
        ("É", {}),  # its accent is taken off
        ("\u200b龘\u0301x", {"龘": 1, "x": 1}),  # what vanishes is not unknown
        ("Ꝼ", {"ꝼ": 1}),
        ("e" * 101, {}),  # a word of more than 100 characters is [UNK], though every one is known
    ],
)
def test_only_characters_that_no_entry_has_are_to_blame(text: str, unknown: dict[str, int]) -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "明", "月", "god", "e", "##o"))
    assert unknown_of(text, make_tokenizer(vocabulary, do_lower_case=True)) == unknown


def test_the_words_with_an_unknown_character_are_counted_each_time() -> None:
    assert unknown_of("龘明。龘龘", TOKENIZER) == {"龘": 3}


# ---- travelling ----


def test_a_tokenizer_with_added_tokens_can_be_a_setting() -> None:
    tokens = (AddedToken("<poem>", special=False),)
    tokenizer = Tokenizer(Vocabulary((*TOY.tokens, "<poem>")), True, added_tokens=tokens)
    found = encoded("明<poem>月", settings=replace(PLAIN, tokenizer=tokenizer))
    assert found.tokens.tolist() == [*toy_ids("明"), TOY.size, *toy_ids("月")]


@pytest.mark.shared_data
def test_the_arrays_of_real_poems_add_up(shared_data: Path) -> None:
    texts: Sequence[str] = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()[:300]
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-chinese-vocab.txt", do_lower_case=True)
    found = encoded(*texts, settings=replace(PLAIN, tokenizer=tokenizer))
    assert found.sentence_lengths.sum() == len(found.tokens) == found.token_counts.sum()
    assert found.sentence_counts.sum() == len(found.sentence_lengths)
    unknown_tokens = (found.tokens == tokenizer.vocabulary.unk_id).sum()
    assert sum(found.unknown_characters.values()) == unknown_tokens > 0  # a Chinese character is a word of its own
