"""`bertkit export` through the front door: the files, the check beside them, what it refuses."""

import json
from pathlib import Path

import pytest
import toy_model as toy

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


def test_a_torch_program_of_the_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    words = ["--model", folder_with("pretraining", tmp_path / "model"), "--output_dir", str(output)]
    assert main(["export", *words, "--format", "torch", "--head", "encoder"]) == 0
    assert capsys.readouterr().out == f"{output / 'model.pt2'}\n"
    check = json.loads((output / "check.json").read_text(encoding="utf-8"))
    assert check["outputs"] == ["last_hidden_state", "pooler_output"]


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
