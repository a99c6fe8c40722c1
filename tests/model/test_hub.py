"""Models of the hub: what is an id, what is fetched, what is said when it cannot be; no test needs a network."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.hub import model_directory, push_to_hub
from bertkit.model.pretrained import build, load, model_files, save

REVISION = "0123456789abcdef0123456789abcdef01234567"
CONFIG = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)


def model_of() -> Any:
    torch.manual_seed(0)
    return build(CONFIG, head="pretraining")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub, offline, that holds one model, its files behind links as the hub's library lays them."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "hub" / "models--lizhiyi--ci"
    snapshot = model / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION, encoding="utf-8")
    for n, (name, content) in enumerate(model_files(model_of()).items()):
        blob = f"{n}" * (40 if name == "config.json" else 64)
        (model / "blobs" / blob).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return tmp_path / "hub"


def test_a_model_of_the_cache_is_loaded_by_its_id(cache: Path) -> None:
    for name in ("lizhiyi/ci", "lizhiyi/ci@main", f"lizhiyi/ci@{REVISION}"):
        assert model_directory(name) == cache / "models--lizhiyi--ci" / "snapshots" / REVISION
        assert model_files(load(name)) == model_files(model_of())


def test_the_folder_of_the_cache_can_be_named_too(cache: Path) -> None:
    folder = cache / "models--lizhiyi--ci" / "snapshots" / REVISION
    assert model_files(load(folder)) == model_files(model_of())


@pytest.mark.parametrize("name", ["lizhiyi/nothing", "lizhiyi/ci@other"])
def test_a_model_that_cannot_be_had_is_an_error_with_the_ways_out(cache: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"(?s){name}: is no folder here, and the hub did not give it.*HF_HUB_OFFLINE"):
        load(name)


def test_an_error_of_the_network_is_told_as_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(InputError, match=r"the hub did not give it \(OSError: no route to host\)"):
        load("lizhiyi/ci")


@pytest.mark.parametrize("name", ["runs/demo", "./a/b", "demo", "/a/b", "a/b/c", "a b/c", "a/..", "../b", "hub/x"])
def test_a_path_asks_nothing_of_the_hub(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    Path("runs").mkdir()
    assert model_directory(name) == Path(name)
    assert model_directory(Path("lizhiyi/ci")) == Path("lizhiyi/ci")


def test_only_files_of_a_model_are_fetched_and_a_pickle_only_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, list[str]]] = []

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model_directory("lizhiyi/ci@v1")
    assert [(name, revision) for name, revision, _ in asked] == [("lizhiyi/ci", "v1")]
    assert not [pattern for pattern in asked[0][2] if pattern.startswith("*") or "bin" in pattern or ".py" in pattern]
    model_directory("lizhiyi/ci", allow_pickle_weights=True)
    assert "pytorch_model.bin" in asked[2][2]
    (tmp_path / "model.safetensors").write_bytes(b"")
    model_directory("lizhiyi/ci", allow_pickle_weights=True)
    assert len(asked) == 4


def test_a_folder_is_put_on_the_hub_with_the_files_of_a_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    class Api:
        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
            said.append((repo_id, private, exist_ok))
            return f"https://hub/{repo_id}"

        def upload_folder(self, *, repo_id: str, folder_path: Path, allow_patterns: list[str]) -> None:
            said.append((repo_id, folder_path, allow_patterns))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(InputError, match=r"has no config\.json\n  expected: a model folder"):
        push_to_hub(tmp_path, "lizhiyi/ci", private=True)
    save(tmp_path, model_of(), files={"README.md": b"", "secret.txt": b""})
    assert push_to_hub(tmp_path, "lizhiyi/ci", private=True) == "https://hub/lizhiyi/ci"
    assert said[0] == ("lizhiyi/ci", True, True)
    assert said[1][:2] == ("lizhiyi/ci", tmp_path)
    assert {"config.json", "model.safetensors", "vocab.txt", "README.md"} <= set(said[1][2])
    assert not [pattern for pattern in said[1][2] if pattern.startswith("*")]

    def refuse(self: Api, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        raise HFValidationError("Repo id must use alphanumeric chars")

    monkeypatch.setattr(Api, "create_repo", refuse)
    with pytest.raises(InputError, match=r"(?s)was not taken by the hub \(HFValidationError: Repo id.*hf auth login"):
        push_to_hub(tmp_path, "a b", private=False)
