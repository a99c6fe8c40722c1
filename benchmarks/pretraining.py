"""Pre-training side by side: bertkit beside transformers as it comes (HF-d) and tuned (HF-t), in one run.

In: Song ci and Wikipedia paragraphs, by neighbouring sentences, 256 rows a step, vocabulary 21,128.
Out: P4 and P5 (tokens a second), P6 (share of the machine's matrix rate), P8 (memory) as tables, Markdown and JSON;
P7 is that of the last `make bench-loss`.  All take turns, round after round, on the threads of OMP_NUM_THREADS, each
in a process of its own.
    OMP_NUM_THREADS=1 python benchmarks/pretraining.py --only P4-tiny P6
Next: contenders.py, elsewhere.py, product_rates.py, training_memory.py, tables.py
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))

import torch
import transformers
from contenders import (
    HF_D,
    HF_T,
    ROWS,
    TEXTS,
    VOCAB_SIZE,
    Bertkit,
    Contender,
    Transformers,
    Tuning,
    dense_batches,
    large_vocabulary,
    store_of,
)
from elsewhere import side_by_side
from machine import RESULTS, machine
from product_rates import fastest_rate, mm_rate
from tables import markdown
from training_memory import peaks
from uniform_rows import UniformRows, dense_uniform_batches, uniform_store, useful_flops_a_token

from bertkit.data.pairs import PairSettings
from bertkit.model.config import config_of_size
from bertkit.text.tokenizer import Tokenizer

ITEMS = ("P4-tiny", "P4-mini", "P5-base", "P6", "P8")
GRID = "HF-t-rows"  # how many rows transformers takes at once is its user's choice: which is fastest?
GRID_SIZES, GRID_ROWS, GRID_TIMED = ("tiny", "mini"), (4, 8, 16, 32, 64), 128  # the last: rows of a round
QUICK = ("P4-tiny", "P4-mini")
WARM_UP = {"tiny": 4, "mini": 2, "base": 0}  # steps of bertkit before the clock runs; the others take one batch
PAIRS = PairSettings(pairing="sentence")
PEERS = {"HF-d": HF_D, "HF-t": HF_T}


@dataclass(frozen=True)
class Wish:
    """What is measured: on which texts, how often, how much of a step of transformers."""

    corpora: tuple[str, ...]
    rounds: int
    share: float  # of each step of transformers, how much is timed
    tokenizer: Tokenizer


def rounds_of(everybody: Mapping[str, Contender], *, rounds: int) -> dict[str, Any]:
    """Return tokens a second of everybody, round by round, taking turns, and the share of padding."""
    rates: dict[str, list[float]] = {who: [] for who in everybody}
    padding: dict[str, list[float]] = {who: [] for who in everybody}
    products: dict[str, list[float]] = {"torch.mm": [], "fastest": []}
    for number in range(rounds):
        for who, contender in everybody.items():
            step = contender.step()
            rates[who].append(step.tokens / step.seconds)
            padding[who].append(1 - step.tokens / step.slots)
            print(f"round {number + 1}, {who}: {rates[who][-1]:,.0f} tokens/s", file=sys.stderr, flush=True)
        products["torch.mm"].append(mm_rate())
        products["fastest"].append(fastest_rate())
    return {"tokens_per_second": rates, "padding": padding, "products": products}


def bertkit_on(store: Path, values: dict[str, Any], *, warm_up: int) -> Bertkit:
    """Return bertkit on a corpus, after some steps that nobody times."""
    ours = Bertkit(store, values)
    for _ in range(warm_up):
        ours.step()
    return ours


def transformers_on(store: Path, size: str, *, tuning: Tuning, share: float) -> Transformers:
    """Return transformers on a corpus, after a first batch."""
    config = config_of_size(size, vocab_size=VOCAB_SIZE)
    theirs = Transformers(config, dense_batches(store, PAIRS, tuning), tuning, share=share)
    theirs.warm_up()
    return theirs


def bertkit_on_uniform_rows(size: str) -> Bertkit:
    """Return bertkit on rows of 128 tokens, after a first step."""
    source = UniformRows(config_of_size(size, vocab_size=VOCAB_SIZE), rows=ROWS)
    ours = Bertkit(uniform_store(VOCAB_SIZE), {"model_size": size, "batch_size": ROWS}, source=source)
    ours.step()
    return ours


def transformers_on_uniform_rows(size: str, *, tuning: Tuning, share: float) -> Transformers:
    """Return transformers on rows of 128 tokens, after a first batch."""
    config = config_of_size(size, vocab_size=VOCAB_SIZE)
    theirs = Transformers(config, dense_uniform_batches(config, tuning.rows_at_once), tuning, share=share)
    theirs.warm_up()
    return theirs


def beside_peers(ours: Callable[[], Contender], theirs: Callable[..., Contender], wish: Wish) -> dict[str, Any]:
    """Return the rounds of bertkit, HF-d and HF-t; `theirs` takes a tuning and a share."""
    peers = {name: partial(theirs, tuning=tuning, share=wish.share) for name, tuning in PEERS.items()}
    with side_by_side({"bertkit": ours, **peers}) as everybody:
        return rounds_of(everybody, rounds=wish.rounds)


def natural_pairs(size: str, wish: Wish) -> dict[str, Any]:
    """P4, P5: tokens a second on each corpus."""
    found = {}
    hidden = HF_D.mlm_probability  # as many as the peers: the default recipe hides more
    values = {"model_size": size, "pairing": PAIRS.pairing, "batch_size": ROWS, "mlm_probability": hidden}
    for corpus in wish.corpora:
        store = store_of(corpus, wish.tokenizer)
        ours = partial(bertkit_on, store, values, warm_up=WARM_UP[size])
        found[corpus] = beside_peers(ours, partial(transformers_on, store, size), wish)
    return found


def useful_share(wish: Wish) -> dict[str, Any]:
    """P6: mini on rows of 128 tokens; useful work is what the sparse head and the partial last layer leave to do."""
    ours, theirs = partial(bertkit_on_uniform_rows, "mini"), partial(transformers_on_uniform_rows, "mini")
    work = useful_flops_a_token(config_of_size("mini", vocab_size=VOCAB_SIZE))
    return {"128-token rows": {**beside_peers(ours, theirs, wish), "flops_per_token": work}}


def rows_grid(wish: Wish) -> dict[str, Any]:
    """The speed of HF-t by how many rows go through it at once; its best goes into the comparison (contenders.HF_T)."""
    found = {}
    for size in GRID_SIZES:
        for corpus in wish.corpora:
            store = store_of(corpus, wish.tokenizer)
            theirs, share = partial(transformers_on, store, size), GRID_TIMED / ROWS
            makers = {
                str(rows): partial(theirs, tuning=replace(HF_T, rows_at_once=rows), share=share) for rows in GRID_ROWS
            }
            with side_by_side(makers) as everybody:
                found[f"{size}, {corpus}"] = rounds_of(everybody, rounds=wish.rounds)
    return found


MEASURES: dict[str, Callable[[Wish], dict[str, Any]]] = {
    "P4-tiny": lambda wish: natural_pairs("tiny", wish),
    "P4-mini": lambda wish: natural_pairs("mini", wish),
    "P5-base": lambda wish: natural_pairs("base", wish),
    "P6": useful_share,
    GRID: rows_grid,
    "P8": lambda wish: {"32 × 128": peaks(rounds=wish.rounds)},
}


def joined(before: Any, now: Any) -> Any:
    """Return two measurements as one: lists of rounds one after the other, all else as it is now.

    >>> joined({"a": [1.0], "b": 2, "c": {"d": [3]}}, {"a": [4.0], "b": 5, "c": {"d": [6]}})
    {'a': [1.0, 4.0], 'b': 5, 'c': {'d': [3, 6]}}
    """
    if isinstance(before, list) and isinstance(now, list):
        return before + now
    if isinstance(before, dict) and isinstance(now, dict):
        return {**before, **{key: joined(before.get(key), value) for key, value in now.items()}}
    return now


def main() -> None:
    """Measure what is asked for, keep it, and print the tables of everything kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=(*ITEMS, GRID), default=ITEMS)
    parser.add_argument("--quick", action="store_true", help="tiny and mini on the Song ci, half of each HF step")
    parser.add_argument("--corpora", nargs="+", choices=tuple(TEXTS), default=tuple(TEXTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--share", type=float, help="of each HF step, how much is timed; 1 unless given, in P5 a quarter"
    )
    parser.add_argument("--add", action="store_true", help="add the rounds to those kept, in place of a new beginning")
    parser.add_argument("--output", type=Path, help="folder of the results")
    parser.add_argument("--tables", action="store_true", help="measure nothing, print what is kept")
    asked = parser.parse_args()
    output = asked.output or RESULTS / ("quick" if asked.quick else ".")
    torch.set_num_threads(THREADS)
    if THREADS == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    kept_in = output / "pretraining.json"
    kept = json.loads(kept_in.read_text("utf-8")) if kept_in.exists() else {"items": {}}
    items = () if asked.tables else [item for item in asked.only if not asked.quick or item in QUICK]
    corpora = ("Song ci",) if asked.quick else tuple(asked.corpora)
    for item in items:
        share = asked.share or ({"P5-base": 0.25}.get(item, 0.5 if asked.quick else 1.0))
        wish = Wish(corpora, asked.rounds, share, large_vocabulary())
        found = {"machine": machine(), "share": share, "found": MEASURES[item](wish)}
        kept["items"][item] = joined(kept["items"].get(item), found) if asked.add else found
        output.mkdir(parents=True, exist_ok=True)
        kept_in.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    loss = RESULTS / "time_to_loss.json"
    text = markdown(kept, loss=json.loads(loss.read_text("utf-8")) if loss.exists() else None)
    if items:
        (output / "pretraining.md").write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
