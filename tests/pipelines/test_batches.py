"""Streams of answers: every item once, in order, nothing read too far ahead, little padding, no mask without need."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import InputError
from bertkit.pipelines.batches import MAX_CHARACTERS, cut_by_length, in_order, padded, require_short

LENGTHS = st.lists(st.integers(1, 50), max_size=80)


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 200), read_ahead=st.integers(1, 400))
def test_every_item_is_answered_once_and_in_order(lengths: list[int], batch_tokens: int, read_ahead: int) -> None:
    seen: list[int] = []

    def answer(batch: list[tuple[int, int]]) -> list[int]:
        seen.extend(number for number, _ in batch)
        return [number for number, _ in batch]

    items = list(enumerate(lengths))
    found = in_order(
        items, length=lambda item: item[1], answer=answer, batch_tokens=batch_tokens, read_ahead_tokens=read_ahead
    )
    assert list(found) == [number for number, _ in items]
    assert sorted(seen) == [number for number, _ in items]


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 200))
def test_no_batch_is_larger_than_the_budget_unless_it_is_one_row(lengths: list[int], batch_tokens: int) -> None:
    batches = list(cut_by_length(lengths, batch_tokens=batch_tokens))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= batch_tokens


def test_answers_come_before_the_stream_ends() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    found = in_order(endless(), length=lambda _: 10, answer=lambda batch: batch, read_ahead_tokens=100)
    assert [next(found) for _ in range(25)] == list(range(25))


def test_rows_of_one_length_have_no_mask_and_single_texts_no_types() -> None:
    row = (np.array([2, 5, 3]), np.zeros(3, dtype=np.int64))
    longer = (np.array([2, 5, 6, 3]), np.array([0, 0, 1, 1]))
    assert padded([row, row], pad_id=0, device=torch.device("cpu")).keys() == {"input_ids"}
    batch = padded([row, longer], pad_id=9, device=torch.device("cpu"))
    assert batch["input_ids"].tolist() == [[2, 5, 3, 9], [2, 5, 6, 3]]
    assert batch["attention_mask"].tolist() == [[True, True, True, False], [True] * 4]
    assert batch["token_type_ids"].tolist() == [[0] * 4, [0, 0, 1, 1]]


def test_a_text_of_megabytes_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"(?s)text 1: has 400,001 characters\n.*at most 400,000"):
        require_short("a" * (MAX_CHARACTERS + 1), what="text 1")
