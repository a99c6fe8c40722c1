"""Finished rows: words from the store reach the masks in every scheme and pairing; the user's terms are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_data import TOY, Documents, encoded, memory_store, song_ci_like_store, toy_ids, vocabulary_of

from bertkit.data.instances import masked_rows, read_phrases
from bertkit.data.masking import MaskedRows, MaskingSettings
from bertkit.data.pairs import PairSettings, build_pairs
from bertkit.data.rows import Rows, build_rows
from bertkit.data.selection import Phrases
from bertkit.data.store import Store, open_store
from bertkit.data.store_writer import StoreWriter
from bertkit.errors import InputError
from bertkit.text.tokenizer import make_tokenizer

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
# Words of two characters in even documents, of one in odd ones; shards of one document or two.
DOCUMENTS: Documents = [
    [toy_ids("明月几时"), toy_ids("把酒问青"), toy_ids("天上宫阙")],
    [toy_ids("今夕是何"), toy_ids("年不知。")],
    [toy_ids("明月"), toy_ids("青天何时"), toy_ids("有酒")],
]


def with_words(directory: Path, *, shard_tokens: int = 15) -> Store:
    """The store of DOCUMENTS with its word starts."""
    writer = StoreWriter(
        directory, vocab_size=TOY.size, unk_id=TOY.unk_id, has_word_starts=True, shard_tokens=shard_tokens
    )
    whole = encoded(DOCUMENTS)
    of_document = np.repeat(np.arange(len(DOCUMENTS)), whole.token_counts)
    # (Every sentence here has an even number of tokens.)
    starts = (of_document % 2 == 1) | (np.arange(len(of_document)) % 2 == 0)
    writer.add(replace(whole, word_starts=starts))
    writer.close(vocabulary_hash=TOY.hash)
    return open_store(directory)


def finished(
    store: Store, pairs: PairSettings, masking: MaskingSettings, *, phrases: Phrases | None = None, epoch: int = 0
) -> tuple[Rows, MaskedRows]:
    table = build_pairs(store, pairs, seed=0, epoch=epoch)
    return masked_rows(
        store,
        table,
        np.arange(len(table)),
        vocabulary=TOY,
        masking=masking,
        phrases=phrases,
        seed=0,
        epoch=epoch,
    )


# ---- words of the store ----


@pytest.mark.parametrize("shard_tokens", [1, 15, 1000])
def test_word_starts_survive_in_the_store_however_many_shards(tmp_path: Path, shard_tokens: int) -> None:
    store = with_words(tmp_path, shard_tokens=shard_tokens)
    assert len(store.shard_word_starts) == {1: 3, 15: 3, 1000: 1}[shard_tokens]
    found = store.word_starts(np.array([0, 12, 20]), np.array([12, 20, 28]))
    assert found.tolist() == [True, False] * 6 + [True] * 8 + [True, False] * 4
    assert store.word_starts(np.array([1, 19, 5]), np.array([4, 20, 5])).tolist() == [False, True, False, True]


@pytest.mark.parametrize("pairing", ["segment", "sentence", "sop", "none"])
def test_the_words_of_the_store_are_hidden_whole(tmp_path: Path, pairing: Any) -> None:
    store = with_words(tmp_path)
    hidden_pairs = hidden_single = 0
    for epoch in range(40):
        rows, masked = finished(
            store,
            PairSettings(pairing=pairing, max_seq_length=32),
            MaskingSettings(masking="whole_word", mlm_probability=0.3),
            epoch=epoch,
        )
        starts = rows.word_starts
        inside = ~starts[:, 1:]
        assert (masked.selected[:, 1:] == masked.selected[:, :-1])[inside].all()
        hidden_pairs += int((masked.selected[:, 1:] & inside).sum())
        hidden_single += int((masked.selected[:, 1:-1] & starts[:, 1:-1] & starts[:, 2:]).sum())
    assert hidden_pairs > 20
    assert hidden_single > 10


@pytest.mark.parametrize("pairing", ["segment", "sentence", "sop", "none"])
def test_a_word_that_trimming_cut_is_one_of_its_own(tmp_path: Path, pairing: Any) -> None:
    """The first token of a segment begins a word, whatever stood before it; special tokens are words."""
    store, cut = with_words(tmp_path), 0
    for epoch in range(40):
        pairs = PairSettings(pairing=pairing, max_seq_length=8)
        table = build_pairs(store, pairs, seed=0, epoch=epoch)
        rows = build_rows(store, table, np.arange(len(table)), TOY)
        length_a = table.end_a - table.start_a
        for row in range(len(table)):
            inner = np.arange(table.start_a[row], table.end_a[row])
            expected = store.word_starts(inner, inner + 1)
            cut += int(not expected[0])
            expected[0] = True
            assert rows.word_starts[row, 1 : 1 + length_a[row]].tolist() == expected.tolist()
            if table.end_b[row] > table.start_b[row]:
                assert rows.word_starts[row, 2 + length_a[row]]
        special = np.isin(rows.input_ids, [TOY.cls_id, TOY.sep_id])
        assert rows.word_starts[special].all()
    assert cut > 0 or pairing == "none"


def test_without_words_in_the_store_the_signs_of_the_pieces_tell_them() -> None:
    store = memory_store([[toy_ids("beginning ##s god ##ning ##s"), toy_ids("明月")], [toy_ids("in the")]])
    table = build_pairs(store, PairSettings(pairing="sentence", next_sentence_prob=1.0), seed=0, epoch=0)
    rows = build_rows(store, table, np.array([0]), TOY)
    assert rows.word_starts.tolist() == [[True, True, False, True, False, False, True, True, True, True]]


def test_a_piece_at_which_a_cut_row_begins_is_a_word_of_its_own() -> None:
    store = memory_store([[toy_ids("god ##ning") * 20]])
    table = build_pairs(store, PairSettings(pairing="none", max_seq_length=9), seed=0, epoch=0)
    rows = build_rows(store, table, np.array([1]), TOY)
    assert rows.input_ids[0, 1] == TOY.ids["##ning"]
    assert rows.word_starts[0, :4].tolist() == [True, True, True, False]


# ---- a function of seed, epoch and row ----


@pytest.mark.parametrize("scheme", ["token", "whole_word", "span", "ngram"])
@pytest.mark.parametrize("pairing", ["segment", "sop", "none"])
def test_a_row_is_the_same_alone_and_among_others(scheme: Any, pairing: Any) -> None:
    store, vocabulary = song_ci_like_store(documents=30), vocabulary_of(6000)
    table = build_pairs(store, PairSettings(pairing=pairing, max_seq_length=40), seed=4, epoch=2)
    named: dict[str, Any] = {
        "vocabulary": vocabulary,
        "masking": MaskingSettings(masking=scheme),
        "phrases": None,
        "seed": 4,
        "epoch": 2,
    }
    order = np.random.default_rng(0).permutation(len(table))
    rows, masked = masked_rows(store, table, order, **named)
    for place in range(0, len(order), 7):
        one, alone = masked_rows(store, table, order[[place]], **named)
        length = int(one.lengths[0])
        assert rows.input_ids[place, :length].tolist() == one.input_ids[0].tolist()
        assert masked.input_ids[place, :length].tolist() == alone.input_ids[0].tolist()
        assert masked.selected[place, :length].tolist() == alone.selected[0].tolist()


# ---- the user's terms ----


def phrases_of(path: Path, content: str | bytes) -> Phrases | None:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return read_phrases(MaskingSettings(masking="phrases", phrases_file=str(path)), TOKENIZER)


def test_terms_are_read_one_a_line_as_the_tokenizer_sees_them(tmp_path: Path) -> None:
    phrases = phrases_of(tmp_path / "terms.txt", "\ufeff明月\r\n\n  青天 \nThe Beginning\n明月\n")
    assert phrases is not None
    assert len(phrases) == 3
    row = np.array([[TOY.cls_id, *toy_ids("明月"), *toy_ids("the beginning"), *toy_ids("青天"), TOY.sep_id]])
    assert sorted(phrases.find(row)) == [(0, 1, 3), (0, 3, 5), (0, 5, 7)]


def test_without_a_file_there_are_no_terms() -> None:
    assert read_phrases(MaskingSettings(), TOKENIZER) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "terms.txt: holds no term\n  expected: one term a line"),
        ("\n  \n", "holds no term"),
        ("明月\n\n龘月\n", "terms.txt:3: has a token that the vocabulary lacks.*\n  value: '龘月'"),
        ("明月\n\u200b\n", "terms.txt:2: has a token that the vocabulary lacks"),
        ("明月".encode("gb18030"), "terms.txt: is not UTF-8 .*\n  what to do: save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_list_of_terms_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        phrases_of(tmp_path / "terms.txt", content)


def test_a_file_of_terms_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.txt: does not exist\n(?s:.)*--phrases_file"):
        read_phrases(MaskingSettings(masking="phrases", phrases_file=str(tmp_path / "none.txt")), TOKENIZER)


@pytest.mark.parametrize(("scheme", "file"), [("phrases", None), ("token", "terms.txt")])
def test_terms_and_their_scheme_belong_together(scheme: Any, file: str | None) -> None:
    with pytest.raises(InputError, match="--masking phrases, --phrases_file: belong together"):
        MaskingSettings(masking=scheme, phrases_file=file)


def test_terms_are_hidden_first_in_finished_rows(tmp_path: Path) -> None:
    phrases = phrases_of(tmp_path / "terms.txt", "青天\n")
    store = memory_store(DOCUMENTS)
    rows, masked = finished(
        store,
        PairSettings(pairing="none", max_seq_length=32),
        MaskingSettings(masking="phrases", phrases_file="x", mlm_probability=0.2),
        phrases=phrases,
    )
    found = np.isin(rows.input_ids, toy_ids("青天")) & (rows.lengths == 10)[:, None]
    assert found.sum() == 2
    assert masked.selected[found].all()
    assert masked.selected[found.any(axis=1)].sum() == 2
