"""A batch without its padding: the real tokens one after the other, so that layers compute nothing for the rest.

In: the mask of real tokens.  Out: an Unpadding, and the two ways between (batch · seq, …) and (tokens, …).
Next: attention.py (the one place where rows matter), encoder.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Unpadding:
    """Where the real tokens of a batch lie; made by `unpadding_of`.

    Tokens that only fill up to a round number follow the real ones. They are copies of the first position, no row
    attends to them and nobody reads what becomes of them, so that their gradient is 0.
    """

    positions: Tensor  # (tokens,) int64, flat index row · seq + column of each, rising; 0 for what fills up
    places: Tensor  # (batch · seq,) int64, place of each flat index among the tokens; of padding: the last token
    num_real: int  # tokens that are real, at most all
    seq: int
    # Of packed rows only, which attention sees one after the other too: (batch + 2,) int32, where the tokens of each
    # row begin; those that fill up are a row of their own; last the number of all.
    bounds: Tensor | None = None

    @property
    def longest(self) -> int:
        """The most tokens that a row can have, that of those that fill up included."""
        return max(self.seq, len(self.positions) - self.num_real)

    def rows(self) -> Tensor:
        """Return the row of each token, (tokens,) int64."""
        return self.positions // self.seq

    def unpad(self, padded: Tensor) -> Tensor:
        """Return (tokens, …) of (batch · seq, …)."""
        rows: Tensor = _Unpad.apply(padded, self)  # type: ignore[no-untyped-call]
        return rows

    def unpad_batch(self, part: Tensor, shape: Sequence[int]) -> Tensor:
        """Return (tokens, …) of what is (batch, seq, …), or 1 in place of the batch or seq of this shape."""
        return self.unpad(part.expand(*shape, *part.shape[2:]).flatten(0, 1))

    def pad(self, tokens: Tensor) -> Tensor:
        """Return (batch · seq, …) of (tokens, …); what stands at padding is some token's."""
        rows: Tensor = _Pad.apply(tokens, self)  # type: ignore[no-untyped-call]
        return rows


def unpadding_of(
    mask: Tensor | None, *, batch: int, seq: int, multiple: int, device: torch.device, packed: bool = False
) -> Unpadding | None:
    """Return how to leave the padding out of a batch, or None where nothing would be gained.

    mask: (batch, seq) bool, True = token; None: no padding.
    multiple: the number of tokens becomes a multiple of it, at least 1; kernels are made anew for each new number.
    packed: whether attention, too, shall see the rows one after the other.

    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> unpadding_of(mask, batch=2, seq=3, multiple=1, device=mask.device)
    Unpadding(positions=tensor([0, 1, 2, 3, 0]), places=tensor([0, 1, 2, 3, 4, 4]), num_real=4, seq=3, bounds=None)
    """
    whole = batch * seq
    if mask is None and whole % multiple == 0:
        return None
    real = torch.arange(whole, device=device) if mask is None else mask.flatten().nonzero().squeeze(1)  # (num_real,)
    num_real = len(real)
    if num_real == 0 or (num_real == whole and whole % multiple == 0):
        return None
    tokens = -(-num_real // multiple) * multiple
    if tokens == num_real and num_real < whole:
        tokens += multiple  # padding needs a token of its own, whose gradient is 0
    if tokens >= whole and num_real < whole:
        return None
    positions = torch.cat([real, real.new_zeros(tokens - num_real)])
    places = torch.full((whole,), tokens - 1, dtype=torch.int64, device=device)
    places[real] = torch.arange(num_real, device=device)
    return Unpadding(positions, places, num_real, seq, _bounds(real, tokens, batch=batch, seq=seq) if packed else None)


def _bounds(real: Tensor, tokens: int, *, batch: int, seq: int) -> Tensor:
    """Where each row begins among the tokens, of which the real ones have these flat indices."""
    starts = torch.searchsorted(real, seq * torch.arange(batch + 2, device=real.device))  # (batch + 2,)
    starts[-1] = tokens
    return starts.int()


class _Unpad(torch.autograd.Function):
    """Take the tokens out; their gradients go back to where they came from, by looking up in place of adding up."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, unpadding: Unpadding) -> Tensor:
        ctx.unpadding = unpadding
        return padded.index_select(0, unpadding.positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.index_select(0, ctx.unpadding.places), None  # of padding: that of the last token, which is 0


class _Pad(torch.autograd.Function):
    """Put the tokens into rows; what fills up gets no gradient."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, unpadding: Unpadding) -> Tensor:
        ctx.unpadding = unpadding
        return tokens.index_select(0, unpadding.places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        unpadding = ctx.unpadding
        rows = gradient.index_select(0, unpadding.positions)
        rows[unpadding.num_real :] = 0
        return rows, None
