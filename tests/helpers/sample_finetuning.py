"""Made-up fine-tuning runs on disk, one for each task, for the tests of the report; every text may be hostile."""

import json
from pathlib import Path
from typing import Any

LABELS = ["文化", "sport", "tech"]


def write_finetuning_run(folder: Path, task: str, *, text: str = "明月几时有", ended: bool = True) -> Path:
    """Write metrics.jsonl, run.json and, of a run that ended, its results and predictions; return the folder.

    text: stands in every text, label and name that comes from data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for step in range(1, 41):
        loss = 1.1 * 0.95**step
        rows.append({"kind": "train", "step": step, "loss": loss, "label_loss": loss, "label_accuracy": 1 - loss / 2})
        rows[-1]["learning_rate"] = 5e-5 * (1 - step / 41)
        if step % 10 == 0:
            rows.append({"kind": "validation", "step": step, **_figures(task, step / 40)})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    coverage = {part: {"examples": 40, "tokens": 812, "tokens cut off": 31} for part in ("train", "validation", "test")}
    run = {"command": f"bertkit finetune {task}", "base": f"runs/base {text}", "steps": 40, "best_step": 30}
    run |= {"training_seconds": 31.4, "settings": {"task": task, "train_file": text}, "coverage": coverage}
    (folder / "run.json").write_text(json.dumps(run, ensure_ascii=False), encoding="utf-8")
    if ended:
        figures = {**_figures(task, 0.75), **_tables(task, text), "examples": 40}
        results = {"task": task, "global_step": 30, "validation": figures, "test": figures}
        (folder / "eval_results.json").write_text(json.dumps(results, ensure_ascii=False), encoding="utf-8")
        for part in ("validation", "test"):
            lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in predictions(task, text)]
            (folder / f"predictions_{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _figures(task: str, share: float) -> dict[str, float]:
    names = {
        "sequence-classification": ("accuracy", "macro_f1"),
        "token-classification": ("f1", "precision", "recall", "accuracy"),
        "multiple-choice": ("accuracy", "chance"),
        "question-answering": ("exact_match", "f1"),
    }[task]
    return {name: round(0.4 + 0.5 * share - 0.03 * place, 4) for place, name in enumerate(names)}


def _tables(task: str, text: str) -> dict[str, Any]:
    row = {"precision": 0.8125, "recall": 0.7, "f1": 0.752, "support": 20}
    if task == "sequence-classification":
        labels = [text, *LABELS[1:]]
        by_class = {name: {**row, "support": 20 + place} for place, name in enumerate(labels)}
        return {"by_class": by_class, "confusion": {"labels": labels, "rows": [[14, 5, 1], [0, 20, 0], [2, 3, 15]]}}
    if task == "token-classification":
        return {"by_class": {text: row, "LOC": row}}
    if task == "question-answering":
        return {"cmrc": {"exact_match": 62.5, "f1": 80.25, "average": 71.375, "total": 40, "skipped": 0}}
    return {}


def predictions(task: str, text: str) -> list[dict[str, Any]]:
    """Two wrong answers and a right one."""
    if task == "sequence-classification":
        scores = {text: 0.07, "sport": 0.91, "tech": 0.02}
        wrong = {"id": f"{text}:1", "label": "sport", "score": 0.91, "scores": scores, "gold": text, "text": text}
        several = {"id": "2", "labels": [], "scores": {text: 0.4}, "gold": [text], "text": text, "error": 0.6}
        right = {"id": "3", "label": "sport", "score": 0.9, "scores": scores, "gold": "sport", "text": text, "error": 0}
        return [right, several, {**wrong, "error": 0.91}]
    if task == "token-classification":
        whole = f"{text} in Paris"
        places = {"offsets": [[0, len(text)], [len(text) + 1, len(text) + 3], [len(text) + 4, len(text) + 9]]}
        span = {"entity_group": text, "score": 0.8, "word": text, "start": 0, "end": len(text)}
        city = {"entity_group": "LOC", "start": len(text) + 4, "end": len(text) + 9}
        both = {"tokens": [text, "in", "Paris"], "text": whole, **places}
        entities = {"id": text, **both, "entities": [span], "gold_entities": [city], "error": 2.0}
        classes = {"id": "2", **both, "entities": [], "tags": ["N", text, "N"], "gold": ["N", "P", "N"], "error": 1.0}
        return [{**both, "id": "3", "entities": [span], "gold_entities": [span], "error": 0.0}, entities, classes]
    if task == "multiple-choice":
        choice = {"context": text, "choices": [text, f"{text} no"], "scores": [0.7, 0.3], "label": 0, "choice": text}
        return [{"id": text, **choice, "gold": 1, "text": text, "error": 0.7}, {**choice, "gold": 0, "error": 0.0}]
    context = f"{text}，把酒问青天。不知天上宫阙，今夕是何年。{text}"
    begin = context.index("今夕")
    asked = {"id": text, "text": f"{text}?\n{context}", "context_start": len(text) + 2, "score": 0.8}
    wrong = {**asked, "answer": "宫阙", "start": begin - 3, "end": begin - 1, "gold": ["今夕"], "gold_starts": [begin]}
    none = {**asked, "answer": "", "start": 0, "end": 0, "gold": [text], "gold_starts": [0], "error": 0.3}
    return [{**wrong, "error": 0.8}, none, {**wrong, "answer": "今夕", "error": 0.0}]
