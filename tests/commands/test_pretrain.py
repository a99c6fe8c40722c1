"""`bertkit pretrain` as it is typed: flags, exit codes, raw text through the cache."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from toy_run import (
    metrics_of,
    stopped_before,
    toy_config,
    toy_documents,
    toy_model_config,
    toy_tokenizer,
    write_corpus,
    write_model_config,
    write_store,
)
from toy_tasks import write_base

from bertkit.cli import main
from bertkit.commands import pretrain as command
from bertkit.commands.pretrain import Config, pretrain
from bertkit.data import preparation
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings

QUICK = ("--max_seq_length", "32", "--batch_size", "8", "--max_steps", "2", "--eval_rows", "8")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("command"))


@pytest.fixture
def size(tmp_path: Path) -> str:
    return str(write_model_config(tmp_path / "size.json"))


def typed(*words: object) -> int:
    return main(["pretrain", *map(str, words)])


def test_the_results_go_to_standard_output_and_the_tale_to_standard_error(
    store: Path, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("--data_dir", store, "--output_dir", tmp_path / "run", "--model_size", size, *QUICK) == 0
    captured = capsys.readouterr()
    results = json.loads((tmp_path / "run" / "eval_results.json").read_text(encoding="utf-8"))
    shown = dict(line.split() for line in captured.out.split("\n") if len(line.split()) == 2)
    assert shown["masked_lm_loss"] == f"{results['masked_lm_loss']:.4f}"
    assert shown["global_step"] == str(results["global_step"])
    assert f"model: {tmp_path / 'run'}" in captured.out
    assert "validation: MLM loss" in captured.err
    assert "validation: MLM loss" not in captured.out


def test_a_report_is_written_or_how_to_get_one_is_said(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    command.run(toy_config(store, tmp_path / "with", max_steps=1))
    assert f"report: {tmp_path / 'with' / 'report.html'}" in capsys.readouterr().out
    monkeypatch.setattr("bertkit.report.page.plotly_is_installed", lambda: False)
    command.run(toy_config(store, tmp_path / "without", max_steps=1))
    captured = capsys.readouterr()
    assert "report:" not in captured.out
    assert 'no report.html was written: pip install "bertkit[report]"' in captured.err


# --- how long ------------------------------------------------------------------------------------------------------


def settings_of(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((run / "settings.yaml").read_text(encoding="utf-8"))
    return values


def test_epochs_become_steps_and_these_are_written_down(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"num_train_epochs": 0.5, "max_steps": None, "eval_every": None}
    pretrain(toy_config(store, tmp_path / "run", **values))
    assert "0.5 epochs are 6 steps" in capsys.readouterr().err
    written = settings_of(tmp_path / "run")
    assert (written["max_steps"], written["num_train_epochs"]) == (6, None)
    assert (written["eval_every"], written["save_every"]) == (1, 1)
    pretrain(toy_config(store, tmp_path / "steps", max_steps=6, eval_every=None))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "steps")


def test_where_no_length_is_given_it_is_ten_epochs(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.DEFAULT_EPOCHS == 10
    monkeypatch.setattr(command, "DEFAULT_EPOCHS", 0.25)
    pretrain(toy_config(store, tmp_path / "run", max_steps=None, eval_every=None))
    assert "0.25 epochs are 3 steps" in capsys.readouterr().err


def test_there_are_ten_evaluations_unless_asked_otherwise(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=20, eval_every=None))
    assert [row["step"] for row in metrics_of(tmp_path / "run", kind="validation")] == list(range(0, 21, 2))


# --- resuming ------------------------------------------------------------------------------------------------------


def test_a_run_is_resumed_by_its_own_settings_file(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with stopped_before(8):
        pretrain(toy_config(store, run, save_every=5))
    before = (run / "settings.yaml").read_bytes()
    assert typed("--config_file", run / "settings.yaml", "--resume_from", "last") == 0
    assert (run / "settings.yaml").read_bytes() == before
    pretrain(toy_config(store, tmp_path / "straight", save_every=5))
    assert metrics_of(run) == metrics_of(tmp_path / "straight")


def test_flags_go_before_the_settings_file_of_a_run_that_is_not_resumed(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    file, model = tmp_path / "run" / "settings.yaml", tmp_path / "run"
    small = write_model_config(tmp_path / "small.json", replace(toy_model_config(), num_hidden_layers=1))
    for number, words in enumerate([("--recipe", "bert"), ("--model_size", small)]):
        assert typed("--config_file", file, "--output_dir", tmp_path / f"{number}", *words) == 0
    assert json.loads((tmp_path / "1" / "config.json").read_text("utf-8"))["num_hidden_layers"] == 1
    words = ("--model_size", "tiny", "--model_name_or_path", model)
    assert typed("--config_file", file, "--output_dir", tmp_path / "on", *words) == 0
    assert settings_of(tmp_path / "on")["model_name_or_path"] == str(model)


def test_a_model_folder_that_is_not_there_is_named_by_its_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "text.txt", toy_documents())
    assert typed("--input_file", "text.txt", "--model_name_or_path", "./nope", "--output_dir", "run") == 2
    assert "--model_name_or_path: does not exist\n  value: './nope'" in capsys.readouterr().err


def test_a_finished_run_resumed_is_evaluated_again_and_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = pretrain(toy_config(store, run))
    lines = (run / "metrics.jsonl").read_bytes()
    assert pretrain(toy_config(store, run, resume_from="last")) == first
    assert (run / "metrics.jsonl").read_bytes() == lines


def test_a_resume_that_cannot_know_its_length_is_refused_and_touches_nothing(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(toy_config(store, run))
    (run / "settings.yaml").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"settings.yaml: is missing, so the length of the run is not known"):
        pretrain(toy_config(store, run, resume_from="last", max_steps=None, max_minutes=1.0))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_resume_that_names_another_beginning_is_refused_with_both(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with stopped_before(8):
        pretrain(toy_config(store, run, save_every=5))
    began = settings_of(run)["model_size"]
    before = (run / "metrics.jsonl").read_bytes()
    for flag, value, first in (
        ("--model_size", "small", began),
        ("--model_size", "tiny", began),
        ("--model_name_or_path", "a/b", "null"),
        ("--recipe", "bert", "muon"),
    ):
        assert typed("--output_dir", run, "--resume_from", "last", flag, value) == 2
        said = capsys.readouterr().err
        assert f"{flag}: contradicts the run that is resumed\n  value: '{value}'\n  expected: {first}, as when" in said
    assert (run / "metrics.jsonl").read_bytes() == before
    assert typed("--output_dir", run, "--resume_from", "last", "--model_size", began, "--recipe", "muon") == 0


def test_a_run_is_found_again_from_another_folder(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.parent)
    with stopped_before(8):
        pretrain(toy_config(Path(store.name), tmp_path / "run", save_every=5))
    assert settings_of(tmp_path / "run")["data_dir"] == str(store)
    monkeypatch.chdir(tmp_path)
    assert typed("--output_dir", "run", "--resume_from", "last") == 0


def test_an_inexact_resume_is_what_the_settings_say_from_then_on(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with stopped_before(8):
        pretrain(toy_config(store, run, save_every=5))
    before = settings_of(run)
    assert typed("--output_dir", run, "--resume_from", "last", "--learning_rate", "0.002", "--max_steps", 14) == 2
    assert settings_of(run) == before
    flags = ("--learning_rate", "0.002", "--max_steps", 14, "--allow_inexact", "true")
    assert typed("--output_dir", run, "--resume_from", "last", *flags) == 0
    assert settings_of(run) == {**before, "learning_rate": 0.002, "max_steps": 14}
    assert typed("--output_dir", run, "--resume_from", "last") == 0


def test_the_tracker_is_closed_when_a_run_fails(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr("bertkit.train.log.MetricsLog.close", lambda self: closed.append(True))
    with stopped_before(2):
        pretrain(toy_config(store, tmp_path / "run"))
    assert closed == [True]


def test_resuming_what_was_never_begun_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--resume_from: does not exist"):
        pretrain(toy_config(store, tmp_path / "run", resume_from="last"))


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_folder_that_holds_a_run_is_not_written_over(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"run: --output_dir: holds a run already") as caught:
        pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    assert "--resume_from last, or name another folder" in str(caught.value)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_run_does_not_write_over_the_model_it_starts_from(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    model = tmp_path / "model"
    (tmp_path / "run").rename(model)
    (model / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"is the model that training starts from, which the run would overwrite"):
        pretrain(toy_config(store, model, model_name_or_path=f"{model}/../model"))


def test_a_pickle_is_gone_on_from_only_by_its_flag(store: Path, tmp_path: Path) -> None:
    safe, pickled = write_base(tmp_path / "safe"), write_base(tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"(?s)pytorch_model\.bin: is a pickle.*--allow_bin"):
        pretrain(toy_config(store, tmp_path / "refused", model_name_or_path=str(pickled), max_steps=2))
    expected = pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(safe), max_steps=2))
    wish = toy_config(store, tmp_path / "again", model_name_or_path=str(pickled), max_steps=2, allow_bin=True)
    assert pretrain(wish) == pytest.approx(expected)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "run/model.safetensors").read_bytes()


@pytest.mark.parametrize("given", [(), ("--data_dir", "store", "--input_file", "poems.txt")])
def test_a_store_or_raw_text_is_needed_and_not_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    assert typed("--output_dir", tmp_path / "run", *given) == 2
    assert "--data_dir, --input_file: give a store or raw text, one of the two" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_raw_text_needs_a_tokenizer(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "poems.txt", toy_documents())
    with pytest.raises(InputError, match="--tokenizer: is needed to turn --input_file into ids") as caught:
        pretrain(toy_config(None, tmp_path / "run", input_file=corpus.input_file))
    assert "bertkit vocab --input_file" in str(caught.value)


def test_a_store_that_is_none_is_an_error_with_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("--data_dir", tmp_path / "absent", "--output_dir", tmp_path / "run") == 2
    assert "absent: holds no finished store" in capsys.readouterr().err


def test_an_evaluation_of_no_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--eval_rows: evaluates nothing\n  value: 0"):
        Config(output_dir=str(tmp_path), eval_rows=0)


def test_a_corpus_without_pairs_ends_with_exit_code_two_and_trains_without_them(
    tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_store(tmp_path, ["明月照江楼。", "the moon sees the tower."] * 5, validation_split=False)
    words = ("--data_dir", store, "--output_dir", tmp_path / "run", "--model_size", size, *QUICK)
    assert typed(*words) == 2
    said = capsys.readouterr().err
    assert "10 of 10 documents have one sentence: 0 true pairs" in said
    assert "train with `--pairing none` (masked-LM only)" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()
    assert typed(*words, "--pairing", "none") == 0


def test_a_run_reports_to_tensorboard(store: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    pretrain(toy_config(store, tmp_path / "run", max_steps=2, report_to="tensorboard"))
    assert any("tfevents" in path.name for path in (tmp_path / "run" / "tensorboard").rglob("*"))


# --- raw text ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Any]:
    corpus = write_corpus(tmp_path / "poems.txt", toy_documents())
    (tmp_path / "vocab.txt").write_bytes(toy_tokenizer().vocabulary.to_bytes())
    return {
        "input_file": corpus.input_file,
        "format": "lines",
        "tokenizer": str(tmp_path / "vocab.txt"),
        "do_lower_case": True,
        "max_steps": 2,
    }


def test_raw_text_is_prepared_once_and_found_again(
    cache: Path,
    raw: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretrain(toy_config(None, tmp_path / "first", **raw))
    [store] = (cache / "stores").iterdir()
    assert "documents for train" in capsys.readouterr().err
    monkeypatch.setattr(preparation, "prepare_store", None)
    pretrain(toy_config(None, tmp_path / "second", **raw))
    assert f"store: {store} (prepared before from the same text, tokenizer and settings)" in capsys.readouterr().err
    assert metrics_of(tmp_path / "first") == metrics_of(tmp_path / "second")


def test_raw_text_trains_as_the_store_prepared_from_it(cache: Path, raw: dict[str, Any], tmp_path: Path) -> None:
    pretrain(toy_config(None, tmp_path / "raw", **raw))
    store = write_store(tmp_path / "prepared")
    pretrain(toy_config(store, tmp_path / "store", max_steps=2))
    assert metrics_of(tmp_path / "raw") == metrics_of(tmp_path / "store")


@pytest.mark.parametrize("change", ["text", "split"])
def test_other_text_or_settings_are_prepared_anew(
    cache: Path, raw: dict[str, Any], tmp_path: Path, change: str
) -> None:
    pretrain(toy_config(None, tmp_path / "first", **raw))
    if change == "text":
        write_corpus(tmp_path / "poems.txt", toy_documents(seed=8))
    else:
        raw["validation_split"] = False
    pretrain(toy_config(None, tmp_path / "second", **raw))
    assert len(list((cache / "stores").iterdir())) == 2


def test_the_tokenizer_of_the_model_serves_raw_text(
    cache: Path, raw: dict[str, Any], store: Path, tmp_path: Path
) -> None:
    pretrain(toy_config(store, tmp_path / "model", max_steps=1))
    del raw["tokenizer"], raw["do_lower_case"]
    pretrain(toy_config(None, tmp_path / "run", model_name_or_path=str(tmp_path / "model"), **raw))
    assert (tmp_path / "run" / "vocab.txt").read_bytes() == (tmp_path / "model" / "vocab.txt").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": CorpusSettings(format="lines")}, "--format: has no effect with --data_dir"),
        ({"tokenizer": "vocab.txt"}, "--tokenizer: has no effect with --data_dir"),
        ({"model_name_or_path": "m", "model_size": "base"}, "--model_size: has no effect with --model_name_or_path"),
        ({"masking": MaskingSettings(mlm_probability=0)}, "--mlm_probability: hides nothing"),
        (
            {"pairs": PairSettings(static=True), "masking": MaskingSettings(final_mlm_probability=0.1)},
            "--static and --final_mlm_probability: contradict",
        ),
    ],
)
def test_settings_without_effect_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config(output_dir="run", data_dir="store", **changes)  # type: ignore[arg-type]


def test_the_tokenizer_of_a_store_is_checked_against_its_ids(tmp_path: Path) -> None:
    store = write_store(tmp_path)
    vocabulary = (store / "vocab.txt").read_text(encoding="utf-8").splitlines()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (store / name).unlink()
    (store / "vocab.txt").write_text("\n".join([*vocabulary[:5], *vocabulary[:4:-1]]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"vocab.txt: is not the vocabulary that the ids of the store are of"):
        pretrain(toy_config(store, tmp_path / "run", max_steps=1))


def test_a_damaged_settings_file_is_named_on_resume(tmp_path: Path) -> None:
    config = toy_config(write_store(tmp_path), tmp_path / "run", max_steps=2)
    pretrain(config)
    (tmp_path / "run" / "settings.yaml").write_text("max_steps: [\n", encoding="utf-8")
    training = replace(config.training, resume_from="last", max_steps=None)
    with pytest.raises(InputError, match=r"settings.yaml: is damaged, so the length of the run is not known"):
        pretrain(replace(config, training=training))
