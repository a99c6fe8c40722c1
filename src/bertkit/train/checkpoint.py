"""Checkpoints that are whole or absent: a folder written aside, hashed in a manifest, renamed once.

In: Snapshots.  Out: RUN/checkpoints/step-N, and the newest whole one.  No pickle: safetensors and JSON.
Next: saver.py
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from bertkit.console import say, warn
from bertkit.errors import InputError
from bertkit.files import (
    directory_written_atomically,
    free_bytes,
    fsync_directory,
    put_back,
    sha256_of_file,
    write_atomically,
)
from bertkit.train.runtime import Runtime
from bertkit.train.state import STATE, TRAINING, Snapshot

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
BEST = "best.json"
NONE_FOUND = -1  # in place of a step
REMOVED = ".removed"  # suffix of a checkpoint on its way out, so that a half-removed one is never taken for one


def write_checkpoint(run_directory: Path, snapshot: Snapshot, *, limit: int, keep_every: int | None = None) -> Path:
    """Write checkpoints/step-N, then point last.json (and best.json) at it, then remove old ones beyond `limit`.

    limit: how many stand besides the best one; keep_every: those at its multiples stay for good.

    Raises:
        InputError: the disk is too full or refuses; the checkpoints before this one are then as they were.
    """
    directory = run_directory / CHECKPOINTS / f"step-{snapshot.step}"
    failed = "could not be written"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(run_directory)
        require_room(directory.parent, snapshot.size, what=f"the checkpoint of step {snapshot.step}")
        with directory_written_atomically(directory) as folder:
            _fill(folder, snapshot)
        failed = "is written, but last.json, best.json or older checkpoints could not be brought up to date"
        _point_at(directory, best_step=snapshot.best_step)
        _remove_old(run_directory, step=snapshot.step, best_step=snapshot.best_step, limit=limit, keep_every=keep_every)
    except (OSError, SafetensorError) as problem:  # the latter is how safetensors speaks of a full disk
        raise InputError(
            f"{failed} ({problem}); every other checkpoint is whole",
            file=directory,
            expected=f"{snapshot.size:,} bytes; {free_bytes(directory):,} are free now that what was begun is removed",
            remedy="make room on this disk, or make it writable, and go on by --resume_from last",
        ) from problem
    return directory


def require_room(directory: Path, needed: int, *, what: str) -> None:
    """Check that a folder's disk has room.

    Raises:
        InputError: it has not; with the bytes needed and free.
    """
    free = free_bytes(directory)
    if needed > free:
        raise InputError(
            f"has no room for {what}; what stands there is as it was",
            file=directory,
            expected=f"{needed:,} bytes; {free:,} are free",
            remedy="make room on this disk and go on by --resume_from last; or keep fewer: --save_total_limit",
        )


def _fill(folder: Path, snapshot: Snapshot) -> None:
    for name, content in snapshot.model_files.items():
        (folder / name).write_bytes(content)
    training = folder / TRAINING
    training.mkdir()
    for name, tensors in snapshot.tensors.items():
        save_file(tensors, training / name)
    _write_json(training / STATE, snapshot.state)
    _write_manifest(folder, snapshot.facts)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(_as_text(value), encoding="utf-8")


def _as_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


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


def _point_at(directory: Path, *, best_step: int | None) -> None:
    """Let last.json name the checkpoint just written, and best.json the best one so far, if there is one."""
    write_atomically(directory.with_name("last.json"), json.dumps({"step": int(directory.name[5:])}) + "\n")
    best = directory.with_name(BEST)
    if best_step is None:
        best.unlink(missing_ok=True)  # it would be one that this run went back to before
    else:
        write_atomically(best, json.dumps({"step": best_step}) + "\n")


def _steps(run_directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a run, newest first."""
    folders = (run_directory / CHECKPOINTS).glob("step-*")
    return sorted((int(f.name[5:]) for f in folders if f.name[5:].isdigit()), reverse=True)


def _remove_old(run_directory: Path, *, step: int, best_step: int | None, limit: int, keep_every: int | None) -> None:
    """Leave the best, the one just written, and of those before it the newest, so that `limit` stand besides the best.

    Those behind it are what a resume from an earlier one, or from before a damaged one, went back on.
    """
    others = [other for other in _steps(run_directory) if other not in (step, best_step)]
    behind = [other for other in others if other > step]
    before = [other for other in others if other < step and (keep_every is None or other % keep_every)]
    for other in behind + before[limit - (step != best_step) :]:
        path = run_directory / CHECKPOINTS / f"step-{other}"
        removed = path.with_name(path.name + REMOVED)
        os.replace(path, removed)
        fsync_directory(path.parent)
        shutil.rmtree(removed)
    if behind:
        say(f"checkpoints behind step {step:,} removed, as this run went back: {', '.join(map(str, behind))}")


def _clear_leftovers(run_directory: Path) -> None:
    """Remove what a kill left half written or half removed; put back what it left moved aside."""
    folder = run_directory / CHECKPOINTS
    for path in folder.glob("step-*.old"):
        put_back(path.with_suffix(""))
    for pattern in (f"step-*{REMOVED}", "step-*.tmp", "step-*.old"):
        for path in folder.glob(pattern):
            shutil.rmtree(path)
    for path in folder.glob(".*.json.*.tmp"):
        path.unlink()


def damage(directory: Path) -> str | None:
    """Return what is wrong with a checkpoint, the file named, or None when every hash is right."""
    path = directory / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
        manifest = json.loads(text)
        stated = manifest.pop("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return f"{path}: is missing or damaged ({problem})"
    # The text as well, because two of them may mean the same: a flipped bit makes 1E-08 of 1e-08.
    if stated != _hash_of(manifest) or text != _as_text({**manifest, "sha256": stated}):
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
    for moved_aside in (run_directory / CHECKPOINTS).glob("step-*.old"):
        put_back(moved_aside.with_suffix(""))
    if which == "last":
        return _newest_undamaged(run_directory)
    if which == "best":
        directory = _best(run_directory)
    else:
        directory = Path(which)
        if directory.resolve().parent != (run_directory / CHECKPOINTS).resolve():
            # The best model, the metrics and the settings of a run stand in its own folder.
            raise InputError(
                "is no checkpoint of this run",
                field="--resume_from",
                value=which,
                expected=f"last, best, or a folder in {run_directory / CHECKPOINTS}",
                remedy="name that checkpoint's own run by --output_dir, or start a new run from its weights: "
                f"--model_name_or_path {which}",
            )
    problem = damage(directory)
    if problem is not None:
        raise InputError(problem, field="--resume_from", value=which, remedy="use --resume_from last")
    return directory


def find_checkpoint_on_all(runtime: Runtime, run_directory: Path, which: str) -> Path:
    """Return the checkpoint that the first process finds, on every process: no two may go on from different ones.

    Raises:
        InputError: what `find_checkpoint` raises; on the others that the first one found none.
    """
    found, problem, step = None, None, NONE_FOUND
    if runtime.is_first:
        try:
            found = find_checkpoint(run_directory, which)
            step = _step_of(found)
        except InputError as one:
            problem = one
    step = int(runtime.gathered([step])[0][0])
    if problem is not None:
        raise problem
    if step == NONE_FOUND:
        raise InputError("process 0 finds no checkpoint to go on from", file=run_directory, field="--resume_from")
    return found or run_directory / CHECKPOINTS / f"step-{step}"


def _step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    try:
        return int(checkpoint.name.removeprefix("step-"))
    except ValueError:
        raise InputError("is no checkpoint's name", file=checkpoint, expected="step-N", remedy="rename it") from None


def _newest_undamaged(run_directory: Path) -> Path:
    steps = _steps(run_directory)
    for step in steps:
        directory = run_directory / CHECKPOINTS / f"step-{step}"
        problem = damage(directory)
        if problem is None:
            return directory
        warn(f"{problem}; trying the checkpoint before it")
    raise InputError(
        "holds no undamaged checkpoint" if steps else "holds no checkpoint yet",
        file=run_directory / CHECKPOINTS,
        field="--resume_from",
        value="last",
        remedy="start without --resume_from" + (", in another --output_dir" if steps else ""),
    )


def _best(run_directory: Path) -> Path:
    pointer = run_directory / CHECKPOINTS / BEST
    if not pointer.is_file():
        raise InputError("names no best checkpoint yet", file=run_directory, remedy="use --resume_from last")
    try:
        step = json.loads(pointer.read_text(encoding="utf-8"))["step"]
    except (ValueError, KeyError, TypeError):
        raise InputError("is damaged", file=pointer, remedy="use --resume_from last") from None
    return run_directory / CHECKPOINTS / f"step-{step}"
