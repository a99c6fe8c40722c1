"""Which tokens stand near which: counts by hand, and the same counted one by one."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from toy_data import TOY, documents_of, memory_store, song_ci_like_store, toy_ids, vocabulary_of, written_store

from bertkit.data import neighbourhoods as module
from bertkit.data.neighbourhoods import Neighbourhoods, count_neighbours
from bertkit.data.store import Store
from bertkit.text.vocabulary import Vocabulary

BIG = vocabulary_of(300)


def as_counter(found: Neighbourhoods) -> Counter[tuple[int, int]]:
    pairs = zip(found.first.tolist(), found.second.tolist(), strict=True)
    return Counter(dict(zip(pairs, found.counts.tolist(), strict=True)))


def counted_one_by_one(store: Store, vocabulary: Vocabulary, window: int) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for document in documents_of(store):
        tokens = [token for sentence in document for token in sentence]
        for place, token in enumerate(tokens):
            for other in tokens[place + 1 : place + 1 + window]:
                if vocabulary.ordinary[[token, other]].all():
                    counts[min(token, other), max(token, other)] += 1
    return counts


def test_neighbours_by_hand() -> None:
    a, b, c = toy_ids("明月几")
    store = memory_store([[toy_ids("明月"), toy_ids("明几")], [toy_ids("几")]])
    found = count_neighbours(store, TOY, window=1)
    assert as_counter(found) == {(a, b): 2, (a, c): 1}  # over the end of a sentence, not of a document
    assert found.token_counts[[a, b, c]].tolist() == [2, 1, 2]
    assert found.token_counts.sum() == 5


def test_special_tokens_are_no_neighbours_and_keep_their_place() -> None:
    a, b = toy_ids("明月")
    store = memory_store([[[a, TOY.unk_id, b]]])
    found = count_neighbours(store, TOY, window=1)
    assert as_counter(found) == {}
    assert found.token_counts[TOY.unk_id] == 0
    assert as_counter(count_neighbours(store, TOY, window=2)) == {(a, b): 1}


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("at_once", [1 << 20, 50, 1])
def test_counting_in_parts_is_counting_one_by_one(window: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", at_once)
    store = song_ci_like_store(documents=30, vocab_size=BIG.size)
    found = count_neighbours(store, BIG, window=window)
    assert as_counter(found) == counted_one_by_one(store, BIG, window)
    assert (np.diff(found.first * BIG.size + found.second) > 0).all()


def test_shards_change_nothing(tmp_path: Path) -> None:
    store = song_ci_like_store(documents=30, vocab_size=100)
    vocabulary = vocabulary_of(100)
    in_shards = written_store(tmp_path / "store", documents_of(store), shard_tokens=500)
    assert len(in_shards.shard_tokens) > 1
    one, other = (count_neighbours(each, vocabulary) for each in (store, in_shards))
    assert as_counter(one) == as_counter(other)
    np.testing.assert_array_equal(one.token_counts, other.token_counts)


def test_of_a_long_text_so_many_tokens_are_looked_at_and_all_counted() -> None:
    store = song_ci_like_store(documents=200, vocab_size=BIG.size)
    most = store.num_tokens // 3
    some = count_neighbours(store, BIG, window=1, most_tokens=most)
    documents = 200 / 3
    assert most - 1.3 * documents < some.counts.sum() <= most
    np.testing.assert_array_equal(some.token_counts, store.token_counts(BIG.size) * BIG.ordinary)


def test_a_text_that_changes_its_language_regularly_is_seen_in_both() -> None:
    one, other = ([[first, first + 1, first + 2]] for first in (20, 200))
    found = count_neighbours(memory_store([one, other] * 300), BIG, window=1, most_tokens=1200)
    seen = dict(zip(found.first.tolist(), found.counts.tolist(), strict=True))
    assert seen[20] + seen[200] == 400
    assert abs(seen[20] - seen[200]) < 80


def test_one_document_longer_than_what_is_looked_at_is_cut() -> None:
    ids = toy_ids("明月几时有")
    found = count_neighbours(memory_store([[ids]]), TOY, window=1, most_tokens=3)
    assert found.counts.sum() == 2
