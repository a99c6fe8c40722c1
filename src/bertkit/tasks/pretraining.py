"""The task of pre-training: what a step's batches are, and what its losses are.

In: a Store and a PretrainingModel.  Out: the loop's source and its module.  Next: data/batches.py, held_out.py
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.data.batches import build_global_batch
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import global_batch, largest_shape, steps_in_epoch
from bertkit.data.pairs import PairSettings, PairTable, build_pairs
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.costs import training_flops
from bertkit.model.heads import PretrainingModel
from bertkit.tasks.phases import Phase, first_steps
from bertkit.text.vocabulary import Vocabulary
from bertkit.train.feed import StepBatches
from bertkit.train.loop import LossSums
from bertkit.train.settings import MOST_EPOCHS

SHOWN_DOCUMENTS = 8  # named in a message


class PretrainingLoss(nn.Module):
    """The model as the loop wants it: a batch in, sums of losses out."""

    def __init__(self, model: PretrainingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> LossSums:
        """Return the sums over the labels of one micro-batch; `mlm` first, `nsp` where there are pairs."""
        found = self.model.losses_where_read(
            batch["input_ids"],
            mlm_positions=batch["mlm_positions"],
            mlm_targets=batch["mlm_targets"],
            next_sentence_label=batch.get("next_sentence_label"),
            attention_mask=batch.get("attention_mask"),
            token_type_ids=batch["token_type_ids"],
        )
        return LossSums(
            sums={name: total for name, (total, _) in found.items()},
            correct={name: hits for name, (_, hits) in found.items()},
        )


@dataclass
class PretrainingSource:
    """Batches by step number: pairs, masks and order are functions of (seed, epoch, index).

    rank, num_ranks: whose share of each global batch is made.
    phases: lengths of rows, one after the other; () for one phase of the length that `pairs` has.
    epoch_starts: of each phase, the first step of each epoch known so far, counted from the phase's start; an epoch's
        number of pairs is known once it is built.
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
    config: BertConfig | None = None  # of the model, to count what a step costs; None: it is not counted
    rank: int = 0
    num_ranks: int = 1
    phases: tuple[Phase, ...] = ()
    epoch_starts: list[list[int]] = field(default_factory=list)
    _table: PairTable | None = None
    _table_of: tuple[int, int] = (-1, -1)  # (phase, epoch)

    def __post_init__(self) -> None:
        self.epoch_starts = self.epoch_starts or [[0] for _ in range(max(1, len(self.phases)))]

    def __getstate__(self) -> dict[str, Any]:
        """Travel to another process without the table, which is drawn there again."""
        return {**vars(self), "_table": None, "_table_of": (-1, -1)}

    def pairs_of(self, phase: int) -> PairSettings:
        """Return the pair settings of a phase."""
        return replace(self.pairs, max_seq_length=self.phases[phase].max_seq_length) if self.phases else self.pairs

    def table(self, epoch: int, *, phase: int = 0) -> PairTable:
        """Return the pairs of an epoch; the last one asked for is kept."""
        epoch = 0 if self.pairs.static else epoch
        if self._table is None or self._table_of != (phase, epoch):
            key = _epoch_key(phase, epoch)
            self._table = build_pairs(self.store, self.pairs_of(phase), seed=self.seed, epoch=key)
            self._table_of = phase, epoch
        return self._table

    def step(self, step: int) -> StepBatches:
        """Return the batches of the step that follows `step` finished ones."""
        phase, epoch, rows = self._place(step)
        batch = build_global_batch(
            self.store,
            self.table(epoch, phase=phase),
            rows,
            vocabulary=self.vocabulary,
            masking=self.masking.at(self._progress(step)),
            seed=self.seed,
            epoch=_epoch_key(phase, 0 if self.pairs.static else epoch),
            micro_batch_tokens=self.micro_batch_tokens,
            with_pairs=self.has_pairs,
            phrases=self.phrases,
            rank=self.rank,
            num_ranks=self.num_ranks,
        )
        counts = {"mlm": batch.num_targets} | ({"nsp": batch.num_rows} if self.has_pairs else {})
        return StepBatches(
            batch.micro_batches,
            batch.numbers,
            counts,
            tokens=batch.tokens,
            slots=batch.slots,
            flops=0.0
            if self.config is None
            else training_flops(
                self.config,
                tokens=batch.tokens,
                squares=batch.squares,
                targets=batch.num_targets,
                pairs=counts.get("nsp", 0),
                read=sum(counts.values()),
            ),
            source={"epoch_starts": [list(starts) for starts in self.epoch_starts]},
        )

    @property
    def has_pairs(self) -> bool:
        """Whether batches carry next_sentence_label."""
        return self.pairs.pairing != "none"

    def longest(self) -> dict[str, Tensor]:
        """Return the largest micro-batch there can be: as many rows of the full length as go into one, or one more."""
        length = max([phase.max_seq_length for phase in self.phases] or [self.pairs.max_seq_length])
        rows, length = largest_shape(length, micro_batch_tokens=self.micro_batch_tokens, batch_size=self.batch_size)
        rate = max(self.masking.at(share).mlm_probability for share in (0.0, 1.0))
        targets = torch.arange(0, rows * length, max(1, int(1 / rate)))
        batch = {
            "input_ids": torch.full((rows, length), int(np.flatnonzero(self.vocabulary.ordinary)[0])),
            "token_type_ids": torch.zeros(rows, length, dtype=torch.int64),
            "attention_mask": torch.ones(rows, length, dtype=torch.bool),  # padded batches take the slower kernel
            "mlm_positions": targets,
            "mlm_targets": torch.full_like(targets, int(np.flatnonzero(self.vocabulary.ordinary)[0])),
        }
        return batch | ({"next_sentence_label": torch.zeros(rows, dtype=torch.int64)} if self.has_pairs else {})

    def describe(self, step: int) -> str:
        """Return which rows and documents a step has, in words."""
        phase, epoch, rows = self._place(step)
        documents = np.unique(self.table(epoch, phase=phase).document_a[rows])
        shown = ", ".join(map(str, documents[:SHOWN_DOCUMENTS].tolist()))
        rest = len(documents) - SHOWN_DOCUMENTS
        return f"epoch {epoch}, documents {shown}" + (f" and {rest} more" if rest > 0 else "")

    def epoch_of(self, step: int) -> int:
        """Return the epoch that a step lies in, counted in its phase."""
        return self._place(step)[1]

    def _place(self, step: int) -> tuple[int, int, NDArray[np.int64]]:
        """The phase and epoch of a step, and its rows of the table."""
        starts = [0]
        if self.phases:
            assert self.max_steps is not None
            starts = first_steps(self.phases, self.max_steps)
        phase = int(np.searchsorted(starts, step, side="right")) - 1
        step -= starts[phase]
        epoch = self._epoch_of(step, phase)
        rows = global_batch(
            seed=self.seed,
            epoch=_epoch_key(phase, epoch),
            step=step - self.epoch_starts[phase][epoch],
            num_rows=len(self.table(epoch, phase=phase)),
            batch_size=self.batch_size,
        )
        return phase, epoch, rows

    def _progress(self, step: int) -> float:
        """The share of the run that is done, 0 in its first step and 1 in its last."""
        return 0.0 if self.max_steps is None else min(1.0, step / max(1, self.max_steps - 1))

    def _epoch_of(self, step: int, phase: int) -> int:
        known = self.epoch_starts[phase]
        while step >= known[-1]:  # the end of the last known epoch is not known yet
            epoch = len(known) - 1
            known.append(known[-1] + steps_in_epoch(len(self.table(epoch, phase=phase)), self.batch_size))
        return int(np.searchsorted(known, step, side="right")) - 1

    def steps_of_epochs(self, epochs: float) -> int:
        """Return the steps of so many passes; a part of a pass is that part of its steps, rounded up.

        Raises:
            InputError: the run has phases, whose passes have different lengths.
        """
        if self.phases:
            raise InputError(
                "need a run whose steps are known, as a pass has another length in each phase",
                field="--phases",
                remedy="give --max_steps or --max_minutes",
            )
        whole, known = int(epochs), int(np.ceil(epochs))
        [starts] = self.epoch_starts
        while len(starts) <= known:
            self._epoch_of(starts[-1], 0)
        start, end = starts[whole], starts[known]
        return max(1, start + int(np.ceil((epochs - whole) * (end - start))))


def _epoch_key(phase: int, epoch: int) -> int:
    """The number of an epoch among those of all phases: no two share their draws."""
    return phase * MOST_EPOCHS + epoch
