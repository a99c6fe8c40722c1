"""Entities and tags: seqeval's figures, default and strict, and scikit-learn's."""

import random
from itertools import pairwise

import pytest
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as default_scores
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
from seqeval.scheme import IOB2
from sklearn.metrics import f1_score

from bertkit.data.tags import spans_of, tags_of, to_iob2
from bertkit.metrics.entities import entity_scores, tag_scores, word_scores
from bertkit.metrics.scores import Scores, mean_and_sd, scores_of

TAGS = ("O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-creative-work", "I-creative-work")


def random_tags(generator: random.Random) -> tuple[list[list[str]], list[list[str]]]:
    """Gold tags, sound, and predicted ones that agree in part and need not be sound."""
    lengths = [generator.randint(1, 8) for _ in range(generator.randint(1, 4))]
    gold = [list(to_iob2([generator.choice(TAGS) for _ in range(length)], "IOB2")) for length in lengths]
    predicted = [[tag if generator.random() < 0.6 else generator.choice(TAGS) for tag in tags] for tags in gold]
    return gold, predicted


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings("ignore")  # seqeval's own
def test_entity_scores_are_those_of_seqeval_on_a_thousand_cases(strict: bool) -> None:
    generator = random.Random(1)
    reference, scheme = (strict_scores, {"scheme": IOB2}) if strict else (default_scores, {})
    mode = {"mode": "strict", "scheme": IOB2} if strict else {}
    for _ in range(1000):
        gold, predicted = random_tags(generator)
        ours = entity_scores(
            [spans_of(tags, strict=strict) for tags in gold], [spans_of(tags, strict=strict) for tags in predicted]
        )
        theirs = reference(gold, predicted, average="micro", zero_division=0, **scheme)
        overall = ours.overall
        assert (overall.precision, overall.recall, overall.f1) == pytest.approx(theirs[:3], abs=1e-9)
        single = reference(gold, predicted, average=None, zero_division=0, **scheme)
        for scores, *expected in zip(ours.by_type.values(), *single, strict=True):
            assert [scores.precision, scores.recall, scores.f1, scores.support] == pytest.approx(expected, abs=1e-9)
        if ours.by_type:
            macro = seqeval_f1(gold, predicted, average="macro", zero_division=0, **mode)
            assert ours.macro_f1 == pytest.approx(macro, abs=1e-9)


def test_two_entities_side_by_side_are_two() -> None:  # textbook fault 12
    tags = ["B-PER", "B-MISC", "I-MISC"]
    scores = entity_scores([spans_of(tags)], [spans_of(["B-PER", "I-PER", "I-PER"])])
    assert (scores.overall.support, scores.overall.f1) == (2, 0.0)


def test_words_that_are_missing_count_as_missed_entities() -> None:  # public cases 37 and 39
    scores = entity_scores([[("PER", 0, 1), ("LOC", 3, 4)]], [[]])
    assert (scores.overall.recall, scores.by_type["LOC"]) == (0.0, Scores(0.0, 0.0, 0.0, 1))


def test_nothing_to_find_is_no_error() -> None:
    assert entity_scores([[]], [[]]).overall == Scores(0.0, 0.0, 0.0, 0)
    assert entity_scores([], []).macro_f1 == 0.0


def test_tag_scores_are_those_of_scikit_learn_and_o_is_told_apart() -> None:  # textbook fault 12
    generator = random.Random(2)
    for _ in range(200):
        gold, predicted = random_tags(generator)
        ours = tag_scores(gold, predicted)
        flat = [tag for tags in gold for tag in tags], [tag for tags in predicted for tag in tags]
        names = sorted({*flat[0], *flat[1]})
        expected = f1_score(*flat, labels=names, average=None, zero_division=0)
        assert [ours.by_tag[name].f1 for name in names] == pytest.approx(expected, abs=1e-9)
        assert ours.accuracy == sum(a == b for a, b in zip(*flat, strict=True)) / len(flat[0])
        inside = [(a, b) for a, b in zip(*flat, strict=True) if a != "O"]
        assert ours.accuracy_without_outside == (sum(a == b for a, b in inside) / len(inside) if inside else 0)
    all_outside = tag_scores([["B-X", *["O"] * 9]], [["O"] * 10])
    assert (all_outside.accuracy, all_outside.accuracy_without_outside) == (0.9, 0.0)


def test_a_missing_tag_is_an_error_and_not_a_shift() -> None:
    with pytest.raises(ValueError, match="zip"):
        tag_scores([["O", "O"]], [["O"]])


def test_word_scores_are_entity_scores_of_words() -> None:
    generator = random.Random(3)
    for _ in range(300):
        total = generator.randint(1, 12)
        cuts = [sorted({0, total, *generator.sample(range(total + 1), generator.randint(0, total))}) for _ in range(2)]
        spans = [{(a, b) for a, b in pairwise(own)} for own in cuts]
        lengths = [[b - a for a, b in pairwise(own)] for own in cuts]
        expected = scores_of(len(spans[0] & spans[1]), num_predicted=len(spans[1]), num_gold=len(spans[0]))
        assert word_scores([lengths[0]], [lengths[1]]) == expected
    tags = tags_of(spans_of(to_iob2(["B", "E", "S"], "BMES")), length=3)
    assert [span.end - span.start for span in spans_of(tags)] == [2, 1]


def test_figures_over_seeds_are_a_mean_and_a_sample_deviation() -> None:
    mean, deviation = mean_and_sd([0.8, 0.9, 0.7])
    assert (mean, deviation) == (pytest.approx(0.8), pytest.approx(0.1))
    assert mean_and_sd([0.5]) == (0.5, 0.0)
