"""Global batches: the micro-batches hold the step's rows once, and the cut changes none of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toy_data import TOY, memory_store, song_ci_like_store, toy_ids, vocabulary_of

from bertkit.data.batches import GlobalBatch, build_global_batch
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import IS_RANDOM, PairSettings, PairTable, build_pairs
from bertkit.data.rows import build_rows
from bertkit.data.store import Store
from bertkit.text.tokenizer import load_tokenizer

STORE, VOCABULARY = song_ci_like_store(documents=100), vocabulary_of(6000)
TABLE = build_pairs(STORE, PairSettings(max_seq_length=64), seed=0, epoch=0)
ROWS = np.random.default_rng(0).permutation(len(TABLE))[:50]


def built(rows: np.ndarray = ROWS, *, micro_batch_tokens: int = 512, with_pairs: bool = True) -> GlobalBatch:
    return build_global_batch(
        STORE,
        TABLE,
        rows,
        vocabulary=VOCABULARY,
        masking=MaskingSettings(),
        seed=0,
        epoch=0,
        micro_batch_tokens=micro_batch_tokens,
        with_pairs=with_pairs,
    )


def restored(batch: GlobalBatch) -> dict[int, tuple[list[int], list[int], list[int], int]]:
    """Row → (ids with the hidden tokens put back, hidden columns, token types, label)."""
    rows = {}
    for micro_batch, positions in zip(batch.micro_batches, batch.positions, strict=True):
        ids = micro_batch["input_ids"].clone()
        width = ids.shape[1]
        ids.view(-1)[micro_batch["mlm_positions"]] = micro_batch["mlm_targets"]
        mask = micro_batch.get("attention_mask", torch.ones_like(ids, dtype=torch.bool))
        for place, row in enumerate(positions.tolist()):
            length = int(mask[place].sum())
            here = micro_batch["mlm_positions"] // width == place
            rows[row] = (
                ids[place, :length].tolist(),
                (micro_batch["mlm_positions"][here] % width).tolist(),
                micro_batch["token_type_ids"][place, :length].tolist(),
                int(micro_batch["next_sentence_label"][place]),
            )
    return rows


def test_with_the_hidden_tokens_put_back_the_rows_of_the_table_stand_there() -> None:
    plain = build_rows(STORE, TABLE, ROWS, VOCABULARY)
    found = restored(built())
    assert sorted(found) == list(range(50))
    for row, (ids, columns, types, label) in found.items():
        length = plain.lengths[row]
        assert ids == plain.input_ids[row, :length].tolist()
        assert types == plain.token_type_ids[row, :length].tolist()
        assert label == TABLE.next_sentence_label[ROWS[row]]
        assert len(columns) == max(1, int(0.15 * (length - 3) + 0.5))


@pytest.mark.parametrize("micro_batch_tokens", [1, 64, 300, 10**6])
def test_the_cut_changes_neither_rows_nor_masks(micro_batch_tokens: int) -> None:
    assert restored(built(micro_batch_tokens=micro_batch_tokens)) == restored(built())


def test_a_rows_mask_does_not_depend_on_the_other_rows_of_its_step() -> None:
    whole, half = restored(built()), restored(built(ROWS[10:30]))
    assert {row + 10: content for row, content in half.items()} == {row: whole[row] for row in range(10, 30)}


def test_the_counts_are_those_of_the_micro_batches() -> None:
    batch = built()
    assert batch.num_rows == 50 == sum(len(micro_batch["input_ids"]) for micro_batch in batch.micro_batches)
    assert batch.num_targets == sum(len(micro_batch["mlm_targets"]) for micro_batch in batch.micro_batches)
    assert batch.slots == sum(micro_batch["input_ids"].numel() for micro_batch in batch.micro_batches)
    assert batch.tokens == sum(len(ids) for ids, *_ in restored(batch).values())
    assert batch.tokens <= batch.slots
    assert all(micro_batch["input_ids"].numel() <= 512 for micro_batch in batch.micro_batches)
    assert len(batch.micro_batches) > 3


def test_rows_come_longest_first() -> None:
    widths = [micro_batch["input_ids"].shape[1] for micro_batch in built().micro_batches]
    assert widths == sorted(widths, reverse=True)


def test_texts_carry_no_next_sentence_label() -> None:
    assert all("next_sentence_label" not in micro_batch for micro_batch in built(with_pairs=False).micro_batches)


def neighbours_of(store: Store, *, first: int, epoch: int) -> tuple[PairTable, int]:
    """The pairs of an epoch, and the row of which A is sentence `first`."""
    table = build_pairs(store, PairSettings(pairing="sentence"), seed=0, epoch=epoch)
    return table, table.start_a.tolist().index(store.sentence_starts[first])


@pytest.mark.shared_data
def test_the_known_pair_of_the_ci_has_its_known_row(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-chinese-vocab.txt", do_lower_case=True)
    vocabulary = tokenizer.vocabulary
    sentences = ["风住尘香花已尽，日晚倦梳头", "物是人非事事休", "锦书欲寄鸿难托", "莫莫莫"]
    first, second, letter, last = (ids.tolist() for ids in tokenizer.encode_plain(sentences))
    store = memory_store([[first, second], [letter, last]])
    wanted = (0, len(first), len(first + second), len(first + second + letter), IS_RANDOM)
    for epoch in range(100):
        table, row = neighbours_of(store, first=0, epoch=epoch)
        columns = (table.start_a, table.end_a, table.start_b, table.end_b, table.next_sentence_label)
        if tuple(int(column[row]) for column in columns) == wanted:
            break
    batch = build_global_batch(
        store,
        table,
        np.array([row]),
        vocabulary=vocabulary,
        masking=MaskingSettings(),
        seed=0,
        epoch=epoch,
        micro_batch_tokens=128,
        with_pairs=True,
    )
    [only] = batch.micro_batches
    [ids] = only["input_ids"].clone()
    ids[only["mlm_positions"]] = only["mlm_targets"]
    text = ["[CLS]", *"风住尘香花已尽，日晚倦梳头", "[SEP]", *"锦书欲寄鸿难托", "[SEP]"]
    assert [vocabulary.tokens[id] for id in ids.tolist()] == text
    assert len(ids) == 23
    assert only["token_type_ids"].tolist() == [[0] * 15 + [1] * 8]
    assert len(only["mlm_targets"]) == batch.num_targets == 3
    assert only["next_sentence_label"].tolist() == [1]
    assert "attention_mask" not in only


def test_a_toy_pair_by_hand() -> None:
    store = memory_store([[toy_ids("明月"), toy_ids("几时有")], [toy_ids("god created"), toy_ids("heaven")]])
    pairs = PairSettings(pairing="sentence", next_sentence_prob=1.0)
    table = build_pairs(store, pairs, seed=0, epoch=0)
    all_hidden = MaskingSettings(mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0)
    batch = build_global_batch(
        store,
        table,
        np.array([1, 0]),
        vocabulary=TOY,
        masking=all_hidden,
        seed=0,
        epoch=0,
        micro_batch_tokens=100,
        with_pairs=True,
    )
    [only] = batch.micro_batches
    cls, sep, mask, pad = TOY.cls_id, TOY.sep_id, TOY.mask_id, TOY.pad_id
    assert only["input_ids"].tolist() == [
        [cls, mask, mask, sep, mask, mask, mask, sep],
        [cls, mask, mask, sep, mask, sep, pad, pad],
    ]
    assert only["mlm_positions"].tolist() == [1, 2, 4, 5, 6, 9, 10, 12]
    assert only["mlm_targets"].tolist() == toy_ids("明月") + toy_ids("几时有") + toy_ids("god created") + [
        TOY.ids["heaven"]
    ]
    assert only["attention_mask"].tolist() == [[True] * 8, [True] * 6 + [False] * 2]
    assert only["next_sentence_label"].tolist() == [0, 0]
    assert [position.tolist() for position in batch.positions] == [[1, 0]]
    assert (batch.num_targets, batch.num_rows, batch.tokens, batch.slots) == (8, 2, 14, 16)
