"""P13: pre-training a base model on one GPU: tokens a second and the share of the card's peak, beside transformers.

In: nothing; rows of 128 random tokens, as nothing is padded.  Out: a table and JSON, in under 8 minutes on one card.
Both compute in bf16 by autocast over fp32 weights; a row of the table is one micro-batch, its figures are medians.
Without a GPU it says so and ends; a rehearsal of the same code:
    python benchmarks/gpu.py --device cpu --size tiny --rows 8 --rounds 1
Next: contenders.py, uniform_rows.py
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

LIMIT = 420.0  # seconds after which nothing new is tried
# Peak of dense products in bf16, operations a second, as NVIDIA's data sheets give it.
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
MICRO_BATCHES = (64, 256)  # rows that go through the model at once
PRODUCT = {"cuda": 8192, "cpu": 512}  # rows and columns of the product whose rate is measured


def peak_of(card: str) -> float | None:
    """Return a card's peak by its name, or None for one that is not known here.

    >>> peak_of("NVIDIA A100-SXM4-80GB"), peak_of("NVIDIA L40")
    (312000000000000.0, None)
    """
    words = set(card.replace("-", " ").split())
    return next((peak for name, peak in PEAKS.items() if words.issuperset(name.split())), None)


def contenders(
    size: str, *, rows: int, device: str, bf16: bool, micro_batches: tuple[int, ...]
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield who trains, with how many rows at once, and how to make ready."""
    from contenders import HF_T, VOCAB_SIZE, Bertkit, Transformers
    from uniform_rows import LENGTH, UniformRows, dense_uniform_batches, uniform_store

    from bertkit.model.config import config_of_size

    config, data = config_of_size(size, vocab_size=VOCAB_SIZE), uniform_store(VOCAB_SIZE)
    values: dict[str, Any] = {"model_size": size, "batch_size": rows, "precision": "bf16" if bf16 else "fp32"}

    def ours(at_once: int, more: dict[str, Any]) -> Callable[[], Any]:
        given = {**values, **more, "micro_batch_tokens": at_once * LENGTH}
        source = UniformRows(config, rows=rows, micro_batch_tokens=at_once * LENGTH)
        return lambda: Bertkit(data, given, source=source)

    def theirs(at_once: int) -> Callable[[], Any]:
        tuning = replace(HF_T, rows=rows, rows_at_once=at_once)
        batches = dense_uniform_batches(config, at_once)
        return lambda: Transformers(config, batches, tuning, device=device, bf16=bf16)

    for at_once in micro_batches:
        yield "bertkit", at_once, ours(at_once, {})
        yield "transformers", at_once, theirs(at_once)
        if device == "cuda":
            yield "bertkit, compiled", at_once, ours(at_once, {"torch_compile": True})


def measure(
    size: str, *, rows: int, rounds: int, device: str, bf16: bool, micro_batches: tuple[int, ...]
) -> dict[str, Any]:
    """Return tokens a second of everybody, the rate of products, the work in a token."""
    import torch
    from contenders import VOCAB_SIZE
    from product_rates import fastest_rate
    from uniform_rows import dense_flops_a_token, useful_flops_a_token

    from bertkit.model.config import config_of_size

    config, began = config_of_size(size, vocab_size=VOCAB_SIZE), time.perf_counter()
    rates: dict[str, list[float]] = {}
    how = {"rows": rows, "device": device, "bf16": bf16, "micro_batches": micro_batches}
    for who, at_once, make in contenders(size, **how):
        name = f"{who}, {at_once} rows at once"
        if time.perf_counter() - began > LIMIT:
            print(f"{name}: left out, as {LIMIT:.0f} seconds are over", file=sys.stderr)
            continue
        try:
            contender = make()
            contender.step()
            steps = [contender.step() for _ in range(rounds)]
        except torch.OutOfMemoryError:
            print(f"{name}: the card has not the memory", file=sys.stderr)
            continue
        finally:
            contender = None
            if device == "cuda":
                torch.cuda.empty_cache()
        rates[name] = [step.tokens / step.seconds for step in steps]
        print(f"{name}: {max(rates[name]):,.0f} tokens/s", file=sys.stderr, flush=True)
    dtype = torch.bfloat16 if bf16 else torch.float32
    return {
        "card": torch.cuda.get_device_name() if device == "cuda" else "a processor",
        "tokens_per_second": rates,
        "products": fastest_rate(device, dtype=dtype, size=PRODUCT[device]),
        "packed_difference": difference_of_packed_rows(size, device=device, bf16=bf16),
        "useful_flops": useful_flops_a_token(config),
        "dense_flops": dense_flops_a_token(config),
    }


def difference_of_packed_rows(size: str, *, device: str, bf16: bool) -> float:
    """Return how far the gradient of packed rows is from that of padded ones, as a share of its length.

    Rows of 1 to 128 tokens. In bf16 about 1 % is rounding; a mistake is far more.
    """
    import torch
    from contenders import VOCAB_SIZE
    from uniform_rows import LENGTH

    from bertkit.model.config import config_of_size
    from bertkit.model.heads import PretrainingModel

    torch.manual_seed(0)
    config = config_of_size(size, vocab_size=VOCAB_SIZE)
    config = replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = PretrainingModel(config).to(device).train()
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [1], [77], [20]])
    ids = torch.randint(5, VOCAB_SIZE, mask.shape).to(device)
    positions = mask.flatten().nonzero()[::7, 0].to(device)
    found = []
    for packed in (False, True):
        model.encoder.packs_rows = packed
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            mlm, nsp = model.logits_where_read(ids, mlm_positions=positions, attention_mask=mask.to(device))
        loss = mlm.float().logsumexp(-1).sum() + nsp.float().square().sum()
        gradients = torch.autograd.grad(loss, list(model.encoder.layers.parameters()))
        found.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return float((found[1] - found[0]).norm() / found[0].norm())


def table(found: dict[str, Any], *, size: str) -> str:
    """Return the figures as Markdown; MFU counts useful work, and for transformers also all that it computes."""
    from tables import spread

    peak, products = peak_of(found["card"]), found["products"]
    title = f"P13, {size}, 128 tokens, {found['card']}"
    lines = [
        f"| {title} | tokens/s | MFU, useful work | of the measured product | MFU, dense work |",
        "|---|---|---|---|---|",
    ]
    for name, rates in found["tokens_per_second"].items():
        middle = median(rates)
        useful, dense = middle * found["useful_flops"], middle * found["dense_flops"]
        shares = ["–" if peak is None else f"{100 * useful / peak:.1f} %", f"{100 * useful / products:.1f} %"]
        shares.append("–" if peak is None or not name.startswith("transformers") else f"{100 * dense / peak:.1f} %")
        lines.append(f"| {name} | {spread(rates)} | " + " | ".join(shares) + " |")
    lines += ["", f"The fastest product measured: {products / 1e12:.3g} TFLOP/s."]
    packed = f"Gradients of packed rows differ from padded ones by {found['packed_difference']:.2g} of their length."
    return "\n".join([*lines, packed])


def main() -> None:
    """Measure and print, or say that there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--size", default="base")
    parser.add_argument("--rows", type=int, default=256, help="of a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON here")
    wish = parser.parse_args()
    if wish.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks
    import torch

    if wish.device == "cuda" and not torch.cuda.is_available():
        print("P13 is left out: there is no CUDA device here (a rehearsal: --device cpu --size tiny --rows 8)")
        return
    bf16 = wish.device == "cuda"  # a processor without the instructions only emulates it
    micro_batches = tuple(sorted({min(rows, wish.rows) for rows in MICRO_BATCHES}))
    how = {"rows": wish.rows, "rounds": wish.rounds, "device": wish.device}
    found = measure(wish.size, **how, bf16=bf16, micro_batches=micro_batches)
    print(table(found, size=wish.size))
    if wish.output:
        wish.output.parent.mkdir(parents=True, exist_ok=True)
        wish.output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
