"""Finished instances: the same as training sees, and the same when they are read back from either format."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_data import TOY, memory_store, song_ci_like_store, toy_ids, vocabulary_of

from bertkit.data import export
from bertkit.data.export import Instance, store_instances, write_instances
from bertkit.data.google import GoogleReport, GoogleSettings, google_instances
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.errors import InputError
from bertkit.tasks.pretraining import PretrainingSource
from bertkit.text.tokenizer import make_tokenizer

STORE, VOCABULARY = song_ci_like_store(documents=60), vocabulary_of(6000)
FORMATS: list[Literal["jsonl", "parquet"]] = ["jsonl", "parquet"]
COLUMNS = ["input_ids", "token_type_ids", "attention_mask", "next_sentence_label", "labels"]


def exported(*, pairing: Any = "segment", seed: int = 1, epochs: int = 1) -> list[Instance]:
    pairs = PairSettings(pairing=pairing, max_seq_length=64)
    return list(store_instances(STORE, pairs, MaskingSettings(), VOCABULARY, seed=seed, epochs=epochs))


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of either format, columns in their order."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_hand() -> list[Instance]:
    """A Chinese pair and an English one, a token hidden in the first and two in the second."""
    moon, sky = toy_ids("明月"), toy_ids("青天")
    god, earth = toy_ids("god"), toy_ids("the earth")
    rows = []
    for a, b, label, positions in [(moon, sky, 1, [2]), (god, earth, 0, [1, 4])]:
        ids = np.array([TOY.cls_id, *a, TOY.sep_id, *b, TOY.sep_id], np.int32)
        types = np.array([0] * (len(a) + 2) + [1] * (len(b) + 1), np.int8)
        places = np.array(positions, np.int32)
        originals = ids[places]
        ids[places] = TOY.mask_id
        rows.append(Instance(ids, types, label, places, originals))
    return rows


# ---- the same as training sees -----------------------------------------------------------------------------------


def rows_of_training(*, pairing: Any, epochs: int) -> list[tuple[Any, ...]]:
    """(epoch, ids, types, label, positions, originals) of every row that a training of so many epochs takes."""
    source = PretrainingSource(
        STORE,
        VOCABULARY,
        PairSettings(pairing=pairing, max_seq_length=64),
        MaskingSettings(),
        seed=1,
        batch_size=7,
        micro_batch_tokens=300,
    )
    rows: list[tuple[Any, ...]] = []
    for step in range(source.steps_of_epochs(epochs)):
        batches = source.step(step)
        for batch in batches.micro_batches:
            width = batch["input_ids"].shape[1]
            mask = batch.get("attention_mask")
            for place, ids in enumerate(batch["input_ids"].tolist()):
                length = width if mask is None else int(mask[place].sum())
                here = batch["mlm_positions"] // width == place
                label = batch["next_sentence_label"][place].item() if "next_sentence_label" in batch else None
                positions = (batch["mlm_positions"][here] % width).tolist()
                types = batch["token_type_ids"][place, :length].tolist()
                rows.append((ids[:length], types, label, positions, batch["mlm_targets"][here].tolist()))
    return rows


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_the_instances_are_the_rows_that_training_sees(pairing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 50)
    found = [
        (
            instance.input_ids.tolist(),
            instance.token_type_ids.tolist(),
            instance.next_sentence_label,
            instance.masked_lm_positions.tolist(),
            instance.masked_lm_ids.tolist(),
        )
        for instance in exported(pairing=pairing, epochs=2)
    ]
    trained = rows_of_training(pairing=pairing, epochs=2)
    assert len(found) > 200
    # A step's rows come longest first in training; apart from that the order is the same.
    assert sorted(map(repr, found)) == sorted(map(repr, trained))
    assert sorted(map(repr, found[:7])) == sorted(map(repr, trained[:7]))
    assert sorted(map(repr, found[7:14])) == sorted(map(repr, trained[7:14]))


def test_the_instances_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported()
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 3)
    assert [i.input_ids.tolist() for i in exported()] == [i.input_ids.tolist() for i in whole]


def test_epochs_differ_and_come_one_after_the_other() -> None:
    one, two = exported(epochs=1), exported(epochs=2)
    ids = [instance.input_ids.tolist() for instance in two]
    assert ids[: len(one)] == [instance.input_ids.tolist() for instance in one]
    assert len(two) > len(one)
    assert ids[len(one) : 2 * len(one)] != ids[: len(one)]


def test_no_epoch_makes_no_instance() -> None:
    with pytest.raises(InputError, match="epochs: makes no instance\n  value: 0\n  expected: 1 or more"):
        exported(epochs=0)


def test_a_store_without_pairs_is_an_error_before_a_file_is_begun(tmp_path: Path) -> None:
    store = memory_store([[toy_ids("明月几时有")]])
    instances = store_instances(store, PairSettings(), MaskingSettings(), TOY, seed=0, epochs=1)
    with pytest.raises(InputError, match="next-sentence pairs are impossible here: 1 document"):
        write_instances(instances, tmp_path / "train.jsonl", format="jsonl")
    assert list(tmp_path.iterdir()) == []


# ---- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_the_columns_of_a_chinese_and_an_english_row(format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    path = tmp_path / f"train.{format}"
    assert write_instances(by_hand(), path, format=format) == 2
    [moon], [bright], [blue], [sky] = map(toy_ids, "月明青天")
    god, (the, earth) = toy_ids("god"), toy_ids("the earth")
    cls, sep, mask = TOY.cls_id, TOY.sep_id, TOY.mask_id
    first, second = read(path)
    assert list(first) == COLUMNS
    assert first == {
        "input_ids": [cls, bright, mask, sep, blue, sky, sep],
        "token_type_ids": [0, 0, 0, 0, 1, 1, 1],
        "attention_mask": [1] * 7,
        "next_sentence_label": 1,
        "labels": [-100, -100, moon, -100, -100, -100, -100],
    }
    assert second == {
        "input_ids": [cls, mask, sep, the, mask, sep],
        "token_type_ids": [0, 0, 0, 1, 1, 1],
        "attention_mask": [1] * 6,
        "next_sentence_label": 0,
        "labels": [-100, *god, -100, -100, earth, -100],
    }


@pytest.mark.parametrize("format", FORMATS)
def test_padding_fills_up_every_column(format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    path = tmp_path / f"train.{format}"
    write_instances(by_hand(), path, format=format, pad_to=9, pad_id=TOY.ids["[unused1]"])
    write_instances(by_hand(), tmp_path / f"plain.{format}", format=format)
    for row, plain in zip(read(path), read(tmp_path / f"plain.{format}"), strict=True):
        more = 9 - len(plain["input_ids"])
        fill = {"input_ids": TOY.ids["[unused1]"], "token_type_ids": 0, "attention_mask": 0, "labels": -100}
        for name, value in fill.items():
            assert row[name] == plain[name] + [value] * more
        assert row["next_sentence_label"] == plain["next_sentence_label"]


@pytest.mark.parametrize("format", FORMATS)
def test_googles_columns_come_on_demand(format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    path = tmp_path / f"train.{format}"
    instances = exported()
    write_instances(instances, path, format=format, with_positions=True, pad_to=64, pad_id=0)
    rows = read(path)
    assert list(rows[0]) == [*COLUMNS, "masked_lm_positions", "masked_lm_ids"]
    for row, instance in zip(rows, instances, strict=True):
        assert row["masked_lm_positions"] == instance.masked_lm_positions.tolist()
        assert row["masked_lm_ids"] == instance.masked_lm_ids.tolist()
        assert [row["labels"][place] for place in row["masked_lm_positions"]] == row["masked_lm_ids"]
        assert sum(label != -100 for label in row["labels"]) == len(row["masked_lm_ids"])


@pytest.mark.parametrize("rows_at_once", [1, 7, 4096])
def test_both_formats_hold_the_same_rows_however_many_are_written_at_once(
    rows_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = exported()
    monkeypatch.setattr(export, "ROWS_AT_ONCE", rows_at_once)
    for format in FORMATS:
        assert write_instances(iter(instances), tmp_path / f"train.{format}", format=format) == len(instances)
    rows = read(tmp_path / "train.parquet")
    assert rows == read(tmp_path / "train.jsonl")
    assert [row["input_ids"] for row in rows] == [instance.input_ids.tolist() for instance in instances]
    groups = pq.ParquetFile(tmp_path / "train.parquet").num_row_groups
    assert groups == -(-len(instances) // rows_at_once)


def test_the_types_of_parquet(tmp_path: Path) -> None:
    write_instances(by_hand(), tmp_path / "train.parquet", format="parquet", with_positions=True)
    schema = pq.read_schema(tmp_path / "train.parquet")
    found = {field.name: field.type.value_type if pa.types.is_list(field.type) else field.type for field in schema}
    assert found == {
        "input_ids": pa.int32(),
        "token_type_ids": pa.int8(),
        "attention_mask": pa.int8(),
        "next_sentence_label": pa.int64(),
        "labels": pa.int32(),
        "masked_lm_positions": pa.int32(),
        "masked_lm_ids": pa.int32(),
    }


@pytest.mark.parametrize("format", FORMATS)
def test_texts_without_b_have_no_column_of_labels_for_it(format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    write_instances(exported(pairing="none"), tmp_path / f"train.{format}", format=format)
    rows = read(tmp_path / f"train.{format}")
    assert list(rows[0]) == ["input_ids", "token_type_ids", "attention_mask", "labels"]
    assert all(not any(row["token_type_ids"]) for row in rows)


@pytest.mark.parametrize("format", FORMATS)
def test_googles_instances_are_written_too(format: Literal["jsonl", "parquet"], tmp_path: Path) -> None:
    documents = [["明月几时有", "把酒问青天"], ["In the beginning", "god created the heavens"]]
    instances = google_instances(
        documents, make_tokenizer(TOY, do_lower_case=True), GoogleSettings(do_whole_word_mask=True), GoogleReport()
    )
    path = tmp_path / f"train.{format}"
    assert write_instances(instances, path, format=format) == len(instances)
    assert [row["input_ids"] for row in read(path)] == [instance.input_ids.tolist() for instance in instances]


def test_a_row_with_nothing_hidden_has_no_label(tmp_path: Path) -> None:
    nothing = np.array([], np.int32)
    row = Instance(np.array([1, 2, 3], np.int32), np.array([0, 0, 0], np.int8), 0, nothing, nothing)
    for format in FORMATS:
        path = tmp_path / f"train.{format}"
        write_instances([row], path, format=format, with_positions=True)
        [found] = read(path)
        assert found["labels"] == [-100] * 3
        assert (found["masked_lm_positions"], found["masked_lm_ids"]) == ([], [])


@pytest.mark.parametrize("format", FORMATS)
def test_an_exception_among_the_instances_leaves_the_old_file(
    format: Literal["jsonl", "parquet"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 1)
    path = tmp_path / "deep" / f"train.{format}"
    write_instances(by_hand()[:1], path, format=format)
    old = path.read_bytes()

    def broken() -> Iterator[Instance]:
        yield from by_hand()
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_instances(broken(), path, format=format)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == old
    write_instances(by_hand(), path, format=format)
    assert len(read(path)) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_memory_does_not_grow_with_the_number_of_instances(
    format: Literal["jsonl", "parquet"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 64)
    [row, _] = by_hand()

    def peak(instances: int) -> int:
        tracemalloc.start()
        write_instances((row for _ in range(instances)), tmp_path / f"train.{format}", format=format)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(128)  # imports and caches
    assert peak(4096) < peak(256) + 500_000  # an instance takes some 200 bytes in the file


def test_an_instance_longer_than_the_padding_is_never_cut(tmp_path: Path) -> None:
    message = "--pad_to: an instance of 7 tokens does not fit\n  value: 6\n  expected: at least --max_seq_length"
    with pytest.raises(InputError, match=message):
        write_instances(by_hand(), tmp_path / "train.jsonl", format="jsonl", pad_to=6, pad_id=0)
    assert list(tmp_path.iterdir()) == []


def test_padding_needs_the_id_it_pads_with(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="pad_to needs the id"):
        write_instances(by_hand(), tmp_path / "train.jsonl", format="jsonl", pad_to=9)


def test_no_instance_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train\.jsonl: no instance to write"):
        write_instances([], tmp_path / "train.jsonl", format="jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"is a folder\n  expected: the name of a file\n  what to do: name .*train\.parquet"
    ):
        write_instances(by_hand(), tmp_path, format="parquet")
