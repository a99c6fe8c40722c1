"""What the benchmarks of pre-training kept, as tables in Markdown.

In: the JSON of pretraining.py, and that of time_to_loss.py.  Out: text.  Next: pretraining.py
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

OURS, PEERS = "bertkit", ("HF-d", "HF-t")
# Of each item: what has to be reached against HF-d and HF-t, and what would be splendid.
TARGETS = {"P4-tiny": ((9, 5), (14, 8)), "P4-mini": ((4, 2.6), (6, 3.5)), "P5-base": ((2.1, 1.35), (2.8, 1.6))}
ROUNDS = 5  # the least from which a figure may be quoted
SHARE_TARGET, MEMORY_TARGET = (70, 85), (400, 240)  # P6 in %; P8 in MB


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the median of the rounds, least and most in brackets.

    >>> spread([3.0, 1.0, 2.0])
    '2 (1 – 3)'
    """
    return f"{statistics.median(values):{form}} ({min(values):{form}} – {max(values):{form}})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return how many times theirs ours is, round by round.

    >>> ratios([10.0, 12.0], [5.0, 4.0])
    [2.0, 3.0]
    """
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def verdict(value: float, commit: float, moonshot: float, unit: str = "×", *, less_is_better: bool = False) -> str:
    """Return which target a figure reaches.

    >>> verdict(9.4, 9, 14), verdict(3.9, 4, 6), verdict(230, 400, 240, "MB", less_is_better=True)
    ('9 × reached', '4 × missed', '240 MB reached')
    """
    sign = -1 if less_is_better else 1
    target = moonshot if sign * value >= sign * moonshot else commit
    return f"{target:g} {unit} " + ("reached" if sign * value >= sign * target else "missed")


def in_rounds(values: Sequence[float]) -> str:
    """Return how many rounds there were, and whether the rules ask for more.

    >>> in_rounds([1.0] * 5), in_rounds([1.0] * 3)
    ('5 rounds', '3 rounds of at least 5')
    """
    return f"{len(values)} rounds" + ("" if len(values) >= ROUNDS else f" of at least {ROUNDS}")


def rates_table(item: str, found: Mapping[str, Any], *, title: str) -> list[str]:
    """Return the table of P4 or P5: tokens a second on each corpus."""
    lines = [
        f"| {title} | bertkit, tokens/s | HF-d | HF-t | against HF-d | against HF-t | padding: bertkit, HF-d, HF-t |",
        "|---|---|---|---|---|---|---|",
    ]
    for corpus, rounds in found.items():
        rates, padding = rounds["tokens_per_second"], rounds["padding"]
        cells = [spread(rates[who]) for who in (OURS, *PEERS)]
        for place, peer in enumerate(PEERS):
            times = ratios(rates[OURS], rates[peer])
            commit, moonshot = (target[place] for target in TARGETS[item])
            reached = verdict(statistics.median(times), commit, moonshot)
            cells.append(f"**{spread(times, '.2f')} ×**, {reached}")
        cells.append(", ".join(f"{100 * statistics.mean(padding[who]):.0f} %" for who in (OURS, *PEERS)))
        lines.append(f"| {corpus}, {in_rounds(rates[OURS])} | " + " | ".join(cells) + " |")
    return lines


def share_table(found: Mapping[str, Any]) -> list[str]:
    """Return the table of P6: useful work as a share of the machine's rates of matrix products."""
    [rounds] = found.values()
    rates, products = rounds["tokens_per_second"], rounds["products"]
    lines = [
        f"| P6, mini, rows of 128 tokens, {in_rounds(rates[OURS])} | tokens/s | share of P (torch.mm) | "
        "share of the fastest product |",
        "|---|---|---|---|",
    ]
    for who in (OURS, *PEERS):
        work = [rate * rounds["flops_per_token"] for rate in rates[who]]
        shares = [ratios(work, products[name]) for name in ("torch.mm", "fastest")]
        shown = [spread([100 * share for share in each], ".1f") + " %" for each in shares]
        if who == OURS:
            shown = [f"**{shown[0]}**, {verdict(100 * statistics.median(shares[0]), *SHARE_TARGET, '%')}", shown[1]]
        lines.append(f"| {who} | {spread(rates[who])} | " + " | ".join(shown) + " |")
    mm, fastest = (spread([rate / 1e9 for rate in products[name]]) for name in ("torch.mm", "fastest"))
    useful = rounds["flops_per_token"] / 1e6
    return [*lines, "", f"P = {mm} GFLOP/s; the fastest product {fastest}; useful work {useful:.1f} MFLOP a token."]


def grid_table(found: Mapping[str, Any]) -> list[str]:
    """Return HF-t's speed by the rows that go through it at once."""
    [first, *_] = found.values()
    sizes = list(first["tokens_per_second"])
    lines = ["| HF-t, tokens/s by rows at once | " + " | ".join(sizes) + " |", "|---|" + "---|" * len(sizes)]
    for where, rounds in found.items():
        cells = [spread(rates) for rates in rounds["tokens_per_second"].values()]
        lines.append(f"| {where} | " + " | ".join(cells) + " |")
    return lines


def memory_table(found: Mapping[str, Any]) -> list[str]:
    """Return the table of P8."""
    [(shape, rounds)] = found.items()
    times = in_rounds(rounds["megabytes"][OURS])
    lines = [f"| P8, mini, {shape} tokens, {times} | MB at the peak, over weights and optimizer |", "|---|---|"]
    for who, peaks in rounds["megabytes"].items():
        reached = verdict(statistics.median(peaks), *MEMORY_TARGET, "MB", less_is_better=True)
        lines.append(f"| {who} | {spread(peaks)}" + (f", {reached} |" if who == OURS else " |"))
    return lines


def loss_table(kept: Mapping[str, Any]) -> list[str]:
    """Return the table of P7: what each run reached, and how much sooner; means of seeds, of losses medians."""
    runs = {name: mean_of(each) for name, each in kept["runs"].items() if each}
    head_start = kept.get("head_start_seconds", 0.0)  # what was kept before there was one has none
    rates = {name: statistics.median(each["tokens_per_second"]) for name, each in kept["rates"].items()}
    for name, run in runs.items():
        run["seconds"] = run["tokens"] / rate_of(name, rates) + (head_start if name.startswith(OURS) else 0.0)
    ours = [run for name, run in runs.items() if name.startswith(OURS)]
    peers = {name: run for name, run in runs.items() if not name.startswith(OURS)}
    lines = [
        f"| P7, {kept['size']}, Song ci, {kept['minutes']:g} minutes for HF-t | seeds | tokens | seconds | "
        "held-out masked-LM loss, median | accuracy | without punctuation | next sentence |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, run in sorted(runs.items(), key=lambda pair: pair[1]["seconds"]):
        lines.append(
            f"| {name} | {len(kept['runs'][name])} | {run['tokens']:,.0f} | {run['seconds']:,.0f} | "
            f"{spread([each['mlm_loss'] for each in kept['runs'][name]], '.3f')} | {100 * run['mlm_accuracy']:.1f} % | "
            f"{100 * run['mlm_accuracy_without_punctuation']:.1f} % | {100 * run['nsp_accuracy']:.1f} % |"
        )
    lines += [
        "",
        "Tokens a second, interleaved on an idle machine: "
        + "; ".join(f"{name} {spread(each['tokens_per_second'])}" for name, each in kept["rates"].items())
        + f". Seconds are tokens by these rates, and {head_start:.1f} for bertkit's head start.",
        "",
    ]
    for name, goal in peers.items():
        times = times_faster(goal, ours)
        told = "no run of bertkit is as good" if times is None else f"bertkit is as good **{times:.1f} ×** sooner"
        lines.append(f"{name} ends at {goal['mlm_loss']:.3f}; {told} (4 × wanted, 10 × hoped for).")
    return lines


def rate_of(name: str, rates: Mapping[str, float]) -> float:
    """Return the tokens a second of a run: those of the longest name that its own begins with.

    >>> rate_of("HF-t, 32 rows, 15 % hidden", {"bertkit": 3.0, "HF-t": 1.0, "HF-t, 32 rows": 2.0})
    2.0
    """
    return rates[max((known for known in rates if name.startswith(known)), key=len)]


def mean_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every figure.

    >>> mean_of([{"mlm_loss": 4.0}, {"mlm_loss": 5.0}])
    {'mlm_loss': 4.5}
    """
    return {name: statistics.mean(run[name] for run in runs) for name in runs[0]}


def grid_of_losses(kept: Mapping[str, Any]) -> list[str]:
    """Return the grid of HF-t: the held-out loss of every point, the best first."""
    lines = [
        f"| HF-t, {kept['size']}, minutes on one thread | rate | rows a step | warm-up | hidden | "
        "tokens/s | validation loss | accuracy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in sorted(kept["grid"], key=lambda run: run["mlm_loss"]):
        lines.append(
            f"| {run['minutes']:g} | {run['learning_rate']:g} | {run['rows']} | {100 * run['warmup']:.0f} % | "
            f"{100 * run['mlm_probability']:.0f} % | {run['tokens'] / run['seconds']:,.0f} | {run['mlm_loss']:.3f} | "
            f"{100 * run['mlm_accuracy']:.1f} % |"
        )
    return lines


def times_faster(goal: Mapping[str, float], runs: Sequence[Mapping[str, float]]) -> float | None:
    """Return the seconds of `goal` over those of the shortest run that is at least as good; None where none is.

    >>> goal = {"seconds": 100.0, "mlm_loss": 5.5}
    >>> times_faster(goal, [{"seconds": 10.0, "mlm_loss": 5.6}, {"seconds": 25.0, "mlm_loss": 5.4}])
    4.0
    """
    good = [run["seconds"] for run in runs if run["mlm_loss"] <= goal["mlm_loss"]]
    return goal["seconds"] / min(good) if good else None


OTHER_TABLES: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "P6": share_table,
    "P8": memory_table,
    "HF-t-rows": grid_table,
}


def markdown(kept: Mapping[str, Any], *, loss: Mapping[str, Any] | None) -> str:
    """Return every table there is, each item with the machine that it was measured on."""
    lines = []
    for item, measured in kept["items"].items():
        found, machine = measured["found"], measured["machine"]
        if item in TARGETS:
            title = f"{item.replace('-', ', ')}, 256 rows a step, vocabulary 21,128"
            lines += rates_table(item, found, title=title)
        else:
            lines += OTHER_TABLES[item](found)
        lines += ["", "(" + ", ".join(f"{name} {value}" for name, value in machine.items()) + ")", ""]
    if loss is not None and loss["runs"]:
        lines += [*loss_table(loss), "", "(" + ", ".join(f"{n} {v}" for n, v in loss["machine"].items()) + ")"]
    elif loss is None:
        lines.append("P7: not measured yet; run `make bench-loss`.")
    return "\n".join(lines)
