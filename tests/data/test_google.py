"""Google's instances, draw for draw: against its own output, and by hand."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_data import TOY

from bertkit.data import google
from bertkit.data.export import Instance
from bertkit.data.google import GoogleReport, GoogleSettings, google_instances, num_predictions
from bertkit.data.pairs import IS_NEXT, IS_RANDOM
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings, ReadingReport, read_documents
from bertkit.text.tokenizer import load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
MOON, WINE, SKY = "明月几时有", "把酒问青天", "不知天上宫阙"
GENESIS, EARTH = "In the beginning God created", "the heaven and the earth."
SETS = ["google_sample_token", "google_sample_whole_word", "google_sample_len64_short", "google_kjv300_token"]


def made(documents: list[list[str]], **settings: Any) -> tuple[list[Instance], GoogleReport]:
    report = GoogleReport()
    return google_instances(documents, TOKENIZER, GoogleSettings(**settings), report), report


def plain(instance: Instance) -> dict[str, Any]:
    """The instance in the names of the reference."""
    return {
        "input_ids": instance.input_ids.tolist(),
        "segment_ids": instance.token_type_ids.tolist(),
        "is_random_next": {IS_NEXT: False, IS_RANDOM: True}[instance.next_sentence_label],
        "masked_lm_positions": instance.masked_lm_positions.tolist(),
        "masked_lm_ids": instance.masked_lm_ids.tolist(),
    }


def sides(instance: Instance, vocabulary: Vocabulary = TOY) -> tuple[str, str]:
    """A and B, the hidden tokens put back."""
    ids = instance.input_ids.copy()
    ids[instance.masked_lm_positions] = instance.masked_lm_ids
    tokens = [vocabulary.tokens[id] for id in ids]
    assert tokens[0] == "[CLS]"
    assert tokens[-1] == "[SEP]"
    cut = tokens.index("[SEP]")
    assert instance.token_type_ids.tolist() == [0] * (cut + 1) + [1] * (len(tokens) - cut - 1)
    return " ".join(tokens[1:cut]), " ".join(tokens[cut + 1 : -1])


def spaced(*texts: str) -> str:
    return " ".join("".join(texts))


# ---- against Google's output -------------------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize("name", SETS)
def test_every_instance_is_googles(name: str, shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "google_instances" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        head, *wanted = map(json.loads, file)
    settings = dict(head["settings"])
    assert (settings.pop("vocab"), settings.pop("do_lower_case")) == ("bert-base-uncased", True)
    path = shared_data / "bert_sample_text" / "sample_text.txt"
    if "kjv" in name:
        books = (shared_data / "kjv_bible" / "kjv.txt").read_text(encoding="utf-8").split("\n\n")
        path = tmp_path / "kjv300.txt"
        path.write_text("\n\n".join(book.strip("\n") for book in books[:300]) + "\n", encoding="utf-8")
    corpus = CorpusSettings(input_file=str(path), format="sentences")
    documents = [document.sentences or () for document in read_documents(corpus, ReadingReport())]
    tokenizer = load_tokenizer(shared_data / "vocabs" / "bert-base-uncased-vocab.txt", do_lower_case=True)
    report = GoogleReport()
    found = google_instances(documents, tokenizer, GoogleSettings(seed=settings.pop("random_seed"), **settings), report)
    assert len(wanted) == head["instances"] == report.instances
    assert [plain(instance) for instance in found] == wanted


# ---- by hand -----------------------------------------------------------------------------------------------------


class Recorder:
    """A Random that notes what is drawn from it."""

    log: list[tuple[Any, ...]]

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        Recorder.log = [("seed", seed)]

    def random(self) -> float:
        Recorder.log.append(("random",))
        return self._random.random()

    def randint(self, low: int, high: int) -> int:
        Recorder.log.append(("randint", low, high))
        return self._random.randint(low, high)

    def shuffle(self, items: list[Any]) -> None:
        Recorder.log.append(("shuffle", len(items)))
        self._random.shuffle(items)


def test_with_one_document_ten_are_drawn_and_b_is_of_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "Random", Recorder)
    [instance], report = made([[MOON]], dupe_factor=1, seed=3)
    assert sides(instance) == (spaced(MOON), spaced(MOON))
    assert instance.next_sentence_label == IS_RANDOM
    assert (report.random, report.random_from_own_document) == (1, 1)
    assert Recorder.log[:14] == [
        ("seed", 3),
        ("shuffle", 1),  # the documents
        ("random",),  # a short target?  No draw for the split, nor for the label: the chunk has one sentence.
        *[("randint", 0, 0)] * 10,  # the document
        ("randint", 0, 0),  # its sentence
    ]
    assert Recorder.log[14] == ("shuffle", 10)  # the candidates: 13 tokens less the special ones
    assert Recorder.log[-1] == ("shuffle", 1)  # the instances


def test_with_another_document_the_draws_stop_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "Random", Recorder)
    for seed in range(20):
        instances, report = made([[MOON], [WINE]], dupe_factor=1, seed=seed)
        assert report.random_from_own_document == 0
        assert {sides(instance) for instance in instances} == {
            (spaced(a), spaced(b)) for a, b in [(MOON, WINE), (WINE, MOON)]
        }
        document_draws = Recorder.log.count(("randint", 0, 1))
        assert 2 <= document_draws <= 20
        assert Recorder.log.count(("randint", 0, 0)) == 2  # the sentence


def test_a_chunk_of_several_sentences_draws_its_split_and_then_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "Random", Recorder)
    made([[MOON, WINE, SKY]], dupe_factor=1)
    assert Recorder.log[1:5] == [("shuffle", 1), ("random",), ("randint", 1, 2), ("random",)]


def test_the_sentences_a_random_pair_did_not_use_are_read_again() -> None:
    labels = set()
    for seed in range(10):
        instances, _ = made([[MOON, WINE], [GENESIS]], dupe_factor=1, seed=seed, short_seq_prob=0.0)
        own = {sides(instance)[0]: instance.next_sentence_label for instance in instances}
        first = own[spaced(MOON)]
        assert (spaced(WINE) in own) == (first == IS_RANDOM)
        labels.add(first)
    assert labels == {IS_NEXT, IS_RANDOM}


def test_a_short_target_is_drawn_from_two_to_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "Random", Recorder)
    made([[MOON]], dupe_factor=2, short_seq_prob=1.0, max_seq_length=64)
    assert Recorder.log.count(("randint", 2, 61)) == 2  # once a document and pass


def test_an_over_long_pair_loses_a_token_a_draw_and_the_longer_side_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "Random", Recorder)
    [instance], report = made([[MOON * 4]], dupe_factor=1, max_seq_length=13, max_predictions_per_seq=1)
    assert report.trimmed_tokens == 30  # of twice 20 tokens to 10
    assert Recorder.log[14:44] == [("random",)] * 30
    assert Recorder.log[44] == ("shuffle", 10)
    assert [len(side.split()) for side in sides(instance)] == [5, 5]
    assert all(side in spaced(MOON * 4) for side in sides(instance))  # cut at the ends only


def test_a_line_without_a_token_adds_nothing_and_is_counted() -> None:
    with_it, report = made([[MOON, "\u200d", WINE], [GENESIS, " \u0007 ", EARTH]])
    without, _ = made([[MOON, WINE], [GENESIS, EARTH]])
    assert [plain(instance) for instance in with_it] == [plain(instance) for instance in without]
    assert ("sentences dropped: no token", 2) in report.rows()


def test_an_empty_document_is_gone_before_the_shuffle() -> None:
    with_it, report = made([[], [MOON, WINE], ["\u200d"], [GENESIS, EARTH], []])
    without, _ = made([[MOON, WINE], [GENESIS, EARTH]])
    assert [plain(instance) for instance in with_it] == [plain(instance) for instance in without]
    assert (report.documents, report.documents_without_tokens, report.sentences_without_tokens) == (2, 3, 1)


def test_the_number_of_hidden_tokens_is_capped_at_twenty() -> None:
    instances, _ = made([[MOON * 40]], dupe_factor=1, max_seq_length=203)
    assert [len(instance.masked_lm_ids) for instance in instances] == [20]  # not round(0.15 · 203) = 30
    assert [num_predictions(length, GoogleSettings()) for length in (1, 10, 30, 50, 133, 134, 512)] == [
        1,
        2,
        4,
        8,
        20,
        20,
        20,
    ]


def test_special_tokens_count_in_the_length_and_are_never_hidden() -> None:
    for seed in range(30):
        [instance], _ = made([[MOON * 2]], dupe_factor=1, seed=seed)  # 23 tokens: 3.45; the 20 ordinary ones: 3
        assert len(instance.masked_lm_ids) == 3
        [instance], _ = made([["明月几时有把酒问青天不"]], dupe_factor=1, seed=seed)  # 25: 3.75, 4; 22: 3.3
        assert len(instance.masked_lm_ids) == 4
        assert not {0, 12, 24} & set(instance.masked_lm_positions.tolist())


def test_whole_words_are_hidden_with_their_pieces() -> None:
    beginning = TOY.ids["heaven"], TOY.ids["##s"]
    hidden = set()
    for seed in range(40):
        instances, _ = made([["heavens and earths", "the heavens"]], dupe_factor=1, seed=seed, do_whole_word_mask=True)
        for instance in instances:
            ids = instance.input_ids.copy()
            ids[instance.masked_lm_positions] = instance.masked_lm_ids
            places = set(instance.masked_lm_positions.tolist())
            for place in range(len(ids) - 1):
                if ids[place + 1] == beginning[1]:
                    assert (place in places) == (place + 1 in places)
            hidden |= set(instance.masked_lm_ids.tolist())
    assert set(beginning) <= hidden  # and words of two pieces were hidden


def test_a_word_that_would_exceed_the_number_is_passed_over() -> None:
    for seed in range(20):
        [instance], report = made([["heavens"]], dupe_factor=1, seed=seed, do_whole_word_mask=True)
        assert len(instance.masked_lm_ids) == 0  # one wanted (7 · 0.15), two pieces in either word
        assert report.nothing_hidden == 1
        [instance], report = made([["heavens god"]], dupe_factor=1, seed=seed, do_whole_word_mask=True)
        assert instance.masked_lm_ids.tolist() == [TOY.ids["god"]]
        assert report.nothing_hidden == 0


def test_without_whole_words_a_piece_is_hidden_alone() -> None:
    hidden = {tuple(made([["heavens"]], dupe_factor=1, seed=seed)[0][0].masked_lm_positions) for seed in range(40)}
    assert hidden == {(1,), (2,), (4,), (5,)}


def test_replacements_are_eighty_ten_ten_and_from_the_whole_vocabulary() -> None:
    instances, _ = made([[MOON * 5, WINE * 5]], dupe_factor=300, masked_lm_prob=1.0, max_predictions_per_seq=100)
    shown = [int(id) for i in instances for id in i.input_ids[i.masked_lm_positions]]
    originals = [int(id) for i in instances for id in i.masked_lm_ids]
    total = len(shown)
    assert abs(sum(id == TOY.mask_id for id in shown) / total - 0.8 - 0.1 / TOY.size) < 0.02
    assert abs(sum(a == b for a, b in zip(shown, originals, strict=True)) / total - 0.1 - 0.1 / TOY.size) < 0.02
    assert set(shown) == set(range(TOY.size))  # special and [unused…] entries included: a known fault


def test_a_literal_unknown_token_is_a_word_in_brackets_as_google_reads_it() -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "[", "]", "unk", "月"))
    for text in ("月[UNK]月", "月 [unk] 月"):
        [instance] = google_instances(
            [[text]], make_tokenizer(vocabulary, do_lower_case=True), GoogleSettings(dupe_factor=1), GoogleReport()
        )
        assert sides(instance, vocabulary)[0] == "月 [ unk ] 月"


SENTENCES = st.text("明月几时有，", min_size=0, max_size=12) | st.sampled_from([GENESIS, EARTH, "heavens earths"])


@given(
    documents=st.lists(st.lists(SENTENCES, max_size=6), min_size=1, max_size=5).filter(lambda d: any(map(any, d))),
    seed=st.integers(0, 2**32),
    max_seq_length=st.integers(5, 40),
    whole=st.booleans(),
)
def test_every_instance_is_cut_from_the_documents(
    documents: list[list[str]], seed: int, max_seq_length: int, whole: bool
) -> None:
    settings = {"seed": seed, "max_seq_length": max_seq_length, "do_whole_word_mask": whole, "dupe_factor": 2}
    instances, report = made(documents, **settings)
    joined = [" ".join(TOY.tokens[id] for ids in TOKENIZER.encode_plain(d) for id in ids) for d in documents if d]
    for instance in instances:
        for side in sides(instance):
            assert side
            assert any(side in text for text in joined)
        assert len(instance.input_ids) <= max_seq_length
        positions = instance.masked_lm_positions.tolist()
        assert positions == sorted(set(positions))
        assert len(positions) <= num_predictions(len(instance.input_ids), GoogleSettings())
        assert whole or positions
    again, _ = made(documents, **settings)
    assert [plain(instance) for instance in again] == [plain(instance) for instance in instances]
    assert report.random == sum(instance.next_sentence_label for instance in instances)


def test_it_says_that_all_is_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    made([[MOON, WINE]])
    assert "--compat google: the corpus and all its instances are held in memory" in capsys.readouterr().err


def test_the_report_counts_what_went_in_and_came_out() -> None:
    instances, report = made([[MOON, WINE], [GENESIS]], dupe_factor=3)
    rows = dict(report.rows())
    assert (rows["documents"], rows["sentences"], rows["tokens"]) == (2, 3, 15)
    assert rows["instances"] == len(instances)
    assert rows["instances labelled random"] == sum(i.next_sentence_label == IS_RANDOM for i in instances)
    assert "documents dropped: no token" not in rows


@pytest.mark.parametrize("documents", [[], [[]], [["\u200d"], []]])
def test_a_corpus_without_a_token_is_an_error(documents: list[list[str]]) -> None:
    with pytest.raises(InputError, match="holds no document with a token in it"):
        made(documents)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_length": 4}, "--max_seq_length: is too small\n  value: 4\n  expected: 5 or more"),
        ({"max_predictions_per_seq": 0}, "--max_predictions_per_seq: is too small\n  value: 0\n  expected: 1 or more"),
        ({"dupe_factor": 0}, "--dupe_factor: is too small\n  value: 0\n  expected: 1 or more"),
        ({"masked_lm_prob": 15}, "--masked_lm_prob: is not a share\n  value: 15\n  expected: 0 to 1"),
        ({"short_seq_prob": -0.1}, "--short_seq_prob: is not a share\n  value: -0.1\n  expected: 0 to 1"),
    ],
)
def test_an_impossible_setting_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GoogleSettings(**settings)
