"""A job of a blink: one linear layer with dropout, two losses, six rows a step."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.train import runtime
from bertkit.train.feed import StepBatches
from bertkit.train.log import MetricsLog
from bertkit.train.loop import Job, LossSums
from bertkit.train.optimizer import build_optimizers, optimizer_tensors
from bertkit.train.parallel import ParallelModule
from bertkit.train.settings import TrainSettings


class Scores(nn.Module):
    """Sums of squares of (weights · input − target), and of a second loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.dropout = nn.Dropout(0.5)
        self.factor = 1.0  # what a test multiplies the loss by
        self.offset = 0.0

    def forward(self, batch: dict[str, Tensor]) -> LossSums:
        output = self.linear(batch["input"]).squeeze(-1)  # (batch,)
        squares = (output - batch["target"]).pow(2).sum() * self.factor + self.offset
        hits = ((output > 0) == (batch["target"] > 0)).sum()
        second = self.dropout(output).abs().sum()
        return LossSums({"mlm": squares, "nsp": second}, {"mlm": hits, "nsp": hits})


@dataclass
class Batches:
    """Six rows a step, in micro-batches of `rows`."""

    rows: int = 6
    asked: list[int] = field(default_factory=list)

    def step(self, step: int) -> StepBatches:
        self.asked.append(step)
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(6, 3, generator=generator)
        target = inputs @ torch.tensor([1.0, -2.0, 0.5])
        cuts = [slice(start, start + self.rows) for start in range(0, 6, self.rows)]
        micro = [{"input": inputs[cut], "target": target[cut]} for cut in cuts]
        counts = {"mlm": 6, "nsp": 6}
        source = {"asked": len(self.asked)}
        return StepBatches(micro, range(len(micro)), counts, tokens=10, slots=16, flops=100.0, source=source)

    def longest(self) -> dict[str, Tensor]:
        return {"input": torch.ones(6, 3), "target": torch.ones(6)}

    def describe(self, step: int) -> str:
        return f"rows of step {step}"


@dataclass
class BrokenBatches(Batches):
    """Batches that cannot be made from the third step on."""

    def step(self, step: int) -> StepBatches:
        if step == 2:
            raise InputError("is damaged", file="shard-00007.arrow", remedy="prepare the store again")
        return super().step(step)


@dataclass
class Trial:
    """A job, and what it evaluated and saved."""

    job: Job
    scores: Scores  # the module that the job trains
    evaluated: list[int]
    saved: list[dict[str, Any]]

    def lines(self, kind: str = "train") -> list[dict[str, Any]]:
        assert isinstance(self.job.log, MetricsLog)
        path = self.job.log._path
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [row for row in rows if row["kind"] == kind]


def toy_job(
    folder: Path,
    *,
    losses: Any = None,
    rows: int = 6,
    eval_every: int = 5,
    save_every: int = 5,
    higher_is_better: bool = False,
    **values: Any,
) -> Trial:
    """A job of ten steps; `losses`: the held-out loss by step; `values`: of TrainSettings."""
    settings = TrainSettings(**{"max_steps": 10, "log_every": 1, "batch_size": 6, "learning_rate": 0.05, **values})
    started = runtime.start(settings)
    module = Scores()
    evaluated: list[int] = []
    saved: list[dict[str, Any]] = []
    folder.mkdir(parents=True, exist_ok=True)
    parallel = ParallelModule(module, started, units=[], ema_decay=settings.ema_decay)

    def evaluate(step: int) -> dict[str, float]:
        evaluated.append(step)
        parallel.refresh()  # which leaves it in eval mode
        return {"loss": 1.0 / step if losses is None else losses[step]}

    job = Job(
        module=parallel,
        source=Batches(rows),
        optimizers=build_optimizers(module, settings, is_layer_matrix=lambda name: name == "linear.weight"),
        settings=settings,
        max_steps=settings.max_steps or 0,
        runtime=started,
        log=MetricsLog(folder, after_step=0, report_to="none"),
        evaluate=evaluate,
        save=lambda state: saved.append({"step": state.step, "best": state.best_step, "source": state.source}),
        eval_every=eval_every,
        save_every=save_every,
        higher_is_better=higher_is_better,
        peak_flops=1e6,
    )
    return Trial(job, module, evaluated, saved)


def state_of(trial: Trial) -> list[Tensor]:
    """Weights and moments, copied."""
    moments = [t for optimizer in trial.job.optimizers for t in optimizer_tensors(optimizer).values()]
    return [t.detach().clone() for t in [*trial.scores.parameters(), *moments]]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
