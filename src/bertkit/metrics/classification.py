"""How well texts are classified or scored: scikit-learn's and SciPy's figures.

In: gold and predicted ids, sets of ids, or numbers.  Out: named figures.  Next: question_answering.py
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.metrics.scores import Scores, scores_of

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClassificationScores:
    """Figures of a task with one class a text; fractions from 0 to 1."""

    accuracy: float
    macro_f1: float  # mean over the classes that occur, in gold or prediction
    micro_f1: float
    matthews_correlation: float  # -1 to 1, 0 by chance
    by_class: dict[str, Scores]  # in the order of the names
    confusion: list[list[int]]  # rows gold, columns predicted, in the order of the names
    only_class: str | None  # the one class that is ever predicted, where gold has several: nothing was learnt


def classification_scores(
    gold: Sequence[int], predicted: Sequence[int], *, names: Sequence[str]
) -> ClassificationScores:
    """Return the figures of predicted class ids.

    names: of all classes, by id.
    """
    from sklearn import metrics

    wanted, found = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    assert len(wanted) == len(found) > 0, "as many predictions as labels, and at least one"
    with warnings.catch_warnings():  # of one class alone, which the caller says in words of his own
        warnings.filterwarnings("ignore", message="A single label was found", category=UserWarning)
        table = metrics.confusion_matrix(wanted, found, labels=range(len(names)))
    by_class = {
        name: scores_of(int(table[id, id]), num_predicted=int(table[:, id].sum()), num_gold=int(table[id].sum()))
        for id, name in enumerate(names)
    }
    present = [names[id] for id in sorted({*wanted.tolist(), *found.tolist()})]
    right = int(table.trace())
    return ClassificationScores(
        accuracy=right / len(wanted),
        macro_f1=sum(by_class[name].f1 for name in present) / len(present),
        micro_f1=scores_of(right, num_predicted=len(found), num_gold=len(wanted)).f1,
        # Of one class alone it is 0, but scikit-learn warns that its table has one cell.
        matthews_correlation=float(metrics.matthews_corrcoef(wanted, found)) if len(present) > 1 else 0.0,
        by_class=by_class,
        confusion=table.tolist(),
        only_class=names[found[0]] if len(set(found.tolist())) == 1 < len(set(wanted.tolist())) else None,
    )


@dataclass(frozen=True, slots=True)
class RegressionScores:
    """Figures of a regression."""

    pearson: float | None  # -1 to 1; None: undefined, as all numbers of one side are equal
    spearman: float | None
    mean_squared_error: float
    mean_absolute_error: float


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> RegressionScores:
    """Return the figures of predicted numbers."""
    from scipy import stats

    wanted, found = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    assert len(wanted) == len(found) > 0, "as many predictions as labels, and at least one"
    pearson = spearman = None
    if len(set(wanted.tolist())) > 1 and len(set(found.tolist())) > 1:
        pearson = float(stats.pearsonr(wanted, found).statistic)
        spearman = float(stats.spearmanr(wanted, found).statistic)
    difference = found - wanted
    return RegressionScores(pearson, spearman, float(np.mean(difference**2)), float(np.mean(np.abs(difference))))


@dataclass(frozen=True, slots=True)
class MultiLabelScores:
    """Figures of a task with any number of classes a text."""

    micro_f1: float
    macro_f1: float
    subset_accuracy: float  # share of texts with exactly the right classes
    by_class: dict[str, Scores]


def multi_label_scores(
    gold: NDArray[np.bool_], predicted: NDArray[np.bool_], *, names: Sequence[str]
) -> MultiLabelScores:
    """Return the figures of predicted classes.

    gold, predicted: (texts, labels) bool.
    """
    wanted, found = np.asarray(gold, bool), np.asarray(predicted, bool)
    right = (wanted & found).sum(axis=0)
    by_class = {
        name: scores_of(int(right[id]), num_predicted=int(found[:, id].sum()), num_gold=int(wanted[:, id].sum()))
        for id, name in enumerate(names)
    }
    overall = scores_of(int(right.sum()), num_predicted=int(found.sum()), num_gold=int(wanted.sum()))
    return MultiLabelScores(
        micro_f1=overall.f1,
        macro_f1=sum(scores.f1 for scores in by_class.values()) / max(1, len(by_class)),
        subset_accuracy=float((wanted == found).all(axis=1).mean()),
        by_class=by_class,
    )


def best_label_threshold(gold: NDArray[np.bool_], scores: NDArray[np.floating]) -> tuple[float, float]:
    """Return (threshold, micro F1) that is best on these texts, of a validation part: a class is given from it upwards.

    gold: (texts, labels) bool; scores: (texts, labels) probabilities.  Every cut between two scores is tried, exactly.
    Of cuts as good, the highest; the threshold lies in its middle, so that rounding moves no score over it.

    >>> best_label_threshold(np.array([[True, False], [True, True]]), np.array([[0.4, 0.1], [0.9, 0.3]]))
    (0.2, 1.0)
    """
    flat = np.asarray(scores, np.float64).ravel()
    order = np.argsort(-flat, kind="stable")
    right = np.cumsum(np.asarray(gold, bool).ravel()[order])
    ranked = flat[order]
    last_of_ties = np.append(ranked[1:] != ranked[:-1], True)
    f1 = 2 * right / (np.arange(1, len(flat) + 1) + max(1, int(right[-1])))
    f1[~last_of_ties] = -1.0
    best = int(f1.argmax())
    lower = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float(ranked[best] + lower) / 2, float(f1[best])
