"""The store: round trip, shards, what other tools see, and each kind of damage named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_data import Documents, documents_of, encoded, flat, memory_store, written_store

from bertkit.data.store import MANIFEST, open_parts, open_store, read_manifest
from bertkit.data.store_writer import StoreWriter
from bertkit.errors import InputError
from bertkit.files import sha256_of_file

POEMS = [[[20, 21, 22], [23, 24]], [[25]], [[30, 6, 32, 33], [34, 35], [36, 6]], [[40, 41]]]
CORPORA = st.lists(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), min_size=1, max_size=5), min_size=1, max_size=8
)


def tables(directory: Path) -> list[pa.Table]:
    return [pa.ipc.open_file(str(path)).read_all() for path in sorted(directory.glob("shard-*.arrow"))]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


# ---- laws ----


@settings(deadline=None, max_examples=30)
@given(CORPORA, st.integers(1, 30))
def test_what_is_written_is_read_again_however_many_shards(
    tmp_path_factory: pytest.TempPathFactory, documents: Documents, shard_tokens: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = written_store(directory, documents, shard_tokens=shard_tokens)
    assert documents_of(store) == documents == documents_of(memory_store(documents))
    assert store.num_documents == len(documents)
    assert store.num_sentences == sum(map(len, documents))
    assert store.num_tokens == len(flat(documents))
    assert store.sentences_per_document.tolist() == [len(document) for document in documents]
    rows = [row for table in tables(directory) for row in table.to_pylist()]
    assert [row["input_ids"] for row in rows] == [flat([document]) for document in documents]
    # No document crosses the end of a shard, and a shard of several documents keeps to the size asked for.
    for table in tables(directory):
        sizes = [len(row["input_ids"]) for row in table.to_pylist()]
        assert len(sizes) == 1 or sum(sizes) <= shard_tokens


@settings(deadline=None, max_examples=30)
@given(CORPORA, st.integers(1, 30), st.data())
def test_spans_are_read_alike_from_one_shard_and_from_many(
    tmp_path_factory: pytest.TempPathFactory, documents: Documents, shard_tokens: int, data: st.DataObject
) -> None:
    store = written_store(tmp_path_factory.mktemp("store"), documents, shard_tokens=shard_tokens)
    tokens = flat(documents)
    bounds = st.tuples(st.integers(0, len(tokens)), st.integers(0, len(tokens))).map(sorted)
    spans = data.draw(st.lists(bounds, max_size=6))
    starts, ends = np.array([s for s, _ in spans], np.int64), np.array([e for _, e in spans], np.int64)
    found = store.tokens(starts, ends)
    assert found.dtype == np.int64
    assert found.tolist() == [token for start, end in spans for token in tokens[start:end]]


def test_the_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written_store(tmp_path / name, POEMS, shard_tokens=5)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(contents(tmp_path / "one")) == 5  # four shards and the manifest


def test_a_document_larger_than_a_shard_has_one_to_itself(tmp_path: Path) -> None:
    written_store(tmp_path, POEMS, shard_tokens=1)
    assert [table.num_rows for table in tables(tmp_path)] == [1, 1, 1, 1]


# ---- what other tools see ----


def test_pyarrow_opens_the_shards_as_they_are(tmp_path: Path) -> None:
    written_store(tmp_path, POEMS, shard_tokens=8)
    files = sorted(str(path) for path in tmp_path.glob("*.arrow"))
    assert len(files) == 3
    table = pa.dataset.dataset(files, format="arrow").to_table()
    assert table.to_pylist()[2] == {
        "id": "poems.txt:2",
        "input_ids": [30, 6, 32, 33, 34, 35, 36, 6],
        "sentence_lengths": [4, 2, 2],
    }
    assert table.num_rows == 4


@pytest.mark.parametrize(("vocab_size", "type"), [(21_128, "uint16"), (2**16, "uint16"), (2**16 + 1, "uint32")])
def test_ids_take_two_bytes_where_they_fit(tmp_path: Path, vocab_size: int, type: str) -> None:
    writer = StoreWriter(tmp_path, vocab_size=vocab_size, unk_id=1)
    ids = np.array([0, 65_535, vocab_size - 1], dtype=np.uint32)
    writer.add(encoded([[ids.tolist()]]))
    writer.close(vocabulary_hash="")
    assert str(tables(tmp_path)[0].schema.field("input_ids").type.value_type) == type
    assert documents_of(open_store(tmp_path)) == [[ids.tolist()]]


def test_the_manifest_holds_the_counts_and_the_hash_of_every_shard(tmp_path: Path) -> None:
    manifest = written_store(tmp_path, POEMS, shard_tokens=8).manifest
    assert manifest == read_manifest(tmp_path)
    totals = {"documents": 4, "sentences": 7, "tokens": 16, "unknown_tokens": 2}
    assert {name: manifest[name] for name in totals} == totals
    assert {name: sum(shard[name] for shard in manifest["shards"]) for name in totals} == totals
    assert (manifest["format_version"], manifest["vocab_size"], manifest["vocabulary_sha256"]) == (1, 100, "0" * 64)
    for shard in manifest["shards"]:
        assert shard["sha256"] == sha256_of_file(tmp_path / shard["file"])


def test_a_part_without_documents_is_an_empty_store(tmp_path: Path) -> None:
    store = written_store(tmp_path, [])
    assert (store.num_documents, store.num_sentences, store.num_tokens) == (0, 0, 0)
    assert store.tokens(np.array([0]), np.array([0])).tolist() == []


def test_tokens_are_mapped_and_not_copied(tmp_path: Path) -> None:
    store = written_store(tmp_path, POEMS)
    assert store.shard_tokens[0].dtype == np.uint16
    assert not store.shard_tokens[0].flags.owndata


def test_a_document_without_a_token_is_counted_and_not_written(tmp_path: Path) -> None:
    store = written_store(tmp_path, [[[5, 6]], [], [[7]]])
    assert documents_of(store) == [[[5, 6]], [[7]]]
    assert (store.manifest["documents"], store.manifest["documents_without_tokens"]) == (2, 1)
    assert store.manifest["documents_of_one_sentence"] == 2


@settings(deadline=None, max_examples=30)  # (it waits for the disk)
@given(st.lists(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=3), max_size=12), st.data())
def test_the_shards_do_not_depend_on_how_documents_are_handed_over(documents: list[Any], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(documents)))
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        for folder, parts in ((one, [documents]), (two, [documents[:cut], documents[cut:]])):
            writer = StoreWriter(Path(folder), vocab_size=100, unk_id=1, shard_tokens=7)
            given_before = 0
            for part in parts:
                ids = [f"{given_before + number}" for number in range(len(part))]
                writer.add(replace(encoded(part), ids=ids))
                given_before += len(part)
            writer.close(vocabulary_hash="")
        files = [{path.name: path.read_bytes() for path in Path(folder).iterdir()} for folder in (one, two)]
        assert files[0] == files[1]


def test_a_writer_goes_on_behind_the_shards_of_a_killed_one(tmp_path: Path) -> None:
    written_store(tmp_path / "whole", POEMS, shard_tokens=8)
    killed = StoreWriter(tmp_path / "part", vocab_size=100, unk_id=6, shard_tokens=8)
    killed.add(encoded(POEMS[:3]))  # what does not fill a shard is lost with the process
    again = StoreWriter(tmp_path / "part", vocab_size=100, unk_id=6, shard_tokens=8)
    assert 0 < again.num_given < 3
    rest = encoded(POEMS).between(again.num_given, len(POEMS))
    again.add(rest)
    again.close(vocabulary_hash="0" * 64)
    files = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("whole", "part")]
    assert files[0] == files[1]


def test_a_part_that_was_finished_is_not_written_again(tmp_path: Path) -> None:
    written_store(tmp_path, POEMS, shard_tokens=8)
    before = {path.name: (path.stat().st_ino, path.read_bytes()) for path in tmp_path.iterdir()}
    again = StoreWriter(tmp_path, vocab_size=100, unk_id=6, shard_tokens=8)
    assert again.num_given == len(POEMS)
    again.close(vocabulary_hash="0" * 64)
    assert sorted(before) == sorted(path.name for path in tmp_path.iterdir())
    for name, (number, content) in before.items():
        assert (tmp_path / name).read_bytes() == content
        assert (tmp_path / name).stat().st_ino == number or name == MANIFEST


def test_what_was_dropped_before_a_kill_is_still_counted(tmp_path: Path) -> None:
    documents: Documents = [[], [[1, 2, 3, 4, 5, 6]], [], [[7]], [[8, 9, 10]], []]
    for folder, cuts in (("whole", [6]), ("killed", [2, 4, 5, 6])):
        for end in cuts:  # (each writer but the last is dropped as if killed)
            writer = StoreWriter(tmp_path / folder, vocab_size=100, unk_id=6, shard_tokens=6)
            writer.add(encoded(documents).between(writer.num_given, end))
        manifest = writer.close(vocabulary_hash="")
        assert (manifest["documents"], manifest["documents_without_tokens"]) == (3, 3)
        assert manifest["documents_of_one_sentence"] == 3
    assert contents(tmp_path / "whole") == contents(tmp_path / "killed")


# ---- what can be wrong ----


def test_an_older_store_of_this_format_knows_no_words(tmp_path: Path) -> None:
    written_store(tmp_path, POEMS)
    manifest = read_manifest(tmp_path)
    del manifest["has_word_starts"]
    (tmp_path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    assert open_store(tmp_path).shard_word_starts == []


def damaged(path: Path, **changes: object) -> None:
    manifest = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(manifest), encoding="utf-8")


def one_bit_flipped(directory: Path) -> None:
    shard = directory / "shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(bytes([30, 0, 6, 0, 32, 0]))] ^= 1  # a token of the third document
    shard.write_bytes(content)


def one_document_less(directory: Path) -> None:
    other = directory.parent / "other"
    written_store(other, POEMS[:2])
    (other / "shard-00000.arrow").rename(directory / "shard-00000.arrow")


def as_a_stream(directory: Path) -> None:
    table = tables(directory)[0]
    with pa.OSFile(str(directory / "shard-00000.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)


def without_a_column(directory: Path) -> None:
    table = tables(directory)[0].drop_columns(["input_ids"])
    with pa.OSFile(str(directory / "shard-00000.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def without_rows(directory: Path) -> None:
    table = tables(directory)[0]
    with pa.OSFile(str(directory / "shard-00000.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema):
        pass


def cut_short(directory: Path) -> None:
    path = directory / "shard-00000.arrow"
    path.write_bytes(path.read_bytes()[:-100])


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda d: (d / MANIFEST).unlink(), "holds no finished store\n  expected: a folder with manifest.json.*prepare"),
    (lambda d: damaged(d / MANIFEST, format_version=7), "format_version: .*another format version\n  value: 7\n.* 1\n"),
    (lambda d: (d / MANIFEST).write_text("{"), "manifest.json: is damaged.*\n.*bertkit prepare"),
    (lambda d: (d / MANIFEST).write_text("[1]"), "manifest.json: is damaged.*\n.*bertkit prepare"),
    (lambda d: (d / "shard-00000.arrow").unlink(), "shard-00000.arrow: is missing or damaged .*No such file"),
    (lambda d: (d / "shard-00000.arrow").write_bytes(b""), "shard-00000.arrow: is missing or damaged"),
    (cut_short, "shard-00000.arrow: is missing or damaged .*\n.*bertkit prepare"),
    (as_a_stream, "shard-00000.arrow: is missing or damaged"),
    (without_a_column, "shard-00000.arrow: is missing or damaged .*input_ids"),
    (without_rows, "shard-00000.arrow: is missing or damaged"),
    (one_bit_flipped, "shard-00000.arrow: is damaged: its SHA-256 is not that of manifest.json"),
    (one_document_less, "holds 2 documents and 6 tokens\n  expected: 4 and 16, as manifest.json says"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_store_that_is_not_whole_is_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    directory = tmp_path / "store"
    written_store(directory, POEMS)
    damage(directory)
    with pytest.raises(InputError, match=f"(?s){message}") as caught:
        open_store(directory)
    assert caught.value.remedy


def whole_store(directory: Path, **documents: int) -> Path:
    for part, number in documents.items():
        written_store(directory / part, POEMS[:number])
    counts = {part: {"documents": documents.get(part, 0)} for part in ("train", "validation", "test")}
    (directory / MANIFEST).write_text(json.dumps({"format_version": 1, "parts": counts}), encoding="utf-8")
    return directory


def test_only_parts_with_documents_are_opened(tmp_path: Path) -> None:
    parts = open_parts(whole_store(tmp_path, train=4, validation=0, test=1))
    assert {name: store.num_documents for name, store in parts.items()} == {"train": 4, "test": 1}


def test_a_store_without_training_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has an empty training part\n.*--validation_split false"):
        open_parts(whole_store(tmp_path, train=0, test=2))


def test_a_folder_that_is_no_whole_store_is_refused(tmp_path: Path) -> None:
    store = whole_store(tmp_path / "store", train=4)
    with pytest.raises(InputError, match=r"train: is no whole store: .*\n.*\n.*name the folder above, .*store$"):
        open_parts(store / "train")
    (tmp_path / MANIFEST).write_text('{"format_version": 1, "step": 7}', encoding="utf-8")
    with pytest.raises(InputError, match=r"is no whole store: its manifest.json names no parts\n.*\n.*another folder"):
        open_parts(tmp_path)
