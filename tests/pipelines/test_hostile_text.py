"""Hostile text: an answer or an error that says why, never a crash and never a wait."""

from collections.abc import Callable

import pytest
import toy_model as toy

from bertkit.errors import InputError
from bertkit.pipelines import Embedder, FillMask, NextSentence

MODEL, TOKENIZER = toy.random_model(), toy.toy_tokenizer()
FILL, JUDGE = FillMask(MODEL, tokenizer=TOKENIZER), NextSentence(MODEL, tokenizer=TOKENIZER)
EMBED = Embedder(MODEL, tokenizer=TOKENIZER)
HOSTILE = {
    "a word of a megabyte": "a" * 2**20,
    "ten megabytes of Chinese": "我住长江头" * 700_000,
    "ten megabytes of blanks": " " * 10_000_000 + "君",
    "NUL": "君\0君",
    "only NUL": "\0\0\0",
    "combining marks": "e" + "\u0301" * 200_000,
    "half a surrogate pair": "君\ud83d君",
    "directions turned": "\u202e君\u2066late\u2069",
    "private and unassigned": "\ue000\U000e0001\uffff君",
    "special tokens": "[CLS][SEP][PAD][UNK]君",
    "markup": "</script><img src=x onerror=alert(1)>君",
}


def length_of_the_answer(ask: Callable[[], list]) -> int:
    """Characters of the refusal, or 0 where there is one answer."""
    try:
        return len(ask()) - 1
    except InputError as problem:
        return len(str(problem))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_every_pipeline_answers_or_says_why(text: str) -> None:
    for ask in (
        lambda: list(FILL.fill([text + "[MASK]"])),
        lambda: list(FILL.fill([text], masked=False)),
        lambda: list(JUDGE.judge([(text, "君")])),
        lambda: list(EMBED.embed([text])),
    ):
        assert length_of_the_answer(ask) < 1000


def test_a_long_text_is_cut_without_reading_all_of_it() -> None:
    [embedding] = EMBED.embed([HOSTILE["ten megabytes of Chinese"]])
    assert embedding.cut
    assert len(embedding.input_ids) == 64
