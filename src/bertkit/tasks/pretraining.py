"""The task of pre-training: what a step's batches are, and what its losses are.

In: a Store and a PretrainingModel.  Out: the loop's source and its module.  Next: data/batches.py, held_out.py
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.data.batches import build_global_batch
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import global_batch, steps_in_epoch
from bertkit.data.pairs import PairSettings, PairTable, build_pairs
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.model.heads import PretrainingModel
from bertkit.text.vocabulary import Vocabulary
from bertkit.train.loop import LossSums, StepBatches


class PretrainingLoss(nn.Module):
    """The model as the loop wants it: a batch in, sums of losses out."""

    def __init__(self, model: PretrainingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> LossSums:
        """Return the sums over the labels of one micro-batch; `mlm` first, `nsp` where there are pairs."""
        output = self.model(
            batch["input_ids"],
            attention_mask=batch.get("attention_mask"),
            token_type_ids=batch["token_type_ids"],
            mlm_positions=batch["mlm_positions"],
        )
        scores = {"mlm": (output.mlm_logits, batch["mlm_targets"])}
        if "next_sentence_label" in batch:
            scores["nsp"] = (output.nsp_logits, batch["next_sentence_label"])
        return LossSums(
            sums={
                k: F.cross_entropy(logits.float(), target, reduction="sum") for k, (logits, target) in scores.items()
            },
            counts={k: len(target) for k, (_, target) in scores.items()},
            correct={k: (logits.argmax(-1) == target).sum() for k, (logits, target) in scores.items()},
        )


def is_layer_matrix(name: str) -> bool:
    """Return whether a parameter of PretrainingLoss is a weight matrix inside the encoder's layers: Muon's share.

    >>> is_layer_matrix("model.encoder.layers.0.output.weight"), is_layer_matrix("model.mlm_head.dense.weight")
    (True, False)
    """
    return ".encoder.layers." in name and name.endswith(".weight") and "norm" not in name


@dataclass
class PretrainingSource:
    """Batches by step number: pairs, masks and order are functions of (seed, epoch, index).

    epoch_starts: the first step of each epoch known so far; an epoch's number of pairs is known once it is built.
    """

    store: Store
    vocabulary: Vocabulary
    pairs: PairSettings
    masking: MaskingSettings
    seed: int
    batch_size: int
    micro_batch_tokens: int
    phrases: Phrases | None = None  # for --masking phrases
    max_steps: int | None = None  # the run's length, for a masking rate that changes; None: it stays the first
    epoch_starts: list[int] = field(default_factory=lambda: [0])
    _table: PairTable | None = None
    _epoch: int = -1

    def table(self, epoch: int) -> PairTable:
        """Return the pairs of an epoch; the last one asked for is kept."""
        epoch = 0 if self.pairs.static else epoch
        if self._table is None or epoch != self._epoch:
            self._table, self._epoch = build_pairs(self.store, self.pairs, seed=self.seed, epoch=epoch), epoch
        return self._table

    def step(self, step: int) -> StepBatches:
        """Return the batches of the step that follows `step` finished ones."""
        epoch = self._epoch_of(step)
        table = self.table(epoch)
        rows = global_batch(
            seed=self.seed,
            epoch=epoch,
            step=step - self.epoch_starts[epoch],
            num_rows=len(table),
            batch_size=self.batch_size,
        )
        batch = build_global_batch(
            self.store,
            table,
            rows,
            vocabulary=self.vocabulary,
            masking=self.masking.at(self._progress(step)),
            seed=self.seed,
            epoch=0 if self.pairs.static else epoch,
            micro_batch_tokens=self.micro_batch_tokens,
            with_pairs=self.pairs.pairing != "none",
            phrases=self.phrases,
        )
        counts = {"mlm": batch.num_targets}
        if self.pairs.pairing != "none":
            counts["nsp"] = batch.num_rows
        return StepBatches(batch.micro_batches, counts, epoch=epoch, tokens=batch.tokens, slots=batch.slots)

    def _progress(self, step: int) -> float:
        """The share of the run that is done, 0 in its first step and 1 in its last."""
        return 0.0 if self.max_steps is None else min(1.0, step / max(1, self.max_steps - 1))

    def _epoch_of(self, step: int) -> int:
        while step >= self.epoch_starts[-1]:  # the end of the last known epoch is not known yet
            epoch = len(self.epoch_starts) - 1
            self.epoch_starts.append(self.epoch_starts[-1] + steps_in_epoch(len(self.table(epoch)), self.batch_size))
        return int(np.searchsorted(self.epoch_starts, step, side="right")) - 1

    def steps_of_epochs(self, epochs: float) -> int:
        """Return the steps of so many passes; a part of a pass is that part of its steps, rounded up."""
        whole, known = int(epochs), int(np.ceil(epochs))
        while len(self.epoch_starts) <= known:
            self._epoch_of(self.epoch_starts[-1])
        start, end = self.epoch_starts[whole], self.epoch_starts[known]
        return max(1, start + int(np.ceil((epochs - whole) * (end - start))))

    def state(self) -> dict[str, Any]:
        """Return the starts of the epochs, which a resume would else find by building every epoch again."""
        return {"epoch_starts": self.epoch_starts}
