"""P7: how soon does bertkit reach the held-out masked-LM loss that a tuned transformers (HF-t) reaches in some minutes?

In: the Song ci, one vocabulary, one model size, pairs by segment; --minutes for HF-t.  Out: a run each of HF-t and
HF-d, and of bertkit in a tenth of that time (with every seed), in a quarter, at HF-t's tokens, and in all of it;
Markdown and JSON. Every run has a schedule of its own that ends with it. All are judged by bertkit's evaluation: the
test part, 15 % of its tokens hidden by one fixed seed.
    OMP_NUM_THREADS=2 python benchmarks/time_to_loss.py --minutes 20
With --tune: HF-t's grid of rates and rows, then what stands near its best in twice the time, judged on the
validation part.
    OMP_NUM_THREADS=1 python benchmarks/time_to_loss.py --tune --minutes 1.5
Next: contenders.py, tables.py
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "2"))

import torch
import transformers
from contenders import HF_D, HF_T, Transformers, Tuning, dense_batches, store_of, text_of
from machine import RESULTS, machine
from tables import grid_of_losses, loss_table

from bertkit.commands.pretrain import Config, pretrain
from bertkit.commands.vocab import build_vocabulary
from bertkit.data.pairs import PairSettings
from bertkit.data.prepared import open_prepared
from bertkit.model.config import config_of_size
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load
from bertkit.options import config_from
from bertkit.tasks.held_out import evaluate

VOCAB_ENTRIES = 8000  # at most: every character seen twice
SHARES = (0.1, 0.25, 1.0)  # of HF-t's minutes that bertkit gets
PAIRS = PairSettings()  # --pairing segment
GRID_RATES, GRID_ROWS = (5e-4, 1e-3, 2e-3, 4e-3), (32, 64, 256)
TUNING_ROWS = 1024  # of the validation part
TUNED = replace(HF_T, rows=32, learning_rate=2e-3, warmup=0.1, mlm_probability=0.3)  # the best that --tune found
Clock = Callable[[], float]


def store() -> Path:
    """Return the store of the Song ci with a vocabulary of its own characters."""
    return store_of("Song ci", build_vocabulary(text_of("Song ci"), vocab_size=VOCAB_ENTRIES))


def train_transformers(
    size: str, data: Path, tuning: Tuning, *, minutes: float, clock: Clock, part: str, max_rows: int | None, seed: int
) -> dict[str, float]:
    """Return tokens, seconds and held-out metrics of transformers after so many minutes of training.

    clock: what tells the time: time.perf_counter, or time.process_time where others use the machine too.
    part, max_rows: what it is judged by.
    """
    torch.manual_seed(seed)
    parts, tokenizer = open_prepared(data)
    config = config_of_size(size, vocab_size=tokenizer.vocabulary.size)
    training = Transformers(config, dense_batches(data, PAIRS, tuning, seed=seed), tuning)
    tokens, steps, began, seconds = 0, 0, clock(), 0.0
    while seconds < 60 * minutes:
        tokens += training.step(seconds / (60 * minutes)).tokens
        steps += 1
        seconds = clock() - began
    with tempfile.TemporaryDirectory() as folder:
        training.model.save_pretrained(folder)
        model = load(folder, head="pretraining")
    assert isinstance(model, PretrainingModel)
    found = evaluate(model, parts[part], vocabulary=tokenizer.vocabulary, pairs=PAIRS, max_rows=max_rows)
    return {"tokens": tokens, "steps": steps, "seconds": seconds, **found.metrics}


def train_bertkit(size: str, data: Path, *, length: dict[str, Any], seed: int) -> dict[str, float]:
    """Return tokens, seconds and held-out metrics of `bertkit pretrain`: its default recipe, its best checkpoint.

    length: max_minutes or max_steps.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        values = {"output_dir": str(folder), "data_dir": str(data), "model_size": size, "seed": seed, **length}
        config: Config = config_from(Config, values)
        results = pretrain(config)
        run = json.loads((folder / "run.json").read_text("utf-8"))
    return {
        "tokens": run["tokens"],
        "steps": run["steps"],
        "seconds": run["training_seconds"],
        "mlm_loss": results["masked_lm_loss"],
        "mlm_accuracy": results["masked_lm_accuracy"],
        "mlm_accuracy_without_punctuation": results["masked_lm_accuracy_without_punctuation"],
        "nsp_accuracy": results["next_sentence_accuracy"],
    }


def compare(
    size: str, data: Path, *, minutes: float, seeds: list[int], systems: list[str], output: Path
) -> dict[str, Any]:
    """Return {"runs": {name: a run for each seed}}, HF-t first; each run is kept as soon as it is there.

    Of the other seeds than the first only bertkit in the least time is run: it is the one that has to prove itself.
    """
    kept_in, first = output / "time_to_loss.json", seeds[0]
    same = {"size": size, "minutes": minutes, "seeds": seeds, "tuning": asdict(TUNED)}
    kept: dict[str, Any] = json.loads(kept_in.read_text("utf-8")) if kept_in.exists() else {}
    if any(kept.get(name) != value for name, value in same.items()):
        kept = {**same, "runs": {}}

    def note(name: str, run: dict[str, float], *, seed: int = first) -> None:
        others = [each for each in kept["runs"].get(name, []) if each["seed"] != seed]
        kept["runs"][name], kept["machine"] = [*others, {"seed": seed, **run}], machine()
        print(f"{name}: {run['seconds']:.0f} s, loss {run['mlm_loss']:.3f}", file=sys.stderr, flush=True)
        output.mkdir(parents=True, exist_ok=True)
        kept_in.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")

    for name, tuning in (("HF-t", TUNED), ("HF-d", replace(HF_D, rows=32))):
        if name in systems:
            judged = {"clock": time.perf_counter, "part": "test", "max_rows": None, "seed": first}
            note(name, train_transformers(size, data, tuning, minutes=minutes, **judged))
    if "bertkit" in systems:
        for share in SHARES:
            for seed in seeds if share == SHARES[0] else seeds[:1]:
                run = train_bertkit(size, data, length={"max_minutes": share * minutes}, seed=seed)
                note(f"bertkit, {share:g} of the time", run, seed=seed)
        if "HF-t" in kept["runs"]:
            steps = math.ceil(kept["runs"]["HF-t"][0]["tokens"] / (run["tokens"] / run["steps"]))
            note("bertkit, equal tokens", train_bertkit(size, data, length={"max_steps": steps}, seed=first))
    return kept


def tune(size: str, data: Path, *, minutes: float, seed: int, output: Path) -> dict[str, Any]:
    """Return the held-out loss of HF-t by rate and rows, then of what stands near the best, in twice the time.

    Time is that of the processor, so that others may use the machine; that needs one thread.
    """
    if THREADS != 1:
        raise SystemExit("--tune counts processor time: set OMP_NUM_THREADS=1")
    kept: dict[str, Any] = {"size": size, "seed": seed, "machine": machine(), "grid": []}

    def attempt(tuning: Tuning, minutes: float) -> float:
        judged = {"clock": time.process_time, "part": "validation", "max_rows": TUNING_ROWS, "seed": seed}
        found = train_transformers(size, data, tuning, minutes=minutes, **judged)
        kept["grid"].append({**asdict(tuning), "minutes": minutes, **found})
        print(f"{tuning}: {found['mlm_loss']:.3f}", file=sys.stderr, flush=True)
        output.mkdir(parents=True, exist_ok=True)
        (output / "tuning.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        return found["mlm_loss"]

    grid = [replace(HF_T, rows=rows, learning_rate=rate) for rows in GRID_ROWS for rate in GRID_RATES]
    losses = {tuning: attempt(tuning, minutes) for tuning in grid}
    for tuning in finalists(min(losses, key=lambda tuning: losses[tuning])):
        attempt(tuning, 2 * minutes)
    return kept


def finalists(best: Tuning) -> list[Tuning]:
    """Return the best of the grid and what stands near it: half the rate, half the rows, warm-up, masking rate."""
    rate, rows = best.learning_rate, best.rows
    hard = replace(best, warmup=0.2, mlm_probability=0.3)
    return [
        best,
        replace(best, learning_rate=rate / 2),
        replace(best, learning_rate=rate / 2, rows=rows // 2),
        replace(best, learning_rate=rate / 4, rows=rows // 2),
        replace(best, warmup=0.2),
        replace(best, mlm_probability=0.3),
        hard,
        replace(hard, learning_rate=1.5 * rate),
    ]


def main() -> None:
    """Train everybody, or tune one, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of HF-t; with --tune of every point of the grid")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--systems", nargs="+", default=["HF-t", "HF-d", "bertkit"])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    wish = parser.parse_args()
    torch.set_num_threads(THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if wish.tune:
        kept = tune(wish.size, store(), minutes=wish.minutes, seed=wish.seeds[0], output=wish.output)
        text, name = "\n".join(grid_of_losses(kept)), "tuning.md"
    else:
        how = {"minutes": wish.minutes, "seeds": wish.seeds, "systems": wish.systems, "output": wish.output}
        kept = compare(wish.size, store(), **how)
        if "HF-t" not in kept["runs"]:
            raise SystemExit("what was measured is kept; the table needs a run of HF-t")
        text, name = "\n".join(loss_table(kept)), "time_to_loss.md"
    (wish.output / name).write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
