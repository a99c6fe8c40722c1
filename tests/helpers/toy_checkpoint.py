"""Checkpoints of a small trained network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertkit.train import runtime
from bertkit.train.checkpoint import write_checkpoint
from bertkit.train.optimizer import build_optimizers
from bertkit.train.parallel import ParallelModule
from bertkit.train.settings import TrainSettings
from bertkit.train.state import Snapshot, TrainState, Window, take_snapshot

FINGERPRINT: dict[str, Any] = {
    "seed": 1,
    "batch_size": 32,
    "store": "abc",
    "threads": 2,
    "versions": {"torch": "2.13.0", "numpy": "2.1"},
    "model": {"hidden_size": 8},
}


@dataclass
class SavedRun:
    """A small network in training whose checkpoints a test writes into a folder."""

    folder: Path
    ema_decay: float | None = None

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        settings = TrainSettings(optimizer="muon")
        network = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.module = ParallelModule(network, runtime.start(settings), units=[], ema_decay=self.ema_decay)
        self.optimizers = build_optimizers(network, settings, is_layer_matrix=lambda name: name == "0.weight")

    def snapshot(self, step: int, *, best: int | None = None, content: bytes = b"weights") -> Snapshot:
        """Train a step and return the checkpoint of `step`."""
        self.module.module(torch.randn(2, 4)).sum().backward()
        for optimizer in self.optimizers:
            optimizer.step()
        if self.module.average is not None:
            self.module.average.update()
        counters = TrainState(
            step=step,
            tokens=10 * step,
            best_step=best,
            best_score=None if best is None else 1 / best,
            source={"epoch_starts": [[0, 7]]},
            window=Window({"mlm": 0.1 + 0.2}, {"mlm": 1.0}, {"mlm": 3}),
        )
        return take_snapshot(
            counters,
            model_files={"model.safetensors": content, "config.json": b"{}\n"},
            module=self.module,
            optimizers=self.optimizers,
            fingerprint=FINGERPRINT,
            facts={"code": "def"},
        )

    def save(
        self,
        step: int,
        *,
        best: int | None = None,
        limit: int = 10,
        keep_every: int | None = None,
        content: bytes = b"weights",
    ) -> Path:
        """Train a step and write the checkpoint of `step`."""
        snapshot = self.snapshot(step, best=best, content=content)
        return write_checkpoint(self.folder, snapshot, limit=limit, keep_every=keep_every)
