"""Precision, recall and F1 from counts, and figures over several seeds.

In: counts.  Out: Scores.  Next: entities.py
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scores:
    """Three fractions from 0 to 1; one whose denominator is 0 is 0."""

    precision: float
    recall: float
    f1: float
    support: int  # right ones there are

    def to_json(self) -> dict[str, float | int]:
        """Return the four by name."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, "support": self.support}


def scores_of(num_right: int, *, num_predicted: int, num_gold: int) -> Scores:
    """Return the scores of these counts.

    >>> scores_of(1, num_predicted=2, num_gold=1)
    Scores(precision=0.5, recall=1.0, f1=0.6666666666666666, support=1)
    """
    precision = num_right / num_predicted if num_predicted else 0.0
    recall = num_right / num_gold if num_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if num_right else 0.0
    return Scores(precision, recall, f1, num_gold)


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation of one figure over several seeds; 0 for a single one.

    >>> mean_and_sd([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    assert values, "no value"
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
