"""How time and memory of training grow with layers, width, row length and vocabulary; of building with the corpus.

In: nothing; random tokens, nothing padded, 4,096 tokens a step.  Out: a table for each, measured beside what the
formula says (model/costs.py for operations, `room` below for memory), as Markdown and JSON. Every point is a process
of its own.
    OMP_NUM_THREADS=1 python benchmarks/growth.py --only layers width
Next: uniform_rows.py, training_memory.py, memory.py
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from machine import RESULTS as PRETRAINING
from machine import machine
from memory import peak_of as peak_of_preparing
from memory import write_text
from training_memory import forget_the_peak, memory

from bertkit.model.config import BertConfig
from bertkit.train.settings import TrainSettings

RESULTS = Path(__file__).resolve().parent / "results" / "growth"
TOKENS = 4096  # of a step
MICRO_BATCH_TOKENS = TrainSettings().micro_batch_tokens
TIMED_STEPS = 3
BYTES = 4  # of a number
SAVED_A_LAYER = 16  # numbers that a backward pass needs, in widths: x, q, k, v, context, 2 sums, middle, 2 × 4 inner
SAVED_A_SCORE = 1  # of a target: its exponential, made in place of the logit
MEGABYTES = (2, 8, 32)  # of text
PROCESSES, PROCESS_STEPS = (1, 2), 40
WORDS, TOKENS_A_WORD, EPOCHS, ENGLISH_VOCABULARY = 3.3e9, 4 / 3, 40, 30_522  # of BERT's own training
SONG_CI_ROW = 24  # tokens of a pair of neighbouring sentences, in the mean


@dataclass(frozen=True)
class Shape:
    """A point of a curve; the defaults are those of mini."""

    layers: int = 4
    width: int = 256
    length: int = 128
    vocabulary: int = 21_128

    @property
    def config(self) -> BertConfig:
        """The model, its heads 64 wide."""
        return BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.width // 64,
            intermediate_size=4 * self.width,
        )


CURVES: dict[str, list[Shape]] = {
    "layers": [Shape(layers=number) for number in (1, 2, 4, 8)],
    "width": [Shape(width=number) for number in (128, 256, 512)],
    "length": [Shape(length=number) for number in (32, 128, 512)],
    "vocabulary": [Shape(vocabulary=number) for number in (5_000, 21_128, 60_000)],
}


def room(shape: Shape, *, parameters: int, micro_batch_tokens: int) -> dict[str, float]:
    """Return the bytes of training by the formula: weights, gradients, moments (two of each weight, AdamW's; Muon's
    matrices have one), and the activations of a micro-batch.

    >>> found = room(Shape(), parameters=9_000_000, micro_batch_tokens=1024)
    >>> {name: round(size / 1e6) for name, size in found.items()}
    {'weights': 36, 'gradients': 36, 'moments': 72, 'activations': 80}
    """
    from uniform_rows import targets_of

    targets = micro_batch_tokens // shape.length * targets_of(shape.length)
    layers = micro_batch_tokens * shape.layers * SAVED_A_LAYER * shape.width
    scores = targets * shape.vocabulary * SAVED_A_SCORE
    return {
        "weights": BYTES * parameters,
        "gradients": BYTES * parameters,
        "moments": 2 * BYTES * parameters,
        "activations": BYTES * (layers + scores),
    }


def point(shape: Shape) -> dict[str, float]:
    """Return seconds a step and MB over weights and moments of a shape, measured in this process."""
    import torch
    from contenders import Bertkit
    from product_rates import fastest_rate
    from uniform_rows import SmallFirst, uniform_store, useful_flops_a_token

    from bertkit.tasks.pretraining_model import num_parameters

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rows = TOKENS // shape.length
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(shape.config.to_json()), "utf-8")
        source = SmallFirst(shape.config, rows=rows, length=shape.length)
        values = {"model_size": str(path), "batch_size": rows}
        contender = Bertkit(uniform_store(shape.vocabulary), values, source=source)
    contender.step()
    forget_the_peak()
    before = memory("VmRSS")
    contender.step()  # makes the kernels
    steps = [contender.step() for _ in range(TIMED_STEPS)]
    model = contender.job.module.module.model
    return {
        "seconds": min(step.seconds for step in steps),
        "megabytes": memory("VmHWM") - before,
        "flops_per_token": useful_flops_a_token(shape.config, length=shape.length),
        "parameters": num_parameters(model),
        "micro_batch_tokens": MICRO_BATCH_TOKENS,
        "fastest_product": fastest_rate(),
    }


def curve(shapes: list[Shape]) -> list[dict[str, Any]]:
    """Return the points of a curve, each measured in a process of its own."""
    points = []
    for shape in shapes:
        command = [sys.executable, str(Path(__file__).resolve()), "--point", json.dumps(asdict(shape))]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        points.append({**asdict(shape), **json.loads(answer.splitlines()[-1])})
        print(points[-1], file=sys.stderr, flush=True)
    return points


def curve_table(name: str, points: list[dict[str, Any]]) -> list[str]:
    """Return a curve as Markdown: measured and by the formula."""
    lines = [
        f"| {name} | parameters, M | MFLOP a token | µs a token | GFLOP/s | share of the fastest product | "
        "MB over weights and moments | gradients and activations by the formula, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in points:
        shape = Shape(**{key: found[key] for key in asdict(Shape())})
        needed = room(shape, parameters=found["parameters"], micro_batch_tokens=found["micro_batch_tokens"])
        rate = found["flops_per_token"] * TOKENS / found["seconds"]
        cells = [
            f"{found[name]:,}",
            f"{found['parameters'] / 1e6:.1f}",
            f"{found['flops_per_token'] / 1e6:.1f}",
            f"{1e6 * found['seconds'] / TOKENS:.0f}",
            f"{rate / 1e9:.0f}",
            f"{100 * rate / found['fastest_product']:.0f} %",
            f"{found['megabytes']:.0f}",
            f"{(needed['gradients'] + needed['activations']) / 1e6:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def corpus_points() -> list[dict[str, float]]:
    """Return peak MB and seconds of `bertkit prepare` by the size of the text."""
    points = []
    for megabytes in MEGABYTES:
        with tempfile.TemporaryDirectory() as name:
            write_text(Path(name) / "text.txt", megabytes)
            peak, seconds, _ = peak_of_preparing(Path(name) / "text.txt", Path(name))
            points.append({"text_megabytes": megabytes, "peak_megabytes": peak, "seconds": seconds})
    return points


def process_points() -> list[dict[str, float]]:
    """Return tokens a second of `bertkit pretrain` by the number of processes, a thread each."""
    from uniform_rows import uniform_store

    points, data = [], uniform_store(Shape().vocabulary)
    for number in PROCESSES:
        with tempfile.TemporaryDirectory() as name:
            words = ["pretrain", "--data_dir", str(data), "--output_dir", f"{name}/run", "--model_size", "mini"]
            words += ["--batch_size", "128", "--max_steps", str(PROCESS_STEPS), "--eval_rows", "8"]
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={number}"]
            command = [*launch, "-m", "bertkit", *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            run = json.loads((Path(name) / "run" / "run.json").read_text("utf-8"))
        points.append({"processes": number, "tokens_per_second": run["tokens"] / run["training_seconds"]})
    return points


def cluster_table(rate: float) -> list[str]:
    """Return what BERT's own training would take: 3.3 billion words, 40 epochs, rows of 128, by operations ÷ rate.

    rate: useful operations a second of one core, measured with the base model.
    """
    from uniform_rows import useful_flops_a_token

    from bertkit.model.config import config_of_size

    # Of the GPUs nothing was measured here: the share of the peak is the one aimed at (P13), and half of it.
    machines = {
        f"one core of this machine ({rate / 1e9:.0f} GFLOP/s, measured)": (1, rate),
        "1,024 such cores, if nothing is lost": (1024, rate),
        "8 H100 at 40 % of 989 TFLOP/s (unmeasured)": (8, 0.4 * 989e12),
        "8 H100 at 20 % (unmeasured)": (8, 0.2 * 989e12),
    }
    tokens = WORDS * TOKENS_A_WORD * EPOCHS
    lines = [
        "| machine | base: time | core- or GPU-hours | large: time | core- or GPU-hours |",
        "|---|---|---|---|---|",
    ]
    for name, (number, each) in machines.items():
        cells = []
        for size in ("base", "large"):
            flops = useful_flops_a_token(config_of_size(size, vocab_size=ENGLISH_VOCABULARY))
            hours = tokens * flops / each / 3600
            cells += [in_days(hours / number), f"{hours:,.0f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def in_days(hours: float) -> str:
    """Return a long time as people read it.

    >>> in_days(7.9), in_days(240)
    ('8 h', '10 days')
    """
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:,.0f} days"


def base_rate() -> float | None:
    """Return the useful operations a second of base, from what `make bench` kept of P5; None where it kept nothing."""
    from uniform_rows import useful_flops_a_token

    from bertkit.model.config import config_of_size

    path = PRETRAINING / "pretraining.json"
    items = json.loads(path.read_text("utf-8"))["items"] if path.exists() else {}
    if "P5-base" not in items:
        return None
    rates = items["P5-base"]["found"]["Song ci"]["tokens_per_second"]["bertkit"]
    config = config_of_size("base", vocab_size=Shape().vocabulary)
    return statistics.median(rates) * useful_flops_a_token(config, length=SONG_CI_ROW)


def plain_table(points: list[dict[str, float]]) -> list[str]:
    """Return points as Markdown, a column each.

    >>> plain_table([{"text_megabytes": 2, "seconds": 0.51}])
    ['| text megabytes | seconds |', '|---|---|', '| 2 | 0.51 |']
    """
    lines = ["| " + " | ".join(name.replace("_", " ") for name in points[0]) + " |", "|---" * len(points[0]) + "|"]
    return lines + ["| " + " | ".join(f"{value:,.3g}" for value in found.values()) + " |" for found in points]


def main() -> None:
    """Measure the curves asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = (*CURVES, "corpus", "processes")
    parser.add_argument(
        "--only", nargs="*", choices=names, default=names, help="nothing: no more than what a cluster costs"
    )
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    wish = parser.parse_args()
    if wish.point is not None:
        print(json.dumps(point(Shape(**wish.point))))
        return
    kept_in = wish.output / "growth.json"
    kept: dict[str, Any] = json.loads(kept_in.read_text("utf-8")) if kept_in.exists() else {}
    began = time.perf_counter()
    for name in wish.only:
        if name in CURVES:
            kept[name] = curve(CURVES[name])
        else:
            kept[name] = corpus_points() if name == "corpus" else process_points()
    if wish.only:
        kept["machine"] = machine()
    tables = [
        "\n".join(curve_table(name, kept[name]) if name in CURVES else plain_table(kept[name]))
        for name in names
        if name in kept
    ]
    rate = base_rate()
    if rate is not None:
        tables.append("\n".join(cluster_table(rate)))
    text = "\n\n".join([*tables, "(" + ", ".join(f"{name} {value}" for name, value in kept["machine"].items()) + ")"])
    wish.output.mkdir(parents=True, exist_ok=True)
    kept_in.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    (wish.output / "growth.md").write_text(text + "\n", "utf-8")
    print(text)
    print(f"{time.perf_counter() - began:.0f} seconds", file=sys.stderr)


if __name__ == "__main__":
    main()
