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
    assert "answering: 100%" in captured.err


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


@pytest.mark.parametrize(
    ("kind", "good", "bad", "mend"),
    [
        (
            "single",
            '{"text": "the moon", "label": "english"}',
            '{"text": "the moon", "label": "englisch"}',
            "did you mean english? else mend the file",
        ),
        (
            "tags",
            '{"tokens": ["the"], "tags": ["O"]}',
            '{"tokens": ["a"], "tags": ["B-NAME"]}',
            "mend the file, fine-tune a model on such tags",
        ),
        ("regression", '{"text": "a", "label": 1.5}', '{"text": "a", "label": "much"}', "choose --problem_type"),
    ],
)
def test_labels_that_the_model_does_not_have_are_skipped_on_demand(
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    good: str,
    bad: str,
    mend: str,
) -> None:
    data = tmp_path / "x.jsonl"
    data.write_text(f"{good}\n{bad}\n{good}\n", encoding="utf-8")
    assert evaluate(models[kind], data) == 2
    said = capsys.readouterr().err
    assert f"{data}:2: " in said
    assert mend in said
    assert "--on_bad skip" in said
    assert evaluate(models[kind], data, "--json", "--on_bad", "skip") == 0
    captured = capsys.readouterr()
    assert "records skipped as broken: 1" in captured.err
    assert "records kept: 2" in captured.err
    assert json.loads(captured.out)["coverage"]["examples"] == 2


def test_who_is_taken_for_whom_is_a_small_table(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model = models["single"]
    assert evaluate(model, validation_file(model, "single")) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("confusion:")
    results = json.loads((model / "eval_results.json").read_text(encoding="utf-8"))["validation"]["confusion"]
    assert lines[start + 1].split() == ["right", "↓", "given", "→", *results["labels"]]
    shown = [line.split() for line in lines[start + 2 : start + 4]]
    assert shown == [[name, *map(str, row)] for name, row in zip(results["labels"], results["rows"], strict=True)]


def test_a_large_confusion_is_left_to_the_file(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.commands.evaluate.SHOWN_LABELS", 1)
    assert evaluate(models["single"], validation_file(models["single"], "single")) == 0
    assert "confusion:\n  2 × 2 labels: see --output_file or --json" in capsys.readouterr().out


def test_an_option_of_another_task_is_refused(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model = models["single"]
    assert evaluate(model, validation_file(model, "single"), "--scheme", "IOB1") == 2
    assert "--scheme: is no option of sequence-classification" in capsys.readouterr().err


def test_what_the_model_does_not_get_to_see_is_said(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "long.jsonl"
    data.write_text(json.dumps({"text": "the moon " * 60, "label": "english"}) + "\n", encoding="utf-8")
    assert evaluate(models["single"], data) == 0
    assert "examples with tokens cut off" in capsys.readouterr().err


def test_a_threshold_of_the_model_is_used(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    # What the run found best on these very examples is never worse than the threshold the other way.
    model = models["questions2"]
    saved = json.loads((model / "task.json").read_text(encoding="utf-8"))
    assert saved["knowledge"]["threshold"] is not None
    assert evaluate(model, validation_file(model, "questions2"), "--json") == 0
    printed = capsys.readouterr()
    threshold = saved["knowledge"]["threshold"]
    assert f"a question gets no answer where its null_odds are above {threshold:.3f}" in printed.err
    tuned = json.loads(printed.out)
    assert tuned["f1"] == pytest.approx(tuned["squad_v2"]["best_f1"] / 100, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("single", '{"text": "the moon", "label": "deutsch"}', ":1: label: the label is not one of the model's"),
        ("single", '{"text": "the moon", "label": ["english"]}', ":1: label: the label is a list"),
        ("single", '{"text": "the moon"}', "no column has a name of labels"),
        ("multi", '{"text": "the moon", "labels": ["deutsch"]}', ":1: label: the label is not one of the model's"),
        ("multi", '{"text": "the moon", "label": "english"}', ":1: label: the label is no list"),
        ("regression", '{"text": "the moon", "label": "much"}', ":1: label: the label is no number to train on"),
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


@pytest.mark.parametrize("named", ["x.jsonl", "", "*.jsonl", "./x.jsonl"])
def test_labelled_data_is_not_overwritten_with_its_figures(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    data = tmp_path / "x.jsonl"
    data.write_bytes(validation_file(models["single"], "single").read_bytes())
    before = data.read_bytes()
    assert evaluate(models["single"], f"{tmp_path}/{named}", "--output_file", data) == 2
    assert "--output_file: is the input, which would be overwritten" in capsys.readouterr().err
    assert data.read_bytes() == before


def test_a_model_that_was_not_fine_tuned_is_refused(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = validation_file(models["single"], "single")
    base = write_base(tmp_path / "base")
    for model, problem in ((base, "was not fine-tuned"), (tmp_path / "nowhere", "nowhere")):
        assert evaluate(model, data) == 2
        said = capsys.readouterr().err
        assert problem in said
        assert "what to do: " in said


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: {**saved, "settings": {**saved["settings"], "max_seq_length": None}},
        lambda saved: {**saved, "settings": {**saved["settings"], "stride": "wide"}},
        lambda saved: {**saved, "settings": {**saved["settings"], "stride": 0}},
        lambda saved: {**saved, "settings": []},
        lambda saved: {"task": saved["task"]},
    ],
)
def test_a_damaged_task_file_is_named(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in models["single"].iterdir():
        if path.is_file():
            (model / path.name).write_bytes(path.read_bytes())
    saved = json.loads((model / "task.json").read_text(encoding="utf-8"))
    (model / "task.json").write_text(json.dumps(change(saved)), encoding="utf-8")
    assert evaluate(model, validation_file(models["single"], "single")) == 2
    assert f"{model / 'task.json'}: is damaged" in capsys.readouterr().err
    (model / "task.json").write_text(json.dumps({**saved, "new": 1, "settings": {**saved["settings"], "new": 2}}))
    assert evaluate(model, validation_file(models["single"], "single")) == 0  # of a later version


def test_a_task_that_is_none_is_refused(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = json.loads((models["single"] / "task.json").read_text(encoding="utf-8"))
    (tmp_path / "task.json").write_text(json.dumps({**saved, "task": "sentiment"}), encoding="utf-8")
    assert evaluate(tmp_path, validation_file(models["single"], "single")) == 2
    said = capsys.readouterr().err
    assert "is no task" in said
    assert "sequence-classification | token-classification | multiple-choice | question-answering" in said
