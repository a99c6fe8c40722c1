"""A run put together: what stands in its folder, what it says, where it starts from, what it refuses."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from toy_run import (
    StopError,
    metrics_of,
    stopped_before,
    toy_config,
    toy_documents,
    toy_model_config,
    toy_tokenizer,
    write_model_config,
    write_store,
)

from bertkit.commands.pretrain import pretrain
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import build, load, save
from bertkit.tasks.held_out import GOOGLE_NAMES, evaluate
from bertkit.text.documents import part_of
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.train import loop, run
from bertkit.train.log import MetricsLog

MODEL_FILES = {
    *("config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "README.md")
}
TOKENIZER = toy_tokenizer()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def finished(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    pretrain(toy_config(store, run, save_every=4, optimizer="muon"))
    return run


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# --- what stands in the folder -------------------------------------------------------------------------------------


def test_the_folder_of_a_run_holds_what_is_promised(finished: Path) -> None:
    records = {"settings.yaml", "run.json", "metrics.jsonl", "eval_results.json", "eval_results.txt", "report.html"}
    found = {path.name for path in finished.iterdir() if path.name != "tensorboard"}
    assert found - {"report.html"} == (records | MODEL_FILES | {"checkpoints"}) - {"report.html"}
    best = read(finished / "eval_results.json")["global_step"]
    folders = {f"step-{step}" for step in (6, 8, 12)}  # the best is one evaluated at 6 and 12; two besides it are kept
    assert {path.name for path in (finished / "checkpoints").iterdir()} == folders | {"best.json", "last.json"}
    training = {"optimizer-0.safetensors", "optimizer-1.safetensors", "state.json"}
    for folder in sorted(folders):
        place = finished / "checkpoints" / folder
        assert {path.name for path in place.iterdir()} == MODEL_FILES | {"manifest.json", "training"}
        assert {path.name for path in (place / "training").iterdir()} == training
    assert read(finished / "checkpoints" / "last.json") == {"step": 12}
    assert read(finished / "checkpoints" / "best.json") == {"step": best}


def test_the_best_model_stands_in_the_run_itself(finished: Path) -> None:
    best = min(metrics_of(finished, kind="validation")[1:], key=lambda row: row["loss"])["step"]
    assert read(finished / "eval_results.json")["global_step"] == best
    folder = finished / "checkpoints" / f"step-{best}"
    for name in MODEL_FILES - {"README.md"}:
        assert (finished / name).read_bytes() == (folder / name).read_bytes()
    assert "Not evaluated yet" in (folder / "README.md").read_text(encoding="utf-8")
    results = read(finished / "eval_results.json")
    assert "| learning rate of Muon | 0.0100 |" in (finished / "README.md").read_text(encoding="utf-8")
    assert f"| masked_lm_loss | {results['masked_lm_loss']:.4f} |" in (finished / "README.md").read_text(
        encoding="utf-8"
    )


def test_the_results_are_those_of_the_best_model_on_the_test_part_by_googles_names(finished: Path, store: Path) -> None:
    model = load(finished)
    assert isinstance(model, PretrainingModel)
    pairs = PairSettings(max_seq_length=32)
    found = evaluate(model, open_parts(store)["test"], vocabulary=TOKENIZER.vocabulary, pairs=pairs)
    results = read(finished / "eval_results.json")
    assert {name: results[name] for name in GOOGLE_NAMES.values()} == {
        GOOGLE_NAMES[name]: value for name, value in found.metrics.items()
    }
    assert {"masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy", "next_sentence_loss", "loss"} <= set(
        results
    )
    assert (results["part"], results["pairs"]) == ("test", found.counts["nsp"])
    assert results["masked_tokens"] == found.counts["mlm"]
    lines = (finished / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{name} = {results[name]}" for name in sorted(results)]


def test_run_json_says_what_repeats_the_run_and_what_came_of_it(finished: Path, store: Path) -> None:
    facts = read(finished / "run.json")
    settings = yaml.safe_load((finished / "settings.yaml").read_text(encoding="utf-8"))
    assert facts["settings"] == settings
    assert settings["max_steps"] == 12
    assert facts["store"] == {"directory": str(store), "key": read(store / "manifest.json")["key"]}
    assert (facts["seed"], facts["steps"], facts["threads"]) == (12345, 12, torch.get_num_threads())
    assert facts["best_step"] == read(finished / "eval_results.json")["global_step"]
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["precision"] == "fp32"
    assert facts["vocab_size"] == TOKENIZER.vocabulary.size
    tensors = load_file(finished / "model.safetensors")
    assert facts["parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert 0 < facts["unigram_loss"] < math.log(TOKENIZER.vocabulary.size)
    assert facts["tokens"] == metrics_of(finished, kind="train")[-1]["tokens"]


def test_each_evaluation_fills_the_same_masks(finished: Path) -> None:
    rows = metrics_of(finished, kind="samples")
    assert [row["step"] for row in rows] == [0, 6, 12]
    masked = [[sample["masked"] for sample in row["samples"]] for row in rows]
    assert masked[0] == masked[1] == masked[2]
    assert 1 <= len(masked[0]) <= 4
    assert all("[MASK]" in text for text in masked[0])


# --- what is said --------------------------------------------------------------------------------------------------


def test_a_new_models_losses_are_compared_with_guessing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, initialization="normal"))
    said = capsys.readouterr().err
    first = metrics_of(tmp_path / "run", kind="validation")[0]
    guess = math.log(TOKENIZER.vocabulary.size)
    assert f"\nbefore training: mlm_loss {first['mlm_loss']:.3f}, a model that guesses has {guess:.3f}\n" in said
    assert f"\nbefore training: nsp_loss {first['nsp_loss']:.3f}, a model that guesses has 0.693\n" in said
    assert abs(first["mlm_loss"] - guess) < 0.3
    assert abs(first["nsp_loss"] - math.log(2)) < 0.1


def test_a_new_model_that_does_not_guess_is_warned_of(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {**toy_model_config().to_json(), "initializer_range": 3.0}
    (tmp_path / "wild.json").write_text(json.dumps(values), encoding="utf-8")
    size = str(tmp_path / "wild.json")
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, model_size=size, initialization="normal"))
    assert "warning: before training: mlm_loss" in capsys.readouterr().err


def test_the_data_and_the_model_are_described(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain(toy_config(store, tmp_path / "run", max_steps=2))
    said = capsys.readouterr().err
    train = open_parts(store)["train"]
    size = f"{train.num_documents} documents, {train.num_tokens:,} tokens"
    assert f"data: {size}, 0.00 % [UNK]; pairing segment, 40 % hidden" in said
    assert f"vocabulary {TOKENIZER.vocabulary.size}; adamw, 2 steps of 8 rows on" in said
    assert "step 2, validation: MLM loss" in said
    assert "evaluating the best model (step 2) on the test part" in said


def test_an_empty_held_out_part_is_said_and_another_takes_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(toy_config(write_store(tmp_path, validation_split=False), tmp_path / "run", max_steps=2))
    said = capsys.readouterr().err
    assert "warning: no validation and no test part can be used (none in the store, or left out)" in said
    assert "all figures are of the training text" in said
    assert "step 2, train: MLM loss" in said
    assert read(tmp_path / "run" / "run.json")["evaluated_on"] == "train"
    assert read(tmp_path / "run" / "eval_results.json")["part"] == "train"


def test_a_held_out_part_without_pairs_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = toy_documents()
    single = [d for d in documents if part_of(d, validation_split=True) == "validation"][:1]
    others = [d for d in documents if part_of(d, validation_split=True) != "validation"]
    store = write_store(tmp_path, others + single)
    pretrain(toy_config(store, tmp_path / "run", max_steps=2))
    said = capsys.readouterr().err
    assert "warning: a held-out part is left out: next-sentence pairs are impossible here: 1 document" in said
    assert "warning: no validation part can be used" in said
    assert read(tmp_path / "run" / "eval_results.json")["part"] == "test"


# --- where training starts from ------------------------------------------------------------------------------------


def test_a_run_goes_on_from_a_model_with_both_its_heads(
    store: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(toy_config(store, tmp_path / "more", model_name_or_path=str(finished), max_steps=1))
    said = capsys.readouterr().err
    number = len(load_file(finished / "model.safetensors"))
    assert f"model loaded from {finished}: {number} tensors loaded\n" in said
    assert "the masked-LM head of this model is not trained" in said  # 12 steps: it still guesses
    first = metrics_of(tmp_path / "more", kind="validation")[0]
    best = next(row for row in metrics_of(finished, kind="validation") if row["step"] == read_best(finished))
    assert {**first, "step": 0} == {**best, "step": 0}


def read_best(run: Path) -> int:
    step: int = read(run / "checkpoints" / "best.json")["step"]
    return step


def test_a_run_goes_on_from_a_checkpoint_too(store: Path, finished: Path, tmp_path: Path) -> None:
    folder = finished / "checkpoints" / "step-12"
    pretrain(toy_config(store, tmp_path / "more", model_name_or_path=str(folder), max_steps=1))
    first, last = metrics_of(tmp_path / "more", kind="validation")[0], metrics_of(finished, kind="validation")[-1]
    assert first["loss"] == last["loss"]


def test_what_is_evaluated_depends_on_neither_seed_nor_masking_rate(
    store: Path, finished: Path, tmp_path: Path
) -> None:
    values = [{"seed": 1, "mlm_probability": 0.15}, {"seed": 2, "mlm_probability": 0.5, "micro_batch_tokens": 64}]
    for number, value in enumerate(values):
        config = toy_config(store, tmp_path / f"{number}", model_name_or_path=str(finished), max_steps=1, **value)
        pretrain(config)
    first, second = (metrics_of(tmp_path / f"{number}", kind="validation")[0] for number in (0, 1))
    assert first == second
    assert metrics_of(tmp_path / "0", kind="train") != metrics_of(tmp_path / "1", kind="train")


def test_a_bare_encoder_gets_new_heads_and_this_is_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    encoder = build(toy_model_config(), head=None)
    assert isinstance(encoder, Encoder)
    save(tmp_path / "encoder", encoder, files=TOKENIZER.files())
    pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(tmp_path / "encoder"), max_steps=1))
    said = capsys.readouterr().err
    assert "tensors loaded; newly made: mlm_head.bias, mlm_head.dense.bias" in said
    assert "nsp_head.bias, nsp_head.weight" in said
    assert (tmp_path / "run" / "eval_results.json").is_file()


@pytest.mark.parametrize("loaded", [False, True], ids=["new", "loaded"])
def test_the_dropout_of_the_first_step_depends_on_the_seed_only(
    store: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    states: list[torch.Tensor] = []
    seeded = loop.seed_dropout

    def seed_and_look(seed: int, *, step: int, micro_batch: int) -> None:
        seeded(seed, step=step, micro_batch=micro_batch)
        states.append(torch.get_rng_state())

    monkeypatch.setattr(loop, "seed_dropout", seed_and_look)
    start = {"model_name_or_path": str(finished)} if loaded else {}
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, seed=77, **start))
    seeded(77, step=0, micro_batch=0)
    assert torch.equal(states[0], torch.get_rng_state())


def test_dropout_may_be_set_for_a_loaded_model(store: Path, finished: Path, tmp_path: Path) -> None:
    values = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.0}
    pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(finished), max_steps=1, **values))
    config = read(tmp_path / "run" / "config.json")
    assert {name: config[name] for name in values} == values


def test_the_row_of_pad_in_a_new_model_is_where_the_vocabulary_has_pad(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer(specials_first=False)
    store = write_store(tmp_path, tokenizer=tokenizer)
    pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    assert read(tmp_path / "run" / "config.json")["pad_token_id"] == tokenizer.vocabulary.pad_id > 60


def test_a_model_may_have_more_rows_than_the_vocabulary_has_tokens(store: Path, tmp_path: Path) -> None:
    size = write_model_config(tmp_path / "padded.json", toy_model_config(vocab_size=128))
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, model_size=str(size)))
    assert read(tmp_path / "run" / "config.json")["vocab_size"] == 128
    first = metrics_of(tmp_path / "run", kind="validation")[0]
    assert first["mlm_loss"] == pytest.approx(math.log(128), abs=0.3)


def test_a_model_without_a_vocabulary_is_taken_on_trust_and_this_is_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    save(tmp_path / "model", build(toy_model_config(), head="pretraining"), files={})
    pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(tmp_path / "model"), max_steps=1))
    assert f"warning: {tmp_path / 'model'} has no vocabulary" in capsys.readouterr().err


def test_short_positions_do_not_stop_the_samples(tmp_path: Path) -> None:
    store = write_store(tmp_path, ["明月照江楼。" * 9 + f"春风过{place}山。" for place in "青江西南长画小平" * 10])
    size = write_model_config(tmp_path / "short.json", toy_model_config(positions=16))
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, max_seq_length=16, model_size=str(size)))
    assert len(metrics_of(tmp_path / "run", kind="samples")[0]["samples"]) == 4


def test_a_document_of_unknown_tokens_does_not_stop_the_samples(tmp_path: Path) -> None:
    documents = [f"😀😁 {number}!" for number in range(30)] + toy_documents()
    pretrain(toy_config(write_store(tmp_path, documents), tmp_path / "run", max_steps=1))
    assert (tmp_path / "run" / "eval_results.json").is_file()


# --- without next sentence -----------------------------------------------------------------------------------------


def test_without_pairs_a_run_has_one_head_and_no_next_sentence_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_store(tmp_path, ["明月照江楼。", "the moon sees the tower."] * 30 + toy_documents())
    pretrain(toy_config(store, tmp_path / "run", pairing="none"))
    results = read(tmp_path / "run" / "eval_results.json")
    assert not any("next_sentence" in name for name in results)
    assert (results["pairs"], results["loss"]) == (0, results["masked_lm_loss"])
    assert read(tmp_path / "run" / "config.json")["architectures"] == ["BertForMaskedLM"]
    assert "nsp_loss" not in capsys.readouterr().err
    assert all("nsp_loss" not in row for row in metrics_of(tmp_path / "run"))
    losses = [row["mlm_loss"] for row in metrics_of(tmp_path / "run", kind="train")]
    assert losses[-1] < losses[0]


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_vocabulary_larger_than_the_models_is_refused(store: Path, tmp_path: Path) -> None:
    size = write_model_config(tmp_path / "few.json", toy_model_config(vocab_size=20))
    with pytest.raises(
        InputError, match=r"--model_size: the data has 75 tokens in its vocabulary, the model 20"
    ) as caught:
        pretrain(toy_config(store, tmp_path / "run", model_size=str(size)))
    assert "write vocab_size 75 into that file" in str(caught.value)
    torch.manual_seed(0)
    save(tmp_path / "model", build(toy_model_config(vocab_size=20), head="pretraining"), files={})
    with pytest.raises(InputError, match="--model_name_or_path: the data has 75 tokens") as caught:
        pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(tmp_path / "model")))
    assert "prepare the data with the model's own tokenizer" in str(caught.value)


def test_a_model_whose_ids_mean_other_tokens_is_refused(store: Path, tmp_path: Path) -> None:
    others = Vocabulary((*SPECIAL_TOKENS, *reversed(TOKENIZER.vocabulary.tokens[5:])))
    torch.manual_seed(0)
    files = {"vocab.txt": others.to_bytes()}
    save(tmp_path / "model", build(toy_model_config(), head="pretraining"), files=files)
    with pytest.raises(InputError, match=r"id 5 is '\.' in the data and '.' in the model: they have different voc"):
        pretrain(toy_config(store, tmp_path / "run", model_name_or_path=str(tmp_path / "model")))
    assert not (tmp_path / "run").exists()


def test_rows_longer_than_the_models_positions_are_refused(store: Path, tmp_path: Path) -> None:
    size = write_model_config(tmp_path / "short.json", toy_model_config(positions=16))
    with pytest.raises(
        InputError, match=r"--max_seq_length: is longer than the 16 positions of the model\n  value: 32"
    ):
        pretrain(toy_config(store, tmp_path / "run", model_size=str(size)))


def test_a_size_that_is_none_is_refused_with_the_sizes(store: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"--model_size: is neither a model size nor a file\n  value: 'hugee'"
    ) as caught:
        pretrain(toy_config(store, tmp_path / "run", model_size="hugee"))
    assert "tiny | mini | small | medium | base | large | the path of a config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        (["明月照江楼。", "春风过青山。", "the moon sees the tower."], "3 of 3 documents have one sentence"),
        (["明月照江楼。春风过青山。The moon sees the tower."], "1 document: a random B must come from another one"),
    ],
)
def test_a_corpus_without_pairs_stops_before_training_with_the_ways_on(
    tmp_path: Path, documents: list[str], reason: str
) -> None:
    store = write_store(tmp_path, documents, validation_split=False)
    with pytest.raises(InputError, match=f"next-sentence pairs are impossible here: {reason}") as caught:
        pretrain(toy_config(store, tmp_path / "run"))
    assert "train with `--pairing none`" in str(caught.value)
    assert not (tmp_path / "run").exists()
    pretrain(toy_config(store, tmp_path / "run", pairing="none", max_steps=1))


def resume(store: Path, run: Path, **values: Any) -> None:
    pretrain(toy_config(store, run, resume_from="last", **values))


@pytest.fixture
def stopped(store: Path, tmp_path: Path) -> Path:
    with stopped_before(5):
        pretrain(toy_config(store, tmp_path / "run", save_every=4, hidden_dropout_prob=0.2))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("values", "listed"),
    [
        ({"seed": 2}, "seed: 12345 then, 2 now"),
        ({"batch_size": 16}, "batch_size: 8 then, 16 now"),
        ({"mlm_probability": 0.3}, "mlm_probability: 0.4 then, 0.3 now"),
        ({"max_steps": 20}, "max_steps: 12 then, 20 now"),
        ({"optimizer": "muon"}, "optimizer: 'adamw' then, 'muon' now"),
        ({"hidden_dropout_prob": 0.3}, "model: {"),
    ],
)
def test_a_resume_with_other_settings_is_refused_with_the_differences(
    store: Path, stopped: Path, values: dict[str, Any], listed: str
) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="was written by a run that differs") as caught:
        resume(store, stopped, **values)
    assert listed in str(caught.value)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "values", [{"seed": 2}, {"batch_size": 16}, {"ema_decay": 0.5}, {"micro_batch_tokens": 64}, {"pairing": "sentence"}]
)
def test_a_resume_with_other_settings_goes_on_where_that_is_allowed(
    store: Path, stopped: Path, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    resume(store, stopped, allow_inexact=True, **values)
    assert [row["step"] for row in metrics_of(stopped, kind="train")] == list(range(1, 13))
    assert f"warning: this resume is not exact (--allow_inexact): {next(iter(values))}: " in capsys.readouterr().err


@pytest.mark.parametrize("values", [{"optimizer": "muon"}, {"freeze_layers": 1}])
def test_moments_that_fit_nothing_are_refused_even_where_much_is_allowed(
    store: Path, stopped: Path, values: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="was written with another optimizer or other trained weights"):
        resume(store, stopped, allow_inexact=True, **values)


def test_a_resume_on_other_data_threads_or_versions_is_refused(
    store: Path, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_store(tmp_path / "other", toy_documents(seed=8))
    with pytest.raises(InputError, match=r"store: '\w+' then, '\w+' now"):
        resume(other, stopped)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 77)
        with pytest.raises(InputError, match=r"threads: \d+ then, 77 now"):
            resume(store, stopped)
    with monkeypatch.context() as patch:
        patch.setattr(run, "versions", lambda: {"torch": "3.0"})
        with pytest.raises(InputError, match=r"versions: \{.*\} then, \{'torch': '3.0'\} now"):
            resume(store, stopped)


def test_a_resume_may_change_what_changes_no_number(store: Path, stopped: Path, finished: Path, tmp_path: Path) -> None:
    moved = stopped.rename(tmp_path / "moved")
    other = {"model_name_or_path": str(finished), "muon_learning_rate": 0.01}  # the rate that a new model began with
    resume(store, moved, log_every=2, save_every=12, save_total_limit=1, **other)
    assert [row["step"] for row in metrics_of(moved, kind="train")] == [1, 2, 3, 4, 6, 8, 10, 12]
    assert read(moved / "config.json")["hidden_dropout_prob"] == 0.2  # the checkpoint's, not that other model's


def test_a_run_that_fails_in_an_evaluation_can_be_resumed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = MetricsLog.write

    def stop(log: MetricsLog, kind: str, step: int, values: Any) -> None:
        if (kind, step) == ("samples", 6):
            raise StopError
        write(log, kind, step, values)

    config = toy_config(store, tmp_path / "run", save_every=4)
    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "write", stop)
        with pytest.raises(StopError):
            pretrain(config)
    resume(store, tmp_path / "run", save_every=4)
    pretrain(toy_config(store, tmp_path / "straight", save_every=4))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "straight")


def test_bf16_trains_and_keeps_the_weights_in_fp32(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", precision="bf16"))
    assert {tensor.dtype for tensor in load_file(tmp_path / "run" / "model.safetensors").values()} == {torch.float32}
    assert read(tmp_path / "run" / "run.json")["precision"] == "bf16"
    losses = [row["mlm_loss"] for row in metrics_of(tmp_path / "run", kind="train")]
    assert losses[-1] < losses[0]


def test_a_run_that_leaves_the_model_worse_than_it_was_is_an_error(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "good", max_steps=60, eval_every=60, learning_rate=3e-3))
    spoiled = toy_config(
        store, tmp_path / "bad", model_name_or_path=str(tmp_path / "good"), learning_rate=3.0, max_grad_norm=1e9
    )
    with pytest.raises(InputError, match=r"--learning_rate: the held-out loss was \d\.\d+ before training and is"):
        pretrain(spoiled)
    # All that shows where it went wrong is there, but not what tells that a run is finished.
    assert {"model.safetensors", "run.json", "metrics.jsonl"} <= {path.name for path in (tmp_path / "bad").iterdir()}
    assert not (tmp_path / "bad" / "eval_results.json").exists()


def test_results_are_written_last(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def last(directory: Path, results: object) -> None:
        seen.append({path.name for path in directory.iterdir()})

    monkeypatch.setattr("bertkit.train.record.write_results", last)
    pretrain(toy_config(store, tmp_path / "run"))
    [before] = seen
    assert {"model.safetensors", "config.json", "vocab.txt", "README.md"} <= before
    assert "best_step" in read(tmp_path / "run" / "run.json")
