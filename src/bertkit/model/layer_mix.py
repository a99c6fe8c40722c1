"""Several layers' states as one: the last, side by side, their sum, their mean, or a weighted sum that is learned.

In: hidden_states of the encoder.  Out: (batch, seq, output_size).  Next: task_heads.py, pipelines/embedding.py
"""

from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import EncoderOutput
from bertkit.model.task_config import Combine, TaskConfig


class LayerMix(nn.Module):
    """Combines the hidden states of some layers.

    layers: which of the num_hidden_layers + 1 hidden states: 0 the embeddings, 1 the first layer, −1 the last.
    combine: last: the deepest of them; concat: side by side, in the order given; sum; mean; weighted: the sum of
        softmax(weights) × states, times gamma, both learned, at first the mean.
    output_size: the width of what comes out.

    Raises:
        InputError: no layer, one that the model does not have, one named twice, no such way to combine.
    Source: Peters et al. 2018, equation 1, for the weighted sum; Devlin et al. 2019, section 5.3, for the others.
    """

    def __init__(self, layers: Sequence[int], *, combine: Combine, num_hidden_layers: int, hidden_size: int) -> None:
        super().__init__()
        if combine not in get_args(Combine):
            expected = " | ".join(get_args(Combine))
            raise InputError("is no way to combine layers", field="combine", value=combine, expected=expected)
        self.layers = checked_layers(layers, num_hidden_layers=num_hidden_layers)
        self.combine = combine
        self.output_size = hidden_size * (len(self.layers) if combine == "concat" else 1)
        learned = combine == "weighted"
        self.weights = nn.Parameter(torch.zeros(len(self.layers))) if learned else None  # before the softmax
        self.gamma = nn.Parameter(torch.ones(1)) if learned else None

    def forward(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Return (…, output_size) for num_hidden_layers + 1 tensors (…, hidden)."""
        chosen = [hidden_states[layer] for layer in self.layers]
        if self.combine == "last":
            return hidden_states[max(self.layers)]
        if self.combine == "concat":
            return torch.cat(chosen, dim=-1)  # (…, layers · hidden)
        if self.weights is not None and self.gamma is not None:
            return self.gamma * torch.einsum("l...,l->...", torch.stack(chosen), self.weights.softmax(dim=0))
        total = torch.stack(chosen).sum(0)  # (…, hidden)
        return total / len(chosen) if self.combine == "mean" else total


def mix_of(task: TaskConfig, config: BertConfig, *, pooler: bool) -> LayerMix | None:
    """Return what a head reads, or None where that is the last layer as it is.

    pooler: whether the pooler stands between, which takes one layer's width.

    Raises:
        InputError: what LayerMix raises; layers side by side before a pooler.
    """
    width, last = config.hidden_size, config.num_hidden_layers
    combine, layers = normal_mix(task.layers, task.combine, num_hidden_layers=last)
    if (combine, layers) == ("last", (last,)):
        return None
    mix = LayerMix(layers, combine=combine, num_hidden_layers=last, hidden_size=width)
    if pooler and mix.output_size != width:
        raise InputError(
            f"makes {mix.output_size} numbers of a token, and the pooler takes {width}",
            field="combine",
            value=mix.combine,
            remedy="use pooling cls or mean, or combine the layers into one",
        )
    return mix


def width_of(mix: LayerMix | None, config: BertConfig) -> int:
    """Return how many numbers of a token or row a head reads."""
    return config.hidden_size if mix is None else mix.output_size


def features(encoded: EncoderOutput, mix: LayerMix | None) -> Tensor:
    """Return what a head reads of each token, (batch, seq, width): the last layer, or a mix of several."""
    if mix is None:
        return encoded.last_hidden_state
    assert encoded.hidden_states is not None
    return mix(encoded.hidden_states)  # type: ignore[no-any-return]


def normal_mix(
    layers: Sequence[int] | None, combine: Combine, *, num_hidden_layers: int
) -> tuple[Combine, tuple[int, ...]]:
    """Return how layers become one, spelt in one way: what is computed alike is equal.

    layers: None: the last one.

    >>> normal_mix([-1], "sum", num_hidden_layers=4), normal_mix([3, 1], "sum", num_hidden_layers=4)
    (('last', (4,)), ('sum', (1, 3)))

    Raises:
        InputError: what `checked_layers` raises.
    """
    if layers is None:
        return "last", (num_hidden_layers,)
    chosen = checked_layers(layers, num_hidden_layers=num_hidden_layers)
    if combine == "last" or (len(chosen) == 1 and combine != "weighted"):
        return "last", (max(chosen),)
    return combine, tuple(sorted(chosen)) if combine in ("sum", "mean") else chosen


def checked_layers(layers: Sequence[int], *, num_hidden_layers: int) -> tuple[int, ...]:
    """Return indices into hidden_states, counted from 0 (the embeddings).

    >>> checked_layers([-1, 0, -2], num_hidden_layers=4)
    (4, 0, 3)

    Raises:
        InputError: none is given, one that the model does not have, one named twice.
    """
    expected = f"0 (the embeddings) to {num_hidden_layers}, or −1 (the last) to −{num_hidden_layers + 1}"
    if not layers:
        raise InputError("names no layer", field="layers", expected=expected)
    wrong = [layer for layer in layers if not -num_hidden_layers - 1 <= layer <= num_hidden_layers]
    if wrong:
        raise InputError("is no layer of the model", field="layers", value=wrong[0], expected=expected)
    counted = tuple(layer % (num_hidden_layers + 1) for layer in layers)
    if len(set(counted)) < len(counted):
        raise InputError("names a layer twice", field="layers", value=list(layers), expected="each layer once")
    return counted
