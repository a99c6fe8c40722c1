"""`bertkit prepare` writes a store, its settings and the corpus report."""

import json
from pathlib import Path

import numpy as np
import pytest
from toy_data import TOY

from bertkit.commands.prepare import Config, run
from bertkit.data import chunks
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.preparation import PreparationSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.options import values_of
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer


@pytest.fixture
def text(tmp_path: Path) -> CorpusSettings:
    (tmp_path / "vocab.txt").write_bytes(TOY.to_bytes())
    (tmp_path / "poems.txt").write_text("明月几时有。把酒问青天。\n\nGod created heaven.\n明月。\n", encoding="utf-8")
    return CorpusSettings(input_file=str(tmp_path / "poems.txt"), format="lines")


def config_of(tmp_path: Path, text: CorpusSettings, **changes: object) -> Config:
    settings = {"tokenizer": str(tmp_path / "vocab.txt"), "output_dir": str(tmp_path / "store"), "corpus": text}
    return Config(**(settings | {"preparation": PreparationSettings(validation_split=False)} | changes))  # type: ignore[arg-type]


def test_the_report_and_the_next_command_are_printed(
    tmp_path: Path, text: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run(config_of(tmp_path, text))
    store = tmp_path / "store"
    *rows, where, following = capsys.readouterr().out.splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "lines read 4",
        "lines kept 3",
        "lines dropped: blank line 1",
        "documents 3",
        "sentences dropped: no token in them 0",
        "documents dropped: no token in them 0",
        "documents of one sentence (only ever a random B) 2",
        "documents that repeat an earlier one 0",
        "sentences 4",
        "sentences in a document, mean 1.3",
        "tokens in a sentence, mean 4.8",
        "tokens 19",
        "[UNK] among the tokens 0.00 %",
        "documents for train 3",
        "documents for validation 0",
        "documents for test 0",
    ]
    assert where == f"store: {store}"
    assert following == f"next: bertkit pretrain --data_dir {store} --output_dir RUN"


def test_the_store_opens_and_its_settings_run_it_again(tmp_path: Path, text: CorpusSettings) -> None:
    import yaml

    run(config_of(tmp_path, text))
    assert open_parts(tmp_path / "store")["train"].num_tokens == 19
    settings = yaml.safe_load((tmp_path / "store" / "settings.yaml").read_text(encoding="utf-8"))
    assert settings == values_of(config_of(tmp_path, text))
    assert settings["validation_split"] is False


def test_the_same_command_again_replaces_its_own_store(tmp_path: Path, text: CorpusSettings) -> None:
    for _ in range(2):
        run(config_of(tmp_path, text))
    assert open_parts(tmp_path / "store")["train"].num_documents == 3


def test_lower_casing_is_as_the_user_says_and_goes_with_the_store(tmp_path: Path, text: CorpusSettings) -> None:
    run(config_of(tmp_path, text, do_lower_case=False))
    assert open_parts(tmp_path / "store")["train"].manifest["unknown_tokens"] == 1  # God
    assert load_tokenizer(tmp_path / "store").do_lower_case is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": "nowhere"}, "nowhere: does not exist\n.*tokenizer.json or vocab.txt"),
        ({"corpus": CorpusSettings()}, "--input_file: no text was given"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(
    tmp_path: Path, text: CorpusSettings, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(config_of(tmp_path, text, **changes))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": PairSettings(max_seq_length=64)}, "--max_seq_length: has no effect here: a store holds no pairs"),
        ({"seed": 7, "dupe_factor": 2}, "--dupe_factor, --seed: has no effect here"),
        ({"export": "jsonl", "dupe_factor": 0}, "--dupe_factor: makes no instance"),
        ({"export": "jsonl", "pad_to": 12}, "--pad_to: is shorter than --max_seq_length 128"),
        (
            {"export": "jsonl", "masking": MaskingSettings(final_mlm_probability=0.1)},
            "--final_mlm_probability: be",
        ),
        ({"compat": "google"}, "--compat google: makes instances only"),
        (
            {"compat": "google", "export": "jsonl", "pairs": PairSettings(pairing="sop")},
            "--pairing: has no effect with --compat google",
        ),
        (
            {"compat": "google", "export": "jsonl", "masking": MaskingSettings(masking="span")},
            "--masking: is no scheme of Google's builder",
        ),
    ],
)
def test_settings_without_effect_are_refused_before_any_work(
    tmp_path: Path, text: CorpusSettings, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        config_of(tmp_path, text, **changes)


def test_instances_are_exported_beside_the_store(tmp_path: Path, text: CorpusSettings) -> None:
    run(config_of(tmp_path, text, export="jsonl", pairs=PairSettings(max_seq_length=16), dupe_factor=2))
    lines = (tmp_path / "store" / "instances" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 2
    assert json.loads(lines[0]).keys() >= {"input_ids", "token_type_ids", "attention_mask", "labels"}


def test_google_mode_writes_instances_and_no_store(tmp_path: Path, text: CorpusSettings) -> None:
    run(config_of(tmp_path, text, export="parquet", compat="google"))
    assert (tmp_path / "store" / "instances.parquet").is_file()
    assert not (tmp_path / "store" / "train").exists()


def test_an_empty_training_part_is_said(
    tmp_path: Path, text: CorpusSettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "parts_of", lambda digests, *, validation_split: np.full(len(digests), 2))
    run(config_of(tmp_path, text))
    captured = capsys.readouterr()
    assert "no document fell to the training part; prepare again with --validation_split false" in captured.err
    assert "next: bertkit pretrain" not in captured.out
