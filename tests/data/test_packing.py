"""Which sentences stand together: segments that fill a row, swapped or in order, and none lost."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy_data import Documents, flat, memory_store, rows_of, song_ci_like_store

from bertkit.data.packing import PairDrafts, lane_of, neighbouring_sentences, segments, whole_texts
from bertkit.data.pairs import IS_NEXT, IS_RANDOM, PairSettings, build_pairs, why_no_pairs
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.errors import InputError

SENTENCES = st.lists(st.integers(20, 24), min_size=1, max_size=9)
CORPORA = st.lists(st.lists(SENTENCES, min_size=1, max_size=6), min_size=1, max_size=6)
STREAM = Stream(0, "pairs", 0)


def drafts_of(store: Store, *, share: float = 0.5, seed: int = 0, room: int = 37, sop: bool = False) -> PairDrafts:
    return segments(
        store,
        Stream(seed, "pairs", 0),
        max_seq_length=room + 3,
        short_seq_prob=0.3,
        next_sentence_prob=share,
        always_with_next=sop,
    )


# ---- segments ----


@settings(deadline=None, max_examples=100)
@given(CORPORA, st.integers(0, 50), st.booleans(), st.integers(5, 60))
def test_a_draft_is_a_run_of_sentences_of_one_document_cut_in_two(
    documents: Documents, seed: int, sop: bool, room: int
) -> None:
    store = memory_store(documents)
    assume(store.sentences_per_document.max() >= 2)  # (`require_pairs` has seen to it)
    drafts = drafts_of(store, seed=seed, sop=sop, room=room)
    start, end = store.document_sentences[drafts.document], store.document_sentences[drafts.document + 1]
    assert (start <= drafts.first_a).all()
    assert (drafts.first_a < drafts.end_a).all()
    assert (drafts.end_a <= np.maximum(drafts.end_b, drafts.end_a)).all()
    assert (drafts.end_b <= end).all()
    assert (np.diff(drafts.document) >= 0).all()
    assert set(drafts.document.tolist()) == set(np.flatnonzero(store.sentences_per_document >= 2).tolist())
    has_b = drafts.end_b > drafts.end_a
    assert has_b[~drafts.is_random].all()
    if sop:
        assert has_b.all()
    # A run stops at the sentence that reaches the target; without its last one it falls short (or is of two).
    length = store.sentence_starts[drafts.end_b] - store.sentence_starts[drafts.first_a]
    before = store.sentence_starts[np.maximum(drafts.end_b - 1, drafts.first_a)] - store.sentence_starts[drafts.first_a]
    assert ((before < drafts.target) | (drafts.end_b - drafts.first_a <= 2)).all()
    assert ((length >= drafts.target) | (drafts.end_b == end) | ~has_b).all()


@settings(deadline=None, max_examples=100)
@given(CORPORA, st.integers(0, 50), st.booleans())
def test_no_sentence_is_lost_and_none_but_the_last_is_used_twice(documents: Documents, seed: int, sop: bool) -> None:
    store = memory_store(documents)
    assume(store.sentences_per_document.max() >= 2)
    drafts = drafts_of(store, seed=seed, sop=sop)
    used = np.zeros(store.num_sentences + 1, dtype=int)
    true_b = np.ones(len(drafts.pair), dtype=bool) if sop else ~drafts.is_random
    np.add.at(used, drafts.first_a, 1)
    np.add.at(used, np.where(true_b, drafts.end_b, drafts.end_a), -1)
    times = np.cumsum(used)[:-1]
    of_one = np.repeat(store.sentences_per_document < 2, store.sentences_per_document)
    assert (times[of_one] == 0).all()
    assert (times[~of_one] >= 1).all()
    # A last sentence alone takes the one before it a second time.
    last_but_one = np.zeros(store.num_sentences, dtype=bool)
    last_but_one[store.document_sentences[1:][store.sentences_per_document >= 2] - 2] = True
    assert (times[~of_one & ~last_but_one] == 1).all()
    assert times.max(initial=0) <= 2


def test_the_two_parts_of_a_run_are_cut_anywhere_between_its_sentences() -> None:
    store = memory_store([[[20]] * 6, [[21]] * 2])
    cuts = {int(drafts.end_a[0]) for seed in range(60) for drafts in [drafts_of(store, seed=seed, share=1.0)]}
    assert cuts == {1, 2, 3, 4, 5}


def test_every_pair_of_a_document_has_draws_of_its_own() -> None:
    pairs = np.arange(1000)
    lanes = [lane_of(pairs, lane) for lane in (1, 2, 4, 5, *range(64, 96))]
    assert len(np.unique(np.concatenate(lanes))) == 1000 * len(lanes)
    assert min(lane.min() for lane in lanes) >= 128  # below are those of the document itself


def test_neighbours_are_every_sentence_with_the_next() -> None:
    store = memory_store([[[20], [21], [22]], [[23]], [[24], [25]]])
    drafts = neighbouring_sentences(store, STREAM, next_sentence_prob=0.5)
    assert drafts.document.tolist() == [0, 0, 2]
    assert drafts.pair.tolist() == [0, 1, 0]
    assert drafts.first_a.tolist() == [0, 1, 4]
    assert drafts.end_a.tolist() == [1, 2, 5]
    assert drafts.end_b.tolist() == [2, 3, 6]
    assert drafts.target.tolist() == [0, 0, 0]


def test_whole_texts_are_sentences_up_to_the_length() -> None:
    document, start, end = whole_texts(memory_store([[[20] * 3, [21] * 4], [[22] * 9]]), max_seq_length=8)
    assert list(zip(document.tolist(), start.tolist(), end.tolist(), strict=True)) == [
        *[(0, 0, 3), (0, 3, 7), (1, 7, 13), (1, 13, 16)]
    ]


# ---- sentence order ----


def sop_settings(**values: object) -> PairSettings:
    return PairSettings(pairing="sop", **values)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=100)
@given(CORPORA, st.integers(0, 50), st.sampled_from([0.0, 0.3, 1.0]))
def test_two_segments_of_one_document_stand_in_order_or_swapped(documents: Documents, seed: int, share: float) -> None:
    store = memory_store(documents)
    assume(why_no_pairs(store, sop_settings()) is None)
    table = build_pairs(store, sop_settings(max_seq_length=400, next_sentence_prob=share), seed=seed, epoch=0)
    assert table.unresolved == table.hard_fallbacks == table.trimmed_tokens == 0
    for document_a, start_a, end_a, document_b, start_b, end_b, label in rows_of(table):
        assert document_a == document_b
        assert (start_b == end_a) if label == IS_NEXT else (start_a == end_b)  # neighbours either way
        assert end_a > start_a
        assert end_b > start_b


@settings(deadline=None, max_examples=60)
@given(CORPORA, st.integers(0, 50), st.integers(8, 40))
def test_trimmed_segments_keep_to_their_order_and_to_the_row(
    documents: Documents, seed: int, max_seq_length: int
) -> None:
    store = memory_store(documents)
    assume(why_no_pairs(store, sop_settings()) is None)
    table = build_pairs(store, sop_settings(max_seq_length=max_seq_length), seed=seed, epoch=0)
    in_order = table.next_sentence_label == IS_NEXT
    assert (table.end_a[in_order] <= table.start_b[in_order]).all()
    assert (table.end_b[~in_order] <= table.start_a[~in_order]).all()
    assert (table.end_a - table.start_a + table.end_b - table.start_b <= max_seq_length - 3).all()
    assert (np.minimum(table.end_a - table.start_a, table.end_b - table.start_b) >= 1).all()


@settings(deadline=None, max_examples=60)
@given(CORPORA, st.integers(0, 50))
def test_every_token_of_a_document_with_two_sentences_is_in_a_swapped_or_ordered_pair(
    documents: Documents, seed: int
) -> None:
    store = memory_store(documents)
    assume(why_no_pairs(store, sop_settings()) is None)
    used = np.zeros(store.num_tokens, dtype=bool)
    for _, start_a, end_a, _, start_b, end_b, _ in rows_of(
        build_pairs(store, sop_settings(max_seq_length=400, short_seq_prob=1.0), seed=seed, epoch=0)
    ):
        used[start_a:end_a] = used[start_b:end_b] = True
    of_documents = np.diff(store.sentence_starts[store.document_sentences])
    assert (used == np.repeat(store.sentences_per_document >= 2, of_documents)).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_share_in_order_is_what_was_asked_for(share: float) -> None:
    table = build_pairs(song_ci_like_store(documents=3000), sop_settings(next_sentence_prob=share), seed=0, epoch=0)
    in_order = (table.next_sentence_label == IS_NEXT).mean()
    assert abs(in_order - share) <= 4 * np.sqrt(share * (1 - share) / len(table))


def test_only_the_order_differs_between_a_pair_and_its_swap() -> None:
    store = song_ci_like_store(documents=200)
    ordered, swapped = (
        build_pairs(store, sop_settings(max_seq_length=400, next_sentence_prob=share), seed=0, epoch=0)
        for share in (1.0, 0.0)
    )
    assert set(ordered.next_sentence_label.tolist()) == {IS_NEXT}
    assert set(swapped.next_sentence_label.tolist()) == {IS_RANDOM}
    assert ordered.start_a.tolist() == swapped.start_b.tolist()
    assert ordered.end_b.tolist() == swapped.end_a.tolist()


def test_sentence_order_needs_one_document_of_two_sentences_only() -> None:
    assert len(build_pairs(memory_store([[[20], [21]]]), sop_settings(), seed=0, epoch=0)) == 1
    with pytest.raises(InputError, match="1 of 1 documents have one sentence"):
        build_pairs(memory_store([[[20, 21]]]), sop_settings(), seed=0, epoch=0)


def test_where_all_sentences_are_alike_no_order_can_be_told() -> None:
    with pytest.raises(InputError, match="all 4 sentences are the same: no order can be told and no B is random"):
        build_pairs(memory_store([[[20], [20], [20]], [[20]]]), sop_settings(), seed=0, epoch=0)


def test_the_corpus_is_whole_in_the_texts_of_no_pairing() -> None:
    documents = [[[20, 21], [22]], [[23] * 30]]
    table = build_pairs(memory_store(documents), PairSettings(pairing="none", max_seq_length=10), seed=0, epoch=0)
    assert int((table.end_a - table.start_a).sum()) == len(flat(documents))
