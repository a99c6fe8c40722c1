"""`bertkit embed` through the front door: the file it writes, what it says of cut texts, what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
import toy_model as toy

from bertkit.cli import main
from bertkit.pipelines import Embedder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(toy.model_folder(tmp_path_factory.mktemp("model"), toy.random_model()))


@pytest.fixture
def texts(tmp_path: Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(toy.TEXTS), encoding="utf-8")
    return str(path)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["embed", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_a_file_of_texts_becomes_a_file_of_vectors(
    folder: str, texts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "deep" / "v.npz")
    assert main(["embed", "--model", folder, "--input_file", texts, "--output_file", output]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    expected = np.stack([embedding.vectors for embedding in Embedder(folder).embed(toy.TEXTS)])
    with np.load(output) as arrays:
        np.testing.assert_array_equal(arrays["vectors"], expected)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["v.npz"]


def test_googles_flags_give_googles_layout(folder: str, texts: str, tmp_path: Path) -> None:
    output = tmp_path / "features.jsonl"
    words = ["--layers", "-1,-2", "--pooling", "none", "--output_file", str(output)]
    assert main(["embed", "--model", folder, "--input_file", texts, *words]) == 0
    first = json.loads(output.read_text(encoding="utf-8").splitlines()[0])
    assert [layer["index"] for layer in first["features"][0]["layers"]] == [-1, -2]
    assert len(first["features"][0]["layers"][0]["values"]) == 32


def test_combined_layers_are_named_in_json(folder: str, texts: str, tmp_path: Path) -> None:
    output = tmp_path / "features.jsonl"
    words = ["--layers", "-1,-2", "--combine", "concat", "--pooling", "none", "--output_file", str(output)]
    assert main(["embed", "--model", folder, "--input_file", texts, *words]) == 0
    first = json.loads(output.read_text(encoding="utf-8").splitlines()[0])
    [layer] = first["features"][0]["layers"]
    assert layer["index"] == "concat"
    assert len(layer["values"]) == 64


def test_pairs_are_parted_by_a_separator(folder: str, tmp_path: Path) -> None:
    output = tmp_path / "v.npz"
    text = f"{toy.RIVER} ||| {toy.DAY}"
    words = ["--pair_separator", " ||| ", "--pooling", "none", "--output_file", str(output), text, toy.HEART]
    assert main(["embed", "--model", folder, *words]) == 0
    with np.load(output) as arrays:
        assert np.diff(arrays["offsets"]).tolist() == [12 + 14 + 3, 15 + 2]


def test_texts_that_were_cut_are_counted_and_said(
    folder: str, texts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "v.npz")
    words = ["--model", folder, "--input_file", texts, "--output_file", output, "--max_seq_length", "14"]
    assert main(["embed", *words]) == 0
    assert "2 of 6 texts were longer than 14 tokens and lost their end" in capsys.readouterr().err
    assert main(["embed", *words, "--long_texts", "windows"]) == 0
    assert "lost" not in capsys.readouterr().err


def test_lines_that_cannot_be_embedded_are_all_named_before_a_file_is_written(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("君\n\u200b\n君\n\u200b\n", encoding="utf-8")
    output = tmp_path / "v.npz"
    message = refusal(capsys, "--model", folder, "--input_file", str(path), "--output_file", str(output))
    assert f"{path}:2: holds no token" in message
    assert f"{path}:4: holds no token" in message
    assert not output.exists()


def test_several_layers_need_a_way_to_combine_them(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "v.npz")
    message = refusal(capsys, "--model", folder, "--output_file", output, "--layers", "-1,-2", "君")
    assert "--combine: is needed to make one vector of 2 layers" in message


def test_texts_are_not_overwritten_with_their_vectors(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("君\n", encoding="utf-8")
    message = refusal(capsys, "--model", folder, "--input_file", str(tmp_path), "--output_file", str(path))
    assert "--output_file: is the input, which would be overwritten" in message
    assert path.read_text(encoding="utf-8") == "君\n"
