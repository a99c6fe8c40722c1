"""Collation: tensors by hand, and that every flat position points at its original token."""

import numpy as np
import torch
from toy_data import TOY, toy_ids

from bertkit.data.collate import collate
from bertkit.data.masking import MaskedRows
from bertkit.data.rows import Rows

CLS, SEP, PAD, MASK = TOY.cls_id, TOY.sep_id, TOY.pad_id, TOY.mask_id
MOON, HAS, WINE, GOD, EARTH = (TOY.ids[token] for token in ("月", "有", "酒", "god", "earth"))
ROWS = Rows(
    input_ids=np.array(
        [[CLS, MOON, SEP, HAS, SEP, PAD], [CLS, GOD, EARTH, SEP, WINE, SEP], [CLS, WINE, SEP] + [PAD] * 3]
    ),
    token_type_ids=np.array([[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1], [0] * 6]),
    lengths=np.array([5, 6, 3]),
    word_starts=np.ones((3, 6), dtype=bool),
)
HIDDEN = MaskedRows(
    input_ids=np.array(
        [[CLS, MASK, SEP, HAS, SEP, PAD], [CLS, GOD, MASK, SEP, MOON, SEP], [CLS, WINE, SEP] + [PAD] * 3]
    ),
    selected=np.array([[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0], [0] * 6], bool),
)
LABELS = np.array([0, 1, 0])


def test_three_rows_by_hand() -> None:
    batch = collate(ROWS, HIDDEN, LABELS, positions=np.array([1, 0, 2]))
    assert list(batch) == [
        *("input_ids", "token_type_ids", "mlm_positions", "mlm_targets", "attention_mask", "next_sentence_label"),
    ]
    assert batch["input_ids"].tolist() == [
        [CLS, GOD, MASK, SEP, MOON, SEP],
        [CLS, MASK, SEP, HAS, SEP, PAD],
        [CLS, WINE, SEP, PAD, PAD, PAD],
    ]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0], [0] * 6]
    assert batch["attention_mask"].tolist() == [[True] * 6, [True] * 5 + [False], [True] * 3 + [False] * 3]
    assert batch["mlm_positions"].tolist() == [2, 4, 6 + 1]
    assert batch["mlm_targets"].tolist() == [EARTH, WINE, MOON]
    assert batch["next_sentence_label"].tolist() == [1, 0, 0]


def test_a_micro_batch_is_as_wide_as_its_own_longest_row() -> None:
    batch = collate(ROWS, HIDDEN, LABELS, positions=np.array([2, 0]))
    assert batch["input_ids"].shape == (2, 5)
    assert batch["mlm_positions"].tolist() == [5 + 1]
    assert batch["mlm_targets"].tolist() == [MOON]


def test_without_padding_there_is_no_attention_mask() -> None:
    assert "attention_mask" not in collate(ROWS, HIDDEN, LABELS, positions=np.array([0]))
    assert "attention_mask" not in collate(ROWS, HIDDEN, LABELS, positions=np.array([1, 1]))
    assert "attention_mask" in collate(ROWS, HIDDEN, LABELS, positions=np.array([0, 1]))


def test_without_labels_there_is_no_next_sentence_label() -> None:
    assert "next_sentence_label" not in collate(ROWS, HIDDEN, None, positions=np.array([0]))


def test_dtypes_are_what_the_model_takes() -> None:
    batch = collate(ROWS, HIDDEN, LABELS, positions=np.array([0, 1]))
    assert batch.pop("attention_mask").dtype == torch.bool
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_an_empty_micro_batch_has_its_keys_and_no_rows() -> None:
    batch = collate(ROWS, HIDDEN, LABELS, positions=np.zeros(0, np.int64))
    assert batch["input_ids"].shape == (0, 1)
    assert len(batch["mlm_positions"]) == len(batch["next_sentence_label"]) == 0


def test_a_batch_shares_no_memory_with_its_source() -> None:
    batch = collate(ROWS, HIDDEN, LABELS, positions=np.array([1]))
    batch["input_ids"][:] = 0
    assert HIDDEN.input_ids[1].tolist() == [CLS, GOD, MASK, SEP, MOON, SEP]
    assert toy_ids("月") == [MOON]
