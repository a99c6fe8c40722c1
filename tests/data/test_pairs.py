"""Pairs: no label lies, nothing is lost or too long, every draw has its address; and what cannot be paired is said."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from toy_data import Documents, flat, memory_store, rows_of, song_ci_like_store, toy_ids

from bertkit.data.pairs import IS_NEXT, IS_RANDOM, PairSettings, PairTable, build_pairs, require_pairs, why_no_pairs
from bertkit.data.store import Store
from bertkit.errors import InputError

PAIRINGS = ("segment", "sentence")
MODES = [*((pairing, "other") for pairing in (*PAIRINGS, "sop")), *((pairing, "hard") for pairing in PAIRINGS)]
# No two sentences have a token in common.
DISTINCT = [[[100 * d + 10 * s + t for t in range(1 + (d + s) % 3)] for s in range(2 + d)] for d in range(6)]
POEMS = [
    [toy_ids("明月几时有，"), toy_ids("把酒问青天。")],
    [toy_ids("不知天上宫阙，"), toy_ids("今夕是何年。")],
]

SENTENCES = st.lists(st.integers(20, 24), min_size=1, max_size=9)  # few tokens: many sentences read alike
CORPORA = st.lists(st.lists(SENTENCES, min_size=1, max_size=6), min_size=2, max_size=6)
SETTINGS = st.builds(
    PairSettings,
    pairing=st.sampled_from(PAIRINGS),
    max_seq_length=st.integers(8, 40),
    short_seq_prob=st.sampled_from([0.0, 0.1, 1.0]),
    next_sentence_prob=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)


def table_of(store: Store, pairs: PairSettings, *, seed: int, epoch: int) -> PairTable:
    """The table; a corpus on which pairs are impossible is no example."""
    assume(why_no_pairs(store, PairSettings()) is None)
    try:
        return build_pairs(store, pairs, seed=seed, epoch=epoch)
    except InputError as error:
        assume("no random B could be drawn" not in str(error))
        raise


def untrimmed(pairs: PairSettings) -> PairSettings:
    """Settings under which no pair of a small corpus is too long; segments are cut short at random all the same."""
    return replace(pairs, max_seq_length=400, short_seq_prob=1.0)


# ---- no label lies ----


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, SETTINGS, st.integers(0, 50), st.integers(0, 3))
def test_a_true_b_follows_a_at_once_and_a_random_b_is_of_another_document(
    documents: Documents, pairs: PairSettings, seed: int, epoch: int
) -> None:
    store = memory_store(documents)
    starts, ends = store.sentence_starts.tolist(), store.sentence_starts[store.document_sentences].tolist()
    for document_a, _, end_a, document_b, start_b, end_b, label in rows_of(
        table_of(store, untrimmed(pairs), seed=seed, epoch=epoch)
    ):
        if label == IS_NEXT:
            assert document_b == document_a
            assert start_b == end_a
            assert end_b <= ends[document_a + 1]
        else:
            assert label == IS_RANDOM
            assert document_b != document_a
        assert ends[document_b] <= start_b < end_b <= ends[document_b + 1]
        assert {end_a, start_b, end_b} <= set(starts)


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, SETTINGS, st.integers(0, 50), st.integers(0, 3))
def test_a_random_b_is_no_true_continuation_in_text_either(
    documents: Documents, pairs: PairSettings, seed: int, epoch: int
) -> None:
    store = memory_store(documents)
    sentences = [tuple(sentence) for document in documents for sentence in document]
    place, borders = store.sentence_starts.tolist(), set(store.document_sentences.tolist())
    for _, _, end_a, _, start_b, _, label in rows_of(table_of(store, untrimmed(pairs), seed=seed, epoch=epoch)):
        if label == IS_RANDOM:
            after_a, first_b = place.index(end_a), place.index(start_b)
            if after_a not in borders:
                assert sentences[first_b] != sentences[after_a]
            if first_b not in borders:
                assert sentences[first_b - 1] != sentences[after_a - 1]


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, SETTINGS, st.integers(0, 50))
def test_trimmed_pairs_stay_inside_their_documents_and_their_labels_stay_true(
    documents: Documents, pairs: PairSettings, seed: int
) -> None:
    store = memory_store(documents)
    starts, ends = store.sentence_starts.tolist(), store.sentence_starts[store.document_sentences].tolist()
    for document_a, start_a, end_a, document_b, start_b, end_b, label in rows_of(
        table_of(store, pairs, seed=seed, epoch=0)
    ):
        assert ends[document_a] <= start_a < end_a <= ends[document_a + 1]
        assert ends[document_b] <= start_b < end_b <= ends[document_b + 1]
        assert (document_b == document_a) == (label == IS_NEXT)
        assert end_a - start_a + end_b - start_b <= pairs.max_seq_length - 3
        if label == IS_NEXT:  # what was cut lies around the border of two sentences
            assert any(end_a <= border <= start_b for border in starts)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_with_two_documents_the_other_one_is_always_taken(pairing: str) -> None:
    store = memory_store(POEMS)
    labels = set()
    for epoch in range(50):
        for document_a, _, _, document_b, _, _, label in rows_of(
            build_pairs(store, PairSettings(pairing=pairing), seed=1, epoch=epoch)
        ):
            assert document_b == (1 - document_a if label == IS_RANDOM else document_a)
            labels.add(label)
    assert labels == {IS_NEXT, IS_RANDOM}


def test_a_copy_of_a_true_neighbour_is_never_called_random() -> None:
    """A = 明月 ends the first document, and 时 stands behind another 明月 in the second."""
    moon, wine, when = toy_ids("明月"), toy_ids("酒"), toy_ids("时")
    documents = [[wine, moon], [moon, when]]
    store, tokens = memory_store(documents), flat(documents)
    seen = set()
    for epoch in range(200):
        for _, start_a, end_a, _, start_b, end_b, label in rows_of(
            build_pairs(store, PairSettings(), seed=0, epoch=epoch)
        ):
            if label == IS_RANDOM:
                seen.add((tuple(tokens[start_a:end_a]), tuple(tokens[start_b:end_b])))
    assert (tuple(moon), tuple(when)) not in seen
    assert (tuple(when), tuple(wine + moon)) in seen


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_labels_are_true_where_nine_of_ten_documents_are_copies(pairing: str) -> None:
    copy = [[20, 21], [22, 23, 24], [25], [26, 27]]
    others = [[[100 + 10 * d + s] for s in range(3)] for d in range(100)]
    documents = [others[d // 10] if d % 10 == 0 else copy for d in range(1000)]
    store = memory_store(documents)
    table = build_pairs(store, PairSettings(pairing=pairing, max_seq_length=16), seed=0, epoch=0)
    sentences = [sentence for document in documents for sentence in document]
    following = {(str(a), str(b)) for document in documents for a, b in pairwise(document)}
    last_of_a = np.searchsorted(store.sentence_starts, table.end_a - 1, side="right") - 1
    first_of_b = np.searchsorted(store.sentence_starts, table.start_b, side="right") - 1
    pairs = [(str(sentences[a]), str(sentences[b])) for a, b in zip(last_of_a, first_of_b, strict=True)]
    whole = (store.sentence_starts[last_of_a + 1] == table.end_a) & (store.sentence_starts[first_of_b] == table.start_b)
    assert whole.mean() > 0.9  # the rest is trimmed
    for pair, label in zip(np.array(pairs)[whole], table.next_sentence_label[whole], strict=True):
        assert (tuple(pair) in following) == (label == IS_NEXT)
    assert table.unresolved < len(table) / 1000


# ---- nothing is lost, nothing is too long ----


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, SETTINGS, st.integers(0, 50))
def test_every_sentence_of_a_document_with_two_is_used_in_every_epoch(
    documents: Documents, pairs: PairSettings, seed: int
) -> None:
    store = memory_store(documents)
    table = table_of(store, untrimmed(replace(pairs, pairing="segment")), seed=seed, epoch=0)
    assert table.trimmed_tokens == 0
    assume(table.unresolved == 0)
    used = np.zeros(store.num_tokens, dtype=bool)
    for _, start_a, end_a, _, start_b, end_b, label in rows_of(table):
        used[start_a:end_a] = True
        if label == IS_NEXT:
            used[start_b:end_b] = True
    of_documents = np.diff(store.sentence_starts[store.document_sentences])
    assert used[np.repeat(store.sentences_per_document >= 2, of_documents)].all()


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, SETTINGS, st.integers(0, 50))
def test_sentence_pairs_are_all_neighbours_once(documents: Documents, pairs: PairSettings, seed: int) -> None:
    store = memory_store(documents)
    table = table_of(store, untrimmed(replace(pairs, pairing="sentence")), seed=seed, epoch=0)
    assert len(table) + table.unresolved == sum(len(document) - 1 for document in documents)
    firsts = [number for number, begins in enumerate(np.diff(store.document_sentences)) for _ in range(begins - 1)]
    if table.unresolved == 0:
        assert table.document_a.tolist() == firsts
        inner = np.setdiff1d(np.arange(store.num_sentences), store.document_sentences[1:] - 1)
        assert table.start_a.tolist() == store.sentence_starts[inner].tolist()
        assert table.end_a.tolist() == store.sentence_starts[inner + 1].tolist()
    place = store.sentence_starts.tolist()
    assert all(place.index(end_b) == place.index(start_b) + 1 for *_, start_b, end_b, _ in rows_of(table))


def cut_one_by_one(length_a: int, length_b: int, room: int) -> tuple[int, int]:
    """The rule as it is told: the longer side loses a token, B where they are equal, until both fit."""
    while length_a + length_b > room:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    return length_a, length_b


@settings(max_examples=200)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(8, 40))
def test_over_long_pairs_lose_a_token_at_a_time_from_the_longer_side(
    length_a: int, length_b: int, max_seq_length: int
) -> None:
    store = memory_store([[[20] * length_a, [21] * length_b], [[22]]])
    pairs = PairSettings(pairing="sentence", max_seq_length=max_seq_length, next_sentence_prob=1.0)
    table = build_pairs(store, pairs, seed=0, epoch=0)
    kept = cut_one_by_one(length_a, length_b, max_seq_length - 3)
    assert (int(table.end_a[0] - table.start_a[0]), int(table.end_b[0] - table.start_b[0])) == kept
    assert min(kept) >= 1
    assert table.trimmed_tokens == length_a + length_b - sum(kept)


@pytest.mark.parametrize("longer", [0, 1])
def test_an_a_that_fills_the_row_leaves_room_for_b(longer: int) -> None:
    room = 64 - 3
    store = memory_store([[[20] * (room + longer), [21] * 700], [[22], [23]]])
    table = build_pairs(store, PairSettings(max_seq_length=64, next_sentence_prob=1.0), seed=0, epoch=0)
    assert (table.end_a - table.start_a).tolist() == [31, 1]
    assert (table.end_b - table.start_b).tolist() == [30, 1]


def test_tokens_are_cut_from_the_front_and_from_the_back_equally_often() -> None:
    documents = [[[20] * 200, [21] * 150]] * 200 + [[[22], [23]]]
    store = memory_store(documents)
    table = build_pairs(store, PairSettings(pairing="sentence", max_seq_length=64), seed=0, epoch=0)
    whole = store.sentence_starts[store.document_sentences[table.document_a]]
    long = np.flatnonzero(table.document_a < 200)
    front_a, cut_a = (table.start_a - whole)[long], 200 - 31
    assert abs(front_a.sum() / (cut_a * len(long)) - 0.5) < 4 * 0.5 / np.sqrt(cut_a * len(long))
    assert 60 < front_a.min() < front_a.max() < 110  # as so many coins fall, not all from one end
    assert len(set(front_a.tolist())) > 15


@pytest.mark.parametrize("target", ["full", "short"])
def test_a_segment_pair_fills_the_row_or_ends_its_document(target: str) -> None:
    store = song_ci_like_store(documents=300)
    pairs = PairSettings(max_seq_length=64, short_seq_prob=0.0 if target == "full" else 1.0)
    table = build_pairs(store, pairs, seed=0, epoch=0)
    length = table.end_a - table.start_a + table.end_b - table.start_b
    document_ends = store.sentence_starts[store.document_sentences[table.document_b + 1]]
    full = (length == 61) | (table.end_b == document_ends)
    # (Trimming may take the end of a B that was the document's; such a row is full.)
    assert full.all() == (target == "full")
    assert length.max() == 61


def test_short_rows_come_as_often_as_asked_and_in_all_lengths() -> None:
    store = memory_store([[[20 + s % 5] for s in range(70)] for _ in range(4000)])  # a token a sentence
    pairs = PairSettings(max_seq_length=64, short_seq_prob=0.1, next_sentence_prob=1.0)
    table = build_pairs(store, pairs, seed=0, epoch=0)
    first = np.unique(table.document_a, return_index=True)[1]
    length = (table.end_b - table.start_a)[first]
    counts = np.bincount(length, minlength=62)
    assert counts[:2].sum() == 0
    assert len(counts) == 62  # none is longer than 61
    assert abs(counts[2:61].sum() / 4000 - 0.1 * 59 / 60) < 4 * np.sqrt(0.09 / 4000)
    assert chisquare(counts[2:61]).pvalue > 1e-5
    never = build_pairs(store, replace(pairs, short_seq_prob=0.0), seed=0, epoch=0)
    assert ((never.end_b - never.start_a)[::2] == 61).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_of_true_pairs_is_what_was_asked_for(share: float) -> None:
    store = song_ci_like_store(documents=3000)
    for pairing in PAIRINGS:
        table = build_pairs(store, PairSettings(pairing=pairing, next_sentence_prob=share), seed=0, epoch=0)
        true = (table.next_sentence_label == IS_NEXT).mean()
        assert abs(true - share) <= 4 * np.sqrt(share * (1 - share) / len(table))


# ---- pairing none ----


@settings(max_examples=100)
@given(CORPORA, st.integers(8, 20))
def test_texts_hold_every_token_once_and_never_cross_documents(documents: Documents, max_seq_length: int) -> None:
    store = memory_store(documents)
    table = build_pairs(store, PairSettings(pairing="none", max_seq_length=max_seq_length), seed=0, epoch=0)
    assert table.start_a.tolist() == [0, *table.end_a.tolist()[:-1]]
    assert table.end_a[-1] == store.num_tokens
    assert (table.end_a > table.start_a).all()
    assert (table.end_a - table.start_a).max() <= max_seq_length - 2
    assert (table.start_b == table.end_b).all()
    assert (table.next_sentence_label == IS_NEXT).all()
    borders = store.sentence_starts[store.document_sentences]
    assert (table.start_a >= borders[table.document_a]).all()
    assert (table.end_a <= borders[table.document_a + 1]).all()


def test_texts_are_whole_sentences_and_a_longer_one_is_cut_into_windows() -> None:
    store = memory_store([[[20] * 3, [21] * 3, [22] * 14, [23] * 2], [[24]]])
    table = build_pairs(store, PairSettings(pairing="none", max_seq_length=8), seed=0, epoch=0)
    assert list(zip(table.start_a.tolist(), table.end_a.tolist(), strict=True)) == [
        *[(0, 6), (6, 12), (12, 18)],  # two sentences; windows of the long one
        *[(18, 22), (22, 23)],  # its rest with the next sentence; the other document
    ]


def test_texts_need_no_second_document_and_no_second_sentence() -> None:
    store = memory_store([[toy_ids("明月几时有。")]])
    assert len(build_pairs(store, PairSettings(pairing="none"), seed=0, epoch=0)) == 1


# ---- every draw has its address ----


@pytest.mark.parametrize(("pairing", "negatives"), MODES)
def test_a_document_more_at_the_end_changes_no_other_documents_pairs(pairing: str, negatives: str) -> None:
    pairs = untrimmed(PairSettings(pairing=pairing, negatives=negatives))
    for seed in range(5):
        before, after = (
            build_pairs(memory_store(documents), pairs, seed=seed, epoch=2) for documents in (DISTINCT[:5], DISTINCT)
        )
        others = after.document_a < 5
        for name in ("document_a", "start_a", "end_a", "next_sentence_label"):
            assert vars(after)[name][others].tolist() == vars(before)[name].tolist()
        true = before.next_sentence_label == IS_NEXT
        assert after.end_b[others][true].tolist() == before.end_b[true].tolist()


@pytest.mark.parametrize(("pairing", "negatives"), MODES)
def test_pairs_are_the_same_again_and_others_in_another_epoch_or_with_another_seed(
    pairing: str, negatives: str
) -> None:
    store, pairs = song_ci_like_store(documents=200), PairSettings(pairing=pairing, negatives=negatives)
    tables = [list(rows_of(build_pairs(store, pairs, seed=s, epoch=e))) for s, e in [(0, 0), (0, 0), (0, 1), (1, 0)]]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]
    assert tables[0] != tables[3]


@pytest.mark.parametrize(("pairing", "negatives"), MODES)
def test_frozen_pairs_are_those_of_the_first_epoch(pairing: str, negatives: str) -> None:
    store, pairs = song_ci_like_store(documents=100), PairSettings(pairing=pairing, negatives=negatives)
    first, *frozen = (
        list(rows_of(build_pairs(store, settings, seed=2, epoch=epoch)))
        for settings, epoch in [(pairs, 0), (replace(pairs, static=True), 0), (replace(pairs, static=True), 7)]
    )
    assert frozen == [first, first]


@pytest.mark.parametrize(("pairing", "negatives"), MODES)
def test_rows_of_every_mode_keep_to_the_length_and_to_their_documents(pairing: str, negatives: str) -> None:
    store = song_ci_like_store(documents=300)
    pairs = PairSettings(pairing=pairing, negatives=negatives, max_seq_length=24)
    table = build_pairs(store, pairs, seed=0, epoch=0)
    ends = store.sentence_starts[store.document_sentences]
    for document, start, end in (
        (table.document_a, table.start_a, table.end_a),
        (table.document_b, table.start_b, table.end_b),
    ):
        assert ((ends[document] <= start) & (start < end) & (end <= ends[document + 1])).all()
    assert (table.end_a - table.start_a + table.end_b - table.start_b).max() == 21


def test_rows_stand_in_the_order_of_their_documents() -> None:
    table = build_pairs(song_ci_like_store(documents=200), PairSettings(max_seq_length=32), seed=0, epoch=0)
    assert (np.diff(table.document_a) >= 0).all()
    assert table.start_a.dtype == table.next_sentence_label.dtype == np.int64


# ---- what cannot be paired ----

WAYS_ON = r"\n.*\n  expected: at least two documents.*\n.*--pairing none.*--format.*--sentence_end.*inspect corpus"
MOON = toy_ids("明月")


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([[MOON, MOON + MOON, MOON]], "1 document: a random B must come from another one"),
        ([[MOON * 700]], "1 document: a random B"),
        ([[MOON], [MOON + MOON], [MOON]], "3 of 3 documents have one sentence: 0 true pairs"),
        ([[MOON, MOON], [MOON], [MOON] * 5], "all 8 sentences are the same: no order can be told and no B is random"),
    ],
)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_corpus_without_true_or_without_random_pairs_is_refused(
    documents: Documents, reason: str, pairing: str
) -> None:
    with pytest.raises(InputError, match=rf"--pairing: next-sentence pairs are impossible here: {reason}.*{WAYS_ON}"):
        build_pairs(memory_store(documents), PairSettings(pairing=pairing), seed=0, epoch=0)


@pytest.mark.parametrize("pairing", [*PAIRINGS, "none"])
def test_an_empty_part_is_refused(pairing: str) -> None:
    with pytest.raises(InputError, match=r"holds no document\n.*larger corpus"):
        require_pairs(memory_store([]), PairSettings(pairing=pairing))


def test_a_corpus_whose_every_random_b_would_be_true_is_refused() -> None:
    store = memory_store([[toy_ids("明"), MOON]] + [[MOON]] * 9)
    pairs = PairSettings(pairing="sentence", next_sentence_prob=0.0)
    with pytest.raises(
        InputError, match=r"no random B could be drawn for 1 pairs: in 16 draws each.*\n.*\n.*duplicates"
    ):
        build_pairs(store, pairs, seed=0, epoch=0)


def test_pairs_without_a_random_b_are_counted_and_left_out() -> None:
    store = memory_store([[toy_ids("明"), MOON, toy_ids("时")]] + [[MOON]] * 9)
    table = build_pairs(store, PairSettings(pairing="sentence", next_sentence_prob=0.0), seed=0, epoch=0)
    assert table.unresolved == 1
    assert table.start_a.tolist() == [1]  # 月明 | 时 may have a random 明月


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("max_seq_length", 7, "8 to 65,536"),
        ("max_seq_length", 10**30, "8 to 65,536"),
        ("short_seq_prob", -0.1, "0 to 1"),
        ("short_seq_prob", 1.5, "0 to 1"),
        ("next_sentence_prob", 2.0, "0 to 1"),
        ("next_sentence_prob", float("nan"), "0 to 1"),
    ],
)
def test_settings_out_of_range_are_refused(field: str, value: float, expected: str) -> None:
    with pytest.raises(InputError, match=rf"--{field}: .*\n  value: {value}\n  expected: {expected}"):
        PairSettings(**{field: value})
