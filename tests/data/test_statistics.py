"""What `inspect data` counts: numbers by hand on toy stores, laws on larger ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_data import (
    TOY,
    documents_of,
    flat,
    memory_store,
    rows_of,
    song_ci_like_store,
    store_of_arrays,
    toy_ids,
    vocabulary_of,
    written_store,
)

from bertkit.data import corpus_statistics as corpus_module
from bertkit.data import mask_statistics as mask_module
from bertkit.data.corpus_statistics import Named, corpus_statistics
from bertkit.data.distributions import MOST_BINS, distribution_of
from bertkit.data.finished_rows import finished_rows, pieces_of_text
from bertkit.data.mask_statistics import first_steps, padding_statistics
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import global_batch
from bertkit.data.pair_statistics import guess_by_lengths, pair_statistics, sentences_used
from bertkit.data.pairs import PairSettings, PairTable, build_pairs
from bertkit.data.rows import row_lengths
from bertkit.data.statistics import StoreStatistics, store_statistics
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import Vocabulary, joined_tokens

POEMS = [
    [toy_ids("明月几时有，"), toy_ids("把酒问青天。")],
    [toy_ids("不知天上宫阙，"), toy_ids("今夕是何年。"), toy_ids("明月几时有，")],
    [toy_ids("in the beginning god created the heaven and the earth .")],
    [toy_ids("明月几时有，"), toy_ids("把酒问青天。")],
]
BIG = vocabulary_of(6000)
TOKENIZER = make_tokenizer(TOY, do_lower_case=True)


def statistics_of(
    store: Store,
    vocabulary: Vocabulary = TOY,
    pairs: PairSettings | None = None,
    masking: MaskingSettings | None = None,
    *,
    batch_size: int = 32,
) -> StoreStatistics:
    return store_statistics(
        store,
        vocabulary,
        pairs or PairSettings(max_seq_length=32),
        masking or MaskingSettings(),
        seed=5,
        batch_size=batch_size,
        micro_batch_tokens=256,
    )


def spans(rows: list[tuple[int, int, int, int, int, int, int]]) -> PairTable:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    return PairTable(*columns, trimmed_tokens=0, unresolved=0)


# ---- distributions


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=200))
def test_a_histogram_counts_every_number_once(values: list[int]) -> None:
    found = distribution_of(np.array(values))
    histogram = found.histogram
    assert sum(histogram.counts) + histogram.beyond == len(values)
    assert len(histogram.counts) <= MOST_BINS + 1
    for place, count in enumerate(histogram.counts):
        first = histogram.start + histogram.width * place
        assert count == sum(first <= value < first + histogram.width for value in values)
    assert (found.min, found.max) == (min(values), max(values))
    assert sum(value <= found.p95 for value in values) >= 0.95 * len(values)
    assert sum(value < found.p95 for value in values) < 0.95 * len(values)


def test_a_few_giants_do_not_flatten_the_histogram() -> None:
    histogram = distribution_of(np.array([*range(1, 500), 90_000])).histogram
    assert (histogram.start, histogram.width, histogram.beyond) == (0, 20, 1)
    assert histogram.counts == [19, *[20] * 24]


# ---- the corpus


def test_the_numbers_of_a_toy_corpus_are_those_counted_by_hand() -> None:
    found = corpus_statistics(memory_store(POEMS), TOY)
    assert (found.documents, found.sentences, found.tokens) == (4, 8, 54)
    assert found.document_sentences.cells() == (1, 2.0, 2.0, 3, 3)
    assert found.document_tokens.cells() == (11, 12.0, 13.5, 19, 19)
    assert found.sentence_tokens.cells() == (6, 6.0, 6.8, 11, 11)
    assert found.documents_of_one_sentence == 1
    assert found.repeated_documents == 1
    assert found.repeated_sentences == 3
    assert found.most_repeated == [Named("明月几时有，", 3, 3 / 8), Named("把酒问青天。", 2, 2 / 8)]
    assert found.unknown_tokens == 0
    assert found.entries_used == len(set(flat(POEMS)))
    assert found.most_frequent[0] == Named("，", 4, 4 / 54)


def test_unknown_tokens_and_their_share_are_counted() -> None:
    found = corpus_statistics(memory_store([[[*toy_ids("明月"), TOY.unk_id], toy_ids("天")]]), TOY)
    assert (found.unknown_tokens, found.unknown_share) == (1, 0.25)
    assert found.entries == TOY.ordinary.sum()


def test_a_sentence_with_other_order_or_another_document_is_no_repeat() -> None:
    store = memory_store([[toy_ids("明月"), toy_ids("月明")], [toy_ids("月明"), toy_ids("明月")], [toy_ids("明")]])
    found = corpus_statistics(store, TOY)
    assert (found.repeated_documents, found.repeated_sentences) == (0, 2)


@pytest.mark.parametrize("tokens_at_once", [1, 7, 50, 10_000])
def test_the_numbers_depend_neither_on_chunks_nor_on_shards(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, tokens_at_once: int
) -> None:
    whole = corpus_statistics(memory_store(POEMS), TOY)
    monkeypatch.setattr(corpus_module, "TOKENS_AT_ONCE", tokens_at_once)
    store = written_store(tmp_path_factory.mktemp("store") / "store", POEMS, shard_tokens=20)
    assert len(store.shard_tokens) > 1
    assert corpus_statistics(store, TOY) == whole


@given(st.lists(st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=3), min_size=1, max_size=4), min_size=1))
def test_repeats_are_exactly_those_of_comparing_everything(documents: list[list[list[int]]]) -> None:
    found = corpus_statistics(memory_store(documents), TOY)
    sentences = [tuple(sentence) for document in documents for sentence in document]
    wholes = [tuple(map(tuple, document)) for document in documents]
    assert found.repeated_sentences == len(sentences) - len(set(sentences))
    assert found.repeated_documents == len(wholes) - len(set(wholes))
    counts = sorted((sentences.count(sentence) for sentence in set(sentences)), reverse=True)
    assert [named.count for named in found.most_repeated] == [count for count in counts[:3] if count > 1]


def test_an_empty_part_is_an_error() -> None:
    nothing = np.array([], np.int64)
    store = store_of_arrays(nothing.astype(np.uint16), nothing, sentences_per_document=nothing)
    with pytest.raises(InputError, match="toy: holds no document"):
        statistics_of(store)


def test_an_id_that_the_vocabulary_lacks_is_an_error() -> None:
    with pytest.raises(InputError, match=r"holds an id that the vocabulary lacks\n  value: 99\n  expected: ids below"):
        corpus_statistics(memory_store([[[2, 99]]]), TOY)


# ---- pairs


def test_used_sentences_are_those_that_a_span_touches() -> None:
    store = memory_store([[[2, 3], [4], [5, 6, 7]], [[8], [9, 10]]])  # sentences at 0, 2, 3, 6, 7
    table = spans([(0, 1, 3, 1, 7, 8, 1), (0, 4, 5, 0, 9, 9, 0)])
    assert sentences_used(store, table).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("pairing", ["segment", "sentence", "sop", "none"])
def test_pair_numbers_are_those_of_looking_at_every_row(pairing: str) -> None:
    store = song_ci_like_store(documents=60)
    settings = PairSettings(pairing=pairing, max_seq_length=48)  # type: ignore[arg-type]
    table = build_pairs(store, settings, seed=5, epoch=0)
    found = pair_statistics(store, table, settings, seed=5)
    starts, used, lengths, labels = store.sentence_starts.tolist(), set(), [], []
    for _, start_a, end_a, _, start_b, end_b, label in rows_of(table):
        for start, end in ((start_a, end_a), (start_b, end_b)):
            used |= {s for s in range(store.num_sentences) if starts[s] < end and start < starts[s + 1] and start < end}
        lengths.append(end_a - start_a + end_b - start_b + (2 if pairing == "none" else 3))
        labels.append(label)
    assert (found.rows, found.sentences_used) == (len(lengths), len(used))
    assert found.sentences_used_share == len(used) / store.num_sentences
    assert (found.row_tokens.min, found.row_tokens.max) == (min(lengths), max(lengths))
    assert found.row_tokens.mean == pytest.approx(np.mean(lengths))
    assert found.rows_at_cap == lengths.count(48)
    assert found.is_next_share == (None if pairing == "none" else pytest.approx(labels.count(0) / len(labels)))
    assert found.trimmed_tokens == table.trimmed_tokens
    assert 0 <= found.trimmed_share < 1
    assert found.usable_share == 1.0


def test_pairs_left_out_lessen_the_usable_share() -> None:
    store = memory_store(POEMS)
    table = replace(build_pairs(store, PairSettings(), seed=1, epoch=0), unresolved=2, hard_fallbacks=3)
    found = pair_statistics(store, table, PairSettings(), seed=1)
    assert found.usable_share == len(table) / (len(table) + 2)
    assert found.hard_fallbacks == 3


def label_table(lengths_a: list[int], labels: list[int]) -> PairTable:
    rows = [
        (place, 0, length, place, 1000, 1010, label)
        for place, (length, label) in enumerate(zip(lengths_a, labels, strict=True))
    ]
    return spans(rows)


def test_labels_that_lengths_tell_are_guessed_rightly() -> None:
    lengths = [10 + place % 7 for place in range(2000)]
    guess = guess_by_lengths(label_table(lengths, [length % 2 for length in lengths]), seed=1)
    assert guess.accuracy == 1.0
    assert 0.5 <= guess.majority < 0.6


def test_labels_that_lengths_do_not_tell_are_guessed_by_chance() -> None:
    generator = np.random.default_rng(3)
    lengths, labels = generator.integers(5, 60, 4000).tolist(), generator.integers(0, 2, 4000).tolist()
    guess = guess_by_lengths(label_table(lengths, labels), seed=1)
    assert abs(guess.accuracy - 0.5) < 4 * guess.standard_error  # nothing is learnt from the pairs it is tested on


def test_with_few_pairs_no_guess_is_made() -> None:
    found = statistics_of(memory_store(POEMS))
    assert found.pairs is not None
    assert found.pairs.length_guess is None
    assert ("label guessed from lengths alone", "too few pairs to tell") in found.rows()


# ---- masks and padding


@pytest.mark.parametrize("masking", ["token", "whole_word", "span", "ngram"])
def test_realised_mask_shares_keep_their_law(masking: str) -> None:
    settings = MaskingSettings(masking=masking, mlm_probability=0.2)  # type: ignore[arg-type]
    found = statistics_of(song_ci_like_store(documents=300), BIG, PairSettings(max_seq_length=64), settings).masks
    assert found is not None
    assert found.mask_share + found.random_share + found.kept_share == pytest.approx(1)
    width = 4.5 * (3.8 if masking == "span" else 1.0)  # a span has one fate, so that fewer coins are thrown
    for share, wanted in ((found.mask_share, 0.8), (found.random_share, 0.1), (found.kept_share, 0.1)):
        assert abs(share - wanted) < width * np.sqrt(wanted * (1 - wanted) / found.targets)
    assert found.targets <= found.targets_wanted
    assert abs(found.targets_wanted / found.ordinary_tokens - 0.2) < 0.01
    assert found.selected_share == found.targets / found.ordinary_tokens
    assert found.row_targets.mean * found.rows == pytest.approx(found.targets)
    assert found.whole_word_share == 1  # without ## every token is a word


def test_words_are_hidden_whole_where_they_are_hidden_together() -> None:
    sentence = toy_ids("in the begin begin".replace("begin", "god ##ning ##s"))
    store = memory_store([[sentence] * 3, [sentence[::-1], sentence], [toy_ids("明月几时有，"), sentence]] * 40)
    shares = {}
    for masking in ("token", "whole_word"):
        settings = MaskingSettings(masking=masking, mlm_probability=0.3)  # type: ignore[arg-type]
        found = statistics_of(store, masking=settings).masks
        assert found is not None
        assert not found.has_word_boundaries
        assert found.words < found.ordinary_tokens
        assert found.word_share * found.words <= found.targets
        shares[masking] = found.whole_word_share
    assert shares["whole_word"] == 1
    assert shares["token"] < 0.9


def test_rows_without_an_ordinary_token_are_counted() -> None:
    unknown = [TOY.unk_id] * 4
    found = statistics_of(memory_store([[unknown, unknown]]), pairs=PairSettings(pairing="none")).masks
    assert found is not None
    assert (found.rows, found.rows_without_target, found.targets, found.selected_share) == (1, 1, 0, 0.0)


def test_a_rate_schedule_is_shown_at_its_start() -> None:
    settings = MaskingSettings(mlm_probability=0.3, final_mlm_probability=0.15)
    found = statistics_of(song_ci_like_store(documents=100), BIG, masking=settings).masks
    assert found is not None
    assert found.mlm_probability == 0.3
    assert found.selected_share == pytest.approx(0.3, abs=0.02)


def test_of_a_large_epoch_a_sample_of_the_rows_is_masked_and_this_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_module, "SAMPLE_ROWS", 40)
    monkeypatch.setattr("bertkit.data.statistics.SAMPLE_ROWS", 40)
    found = statistics_of(song_ci_like_store(documents=100), BIG, batch_size=16)
    assert found.masks is not None
    assert found.padding is not None
    assert found.pairs is not None
    assert (found.masks.rows, found.padding.steps) == (40, 3)
    assert found.masks.rows_share == 40 / found.pairs.rows
    assert found.padding.steps_in_epoch == -(-found.pairs.rows // 16)
    assert ("rows looked at", 40, f"{4000 / found.pairs.rows:.2f} %") in found.rows()


def test_the_steps_looked_at_are_the_first_of_training() -> None:
    steps = list(first_steps(70, batch_size=32, seed=9))
    assert [len(rows) for rows in steps] == [32, 32, 6]
    for step, rows in enumerate(steps):
        assert (rows == global_batch(seed=9, epoch=0, step=step, num_rows=70, batch_size=32)).all()


def test_padding_is_counted_by_hand() -> None:
    # Rows of 13, 8, 8, 5 tokens with [CLS] [SEP] [SEP]; at most 26 tokens a micro-batch: 13 + 8, then 8 + 5.
    table = spans([(0, 0, end, 0, 90, 91, 0) for end in (9, 4, 4, 1)])
    assert row_lengths(table, np.arange(4)).tolist() == [13, 8, 8, 5]
    found = padding_statistics(table, [np.array([3, 0, 1, 2])], batch_size=4, micro_batch_tokens=26)
    assert (found.tokens, found.slots, found.micro_batches_a_step) == (34, 2 * 13 + 2 * 8, 2.0)
    assert found.padding_share == pytest.approx(1 - 34 / 42)


# ---- the whole


@pytest.mark.parametrize("pairing", ["segment", "none"])
def test_statistics_survive_json(pairing: str) -> None:
    pairs = PairSettings(pairing=pairing, max_seq_length=32)  # type: ignore[arg-type]
    found = statistics_of(song_ci_like_store(documents=60), BIG, pairs)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == found.to_json()
    assert set(found.histograms()) == {
        *("document_sentences", "document_tokens", "sentence_tokens", "row_tokens", "row_targets")
    }


def test_statistics_are_the_same_every_time_and_other_with_another_seed() -> None:
    store = song_ci_like_store(documents=60)
    one, two = statistics_of(store, BIG), statistics_of(store, BIG)
    assert one == two
    other = store_statistics(
        store, BIG, PairSettings(max_seq_length=32), MaskingSettings(), seed=6, batch_size=32, micro_batch_tokens=256
    )
    assert other.corpus == one.corpus
    assert other.pairs != one.pairs


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([[toy_ids("明月")], [toy_ids("god")]], "2 of 2 documents have one sentence"),
        ([[toy_ids("明月"), toy_ids("明月")]] * 3, "all 6 sentences are the same"),
        ([[toy_ids("明月"), toy_ids("把酒")]], "1 document: a random B must come from another one"),
    ],
)
def test_a_corpus_without_pairs_is_still_counted_and_the_reason_said(
    documents: list[list[list[int]]], reason: str
) -> None:
    found = statistics_of(memory_store(documents))
    assert (found.pairs, found.masks, found.padding) == (None, None, None)
    assert found.corpus.documents == len(documents)
    text = str(found.rows())
    assert reason in text
    assert "--pairing none" in text
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


# ---- finished rows


@pytest.mark.parametrize("pairing", ["segment", "sop", "none"])
def test_a_finished_row_tells_what_stood_there_and_what_the_model_reads(pairing: str) -> None:
    store = memory_store(POEMS)
    settings = PairSettings(pairing=pairing, max_seq_length=24)  # type: ignore[arg-type]
    masking = MaskingSettings(mlm_probability=0.4)
    rows = finished_rows(store, TOKENIZER, settings, masking, seed=3, number=50)
    table = build_pairs(store, settings, seed=3, epoch=0)
    assert sorted(row.row for row in rows) == list(range(len(table)))
    columns = list(rows_of(table))
    for row in rows:
        document, start_a, end_a, _, start_b, end_b, label = columns[row.row]
        for segment, (start, end) in enumerate([(start_a, end_a), (start_b, end_b)][: 1 if pairing == "none" else 2]):
            ids = store.tokens(np.array([start]), np.array([end])).tolist()
            assert row.text(segment, masked=False) == joined_tokens([TOY.tokens[id] for id in ids])
            after = [one for one in row.tokens if one.segment == segment and one.token not in ("[CLS]", "[SEP]")]
            assert row.text(segment, masked=True) == joined_tokens([one.token for one in after])
        assert row.document_a == document
        assert row.next_sentence_label == (None if pairing == "none" else label)
        assert [one.position for one in row.tokens] == list(range(len(row.tokens)))
        assert all(TOY.ids[one.token] == one.id for one in row.tokens)
        assert any(one.label is not None for one in row.tokens)
        restored = [one.id if one.label_id is None else one.label_id for one in row.tokens]
        assert restored == _row(store, columns[row.row], pairing)


def _row(store: Store, columns: tuple[int, ...], pairing: str) -> list[int]:
    _, start_a, end_a, _, start_b, end_b, _ = columns
    tokens = flat(documents_of(store))
    second = [] if pairing == "none" else [*tokens[start_b:end_b], TOY.sep_id]
    return [TOY.cls_id, *tokens[start_a:end_a], TOY.sep_id, *second]


def test_a_finished_row_is_shown_with_a_dash_where_nothing_is_to_be_predicted() -> None:
    store = memory_store(POEMS)
    masking = MaskingSettings(mask_replace_prob=1, random_replace_prob=0)
    [row] = finished_rows(store, TOKENIZER, PairSettings(), masking, seed=3, number=1)
    lines = row.shown().split("\n")
    assert lines[0].startswith(f"row {row.row}: ")
    assert f"next_sentence_label {row.next_sentence_label}" in lines[0]
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["A", "before"],
        ["B", "before"],
        ["A", "after"],
        ["B", "after"],
    ]
    assert lines[5].split() == ["position", "token", "id", "segment", "label", "label", "id"]
    assert lines[6].split() == ["0", "[CLS]", str(TOY.cls_id), "0", "-", "-"]
    hidden = next(one for one in row.tokens if one.label is not None)
    assert lines[6 + hidden.position].split() == [
        *(str(hidden.position), "[MASK]", str(TOY.mask_id), str(hidden.segment), str(hidden.label)),
        str(hidden.label_id),
    ]


def test_finished_rows_survive_json_and_say_is_next_by_name() -> None:
    rows = finished_rows(memory_store(POEMS), TOKENIZER, PairSettings(), MaskingSettings(), seed=3, number=9)
    for row in rows:
        written = row.to_json()
        assert json.loads(json.dumps(written)) == written
        assert written["is_next"] == (row.next_sentence_label == 0)
        assert written["a_before"] == row.text(0, masked=False)
        assert written["b_after"] == row.text(1, masked=True)
    assert finished_rows(memory_store(POEMS), TOKENIZER, PairSettings(), MaskingSettings(), seed=3, number=0) == []


@given(st.lists(st.sampled_from([*TOY.tokens, '"', "'", "##", "##1", "$", "-", "("])))
def test_the_pieces_of_a_text_make_the_text(tokens: list[str]) -> None:
    assert "".join(pieces_of_text(tokens)) == joined_tokens(tokens)
    assert len(pieces_of_text(tokens)) == len(tokens)
