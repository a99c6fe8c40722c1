"""Labelled files of a few lines for the five tasks, on the toy grammar, and a toy model to fine-tune."""

import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from toy_run import CHINESE, ENGLISH, toy_model_config, toy_tokenizer

from bertkit.commands.finetune import Config
from bertkit.model.architectures import build
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import save
from bertkit.model.task_config import TaskConfig
from bertkit.options import config_from
from bertkit.tasks.task_file import TASK_FILE, task_file
from bertkit.tasks.task_names import task_named
from bertkit.tasks.task_settings import Knowledge, TaskSettings


def write_base(folder: Path, *, dropout: float = 0.0, positions: int = 64) -> Path:
    """A pre-training model of two layers with the toy vocabulary, its weights random."""
    torch.manual_seed(1)
    model = PretrainingModel(toy_model_config(dropout=dropout, positions=positions))
    save(folder, model, files=toy_tokenizer().files())
    return folder


def sentence(generator: random.Random, *, english: bool) -> str:
    """A sentence of the grammar."""
    words = [generator.choice(part) for part in (ENGLISH if english else CHINESE)]
    return " ".join(words) if english else "".join(words)


def write_task(folder: Path, kind: str, *, number: int = 40, seed: int = 0) -> Path:
    """A file of one of: single, pair, multi, regression, tags, choices, questions, questions2."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(f"{kind}{seed}")
    rows = [_RECORDS[kind](generator, index) for index in range(number)]
    if kind in ("questions", "questions2"):
        path = folder / f"{kind}-{seed}.json"
        paragraphs = [{"context": context, "qas": [question]} for context, question in rows]
        path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
        return path
    path = folder / f"{kind}-{seed}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def _single(generator: random.Random, index: int) -> dict[str, Any]:
    english = bool(index % 2)
    return {"text": sentence(generator, english=english), "label": "english" if english else "中文"}


def _pair(generator: random.Random, index: int) -> dict[str, Any]:
    first, second = generator.random() < 0.5, generator.random() < 0.5
    texts = [sentence(generator, english=english) for english in (first, second)]
    return {"sentence1": texts[0], "sentence2": texts[1], "label": "same" if first == second else "different"}


def _multi(generator: random.Random, index: int) -> dict[str, Any]:
    kinds = [generator.random() < 0.5, generator.random() < 0.5]
    parts = [
        sentence(generator, english=english) for english, wanted in ((True, kinds[0]), (False, kinds[1])) if wanted
    ]
    labels = [name for name, wanted in (("english", kinds[0]), ("中文", kinds[1])) if wanted]
    return {"text": " ".join(parts) or "月", "labels": labels}


def _regression(generator: random.Random, index: int) -> dict[str, Any]:
    count = generator.randint(1, 4)
    return {"text": " ".join(sentence(generator, english=True) for _ in range(count)), "label": count + 0.5}


def _tags(generator: random.Random, index: int) -> dict[str, Any]:
    words = sentence(generator, english=True).split()
    places = {"tower", "hill", "window", "shore", "road", "bridge", "yard", "sand"}
    return {"tokens": words, "tags": ["B-PLACE" if word in places else "O" for word in words]}


def _choices(generator: random.Random, index: int) -> dict[str, Any]:
    right = generator.randrange(2 + index % 2)
    choices = [sentence(generator, english=place == right) for place in range(2 + index % 2)]
    return {"question": sentence(generator, english=True), "choices": choices, "label": right}


def _question(generator: random.Random, index: int) -> tuple[str, dict[str, Any]]:
    parts = [sentence(generator, english=False) for _ in range(3)]
    answer = sentence(generator, english=True).split()[-1]
    context = f"{parts[0]} {answer} {parts[1]} {parts[2]}"
    found = {"text": answer, "answer_start": context.index(answer)}
    return context, {"id": f"q{index}", "question": "the english", "answers": [found]}


def _question2(generator: random.Random, index: int) -> tuple[str, dict[str, Any]]:
    context, question = _question(generator, index)
    if index % 3:
        return context, {**question, "is_impossible": False}
    return "".join(sentence(generator, english=False) for _ in range(3)), {
        **question,
        "answers": [],
        "is_impossible": True,
    }


_RECORDS: dict[str, Any] = {
    "single": _single,
    "pair": _pair,
    "multi": _multi,
    "regression": _regression,
    "tags": _tags,
    "choices": _choices,
    "questions": _question,
    "questions2": _question2,
}
TASK_OF = {
    **dict.fromkeys(("single", "pair", "multi", "regression"), "sequence-classification"),
    "tags": "token-classification",
    "choices": "multiple-choice",
    **dict.fromkeys(("questions", "questions2"), "question-answering"),
}


def finetune_config(base: Path, train: Path, output: Path, *, kind: str, **values: Any) -> Config:
    """The settings of a run of 12 steps of 8 rows; `values` by the names of the flags."""
    given = {
        "task": TASK_OF[kind],
        "model_name_or_path": str(base),
        "train_file": str(train),
        "output_dir": str(output),
        "batch_size": 8,
        "max_steps": 12,
        "log_every": 1,
        "learning_rate": 5e-3,
        "max_seq_length": 48,
        **({"doc_stride": 8, "max_query_length": 8} if TASK_OF[kind] == "question-answering" else {}),
    }
    config: Config = config_from(Config, {**given, **values})
    return config


def write_tuned(folder: Path, kind: str, *, labels: tuple[str, ...] = ("LABEL_0", "LABEL_1"), **values: Any) -> Path:
    """A model of a task with large random weights, as `bertkit finetune` leaves it; no step was trained.

    values: of TaskSettings, Knowledge and TaskConfig, by name.
    """
    task = task_named(TASK_OF[kind])
    settings, knowledge, config = (
        {name: value for name, value in values.items() if name in {field.name for field in fields(of)}}
        for of in (TaskSettings, Knowledge, TaskConfig)
    )
    torch.manual_seed(3)
    model = build(toy_model_config(dropout=0.0, positions=64), head=task.head, task=TaskConfig(labels, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3)
    given = TaskSettings(**{"max_seq_length": 24, "doc_stride": 4, "max_query_length": 8, **settings})
    files = {**toy_tokenizer().files(), TASK_FILE: task_file(task, given, Knowledge(**knowledge))}
    save(folder, model, files=files)
    return folder
