"""Masks filled together, targets, pseudo-perplexity: equal to what the model says by hand, one row at a time."""

import itertools
import math

import numpy as np
import pytest
import torch
import toy_model as toy

from bertkit.errors import InputError
from bertkit.pipelines import FillMask
from bertkit.text.tokenizer import with_special_tokens

FILL = FillMask(toy.random_model(), tokenizer=toy.toy_tokenizer())
TWO, APART = "我住[MASK][MASK]头，君住长江尾。", "我[MASK]长江头，君住长[MASK]尾。"


def log_probability(text: str, column: int, token: int) -> float:
    """Of a token at a column of a text, by the whole model on the one row."""
    vocabulary = FILL.tokenizer.vocabulary
    ids, types = with_special_tokens(FILL.tokenizer.encode(text).ids, None, vocabulary)
    with torch.no_grad():
        output = FILL.model(torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None])
    return float(output.mlm_logits[0, 1 + column].log_softmax(-1)[token])


@pytest.mark.parametrize("text", [TWO, APART])
def test_a_joint_score_is_the_product_of_the_tokens_in_turn(text: str) -> None:
    [filled] = FILL.fill([text], joint=True, top_k=4)
    first, second = np.flatnonzero(FILL.tokenizer.encode(text).ids == FILL.tokenizer.vocabulary.mask_id)
    assert filled.joint is not None
    assert len(filled.joint) == 4
    for record in filled.joint:
        a, b = record["tokens"]
        with_first = text.replace("[MASK]", FILL.tokenizer.token_of(a).removeprefix("##"), 1)
        if FILL.tokenizer.encode(with_first).ids[first] != a:
            continue  # a continuation cannot be written into a text
        expected = log_probability(text, first, a) + log_probability(with_first, second, b)
        assert math.log(record["score"]) == pytest.approx(expected, abs=1e-4)
        assert record["token_strs"] == [FILL.tokenizer.token_of(token).removeprefix("##") for token in (a, b)]
        assert record["sequence"] == text.replace("[MASK]", record["token_strs"][0], 1).replace(
            "[MASK]", record["token_strs"][1], 1
        )
    assert filled.filled == filled.joint[0]["sequence"]
    assert [record["score"] for record in filled.joint] == sorted((r["score"] for r in filled.joint), reverse=True)


def test_a_wide_beam_finds_the_best_of_all_pairs() -> None:
    [filled] = FILL.fill([APART], joint=True, top_k=FILL.tokenizer.vocabulary.size)
    [narrow] = FILL.fill([APART], joint=True, top_k=1)
    assert filled.joint is not None
    assert narrow.joint is not None
    assert narrow.joint[0] == filled.joint[0]
    assert narrow.candidates[0] == filled.candidates[0][:1]  # each alone is what it is without


def test_one_mask_together_is_the_mask_alone() -> None:
    [filled] = FILL.fill(["我住长江[MASK]，君住长江尾。"], joint=True)
    assert filled.joint is not None
    for alone, together in zip(filled.candidates[0], filled.joint, strict=True):
        assert together["sequence"] == alone["sequence"]
        assert together["tokens"] == [alone["token"]]
        assert together["score"] == pytest.approx(alone["score"], rel=1e-5)


def test_the_learnt_text_comes_back_jointly() -> None:
    fill = FillMask(toy.learnt_model(), tokenizer=toy.toy_tokenizer())
    [filled] = fill.fill(["我住长江头，[MASK][MASK]长江尾。"], joint=True)
    assert filled.filled == toy.RIVER


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_targets_have_the_scores_that_they_have_among_all() -> None:
    text = "我住长江[MASK]，君住长江尾。"
    every = {record["token"]: record for record in FILL(text, top_k=999)}
    found = FILL(text, targets=["水", "头", "君"])
    assert [record["token_str"] for record in found] == sorted(
        ["水", "头", "君"], key=lambda string: -every[FILL.tokenizer.vocabulary.ids[string]]["score"]
    )
    for record in found:
        assert record["score"] == pytest.approx(every[record["token"]]["score"], rel=1e-5)
        assert record["sequence"] == text.replace("[MASK]", record["token_str"])


def test_a_target_of_several_tokens_is_scored_as_a_whole() -> None:
    text = "我住[MASK]头，君住长江尾。"
    [record] = FILL(text, targets=["长江"])
    ids = FILL.tokenizer.vocabulary.ids
    expected = log_probability(TWO, 2, ids["长"]) + log_probability("我住长[MASK]头，君住长江尾。", 3, ids["江"])
    assert math.log(record["score"]) == pytest.approx(expected, abs=1e-4)
    assert record["token"] == [ids["长"], ids["江"]]
    assert record["token_str"] == "长江"
    assert record["sequence"] == "我住长江头，君住长江尾。"


def test_targets_of_each_mask_stand_apart_whatever_the_batch() -> None:
    alone = [next(FILL.fill([text], targets=["水", "长江"])) for text in (TWO, APART)]
    assert [len(filled.candidates) for filled in alone] == [2, 2]
    for one, other in zip(alone, FILL.fill([TWO, APART], targets=["水", "长江"]), strict=True):
        for records, others in zip(one.candidates, other.candidates, strict=True):
            for record, same in zip(records, others, strict=True):
                assert record["sequence"] == same["sequence"]
                assert record["score"] == pytest.approx(same["score"], rel=1e-4)


def test_a_continuation_may_be_a_target() -> None:
    [record] = FILL("un[MASK] late", targets=["##seen"])
    assert record["token"] == FILL.tokenizer.vocabulary.ids["##seen"]
    assert record["sequence"] == "unseen late"


@pytest.mark.parametrize(
    ("targets", "message"),
    [(["猫", "狗"], "--targets: is not in the vocabulary\n  value: '猫'"), ([], "--targets: names no target")],
)
def test_targets_that_the_vocabulary_does_not_know_are_all_named(targets: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FILL("[MASK]", targets=targets)


def test_a_target_without_room_is_refused() -> None:
    with pytest.raises(InputError, match="a target's text: has 65 tokens"):
        FILL("君" * 61 + "[MASK]", targets=["长江"])


def test_targets_are_not_for_all_masks_together() -> None:
    with pytest.raises(InputError, match="--targets: is for one mask at a time"):
        list(FILL.fill([TWO], joint=True, targets=["水"]))


# ---- pseudo-perplexity -----------------------------------------------------------------------------------------------


def test_a_score_is_the_sum_over_tokens_hidden_alone() -> None:
    [scored] = FILL.score([toy.DAY])
    ids = FILL.tokenizer.encode(toy.DAY).ids
    expected = [
        log_probability(toy.DAY[:column] + "[MASK]" + toy.DAY[column + 1 :], column, ids[column])
        for column in range(len(ids))
    ]
    assert [token["log_probability"] for token in scored.tokens] == pytest.approx(expected, abs=1e-4)
    assert scored.pseudo_log_likelihood == pytest.approx(sum(expected), abs=1e-3)
    assert scored.pseudo_perplexity == pytest.approx(math.exp(-sum(expected) / len(ids)), rel=1e-4)
    assert [token["token_str"] for token in scored.tokens] == list(toy.DAY)


def test_scores_do_not_depend_on_what_is_scored_beside() -> None:
    alone = [next(FILL.score([text])).pseudo_perplexity for text in toy.TEXTS]
    together = [scored.pseudo_perplexity for scored in FILL.score(itertools.chain(toy.TEXTS, toy.TEXTS))]
    assert together == pytest.approx(alone * 2, rel=1e-4)


def test_unknown_tokens_are_left_out_and_counted() -> None:
    [scored] = FILL.score(["君猫君狗"])
    assert scored.unknown == 2
    assert [token["token_str"] for token in scored.tokens] == ["君", "君"]


def test_a_text_known_by_heart_is_less_perplexing() -> None:
    fill = FillMask(toy.learnt_model(), tokenizer=toy.toy_tokenizer())
    known, turned = fill.score([toy.RIVER, toy.RIVER[::-1]])
    assert known.pseudo_perplexity < turned.pseudo_perplexity


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("君[MASK]", r"text 2: holds \[MASK\]"),
        ("猫", "text 2: holds no token of the vocabulary"),
        ("君" * 63, "text 2: has 65 tokens"),
        ("a" * 400_001, "text 2: has 400,001 characters"),
    ],
)
def test_a_text_that_cannot_be_scored_is_refused_by_its_number(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(FILL.score([toy.DAY, text]))
    [(index, _)] = FILL.score_problems([toy.DAY, text])
    assert index == 1
