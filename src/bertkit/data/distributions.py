"""Many whole numbers in a few: their spread, and how often each comes.

In: an array of lengths or counts.  Out: a Distribution with its Histogram, plain numbers that JSON can hold.
Next: corpus_statistics.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_BINS = 40
# Where the longest is more than this many times the 99th percentile, the bins end there: a few would flatten all.
LONG_TAIL = 2


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of one width: bin k counts start + k · width and the width − 1 numbers behind it."""

    start: int
    width: int
    counts: list[int]
    beyond: int  # how many numbers lie above the last bin


@dataclass(frozen=True)
class Distribution:
    """How whole numbers spread; p95 is the smallest number that at least 95 % of them do not exceed."""

    min: int
    median: float
    mean: float
    p95: int
    max: int
    histogram: Histogram

    def cells(self) -> tuple[int, float, float, int, int]:
        """Return the five numbers as cells of a table."""
        return self.min, round(self.median, 1), round(self.mean, 1), self.p95, self.max


def distribution_of(values: NDArray[np.int64]) -> Distribution:
    """Return the distribution of whole numbers ≥ 0, at least one of them, (n,) int64.

    >>> found = distribution_of(np.array([1, 2, 2, 7]))
    >>> found.cells(), found.histogram.counts
    ((1, 2.0, 3.0, 7, 7), [1, 2, 0, 0, 0, 0, 1])
    """
    assert len(values), "nothing to count"
    return Distribution(
        min=int(values.min()),
        median=float(np.median(values)),
        mean=float(values.mean()),
        p95=int(np.quantile(values, 0.95, method="inverted_cdf")),
        max=int(values.max()),
        histogram=_histogram(values),
    )


def _histogram(values: NDArray[np.int64]) -> Histogram:
    smallest, largest = int(values.min()), int(values.max())
    p99 = int(np.quantile(values, 0.99, method="inverted_cdf"))
    last = p99 if largest > LONG_TAIL * p99 else largest
    width = _round_width(last - smallest + 1)
    start = smallest // width * width
    bins = (last - start) // width + 1
    counts = np.bincount(np.minimum((values - start) // width, bins), minlength=bins + 1).tolist()
    return Histogram(start=start, width=width, counts=counts[:bins], beyond=counts[bins])


def _round_width(span: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 … with which MOST_BINS bins reach over the span."""
    scale = 1
    while True:
        for width in (scale, 2 * scale, 5 * scale):
            if width * MOST_BINS >= span:
                return width
        scale *= 10
