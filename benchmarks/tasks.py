"""Seven tasks fine-tuned by bertkit and by transformers at equal settings: how good are the models?

In: a task and a seed, the shared data, the MiniLM encoder (`make weights`).  Out: one JSON summary a finished run; what
has one of the same settings is not run again.  --table prints mean ± sd over the seeds, the difference, and two
standard errors of it.
    OMP_NUM_THREADS=1 python benchmarks/tasks.py --tasks stsb-en --seeds 1,2,3 --systems transformers,bertkit
"""

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers
from task_files import both_ways, rows_of, write_splits
from tasks_by_transformers import LONGEST_ANSWER, Kind, Settings, fine_tune

import bertkit
from bertkit.commands.finetune import Config, finetune
from bertkit.data.tags import spans_of
from bertkit.files import cache_directory
from bertkit.metrics.classification import regression_scores
from bertkit.metrics.entities import entity_scores
from bertkit.metrics.question_answering import squad1_scores
from bertkit.metrics.scores import mean_and_sd
from bertkit.options import config_from

RESULTS = Path(__file__).parent / "results" / "tasks"
SYSTEMS = ("transformers", "bertkit")
WARM_UP, DOC_STRIDE = 0.1, 128
NEVER = 10**6  # steps between two evaluations; the last step is always evaluated
NAMES = {
    "texts": "sequence-classification",
    "tags": "token-classification",
    "choices": "multiple-choice",
    "questions": "question-answering",
}


@dataclass(frozen=True)
class Recipe:
    """A task, its settings and the metric that counts."""

    kind: Kind
    metrics: tuple[str, ...]  # the first one counts
    seeds: tuple[int, ...]
    settings: Settings


def _settings(
    batch_size: int,
    epochs: int,
    learning_rate: float,
    *,
    max_seq_length: int = 128,
    dropout: float = 0.1,
    **others: Any,
) -> Settings:
    return Settings(
        batch_size, epochs, learning_rate, WARM_UP, max_seq_length, doc_stride=DOC_STRIDE, dropout=dropout, **others
    )


RECIPES = {
    # These weights were trained on without their pooler: [CLS] itself knows more of how alike two sentences are.
    "stsb-en": Recipe(
        "texts", ("spearman", "pearson"), (1, 2, 3), _settings(32, 2, 1e-4, pooling="cls", both_ways=True)
    ),
    "wikigold": Recipe("tags", ("f1", "precision", "recall"), (1, 2, 3), _settings(16, 5, 2e-4)),
    "xquad.en": Recipe("questions", ("f1", "exact_match"), (1, 2, 3), _settings(16, 2, 2e-4, max_seq_length=384)),
    "banking77": Recipe("texts", ("accuracy",), (1,), _settings(32, 2, 2e-4)),
    "vader-amazon": Recipe("texts", ("pearson", "spearman"), (1,), _settings(32, 2, 1e-4, dropout=0.0)),  # no blur
    "wnut17": Recipe("tags", ("f1", "precision", "recall"), (1,), _settings(32, 3, 2e-4)),
    "codah": Recipe("choices", ("accuracy",), (1,), _settings(16, 2, 1e-4)),
}


def by_transformers(
    recipe: Recipe, name: str, *, train: Path, test: Path, base: str, seed: int, folder: Path
) -> tuple[dict[str, float], int]:
    """Return the metrics on the test part, and the steps; nothing is written into the folder."""
    rows, held_out = rows_of(name, train), rows_of(name, test)
    answers, steps = fine_tune(recipe.kind, base, rows, held_out, settings=recipe.settings, seed=seed)
    return figures_of(recipe, held_out, answers), steps


def figures_of(recipe: Recipe, rows: Sequence[dict[str, Any]], answers: Sequence[Any]) -> dict[str, float]:
    """Return the metrics of answers, by the functions with which bertkit measures its own."""
    if recipe.kind == "tags":
        overall = entity_scores([spans_of(row["tags"]) for row in rows], [spans_of(tags) for tags in answers]).overall
        found: dict[str, Any] = asdict(overall)
    elif recipe.kind == "questions":
        gold = {row["id"]: [text for text, _ in row["answers"]] for row in rows}
        given = {row["id"]: answer for row, answer in zip(rows, answers, strict=True)}
        found = {metric: value / 100 for metric, value in squad1_scores(gold, given).items()}
    elif "accuracy" in recipe.metrics:
        right = sum(row["label"] == answer for row, answer in zip(rows, answers, strict=True))
        found = {"accuracy": right / len(rows)}
    else:
        found = asdict(regression_scores([row["label"] for row in rows], answers))
    return {metric: float(found[metric]) for metric in recipe.metrics}  # None, of a constant: no figure, and an error


def by_bertkit(
    recipe: Recipe, name: str, *, train: Path, test: Path, base: str, seed: int, folder: Path
) -> tuple[dict[str, float], int]:
    """Return the metrics on the test part, and the steps; tags are decoded one by one, as the others do."""
    own = asdict(recipe.settings)
    epochs, dropout, stride = own.pop("epochs"), own.pop("dropout"), own.pop("doc_stride")
    pooling = own.pop("pooling")
    del own["both_ways"]  # as the training file is
    if recipe.kind == "texts":
        own["pooling"] = pooling
    elif recipe.kind == "questions":
        own |= {"doc_stride": stride, "max_answer_length": LONGEST_ANSWER}
    elif recipe.kind == "tags":
        own["constrained_decoding"] = False
    values = {
        "task": NAMES[recipe.kind],
        "model_name_or_path": base,
        "train_file": str(train),
        "test_file": str(test),
        "output_dir": str(folder / "run"),
        "eval_every": NEVER,  # only the last model is measured: the test part must not choose one
        "num_train_epochs": float(epochs),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "seed": seed,
    }
    results = finetune(config_from(Config, {**values, **own}))
    return {metric: results["test"][metric] for metric in recipe.metrics}, results["global_step"]


CONTENDERS: dict[str, Callable[..., tuple[dict[str, float], int]]] = {
    "transformers": by_transformers,
    "bertkit": by_bertkit,
}


def run(name: str, seed: int, system: str, *, shared: Path, work: Path, results: Path, base: str) -> None:
    """Run what has no summary of these settings yet, and write its summary."""
    summary, recipe = results / f"{name}-{system}-{seed}.json", RECIPES[name]
    if summary.exists() and json.loads(summary.read_text("utf-8"))["settings"] == asdict(recipe.settings):
        return
    folder = work / f"{name}-{system}-{seed}-{time.time_ns()}"
    train, test = write_splits(name, shared, work / name)
    train = both_ways(train) if recipe.settings.both_ways else train
    print(f"{name}, seed {seed}, {system} …", flush=True)
    began, began_cpu = time.perf_counter(), time.process_time()
    found, steps = CONTENDERS[system](recipe, name, train=train, test=test, base=base, seed=seed, folder=folder)
    record = {
        "task": name,
        "system": system,
        "seed": seed,
        "metrics": found,
        "steps": steps,
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - began_cpu, 1),
        "settings": asdict(recipe.settings),
        "versions": {
            "bertkit": bertkit.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "threads": THREADS,
    }
    results.mkdir(parents=True, exist_ok=True)
    temporary = summary.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    temporary.replace(summary)
    print(f"  {found}, {record['processor_seconds']:.0f} s of the processor", flush=True)


def table(results: Path) -> str:
    """Return the summaries as Markdown; a task with one seed has no deviation."""
    records = [json.loads(path.read_text("utf-8")) for path in sorted(results.glob("*.json"))]
    lines = ["| task, test part | metric | seeds | transformers | bertkit | difference | two standard errors |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, recipe in RECIPES.items():
        for metric in recipe.metrics:
            values = {
                system: {
                    r["seed"]: 100 * r["metrics"][metric]
                    for r in records
                    if key(r) == (name, system, asdict(recipe.settings))
                }
                for system in SYSTEMS
            }
            seeds = sorted(set.intersection(*(set(own) for own in values.values())))
            if seeds:
                theirs, ours = ([values[system][seed] for seed in seeds] for system in SYSTEMS)
                lines.append(f"| {name} | {metric} | {len(seeds)} | {compared(theirs, ours)} |")
    return "\n".join(lines)


def key(record: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the task, the system and the settings of a summary."""
    return record["task"], record["system"], record["settings"]


def compared(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """Return both means with their deviations, the difference, and two standard errors of it."""
    (mean, deviation), (own, own_deviation) = mean_and_sd(theirs), mean_and_sd(ours)
    if len(ours) == 1:
        return f"{mean:.1f} | {own:.1f} | {own - mean:+.1f} | –"
    error = 2 * math.sqrt((deviation**2 + own_deviation**2) / len(ours))
    return f"{mean:.1f} ± {deviation:.1f} | {own:.1f} ± {own_deviation:.1f} | {own - mean:+.1f} | {error:.1f}"


def main() -> None:
    """Run what is asked for and not yet there, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join(RECIPES))
    parser.add_argument("--seeds", help="comma separated; left out: the task's own")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--model_name_or_path", default=str(cache_directory() / "weights" / "minilm"))
    parser.add_argument("--shared_data", type=Path, default=os.environ.get("BERTKIT_SHARED_DATA", "../shared/data"))
    parser.add_argument("--work_dir", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print the tables of what is there")
    wish = parser.parse_args()
    if not wish.table:
        torch.set_num_threads(THREADS)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        places = {"shared": Path(wish.shared_data), "work": wish.work_dir, "results": wish.results}
        for name in wish.tasks.split(","):
            for seed in map(int, wish.seeds.split(",")) if wish.seeds else RECIPES[name].seeds:
                for system in wish.systems.split(","):
                    run(name, seed, system, **places, base=wish.model_name_or_path)
    print(table(wish.results))


if __name__ == "__main__":
    main()
