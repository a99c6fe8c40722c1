"""Classes, scores and sets of classes: the figures of scikit-learn and SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from bertkit.metrics.classification import (
    best_label_threshold,
    classification_scores,
    multi_label_scores,
    regression_scores,
)


def test_class_figures_are_those_of_scikit_learn_on_a_thousand_cases() -> None:
    generator = np.random.default_rng(1)
    names = ["a", "b", "c", "d"]
    for _ in range(1000):
        size = generator.integers(1, 20)
        gold = generator.integers(0, 4, size)
        found = np.where(generator.random(size) < 0.5, gold, generator.integers(0, 4, size))
        ours = classification_scores(gold.tolist(), found.tolist(), names=names)
        assert ours.accuracy == pytest.approx((gold == found).mean(), abs=1e-9)
        assert ours.macro_f1 == pytest.approx(metrics.f1_score(gold, found, average="macro", zero_division=0), abs=1e-9)
        assert ours.micro_f1 == pytest.approx(ours.accuracy, abs=1e-9)
        counts = np.zeros((4, 4), int)
        np.add.at(counts, (gold, found), 1)
        assert ours.confusion == counts.tolist()
        for id, scores in enumerate(ours.by_class.values()):
            right, predicted, there = counts[id, id], counts[:, id].sum(), counts[id].sum()
            assert (scores.precision, scores.recall, scores.support) == (
                pytest.approx(right / max(1, predicted)),
                pytest.approx(right / max(1, there)),
                there,
            )


def test_matthews_correlation_of_two_classes_by_its_formula() -> None:
    ours = classification_scores([1, 1, 1, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1, 0, 1], names=["no", "yes"])
    tp, tn, fp, fn = 3, 3, 1, 1
    expected = (tp * tn - fp * fn) / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    assert ours.matthews_correlation == pytest.approx(expected)


def test_a_model_that_only_ever_says_one_class_is_named() -> None:  # public case 36
    ours = classification_scores([0] * 95 + [1] * 5, [0] * 100, names=["usual", "rare"])
    assert (ours.accuracy, ours.only_class) == (0.95, "usual")
    assert ours.macro_f1 < 0.5
    assert ours.by_class["rare"].recall == 0
    assert ours.matthews_correlation == 0
    assert classification_scores([0, 0], [0, 0], names=["usual", "rare"]).only_class is None


def test_correlations_are_those_of_scipy_and_undefined_ones_are_none() -> None:
    generator = np.random.default_rng(2)
    for _ in range(200):
        gold = np.round(generator.random(10) * 5, 1)  # with ties
        found = gold + generator.normal(size=10)
        ours = regression_scores(gold.tolist(), found.tolist())
        assert ours.pearson == pytest.approx(np.corrcoef(gold, found)[0, 1], abs=1e-9)
        ranks = stats.rankdata(gold), stats.rankdata(found)
        assert ours.spearman == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)
        assert ours.mean_squared_error == pytest.approx(metrics.mean_squared_error(gold, found), abs=1e-9)
        assert ours.mean_absolute_error == pytest.approx(metrics.mean_absolute_error(gold, found), abs=1e-9)
    constant = regression_scores([1.0, 2.0], [3.0, 3.0])
    assert (constant.pearson, constant.spearman, constant.mean_absolute_error) == (None, None, 1.5)


def test_sets_of_classes_are_scored_as_scikit_learn_does() -> None:
    generator = np.random.default_rng(3)
    for _ in range(100):
        gold = generator.random((6, 3)) < 0.4
        found = np.where(generator.random((6, 3)) < 0.7, gold, ~gold)
        ours = multi_label_scores(gold, found, names=["a", "b", "c"])
        for average, value in (("micro", ours.micro_f1), ("macro", ours.macro_f1)):
            assert value == pytest.approx(metrics.f1_score(gold, found, average=average, zero_division=0), abs=1e-9)
        assert ours.subset_accuracy == pytest.approx(metrics.accuracy_score(gold, found), abs=1e-9)


@given(seed=st.integers(0, 5000))
def test_the_best_threshold_is_the_best_of_all_scores(seed: int) -> None:
    generator = np.random.default_rng(seed)
    gold = generator.random((5, 3)) < 0.4
    scores = np.round(generator.random((5, 3)), 1)  # with ties
    threshold, best = best_label_threshold(gold, scores)
    every = {t: multi_label_scores(gold, scores >= t, names=["a", "b", "c"]).micro_f1 for t in set(scores.ravel())}
    assert best == pytest.approx(max(every.values()))
    assert multi_label_scores(gold, scores >= threshold, names=["a", "b", "c"]).micro_f1 == pytest.approx(best)
    assert not np.isclose(scores, threshold).any() or threshold == 0


def test_one_class_alone_is_measured_without_a_warning() -> None:
    found = classification_scores([0, 0], [0, 0], names=["a"])
    assert (found.accuracy, found.macro_f1, found.matthews_correlation, found.confusion) == (1.0, 1.0, 0.0, [[2]])
