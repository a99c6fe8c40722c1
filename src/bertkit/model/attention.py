"""Attention: the one function, fused or written out when somebody wants to see the weights, and the module around it.

In: hidden states, or query, key and value per head, and the mask of real tokens.  Out: the mixed values, and the
weights and each head's share on request.  Next: encoder.py
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.model.config import BertConfig


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the context (batch, heads, queries, head_dim) and, if asked for, the weights (batch, heads, queries, seq).

    query: (batch, heads, queries, head_dim) floating point; key, value: (batch, heads, seq, head_dim).
    mask: (batch, seq) bool, True = token; None when no row is padded, which lets the fused kernel take its fast path.
    dropout: probability of dropping a weight, 0 outside training. The fused CPU kernel has no dropout: any value
        above 0 takes a slower path there.
    A row without a single token gets the context 0, never NaN.

    Source: Vaswani et al. 2017, section 3.2.1. Unlike Hugging Face's eager path the weights are those before dropout.
    """
    key_mask = None if mask is None else mask[:, None, None, :]  # (batch, 1, 1, seq)
    if not need_weights:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=key_mask, dropout_p=dropout), None
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (batch, heads, queries, seq)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (batch, heads, queries, seq)
    if key_mask is not None:
        # Exactly 0 on padding, and a row of padding alone mixes nothing, as in the fused kernel.
        weights = weights.masked_fill(~key_mask, 0.0)
    return F.dropout(weights, dropout, training=dropout > 0) @ value, weights  # (batch, heads, queries, head_dim)


@dataclass(frozen=True)
class ReadRows:
    """Which positions of a batch are read, where only they are computed; made by `read_rows`."""

    positions: Tensor  # (n,) int64, flat index row · seq + column, in any order
    rows: Tensor  # (n,) int64, the row of each
    slots: Tensor  # (n,) int64, flat index row · width + place among those of its row
    width: int  # the most positions that are read of one row, at least 1


def read_rows(positions: Tensor, *, batch: int, seq: int) -> ReadRows:
    """Return where flat positions (n,) int64 lie when the queries of each row are moved together.

    >>> read_rows(torch.tensor([9, 1, 5, 2]), batch=2, seq=5).slots.tolist()
    [2, 0, 3, 1]
    """
    rows = positions // seq  # (n,)
    counts = torch.bincount(rows, minlength=batch)  # (batch,)
    order = rows.argsort(stable=True)  # (n,)
    starts = counts.cumsum(0) - counts  # (batch,)
    places = torch.empty_like(rows)  # (n,)
    places[order] = torch.arange(len(rows), device=rows.device) - starts[rows[order]]
    width = max(1, int(counts.max())) if batch else 1  # (a process without rows still takes its turn)
    return ReadRows(positions, rows, rows * width + places, width)


class SelfAttention(nn.Module):
    """Multi-head self-attention with query, key and value in one matrix product, and its output projection.

    kept_heads: the numbers of the heads it has, rising; the others were pruned.
    """

    def __init__(self, config: BertConfig, *, kept_heads: tuple[int, ...]) -> None:
        super().__init__()
        self.kept_heads, self.head_dim = kept_heads, config.head_dim
        self.dropout_probability = config.attention_probs_dropout_prob
        width = len(kept_heads) * config.head_dim
        self.query_key_value = nn.Linear(config.hidden_size, 3 * width)
        self.output = nn.Linear(width, config.hidden_size)

    def forward(
        self,
        hidden: Tensor,
        *,
        mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        read: ReadRows | None = None,
        need_weights: bool = False,
        need_heads: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return (batch, seq, hidden), the weights (batch, heads, seq, seq) or None, and each head's share or None.

        head_mask: (batch or 1, all heads, pruned ones included), a factor for each head's context.
        read: the output is then (n, hidden), of these positions alone; every token stays a key and a value.
        A head's share (batch, heads, seq, hidden) is what it adds to the output: their sum and the bias are the output.
        """
        query, key, value = self._projected(hidden, read)
        context, weights = attend(
            query,
            key,
            value,
            mask=mask,
            dropout=self.dropout_probability if self.training else 0.0,
            need_weights=need_weights,
        )
        if head_mask is not None:
            context = context * head_mask[:, list(self.kept_heads), None, None]
        merged = context.transpose(1, 2).flatten(2)  # (batch, queries, heads · head_dim)
        if read is not None:
            merged = merged.flatten(0, 1).index_select(0, read.slots)  # (n, heads · head_dim)
        return self.output(merged), weights, self._shares(context) if need_heads else None

    def _projected(self, hidden: Tensor, read: ReadRows | None) -> tuple[Tensor, Tensor, Tensor]:
        """Query (batch, heads, queries, head_dim), key and value (batch, heads, seq, head_dim)."""
        batch, seq, _ = hidden.shape
        width = len(self.kept_heads) * self.head_dim
        if read is None:
            fused = self.query_key_value(hidden)  # (batch, seq, 3 · width)
            query, key, value = self._by_heads(fused, batch, seq)
            return query, key, value
        # A layer that was put in the place of the matrix (quantized, say) is asked for all rows.
        if type(self.query_key_value) is nn.Linear:
            weight, bias = self.query_key_value.weight, self.query_key_value.bias
            some = hidden.flatten(0, 1).index_select(0, read.positions)  # (n, hidden)
            queries = F.linear(some, weight[:width], bias[:width])  # (n, width)
            pairs = F.linear(hidden, weight[width:], bias[width:])  # (batch, seq, 2 · width)
        else:
            fused = self.query_key_value(hidden)  # (batch, seq, 3 · width)
            queries = fused[..., :width].flatten(0, 1).index_select(0, read.positions)  # (n, width)
            pairs = fused[..., width:]  # (batch, seq, 2 · width)
        # Rows of which fewer positions are read get queries of 0, whose context nobody takes.
        together = queries.new_zeros(batch * read.width, width).index_copy(0, read.slots, queries)
        [query] = self._by_heads(together, batch, read.width)
        key, value = self._by_heads(pairs, batch, seq)
        return query, key, value

    def _by_heads(self, projected: Tensor, batch: int, seq: int) -> tuple[Tensor, ...]:
        """One, two or three tensors (batch, heads, seq, head_dim) of those that stand side by side."""
        together = projected.size(-1) // (len(self.kept_heads) * self.head_dim)  # one, two or three
        heads = projected.view(batch, seq, together, len(self.kept_heads), self.head_dim)
        return heads.permute(2, 0, 3, 1, 4).unbind(0)

    def _shares(self, context: Tensor) -> Tensor:
        weight = self.output.weight.view(-1, len(self.kept_heads), self.head_dim)  # (hidden, heads, head_dim)
        return torch.einsum("bnsd,hnd->bnsh", context, weight)  # (batch, heads, seq, hidden)
