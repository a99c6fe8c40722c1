"""FillMask and NextSentence: no character changed outside a mask, no answer changed by its neighbours."""

import re
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import torch
import toy_model as toy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from bertkit import FillMask as PublicFillMask
from bertkit import NextSentence as PublicNextSentence
from bertkit.data.masking import MaskingSettings, num_targets
from bertkit.data.pairs import IS_NEXT, PairSettings
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.data.store import open_store
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.pipelines import FilledText, FillMask, NextSentence
from bertkit.tasks.held_out import evaluate, held_out_pairs
from bertkit.text.documents import CorpusSettings

MASK = "[MASK]"
TWO_MASKS = "我住长江头，[MASK]住长[MASK]尾。"
# Chinese, English, mixed, full width, accents composed and decomposed, odd spaces, emoji, jamo.
PIECES = [
    *("我住长江头，", "君", "。", "的", "Ｕ．Ｓ．", "１２", "“好”……", "《水》"),
    *("The", "gold", "It's", "UNSEEN", "plays", "a.b,c", "naïve", "cafe\u0301", "CAFÉ", "İ"),
    *(
        " ",
        "  ",
        "\t",
        "\u3000",
        "\u00a0",
        "\u200b",
        "\n",
        "\r\n",
        "😀",
        "👩\u200d🚀",
        "한",
        "한\u0301",
        "##s",
        "\ufffd",
    ),
]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=12
)
LOWER = FillMask(toy.random_model(), tokenizer=toy.toy_tokenizer())
CASED = FillMask(toy.random_model(), tokenizer=toy.toy_tokenizer(do_lower_case=False))
JUDGE = NextSentence(toy.random_model(), tokenizer=toy.toy_tokenizer())


@pytest.fixture(scope="module")
def learnt() -> PretrainingModel:
    return toy.learnt_model()


def fill_one(text: str, *, pipeline: FillMask = LOWER, masked: bool | None = None, seed: int = 12345) -> FilledText:
    [filled] = pipeline.fill([text], masked=masked, seed=seed)
    return filled


def parts_outside(masked: str) -> list[str]:
    return masked.split(MASK)


def fits(text: str, parts: list[str]) -> bool:
    """Whether the text is these parts in this order, with something (at least a character) at each mask.

    A Hangul syllable is up to three tokens where lower-casing, so there the parts may be pieces of a character.
    """
    if re.search("[가-힣]", text):
        text, *parts = (normalize("NFD", string) for string in (text, *parts))
    return re.fullmatch(".+?".join(map(re.escape, parts)), text, flags=re.DOTALL) is not None


# ---- fill-mask: the text ---------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(text=TEXT, lower=st.booleans(), share=st.sampled_from([0.01, 0.15, 0.5, 1.0]))
@example(text="cafe\u0301 The\u0301 君", lower=True, share=1.0)
@example(text="한", lower=True, share=0.5)
@example(text="君한\u0301", lower=True, share=0.01)
@example(text="\u3000我住  The Ｕ．Ｓ． 😀", lower=False, share=0.5)
def test_no_character_is_changed_outside_the_masks(text: str, lower: bool, share: float) -> None:
    fill = LOWER if lower else CASED
    ids = fill.tokenizer.encode(text).ids
    eligible = fill.tokenizer.vocabulary.ordinary[ids]
    if MASK in text or not eligible.any():
        return
    [filled] = fill.fill([text], masked=False, mlm_probability=share, top_k=2)
    parts = parts_outside(filled.masked)
    [count] = num_targets(np.array([eligible.sum()]), MaskingSettings(mlm_probability=share))
    assert filled.original == text
    assert len(parts) - 1 == len(filled.candidates) == count
    assert fits(text, parts)
    assert fits(filled.filled, parts)
    for records in filled.candidates:
        assert all(fits(record["sequence"], parts) for record in records)


@pytest.mark.parametrize("text", [toy.RIVER, toy.DAY, toy.GOLD, "Cafe\u0301 naïve", "한 君"])
def test_the_best_tokens_at_the_masks_give_the_filled_text(text: str) -> None:
    filled = fill_one(text)
    parts, best = parts_outside(filled.masked), [records[0]["token_str"] for records in filled.candidates]
    joined = parts[0] + "".join(string + part for string, part in zip(best, parts[1:], strict=True))
    assert filled.filled.lower() == joined.lower()


def test_the_two_lines_of_the_river_are_each_masked_and_filled(learnt: PretrainingModel) -> None:
    fill = FillMask(learnt, tokenizer=toy.toy_tokenizer())
    river, day = fill.fill([toy.RIVER, toy.DAY], masked=False)
    for filled, text in ((river, toy.RIVER), (day, toy.DAY)):
        assert filled.original == filled.filled == text  # known by heart
        assert filled.masked.count(MASK) == 2
        assert fits(text, parts_outside(filled.masked))
        assert all(records[0]["score"] > 0.25 for records in filled.candidates)


def test_exactly_the_two_masks_given_are_filled(learnt: PretrainingModel) -> None:
    filled = fill_one(TWO_MASKS, pipeline=FillMask(learnt, tokenizer=toy.toy_tokenizer()))
    assert filled.masked == TWO_MASKS
    assert filled.filled == toy.RIVER
    assert [records[0]["token_str"] for records in filled.candidates] == ["君", "江"]


def test_what_stood_there_comes_back_in_its_own_spelling(learnt: PretrainingModel) -> None:
    fill = FillMask(learnt, tokenizer=toy.toy_tokenizer())
    [filled] = fill.fill(["THE  U.S. Team won góld ."], masked=False, mlm_probability=1.0)
    assert filled.masked == "[MASK]  [MASK][MASK][MASK][MASK] [MASK] [MASK] [MASK] [MASK]"
    seeds = [fill_one("THE U.S. team won gold.", pipeline=fill, seed=seed) for seed in range(12)]
    assert "[MASK] U.S. team won gold." in {filled.masked for filled in seeds}
    assert {filled.filled for filled in seeds} == {"THE U.S. team won gold."}
    [first] = [filled for filled in seeds if filled.masked.startswith("[MASK] ")][:1]
    assert first.candidates[0][0]["token_str"] == "the"
    assert first.candidates[0][0]["sequence"] == "THE U.S. team won gold."


def test_english_keeps_its_spaces_and_capitals_outside_the_masks() -> None:
    text = "  The U.S.  Team WON "
    for seed in range(5):
        filled = fill_one(text, seed=seed)
        [before, after] = parts_outside(filled.masked)
        assert filled.filled.startswith(before)
        assert filled.filled.endswith(after)
        assert fits(text, [before, after])


def test_pieces_of_a_word_are_joined_without_a_space() -> None:
    [filled] = LOWER.fill(["UNSEEN plays"], masked=False, mlm_probability=1.0, top_k=99)
    assert filled.masked == "[MASK][MASK] [MASK][MASK]"
    strings = {record["token_str"] for records in filled.candidates for record in records}
    assert {"seen", "s", "ing"} <= strings
    assert not any(string.startswith("##") or " " in string for string in strings)


def test_the_same_seed_masks_the_same_places_and_another_seed_others() -> None:
    texts = [toy.RIVER, toy.DAY, toy.GOLD]
    first, again = ([f.masked for f in LOWER.fill(texts, seed=7)] for _ in range(2))
    assert first == again
    assert len({tuple(f.masked for f in LOWER.fill(texts, seed=seed)) for seed in range(6)}) > 3


def test_the_same_text_twice_is_masked_at_different_places() -> None:
    assert len({filled.masked for filled in LOWER.fill([toy.RIVER] * 8, masked=False)}) > 1


def test_unknown_characters_of_the_original_are_kept() -> None:
    text = "他说“好”……君住长江头"
    assert "[UNK]" in LOWER.tokenizer.encode(text).tokens
    for seed in range(6):
        filled = fill_one(text, seed=seed)
        assert filled.filled.startswith("他说“好”……")
        assert "[UNK]" not in filled.masked + filled.filled


@pytest.mark.parametrize("pipeline", [LOWER, CASED], ids=["lower-cased", "cased"])
def test_a_literal_mask_is_the_mask_also_where_lower_casing(pipeline: FillMask) -> None:
    ids = pipeline.tokenizer.encode("明天[MASK][MASK]不错。").ids.tolist()
    assert ids.count(pipeline.tokenizer.vocabulary.mask_id) == 2
    filled = fill_one("明天[MASK][MASK]不错。", pipeline=pipeline)
    assert [len(records) for records in filled.candidates] == [5, 5]
    assert fits(filled.filled, ["明天", "", "不错。"])


def test_hiding_in_a_text_with_masks_fills_the_given_ones_too() -> None:
    filled = fill_one("我住[MASK]江头，君住长江尾。", masked=False)
    assert filled.masked.count(MASK) == 3  # two of eleven ordinary tokens by the rule, and the given one
    assert filled.masked.replace(MASK, "") != "我住江头，君住长江尾。"
    assert MASK not in filled.filled
    assert len(filled.candidates) == 3


def test_a_character_that_is_several_tokens_is_whole_or_in_pieces_never_doubled() -> None:
    [whole] = LOWER.fill(["한"], masked=False, mlm_probability=1.0)
    assert whole.masked == MASK * 3
    [part] = LOWER.fill(["君한君"], masked=False, mlm_probability=0.2, seed=3)
    assert part.masked.count(MASK) == 1
    assert any(fill_one("한", seed=seed).masked in ("[MASK]ᅡᆫ", "ᄒ[MASK]ᆫ", "하[MASK]") for seed in range(3))


def test_an_accent_taken_off_goes_with_its_letter() -> None:
    [filled] = LOWER.fill(["cafe\u0301 君"], masked=False, mlm_probability=1.0)
    assert filled.masked == "[MASK] [MASK]"


def test_a_chunk_boundary_loses_and_swaps_nothing() -> None:
    texts = [f"{'君' * (1 + i % 5)}住长江[MASK]" for i in range(67)]
    assert [filled.original for filled in LOWER.fill(iter(texts))] == texts


def test_no_text_gives_no_answer() -> None:
    assert list(LOWER.fill([])) == list(JUDGE.judge([])) == []


# ---- fill-mask: the scores -------------------------------------------------------------------------------------------


def test_scores_are_probabilities_of_the_full_softmax_and_specials_are_never_offered() -> None:
    vocabulary = LOWER.tokenizer.vocabulary
    records = LOWER("我住长[MASK]头", top_k=10_000)
    assert isinstance(records, list)
    ids = LOWER.tokenizer.encode("我住长[MASK]头").ids
    row = torch.tensor([[vocabulary.cls_id, *ids, vocabulary.sep_id]])
    with torch.no_grad():
        expected = LOWER.model(row).mlm_logits[0, 4].softmax(-1)
    assert {record["token"] for record in records} == set(np.flatnonzero(vocabulary.ordinary).tolist())
    for record in records:
        assert record["score"] == pytest.approx(expected[record["token"]].item(), abs=1e-6)
    assert sum(record["score"] for record in records) < 1.0
    scores = [record["score"] for record in records]
    assert scores == sorted(scores, reverse=True)


def test_top_k_is_the_number_of_candidates_of_each_mask() -> None:
    for top_k in (1, 3):
        [filled] = LOWER.fill([TWO_MASKS], top_k=top_k)
        assert [len(records) for records in filled.candidates] == [top_k, top_k]


def test_a_candidates_sequence_fills_its_own_mask_only() -> None:
    first, second = LOWER.fill([TWO_MASKS], top_k=2).__next__().candidates
    for record in first:
        assert record["sequence"] == f"我住长江头，{record['token_str']}住长[MASK]尾。"
    for record in second:
        assert record["sequence"] == f"我住长江头，[MASK]住长{record['token_str']}尾。"


@pytest.mark.parametrize("size", [8, 32])
def test_a_filled_mask_does_not_depend_on_the_batch(size: int) -> None:
    texts = [f"{'日日思君' * (i % 7)}[MASK]住 It was late{' in' * (i % 5)}" for i in range(size)]
    for text, together in zip(texts, LOWER.fill(texts, top_k=99), strict=True):
        [alone] = LOWER.fill([text], top_k=99)
        scores = [{r["token"]: r["score"] for r in f.candidates[0]} for f in (alone, together)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_vocabulary_padded_beyond_the_tokenizer_is_never_offered() -> None:
    model = toy.random_model(config=toy.toy_config(vocab_size=128))
    fill = FillMask(model, tokenizer=toy.toy_tokenizer())
    records = fill("君[MASK]", top_k=500)
    assert max(record["token"] for record in records) < toy.toy_vocabulary().size


# ---- fill-mask: in Python, and what is refused -----------------------------------------------------------------------


def test_three_lines_of_python_fill_a_mask(tmp_path: Path) -> None:
    fill = PublicFillMask(toy.model_folder(tmp_path, toy.random_model()))
    [*records] = fill("我住长[MASK]头，")
    assert [set(record) for record in records] == [{"score", "token", "token_str", "sequence"}] * 5
    assert [len(records) for records in fill(TWO_MASKS)] == [5, 5]
    with pytest.raises(InputError, match=r"text 1: holds no \[MASK\]"):
        fill("我住长江头")


REFUSED: list[tuple[str, dict, str]] = [
    (
        "君住长江尾。",
        {"masked": True},
        r"text 2: holds no \[MASK\]\n  value: '君住长江尾。'\n.*\n.*leave --masked away",
    ),
    ("", {}, "text 2: holds no token"),
    ("", {"masked": True}, r"text 2: holds no \[MASK\]"),
    (" \u3000\u200b", {}, "text 2: holds no token"),
    ("😀 囍", {}, "text 2: holds no token that could be hidden\n  value: '😀 囍'"),
    ("君", {"masked": False, "mlm_probability": 0.0}, "--mlm_probability above 0"),
    ("君", {"mlm_probability": 1.5}, "--mlm_probability: is not a share"),
    ("君", {"top_k": 0}, "--top_k: is no number of answers\n  value: 0"),
    ("君", {"top_k": 1.5}, "--top_k: is no number of answers\n  value: 1.5\n  expected: a whole number, 1 or more"),
    ("君" * 63, {}, "text 2: has 65 tokens, special ones included, but the model has 64 positions\n  value: '君君"),
    ("late " * 70 + MASK, {}, "text 2: has 73 tokens"),
    ("君\ud83d", {}, "half a surrogate pair"),
]


@pytest.mark.parametrize(("text", "options", "message"), REFUSED)
def test_a_text_that_cannot_be_filled_is_refused_by_its_number(text: str, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(LOWER.fill([TWO_MASKS, text], **options))


def test_a_text_as_long_as_the_model_has_positions_is_answered() -> None:
    assert fill_one("君" * 62).filled.count("君") >= 53


def test_the_number_of_a_refused_text_counts_over_chunks() -> None:
    with pytest.raises(InputError, match="text 41: has 102 tokens"):
        list(LOWER.fill(["君"] * 40 + ["君" * 100]))


def edited(path: Path, name: str, change: tuple[str, str]) -> Path:
    file = path / name
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    return path


def test_a_folder_without_a_masked_lm_head_is_refused(tmp_path: Path) -> None:
    toy.model_folder(tmp_path, toy.random_model(head="next_sentence"))
    with pytest.raises(InputError, match=r"model.safetensors: has no masked-LM head \(MLM head\)"):
        FillMask(tmp_path)
    assert NextSentence(tmp_path)(toy.RIVER, toy.DAY).keys() == {"is_next", "score"}


def test_a_folder_without_a_next_sentence_head_is_refused(tmp_path: Path) -> None:
    toy.model_folder(tmp_path, toy.random_model(head="masked_lm"))
    with pytest.raises(InputError, match="has no next-sentence head"):
        NextSentence(tmp_path)
    assert FillMask(tmp_path)("君[MASK]")


def test_a_missing_folder_and_one_without_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: does not exist"):
        FillMask(tmp_path / "nowhere")
    toy.save(tmp_path, toy.random_model(), files={})
    with pytest.raises(InputError, match=r"vocab\.txt: does not exist"):
        FillMask(tmp_path)


def test_a_vocabulary_without_a_mask_is_refused(tmp_path: Path) -> None:
    toy.model_folder(tmp_path, toy.random_model())
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"vocab.txt: has no \[MASK\]"):
        FillMask(edited(tmp_path, "vocab.txt", ("[MASK]\n", "[mask]\n")))


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    size = toy.toy_vocabulary().size
    toy.model_folder(tmp_path, toy.random_model(config=toy.toy_config(vocab_size=size - 2)))
    with pytest.raises(InputError, match=f"the tokenizer has {size} tokens, the model {size - 2}\n.*mixes two models"):
        FillMask(tmp_path)


def test_a_vocabulary_that_seems_cut_short_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = toy.toy_vocabulary().size
    for more, said in ((127, False), (128, True)):
        toy.model_folder(tmp_path / str(more), toy.random_model(config=toy.toy_config(vocab_size=size + more)))
        capsys.readouterr()
        FillMask(tmp_path / str(more))
        warned = f"for {size + more:,} tokens, its vocabulary has {size:,}: is it cut short?" in capsys.readouterr().err
        assert warned == said


# ---- next sentence ---------------------------------------------------------------------------------------------------


def test_neighbours_follow_and_others_do_not(learnt: PretrainingModel) -> None:
    judge = NextSentence(learnt, tokenizer=toy.toy_tokenizer())
    for a in range(0, len(toy.TEXTS), 2):
        for b in range(1, len(toy.TEXTS), 2):
            answer = judge(toy.TEXTS[a], toy.TEXTS[b])
            assert answer["is_next"] is (b == a + 1)
            assert (answer["score"] > 0.9) is (b == a + 1)


def test_column_0_of_the_head_means_that_b_follows() -> None:
    model = toy.random_model()
    for bias, truth in (([50.0, 0.0], True), ([0.0, 50.0], False)):
        with torch.no_grad():
            model.nsp_head.bias.copy_(torch.tensor(bias))  # type: ignore[union-attr]
        answer = NextSentence(model, tokenizer=toy.toy_tokenizer())(toy.GOLD, toy.LATE)
        assert answer["is_next"] is truth
        assert answer["score"] == pytest.approx(float(truth), abs=1e-6)


@pytest.mark.parametrize("size", [8, 32])
def test_an_answer_does_not_depend_on_the_batch(size: int) -> None:
    pairs = [("日日思君" * (1 + i % 6), "It was late" + " in" * (i % 5)) for i in range(size)]
    for pair, together in zip(pairs, JUDGE.judge(pairs), strict=True):
        assert JUDGE(*pair)["score"] == pytest.approx(together["score"], abs=1e-5)


def test_a_literal_special_token_in_a_pair_is_text() -> None:
    assert JUDGE("君[SEP]", "君")["score"] != JUDGE("君", "君")["score"]
    ids, types = JUDGE._encode(0, "君[SEP]", "君[MASK]")
    assert (ids == JUDGE.tokenizer.vocabulary.sep_id).sum() == 2
    assert types.tolist() == sorted(types.tolist())


def test_three_lines_of_python_judge_a_pair(tmp_path: Path) -> None:
    judge = PublicNextSentence(toy.model_folder(tmp_path, toy.random_model()))
    answer = judge(toy.RIVER, toy.DAY)
    assert type(answer["is_next"]) is bool
    assert 0 < answer["score"] < 1


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("", "君"), "pair 2, A: holds no token\n  value: ''"),
        (("君", " \u3000"), "pair 2, B: holds no token"),
        (("君" * 31, "君" * 31), "pair 2: has 65 tokens, special ones included, but the model has 64 positions"),
    ],
)
def test_a_pair_that_cannot_be_judged_is_refused_by_its_number(pair: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(JUDGE.judge([(toy.RIVER, toy.DAY), pair]))


CORPORA = {
    "Chinese": [[toy.RIVER, toy.DAY, toy.WHEN, toy.HEART], [toy.WHEN, toy.DAY], [toy.HEART, toy.RIVER], [toy.DAY] * 3],
    "English": [[toy.GOLD, toy.LATE, "the team won."], [toy.LATE, toy.GOLD], ["it was gold.", "the night was late."]],
}


@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA.keys())
@pytest.mark.parametrize("pairing", ["sentence", "segment"])
def test_held_out_pairs_get_the_answers_of_the_evaluation(
    tmp_path: Path, corpus: list[list[str]], pairing: str
) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join("".join(f"{s}\n" for s in document) for document in corpus), encoding="utf-8")
    tokenizer = toy.toy_tokenizer()
    prepare_store(
        CorpusSettings(str(path), "sentences"),
        tokenizer,
        tmp_path / "store",
        PreparationSettings(validation_split=False),
    )
    store, pairs = open_store(tmp_path / "store" / "train"), PairSettings(pairing=pairing, max_seq_length=64)
    model = _undecided_model()
    found = evaluate(model, store, vocabulary=tokenizer.vocabulary, pairs=pairs, mlm_probability=0.0)
    table = held_out_pairs(store, pairs)

    def text(start: np.ndarray, end: np.ndarray, row: int) -> str:
        return tokenizer.decode(store.tokens(start[row : row + 1], end[row : row + 1]).tolist())

    asked = [
        (text(table.start_a, table.end_a, row), text(table.start_b, table.end_b, row)) for row in found.rows.tolist()
    ]
    answers = [answer["is_next"] for answer in NextSentence(model, tokenizer=tokenizer).judge(asked)]
    assert answers == found.is_next.tolist()
    right = np.array(answers) == (table.next_sentence_label[found.rows] == IS_NEXT)
    assert found.metrics["nsp_accuracy"] == pytest.approx(right.mean())
    assert len(set(answers)) == 2


def _undecided_model() -> PretrainingModel:
    """A random model that says yes to half of the toy pairs: its bias is moved by the median of their scores."""
    model = toy.random_model()
    judge = NextSentence(model, tokenizer=toy.toy_tokenizer())
    scores = [answer["score"] for answer in judge.judge((a, b) for a in toy.TEXTS for b in toy.TEXTS)]
    with torch.no_grad():
        model.nsp_head.bias[0] -= float(np.median(np.log(scores) - np.log1p(-np.array(scores))))  # type: ignore[union-attr]
    return model


@pytest.mark.parametrize("kind", ["FillMask", "NextSentence"])
def test_a_pickle_and_a_link_are_opened_only_where_that_is_asked_for(tmp_path: Path, kind: str) -> None:
    make = {"FillMask": FillMask, "NextSentence": NextSentence}[kind]
    folder = toy.model_folder(tmp_path / "model", toy.random_model())
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="is a pickle"):
        make(folder)
    make(folder, allow_bin=True)
    (folder / "vocab.txt").rename(tmp_path / "vocab.txt")
    (folder / "vocab.txt").symlink_to(tmp_path / "vocab.txt")
    with pytest.raises(InputError, match=r"vocab\.txt: is a symbolic link"):
        make(folder, allow_bin=True)
