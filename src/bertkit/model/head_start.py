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

from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder, Layer
from bertkit.model.heads import PretrainingModel

# By measurement (docs/performance.md), on a tiny model.
WORDS, POSITIONS = 1.13, 2.26  # lengths of their embeddings: 5 and 10 times those of a tiny model drawn from N(0, 0.02)
SHARPNESS = 12.0  # the score of the neighbour that a head looks at; scores of other places are about 0, give or take 2
NOISE = 0.02  # standard deviation of what else stands in the queries and keys of the heads that look
GAIN = 0.7  # singular values of the value and output matrices of the heads that look


@torch.no_grad()
def give_head_start(model: PretrainingModel, *, token_counts: Tensor, vectors: Tensor) -> None:
    """Set the first values of the output's bias, the embeddings and the attention of the first layer, on the processor.

    token_counts: (vocabulary,) int64, how often each token stands in the training text; 0 for what is never predicted.
    vectors: (vocabulary, hidden) float32, each of length 1, or 0: its embedding stays as it was drawn.

    A model drawn from N(0, 0.02) spends its first steps on finding the frequencies, its next ones on finding that
    neighbours matter, and most of the others on learning of each token by itself what counting tells of all at once.
    Lengths are the same for every width, so that the first scores of the vocabulary are, too.
    """
    assert model.mlm_head is not None
    seen = token_counts + 1.0
    model.mlm_head.bias.fill_(-seen.sum().log())  # rows beyond the vocabulary, if any: as if seen once, too
    model.mlm_head.bias[: len(seen)] = (seen / seen.sum()).log()
    known = vectors.any(dim=1).nonzero().squeeze(1)
    model.encoder.embeddings.word_embeddings.weight[known] = WORDS * vectors[known]
    look_at_neighbours(model.encoder)


@torch.no_grad()
def look_at_neighbours(encoder: Encoder) -> None:
    """Let the heads of the first layer look at one neighbour each: the token before, the one behind, the second …

    Positions become waves (Vaswani et al. 2017), in every head's part of the vector some of its own, from slow to as
    fast as whole positions can tell. A head's query turns the waves of its place by as many places as it looks away
    (as Su et al. 2021 turn queries), its key takes them as they are: they meet at that place alone, the more sharply
    the wider the head. Trockman and Kolter 2023 begin with attention as trained models have it, too, by other means.
    """
    config, layer, embeddings = encoder.config, encoder.layers[0], encoder.embeddings
    assert isinstance(layer, Layer)
    pairs = config.head_dim // 2
    # One from each of as many parts of (0, π]: evenly spaced ones would meet again further on.
    parts = torch.arange(pairs) + torch.rand(config.num_attention_heads, pairs)  # (heads, pairs)
    frequencies = math.pi * parts / max(1, pairs)  # radians a position
    _write_waves(embeddings.position_embeddings, frequencies)
    squared = 2 * POSITIONS**2 / _squared_length(embeddings)  # of a pair of the positions' numbers after the LayerNorm
    strength = math.sqrt(SHARPNESS * math.sqrt(config.head_dim) / (pairs * squared)) if pairs else 0.0
    attention = layer.attention
    weight = attention.query_key_value.weight.view(3, -1, config.head_dim, config.hidden_size)  # of the kept heads
    nn.init.normal_(weight[:2], std=NOISE)
    for number, head in enumerate(attention.kept_heads):
        columns = slice(head * config.head_dim, head * config.head_dim + 2 * pairs)
        weight[0, number, : 2 * pairs, columns] += strength * _turned(frequencies[head] * _place_seen_by(head))
        weight[1, number, : 2 * pairs, columns] += strength * torch.eye(2 * pairs)
    for matrix in (weight[2].flatten(0, 1), attention.output.weight):
        nn.init.orthogonal_(matrix, gain=GAIN)


def _squared_length(embeddings: Embeddings) -> float:
    """The mean squared length of what goes into the LayerNorm: a word, a position and a segment together."""
    tables = (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings)
    return sum(table.weight.pow(2).sum(dim=1).mean().item() for table in tables)


def _place_seen_by(head: int) -> int:
    """How far away a head looks: −1, 1, −2, 2, …"""
    distance = head // 2 + 1
    return distance if head % 2 else -distance


def _write_waves(positions: nn.Embedding, frequencies: Tensor) -> None:
    """Set each pair of numbers of each head to cosine and sine; a head of an odd width keeps its last number."""
    heads, pairs = frequencies.shape
    table = positions.weight.view(len(positions.weight), heads, -1)  # (positions, heads, head_dim)
    angles = torch.arange(len(table))[:, None, None] * frequencies  # (positions, heads, pairs)
    waves = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)  # (positions, heads, 2 · pairs)
    table[..., : 2 * pairs] = POSITIONS * math.sqrt(2 / positions.weight.size(1)) * waves


def _turned(angles: Tensor) -> Tensor:
    """The matrix (2 · pairs, 2 · pairs) that turns each pair of numbers by its angle."""
    turned = torch.diag(angles.cos().repeat_interleave(2))
    even = torch.arange(0, len(turned), 2)
    turned[even, even + 1], turned[even + 1, even] = -angles.sin(), angles.sin()
    return turned
