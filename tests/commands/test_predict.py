"""`bertkit predict` as it is typed: an answer a record, in order, whatever stands beside it; formats; refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_answers import KINDS, trained_models, validation_file

from bertkit.cli import main
from bertkit.console import Progress
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.tasks import predicting
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.opening import open_predictor


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_models(tmp_path_factory.mktemp("models"))


def predict(model: Path, file: object, output: Path, *flags: object) -> int:
    words = ["--model", model, "--input_file", file, "--output_file", output, *flags]
    return main(["predict", *map(str, words)])


def lines_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_run_in_the_order_of_the_file(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    model, output = models[kind], tmp_path / "new" / "answers.jsonl"
    assert predict(model, validation_file(model, kind), output) == 0
    captured = capsys.readouterr()
    assert captured.out == f"answers: {output}\n"
    assert "examples  " in captured.err
    found, expected = lines_in(output), lines_in(model / "predictions_validation.jsonl")
    assert len(found) == 24
    for line, other in zip(found, expected, strict=True):
        assert_alike(line, {name: other[name] for name in line})


def assert_alike(one: Any, other: Any) -> None:
    """Numbers within 1e-5, all else equal."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert_alike(value, other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for value, another in zip(one, other, strict=True):
            assert_alike(value, another)
    elif isinstance(one, float):
        assert abs(one - other) <= 1e-5
    else:
        assert one == other


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_does_not_depend_on_what_is_asked_beside_it(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # Promise F1.
    predictor = open_predictor(models[kind])
    task, reading = predictor.task, ReadingSettings()
    path = str(validation_file(models[kind], kind))
    examples = read_examples(task.name, path, reading, ExampleReport(), labelled=False, flag="--input_file")

    def records(chosen: list[Any], tokens: int, at_once: int = 1024) -> list[dict[str, Any]]:
        monkeypatch.setattr(predicting, "EXAMPLES_AT_ONCE", at_once)
        predictor.micro_batch_tokens = tokens
        answers = predictor.answers(chosen)
        return [task.record(e, a, task=predictor.config) for e, a in zip(chosen, answers, strict=True)]

    expected = records(examples, 4096)
    for tokens, at_once in ((1, 1024), (100, 5), (10**6, 7), (10**6, 1)):
        for line, other in zip(records(examples, tokens, at_once), expected, strict=True):
            assert_alike(line, other)
    for line, other in zip(records(examples[::-1], 300)[::-1], expected, strict=True):
        assert_alike(line, other)


@pytest.mark.parametrize("kind", ["single", "tags", "questions"])
def test_progress_moves_with_every_batch_and_ends_at_the_number_of_examples(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(Progress, "advance", lambda self, count: steps.append(count))
    predictor = open_predictor(models[kind])
    path = str(validation_file(models[kind], kind))
    examples = read_examples(
        predictor.task.name, path, ReadingSettings(), ExampleReport(), labelled=False, flag="--input_file"
    )
    monkeypatch.setattr(predicting, "EXAMPLES_AT_ONCE", 10)
    predictor.micro_batch_tokens = 1
    progress = Progress("answering", total=24, unit="examples")
    next(predictor.answers(examples, progress=progress))
    assert sum(steps) == 10  # of the first chunk
    assert max(steps) <= 1
    assert len(list(predictor.answers(examples, progress=progress))) == 24
    assert sum(steps) == 34


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_not_needed_and_not_looked_at(models: dict[str, Path], tmp_path: Path, kind: str) -> None:
    model = models[kind]
    text = validation_file(model, kind).read_text(encoding="utf-8")
    plain, odd = tmp_path / "plain.jsonl", tmp_path / "odd.jsonl"
    label = {"multi": "labels", "tags": "tags"}.get(kind, "label")
    if kind.startswith("questions"):
        paragraphs = [article for each in json.loads(text)["data"] for article in each["paragraphs"]]
        records = [{**q, "context": p["context"]} for p in paragraphs for q in p["qas"]]
        label = "answers"
    else:
        records = [json.loads(line) for line in text.splitlines()]
    without = [{k: v for k, v in r.items() if k not in (label, "is_impossible")} for r in records]
    values: list[Any] = [-1, "", None, {"a": 1}] * 6
    plain.write_text("".join(json.dumps(r) + "\n" for r in without), encoding="utf-8")
    odd.write_text(
        "".join(json.dumps({**r, label: v}) + "\n" for r, v in zip(without, values, strict=True)), encoding="utf-8"
    )
    outputs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "three.jsonl"]
    for file, output in zip((validation_file(model, kind), plain, odd), outputs, strict=True):
        assert predict(model, file, output) == 0
    answers = [[{**line, "id": None} for line in lines_in(output)] for output in outputs]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_have_a_header_and_a_line_an_answer(models: dict[str, Path], tmp_path: Path, kind: str) -> None:
    model, table, exact = models[kind], tmp_path / "a.tsv", tmp_path / "a.jsonl"
    for output in (table, exact):
        assert predict(model, validation_file(model, kind), output) == 0
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").split("\n")[:-1]]
    records = lines_in(exact)
    assert rows[0] == list(records[0])
    assert len(rows) == 25
    assert {len(row) for row in rows} == {len(rows[0])}
    for row, record in zip(rows[1:], records, strict=True):
        assert row[0] == record["id"]
        cells = dict(zip(rows[0], row, strict=True))
        if "label" in record:
            assert cells["label"] == str(record["label"])
        if "tags" in record:
            assert cells["tags"].split(" ") == record["tags"]
        if "answer" in record:
            assert cells["null_odds"] == ("" if record["null_odds"] is None else str(record["null_odds"]))


def test_the_cells_of_a_table_stay_in_one_line(models: dict[str, Path], tmp_path: Path) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "a.tsv"
    data.write_text(json.dumps({"id": "a\tb\nc\rd", "text": "月"}) + "\n", encoding="utf-8")
    assert predict(models["single"], data, output) == 0
    [_, line] = output.read_text(encoding="utf-8").split("\n")[:-1]
    assert line.startswith("a b c d\t")


@pytest.mark.parametrize("kind", ["questions", "questions2"])
def test_answers_to_questions_are_written_as_the_scripts_of_the_sets_read_them(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    model, output, exact = models[kind], tmp_path / "predictions.json", tmp_path / "a.jsonl"
    assert predict(model, validation_file(model, kind), output) == 0
    assert predict(model, validation_file(model, kind), exact) == 0
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found == {line["id"]: line["answer"] for line in lines_in(exact)}
    best = json.loads((tmp_path / "nbest_predictions.json").read_text(encoding="utf-8"))
    assert best.keys() == found.keys()
    assert all(sum(each["probability"] for each in candidates) == pytest.approx(1) for candidates in best.values())
    odds = json.loads((tmp_path / "null_odds.json").read_text(encoding="utf-8"))
    assert odds == {line["id"]: line["null_odds"] for line in lines_in(exact) if line["null_odds"] is not None}
    assert bool(odds) == (kind == "questions2")
    threshold = json.loads((model / "task.json").read_text(encoding="utf-8"))["knowledge"]["threshold"]
    assert all((text == "") == (odds[id] > threshold) for id, text in found.items() if id in odds)


def test_texts_unlike_those_of_the_training_and_unknown_tokens_are_counted(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the moon\n鱻鱻\n", encoding="utf-8")
    for kind, unlike in (("pair", True), ("single", False)):
        capsys.readouterr()
        assert predict(models[kind], lines, tmp_path / "a.jsonl") == 0
        said = capsys.readouterr().err
        assert ("examples unlike the training's" in said) == unlike
        assert "tokens that the vocabulary does not know, [UNK]" in said


def test_the_threshold_of_labels_is_said(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = models["multi"]
    threshold = json.loads((model / "task.json").read_text(encoding="utf-8"))["knowledge"]["threshold"]
    capsys.readouterr()
    assert predict(model, validation_file(model, "multi"), tmp_path / "a.jsonl") == 0
    assert f"a text gets every label of a probability from {threshold:.3f} up" in capsys.readouterr().err


def test_three_hundred_words_get_three_hundred_tags(models: dict[str, Path], tmp_path: Path) -> None:
    # Case 37, by a model of 48 tokens a row; the only place is among the last ten words.
    words = ["the", "moon", "sees"] * 98 + ["the", "moon", "sees", "the", "tower", "loves"]
    data, output = tmp_path / "x.jsonl", tmp_path / "a.jsonl"
    data.write_text(json.dumps({"tokens": words}) + "\n", encoding="utf-8")
    assert predict(models["tags"], data, output) == 0
    [line] = lines_in(output)
    assert len(line["tags"]) == len(line["tokens"]) == 300
    assert line["tags"][298] == "B-PLACE"
    assert line["entities"][-1]["word"] == "tower"


def test_texts_alone_are_cut_into_words(models: dict[str, Path], tmp_path: Path) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "a.jsonl"
    data.write_text('{"text": "the moon sees the tower"}\n{"text": "明月照tower。"}\n', encoding="utf-8")
    assert predict(models["tags"], data, output) == 0
    first, second = lines_in(output)
    assert first["tokens"] == ["the", "moon", "sees", "the", "tower"]
    assert second["tokens"] == ["明", "月", "照", "tower", "。"]
    text = "the moon sees the tower"
    assert all(text[each["start"] : each["end"]] == each["word"] for each in first["entities"])


def test_what_is_cut_off_is_counted(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "x.jsonl"
    data.write_text(json.dumps({"text": "the moon " * 50}) + "\n", encoding="utf-8")
    assert predict(models["single"], data, tmp_path / "a.jsonl") == 0
    said = capsys.readouterr().err
    assert "tokens cut off" in said
    assert ["tokens", "cut", "off", "54"] in [line.split() for line in said.splitlines()]


def test_broken_records_are_refused_or_counted(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "a.jsonl"
    data.write_text('{"id": "1", "text": "月"}\n{\n{"id": "3", "text": "the moon"}\n', encoding="utf-8")
    assert predict(models["single"], data, output) == 2
    captured = capsys.readouterr()
    assert f"{data}:2: " in captured.err
    assert "Traceback" not in captured.err
    assert not output.exists()
    assert predict(models["single"], data, output, "--on_bad", "skip") == 0
    assert "records skipped as broken: 1" in capsys.readouterr().err
    assert [line["id"] for line in lines_in(output)] == ["1", "3"]


def test_empty_texts_have_answers_too(models: dict[str, Path], tmp_path: Path) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "a.jsonl"
    data.write_text('{"id": "1", "text": ""}\n{"id": "2", "text": "\\u200b"}\n', encoding="utf-8")
    assert predict(models["single"], data, output) == 0
    assert [line["id"] for line in lines_in(output)] == ["1", "2"]
    data.write_text('{"id": "1", "question": "q", "context": " "}\n', encoding="utf-8")
    for kind in ("questions", "questions2"):  # case 45
        assert predict(models[kind], data, output) == 0
        assert [line["answer"] for line in lines_in(output)] == [""]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("answers", "--output_file: has no format"),
        ("answers.txt", "--output_file: has no format"),
        ("answers.json", "--output_file: is the format of answers to questions"),
        ("single-1.jsonl", "--output_file: is the input, which would be overwritten"),
        ("nbest_predictions.json", "--output_file: is the name of a file that is written beside it"),
        ("null_odds.json", "--output_file: is the name of a file that is written beside it"),
    ],
)
def test_outputs_that_cannot_be_are_refused(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], output: str, said: str
) -> None:
    data = validation_file(models["single"], "single")
    before = data.read_bytes()
    assert predict(models["single"], data, data.with_name(output)) == 2
    assert said in capsys.readouterr().err
    assert data.read_bytes() == before
    assert output == data.name or not data.with_name(output).exists()


@pytest.mark.parametrize("named", ["{folder}", "{folder}/*.json*", "a.json, {output}"])
@pytest.mark.parametrize("output", ["x.jsonl", "null_odds.json"])
def test_no_input_of_a_folder_or_a_glob_is_overwritten(
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    output: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", output):
        (tmp_path / name).write_bytes(validation_file(models["questions"], "questions").read_bytes())
    before = (tmp_path / output).read_bytes()
    # A .json of answers has null_odds.json beside it.
    written = tmp_path / (output if output.endswith(".jsonl") else "answers.json")
    assert predict(models["questions"], named.format(folder=tmp_path, output=output), written) == 2
    said = capsys.readouterr().err
    assert "--output_file: is the input, which would be overwritten" in said
    assert str(tmp_path / output) in said
    assert (tmp_path / output).read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", output}


def test_a_folder_that_is_not_there_is_refused(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = validation_file(models["single"], "single")
    assert predict(tmp_path / "nowhere", data, tmp_path / "a.jsonl") == 2
    assert "nowhere: does not exist" in capsys.readouterr().err
    assert not (tmp_path / "a.jsonl").exists()


def test_an_option_of_another_task_is_refused(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "predict",
        "--model",
        str(models["single"]),
        "--input_file",
        str(validation_file(models["single"], "single")),
    ]
    assert main([*words, "--output_file", str(tmp_path / "x.jsonl"), "--choice_columns", "a,b"]) == 2
    assert "--choice_columns: is no option of sequence-classification" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("single", ("--problem_type", "regression")),
        ("tags", ("--scheme", "IOB1", "--repair_tags")),
        ("questions", ("--repair_offsets", "--on_bad_answers", "drop")),
    ],
)
def test_options_on_labels_which_are_not_looked_at_are_no_flags(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, flags: tuple[str, ...]
) -> None:
    model, output = models[kind], tmp_path / "x.jsonl"
    assert predict(model, validation_file(model, kind), output, *flags) == 2
    said = capsys.readouterr().err
    for flag in (flag for flag in flags if flag.startswith("--")):
        assert f"{flag}: is not a flag of this command" in said
    assert not output.exists()


def test_a_question_longer_than_any_of_the_training_is_cut_and_counted(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = tmp_path / "x.jsonl", tmp_path / "a.jsonl"
    asked = [{"id": str(n), "question": "where? " * n, "context": "the moon sees the tower. " * 9} for n in (1, 60)]
    data.write_text("".join(json.dumps(each) + "\n" for each in asked), encoding="utf-8")
    assert predict(models["questions"], data, output) == 0
    assert [line["id"] for line in lines_in(output)] == ["1", "60"]
    assert "questions cut to max_query_length" in capsys.readouterr().err
