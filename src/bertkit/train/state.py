"""Checkpoints that are whole or absent: a folder written aside, hashed in a manifest, renamed once.

In: the files of a model, the optimizers, the counters.  Out: RUN/checkpoints/step-N, and the newest whole one.
No pickle: safetensors and JSON.  Next: loop.py
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit.console import warn
from bertkit.errors import InputError
from bertkit.files import directory_written_atomically, sha256_of_file, write_atomically
from bertkit.train.optimizer import load_optimizer_tensors, optimizer_tensors
from bertkit.train.runtime import Runtime, generator_state, restore_generators

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@dataclass
class Window:
    """Sums since the last line of the log."""

    losses: dict[str, float] = field(default_factory=dict)
    correct: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0  # padding not counted
    slots: int = 0  # padding counted
    seconds: float = 0.0


@dataclass
class TrainState:
    """What a run has come to; together with weights, moments and generators it is all that a resume needs."""

    step: int = 0  # finished optimizer updates
    tokens: int = 0  # trained on, padding not counted
    training_seconds: float = 0.0  # evaluation and saving not counted
    best_step: int | None = None
    best_loss: float | None = None  # held-out, at best_step
    source: dict[str, Any] = field(default_factory=dict)  # what the source of batches wants back
    window: Window = field(default_factory=Window)  # so that the first line after a resume is the one without a stop


def save_checkpoint(
    run_directory: Path,
    state: TrainState,
    *,
    model_files: Mapping[str, bytes],
    optimizers: list[torch.optim.Optimizer],
    runtime: Runtime,
    fingerprint: Mapping[str, Any],
    limit: int,
) -> Path:
    """Write checkpoints/step-N, then point last.json (and best.json) at it, then remove old ones beyond `limit`.

    fingerprint: what must be the same for a resume to be exact.

    Raises:
        InputError: the disk refuses; the checkpoints before this one are then as they were.
    """
    directory = run_directory / "checkpoints" / f"step-{state.step}"
    tensors = [optimizer_tensors(optimizer) for optimizer in optimizers]
    try:
        with directory_written_atomically(directory) as folder:
            for name, content in model_files.items():
                (folder / name).write_bytes(content)
            training = folder / "training"
            training.mkdir()
            for number, moments in enumerate(tensors):
                save_file(moments, training / f"optimizer-{number}.safetensors")
            save_file(generator_state(runtime), training / "rng-rank0.safetensors")
            _write_json(training / "state.json", {**asdict(state), "fingerprint": dict(fingerprint)})
            _write_manifest(folder, {"step": state.step, "fingerprint": dict(fingerprint)})
    except (OSError, SafetensorError) as problem:  # the latter is how safetensors speaks of a full disk
        needed = sum(map(len, model_files.values())) + sum(t.nbytes for moments in tensors for t in moments.values())
        raise InputError(
            f"could not be written ({problem}); the checkpoints before it are as they were",
            file=directory,
            expected=f"{needed:,} bytes; {shutil.disk_usage(run_directory).free:,} are free",
            remedy="make room on this disk and go on by --resume_from last",
        ) from problem
    pointers = {"last": state.step} | ({} if state.best_step is None else {"best": state.best_step})
    for name, step in pointers.items():
        write_atomically(run_directory / "checkpoints" / f"{name}.json", json.dumps({"step": step}) + "\n")
    _remove_old(run_directory, step=state.step, best_step=state.best_step, limit=limit)
    return directory


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write size and hash of every file, and last the manifest's own hash."""
    files = {
        file.relative_to(folder).as_posix(): {"sha256": sha256_of_file(file), "size": file.stat().st_size}
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    manifest = {"format_version": FORMAT_VERSION, **facts, "files": files}
    _write_json(folder / MANIFEST, {**manifest, "sha256": _hash_of(manifest)})


def _hash_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _steps(run_directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a run, newest first."""
    folders = (run_directory / "checkpoints").glob("step-*")
    return sorted((int(f.name[5:]) for f in folders if f.name[5:].isdigit()), reverse=True)


def _remove_old(run_directory: Path, *, step: int, best_step: int | None, limit: int) -> None:
    """Leave the best, the one just written, and of the others the newest, so that `limit` stand besides the best."""
    others = [other for other in _steps(run_directory) if other not in (step, best_step)]
    for other in others[limit - (step != best_step) :]:
        shutil.rmtree(run_directory / "checkpoints" / f"step-{other}")


def damage(directory: Path) -> str | None:
    """Return what is wrong with a checkpoint, the file named, or None when every hash is right."""
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        stated = manifest.pop("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return f"{path}: is missing or damaged ({problem})"
    if stated != _hash_of(manifest):
        return f"{path}: is damaged (its hash is not the one in it)"
    if manifest["format_version"] != FORMAT_VERSION:
        return f"{path}: has format version {manifest['format_version']}; this bertkit reads {FORMAT_VERSION}"
    for name, expected in manifest["files"].items():
        file = directory / name
        if not file.is_file():
            return f"{file}: is missing"
        try:
            if file.stat().st_size != expected["size"] or sha256_of_file(file) != expected["sha256"]:
                return f"{file}: is damaged (its hash is not the manifest's)"
        except OSError as problem:
            return f"{file}: cannot be read ({problem})"
    return None


def find_checkpoint(run_directory: Path, which: str) -> Path:
    """Return the folder of a checkpoint: `last` (the newest undamaged one), `best`, or a folder by its path.

    Raises:
        InputError: there is none, the one asked for is damaged, or it is another run's.
    """
    if which == "last":
        steps = _steps(run_directory)
        for step in steps:
            directory = run_directory / "checkpoints" / f"step-{step}"
            problem = damage(directory)
            if problem is None:
                return directory
            warn(f"{problem}; trying the checkpoint before it")
        raise InputError(
            "holds no undamaged checkpoint" if steps else "holds no checkpoint yet",
            file=run_directory / "checkpoints",
            field="--resume_from",
            value=which,
            remedy="start without --resume_from" + (", in another --output_dir" if steps else ""),
        )
    if which == "best":
        pointer = run_directory / "checkpoints" / "best.json"
        if not pointer.is_file():
            raise InputError("names no best checkpoint yet", file=run_directory, remedy="use --resume_from last")
        try:
            step = json.loads(pointer.read_text(encoding="utf-8"))["step"]
        except (ValueError, KeyError, TypeError):
            raise InputError("is damaged", file=pointer, remedy="use --resume_from last") from None
        directory = run_directory / "checkpoints" / f"step-{step}"
    else:
        directory = Path(which)
        if directory.resolve().parent != (run_directory / "checkpoints").resolve():
            # The best model, the metrics and the settings of a run stand in its own folder.
            raise InputError(
                "is no checkpoint of this run",
                field="--resume_from",
                value=which,
                expected=f"last, best, or a folder in {run_directory / 'checkpoints'}",
                remedy="name that checkpoint's own run by --output_dir, or start a new run from its weights: "
                f"--model_name_or_path {which}",
            )
    problem = damage(directory)
    if problem is not None:
        raise InputError(problem, field="--resume_from", value=which, remedy="use --resume_from last")
    return directory


def read_state(directory: Path, *, fingerprint: Mapping[str, Any]) -> TrainState:
    """Return the counters of a checkpoint.

    Raises:
        InputError: something differs from the run that wrote it, so that the resume would not be exact; listed.
    """
    values = json.loads((directory / "training" / "state.json").read_text(encoding="utf-8"))
    before = values.pop("fingerprint")
    now = json.loads(json.dumps(dict(fingerprint)))
    different = [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if different:
        raise InputError(
            "was written by a run that differs: " + "; ".join(different),
            file=directory,
            field="--resume_from",
            expected="the same settings, data and versions, so that resuming equals never having stopped",
            remedy="give the settings of that run (RUN/settings.yaml by --config_file), or start a new run from these "
            f"weights: --model_name_or_path {directory}",
        )
    return TrainState(**{**values, "window": Window(**values["window"])})


def restore(directory: Path, optimizers: list[torch.optim.Optimizer], runtime: Runtime) -> None:
    """Put the moments and the generators of a checkpoint back; the weights are loaded with the model."""
    for number, optimizer in enumerate(optimizers):
        tensors: dict[str, Tensor] = load_file(directory / "training" / f"optimizer-{number}.safetensors")
        load_optimizer_tensors(optimizer, tensors)
    restore_generators(runtime, load_file(directory / "training" / "rng-rank0.safetensors"))
