"""A head start: what a new model may know before its first step, by counting which tokens stand near which.

Its output knows how frequent each token is, its word vectors are alike where their neighbours are, and the heads of its
first layer look at the tokens beside each.
In: a PretrainingModel as `initialise` left it, counts of the tokens, vectors of the words.  Out: the same model with
other first values: it is BERT all the same, and training may change all of them.
Next: ../tasks/word_vectors.py (how the vectors are made); docs/performance.md (what all of it gives)
"""

import math

import torch
from torch import Tensor, nn

from bertkit.model.encoder import Encoder, Layer
from bertkit.model.heads import PretrainingModel

WORDS, POSITIONS = 5.0, 10.0  # root mean square of embeddings, in initializer_range
SHARPNESS = 12.0  # the score of the neighbour that a head looks at, where those of other places are near 0
GAIN = 0.7  # singular values of the value and output matrices of the heads that look


@torch.no_grad()
def give_head_start(model: PretrainingModel, *, token_counts: Tensor, vectors: Tensor) -> None:
    """Set the first values of the output's bias, the embeddings and the attention of the first layer.

    token_counts: (vocabulary,), how often each token stands in the training text; 0 for what is never predicted.
    vectors: (vocabulary, hidden) floating point, each of length 1, or 0: its embedding then stays as it was drawn.

    A model drawn from N(0, 0.02) spends its first steps on finding the frequencies, its next ones on finding that
    neighbours matter, and most of the others on learning of each token by itself what counting tells of all at once.
    """
    if model.mlm_head is not None:
        seen = token_counts + 1.0
        model.mlm_head.bias.fill_(-seen.sum().log())  # rows beyond the vocabulary, if any: as if seen once, too
        model.mlm_head.bias[: len(seen)] = (seen / seen.sum()).log()
    length = WORDS * model.config.initializer_range * math.sqrt(model.config.hidden_size)
    known = vectors.any(dim=1).nonzero().squeeze(1)
    model.encoder.embeddings.word_embeddings.weight[known] = length * vectors[known]
    look_at_neighbours(model.encoder)


@torch.no_grad()
def look_at_neighbours(encoder: Encoder) -> None:
    """Let the heads of the first layer look at one neighbour each: the token before, the one behind, the second …

    Positions become waves (Vaswani et al. 2017), in every head's part of the vector some of its own, from slow to as
    fast as whole positions can tell. A head's query turns the waves of its place by as many places as it looks away
    (as Su et al. 2021 turn queries), its key takes them as they are: they meet at that place alone. Trockman and
    Kolter 2023 begin with attention as trained models have it, too, by other means.
    """
    config, layer = encoder.config, encoder.layers[0]
    assert isinstance(layer, Layer)
    pairs = config.head_dim // 2
    # One from each of as many parts of (0, π]: evenly spaced ones would meet again further on.
    parts = torch.arange(pairs) + torch.rand(config.num_attention_heads, pairs)  # (heads, pairs)
    frequencies = math.pi * parts / max(1, pairs)  # radians a position
    _write_waves(encoder.embeddings.position_embeddings, frequencies, length=POSITIONS * config.initializer_range)
    strength = math.sqrt(SHARPNESS * math.sqrt(config.head_dim) / (pairs * _share_of_positions())) if pairs else 0.0
    attention = layer.attention
    weight = attention.query_key_value.weight.view(3, -1, config.head_dim, config.hidden_size)  # of the kept heads
    for number, head in enumerate(attention.kept_heads):
        columns = slice(head * config.head_dim, head * config.head_dim + 2 * pairs)
        weight[0, number, : 2 * pairs, columns] += strength * _turned(frequencies[head] * _place_seen_by(head))
        weight[1, number, : 2 * pairs, columns] += strength * torch.eye(2 * pairs)
    for matrix in (weight[2].flatten(0, 1), attention.output.weight):
        nn.init.orthogonal_(matrix, gain=GAIN)


def _share_of_positions() -> float:
    """The square of a pair of the positions' numbers after the LayerNorm, where words are as long as `WORDS`."""
    return 2 * POSITIONS**2 / (POSITIONS**2 + WORDS**2 + 1)  # 1: the segment's, as it was drawn


def _place_seen_by(head: int) -> int:
    """How far away a head looks: −1, 1, −2, 2, …"""
    distance = head // 2 + 1
    return distance if head % 2 else -distance


def _write_waves(positions: nn.Embedding, frequencies: Tensor, *, length: float) -> None:
    """Set each pair of numbers of each head to cosine and sine, √2 · length long; an odd width keeps its last one."""
    heads, pairs = frequencies.shape
    table = positions.weight.view(len(positions.weight), heads, -1)  # (positions, heads, head_dim)
    angles = torch.arange(len(table))[:, None, None] * frequencies  # (positions, heads, pairs)
    waves = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)  # (positions, heads, 2 · pairs)
    table[..., : 2 * pairs] = math.sqrt(2) * length * waves


def _turned(angles: Tensor) -> Tensor:
    """The matrix (2 · pairs, 2 · pairs) that turns each pair of numbers by its angle."""
    turned = torch.diag(angles.cos().repeat_interleave(2))
    even = torch.arange(0, len(turned), 2)
    turned[even, even + 1], turned[even + 1, even] = -angles.sin(), angles.sin()
    return turned
