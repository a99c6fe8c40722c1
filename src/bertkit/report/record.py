"""Reading what a run wrote down.

In: RUN/metrics.jsonl, run.json, eval_results.json; the last two may be absent while a run goes on.
Out: one Record, with notes on what was left aside.  Next: charts.py
"""

import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import InputError
from bertkit.files import require_file

KINDS = ("train", "validation", "samples")


@dataclass(frozen=True)
class Record:
    """A run as it stands on disk."""

    name: str
    train: list[dict[str, Any]]  # one row a log step
    validation: list[dict[str, Any]]  # one row an evaluation
    samples: list[dict[str, Any]]  # one row an evaluation: step, samples
    run: dict[str, Any]
    results: dict[str, Any]
    notes: list[str]  # what a reader of the page must know about the files

    @property
    def task(self) -> str | None:
        """The task of a fine-tuning run, as `bertkit finetune` names it; None: pre-training."""
        settings = self.run.get("settings")
        found = self.results.get("task") or (settings.get("task") if isinstance(settings, dict) else None)
        return found if isinstance(found, str) else None


def read_record(run_directory: Path) -> Record:
    """Return the record of a run.

    Raises:
        InputError: the folder is no run, or a file in it is damaged anywhere but in its last line.
    """
    remedy = "name a folder that bertkit pretrain, finetune or demo wrote"
    if not run_directory.is_dir():
        raise InputError("is not a folder", file=run_directory, expected="the folder of a run", remedy=remedy)
    metrics = require_file(run_directory / "metrics.jsonl", what="one JSON object a line", remedy=remedy)
    rows, notes = _read_metrics(metrics)
    run, results = _read_object(run_directory / "run.json"), _read_object(run_directory / "eval_results.json")
    if run is None:
        notes.append("run.json is absent: no settings and no unigram baseline are shown.")
    if results is None:
        notes.append("eval_results.json is absent: the run has not ended; the last evaluation is shown.")
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    return Record(
        name=run_directory.resolve().name,
        train=by_kind["train"],
        validation=by_kind["validation"],
        samples=by_kind["samples"],
        run=run or {},
        results=results or {},
        notes=notes,
    )


def _read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    others: Counter[str] = Counter()
    lines = path.read_bytes().split(b"\n")
    last = max((number for number, line in enumerate(lines, start=1) if line.strip()), default=0)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:  # of JSON and of UTF-8
            if number < last:
                raise InputError(
                    "is not JSON",
                    file=path,
                    line=number,
                    value=line.decode("utf-8", "replace"),
                    expected="one JSON object a line",
                    remedy="remove the line, or restore the file",
                ) from None
            notes.append("1 line of metrics.jsonl was cut short, as by a kill while it was written, and is left out.")
            continue
        kind = _checked(row, path, number)
        if kind in KINDS:
            rows.append(row)
        else:
            others[kind] += 1
    notes += [f"{count} lines of metrics.jsonl are of the kind {kind!r}, not shown." for kind, count in others.items()]
    if missing := sum(_not_finite(row) for row in rows):
        notes.append(f"{missing} values are not finite; the curves have gaps there.")
    return rows, notes


def _checked(row: Any, path: Path, number: int) -> str:
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        expected = f"an object with kind: {', '.join(KINDS)}"
        raise InputError("has no kind", file=path, line=number, value=row, expected=expected)
    if row["kind"] in KINDS and (not isinstance(row.get("step"), int) or isinstance(row["step"], bool)):
        value = row.get("step", "absent")
        raise InputError("is not a step", file=path, line=number, field="step", value=value, expected="a whole number")
    return str(row["kind"])


def _not_finite(row: dict[str, Any]) -> int:
    return sum(isinstance(value, float) and not math.isfinite(value) for value in row.values())


def _read_object(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", file=path, remedy="restore the file or remove it") from None
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", file=path, value=value, remedy="restore the file or remove it")
    return value
