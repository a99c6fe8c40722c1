"""What is written down while training: one JSON line a log step, and a tracker if one was asked for.

In: numbers by name and the step.  Out: metrics.jsonl, appended whole lines at a time.  Next: state.py
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from bertkit.console import warn
from bertkit.errors import InputError
from bertkit.files import naming, write_atomically
from bertkit.train.settings import Tracker

METRICS = "metrics.jsonl"
PROJECT = "bertkit"  # the name under which a tracker without a folder of its own files the run


class MetricsLog:
    """Appends to RUN/metrics.jsonl; of a resume the first line cuts it back to the checkpoint's step.

    (Not before: a resume that fails leaves the file as it was.)

    writes: whether this process is the one to do so; the others keep silent.
    """

    def __init__(self, run_directory: Path, *, after_step: int, report_to: Tracker, writes: bool = True) -> None:
        self._path, self._writes = run_directory / METRICS, writes
        self._tracker: GeneralTracker | None = None
        self._after_step: int | None = after_step  # None: the file is cut back already
        if writes:
            if after_step == 0:
                self._cut_back()
            self._tracker = _start_tracker(run_directory, report_to)

    def _cut_back(self) -> None:
        after_step, self._after_step = self._after_step, None
        if after_step is None:
            return
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
        if not self._writes:
            return
        self._cut_back()
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        line = json.dumps({"kind": kind, "step": step, **finite}, ensure_ascii=False, allow_nan=False)
        with naming(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._tracker is not None:
            numbers = {f"{kind}/{k}": v for k, v in finite.items() if isinstance(v, int | float)}
            self._tracker.log(numbers, step=step)

    def close(self) -> None:
        """End the tracker, once."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.finish()


@contextmanager
def closed_on_failure(log: MetricsLog) -> Iterator[MetricsLog]:
    """Yield the log, and close it where the block fails: nobody else could."""
    try:
        yield log
    except BaseException:
        log.close()
        raise


def _start_tracker(run_directory: Path, report_to: Tracker) -> GeneralTracker | None:
    """Return accelerate's tracker of that name, its files in the run's folder where it has files."""
    if report_to == "none":
        return None
    if find_spec(report_to) is None:
        raise InputError(
            "is not installed",
            field="--report_to",
            value=report_to,
            remedy='pip install "bertkit[tensorboard]"' if report_to == "tensorboard" else f"pip install {report_to}",
        )
    kind = LOGGER_TYPE_TO_CLASS[report_to]
    has_folder = kind.requires_logging_directory
    tracker: GeneralTracker = kind(report_to, logging_dir=str(run_directory)) if has_folder else kind(PROJECT)
    tracker.start()
    return tracker
