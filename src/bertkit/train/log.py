"""What is written down while training: one JSON line a log step, and a tracker if one was asked for.

In: numbers by name and the step.  Out: metrics.jsonl, appended whole lines at a time.  Next: state.py
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from bertkit.console import warn
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.train.settings import Tracker

METRICS = "metrics.jsonl"


class MetricsLog:
    """Appends to RUN/metrics.jsonl; a resume first cuts it back to the checkpoint's step."""

    def __init__(self, run_directory: Path, *, after_step: int, report_to: Tracker) -> None:
        self._path = run_directory / METRICS
        self._cut_back(after_step)
        self._tracker = _start_tracker(run_directory, report_to)

    def _cut_back(self, after_step: int) -> None:
        kept, broken = [], 0
        if after_step > 0 and self._path.exists():
            # Bytes, because a kill may cut a character in two, and no splitlines(), because U+2028 may be in a sample.
            for line in self._path.read_bytes().split(b"\n"):
                try:
                    if line and json.loads(line)["step"] <= after_step:
                        kept.append(line + b"\n")
                except (ValueError, KeyError, TypeError):
                    broken += 1
        if broken:
            warn(f"{self._path}: {broken} broken lines dropped, as a kill leaves one")
        write_atomically(self._path, b"".join(kept))

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append one line; `kind` is train, validation or samples."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        line = json.dumps({"kind": kind, "step": step, **finite}, ensure_ascii=False, allow_nan=False)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._tracker is not None:
            numbers = {f"{kind}/{k}": v for k, v in finite.items() if isinstance(v, int | float)}
            self._tracker.log(numbers, step=step)

    def close(self) -> None:
        """End the tracker."""
        if self._tracker is not None:
            self._tracker.end_training()


def _start_tracker(run_directory: Path, report_to: Tracker) -> Accelerator | None:
    if report_to == "none":
        return None
    try:
        import tensorboard  # noqa: F401 (only whether it is there)
    except ImportError:
        raise InputError(
            "is not installed", field="--report_to", value=report_to, remedy='pip install "bertkit[tensorboard]"'
        ) from None
    tracker = Accelerator(log_with=report_to, project_dir=str(run_directory))
    tracker.init_trackers("tensorboard")
    return tracker
