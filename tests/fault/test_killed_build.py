"""A build that is killed at any moment ends with the same bytes, and what was finished is not done again."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from toy_data import TOY

from bertkit.data import chunks, helpers, preparation
from bertkit.data.encoding import encode_documents
from bertkit.data.preparation import JOURNAL, PreparationReport, PreparationSettings, prepare_store
from bertkit.data.store import MANIFEST, PARTS
from bertkit.data.store_writer import PROGRESS, StoreWriter
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import make_tokenizer

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
SOURCE = Path(preparation.__file__).parents[2]
SETTINGS = PreparationSettings(shard_tokens=60, word_segmenter="spaces")
# Says that it begins when all is imported, then builds; arguments: text, vocabulary, store.
BUILD = """
import sys
from pathlib import Path
from bertkit.data import chunks, preparation
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer

text, vocabulary, store = sys.argv[1:]
chunks.CHUNK_BYTES = 400
settings = preparation.PreparationSettings(shard_tokens=60, word_segmenter="spaces")
tokenizer = load_tokenizer(vocabulary, do_lower_case=True)
print("begins", flush=True)
preparation.prepare_store(CorpusSettings(input_file=text, format="lines"), tokenizer, Path(store), settings)
"""


class Killed(BaseException):
    """What a killed process would not live to see."""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 400)


def write_corpus(folder: Path, *, documents: int = 40, seed: int = 0) -> CorpusSettings:
    """A document a line, Chinese and English; some have no token, some an unknown character."""
    generator, lines = random.Random(seed), []
    words = ["明月", "几时", "有。", "把酒", "问", "青天。", "in", "the", "beginnings", "God.", "龘"]
    for _ in range(documents):
        lines.append(" ".join(generator.choices(words, k=generator.randint(1, 14))))
        lines += ["\u200b"] * (generator.random() < 0.1)
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CorpusSettings(input_file=str(folder / "text.txt"), format="lines")


def prepared(corpus: CorpusSettings, output: Path, **values: Any) -> PreparationReport:
    return prepare_store(corpus, TOKENIZER, output, replace(SETTINGS, **values))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def finished_shards(*stores: Path) -> dict[str, tuple[int, int]]:
    """The shards that stores, half-built ones too, say are finished, and what tells that a file was written again."""
    found = {}
    for folder in (store / part for store in stores for part in PARTS):
        for file in (folder / MANIFEST, folder / PROGRESS):
            if file.is_file():
                for shard in json.loads(file.read_text(encoding="utf-8"))["shards"]:
                    status = (folder / shard["file"]).stat()
                    found[f"{folder.name}/{shard['file']}"] = (status.st_ino, status.st_mtime_ns)
    return found


# ---- a real process, really killed ----


def killed_builds(tmp_path: Path, *, kills: int) -> int:
    """Kill builds at random moments until there were so many kills; return how many stores were finished by then."""
    write_corpus(tmp_path, documents=150)
    (tmp_path / "vocab.txt").write_bytes(TOY.to_bytes())
    corpus, store = CorpusSettings(input_file=str(tmp_path / "text.txt"), format="lines"), tmp_path / "store"
    began = time.perf_counter()
    prepared(corpus, tmp_path / "wanted")
    longest = time.perf_counter() - began
    wanted, generator, finished, num_killed = contents(tmp_path / "wanted"), random.Random(0), 0, 0
    assert len([name for name in wanted if name.endswith(".arrow")]) > 10
    before: dict[str, tuple[int, int]] = {}
    while num_killed < kills or store.with_name("store.tmp").exists():
        wait = generator.uniform(0, longest / 2) if num_killed < kills else None
        num_killed += run_and_kill(tmp_path, wait)
        after = finished_shards(store, store.with_name("store.tmp"))
        for name, status in before.items():
            assert after[name] == status, f"{name} was written again"
        before = after
        if store.exists() and not store.with_name("store.tmp").exists():
            assert contents(store) == wanted
            shutil.rmtree(store)
            before, finished = {}, finished + 1
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "vocab.txt", "wanted"}
    return finished


def run_and_kill(folder: Path, wait: float | None) -> int:
    """Start a build, kill it after so many seconds (None: let it end); return how many were killed."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", BUILD, *(str(folder / name) for name in ("text.txt", "vocab.txt", "store"))]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"begins\n", process.stderr.read()
        if wait is not None:
            time.sleep(wait)
            process.kill()
        errors = process.stderr.read()
        code = process.wait()
    assert code in (0, -9), errors
    return int(code == -9)


def test_a_build_killed_three_times_ends_with_the_same_bytes(tmp_path: Path, small_chunks: None) -> None:
    assert killed_builds(tmp_path, kills=3) >= 1


@pytest.mark.slow
def test_fifty_kills_do_no_harm(tmp_path: Path, small_chunks: None) -> None:
    """Promise A6."""
    assert killed_builds(tmp_path, kills=50) >= 1


# ---- every moment at which a file changes ----


@contextmanager
def killed_at(moment: int) -> Iterator[list[str]]:
    """From the `moment`-th change of a file on, nothing is done any more, as if the process were gone."""
    calls: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (os, ["replace", "fsync"]),
            (Path, ["unlink", "mkdir", "write_bytes"]),
            (shutil, ["rmtree"]),
        ):
            for name in names:
                patch.setattr(owner, name, counted(vars(owner)[name], name, calls, moment))
        yield calls


def counted(original: Callable[..., Any], name: str, calls: list[str], moment: int) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) > moment:
            raise Killed
        return original(*arguments, **named)

    return call


def assert_no_harm(
    tmp_path: Path, corpus: CorpusSettings, wanted: dict[str, bytes], moment: int, *, older: bool
) -> bool:
    """Kill at this moment, build again; return whether the build was still going on then."""
    store = tmp_path / "store"
    if older:
        prepared(write_corpus(tmp_path / "older", documents=5, seed=1), store)
        of_older = contents(store)
    try:
        with killed_at(moment):
            prepared(corpus, store)
        was_killed = False
    except Killed:
        was_killed = True
    before = finished_shards(store.with_name("store.tmp"))
    if older and was_killed:  # the older store is where it was, or aside, whole
        aside = store if store.exists() else store.with_name("store.old")
        assert contents(aside) in (of_older, wanted)
    prepared(corpus, store)
    assert contents(store) == wanted
    after = finished_shards(store)
    assert all(after[name] == status for name, status in before.items())
    assert {path.name for path in tmp_path.iterdir()} - {"text.txt", "wanted", "older"} == {"store"}
    shutil.rmtree(store)
    return was_killed


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_a_kill_at_any_change_of_a_file_does_no_harm(
    tmp_path: Path, small_chunks: None, every: int, older: bool
) -> None:
    (tmp_path / "older").mkdir()
    corpus = write_corpus(tmp_path, documents=12)
    prepared(corpus, tmp_path / "wanted")
    wanted = contents(tmp_path / "wanted")
    moment = 0
    while assert_no_harm(tmp_path, corpus, wanted, moment, older=older):
        moment += every
    assert moment > 50


# ---- what is gone on with, and what is not ----


def stopped_build(corpus: CorpusSettings, store: Path, *, shards: int, **values: Any) -> Path:
    """A build that is killed when it has written so many shards; returns the half-built folder."""
    written = StoreWriter._written
    calls = iter(range(shards))

    def killing(self: StoreWriter, parts: list[Any]) -> Any:
        if next(calls, None) is None:
            raise Killed
        return written(self, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreWriter, "_written", killing)
        with pytest.raises(Killed):
            prepared(corpus, store, **values)
    folder = store.with_name(f"{store.name}.tmp")
    assert (folder / JOURNAL).is_file()
    return folder


def test_the_build_that_goes_on_says_so_and_encodes_only_the_rest(
    tmp_path: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path)
    whole = prepared(corpus, tmp_path / "wanted")
    stopped_build(corpus, tmp_path / "store", shards=4)
    encoded: list[str] = []
    monkeypatch.setattr(
        helpers,
        "encode_documents",
        lambda documents, settings: encoded.extend(d.id for d in documents) or encode_documents(documents, settings),
    )
    capsys.readouterr()
    report = prepared(corpus, tmp_path / "store")
    assert "going on with the build that was stopped: " in capsys.readouterr().err
    assert contents(tmp_path / "store") == contents(tmp_path / "wanted")
    assert report.rows() == whole.rows()
    assert report.documents_kept > 3
    assert len(encoded) == len(set(encoded)) == dict(whole.rows())["documents"] - report.documents_kept


def test_unknown_characters_of_the_rest_are_not_passed_off_as_those_of_the_whole(
    tmp_path: Path, small_chunks: None
) -> None:
    corpus = write_corpus(tmp_path)
    whole = prepared(corpus, tmp_path / "wanted")
    assert "  unknown characters (1 different), the most frequent: 龘 " in whole.text()
    stopped_build(corpus, tmp_path / "store", shards=4)
    report = prepared(corpus, tmp_path / "store")
    assert 0 < report.unknown_characters["龘"] < whole.unknown_characters["龘"]
    assert (
        f"unknown characters after the {report.documents_kept} documents of the stopped build (1 diff" in report.text()
    )


def test_a_build_with_another_key_begins_anew(
    tmp_path: Path, small_chunks: None, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path)
    prepared(corpus, tmp_path / "wanted", validation_split=False)
    folder = stopped_build(corpus, tmp_path / "store", shards=3)
    assert finished_shards(folder)
    capsys.readouterr()
    prepared(corpus, tmp_path / "store", validation_split=False)
    assert "going on" not in capsys.readouterr().err
    assert contents(tmp_path / "store") == contents(tmp_path / "wanted")
    assert not folder.exists()


@pytest.mark.parametrize("changed", ["text", "shard_tokens", "word_segmenter"])
def test_whatever_matters_changed_nothing_of_the_stopped_build_is_used(
    tmp_path: Path, small_chunks: None, changed: str
) -> None:
    corpus = write_corpus(tmp_path)
    stopped_build(corpus, tmp_path / "store", shards=3)
    values: dict[str, Any] = {"shard_tokens": {"shard_tokens": 90}, "word_segmenter": {"word_segmenter": "none"}}.get(
        changed, {}
    )
    if changed == "text":
        corpus = write_corpus(tmp_path, seed=2)
    prepared(corpus, tmp_path / "store", **values)
    prepared(corpus, tmp_path / "wanted", **values)
    assert contents(tmp_path / "store") == contents(tmp_path / "wanted")


def test_another_number_of_workers_goes_on_with_the_same_build(tmp_path: Path, small_chunks: None) -> None:
    corpus = write_corpus(tmp_path)
    prepared(corpus, tmp_path / "wanted")
    before = finished_shards(stopped_build(corpus, tmp_path / "store", shards=3))
    prepared(corpus, tmp_path / "store", workers=2)
    after = finished_shards(tmp_path / "store")
    assert len(before) == 3
    assert all(after[name] == status for name, status in before.items())
    assert contents(tmp_path / "store") == contents(tmp_path / "wanted")


def test_the_hashes_of_a_killed_build_are_not_left_in_the_store(
    tmp_path: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path)
    prepared(corpus, tmp_path / "wanted")
    monkeypatch.setattr("bertkit.data.repeats.HELD", 5)
    monkeypatch.setattr(TemporaryDirectory, "cleanup", lambda self: self._finalizer.detach())
    folder = stopped_build(corpus, tmp_path / "store", shards=3)
    assert [*folder.glob(".hashes-*/*")]
    monkeypatch.undo()
    prepared(corpus, tmp_path / "store")
    assert contents(tmp_path / "store") == contents(tmp_path / "wanted")
    assert {path.name for path in (tmp_path / "store").iterdir() if path.is_dir()} == {*PARTS}


def test_a_problem_of_the_input_leaves_nothing_of_the_build(tmp_path: Path, small_chunks: None) -> None:
    (tmp_path / "text.jsonl").write_text('{"text": "明月。"}\n' * 60 + '{"text": 7}\n', encoding="utf-8")
    corpus = CorpusSettings(input_file=str(tmp_path / "text.jsonl"), format="jsonl")
    with pytest.raises(InputError, match=r"text.jsonl:61: text: the field holds a number"):
        prepared(corpus, tmp_path / "store", shard_tokens=5)
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]


# ---- a worker that is killed ----


class BreakingPool:
    """An executor of which a process is killed after some pieces of work."""

    def __init__(self, pieces: int) -> None:
        self._pieces = iter(range(pieces))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if next(self._pieces, None) is None:
            future.set_exception(BrokenProcessPool("A process in the process pool was terminated abruptly"))
        else:
            future.set_result(function(*arguments))
        return future


def test_a_killed_worker_is_said_and_what_is_finished_is_kept(
    tmp_path: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, store = write_corpus(tmp_path), tmp_path / "store"
    prepared(corpus, tmp_path / "wanted")

    @contextmanager
    def breaking(*, workers: int, dask: str | None, at_start: Callable[[], None]) -> Iterator[tuple[Executor, int]]:
        at_start()  # (this pool is this process)
        yield BreakingPool(4), workers  # type: ignore[misc]

    with monkeypatch.context() as patch:
        patch.setattr(helpers, "open_executor", breaking)
        with pytest.raises(
            InputError,
            match=r"--workers: a process that tokenized was ended from outside .*\n  value: 2\n.*run the same",
        ):
            prepared(corpus, store, workers=2)
    before = finished_shards(store.with_name("store.tmp"))
    assert len(before) > 1
    prepared(corpus, store)
    after = finished_shards(store)
    assert all(after[name] == status for name, status in before.items())
    assert contents(store) == contents(tmp_path / "wanted")
