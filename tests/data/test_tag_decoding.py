"""Scores of tags → tags and entities: the best sequence that is allowed, a tag for every word."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.labels import LabelMap
from bertkit.data.examples.words import joined_words
from bertkit.data.features import CoverageReport
from bertkit.data.tag_decoding import allowed_transitions, decode_tags, viterbi
from bertkit.data.tag_features import TagFeatures, build_tag_features
from bertkit.data.tags import faults_of
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

LABELS = LabelMap(("B-LOC", "B-PER", "I-LOC", "I-PER", "O"))
TOKENIZER = make_tokenizer(
    Vocabulary((PAD, UNK, CLS, SEP, MASK, *"苏轼月明在", "john", "##son", "##ny")), do_lower_case=True
)


def sentence(words: list[str]) -> TaggedExample:
    text, offsets = joined_words(words)
    return TaggedExample("1", text, tuple(words), offsets, None, 0, "x", (1,))


def rows_of(examples: list[TaggedExample], *, length: int = 64) -> list[TagFeatures]:
    return build_tag_features(examples, TOKENIZER, max_seq_length=length, labels=None, coverage=CoverageReport())


def logits_for(rows: list[TagFeatures], tags: list[list[str]], *, sure: float = 9.0) -> list[np.ndarray]:
    """Scores of a model that is sure of these tags, and of nonsense at every other position."""
    scores = []
    for row in rows:
        own = np.random.default_rng(0).normal(size=(len(row.input_ids), len(LABELS)))
        own[row.positions] = 0
        for word, position in zip(row.words.tolist(), row.positions.tolist(), strict=True):
            own[position, LABELS.label2id[tags[row.example][word]]] = sure
        scores.append(own)
    return scores


@given(seed=st.integers(0, 10_000), lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_viterbi_finds_the_best_of_all_allowed_sequences(seed: int, lengths: list[int]) -> None:
    generator = np.random.default_rng(seed)
    scores = [generator.normal(size=(length, len(LABELS))) for length in lengths]
    start, follow = allowed_transitions(LABELS)
    for own, path in zip(scores, viterbi(scores, start, follow), strict=True):
        allowed = [
            candidate
            for candidate in product(range(len(LABELS)), repeat=len(own))
            if start[candidate[0]] and all(follow[a, b] for a, b in pairwise(candidate))
        ]
        best = max(sum(own[word, label] for word, label in enumerate(candidate)) for candidate in allowed)
        assert tuple(path.tolist()) in allowed
        assert sum(own[word, label] for word, label in enumerate(path)) == pytest.approx(best)
    assert viterbi([], start, follow) == []


@given(seed=st.integers(0, 10_000))
def test_decoded_tags_are_sound_as_many_as_words_and_the_same_alone(seed: int) -> None:
    generator = np.random.default_rng(seed)
    words = [["苏", " ", "轼", "在", "", "明"], ["月"], [" "], ["johnsonny"] * 30]
    examples = [sentence(own) for own in words]
    rows = rows_of(examples, length=16)
    logits = [generator.normal(size=(len(row.input_ids), len(LABELS))) for row in rows]
    answers = decode_tags(examples, rows, logits, LABELS)
    for place, answer in enumerate(answers):
        assert len(answer.tags) == len(answer.scores) == len(words[place])
        assert faults_of(answer.tags, "IOB2") == []
        assert all(tag == "O" for tag, word in zip(answer.tags, words[place], strict=True) if not word.strip())
        for entity in answer.entities:
            assert examples[place].text[slice(entity["start"], entity["end"])] == entity["word"]
        own = [n for n, row in enumerate(rows) if row.example == place]
        alone = decode_tags([examples[place]], rows_of([examples[place]], length=16), [logits[n] for n in own], LABELS)
        assert alone == [answer]


def test_a_word_of_several_pieces_has_one_tag_and_its_own_text() -> None:  # public case 40
    words = ["苏", "johnsonny", "在"]
    [row] = rows_of([sentence(words)])
    [answer] = decode_tags([sentence(words)], [row], logits_for([row], [["O", "B-PER", "O"]]), LABELS)
    assert answer.tags == ("O", "B-PER", "O")
    [entity] = answer.entities
    assert (entity["entity_group"], entity["word"], entity["start"], entity["end"]) == ("PER", "johnsonny", 2, 11)
    assert 0.99 < float(entity["score"]) < 1


def test_a_blank_gets_o_and_its_neighbours_keep_their_tags() -> None:  # public cases 17 and 18
    words = [*"苏轼", "\u200b", *"在月", "", "明"]
    wanted = [["B-PER", "I-PER", "O", "O", "B-LOC", "O", "B-LOC"]]
    rows = rows_of([sentence(words)])
    [answer] = decode_tags([sentence(words)], rows, logits_for(rows, wanted), LABELS)
    assert list(answer.tags) == wanted[0]
    assert [entity["word"] for entity in answer.entities] == ["苏轼", "月", "明"]


def test_an_entity_in_the_last_of_three_hundred_words_is_found() -> None:  # public case 37
    words = ["月"] * 295 + ["苏", "轼"] + ["月"] * 3
    wanted = [["O"] * 295 + ["B-PER", "I-PER"] + ["O"] * 3]
    rows = rows_of([sentence(words)])
    [answer] = decode_tags([sentence(words)], rows, logits_for(rows, wanted), LABELS)
    assert list(answer.tags) == wanted[0]
    assert [entity["word"] for entity in answer.entities] == ["苏轼"]


def test_an_inside_tag_that_continues_nothing_is_never_given_unless_asked_for() -> None:
    words = ["苏", "轼"]
    rows = rows_of([sentence(words)])
    logits = logits_for(rows, [["O", "I-PER"]])
    [answer] = decode_tags([sentence(words)], rows, logits, LABELS)
    assert faults_of(answer.tags, "IOB2") == []
    [free] = decode_tags([sentence(words)], rows, logits, LABELS, constrained=False)
    assert free.tags == ("O", "I-PER")


def test_plain_classes_know_no_rule() -> None:
    start, follow = allowed_transitions(LabelMap(("I", "NN", "VB")))
    assert start.all()
    assert follow.all()


def test_untyped_tags_keep_their_rule() -> None:
    start, follow = allowed_transitions(LabelMap(("B", "I")))
    assert start.tolist() == [True, False]
    assert follow.all()
