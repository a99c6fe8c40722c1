"""FillMask and NextSentence against transformers on the same random folder: keys, scores, order, probability."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_model as toy
import transformers

from bertkit import FillMask, NextSentence

TEXTS = [
    "我住长江头，[MASK]住长江尾。",
    "It was late in the [MASK].",
    "[MASK] team won gold",
    "日日思君[MASK]见君，The U.S. team 共饮",
    "囍“unseen”[MASK] naïve plays",
]
ATOL = 1e-5


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers' progress bars and remarks, switched off for one test."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


@pytest.fixture(params=[True, False], ids=["lower-cased", "cased"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return toy.model_folder(tmp_path, toy.random_model(), do_lower_case=request.param)


def their_fill_mask(folder: Path) -> Any:
    return transformers.pipeline("fill-mask", model=str(folder), tokenizer=str(folder), device="cpu")


def assert_same_answers(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    expected = {record["token"]: record for record in theirs}
    assert len(ours) == toy.toy_vocabulary().ordinary.sum()
    for record in ours:
        other = expected[record["token"]]
        assert record.keys() == other.keys()
        assert record["score"] == pytest.approx(other["score"], abs=ATOL)
        assert record["token_str"] == other["token_str"].removeprefix("##")  # the one thing we write otherwise
    order = [record["token"] for record in theirs if toy.toy_vocabulary().ordinary[record["token"]]]
    assert [record["token"] for record in ours] == order


@pytest.mark.parametrize("text", TEXTS)
def test_one_mask_gets_the_scores_of_their_pipeline(folder: Path, text: str) -> None:
    size = toy.toy_vocabulary().size
    ours, theirs = FillMask(folder)(text, top_k=size), their_fill_mask(folder)(text, top_k=size)
    assert_same_answers(ours, theirs)


def test_several_masks_are_a_list_of_lists_as_theirs(folder: Path) -> None:
    text, size = "我住[MASK]江头，[MASK]住长江尾。", toy.toy_vocabulary().size
    ours, theirs = FillMask(folder)(text, top_k=size), their_fill_mask(folder)(text, top_k=size)
    assert len(ours) == len(theirs) == 2
    for our_records, their_records in zip(ours, theirs, strict=True):
        assert_same_answers(our_records, their_records)


def test_their_pipeline_opens_what_is_saved_and_answers_the_same_first_token(tmp_path: Path) -> None:
    folder = toy.model_folder(tmp_path, toy.learnt_model(steps=40))
    for text in ("我住长江头，[MASK]住长江尾。", "The U.S. team [MASK] gold."):
        ours, theirs = FillMask(folder)(text, top_k=1), their_fill_mask(folder)(text, top_k=1)
        assert [record["token_str"] for record in ours] == [record["token_str"] for record in theirs]
        assert ours[0]["token_str"] in ("君", "won")


@torch.no_grad()
@pytest.mark.parametrize(
    ("first", "second"), [(toy.RIVER, toy.DAY), (toy.GOLD, toy.LATE), (toy.HEART, toy.GOLD), ("囍", "naïve plays")]
)
def test_the_probability_of_the_next_sentence_is_theirs(folder: Path, first: str, second: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.BertForNextSentencePrediction.from_pretrained(folder).eval()
    logits = model(**tokenizer(first, second, return_tensors="pt")).logits[0]
    answer = NextSentence(folder)(first, second)
    assert answer["score"] == pytest.approx(logits.softmax(-1)[0].item(), abs=ATOL)
    assert answer["is_next"] is bool(logits.argmax() == 0)
