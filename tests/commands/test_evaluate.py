"""`bertkit evaluate` as it is typed: the figures of the run again, tables, JSON, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_answers import KINDS, trained_models, validation_file
from toy_tasks import write_base

from bertkit.cli import main


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_models(tmp_path_factory.mktemp("models"))


def evaluate(model: Path, file: object, *flags: object) -> int:
    return main(["evaluate", "--model", str(model), "--input_file", str(file), *map(str, flags)])


def run_figures(model: Path) -> dict[str, Any]:
    results = json.loads((model / "eval_results.json").read_text(encoding="utf-8"))["validation"]
    return {name: value for name, value in results.items() if isinstance(value, float)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_are_those_of_the_run(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    model = models[kind]
    assert evaluate(model, validation_file(model, kind), "--json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert {name: found[name] for name in run_figures(model)} == pytest.approx(run_figures(model), abs=1e-6)
    assert found["coverage"]["examples"] == 24
    assert "records read: 24" in captured.err


@pytest.mark.parametrize("kind", KINDS)
def test_figures_and_tables_are_printed_for_people(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    model, output = models[kind], tmp_path / "new" / "figures.json"
    assert evaluate(model, validation_file(model, kind), "--output_file", output) == 0
    shown = capsys.readouterr().out
    for name, value in run_figures(model).items():
        assert f"{value:.4f}" in next(line for line in shown.splitlines() if line.split()[:1] == [name])
    written = json.loads(output.read_text(encoding="utf-8"))
    assert {name: written[name] for name in run_figures(model)} == pytest.approx(run_figures(model), abs=1e-6)
    for table in set(written) - set(run_figures(model)) - {"coverage", "warning"}:
        assert f"{table}:" in shown


def test_one_class_that_is_always_given_is_warned_of(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "x.jsonl"
    lines = [{"text": "the moon sees the tower", "label": label} for label in ("english", "中文")]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert evaluate(models["single"], data) == 0
    captured = capsys.readouterr()
    assert "warning: every text is given the one class 'english'" in captured.err
    assert "warning" not in captured.out


def test_a_threshold_of_the_model_is_used(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    # What the run found best on these very examples is never worse than the threshold the other way.
    model = models["questions2"]
    saved = json.loads((model / "task.json").read_text(encoding="utf-8"))
    assert saved["knowledge"]["threshold"] is not None
    assert evaluate(model, validation_file(model, "questions2"), "--json") == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["f1"] == pytest.approx(tuned["squad_v2"]["best_f1"] / 100, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("single", '{"text": "the moon", "label": "deutsch"}', ":1: label: the label is not one of the model's"),
        ("single", '{"text": "the moon", "label": ["english"]}', ":1: label: the label is a list"),
        ("single", '{"text": "the moon"}', "no column has a name of labels"),
        ("multi", '{"text": "the moon", "labels": ["deutsch"]}', ":1: label: the label is not one of the model's"),
        ("multi", '{"text": "the moon", "label": "english"}', ":1: label: the label is no list"),
        ("regression", '{"text": "the moon", "label": "much"}', ":1: label: the label is no finite number"),
        ("tags", '{"tokens": ["a"], "tags": ["B-NAME"]}', ":1: tag: the tag is not one of the model's"),
        ("choices", '{"question": "a", "choices": ["b", "c"], "label": 2}', ":1: label: the label names none"),
        ("questions", '{"id": 1, "question": "a", "context": "b"}', ":1: answers: the field is missing"),
    ],
)
def test_data_that_does_not_fit_the_model_is_refused(
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    content: str,
    said: str,
) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "figures.json"
    data.write_text(content + "\n", encoding="utf-8")
    assert evaluate(models[kind], data, "--output_file", output) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert (captured.out, output.exists()) == ("", False)


def test_a_model_that_was_not_fine_tuned_is_refused(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = validation_file(models["single"], "single")
    assert evaluate(write_base(tmp_path / "base"), data) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'base' / 'model.safetensors'}: was not fine-tuned" in said
    assert "what to do: fine-tune it first: bertkit finetune" in said
    assert evaluate(tmp_path / "nowhere", data) == 2
    assert f"{tmp_path / 'nowhere'}: does not exist" in capsys.readouterr().err
