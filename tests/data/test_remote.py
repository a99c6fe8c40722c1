"""Stores that lie elsewhere: copied once, checked, opened like any other."""

from pathlib import Path

import fsspec
import pytest
from toy_run import write_store

from bertkit.data.remote import local_store
from bertkit.data.store import open_parts
from bertkit.errors import InputError


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A store on disk, and the URL of its copy in fsspec's memory file system."""
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    store = write_store(tmp_path)
    url = f"memory://{tmp_path.name}/store"
    file_system, root = fsspec.core.url_to_fs(url)
    for file in store.rglob("*"):
        if file.is_file():
            file_system.pipe_file(f"{root}/{file.relative_to(store).as_posix()}", file.read_bytes())
    return store, url


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert local_store(str(tmp_path)) == tmp_path


def test_a_remote_store_is_copied_whole_and_only_once(
    remote: tuple[Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, url = remote
    copy = local_store(url)
    assert contents(copy) == contents(store)
    assert open_parts(copy).keys() == open_parts(store).keys()
    assert local_store(url) == copy
    assert "copied before" in capsys.readouterr().err


def test_a_damaged_shard_is_named_and_nothing_stays(remote: tuple[Path, str], tmp_path: Path) -> None:
    _, url = remote
    file_system, root = fsspec.core.url_to_fs(url)
    file_system.pipe_file(f"{root}/train/shard-00000.arrow", b"not a shard")
    with pytest.raises(InputError, match=r"train/shard-00000.arrow: is damaged"):
        local_store(url)
    assert list((tmp_path / "cache" / "stores").iterdir()) == []


@pytest.mark.parametrize("url", ["memory://nowhere/store", "nosuchprotocol://bucket/store"])
def test_a_url_without_a_store_is_an_error_with_the_way_out(url: str) -> None:
    with pytest.raises(InputError, match=r"--data_dir: gives no store.*\n.*\n.*\n.*s3fs"):
        local_store(url)
