"""Rows: arrays by hand, and the same as the tokenizer's own way to put special tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_data import TOY, Documents, flat, memory_store, rows_of, toy_ids

from bertkit.data.pairs import PairSettings, PairTable, build_pairs
from bertkit.data.rows import build_rows, row_lengths
from bertkit.text.tokenizer import with_special_tokens

CLS, SEP, PAD = TOY.cls_id, TOY.sep_id, TOY.pad_id
STORE = memory_store(
    [[toy_ids("明月几时有，"), toy_ids("把酒问青天。")], [toy_ids("in the beginning"), toy_ids("god created heaven")]]
)


def table_of(*rows: tuple[int, int, int, int, int]) -> PairTable:
    """Rows of (start_a, end_a, start_b, end_b, label)."""
    start_a, end_a, start_b, end_b, label = np.array(rows, dtype=np.int64).T
    nothing = np.zeros_like(start_a)
    return PairTable(nothing, start_a, end_a, nothing, start_b, end_b, label, trimmed_tokens=0, unresolved=0)


def test_two_pairs_and_a_text_by_hand() -> None:
    table = table_of((0, 6, 6, 12, 0), (1, 3, 15, 18, 1), (12, 15, 15, 15, 0))
    rows = build_rows(STORE, table, np.array([0, 1, 2]), TOY)
    assert rows.input_ids.tolist() == [
        [CLS, *toy_ids("明月几时有，"), SEP, *toy_ids("把酒问青天。"), SEP],
        [CLS, *toy_ids("月几"), SEP, *toy_ids("god created heaven"), SEP, *[PAD] * 7],
        [CLS, *toy_ids("in the beginning"), SEP, *[PAD] * 10],
    ]
    assert rows.token_type_ids.tolist() == [
        [0] * 8 + [1] * 7,
        [0] * 4 + [1] * 4 + [0] * 7,
        [0] * 15,
    ]
    assert rows.lengths.tolist() == [15, 8, 5]
    assert rows.input_ids.dtype == rows.token_type_ids.dtype == rows.lengths.dtype == np.int64


def test_rows_come_in_the_order_asked_for_and_no_wider_than_needed() -> None:
    table = table_of((0, 6, 6, 12, 0), (1, 3, 15, 18, 1), (12, 15, 15, 15, 0))
    rows = build_rows(STORE, table, np.array([2, 1, 2]), TOY)
    assert rows.lengths.tolist() == [5, 8, 5]
    assert rows.input_ids.shape == (3, 8)
    assert rows.input_ids[0].tolist() == rows.input_ids[2].tolist()


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_a_sentence_of_seven_hundred_tokens_makes_rows_within_the_cap(pairing: str) -> None:
    store = memory_store([[[20] * 700, [21] * 5, [22]], [[23] * 61], [[24] * 3, [20] * 62]])
    for epoch in range(20):
        table = build_pairs(store, PairSettings(pairing=pairing, max_seq_length=64), seed=0, epoch=epoch)
        rows = build_rows(store, table, np.arange(len(table)), TOY)
        assert rows.input_ids.shape == rows.token_type_ids.shape
        assert rows.lengths.max() <= rows.input_ids.shape[1] <= 64
        assert (table.end_a > table.start_a).all()
        assert (table.end_b > table.start_b).all() == (pairing != "none")
        assert ((rows.input_ids == CLS).sum(axis=1) == 1).all()
        assert ((rows.input_ids == SEP).sum(axis=1) == (1 if pairing == "none" else 2)).all()


CORPORA = st.lists(
    st.lists(st.lists(st.integers(2, 20), min_size=1, max_size=6), min_size=2, max_size=5, unique_by=tuple),
    min_size=2,
    max_size=4,
)


@given(CORPORA, st.sampled_from(["segment", "sentence", "none"]), st.integers(8, 24), st.integers(0, 20))
def test_a_row_is_what_the_tokenizer_makes_of_its_two_spans(
    documents: Documents, pairing: str, max_seq_length: int, seed: int
) -> None:
    store = memory_store(documents)
    pairs = PairSettings(pairing=pairing, max_seq_length=max_seq_length, next_sentence_prob=0.9)
    try:
        table = build_pairs(store, pairs, seed=seed, epoch=0)
    except ValueError:
        return  # sentences too much alike: nothing to build
    tokens = flat(documents)
    built = build_rows(store, table, np.arange(len(table)), TOY)
    assert built.lengths.tolist() == row_lengths(table, np.arange(len(table))).tolist()
    assert built.lengths.max() <= max_seq_length
    for row, (_, start_a, end_a, _, start_b, end_b, _) in enumerate(rows_of(table)):
        second = None if pairing == "none" else tokens[start_b:end_b]
        ids, types = with_special_tokens(tokens[start_a:end_a], second, TOY)
        length = built.lengths[row]
        assert built.input_ids[row, :length].tolist() == ids.tolist()
        assert built.token_type_ids[row, :length].tolist() == types.tolist()
        assert (built.input_ids[row, length:] == PAD).all()
        assert (built.token_type_ids[row, length:] == 0).all()
        assert (built.input_ids[row] == CLS).sum() == 1
        assert (built.input_ids[row] == SEP).sum() == (1 if pairing == "none" else 2)
