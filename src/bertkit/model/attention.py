"""Attention: one function for rows, fused or written out when somebody wants to see the weights, one for packed rows,
and the module around them.

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


def attend_packed(
    query: Tensor, key: Tensor, value: Tensor, *, query_bounds: Tensor, bounds: Tensor, longest: int
) -> Tensor:
    """Return the context (queries, heads, head_dim) of rows that stand one after the other, each seeing itself alone.

    query: (queries, heads, head_dim); key, value: (tokens, heads, head_dim); on a GPU bfloat16 or float16.
    query_bounds, bounds: (rows + 1,) int32, where the queries and the tokens of each row begin, last their number;
        a row may have none.
    longest: the most tokens of a row.

    On a GPU FlashAttention in one call (Dao 2023), by torch.nn.attention.varlen; elsewhere the fused kernel row by row.
    """
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        context = varlen_attn(query, key, value, query_bounds, bounds, longest, longest)
        assert isinstance(context, Tensor)
        return context
    rows = []
    queries, tokens = torch.diff(query_bounds).tolist(), torch.diff(bounds).tolist()
    for row in zip(
        query.split_with_sizes(queries), *(each.split_with_sizes(tokens) for each in (key, value)), strict=True
    ):
        q, k, v = (part.transpose(0, 1)[None] for part in row)  # (1, heads, …, head_dim)
        rows.append(F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    return torch.cat(rows)


@dataclass(frozen=True)
class ReadRows:
    """Which positions of a batch are read, where only they are computed; made by `read_rows`."""

    places: Tensor  # (n,) int64, the place of each among the hidden states: its flat index, or that without padding
    rows: Tensor  # (n,) int64, the row of each
    query_places: Tensor  # (n,) int64, the place of each among the queries: row · width + its number in its row
    num_real: int  # of the n; copies of the first, which nobody reads, fill up to a round number
    # The most positions that are read of one row, at least 1; of packed rows 1, and query_places mean nothing.
    width: int


def read_rows(
    positions: Tensor, *, batch: int, seq: int, unpadding: Unpadding | None = None, multiple: int = 1
) -> ReadRows:
    """Return where flat positions (n,) int64, in any order, lie when the queries of each row are moved together.

    multiple: positions of which nothing is read fill up to a multiple of it.

    >>> read_rows(torch.tensor([9, 1, 5, 2]), batch=2, seq=5).query_places.tolist()
    [2, 0, 3, 1]
    """
    rows = positions // seq  # (n,)
    counts = torch.bincount(rows, minlength=batch)  # (batch,)
    order = rows.argsort(stable=True)  # (n,)
    starts = counts.cumsum(0) - counts  # (batch,)
    numbers = torch.empty_like(rows)  # (n,), of each in its row
    numbers[order] = torch.arange(len(rows), device=rows.device) - starts[rows[order]]
    is_packed = unpadding is not None and unpadding.bounds is not None  # looking at the counts is a wait for a GPU
    width = max(1, int(counts.max())) if batch and not is_packed else 1  # (a process without rows takes its turn too)
    places = positions if unpadding is None else unpadding.places[positions]
    num_real, fill = len(positions), -len(positions) % multiple if len(positions) else 0
    places, rows, query_places = (
        torch.cat([part, part[:1].expand(fill)]) if fill else part for part in (places, rows, rows * width + numbers)
    )
    return ReadRows(places, rows, query_places, num_real, width)


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
        if unpadding is not None and unpadding.bounds is not None:
            return self.output(self._packed(hidden, unpadding, read)), None, None
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
            merged = merged.flatten(0, 1).index_select(0, read.query_places)  # (n, heads · head_dim)
        elif unpadding is not None:
            merged = unpadding.unpad(merged.flatten(0, 1))  # (tokens, heads · head_dim)
        return self.output(merged), weights, self._shares(context) if need_heads else None

    def _projected(
        self, hidden: Tensor, unpadding: Unpadding | None, read: ReadRows | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query (batch, heads, queries, head_dim), key and value (batch, heads, seq, head_dim)."""
        if read is None:
            query, key, value = self._by_heads(self.query_key_value(hidden), unpadding)  # of (…, 3 · width)
            return query, key, value
        queries, pairs = self._queries_and_pairs(hidden, read)
        width = queries.size(1)
        key, value = self._by_heads(pairs, unpadding)
        # Rows of which fewer positions are read get queries of 0, whose context nobody takes.
        places, queries = read.query_places[: read.num_real], queries[: read.num_real]
        together = queries.new_zeros(key.size(0) * read.width, width).index_copy(0, places, queries)
        [query] = self._by_heads(together.view(-1, read.width, width), None)
        return query, key, value

    def _packed(self, hidden: Tensor, unpadding: Unpadding, read: ReadRows | None) -> Tensor:
        """The context of packed rows, (tokens or n, heads · head_dim)."""
        bounds, heads = unpadding.bounds, (len(self.kept_heads), self.head_dim)
        assert bounds is not None
        if read is None:
            query, key, value = self.query_key_value(hidden).reshape(-1, 3, *heads).unbind(1)
            context = attend_packed(query, key, value, query_bounds=bounds, bounds=bounds, longest=unpadding.longest)
            return context.flatten(1)
        queries, pairs = self._queries_and_pairs(hidden, read)
        key, value = pairs.reshape(-1, 2, *heads).unbind(1)
        order = read.rows.argsort(stable=True)  # (n,): those of a row together
        numbers = torch.arange(len(bounds), device=bounds.device)
        starts = torch.searchsorted(read.rows[order], numbers).int()  # (batch + 2,)
        query = queries[order].reshape(-1, *heads)
        context = attend_packed(query, key, value, query_bounds=starts, bounds=bounds, longest=unpadding.longest)
        return context.flatten(1)[order.argsort()]

    def _queries_and_pairs(self, hidden: Tensor, read: ReadRows) -> tuple[Tensor, Tensor]:
        """The queries of the positions that are read, (n, width), and every key and value, (…, 2 · width)."""
        width = len(self.kept_heads) * self.head_dim
        # A layer that was put in the place of the matrix (quantized, say) is asked for all rows.
        if type(self.query_key_value) in (Linear, nn.Linear):
            weight, bias = self.query_key_value.weight, self.query_key_value.bias
            some = hidden.flatten(0, -2).index_select(0, read.places)  # (n, hidden)
            queries = linear(some, weight[:width], bias[:width])  # (n, width)
            pairs = linear(hidden, weight[width:], bias[width:])  # (…, 2 · width)
        else:
            fused = self.query_key_value(hidden)  # (…, 3 · width)
            queries = fused[..., :width].flatten(0, -2).index_select(0, read.places)  # (n, width)
            pairs = fused[..., width:]  # (…, 2 · width)
        return queries, pairs

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
