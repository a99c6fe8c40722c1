"""`--layers`, `--combine` and `--compare_layers` of fine-tuning, from the flags to the folder and back."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from toy_tasks import finetune_config, write_base, write_task

from bertkit.commands.finetune import finetune, run
from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.pretrained import load
from bertkit.pipelines.tasks import TextClassifier
from bertkit.tasks.layers import prepare
from bertkit.tasks.opening import open_predictor
from bertkit.train.settings import TrainSettings


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))  # two layers


def tuned(tmp_path: Path, base: Path, kind: str, **values: Any) -> Path:
    train = write_task(tmp_path / "data", kind, number=16)
    held_out = write_task(tmp_path / "data", kind, number=8, seed=1)
    given = {"max_steps": 2, "validation_file": str(held_out), **values}
    finetune(finetune_config(base, train, tmp_path / "run", kind=kind, **given))
    return tmp_path / "run"


@pytest.mark.parametrize("kind", ["single", "tags", "choices", "questions"])
def test_every_task_reads_a_weighted_mix_and_learns_its_weights(tmp_path: Path, base: Path, kind: str) -> None:
    folder = tuned(tmp_path, base, kind, layers=[-1, -2, 0], combine="weighted")
    model: Any = open_predictor(folder).model
    assert (model.mix.layers, model.mix.combine) == ((2, 1, 0), "weighted")
    assert bool(model.mix.weights.any())
    saved = json.loads((folder / "config.json").read_text("utf-8"))
    assert saved["model_type"] == "bertkit"
    assert saved["layer_mix"] == {"layers": [2, 1, 0], "combine": "weighted"}


def test_a_model_of_the_first_layer_is_a_plain_bert_that_ends_there(tmp_path: Path, base: Path) -> None:
    folder = tuned(tmp_path, base, "single", layers=[1])
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder)
    assert theirs.config.num_hidden_layers == 1
    ids = torch.tensor([[2, 5, 6, 3]])
    mine: Any = load(folder, head="sequence_classification")
    torch.testing.assert_close(mine(ids).logits, theirs(ids).logits)
    before: Any = load(base, head=None)
    assert len(mine.encoder.layers) == 1 < len(before.layers)


@pytest.mark.parametrize("kind", ["single", "questions"])
def test_a_head_that_was_trained_on_another_layer_is_made_anew(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    first = tuned(tmp_path / "first", base, kind)
    capsys.readouterr()
    tuned(tmp_path / "second", first, kind, layers=[1])
    assert "the file's head reads other layers" in capsys.readouterr().err
    tuned(tmp_path / "third", tmp_path / "second" / "run", kind, layers=[-1], combine="sum")
    assert "newly made" not in capsys.readouterr().err


def test_layers_above_those_that_are_read_are_left_away(tmp_path: Path, base: Path) -> None:
    folder = tuned(tmp_path, base, "tags", layers=[0, 1], combine="concat")
    model: Any = open_predictor(folder).model
    assert (len(model.encoder.layers), model.classifier.in_features) == (1, 2 * model.config.hidden_size)


def test_a_stopped_run_of_the_first_layer_goes_on_as_if_it_had_not(tmp_path: Path, base: Path) -> None:
    values = {"layers": [-2, 0], "combine": "weighted", "save_every": 1, "save_total_limit": 9, "max_steps": 4}
    whole = tuned(tmp_path, base, "single", **values)
    expected = (whole / "model.safetensors").read_bytes()
    (whole / "checkpoints" / "last.json").write_text('{"step": 2}', encoding="utf-8")
    train = tmp_path / "data" / "single-0.jsonl"
    held_out = tmp_path / "data" / "single-1.jsonl"
    given = {**values, "validation_file": str(held_out), "resume_from": "last"}
    finetune(finetune_config(base, train, whole, kind="single", **given))
    assert (whole / "model.safetensors").read_bytes() == expected


def test_a_mixed_model_answers_in_python(tmp_path: Path, base: Path) -> None:
    folder = tuned(tmp_path, base, "single", layers=[-1, -2], combine="sum", pooling="cls")
    [record, *_] = TextClassifier(folder)("明月照西窗")
    assert record["label"] in ("english", "中文")


def test_layers_are_compared_with_a_frozen_encoder(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_task(tmp_path / "data", "single", number=16)
    given = {"max_steps": 2, "validation_split": 0.5, "compare_layers": True}
    run(finetune_config(base, train, tmp_path / "run", kind="single", **given))
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split()[:3] == ["layer", "accuracy,", "validation"]
    assert [line.split()[0] for line in lines[1:3]] == ["1", "2"]
    summary = json.loads((tmp_path / "run" / "layers.json").read_text("utf-8"))
    assert (summary["task"], summary["part"], list(summary["layers"])) == (
        *("sequence-classification", "validation"),
        ["1", "2"],
    )
    page = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "| 2 | " in page
    before: Any = load(base, head=None)
    for layer in (1, 2):
        folder = tmp_path / "run" / f"layer-{layer}"
        after: Any = load(folder, head="sequence_classification")
        results = json.loads((folder / "eval_results.json").read_text("utf-8"))
        assert lines[layer].split()[1] == f"{results['validation']['accuracy']:.4f}"
        assert summary["layers"][str(layer)]["validation"]["accuracy"] == results["validation"]["accuracy"]
        kept = {name: tensor for name, tensor in after.encoder.state_dict().items() if "pooler" not in name}
        assert all(torch.equal(before.state_dict()[name], tensor) for name, tensor in kept.items())


def test_the_layers_named_are_those_that_are_compared(tmp_path: Path, base: Path) -> None:
    train = write_task(tmp_path / "data", "single", number=16)
    given = {"max_steps": 1, "validation_split": 0.5, "compare_layers": True}
    run(finetune_config(base, train, tmp_path / "two", kind="single", **given, layers=[1, 2]))
    assert list(json.loads((tmp_path / "two" / "layers.json").read_text("utf-8"))["layers"]) == ["1", "2"]
    run(finetune_config(base, train, tmp_path / "run", kind="single", **given, layers=[-2]))
    assert list(json.loads((tmp_path / "run" / "layers.json").read_text("utf-8"))["layers"]) == ["1"]
    assert not (tmp_path / "run" / "layer-2").exists()
    for layers, said in (([3], "layers: is no layer of the model"), ([1, 0], "--layers: leaves no layer of the model")):
        with pytest.raises(InputError, match=said):
            run(finetune_config(base, train, tmp_path / "none", kind="single", **given, layers=layers))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": [0]}, "--layers: leaves no layer of the model"),
        ({"layers": [7]}, "layers: is no layer of the model"),
        ({"layers": [1, 2], "combine": "concat"}, r"combine: makes \d+ numbers of a token, and the pooler takes"),
    ],
)
def test_layers_that_cannot_be_are_refused(tmp_path: Path, base: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tuned(tmp_path, base, "single", **values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seeds": "1,2"}, "goes neither with --seeds nor with --resume_from"),
        ({"combine": "sum"}, "sets --combine and --freeze_layers itself"),
        ({"freeze_layers": 1}, "sets --combine and --freeze_layers itself"),
    ],
)
def test_what_comparing_layers_sets_itself_is_not_given(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"--compare_layers: {message}"):
        finetune_config(tmp_path, tmp_path, tmp_path, kind="single", compare_layers=True, **values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "lacks num_hidden_layers"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: is not a positive whole number"),
        ({"model_type": "gpt2"}, "gpt2"),
    ],
)
def test_layers_of_no_bert_are_not_compared(tmp_path: Path, base: Path, change: dict[str, Any], message: str) -> None:
    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    saved = {**json.loads((folder / "config.json").read_text("utf-8")), **change}
    saved = {name: value for name, value in saved.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    train = write_task(tmp_path / "data", "single", number=4)
    given = {"max_steps": 1, "validation_split": 0.5, "compare_layers": True}
    with pytest.raises(InputError, match=message) as problem:
        run(finetune_config(folder, train, tmp_path / "run", kind="single", **given))
    assert str(folder / "config.json") in str(problem.value)
    assert not (tmp_path / "run").exists()


def test_packed_rows_are_refused_beside_dropout_in_attention() -> None:
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    packed = TrainSettings(attention="packed", precision="bf16")
    with pytest.raises(InputError, match=r"--attention: has no dropout[\s\S]*--attention_probs_dropout_prob 0"):
        prepare(Encoder(config), packed)
    encoder = Encoder(replace(config, attention_probs_dropout_prob=0.0))
    prepare(encoder, packed)
    assert encoder.packs_rows
    prepare(encoder, TrainSettings())
    assert not encoder.packs_rows
