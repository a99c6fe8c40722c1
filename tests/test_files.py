"""Files and folders that are whole or absent."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit import files
from bertkit.errors import InputError


@given(content=st.one_of(st.binary(), st.text(st.characters(exclude_categories=["Cs"]))))
def test_what_is_written_is_what_is_read(content: bytes | str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("files") / "深" / "诗.txt"
    files.write_atomically(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode("utf-8"))


def test_a_write_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    files.write_atomically(tmp_path / "a", "one")
    files.write_atomically(str(tmp_path / "a"), "two")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("a", "two")]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_atomically(tmp_path / "a", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(tmp_path / "a", "new")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("a", "old")]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_kill_at_any_call_leaves_the_old_content_or_the_new(tmp_path: Path, call: str) -> None:
    for nth in range(1, 4):
        path = tmp_path / f"{call}-{nth}"
        path.write_text("old" * 1000, encoding="utf-8")
        code = (
            "import os, sys, signal\nfrom bertkit import files\n"
            f"real, left = os.{call}, [{nth}]\n"
            "def call(*a):\n"
            "    left[0] -= 1\n"
            "    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return real(*a)\n"
            f"os.{call} = call\n"
            "files.write_atomically(sys.argv[1], 'new' * 1000)\n"
        )
        subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True)
        assert path.read_text(encoding="utf-8") in ("old" * 1000, "new" * 1000)


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with files.directory_written_atomically(target) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "a").write_text("明月", encoding="utf-8")
        assert not target.exists()
    assert (target / "part" / "a").read_text(encoding="utf-8") == "明月"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_folder_replaces_the_one_that_stands_there(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with files.directory_written_atomically(tmp_path / "store") as folder:
            (folder / name).touch()
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_an_exception_leaves_the_old_folder(tmp_path: Path) -> None:
    with files.directory_written_atomically(tmp_path / "store") as folder:
        (folder / "old").touch()

    def fail(folder: Path) -> None:
        (folder / "new").touch()
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), files.directory_written_atomically(tmp_path / "store") as folder:
        fail(folder)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_the_hash_is_the_one_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00\xff" * 100_000)
    assert files.sha256_of_file(tmp_path / "a") == hashlib.sha256(b"\x00\xff" * 100_000).hexdigest()


def test_a_required_file_must_exist_and_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert files.require_file(str(tmp_path / "a"), what="a text", remedy="write it") == tmp_path / "a"
    with pytest.raises(InputError, match="absent: does not exist\n  expected: a text\n  what to do: write it"):
        files.require_file(tmp_path / "absent", what="a text", remedy="write it")
    with pytest.raises(InputError, match="is not a file"):
        files.require_file(tmp_path, what="a text", remedy="write it")


def test_a_folder_moved_aside_by_a_killed_replacement_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "store.old").mkdir()
    (tmp_path / "store.old" / "kept").write_text("诗", encoding="utf-8")
    with pytest.raises(OSError, match="full"), files.directory_written_atomically(tmp_path / "store"):
        raise OSError("full")
    assert (tmp_path / "store" / "kept").read_text(encoding="utf-8") == "诗"
    assert not (tmp_path / "store.old").exists()


def test_a_failed_replacement_leaves_the_folder_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files.directory_written_atomically(tmp_path / "store") as folder:
        (folder / "kept").touch()
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == "store.tmp":
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="Input/output error"), files.directory_written_atomically(tmp_path / "store"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert (tmp_path / "store" / "kept").exists()


@pytest.mark.parametrize("call", [files.fsync_file, files.fsync_directory])
def test_what_the_disk_does_not_take_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], None]
) -> None:
    path = tmp_path / "a" if call is files.fsync_file else tmp_path
    (tmp_path / "a").touch()

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error") as caught:
        call(path)
    assert caught.value.filename == str(path)


def test_naming_leaves_a_name_and_an_error_without_a_number_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="other") as caught, files.naming(tmp_path / "a"):
        raise OSError(28, "full", "other")
    assert caught.value.filename == "other"
    with pytest.raises(OSError, match=r"^full$"), files.naming(tmp_path / "a"):
        raise OSError("full")


def test_free_bytes_are_those_of_the_disk_where_something_would_stand(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert abs(files.free_bytes(tmp_path / "not" / "yet") - free) < free / 2


def test_a_lock_is_held_by_one_and_let_go_at_the_end(tmp_path: Path) -> None:
    path, order = tmp_path / "locks" / "a.lock", []

    def second() -> None:
        with files.locked(path):
            order.append("second")

    with files.locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_killed_holder_lets_the_lock_go(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom bertkit import files\n"
        "with files.locked(Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.lock")], capture_output=True)
    with files.locked(tmp_path / "a.lock"):
        pass


def test_a_folder_can_be_made_only_where_none_of_its_parents_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (tmp_path, tmp_path / "new", tmp_path / "new" / "deeper"):
        files.require_folder_or_nothing(place, flag="--output_dir")
    monkeypatch.chdir(tmp_path)
    files.require_folder_or_nothing(Path("new/deeper"), flag="--output_dir")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("link", "link/deeper"):
        with pytest.raises(InputError, match=r"link: --output_dir: is no folder"):
            files.require_folder_or_nothing(tmp_path / name, flag="--output_dir")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"--output_dir: cannot be written to"):
        files.require_folder_or_nothing(tmp_path / "new", flag="--output_dir")
