"""The tokenizer: the reference's ids, places in the given string, literal special tokens, files that others open."""

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from bertkit.errors import InputError
from bertkit.text.learning import learn_wordpiece
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer, with_special_tokens
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary, read_vocabulary

TEXTS = [
    "明月几时有？把酒问青天。不知天上宫阙，今夕是何年。" * 2,
    "The naïve café is unseen, seen and seeing: a Tree, trees, TREES! Naïve CAFÉ's unseen trees.",
    "ひらがな カタカナ 한국어 русский язык עברית العربية ไทย हिन्दी ひらがな カタカナ 한국어 русский язык",
]
SMALL = {
    lower: make_tokenizer(
        learn_wordpiece(TEXTS, vocab_size=300, min_frequency=1, do_lower_case=lower), do_lower_case=lower
    )
    for lower in (True, False)
}

SCRIPTS = st.text(
    st.sampled_from("".join(TEXTS) + "ÀÉİıßſ́̈﷽𠀀😀👍🏽\u200b\u00ad\ufffd\x00\x01\t\n\r\u2028\u3000\xa0ＡＢ１ﬁ[]#_-'“”…")
    | st.characters(codec="utf-8"),
    max_size=40,
)
WITH_SPECIALS = st.lists(SCRIPTS | st.sampled_from([*SPECIAL_TOKENS, "[mask]", "[MASK", " "]), max_size=6).map("".join)


def reference(tokenizer: Tokenizer) -> BertWordPieceTokenizer:
    return BertWordPieceTokenizer(dict(tokenizer.vocabulary.ids), lowercase=tokenizer.do_lower_case)


REFERENCES = {lower: reference(tokenizer) for lower, tokenizer in SMALL.items()}


# ---- equality with the reference ----


@settings(max_examples=300)
@given(WITH_SPECIALS, st.booleans())
def test_ids_and_places_are_those_of_bert_word_piece(text: str, lower: bool) -> None:
    wanted = REFERENCES[lower].encode(text, add_special_tokens=False)
    found = SMALL[lower].encode(text)
    assert (found.ids.tolist(), found.offsets, found.tokens) == (wanted.ids, wanted.offsets, wanted.tokens)


@settings(max_examples=300)
@given(SCRIPTS.filter(lambda text: not any(token in text for token in SPECIAL_TOKENS)), st.booleans())
def test_training_data_has_the_same_ids_where_no_special_token_stands(text: str, lower: bool) -> None:
    assert SMALL[lower].encode_plain([text])[0].tolist() == SMALL[lower].encode(text).ids.tolist()


@pytest.mark.parametrize("lower", [True, False])
def test_transformers_opens_the_files_and_gives_the_same_ids(tmp_path: Path, lower: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        for name, content in SMALL[lower].files().items():
            (tmp_path / name).write_bytes(content)
        theirs: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    text = "Naïve CAFÉ [MASK] 明月几时有？ unseen Trees\u00ad 𠀀한국어"
    assert theirs(text, add_special_tokens=False)["input_ids"] == SMALL[lower].encode(text).ids.tolist()
    a, b = SMALL[lower].encode("明月。").ids, SMALL[lower].encode("Trees!").ids
    ids, types = with_special_tokens(a, b, SMALL[lower].vocabulary)
    assert theirs("明月。", "Trees!")["input_ids"] == ids.tolist()
    assert theirs("明月。", "Trees!")["token_type_ids"] == types.tolist()
    assert (theirs.mask_token, theirs.pad_token_id, theirs.model_max_length) == ("[MASK]", 0, 512)
    assert type(theirs).__name__ == "BertTokenizer"


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("left_away", [[], ["tokenizer.json"], ["tokenizer_config.json"]])
def test_a_tokenizer_written_is_loaded_again(tmp_path: Path, lower: bool, left_away: list[str]) -> None:
    for name, content in SMALL[lower].files().items():
        if name not in left_away:
            (tmp_path / name).write_bytes(content)
    assert load_tokenizer(tmp_path) == SMALL[lower]


def test_the_files_are_the_same_bytes_every_time() -> None:
    again = Tokenizer(SMALL[True].vocabulary, True)
    assert again.files() == SMALL[True].files()


@pytest.mark.shared_data
def test_known_lines_have_the_ids_of_bert_base_chinese(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-chinese-vocab.txt")
    assert tokenizer.do_lower_case
    ids, types = with_special_tokens(tokenizer.encode("不畏鸿门传汉祚").ids, None, tokenizer.vocabulary)
    assert ids.tolist() == [101, 679, 4519, 7896, 7305, 837, 3727, 4864, 102]
    assert types.tolist() == [0] * 9
    a, b = tokenizer.encode_plain(["风住尘香花已尽，日晚倦梳头", "锦书欲寄鸿难托"])
    ids, types = with_special_tokens(a, b, tokenizer.vocabulary)
    assert ids.tolist() == [
        *(101, 7599, 857, 2212, 7676, 5709, 2347, 2226, 8024, 3189, 3241, 958, 3463, 1928, 102),
        *(7239, 741, 3617, 2164, 7896, 7410, 2805, 102),
    ]
    assert types.tolist() == [0] * 15 + [1] * 8
    assert (tokenizer.token_of(101), tokenizer.token_of(102)) == ("[CLS]", "[SEP]")


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["bert-base-chinese", "bert-base-uncased"])
def test_real_text_has_the_ids_of_bert_word_piece(shared_data: Path, name: str) -> None:
    tokenizer = make_tokenizer(read_vocabulary(shared_data / "vocabs" / f"{name}-vocab.txt"), do_lower_case=True)
    lines = [
        line
        for file in ("songci/songci.txt", "us_speeches/us_speeches.txt", "zhwiki_paragraphs/zhwiki_paragraphs.txt")
        for line in (shared_data / file).read_text(encoding="utf-8").splitlines()[:200]
    ]
    wanted = reference(tokenizer).encode_batch(lines, add_special_tokens=False)
    assert [ids.tolist() for ids in tokenizer.encode_plain(lines)] == [encoding.ids for encoding in wanted]


# ---- literal special tokens ----


@pytest.mark.parametrize("lower", [True, False])
def test_a_literal_mask_is_the_mask_when_a_blank_is_to_be_filled(lower: bool) -> None:
    text = "明月几[MASK]有？Un[MASK]!"
    encoding = SMALL[lower].encode(text)
    places = [offset for id, offset in zip(encoding.ids, encoding.offsets, strict=True) if id == 4]
    assert [text[start:end] for start, end in places] == ["[MASK]", "[MASK]"]


@pytest.mark.parametrize("token", ["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
def test_a_literal_special_token_in_training_data_is_plain_text(token: str) -> None:
    tokenizer = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "[", "]", "mask", "花")), do_lower_case=True)
    (ids,) = tokenizer.encode_plain([f"花{token}花"])
    assert not set(ids.tolist()) & {0, 2, 3, 4}
    assert ids.tolist() == [8, 5, 7 if token == "[MASK]" else 1, 6, 8]


def test_a_literal_unknown_token_in_training_data_is_the_unknown_token() -> None:
    (ids,) = SMALL[True].encode_plain(["明[UNK]月"])
    assert ids.tolist() == [SMALL[True].vocabulary.id_of("明"), 1, SMALL[True].vocabulary.id_of("月")]


# ---- places in the given string ----


@settings(max_examples=300)
@given(WITH_SPECIALS, st.booleans())
def test_places_are_in_order_and_inside_the_given_string(text: str, lower: bool) -> None:
    offsets = SMALL[lower].encode(text).offsets
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)


@given(SCRIPTS, SCRIPTS, st.booleans())
def test_filling_a_mask_touches_no_other_character(before: str, after: str, lower: bool) -> None:
    text = f"{before}[MASK]{after}"
    assume(text.count("[MASK]") == 1)  # the scripts have brackets and capitals, and so may spell one
    encoding = SMALL[lower].encode(text)
    ((start, end),) = (offset for id, offset in zip(encoding.ids, encoding.offsets, strict=True) if id == 4)
    assert f"{text[:start]}花{text[end:]}" == f"{before}花{after}"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Naïve CAFÉ", ["Naïve", "CAFÉ"]),
        ("Nai\u0308ve cafe\u0301s", ["Nai\u0308ve", "cafe"]),
        ("明\u200b月", ["明", "月"]),
        ("他说“好”……", ["他", "说", "“", "好", "”", "…", "…"]),
    ],
)
def test_the_given_string_can_be_cut_by_places(text: str, pieces: list[str]) -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "naive", "cafe", "##s", "明", "月", "他", "好"))
    found = [text[start:end] for start, end in make_tokenizer(vocabulary, do_lower_case=True).encode(text).offsets]
    assert found[: len(pieces)] == pieces


# ---- numbers ----


def test_special_tokens_stand_around_one_text_and_between_two() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "花", "月"))
    ids, types = with_special_tokens([5, 6], None, vocabulary)
    assert (ids.tolist(), types.tolist()) == ([2, 5, 6, 3], [0, 0, 0, 0])
    ids, types = with_special_tokens(np.array([5], np.uint16), [6, 6], vocabulary)
    assert (ids.tolist(), types.tolist()) == ([2, 5, 3, 6, 6, 3], [0, 0, 0, 1, 1, 1])
    assert ids.dtype == types.dtype == np.int64


def test_ids_are_stored_in_two_bytes_below_65536_tokens_and_else_in_four() -> None:
    small = (*SPECIAL_TOKENS, "花")
    large = (*small, *(f"t{i}" for i in range(2**16 - len(small))))
    assert make_tokenizer(Vocabulary(small), do_lower_case=True).encode_plain(["花"])[0].dtype == np.uint16
    assert make_tokenizer(Vocabulary(large[:-1]), do_lower_case=True).dtype is np.uint16
    (ids,) = make_tokenizer(Vocabulary(large), do_lower_case=True).encode_plain(["t65529 花"])
    assert (ids.dtype, ids.tolist()) == (np.uint32, [65535, 5])


def test_a_word_of_more_than_100_characters_is_unknown() -> None:
    tokenizer = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "##a")), do_lower_case=True)
    assert len(tokenizer.encode("a" * 100).ids) == 100
    assert tokenizer.encode("a" * 101).ids.tolist() == [1]


def test_ids_are_read_back_as_text() -> None:
    encoding = SMALL[True].encode("明月几时有？ Unseen trees!")
    assert SMALL[True].decode(encoding.ids) == "明月几时有？unseen trees!"


def test_no_sentence_and_an_empty_one_have_no_ids() -> None:
    assert SMALL[True].encode_plain([]) == []
    assert [ids.tolist() for ids in SMALL[True].encode_plain(["", " \n"])] == [[], []]


# ---- hostile text ----


@pytest.mark.parametrize("text", ["a" * 1_000_000, "明" * 300_000, "e" + "\u0301" * 300_000, "\x00" * 300_000])
def test_long_and_strange_text_is_answered_in_time(text: str) -> None:
    began = time.process_time()  # which others on the machine do not lengthen
    SMALL[True].encode(text)
    SMALL[True].encode_plain([text])
    assert time.process_time() - began < 60  # seconds; with the square of the length it would be hours


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match="half a surrogate pair, at character 1, is no character"):
        SMALL[True].encode("花\ud83d")
    with pytest.raises(InputError, match="half a surrogate pair, at character 0"):
        SMALL[True].encode_plain(["花", "\udc00"])


# ---- loading ----


def test_a_bare_vocabulary_tells_by_its_capitals_whether_to_lower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(Vocabulary((*SPECIAL_TOKENS, "<S>", "花", "tree")).to_bytes())
    assert load_tokenizer(path).do_lower_case
    assert "do_lower_case true, as no entry has a capital letter" in capsys.readouterr().err
    path.write_bytes(Vocabulary((*SPECIAL_TOKENS, "花", "Tree")).to_bytes())
    assert not load_tokenizer(path).do_lower_case
    assert "do_lower_case false, as an entry, Tree, has a capital letter" in capsys.readouterr().err
    assert load_tokenizer(path, do_lower_case=True).do_lower_case
    assert capsys.readouterr().err == ""


def test_the_callers_word_goes_before_the_folders_and_that_before_the_tokenizers(tmp_path: Path) -> None:
    for name, content in SMALL[True].files().items():
        (tmp_path / name).write_bytes(content)
    assert not load_tokenizer(tmp_path, do_lower_case=False).do_lower_case
    config = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = load_tokenizer(tmp_path)
    assert (loaded.do_lower_case, loaded.strip_accents, loaded.tokenize_chinese_chars) == (False, True, False)


def test_a_files_own_truncation_and_padding_are_not_taken_over(tmp_path: Path) -> None:
    theirs = REFERENCES[True]._tokenizer.__class__.from_str(REFERENCES[True]._tokenizer.to_str())
    theirs.enable_truncation(4)
    theirs.enable_padding(length=4)
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    assert load_tokenizer(path).encode("明月几时有？把酒").ids.size == 8


def test_added_tokens_of_a_file_are_found_as_they_stand(tmp_path: Path) -> None:
    from tokenizers import AddedToken

    theirs = REFERENCES[True]._tokenizer.__class__.from_str(REFERENCES[True]._tokenizer.to_str())
    theirs.add_tokens([AddedToken("newword", normalized=True), AddedToken("<E>", normalized=False)])
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    ours = load_tokenizer(path)
    for text in ("明NewWord月 <E>a <e>", "a newwords <E>"):
        assert ours.encode(text).ids.tolist() == theirs.encode(text, add_special_tokens=False).ids
    assert ours.vocabulary.tokens[-2:] == ("newword", "<E>")
    (tmp_path / "again").mkdir()
    for name, content in ours.files().items():
        (tmp_path / "again" / name).write_bytes(content)
    again = load_tokenizer(tmp_path / "again").encode("明NewWord月 <E>")
    assert again.ids.tolist() == ours.encode("明NewWord月 <E>").ids.tolist()


def test_nothing_to_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)vocab\.txt: does not exist.*bertkit vocab"):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="nowhere: does not exist"):
        load_tokenizer(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "BPE"}}, r"(?s)model\.type: is not the tokenizer of a BERT.*'BPE'.*expected: WordPiece"),
        ({"normalizer": {"type": "Sequence"}}, r"normalizer\.type: is not the tokenizer of a BERT"),
        ({"normalizer": None}, "normalizer: is not the tokenizer of a BERT"),
        ({"normalizer": {"clean_text": False}}, r"normalizer\.clean_text: is not"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, r"(?s)pre_tokenizer\.type: .*'Whitespace'.*BertPreTokenizer"),
        ({"model": {"unk_token": "<unk>"}}, r"model\.unk_token: is not"),
        ({"model": {"continuing_subword_prefix": "@@"}}, r"model\.continuing_subword_prefix: is not"),
        ({"model": {"max_input_chars_per_word": 7}}, r"model\.max_input_chars_per_word: is not"),
        ({"model": {"vocab": {"[PAD]": 0, "a": 9}}}, r"model\.vocab: has gaps or doubles among its ids"),
    ],
)
def test_a_tokenizer_that_is_not_berts_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    content = json.loads(SMALL[True].files()["tokenizer.json"])
    for name, values in change.items():
        content[name] = content[name] | values if values else None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_a_token_that_no_vocabulary_file_can_hold_is_refused(tmp_path: Path) -> None:
    content = json.loads(SMALL[True].files()["tokenizer.json"])
    content["model"]["vocab"]["a\nb"] = len(content["model"]["vocab"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=r"id \d+: holds a line end"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"tokenizer\.json:1: is no JSON"),
        (b"[1]", r"tokenizer\.json: is no JSON object"),
        (b"\xff", r"tokenizer\.json: is no JSON"),
        (b"[" * 100_000, r"tokenizer\.json.*: is no JSON"),
        (b'{"added_tokens": [{"id": 7}]}', r"tokenizer\.json: lacks what a tokenizer\.json has"),
    ],
)
def test_a_broken_tokenizer_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)
