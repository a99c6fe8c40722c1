"""Disks that are full, broken or read-only: what was finished is intact, and one message says path, need and room."""

import re
import shutil
from pathlib import Path

import pytest
from interrupted_saves import assert_no_harm, injected, require_strace
from processes import Forge, ended
from toy_run import write_model_config, write_store

# Which calls fail how: a full disk refuses writes and new names, a broken one anything.
FAILURES = {
    "ENOSPC": ("write", "fsync", "rename", "mkdir", "openat"),
    "EIO": ("write", "fsync", "rename", "unlink", "unlinkat", "rmdir", "mkdir"),
}


@pytest.fixture(scope="module")
def why_not(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What keeps a process from mounting a file system of its own here; empty: nothing."""
    folder = tmp_path_factory.mktemp("trial")
    process = forge.begin([folder], folder.with_suffix(".output"), target="toy_saves:can_mount")
    with ended(process):
        return process.said().strip() if process.wait(20) != 0 else ""


@pytest.fixture
def mounts(why_not: str, tmp_path: Path) -> Path:
    """A folder that a process can mount a file system of its own at."""
    if why_not:
        pytest.skip(f"no file system can be mounted here ({why_not})")
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.mark.parametrize(
    ("full_at", "message"),
    [
        ("before", r"checkpoints: has no room for the checkpoint of step 2; what stands there is as it was\n"),
        (
            "save_file",
            r"step-2: could not be written \(.*No space left on device.*\); every other checkpoint is whole\n",
        ),
        ("_write_manifest", r"step-2: could not be written \(.*No space left on device.*\); every other"),
        ("read-only", r"step-2: could not be written \(\[Errno 30\] Read-only file system: '.*'\); every other"),
    ],
    ids=["full before", "full in the weights", "full in the manifest", "read-only"],
)
def test_a_disk_that_refuses_leaves_the_checkpoint_before_it(
    forge: Forge, mounts: Path, tmp_path: Path, full_at: str, message: str
) -> None:
    process = forge.begin([mounts, full_at], tmp_path / "output", target="toy_saves:saves_on_a_full_disk")
    with ended(process):
        assert process.wait(20) == 2
    said = process.said()
    assert re.search(message, said), said
    assert re.search(r"expected: \d{3},\d{3} bytes; [\d,]+ are free", said)
    assert "whole: True; last: step-1; there are: best.json, last.json, step-1\n" in said
    assert "Traceback" not in said


def test_a_disk_that_fills_up_after_the_checkpoint_is_written_leaves_that_one(
    forge: Forge, mounts: Path, tmp_path: Path
) -> None:
    process = forge.begin([mounts, "write_atomically"], tmp_path / "output", target="toy_saves:saves_on_a_full_disk")
    with ended(process):
        assert process.wait(20) == 2
    said = process.said()
    assert "step-2: is written, but last.json, best.json or older checkpoints could not be brought up to date" in said
    assert "whole: True; last: step-2; " in said


@pytest.fixture
def command(tmp_path: Path, mounts: Path) -> list[object]:
    """Pre-training with its run on the small disk."""
    store, size = write_store(tmp_path), write_model_config(tmp_path / "model.json")
    words = ["pretrain", "--data_dir", store, "--output_dir", mounts / "run", "--model_size", size]
    words += ["--max_seq_length", 32, "--batch_size", 8, "--max_steps", 60, "--log_every", 1, "--eval_every", 2]
    return [*words, "--eval_rows", 8]


def test_training_on_a_disk_that_fills_up_ends_in_one_message(
    forge: Forge, mounts: Path, tmp_path: Path, command: list[object]
) -> None:
    process = forge.begin(
        [mounts, "4m", mounts / "run", *command], tmp_path / "output", target="toy_saves:trains_on_a_small_disk"
    )
    with ended(process):
        assert process.wait(60) == 2
    said = process.said()
    assert re.search(r"error: .*/run/.*(has no room for|could not be written|No space left)", said)
    assert re.search(r"[\d,]+ (bytes )?are free", said)
    assert re.search(r"code 2; \d+ checkpoints, 0 damaged\nlast: step-\d+\n", said), said
    assert "Traceback" not in said


def test_training_does_not_begin_on_a_disk_that_is_too_small(
    forge: Forge, mounts: Path, tmp_path: Path, command: list[object]
) -> None:
    process = forge.begin(
        [mounts, "512k", mounts / "run", *command], tmp_path / "output", target="toy_saves:trains_on_a_small_disk"
    )
    with ended(process):
        process.wait(60)
    assert re.search(
        r"run/checkpoints: has no room for 4 checkpoints(.|\n)*[\d,]+ bytes; [\d,]+ are free", process.said()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("error", "call"), [(error, call) for error, calls in FAILURES.items() for call in calls])
def test_an_error_at_any_system_call_is_one_message_and_does_no_harm(
    forge: Forge, tmp_path: Path, error: str, call: str
) -> None:
    """Promise C2."""
    require_strace(tmp_path)
    number, refused = 0, 0
    while True:
        folder = tmp_path / str(number)
        with injected(forge, folder, f"{call}:error={error}:when={number + 1}") as process:
            code = process.wait(60)
        said = process.said()
        trace = (folder / "trace").read_text(encoding="utf-8")
        if "INJECTED" not in trace:
            break
        number += 1
        # The line that the test itself writes may be what failed, or a message on standard error: nothing to look at.
        own = re.search(r"write\((1|2),.*INJECTED|finished.*INJECTED", trace) or "in save\n" in said
        if not own:
            assert code in (0, 2), said
            assert "Traceback" not in said, said
            assert_no_harm(folder)
            if code == 2:
                refused += 1
                assert re.search(r"step-\d+: (could not be written|is written, but)", said), said
                assert re.search(r"[\d,]+ bytes; [\d,]+ are free", said), said
        shutil.rmtree(folder)
    print(f"{error} at {call}: {number} errors, {refused} times refused, no harm")  # noqa: T201 (the figure wanted)
