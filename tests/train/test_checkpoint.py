"""Checkpoints: whole or absent, damage found and named, the last good one used, no pickle in them."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_checkpoint import FINGERPRINT, SavedRun

from bertkit.errors import InputError
from bertkit.files import sha256_of_file
from bertkit.train import checkpoint
from bertkit.train.checkpoint import damage, find_checkpoint, find_checkpoint_on_all

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a checkpoint of a small trained network at a step."""
    return SavedRun(tmp_path).save


def steps_kept(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))


def pointer(run: Path, name: str) -> int:
    step: int = json.loads((run / "checkpoints" / f"{name}.json").read_text(encoding="utf-8"))["step"]
    return step


def test_a_checkpoint_holds_the_model_at_its_top_and_the_training_below(save: Save, tmp_path: Path) -> None:
    folder = save(4)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    training = ("optimizer-0.safetensors", "optimizer-1.safetensors", "state.json")
    expected = {"manifest.json", "model.safetensors", "config.json"} | {f"training/{name}" for name in training}
    assert folder == tmp_path / "checkpoints" / "step-4"
    assert names == expected
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.suffix == ".tmp"] == []


def test_the_manifest_has_size_and_hash_of_every_other_file(save: Save) -> None:
    folder = save(4)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert manifest["files"] == {
        path.relative_to(folder).as_posix(): {"sha256": sha256_of_file(path), "size": path.stat().st_size}
        for path in files
    }
    assert (manifest["format_version"], manifest["step"], manifest["fingerprint"]) == (2, 4, FINGERPRINT)
    assert manifest["code"] == "def"
    assert damage(folder) is None


def test_no_file_of_a_checkpoint_is_a_pickle(save: Save) -> None:
    folder = save(4)
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert path.suffix in {".safetensors", ".json", ".txt", ".md"}
        assert not path.read_bytes().startswith((b"\x80", b"PK"))  # a pickle's, and torch.save's, first bytes


# --- which ones are kept -------------------------------------------------------------------------------------------


def test_last_and_best_name_their_steps(save: Save, tmp_path: Path) -> None:
    save(2)
    assert not (tmp_path / "checkpoints" / "best.json").exists()
    save(4, best=4)
    save(6, best=4)
    assert (pointer(tmp_path, "last"), pointer(tmp_path, "best")) == (6, 4)


@pytest.mark.parametrize(("limit", "kept"), [(1, [2, 10]), (2, [2, 8, 10]), (3, [2, 6, 8, 10]), (9, [2, 4, 6, 8, 10])])
def test_the_best_is_kept_and_the_newest_up_to_the_limit(
    save: Save, tmp_path: Path, limit: int, kept: list[int]
) -> None:
    for step in (2, 4, 6, 8, 10):
        save(step, best=2, limit=limit)
    assert steps_kept(tmp_path) == kept


def test_where_the_newest_is_the_best_the_limit_counts_the_ones_before_it(save: Save, tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        save(step, best=step, limit=2)
    assert steps_kept(tmp_path) == [4, 6, 8]


def test_those_at_multiples_of_keep_every_stay_for_good(save: Save, tmp_path: Path) -> None:
    for step in range(1, 10):
        save(step, best=2, limit=2, keep_every=4)
    assert steps_kept(tmp_path) == [2, 4, 7, 8, 9]
    save(10, best=2, limit=2, keep_every=4)
    assert steps_kept(tmp_path) == [2, 4, 8, 9, 10]


def test_a_run_that_went_back_leaves_nothing_behind_its_newest(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (2, 4, 6, 8):
        save(step, best=6, keep_every=2)
    capsys.readouterr()
    save(5, best=4, keep_every=2)
    assert steps_kept(tmp_path) == [2, 4, 5]
    assert find_checkpoint(tmp_path, "last").name == "step-5"
    assert find_checkpoint(tmp_path, "best").name == "step-4"
    assert capsys.readouterr().err == "checkpoints behind step 5 removed, as this run went back: 8, 6\n"
    save(3, keep_every=2)
    assert steps_kept(tmp_path) == [2, 3]
    with pytest.raises(InputError, match="names no best checkpoint yet"):
        find_checkpoint(tmp_path, "best")


def test_a_step_saved_again_replaces_the_folder(save: Save, tmp_path: Path) -> None:
    save(2, content=b"old")
    folder = save(2, content=b"new")
    assert (folder / "model.safetensors").read_bytes() == b"new"
    assert damage(folder) is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if "step" in path.name] == ["step-2"]


# --- which one is found --------------------------------------------------------------------------------------------


def test_last_is_the_newest_and_best_the_one_named(save: Save, tmp_path: Path) -> None:
    for step in (8, 9, 10):  # as numbers, not as text
        save(step, best=9)
    assert find_checkpoint(tmp_path, "last").name == "step-10"
    assert find_checkpoint(tmp_path, "best").name == "step-9"
    third = tmp_path / "checkpoints" / "step-8"
    assert find_checkpoint(tmp_path, str(third)) == third


def flip(path: Path, place: int = -1, *, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(bytes(content))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped byte in the weights": (lambda f: flip(f / "model.safetensors"), "model.safetensors: is damaged"),
    "a flipped byte in the moments": (
        lambda f: flip(f / "training/optimizer-0.safetensors"),
        "optimizer-0.safetensors: is damaged",
    ),
    "a truncated file": (
        lambda f: (f / "training/state.json").write_bytes((f / "training/state.json").read_bytes()[:-20]),
        "state.json: is damaged",
    ),
    "an empty file": (
        lambda f: (f / "training/optimizer-1.safetensors").write_bytes(b""),
        "optimizer-1.safetensors: is damaged",
    ),
    "a missing file": (lambda f: (f / "config.json").unlink(), "config.json: is missing"),
    "a missing manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json: is missing or damaged"),
    "a truncated manifest": (
        lambda f: (f / "manifest.json").write_bytes((f / "manifest.json").read_bytes()[:-20]),
        "manifest.json: is missing or damaged",
    ),
    "a list for a manifest": (
        lambda f: (f / "manifest.json").write_text("[]", encoding="utf-8"),
        "manifest.json: is missing or damaged",
    ),
    "another manifest": (
        lambda f: shutil.copy(f.with_name("step-4") / "manifest.json", f / "manifest.json"),
        "is damaged",
    ),
    "a file of another checkpoint": (
        lambda f: shutil.copy(f.with_name("step-4") / "training/state.json", f / "training/state.json"),
        "state.json: is damaged",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    spoil, message = DAMAGE[name]
    save(4, best=6)
    spoil(save(6, best=6))
    assert find_checkpoint(tmp_path, "last").name == "step-4"
    said = capsys.readouterr().err
    assert said.startswith("warning: ")
    assert "step-6" in said
    assert message in said
    assert "trying the checkpoint before it" in said
    for which in ("best", str(tmp_path / "checkpoints" / "step-6")):
        with pytest.raises(InputError, match="use --resume_from last") as caught:
            find_checkpoint(tmp_path, which)
        assert message in str(caught.value)


def test_a_file_that_the_disk_does_not_give_is_damage(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(4)

    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint, "sha256_of_file", broken)
    assert damage(folder) == f"{folder / 'config.json'}: cannot be read ([Errno 5] Input/output error)"


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_flipped_bit_in_any_of_200_bytes_of_every_file_is_found_and_the_file_named(save: Save) -> None:
    folder, generator = save(4), random.Random(0)
    for path in files_of(folder):
        whole = path.read_bytes()
        places = range(len(whole)) if len(whole) <= 200 else generator.sample(range(len(whole)), 200)
        for place in places:
            flip(path, place, bit=generator.randrange(8))
            assert (damage(folder) or "nothing found").startswith(f"{path}: is "), place
            path.write_bytes(whole)
    assert damage(folder) is None


def test_a_number_written_another_way_is_damage_too(save: Save) -> None:
    folder = save(4)
    manifest = folder / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(before.replace(b'"step": 4', b'"step": 4 ', 1))
    assert damage(folder) == f"{manifest}: is damaged (its hash is not the one in it)"


def test_every_truncation_of_every_file_is_found_and_the_file_named(save: Save) -> None:
    folder, generator = save(4), random.Random(0)
    for path in files_of(folder):
        whole = path.read_bytes()
        for length in {0, 1, len(whole) // 2, len(whole) - 1, *generator.sample(range(len(whole)), 2)} - {len(whole)}:
            path.write_bytes(whole[:length])
            assert (damage(folder) or "nothing found").startswith(f"{path}: is "), length
        path.write_bytes(whole)


def test_every_missing_file_and_every_swap_of_two_is_found(save: Save) -> None:
    older, folder = save(3), save(4)
    for path in files_of(folder):
        whole = path.read_bytes()
        path.unlink()
        assert (damage(folder) or "nothing found").startswith(f"{path}: is missing")
        path.write_bytes(whole)
    for path in files_of(folder):
        whole = path.read_bytes()
        others = [other for other in files_of(folder) if other != path]
        for other in (*others, older / path.relative_to(folder)):
            path.write_bytes(other.read_bytes())
            assert damage(folder) is not None or other.read_bytes() == whole, (path, other)
        path.write_bytes(whole)
    assert damage(folder) is None


def test_a_checkpoint_of_another_format_is_not_read(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(4)
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 3)
    with pytest.raises(InputError, match=r"manifest\.json: has format version 2; this bertkit reads 3"):
        find_checkpoint(tmp_path, str(folder))


def test_where_all_are_damaged_nothing_is_resumed(save: Save, tmp_path: Path) -> None:
    for step in (2, 4):
        flip(save(step) / "model.safetensors")
    with pytest.raises(InputError, match="checkpoints: --resume_from: holds no undamaged checkpoint"):
        find_checkpoint(tmp_path, "last")


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no checkpoint yet(.|\n)*start without --resume_from$"):
        find_checkpoint(tmp_path, "last")
    with pytest.raises(InputError, match=r"names no best checkpoint yet\n  what to do: use --resume_from last"):
        find_checkpoint(tmp_path, "best")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ste'])
def test_a_damaged_pointer_to_the_best_is_an_input_error(save: Save, tmp_path: Path, content: str) -> None:
    save(4, best=4)
    (tmp_path / "checkpoints" / "best.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"best.json: is damaged\n  what to do: use --resume_from last"):
        find_checkpoint(tmp_path, "best")


def test_the_checkpoint_of_another_run_is_refused(save: Save, tmp_path: Path) -> None:
    folder = save(4)
    with pytest.raises(InputError, match="--resume_from: is no checkpoint of this run") as caught:
        find_checkpoint(tmp_path / "other", str(folder))
    assert f"--model_name_or_path {folder}" in str(caught.value)


def test_what_a_kill_left_is_no_checkpoint_and_is_cleared_by_the_next_save(save: Save, tmp_path: Path) -> None:
    whole, folder = save(4), tmp_path / "checkpoints"
    for name in ("step-6.tmp", "step-8.removed", "step-4.old"):
        shutil.copytree(whole, folder / name)
    (folder / ".last.json.77.tmp").touch()
    assert find_checkpoint(tmp_path, "last").name == "step-4"
    save(6)
    assert sorted(path.name for path in folder.iterdir()) == ["last.json", "step-4", "step-6"]


def test_one_moved_aside_when_the_kill_came_is_put_back(save: Save, tmp_path: Path) -> None:
    save(4)
    for how in ("find", "save"):
        save(6).rename(tmp_path / "checkpoints" / "step-6.old")
        if how == "save":
            save(8)
        assert find_checkpoint(tmp_path, "last").name == ("step-6" if how == "find" else "step-8")
        assert steps_kept(tmp_path) == ([4, 6] if how == "find" else [4, 6, 8])


def test_a_name_that_is_none_of_a_checkpoint_is_passed_over(save: Save, tmp_path: Path) -> None:
    save(4)
    for name in ("step-", "step-x", "step-9.bak"):
        (tmp_path / "checkpoints" / name).mkdir()
    (tmp_path / "checkpoints" / "step-7").touch()
    assert find_checkpoint(tmp_path, "last").name == "step-4"


# --- a disk that refuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", ["save_file", "sha256_of_file", "_write_json"])
def test_a_failing_write_leaves_the_checkpoint_before_it_and_nothing_else(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    folder = save(4, best=4)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, fails_at, full)
        with pytest.raises(InputError, match=r"step-6: could not be written \(\[Errno 28\] No space left") as caught:
            save(6, best=6)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert damage(folder) is None
    assert find_checkpoint(tmp_path, "last") == find_checkpoint(tmp_path, "best") == folder
    free = f"{shutil.disk_usage(tmp_path).free:,}"[:-6]  # what is free changes by itself
    assert f"bytes; {free}" in str(caught.value)


def test_a_full_disk_as_safetensors_speaks_of_it_is_an_input_error_too(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise checkpoint.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(InputError, match=r"I/O error: No space left on device"):
        save(6)


def test_a_disk_without_room_is_said_with_need_and_room(tmp_path: Path) -> None:
    checkpoint.require_room(tmp_path, 1, what="this")
    with pytest.raises(InputError, match="has no room for 4 checkpoints; what stands there is as it was") as caught:
        checkpoint.require_room(tmp_path, 10**18, what="4 checkpoints")
    assert re.search(r"expected: 1,000,000,000,000,000,000 bytes; [\d,]+ are free", str(caught.value))
    assert "--save_total_limit" in str(caught.value)


@pytest.mark.parametrize("fails", ["_clear_leftovers", "_remove_old", "_point_at"])
def test_a_disk_that_refuses_what_goes_with_a_save_is_one_message_too(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    save(4)

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint, fails, broken)
    written = fails != "_clear_leftovers"
    message = r"step-6: is written, but last.json" if written else r"step-6: could not be written \(\[Errno 5\]"
    with pytest.raises(InputError, match=message):
        save(6)
    assert find_checkpoint(tmp_path, "last").name == ("step-6" if written else "step-4")


# --- several processes ------------------------------------------------------------------------------------------------


def seen_by(rank: int, *, first: float) -> Any:
    """A Runtime's part of it: the first process's number is `first` (its own, where it is the first)."""
    return SimpleNamespace(is_first=rank == 0, gathered=lambda numbers: [numbers if rank == 0 else [first]])


def test_all_processes_go_on_from_the_checkpoint_that_the_first_finds(save: Save, tmp_path: Path) -> None:
    save(1)
    newest = save(2)
    assert find_checkpoint_on_all(seen_by(0, first=2), tmp_path, "last") == newest
    assert find_checkpoint_on_all(seen_by(1, first=1), tmp_path, "last") == newest.with_name("step-1")
    with pytest.raises(InputError, match="process 0 finds no checkpoint to go on from"):
        find_checkpoint_on_all(seen_by(1, first=-1), tmp_path, "last")
    with pytest.raises(InputError, match="names no best checkpoint yet"):
        find_checkpoint_on_all(seen_by(0, first=-1), tmp_path, "best")


def test_a_checkpoint_under_another_name_is_refused(save: Save, tmp_path: Path) -> None:
    other = save(1).rename(tmp_path / "checkpoints" / "mine")
    with pytest.raises(InputError, match=r"mine: is no checkpoint's name\n  expected: step-N\n  what to do: rename it"):
        find_checkpoint_on_all(seen_by(0, first=-1), tmp_path, str(other))
