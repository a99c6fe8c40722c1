"""The data sets of the acceptance tasks, cut into a training and a test file where they come as one, and read back.

In: the folders of shared data.  Out: two files a task; rows of plain Python for the contender that has no readers.
Next: tasks_by_transformers.py
"""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVERY = 5  # where a set comes as one file, every fifth document, article or row is for the test
DOCUMENT = "-DOCSTART-"


def write_splits(name: str, shared: Path, folder: Path) -> tuple[Path, Path]:
    """Write a task's training and test file into a folder and return both; they are the same on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "wikigold":
        return _write_documents(shared / "wikigold" / "wikigold.conll.txt", folder)
    if name == "xquad.en":
        return _write_articles(shared / "xquad" / "xquad.en.json", folder)
    if name == "vader-amazon":
        return _write_rows(shared / "vader_regression" / "amazon.tsv", folder)
    train, test = {
        "stsb-en": ("stsb/stsb-en-train.csv", "stsb/stsb-en-test.csv"),
        "banking77": ("banking77/train.csv", "banking77/test.csv"),
        "wnut17": ("wnut17/wnut17train.conll", "wnut17/emerging.test.annotated"),
        "codah": ("codah/fold0_train.tsv", "codah/fold0_test.tsv"),
    }[name]
    pair = folder / f"train{Path(train).suffix}", folder / f"test{Path(train).suffix}"
    for source, target in zip((train, test), pair, strict=True):
        shutil.copyfile(shared / source, target)
    return pair


def both_ways(path: Path) -> Path:
    """Write scored pairs anew, each in both orders, beside their file (sentence, sentence, score; no header)."""
    target = path.with_stem(f"{path.stem}-both-ways")
    with path.open(encoding="utf-8", newline="") as source, target.open("w", encoding="utf-8", newline="") as file:
        for first, second, score in csv.reader(source):
            csv.writer(file).writerows([(first, second, score), (second, first, score)])
    return target


def _write_documents(path: Path, folder: Path) -> tuple[Path, Path]:
    """Wikigold by document; what stands before the first mark is a document too."""
    documents: list[list[str]] = [[]]
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(DOCUMENT):
            documents.append([])
        else:
            documents[-1].append(line)
    parts: tuple[list[str], list[str]] = [], []
    for number, lines in enumerate(lines for lines in documents if any(lines)):
        parts[number % EVERY == EVERY - 1].extend([*lines, ""])
    return _written(folder, "conll", *("\n".join(lines) for lines in parts))


def _write_articles(path: Path, folder: Path) -> tuple[Path, Path]:
    """Questions by article, so that no context is in both parts."""
    whole = json.loads(path.read_text("utf-8"))
    parts: tuple[list[Any], list[Any]] = [], []
    for number, article in enumerate(whole["data"]):
        parts[number % EVERY == EVERY - 1].append(article)
    return _written(folder, "json", *(json.dumps({"version": whole["version"], "data": part}) for part in parts))


def _write_rows(path: Path, folder: Path) -> tuple[Path, Path]:
    """Lines of a file with a header."""
    header, *lines = path.read_text("utf-8").splitlines()
    parts: tuple[list[str], list[str]] = [header], [header]
    for number, line in enumerate(lines):
        parts[number % EVERY == EVERY - 1].append(line)
    return _written(folder, "tsv", *("\n".join(lines) for lines in parts))


def _written(folder: Path, suffix: str, train: str, test: str) -> tuple[Path, Path]:
    paths = folder / f"train.{suffix}", folder / f"test.{suffix}"
    for path, text in zip(paths, (train, test), strict=True):
        path.write_text(text.rstrip("\n") + "\n", "utf-8")
    return paths


def rows_of(name: str, path: Path) -> list[dict[str, Any]]:
    """Return a file's rows as {text, pair, label}, {words, tags}, {context, choices, label} or a question's fields."""
    if name == "stsb-en":
        with path.open(encoding="utf-8", newline="") as file:
            return [{"text": first, "pair": second, "label": float(score)} for first, second, score in csv.reader(file)]
    if name == "banking77":
        with path.open(encoding="utf-8", newline="") as file:
            return [{"text": row["text"], "pair": None, "label": row["category"]} for row in csv.DictReader(file)]
    if name == "vader-amazon":
        lines = [line.split("\t", 1) for line in path.read_text("utf-8").splitlines()[1:]]
        return [{"text": text, "pair": None, "label": float(score)} for score, text in lines]
    if name == "codah":
        fields = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        return [{"context": f[1], "choices": f[2:6], "label": int(f[6])} for f in fields]
    return list(_questions(path)) if name == "xquad.en" else list(_sentences(path))


def _sentences(path: Path) -> Iterator[dict[str, Any]]:
    """Sentences with IOB2 tags, in whichever of the two schemes they come."""
    for block in path.read_text("utf-8").replace("\r", "").split("\n\n"):
        pairs = [line.split() for line in block.split("\n") if line.strip()]
        tags: list[str] = []
        for _, tag in pairs:
            continues = bool(tags) and tags[-1][1:] == tag[1:]
            tags.append(f"B-{tag[2:]}" if tag.startswith("I-") and not continues else tag)
        if pairs:
            yield {"words": [word for word, _ in pairs], "tags": tags}


def _questions(path: Path) -> Iterator[dict[str, Any]]:
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield {
                    "id": question["id"],
                    "question": question["question"],
                    "context": paragraph["context"],
                    "answers": [(answer["text"], answer["answer_start"]) for answer in question["answers"]],
                }
