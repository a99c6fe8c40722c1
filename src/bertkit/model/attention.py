"""The one attention function: fused, or written out when somebody wants to see the weights.

In: query, key, value per head and the mask of real tokens.  Out: the mixed values, and the weights on request.
Next: encoder.py
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the context (batch, heads, seq, head_dim) and, if asked for, the weights (batch, heads, seq, seq).

    query, key, value: (batch, heads, seq, head_dim) floating point.
    mask: (batch, seq) bool, True = token; None when no row is padded, which lets the fused kernel take its fast path.
    dropout: probability of dropping a weight, 0 outside training. The fused CPU kernel has no dropout: any value
        above 0 takes a slower path there.
    A row without a single token gets the context 0, never NaN.

    Source: Vaswani et al. 2017, section 3.2.1. Unlike Hugging Face's eager path the weights are those before dropout.
    """
    key_mask = None if mask is None else mask[:, None, None, :]  # (batch, 1, 1, seq)
    if not need_weights:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=key_mask, dropout_p=dropout), None
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (batch, heads, seq, seq)
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (batch, heads, seq, seq)
    if key_mask is not None:
        # Exactly 0 on padding, and a row of padding alone mixes nothing, as in the fused kernel.
        weights = weights.masked_fill(~key_mask, 0.0)
    return F.dropout(weights, dropout, training=dropout > 0) @ value, weights  # (batch, heads, seq, head_dim)
