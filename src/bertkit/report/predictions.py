"""The worst errors of a fine-tuned model, from what the run wrote down of every held-out example.

In: RUN/predictions_PART.jsonl.  Out: Predictions: how many are wrong, and the worst of them.  Next: mistakes.py
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import InputError

PARTS = ("test", "validation", "train")  # the first that is there is shown
WORST_SHOWN = 20


@dataclass(frozen=True)
class Predictions:
    """What is wrong in one part."""

    part: str
    total: int
    wrong: int  # of them with an `error` above 0
    worst: list[dict[str, Any]]  # records, the worst first


def read_predictions(run_directory: Path) -> Predictions | None:
    """Return the worst errors of the test part, else of the validation part; None: nothing is written down yet.

    Raises:
        InputError: a line of the file is no JSON object with a number `error`.
    """
    for part in PARTS:
        path = run_directory / f"predictions_{part}.jsonl"
        if path.is_file():
            return _read(path, part)
    return None


def _read(path: Path, part: str) -> Predictions:
    total = wrong = 0
    worst: list[tuple[float, int, dict[str, Any]]] = []  # a heap; of errors as bad the first in the file is kept
    for number, record in _records(path):
        total += 1
        if record["error"] <= 0:
            continue
        wrong += 1
        heapq.heappush(worst, (record["error"], -number, record))
        if len(worst) > WORST_SHOWN:
            heapq.heappop(worst)
    return Predictions(part, total, wrong, [record for _, _, record in sorted(worst, key=lambda row: row[:2])[::-1]])


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                record = json.loads(line)
            except ValueError:  # of JSON and of UTF-8
                record = None
            error = record.get("error") if isinstance(record, dict) else None
            if not isinstance(record, dict) or isinstance(error, bool) or not isinstance(error, int | float):
                raise InputError(
                    "is not a prediction of the run",
                    file=path,
                    line=number,
                    value=line.decode("utf-8", "replace"),
                    expected="a JSON object with a number `error`",
                    remedy="restore the file or remove it",
                )
            yield number, record
