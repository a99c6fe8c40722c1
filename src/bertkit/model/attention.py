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
from bertkit.model.unpadding import Unpadding
from bertkit.products import Linear, linear


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

    tokens: Tensor  # (n,) int64, the place of each among the hidden states: its flat index, or that without padding
    rows: Tensor  # (n,) int64, the row of each
    slots: Tensor  # (n,) int64, flat index row · width + place among those of its row
    num_real: int  # of the n; copies of the first, which nobody reads, fill up to a round number
    width: int  # the most positions that are read of one row, at least 1


def read_rows(
    positions: Tensor, *, batch: int, seq: int, unpadding: Unpadding | None = None, multiple: int = 1
) -> ReadRows:
    """Return where flat positions (n,) int64, in any order, lie when the queries of each row are moved together.

    multiple: positions of which nothing is read fill up to a multiple of it.

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
    tokens = positions if unpadding is None else unpadding.slots[positions]
    num_real, fill = len(positions), -len(positions) % multiple if len(positions) else 0
    tokens, rows, slots = (
        torch.cat([part, part[:1].expand(fill)]) if fill else part for part in (tokens, rows, rows * width + places)
    )
    return ReadRows(tokens, rows, slots, num_real, width)


class SelfAttention(nn.Module):
    """Multi-head self-attention with query, key and value in one matrix product, and its output projection.

    kept_heads: the numbers of the heads it has, rising; the others were pruned.
    """

    def __init__(self, config: BertConfig, *, kept_heads: tuple[int, ...]) -> None:
        super().__init__()
        self.kept_heads, self.head_dim = kept_heads, config.head_dim
        self.dropout_probability = config.attention_probs_dropout_prob
        width = len(kept_heads) * config.head_dim
        self.query_key_value = Linear(config.hidden_size, 3 * width)
        self.output = Linear(width, config.hidden_size)

    def forward(
        self,
        hidden: Tensor,
        *,
        mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        unpadding: Unpadding | None = None,
        read: ReadRows | None = None,
        need_weights: bool = False,
        need_heads: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return (batch, seq, hidden), the weights (batch, heads, seq, seq) or None, and each head's share or None.

        head_mask: (batch or 1, all heads, pruned ones included), a factor for each head's context.
        unpadding: hidden and the output are then (tokens, hidden), of these tokens alone.
        read: the output is then (n, hidden), of these positions alone; every token stays a key and a value.
        A head's share (batch, heads, seq, hidden) is what it adds to the output: their sum and the bias are the output.
        """
        query, key, value = self._projected(hidden, unpadding, read)
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
        elif unpadding is not None:
            merged = unpadding.unpad(merged.flatten(0, 1))  # (tokens, heads · head_dim)
        return self.output(merged), weights, self._shares(context) if need_heads else None

    def _projected(
        self, hidden: Tensor, unpadding: Unpadding | None, read: ReadRows | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query (batch, heads, queries, head_dim), key and value (batch, heads, seq, head_dim)."""
        width = len(self.kept_heads) * self.head_dim
        if read is None:
            query, key, value = self._by_heads(self.query_key_value(hidden), unpadding)  # of (…, 3 · width)
            return query, key, value
        # A layer that was put in the place of the matrix (quantized, say) is asked for all rows.
        if type(self.query_key_value) in (Linear, nn.Linear):
            weight, bias = self.query_key_value.weight, self.query_key_value.bias
            some = hidden.flatten(0, -2).index_select(0, read.tokens)  # (n, hidden)
            queries = linear(some, weight[:width], bias[:width])  # (n, width)
            pairs = linear(hidden, weight[width:], bias[width:])  # (…, 2 · width)
        else:
            fused = self.query_key_value(hidden)  # (…, 3 · width)
            queries = fused[..., :width].flatten(0, -2).index_select(0, read.tokens)  # (n, width)
            pairs = fused[..., width:]  # (…, 2 · width)
        key, value = self._by_heads(pairs, unpadding)
        # Rows of which fewer positions are read get queries of 0, whose context nobody takes.
        places, queries = read.slots[: read.num_real], queries[: read.num_real]
        together = queries.new_zeros(key.size(0) * read.width, width).index_copy(0, places, queries)
        [query] = self._by_heads(together.view(-1, read.width, width), None)
        return query, key, value

    def _by_heads(self, projected: Tensor, unpadding: Unpadding | None) -> tuple[Tensor, ...]:
        """One, two or three tensors (batch, heads, seq, head_dim) of those that stand side by side."""
        if unpadding is not None:
            projected = unpadding.pad(projected).view(-1, unpadding.seq, projected.size(-1))  # (batch, seq, …)
        batch, seq, width = projected.shape
        together = width // (len(self.kept_heads) * self.head_dim)  # one, two or three
        heads = projected.view(batch, seq, together, len(self.kept_heads), self.head_dim)
        return heads.permute(2, 0, 3, 1, 4).unbind(0)

    def _shares(self, context: Tensor) -> Tensor:
        weight = self.output.weight.view(-1, len(self.kept_heads), self.head_dim)  # (hidden, heads, head_dim)
        return torch.einsum("bnsd,hnd->bnsh", context, weight)  # (batch, heads, seq, hidden)
