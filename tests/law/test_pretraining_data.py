"""The law of masking and of next-sentence pairs, over a hundred thousand pairs and a million tokens."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from toy_data import memory_store, rows_of, song_ci_like_store, vocabulary_of

from bertkit.data.masking import MaskingSettings, mask_tokens
from bertkit.data.pairs import IS_NEXT, IS_RANDOM, PairSettings, build_pairs
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.data.store import open_parts
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer

SMALLEST_P = 1e-5
FOUR_SIGMA_OF_PAIRS = 0.0063  # of a share of 50 % over 1e5 pairs
PAIRINGS = ("segment", "sentence")
VOCABULARY = vocabulary_of(6000)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_half_of_a_hundred_thousand_pairs_are_true_and_no_random_b_is_of_its_own_document(pairing: str) -> None:
    store, counts = song_ci_like_store(documents=20_000), np.zeros(2)
    epoch = 0
    while counts.sum() < 100_000:
        table = build_pairs(store, PairSettings(pairing=pairing), seed=1, epoch=epoch)
        own = table.document_a == table.document_b
        assert (own == (table.next_sentence_label == IS_NEXT)).all()
        assert table.unresolved == 0
        counts += np.bincount(table.next_sentence_label, minlength=2)
        epoch += 1
    assert abs(counts[IS_NEXT] / counts.sum() - 0.5) <= FOUR_SIGMA_OF_PAIRS


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_random_document_and_a_sentence_in_it_are_drawn_uniformly(pairing: str) -> None:
    """Twenty documents of 3 to 22 sentences: a long one is not drawn more often than a short one."""
    lengths = range(3, 23)
    store = memory_store([[[1000 + 50 * d + s, 2000 + s] for s in range(n)] for d, n in enumerate(lengths)])
    offsets = np.zeros((20, 20), int)  # (A's document, how much further B's is, around)
    sentences = {n: np.zeros(n, int) for n in lengths}
    for epoch in range(150):
        table = build_pairs(store, PairSettings(pairing=pairing, max_seq_length=128), seed=2, epoch=epoch)
        drawn = table.next_sentence_label == IS_RANDOM
        np.add.at(offsets, (table.document_a[drawn], (table.document_b - table.document_a)[drawn] % 20), 1)
        first = np.searchsorted(store.sentence_starts, table.start_b[drawn])
        for document, sentence in zip(table.document_b[drawn].tolist(), first.tolist(), strict=True):
            sentences[lengths[document]][sentence - store.document_sentences[document]] += 1
    assert (offsets[:, 0] == 0).all()
    assert chisquare(offsets[:, 1:].sum(axis=0)).pvalue > SMALLEST_P
    for counts in sentences.values():
        assert chisquare(counts).pvalue > SMALLEST_P


def test_eighty_ten_ten_over_a_million_tokens_and_even_over_places_and_ids() -> None:
    generator = np.random.default_rng(0)
    selected_at, drawn_ids = np.zeros(100, int), np.zeros(VOCABULARY.size, int)
    totals = np.zeros(4)  # selected, [MASK], another token, the same
    eligible = 0
    for chunk in range(10):
        rows = generator.integers(15, VOCABULARY.size, (1000, 102))
        rows[:, 0], rows[:, -1] = VOCABULARY.cls_id, VOCABULARY.sep_id
        found = mask_tokens(
            rows,
            index=np.arange(1000 * chunk, 1000 * (chunk + 1)),
            ordinary=VOCABULARY.ordinary,
            mask_id=VOCABULARY.mask_id,
            settings=MaskingSettings(),
            seed=3,
            epoch=0,
        )
        before, after = rows[found.selected], found.input_ids[found.selected]
        assert (found.selected.sum(axis=1) == 15).all()
        is_mask, is_same = after == VOCABULARY.mask_id, after == before
        totals += len(after), is_mask.sum(), (~is_mask & ~is_same).sum(), is_same.sum()
        selected_at += found.selected.sum(axis=0)[1:-1]
        drawn_ids += np.bincount(after[~is_mask & ~is_same], minlength=VOCABULARY.size)
        eligible += int(VOCABULARY.ordinary[rows].sum())
    assert eligible == 1_000_000
    masked, random, same = totals[1:] / totals[0]
    assert abs(masked - 0.8) <= 0.0042
    assert abs(random - 0.1) <= 0.0031
    assert abs(same - 0.1) <= 0.0031
    assert chisquare(selected_at).pvalue > SMALLEST_P
    assert drawn_ids[~VOCABULARY.ordinary].sum() == 0
    assert chisquare(drawn_ids[VOCABULARY.ordinary]).pvalue > SMALLEST_P


def test_what_replaces_a_token_does_not_depend_on_which_was_hidden_or_where() -> None:
    rows = np.full((20_000, 20), 20)
    found = mask_tokens(
        rows,
        index=np.arange(20_000),
        ordinary=VOCABULARY.ordinary,
        mask_id=VOCABULARY.mask_id,
        settings=MaskingSettings(),
        seed=4,
        epoch=0,
    )
    hidden = found.selected & (found.input_ids == VOCABULARY.mask_id)
    shares = hidden.sum(axis=0) / found.selected.sum(axis=0)  # of each column
    assert np.abs(shares - 0.8).max() < 4.5 * np.sqrt(0.16 / 3000)
    both = found.selected.astype(float)
    correlation = np.corrcoef(both.T)[~np.eye(20, dtype=bool)]
    assert np.abs(correlation + 1 / 19).max() < 4.5 / np.sqrt(20_000)  # drawn without replacement, else independent


@pytest.mark.shared_data
@pytest.mark.parametrize("pairing", [*PAIRINGS, "none"])
def test_the_song_ci_keep_the_law(shared_data: Path, tmp_path: Path, pairing: str) -> None:
    """2,000 real ci: labels true by position and text, rows within the cap, nothing lost but what is counted."""
    text = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()[:2000]
    (tmp_path / "ci.txt").write_text("\n".join(text), encoding="utf-8")
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-chinese-vocab.txt", do_lower_case=True)
    corpus = CorpusSettings(input_file=str(tmp_path / "ci.txt"), format="lines")
    prepare_store(corpus, tokenizer, tmp_path / "store", PreparationSettings(validation_split=False))
    store = open_parts(tmp_path / "store")["train"]
    assert store.num_documents == 2000
    table = build_pairs(store, PairSettings(pairing=pairing, max_seq_length=64), seed=5, epoch=0)
    length_a, length_b = table.end_a - table.start_a, table.end_b - table.start_b
    assert length_a.min() >= 1
    if pairing == "none":
        assert length_a.sum() == store.num_tokens
        assert length_a.max() <= 62
        return
    assert length_b.min() >= 1
    assert (length_a + length_b).max() <= 61
    assert ((table.document_a == table.document_b) == (table.next_sentence_label == IS_NEXT)).all()
    if pairing == "sentence":
        assert len(table) + table.unresolved == np.maximum(store.sentences_per_document - 1, 0).sum()
    if pairing == "segment":
        used = np.zeros(store.num_tokens, dtype=bool)
        for _, start_a, end_a, _, start_b, end_b, label in rows_of(table):
            used[start_a:end_a] = True
            used[start_b:end_b] |= label == IS_NEXT
        of_documents = np.diff(store.sentence_starts[store.document_sentences])
        assert (~used[np.repeat(store.sentences_per_document >= 2, of_documents)]).sum() <= table.trimmed_tokens
