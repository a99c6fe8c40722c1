"""Hard negatives: of A's document, far from the pair, other by text; fall-backs counted, short corpora refused."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from toy_data import Documents, memory_store, rows_of, song_ci_like_store

from bertkit.data.negatives import HARD_DISTANCE, draw_random_b
from bertkit.data.packing import segments
from bertkit.data.pairs import IS_NEXT, IS_RANDOM, PairSettings, PairTable, build_pairs, why_no_pairs
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.errors import InputError

SMALLEST_P = 1e-5
SENTENCES = st.lists(st.integers(20, 24), min_size=1, max_size=6)
CORPORA = st.lists(st.lists(SENTENCES, min_size=1, max_size=18), min_size=1, max_size=4)
PAIRINGS = st.sampled_from(["segment", "sentence"])


def hard(**values: object) -> PairSettings:
    return PairSettings(negatives="hard", **values)  # type: ignore[arg-type]


def distinct(*lengths: int) -> Store:
    """Documents of so many sentences of one token; no two alike."""
    first = np.cumsum([0, *lengths])
    return memory_store([[[20 + int(start) + s] for s in range(n)] for start, n in zip(first, lengths, strict=False)])


def built(documents: Documents, pairs: PairSettings, seed: int) -> tuple[Store, PairTable]:
    store = memory_store(documents)
    assume(why_no_pairs(store, pairs) is None)
    try:
        return store, build_pairs(store, pairs, seed=seed, epoch=0)
    except InputError as error:
        assume("no random B could be drawn" not in str(error))
        raise


def sentence_at(store: Store, tokens: np.ndarray) -> np.ndarray:
    return np.searchsorted(store.sentence_starts, tokens)


# ---- no label lies ----


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(CORPORA, PAIRINGS, st.integers(8, 400), st.integers(0, 50))
def test_a_hard_b_is_far_from_a_and_from_the_true_b_and_not_alike(
    documents: Documents, pairing: str, length: int, seed: int
) -> None:
    pairs = hard(pairing=pairing, max_seq_length=max(length, 200), short_seq_prob=1.0)
    store, table = built(documents, pairs, seed)
    assume(table.trimmed_tokens == 0)
    sentences = [tuple(sentence) for document in documents for sentence in document]
    borders = set(store.document_sentences.tolist())
    place = {token: sentence for sentence, token in enumerate(store.sentence_starts.tolist())}
    fallbacks = 0
    for document_a, start_a, end_a, document_b, start_b, end_b, label in rows_of(table):
        first_a, after_a, first_b, after_b = (place[token] for token in (start_a, end_a, start_b, end_b))
        if label == IS_NEXT:
            assert (document_a, after_a) == (document_b, first_b)
            continue
        assert after_b > first_b
        assert store.document_sentences[document_b] <= first_b < after_b <= store.document_sentences[document_b + 1]
        if document_a == document_b:
            assert after_b + HARD_DISTANCE <= first_a or first_b >= after_a + HARD_DISTANCE
        else:
            fallbacks += 1
        if after_a not in borders:
            assert sentences[first_b] != sentences[after_a]
        if first_b not in borders:
            assert sentences[first_b - 1] != sentences[after_a - 1]
    assert fallbacks <= table.hard_fallbacks <= fallbacks + table.unresolved


@settings(deadline=None, max_examples=100)
@given(st.integers(8, 40), st.integers(0, 50), st.integers(8, 60))
def test_a_hard_b_never_comes_near_the_true_b_that_it_stands_for(
    sentences: int, seed: int, max_seq_length: int
) -> None:
    store = distinct(sentences, 3)
    stream = Stream(seed, "pairs", 0)
    drafts = segments(store, stream, max_seq_length=max_seq_length, short_seq_prob=0.5, next_sentence_prob=0.5)
    drawn, without, fallbacks = draw_random_b(store, drafts, stream, hard=True)
    rows = np.flatnonzero(drafts.is_random)
    assert len(drawn.first) == len(rows)
    own = drawn.document == drafts.document[rows]
    before = drawn.end + HARD_DISTANCE <= drafts.first_a[rows]
    behind = drawn.first >= np.maximum(drafts.end_b, drafts.end_a)[rows] + HARD_DISTANCE
    assert (before | behind)[own].all()
    assert len(without) == 0
    assert fallbacks == (~own).sum()


def test_the_far_sentences_of_the_document_are_drawn_evenly_on_both_sides() -> None:
    store = distinct(30, 2)
    counts = np.zeros(30, dtype=int)
    for epoch in range(1500):
        table = build_pairs(store, hard(pairing="sentence", next_sentence_prob=0.0), seed=1, epoch=epoch)
        [row] = np.flatnonzero(table.start_a == 12)  # its true B is sentence 13
        counts[table.start_b[row]] += 1
    far = np.r_[0 : 12 - HARD_DISTANCE, 14 + HARD_DISTANCE : 30]
    assert counts[far].sum() == 1500
    assert chisquare(counts[far]).pvalue > SMALLEST_P


def test_a_b_before_a_stops_before_it_comes_near() -> None:
    store = distinct(40)
    seen = 0
    for seed in range(60):
        for _, start_a, _, _, start_b, end_b, label in rows_of(
            build_pairs(store, hard(max_seq_length=16), seed=seed, epoch=0)
        ):
            if label == IS_RANDOM and start_b < start_a:
                assert end_b <= start_a - HARD_DISTANCE
                seen += end_b == start_a - HARD_DISTANCE and end_b > start_b + 1
    assert seen > 0


# ---- falling back ----


def test_a_document_too_short_falls_back_to_another_one_and_is_counted() -> None:
    table = build_pairs(distinct(7, 7, 8), hard(pairing="sentence", next_sentence_prob=0.0), seed=0, epoch=0)
    own = table.document_a == table.document_b
    # Only the outermost pairs of the document of eight sentences have a sentence far enough.
    assert table.document_a[own].tolist() == [2, 2]
    assert table.hard_fallbacks == (~own).sum() == 6 + 6 + 7 - 2


def test_a_long_document_needs_no_fallback_and_another_setting_never_counts_one() -> None:
    store = song_ci_like_store(documents=100)
    assert build_pairs(store, PairSettings(), seed=0, epoch=0).hard_fallbacks == 0
    assert build_pairs(distinct(60, 60), hard(max_seq_length=16), seed=0, epoch=0).hard_fallbacks == 0


def test_one_document_alone_gives_pairs_of_which_none_is_of_another() -> None:
    table = build_pairs(distinct(50), hard(max_seq_length=16), seed=0, epoch=0)
    assert set(table.next_sentence_label.tolist()) == {IS_NEXT, IS_RANDOM}
    assert set(table.document_b.tolist()) == {0}
    assert table.hard_fallbacks == 0


def test_what_has_no_far_sentence_in_the_only_document_is_left_out_and_counted() -> None:
    table = build_pairs(distinct(9), hard(pairing="sentence", next_sentence_prob=0.0), seed=0, epoch=0)
    # 0|1, 1|2, 6|7 and 7|8 have a sentence far enough, 2|3 to 5|6 have none.
    assert table.start_a.tolist() == [0, 1, 6, 7]
    assert table.start_b.tolist()[1:3] == [8, 0]
    assert table.unresolved == 4
    assert table.hard_fallbacks == 0


@pytest.mark.parametrize(("sentences", "is_enough"), [(2, False), (7, False), (8, True)])
def test_an_only_document_that_is_too_short_is_refused(sentences: int, is_enough: bool) -> None:
    pairs = hard(pairing="sentence", next_sentence_prob=0.0)
    if is_enough:
        assert len(build_pairs(distinct(sentences), pairs, seed=0, epoch=0)) == 2
        return
    with pytest.raises(
        InputError, match=rf"the only document has {sentences} sentences, a hard negative needs {HARD_DISTANCE + 3}"
    ):
        build_pairs(distinct(sentences), pairs, seed=0, epoch=0)


def test_where_no_pair_of_an_only_document_has_a_far_sentence_the_reason_is_said() -> None:
    messages = set()
    for seed in range(40):
        try:
            build_pairs(distinct(10), hard(next_sentence_prob=0.9), seed=seed, epoch=0)
        except InputError as error:
            messages.add(str(error))
    assert len(messages) == 1
    [message] = messages
    assert "no random B could be drawn for 1 pairs: no sentence is 5 sentences away, or in 16 draws each" in message
    assert "are longer than a few rows (--max_seq_length)" in message


def test_a_far_sentence_that_reads_like_the_true_next_is_drawn_again() -> None:
    """天 follows A and stands far behind too; of the far ones only 地 may be B."""
    heaven, earth = 40, 41
    document = [[20], [heaven], *([[21 + n] for n in range(HARD_DISTANCE)]), [earth], [heaven]]
    store = memory_store([document])
    seen = set()
    for seed in range(50):
        table = build_pairs(store, hard(pairing="sentence", next_sentence_prob=0.0), seed=seed, epoch=0)
        seen |= {document[start_b][0] for _, start_a, _, _, start_b, _, _ in rows_of(table) if start_a == 0}
    assert seen == {earth}


# ---- an address for every draw ----


@pytest.mark.parametrize("pairing", ["segment", "sentence"])
def test_a_hard_b_does_not_depend_on_other_documents(pairing: str) -> None:
    few, many = distinct(30, 40), distinct(30, 40, 25)
    pairs = hard(pairing=pairing, max_seq_length=16)
    before, after = (build_pairs(store, pairs, seed=3, epoch=1) for store in (few, many))
    others = after.document_a < 2
    for name in ("document_a", "start_a", "end_a", "document_b", "start_b", "end_b", "next_sentence_label"):
        assert vars(after)[name][others].tolist() == vars(before)[name].tolist()


def test_the_share_of_true_pairs_is_kept() -> None:
    table = build_pairs(song_ci_like_store(documents=3000), hard(max_seq_length=32), seed=0, epoch=0)
    true = (table.next_sentence_label == IS_NEXT).mean()
    assert abs(true - 0.5) <= 4 * 0.5 / np.sqrt(len(table))
    assert table.unresolved == 0
