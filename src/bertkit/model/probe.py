"""Has a masked-LM head learnt anything?  Its loss on a few texts, to be read against that of a guess.

In: a model and the ids of texts.  Out: the mean loss over their tokens, hidden one at a time.  Next: pretrained.py
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bertkit.model.heads import PretrainingModel

ROWS_AT_ONCE = 32
TRAINED_BELOW = 0.9  # of the loss of a guess; a head that knows no more than frequencies is below it
RIGHT_ABOVE = 0.2  # of the tokens; a head that always says one and the same is seldom right so often


@dataclass(frozen=True)
class Probe:
    """What a masked-LM head says of texts it may never have seen."""

    loss: float  # mean over the tokens, in nats
    accuracy: float  # share of them that the highest score hits
    num_tokens: int
    chance: float  # ln(vocabulary): the loss of equal scores for all, and about that of a new head

    @property
    def trained(self) -> bool:
        """Whether the head is better than a guess by a margin that no new head has.

        One that is often right and, where it is wrong, too sure of it has a high loss, and is trained all the same.
        """
        return self.loss < TRAINED_BELOW * self.chance or self.accuracy > RIGHT_ABOVE

    @property
    def verdict(self) -> str:
        """What the figures say of the head, in words."""
        if self.trained:
            return "trained"
        return "hardly better than a guess" if self.loss < self.chance else "no better than a guess"


@torch.inference_mode()
def probe_masked_lm(
    model: PretrainingModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]], *, mask_id: int
) -> Probe:
    """Return the loss of a model's masked-LM head.

    rows: for each text its ids, special tokens included, and the columns to be hidden one at a time.
    """
    assert model.mlm_head is not None
    total, right, number = 0.0, 0, 0
    for ids, columns in rows:
        for start in range(0, len(columns), ROWS_AT_ONCE):
            chosen = torch.tensor(columns[start : start + ROWS_AT_ONCE])  # (n,)
            batch = torch.tensor(ids).repeat(len(chosen), 1)  # (n, seq)
            targets = batch[0, chosen]  # (n,)
            batch[torch.arange(len(chosen)), chosen] = mask_id
            positions = torch.arange(len(chosen)) * len(ids) + chosen  # (n,)
            output = model.eval()(batch, mlm_positions=positions, mlm_targets=targets)
            assert output.mlm_loss is not None
            assert output.mlm_logits is not None
            total += output.mlm_loss.item() * len(chosen)
            right += int((output.mlm_logits.argmax(-1) == targets).sum())
            number += len(chosen)
    assert number, "a probe needs a token to hide"
    return Probe(total / number, right / number, number, math.log(model.config.vocab_size))
