"""Checkpoints that are whole or absent: a folder written aside, hashed in a manifest, renamed once.

In: the files of a model, the optimizers, the counters.  Out: RUN/checkpoints/step-N, and the newest whole one.
No pickle: safetensors and JSON.  Next: loop.py
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
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
class TrainState:
    """What a run has come to; together with weights, moments and generators it is all that a resume needs."""

    step: int = 0  # finished optimizer updates
    tokens: int = 0  # trained on, padding not counted
    training_seconds: float = 0.0  # evaluation and saving not counted
    best_step: int | None = None
    best_loss: float | None = None  # held-out, at best_step
    source: dict[str, Any] = field(default_factory=dict)  # what the source of batches wants back


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
    """
    directory = run_directory / "checkpoints" / f"step-{state.step}"
    with directory_written_atomically(directory) as folder:
        for name, content in model_files.items():
            (folder / name).write_bytes(content)
        training = folder / "training"
        training.mkdir()
        for number, optimizer in enumerate(optimizers):
            save_file(optimizer_tensors(optimizer), training / f"optimizer-{number}.safetensors")
        save_file(generator_state(runtime), training / "rng-rank0.safetensors")
        _write_json(training / "state.json", {**asdict(state), "fingerprint": dict(fingerprint)})
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        hashes = {
            file.relative_to(folder).as_posix(): {"sha256": sha256_of_file(file), "size": file.stat().st_size}
            for file in files
        }
        _write_json(
            folder / MANIFEST,
            {"format_version": FORMAT_VERSION, "step": state.step, "files": hashes, "fingerprint": dict(fingerprint)},
        )
    pointers = {"last": state.step} | ({} if state.best_step is None else {"best": state.best_step})
    for name, step in pointers.items():
        write_atomically(run_directory / "checkpoints" / f"{name}.json", json.dumps({"step": step}) + "\n")
    _remove_old(run_directory, keep={state.step, state.best_step}, limit=limit)
    return directory


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _steps(run_directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a run, newest first."""
    folders = (run_directory / "checkpoints").glob("step-*")
    return sorted((int(f.name[5:]) for f in folders if f.name[5:].isdigit()), reverse=True)


def _remove_old(run_directory: Path, *, keep: set[int | None], limit: int) -> None:
    others = [step for step in _steps(run_directory) if step not in keep]
    for step in others[max(0, limit - 1) :]:
        shutil.rmtree(run_directory / "checkpoints" / f"step-{step}")


def damage(directory: Path) -> str | None:
    """Return what is wrong with a checkpoint, the file named, or None when every hash is right."""
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = manifest["files"].items()
    except (OSError, ValueError, KeyError) as problem:
        return f"{path}: is missing or damaged ({problem})"
    for name, expected in files:
        file = directory / name
        if not file.is_file():
            return f"{file}: is missing"
        if file.stat().st_size != expected["size"] or sha256_of_file(file) != expected["sha256"]:
            return f"{file}: is damaged (its hash is not the manifest's)"
    return None


def find_checkpoint(run_directory: Path, which: str) -> Path:
    """Return the folder of a checkpoint: `last` (the newest undamaged one), `best`, or a folder by its path.

    Raises:
        InputError: there is none, or the one asked for is damaged.
    """
    if which == "last":
        for step in _steps(run_directory):
            directory = run_directory / "checkpoints" / f"step-{step}"
            problem = damage(directory)
            if problem is None:
                return directory
            warn(f"{problem}; trying the checkpoint before it")
        raise InputError(
            "holds no undamaged checkpoint",
            file=run_directory / "checkpoints",
            field="--resume_from",
            value=which,
            remedy="start without --resume_from, in another --output_dir",
        )
    if which == "best":
        pointer = run_directory / "checkpoints" / "best.json"
        if not pointer.is_file():
            raise InputError("names no best checkpoint yet", file=run_directory, remedy="use --resume_from last")
        step = json.loads(pointer.read_text(encoding="utf-8"))["step"]
        directory = run_directory / "checkpoints" / f"step-{step}"
    else:
        directory = Path(which)
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
    return TrainState(**values)


def restore(directory: Path, optimizers: list[torch.optim.Optimizer], runtime: Runtime) -> None:
    """Put the moments and the generators of a checkpoint back; the weights are loaded with the model."""
    for number, optimizer in enumerate(optimizers):
        tensors: dict[str, Tensor] = load_file(directory / "training" / f"optimizer-{number}.safetensors")
        load_optimizer_tensors(optimizer, tensors)
    restore_generators(runtime, load_file(directory / "training" / "rng-rank0.safetensors"))
