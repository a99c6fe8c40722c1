"""What a head reads of a text: the pooler's output, the state of [CLS], or the mean of the states of all its tokens.

In: rows of tokens, an Encoder.  Out: (batch, width), and what the encoder gave.  Next: task_heads.py
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bertkit.model.encoder import Encoder, EncoderOutput
from bertkit.model.layer_mix import LayerMix, features
from bertkit.model.losses import in_float32
from bertkit.model.task_config import Pooling


def read_texts(
    encoder: Encoder,
    mix: LayerMix | None,
    inputs: Mapping[str, Tensor | None],
    *,
    pooling: Pooling,
    output_hidden_states: bool,
    output_attentions: bool,
) -> tuple[Tensor, EncoderOutput]:
    """Return what a head reads of each row, (batch, width), and what the encoder gave.

    inputs: those of the encoder, input_ids or inputs_embeds among them; mix: of which layers, None: the last.
    """
    output_states = output_hidden_states or mix is not None
    encoded = encoder(
        **inputs,
        read_positions=None if output_states or output_attentions else _places_of_cls(encoder, inputs, pooling),
        padding_is_read=False,
        output_hidden_states=output_states,
        output_attentions=output_attentions,
    )
    if mix is None and encoded.pooler_output is not None:
        return encoded.pooler_output, encoded
    states = features(encoded, mix)  # (batch, seq, width), or (batch, width) where only [CLS] was read
    if pooling == "mean":
        return _mean(states, inputs["attention_mask"]), encoded
    first = states if states.dim() == 2 else states[:, 0]  # (batch, width)
    return first if encoder.pooler is None else torch.tanh(encoder.pooler(first)), encoded


def _places_of_cls(encoder: Encoder, inputs: Mapping[str, Tensor | None], pooling: Pooling) -> Tensor | None:
    """The encoder's read_positions where [CLS] is all that is read of its rows; None where more is."""
    given = inputs["inputs_embeds"] if inputs["input_ids"] is None else inputs["input_ids"]
    if pooling == "mean" or given is None or torch.compiler.is_compiling():  # (an export keeps to the plain path)
        return None
    batch, seq = given.shape[:2]
    rows = 0 if encoder.pooler is not None else batch  # the pooler's positions are the encoder's own matter
    return torch.arange(0, rows * seq, seq, device=given.device)


def _mean(states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean of the states at tokens, (batch, width), special ones included; 0 for a row of padding alone.

    states: (batch, seq, width); attention_mask: as the encoder takes it.
    Source: Hugging Face's ModernBERT; sentence-transformers has the same.
    """
    wide = in_float32(states)
    mask = torch.ones(1, 1, device=states.device) if attention_mask is None else attention_mask.bool()
    weights = mask.to(wide).expand(wide.shape[:2])[..., None]  # (batch, seq, 1)
    return ((wide * weights).sum(1) / weights.sum(1).clamp(min=1)).to(states)
