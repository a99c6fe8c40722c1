"""Fine-tuned toy models for the tests of what is asked of them, one a kind, trained once a module."""

from pathlib import Path

from toy_tasks import finetune_config, write_base, write_task

from bertkit.commands.finetune import finetune

KINDS = ("single", "pair", "multi", "regression", "tags", "choices", "questions", "questions2")


def trained_models(folder: Path) -> dict[str, Path]:
    """Models of 40 steps on 40 rows by kind; their validation parts are `folder/KIND-1` (see validation_file)."""
    base = write_base(folder / "base")
    models = {}
    for kind in KINDS:
        models[kind] = folder / f"{kind} model"
        train, held_out = write_task(folder, kind, number=40), write_task(folder, kind, number=24, seed=1)
        values = {"validation_file": str(held_out), "max_steps": 40, "eval_every": 20, "log_every": 40}
        finetune(finetune_config(base, train, models[kind], kind=kind, **values))
    return models


def validation_file(model: Path, kind: str) -> Path:
    """The validation part of a model of trained_models."""
    return model.parent / f"{kind}-1.{'json' if kind.startswith('questions') else 'jsonl'}"
