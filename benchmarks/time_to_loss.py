"""P7: how soon does bertkit reach the held-out masked-LM loss that a tuned transformers (HF-t) reaches in some minutes?

In: the Song ci, one vocabulary, one model size, pairs by segment; --minutes for the peers.
First the tokens a second of everybody are measured, interleaved, and the seconds of bertkit's head start; the machine
has to be idle for these minutes (--rates: for them alone). Then everybody is trained for the tokens of its time, by any
number of threads on a machine as busy as it may be: the peers for --minutes, bertkit for shares of them and for HF-t's
tokens. Every run has its own schedule, which ends with it.
Out: Markdown and JSON. All are judged by bertkit's evaluation: the test part, 15 % hidden by one fixed seed.
    OMP_NUM_THREADS=2 python benchmarks/time_to_loss.py --minutes 20
With --tune: HF-t's grid of rates and rows, then what stands near its best in twice the time, judged on the
validation part.
    OMP_NUM_THREADS=1 python benchmarks/time_to_loss.py --tune --minutes 1.5
Next: contenders.py, elsewhere.py, tables.py
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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "2"))

import torch
import transformers
from contenders import DEFAULT_RATE, HF_T, Bertkit, Contender, Transformers, Tuning, dense_batches, store_of, text_of
from elsewhere import side_by_side
from machine import RESULTS, machine
from tables import grid_of_losses, loss_table, rate_of

from bertkit.commands.pretrain import Config, pretrain
from bertkit.commands.vocab import build_vocabulary
from bertkit.data.pairs import PairSettings
from bertkit.data.prepared import open_prepared
from bertkit.model.config import BertConfig, config_of_size
from bertkit.model.head_start import GAIN, NOISE, POSITIONS, SHARPNESS, WORDS
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load
from bertkit.options import config_from
from bertkit.tasks.held_out import evaluate
from bertkit.tasks.pretraining_model import count_head_start
from bertkit.tasks.recipes import DEFAULT_RECIPE, RECIPES, of_size

VOCAB_ENTRIES = 8000  # at most: every character seen twice
SHARES = (0.1, 0.2, 0.5, 1.0)  # of HF-t's seconds that bertkit gets
SHARES_OF_ALL_SEEDS = 2  # the first of these, and HF-t; the others are made with the first seed
RATE_ROUNDS, RATE_SECONDS = 5, 8.0  # of each contender
PAIRS = PairSettings()  # --pairing segment
GRID_RATES, GRID_ROWS = (5e-4, 1e-3, 2e-3, 4e-3), (32, 64, 256)
TUNING_ROWS = 1024  # of the validation part
TUNED = replace(HF_T, rows=16, learning_rate=2e-3, warmup=0.1, mlm_probability=0.3)  # the best that --tune found
# What transformers may do about the rows of a step, and about the masking rate, which its users seldom change.
PEERS = {
    "HF-t": TUNED,
    "HF-t, 32 rows": replace(TUNED, rows=32),
    "HF-t, 32 rows, 15 % hidden": replace(TUNED, rows=32, mlm_probability=0.15, warmup=0.2),
}
TIMED_PEERS = ("HF-t", "HF-t, 32 rows")  # whatever is hidden: their head computes all scores
Progress = Callable[[int, float], float]  # of tokens and seconds of the processor: how much of a run is over


def store() -> Path:
    """Return the store of the Song ci with a vocabulary of its own characters."""
    return store_of("Song ci", build_vocabulary(text_of("Song ci"), vocab_size=VOCAB_ENTRIES))


def train_transformers(
    size: str, data: Path, tuning: Tuning, *, progress: Progress, part: str, max_rows: int | None, seed: int
) -> dict[str, float]:
    """Return tokens, seconds of the processor and held-out metrics of transformers when its run is over.

    part, max_rows: what it is judged by.
    """
    torch.manual_seed(seed)
    parts, tokenizer = open_prepared(data)
    config = config_of_size(size, vocab_size=tokenizer.vocabulary.size)
    training = Transformers(config, dense_batches(data, PAIRS, tuning, seed=seed), tuning)
    tokens, steps, began, seconds = 0, 0, time.process_time(), 0.0
    while (done := progress(tokens, seconds)) < 1:
        tokens += training.step(done).tokens
        steps += 1
        seconds = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        training.model.save_pretrained(folder)
        model = load(folder, head="pretraining")
    assert isinstance(model, PretrainingModel)
    found = evaluate(model, parts[part], vocabulary=tokenizer.vocabulary, pairs=PAIRS, max_rows=max_rows)
    return {"tokens": tokens, "steps": steps, "seconds": seconds, **found.metrics}


def train_bertkit(size: str, data: Path, *, max_steps: int, seed: int) -> dict[str, float]:
    """Return tokens, seconds and held-out metrics of `bertkit pretrain`: its default recipe, its best checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        values = {"output_dir": str(folder), "data_dir": str(data), "model_size": size, "seed": seed}
        values["max_steps"] = max_steps
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


def peer(config: BertConfig, data: Path, tuning: Tuning) -> Transformers:
    """Return transformers, at a rate that cannot diverge: it would have denormal numbers, which are slow."""
    gentle = replace(tuning, learning_rate=DEFAULT_RATE)
    return Transformers(config, dense_batches(data, PAIRS, gentle), gentle)


def measure_rates(size: str, data: Path) -> dict[str, dict[str, Any]]:
    """Return {name: tokens a second of each round, tokens of a step} of bertkit and TIMED_PEERS, taking turns."""
    _, tokenizer = open_prepared(data)
    config = config_of_size(size, vocab_size=tokenizer.vocabulary.size)
    makers: dict[str, Callable[[], Contender]] = {
        "bertkit": partial(Bertkit, data, {"model_size": size}),
        **{name: partial(peer, config, data, PEERS[name]) for name in TIMED_PEERS},
    }
    found: dict[str, dict[str, Any]] = {name: {"tokens_per_second": [], "tokens_a_step": 0.0} for name in makers}
    with side_by_side(makers) as contenders:
        for _ in range(RATE_ROUNDS + 1):  # the first is not counted
            for name, contender in contenders.items():
                steps = [contender.step()]
                while sum(step.seconds for step in steps) < RATE_SECONDS:
                    steps.append(contender.step())
                tokens = sum(step.tokens for step in steps)
                found[name]["tokens_per_second"].append(tokens / sum(step.seconds for step in steps))
                found[name]["tokens_a_step"] = tokens / len(steps)
    for name, rates in found.items():
        del rates["tokens_per_second"][0]
        print(f"{name}: {median(rates['tokens_per_second']):,.0f} tokens/s", file=sys.stderr, flush=True)
    return found


def seconds_of_head_start(size: str, data: Path) -> float:
    """Return how long bertkit counts neighbours and makes word vectors of them before its first step; the median."""
    parts, tokenizer = open_prepared(data)
    config, seconds = config_of_size(size, vocab_size=tokenizer.vocabulary.size), []
    for _ in range(RATE_ROUNDS):
        model = PretrainingModel(config)
        began = time.perf_counter()
        count_head_start(model, parts["train"], tokenizer.vocabulary)
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def compare(
    size: str, data: Path, *, minutes: float, seeds: list[int], only: list[str] | None, output: Path
) -> dict[str, Any]:
    """Return rates and {"runs": {name: a run for each seed}}; each is kept as soon as it is there, and not made again.

    only: the names of the runs to make; None: all.
    """
    kept_in = output / "time_to_loss.json"
    same = {"size": size, "minutes": minutes, "peers": {name: asdict(tuning) for name, tuning in PEERS.items()}}
    kept: dict[str, Any] = json.loads(kept_in.read_text("utf-8")) if kept_in.exists() else {}
    if any(kept.get(name) != value for name, value in same.items()):
        kept = {**same, "runs": {}}
    recipe = {**RECIPES[DEFAULT_RECIPE], **of_size(size), "head_start": [WORDS, POSITIONS, SHARPNESS, NOISE, GAIN]}
    if kept.get("recipe") != recipe:  # what another recipe reached tells nothing of this one
        kept["recipe"] = recipe
        kept["runs"] = {name: runs for name, runs in kept["runs"].items() if name in PEERS}
        kept.pop("rates", None)

    def keep() -> None:
        output.mkdir(parents=True, exist_ok=True)
        kept_in.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")

    def run(name: str, seed: int, train: Callable[[], dict[str, float]]) -> None:
        runs = kept["runs"].setdefault(name, [])
        if (only is not None and name not in only) or any(each["seed"] == seed for each in runs):
            return
        runs.append({"seed": seed, **train()})
        print(f"{name}, seed {seed}: loss {runs[-1]['mlm_loss']:.3f}", file=sys.stderr, flush=True)
        keep()

    if "rates" not in kept:
        kept |= {"rates": measure_rates(size, data), "machine": machine()}
        kept["head_start_seconds"] = seconds_of_head_start(size, data)
        keep()
    rates = {name: median(each["tokens_per_second"]) for name, each in kept["rates"].items()}
    for name, tuning in PEERS.items():
        tokens = rate_of(name, rates) * 60 * minutes
        for seed in seeds if tuning == TUNED else seeds[:1]:
            judged = {"part": "test", "max_rows": None, "seed": seed}
            until = partial(_share_of_tokens, tokens)
            run(name, seed, partial(train_transformers, size, data, tuning, progress=until, **judged))
    # What HF-t has really seen: its run may be of a day when the machine was faster or slower.
    theirs = kept["runs"]["HF-t"][0]["tokens"] if kept["runs"].get("HF-t") else rates["HF-t"] * 60 * minutes
    lengths = {
        f"bertkit, {share:g} of the time": (share * theirs / rates["HF-t"] - kept["head_start_seconds"])
        * rates["bertkit"]
        for share in SHARES
    }
    lengths["bertkit, equal tokens"] = theirs
    for place, (name, tokens) in enumerate(lengths.items()):
        steps = math.ceil(tokens / kept["rates"]["bertkit"]["tokens_a_step"])
        for seed in seeds if place < SHARES_OF_ALL_SEEDS else seeds[:1]:
            run(name, seed, partial(train_bertkit, size, data, max_steps=steps, seed=seed))
    return kept


def _share_of_tokens(wanted: float, tokens: int, seconds: float) -> float:
    return tokens / wanted


def tune(size: str, data: Path, *, minutes: float, seed: int, output: Path) -> dict[str, Any]:
    """Return the held-out loss of HF-t by rate and rows, then of what stands near the best, in twice the time.

    Time is that of the processor, so that others may use the machine; that needs one thread.
    """
    if THREADS != 1:
        raise SystemExit("--tune counts processor time: set OMP_NUM_THREADS=1")
    kept: dict[str, Any] = {"size": size, "seed": seed, "machine": machine(), "grid": []}

    def attempt(tuning: Tuning, minutes: float) -> float:
        judged = {"part": "validation", "max_rows": TUNING_ROWS, "seed": seed}
        until = partial(_share_of_minutes, minutes)
        found = train_transformers(size, data, tuning, progress=until, **judged)
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


def _share_of_minutes(minutes: float, tokens: int, seconds: float) -> float:
    return seconds / (60 * minutes)


def finalists(best: Tuning) -> list[Tuning]:
    """Return the best of the grid and what stands near it in rate, rows, warm-up and masking rate."""
    rate, rows = best.learning_rate, best.rows
    hard = replace(best, warmup=0.2, mlm_probability=0.3)
    hidden = [replace(best, mlm_probability=share) for share in (0.3, 0.4)]
    return [
        best,
        replace(best, learning_rate=rate / 2),
        replace(best, learning_rate=rate / 2, rows=rows // 2),
        replace(best, learning_rate=rate / 4, rows=rows // 2),
        replace(best, warmup=0.2),
        *hidden,
        replace(hidden[0], rows=rows // 2),
        hard,
        replace(hard, learning_rate=1.5 * rate),
    ]


def main() -> None:
    """Train everybody, or tune one, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of HF-t; with --tune of every point of the grid")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rates", action="store_true", help="measure tokens a second, and train nothing")
    parser.add_argument("--only", nargs="+", help="names of runs, as in the table")
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
        only = [] if wish.rates else wish.only
        kept = compare(wish.size, store(), minutes=wish.minutes, seeds=wish.seeds, only=only, output=wish.output)
        text, name = "\n".join(loss_table(kept)), "time_to_loss.md"
    (wish.output / name).write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
