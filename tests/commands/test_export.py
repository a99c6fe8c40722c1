"""`bertkit export` through the front door: the files, the check beside them, what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_model as toy
from safetensors.torch import load_file
from toy_tasks import write_task, write_tuned

from bertkit.cli import main


def folder_with(head: str, path: Path) -> str:
    return str(toy.model_folder(path, toy.random_model(head=head)))  # type: ignore[arg-type]


def test_onnx_and_int8_stand_beside_their_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason='ONNX needs the extra "onnx"')
    output = tmp_path / "out"
    model = folder_with("masked_lm", tmp_path / "model")
    assert main(["export", "--model", model, "--output_dir", str(output), "--int8"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{output / 'model.onnx'}\n{output / 'model_int8.onnx'}\n"
    assert "answers of model.onnx differ from the model's by at most" in printed.err
    assert "MB in place of" in printed.err
    names = {path.name for path in output.iterdir()}
    assert names == {
        *("model.onnx", "model_int8.onnx", "check.json", "config.json"),
        *("vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    }
    check = json.loads((output / "check.json").read_text(encoding="utf-8"))
    assert check["model"] == "masked_lm"
    assert check["outputs"] == ["logits"]
    assert check["max_difference"]["logits"] <= check["allowed_difference"] == 1e-4
    assert check["int8_max_difference"]["logits"] > 0


def test_the_files_of_a_fine_tuned_model_are_measured_on_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason='ONNX needs the extra "onnx"')
    model, data = write_tuned(tmp_path / "model", "choices"), write_task(tmp_path, "choices", number=20)
    words = ["--model", str(model), "--output_dir", str(tmp_path / "out"), "--input_file", str(data), "--int8"]
    assert main(["export", *words]) == 0
    check = json.loads((tmp_path / "out" / "check.json").read_text(encoding="utf-8"))
    assert check["model"] == "multiple_choice"
    metrics = check["metrics"]
    assert (metrics["examples"], metrics["decided_by"]) == (20, "accuracy")
    assert metrics["model.onnx"] == pytest.approx(metrics["model"], abs=1e-6)
    assert metrics["model_int8.onnx"].keys() == metrics["model"].keys()
    shown = capsys.readouterr().err
    assert "records read: 20" in shown
    [line] = [line.split() for line in shown.splitlines() if line.split()[:1] == ["accuracy"]]
    files = ("model", "model.onnx", "model_int8.onnx")
    assert line[1:] == [f"{metrics[file]['accuracy']:.4f}" for file in files]


def test_a_file_that_loses_more_than_a_point_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_score(file: Path) -> object:  # for two choices
        return lambda inputs: [np.ones((*inputs["input_ids"].shape[:2],), np.float32)]

    def none_differ(*_: object) -> dict[str, float]:
        return {"logits": 0.0}

    monkeypatch.setattr("bertkit.model.export.torch_answer", one_score)
    monkeypatch.setattr("bertkit.model.export.differences", none_differ)
    model, data = write_tuned(tmp_path / "model", "choices"), write_task(tmp_path, "choices", number=20)
    assert (
        main(["predict", "--model", str(model), "--input_file", str(data), "--output_file", f"{tmp_path}/a.jsonl"]) == 0
    )
    answers = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    for row, answer in zip(rows, answers, strict=True):
        row["label"] = answer["label"]  # the model is right in everything
    assert any(row["label"] for row in rows)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["--model", str(model), "--output_dir", str(tmp_path / "out"), "--input_file", str(data)]
    assert main(["export", *words, "--format", "torch"]) == 0
    assert "warning: model.pt2 loses 0." in capsys.readouterr().err


def test_examples_with_a_fault_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = write_tuned(tmp_path / "model", "single", labels=("a", "b")), tmp_path / "x.jsonl"
    data.write_text('{"text": "the moon", "label": "c"}\n', encoding="utf-8")
    words = ["--model", str(model), "--output_dir", str(tmp_path / "out"), "--input_file", str(data)]
    assert main(["export", *words, "--format", "torch"]) == 2
    assert "x.jsonl:1: label: the label is not one of the model's" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_torch_program_of_the_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    words = ["--model", folder_with("pretraining", tmp_path / "model"), "--output_dir", str(output)]
    assert main(["export", *words, "--format", "torch", "--head", "encoder"]) == 0
    assert capsys.readouterr().out == f"{output / 'model.pt2'}\n"
    check = json.loads((output / "check.json").read_text(encoding="utf-8"))
    assert check["outputs"] == ["last_hidden_state", "pooler_output"]


@pytest.mark.parametrize("command", [["export", "--format", "torch"], ["inspect", "attention", "君"]])
def test_a_pickle_is_opened_by_its_flag_alone(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(folder_with("masked_lm", tmp_path / "model"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    output = "--output_dir" if command[0] == "export" else "--output_file"
    words = [*command, "--model", str(folder), output, str(tmp_path / "out")]
    assert main(words) == 2
    assert "--allow_bin" in capsys.readouterr().err
    assert main([*words, "--allow_bin"]) == 0
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_no_export_is_written_into_the_folder_of_a_model(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(folder_with("masked_lm", tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / weights)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    words = ["--model", str(folder), "--output_dir", str(folder), "--format", "torch", "--allow_bin"]
    assert main(["export", *words]) == 2
    assert f"error: {folder}: --output_dir: holds a model" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_head_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    words = ["--model", folder_with("masked_lm", tmp_path / "model"), "--output_dir", str(output), "--format", "torch"]
    assert main(["export", *words, "--head", "next_sentence"]) == 2
    assert "has no next-sentence head" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "torch", "--int8"], "--int8: is for --format onnx"),
        (["--model", "nowhere"], "nowhere: does not exist"),
        (["--text_column", "a", "--on_bad", "skip"], "--text_column: has no effect without --input_file\n  value: 'a'"),
        (["--text_column", "a", "--on_bad", "skip"], "--on_bad: has no effect without --input_file"),
        (["--input_file", "x.tsv", "--head", "masked_lm"], "--head: has no metric\n  value: 'masked_lm'"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if "--model" in words else ["--model", folder_with("masked_lm", tmp_path / "model")]
    assert main(["export", *model, "--output_dir", str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err


def test_damaged_weights_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_with("masked_lm", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"nothing")
    assert main(["export", "--model", model, "--output_dir", str(tmp_path / "out"), "--format", "torch"]) == 2
    assert "is damaged or no safetensors file" in capsys.readouterr().err
