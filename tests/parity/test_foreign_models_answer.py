"""Models fine-tuned in transformers, without a task.json: `bertkit predict` gives what transformers gives."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from toy_run import toy_model_config, toy_tokenizer
from toy_tasks import write_base, write_task

from bertkit.cli import main
from bertkit.pipelines.tasks import TextClassifier

LIMIT = 1e-5
NAMES = ("english", "中文", "other")
TAGS = ("O", "B-PLACE", "I-PLACE", "B-PER")
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "single": (transformers.BertForSequenceClassification, {"id2label": dict(enumerate(NAMES))}),
    "pair": (transformers.BertForSequenceClassification, {"num_labels": 2}),
    "multi": (
        transformers.BertForSequenceClassification,
        {"id2label": dict(enumerate(NAMES)), "problem_type": "multi_label_classification"},
    ),
    "regression": (transformers.BertForSequenceClassification, {"num_labels": 1}),
    "tags": (transformers.BertForTokenClassification, {"id2label": dict(enumerate(TAGS))}),
    "choices": (transformers.BertForMultipleChoice, {}),
    "questions": (transformers.BertForQuestionAnswering, {}),
}


def foreign_folder(folder: Path, kind: str) -> Any:
    """transformers' model of this kind in a folder with the toy tokenizer; large random weights."""
    model_class, entries = CLASSES[kind]
    shape = toy_model_config(dropout=0.0, positions=64).to_json()
    if "id2label" in entries:
        entries = {**entries, "label2id": {label: id for id, label in entries["id2label"].items()}}
    torch.manual_seed(5)
    model = model_class(transformers.BertConfig(**{**shape, **entries})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder)
    transformers.logging.enable_progress_bar()
    for name, content in toy_tokenizer().files().items():
        (folder / name).write_bytes(content)
    return model


def predicted(folder: Path, data: Path, output: Path, *flags: str) -> list[dict[str, Any]]:
    words = ["--model", str(folder), "--input_file", str(data), "--output_file", str(output)]
    assert main(["predict", *words, *flags]) == 0
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", CLASSES)
@torch.no_grad()
def test_predictions_are_those_of_transformers(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = tmp_path / "model", write_task(tmp_path, kind, number=12)
    model = foreign_folder(folder, kind)
    found = predicted(folder, data, tmp_path / "answers.jsonl")
    said = [line for line in capsys.readouterr().err.splitlines() if "no task.json" in line]
    assert len(said) == 1
    assert f"it is a {CLASSES[kind][0].__name__}" in said[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if kind == "questions":
        paragraphs = json.loads(data.read_text(encoding="utf-8"))["data"][0]["paragraphs"]
        rows = [{**paragraph, **paragraph["qas"][0]} for paragraph in paragraphs]
    else:
        rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    assert len(found) == len(rows) == 12
    for record, row in zip(found, rows, strict=True):
        CHECKS[kind](record, row, model, tokenizer)


def check_texts(record: dict[str, Any], row: dict[str, Any], model: Any, tokenizer: Any) -> None:
    texts = [row["text"]] if "text" in row else [row["sentence1"], row["sentence2"]]
    logits = model(**tokenizer(*texts, return_tensors="pt")).logits[0]
    if model.config.num_labels == 1:
        assert record["score"] == pytest.approx(logits.item(), abs=LIMIT)
        return
    several = model.config.problem_type == "multi_label_classification"
    expected = (logits.sigmoid() if several else logits.softmax(-1)).tolist()
    names = [model.config.id2label[id] for id in range(len(expected))]
    assert record["scores"] == pytest.approx(dict(zip(names, expected, strict=True)), abs=LIMIT)
    if several:
        assert record["labels"] == [name for name, score in zip(names, expected, strict=True) if score >= 0.5]
    else:
        assert record["label"] == names[int(logits.argmax())]


def check_tags(record: dict[str, Any], row: dict[str, Any], model: Any, tokenizer: Any) -> None:
    inputs = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
    shares = model(**inputs).logits[0].softmax(-1)
    first = {word: place for place, word in reversed(list(enumerate(inputs.word_ids()))) if word is not None}
    expected = [int(shares[first[word]].argmax()) for word in range(len(row["tokens"]))]
    assert record["tags"] == [TAGS[id] for id in expected]  # one by one: no scheme stands between
    scores = [shares[first[word], id].item() for word, id in enumerate(expected)]
    assert record["scores"] == pytest.approx(scores, abs=LIMIT)


def check_choices(record: dict[str, Any], row: dict[str, Any], model: Any, tokenizer: Any) -> None:
    choices = row["choices"]
    inputs = tokenizer([row["question"]] * len(choices), choices, padding=True, return_tensors="pt")
    logits = model(**{name: tensor[None] for name, tensor in inputs.items()}).logits[0]
    assert record["label"] == int(logits.argmax())
    assert record["scores"] == pytest.approx(logits.softmax(-1).tolist(), abs=LIMIT)


def check_questions(record: dict[str, Any], row: dict[str, Any], model: Any, tokenizer: Any) -> None:
    inputs = tokenizer(row["question"], row["context"], return_offsets_mapping=True, return_tensors="pt")
    offsets = inputs.pop("offset_mapping")[0].tolist()
    output = model(**inputs)
    start, end = output.start_logits[0], output.end_logits[0]
    inside = [place for place, side in enumerate(inputs.sequence_ids()) if side == 1]
    spans = [(float(start[a] + end[b]), a, b) for a in inside for b in inside if a <= b < a + 30]
    _, a, b = max(spans)
    assert (record["start"], record["end"]) == (offsets[a][0], offsets[b][1])
    assert record["answer"] == row["context"][offsets[a][0] : offsets[b][1]]
    best = torch.tensor(sorted((score for score, _, _ in spans), reverse=True)[:20])
    assert record["score"] == pytest.approx(best.softmax(-1)[0].item(), abs=LIMIT)


CHECKS = {
    **dict.fromkeys(("single", "pair", "multi", "regression"), check_texts),
    "tags": check_tags,
    "choices": check_choices,
    "questions": check_questions,
}


def test_what_it_is_taken_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_folder(tmp_path / "model", "multi")
    predicted(tmp_path / "model", write_task(tmp_path, "single", number=2), tmp_path / "a.jsonl")
    line = next(line for line in capsys.readouterr().err.splitlines() if "task.json" in line)
    assert line == (
        f"{tmp_path / 'model'} has no task.json; by its config.json and tensors it is a BertForSequenceClassification; "
        "multi_label_classification; labels english, 中文, other; rows of at most 64 tokens"
    )
    foreign_folder(tmp_path / "questions", "questions")
    predicted(tmp_path / "questions", write_task(tmp_path, "questions", number=2), tmp_path / "a.jsonl")
    assert "; every question is taken to have an answer; rows of" in capsys.readouterr().err


def test_it_can_be_measured_and_asked_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_folder(tmp_path / "model", "single")
    data = write_task(tmp_path, "single", number=4)
    assert main(["evaluate", "--model", str(tmp_path / "model"), "--input_file", str(data), "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["accuracy"] <= 1
    assert TextClassifier(tmp_path / "model")("the moon", top_k=1)[0]["label"] in NAMES


def test_a_pickle_is_opened_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = tmp_path / "model", write_task(tmp_path, "single", number=3)
    model = foreign_folder(folder, "single")
    expected = predicted(folder, data, tmp_path / "a.jsonl")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    words = ["--model", str(folder), "--input_file", str(data), "--output_file", str(tmp_path / "b.jsonl")]
    assert main(["predict", *words]) == 2
    assert "--allow_bin" in capsys.readouterr().err
    assert predicted(folder, data, tmp_path / "b.jsonl", "--allow_bin") == expected


@pytest.mark.parametrize(
    ("architectures", "said"),
    [
        (None, "does not say what the classifier beside it was trained for: texts, tokens or choices"),
        (["MyBert"], "['MyBert']"),
    ],
)
def test_a_classifier_of_nobody_knows_what_is_refused(
    architectures: list[str] | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    foreign_folder(folder, "single")
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values["architectures"] = architectures
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    data = write_task(tmp_path, "single", number=3)
    words = ["--model", str(folder), "--input_file", str(data), "--output_file", str(tmp_path / "b.jsonl")]
    assert main(["predict", *words]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "config.json: architectures: does not say" in message
    assert '["BertForTokenClassification"]' in message


def test_a_model_without_a_head_of_fine_tuning_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, data = write_base(tmp_path / "base"), write_task(tmp_path, "single", number=3)
    words = ["--model", str(base), "--input_file", str(data), "--output_file", str(tmp_path / "b.jsonl")]
    assert main(["predict", *words]) == 2
    message = capsys.readouterr().err
    assert "was not fine-tuned: it holds no head for a task" in message
    assert "bertkit finetune" in message
