"""BERT itself: a stack of post-LayerNorm layers over the embeddings, and the pooler over [CLS].

In: a batch of token ids.  Out: EncoderOutput: last_hidden_state, pooler_output, and what lies between on request.
Next: heads.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bertkit.errors import InputError
from bertkit.model.attention import ReadRows, SelfAttention, read_rows
from bertkit.model.config import BertConfig
from bertkit.model.embeddings import Embeddings
from bertkit.model.inputs import by_layer, check_given, check_inputs, check_positions
from bertkit.model.unpadding import Unpadding, unpadding_of
from bertkit.products import Linear, round_rows

# Google's last code computes "gelu" by the tanh form; Hugging Face, and we, by the exact erf form (docs/numerics.md).
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation(hidden_act: str | Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    """Return the function behind a config's hidden_act."""
    return ACTIVATIONS[hidden_act] if isinstance(hidden_act, str) else hidden_act


@dataclass
class EncoderOutput:
    """What the encoder gives; the last three only on request."""

    last_hidden_state: Tensor  # (batch, seq, hidden); (n, hidden) at the read_positions, where they were given
    pooler_output: Tensor | None  # (batch, hidden); None for an encoder without pooler
    hidden_states: tuple[Tensor, ...] | None = None  # num_hidden_layers + 1 times (batch, seq, hidden); [0]: embeddings
    attentions: tuple[Tensor, ...] | None = None  # num_hidden_layers times (batch, heads left, seq, seq)
    # num_hidden_layers times (batch, heads, seq, hidden): what each head adds to the output of its attention
    head_outputs: tuple[Tensor, ...] | None = None


class Layer(nn.Module):
    """Self-attention, then a feed-forward network; each is added to its input and normalised after (post-LayerNorm)."""

    def __init__(self, config: BertConfig, *, number: int) -> None:
        super().__init__()
        self.attention = SelfAttention(config, kept_heads=config.kept_heads(number))
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config.hidden_act)
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        layer_mask: Tensor | None = None,
        unpadding: Unpadding | None = None,
        read: ReadRows | None = None,
        *,
        need_weights: bool = False,
        need_heads: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return (batch, seq, hidden), the attention weights or None, and the heads' shares or None.

        layer_mask: (batch or 1,), 1 = the layer as it is, 0 = its input passed on.
        unpadding: hidden and the output are then (tokens, hidden), of these tokens alone.
        read: the output is then (n, hidden), of these positions alone.
        """
        attended, weights, shares = self.attention(
            hidden,
            mask=mask,
            head_mask=head_mask,
            unpadding=unpadding,
            read=read,
            need_weights=need_weights,
            need_heads=need_heads,
        )
        given = hidden if read is None else hidden.flatten(0, -2).index_select(0, read.places)  # (n, hidden)
        middle = self.attention_norm(given + self.dropout(attended))
        inner = self.activation(self.intermediate(middle))  # (…, intermediate)
        output = self.output_norm(middle + self.dropout(self.output(inner)))  # like given
        if layer_mask is not None:
            output = given + _gates(layer_mask, unpadding, read) * (output - given)
        return output, weights, shares


def _gates(layer_mask: Tensor, unpadding: Unpadding | None, read: ReadRows | None) -> Tensor:
    """The factor of each row, (batch or 1, 1, 1), or of each token that a layer finishes, (n, 1)."""
    if unpadding is None and read is None:
        return layer_mask[:, None, None]
    rows = read.rows if read is not None else cast(Unpadding, unpadding).rows()  # (n,)
    return layer_mask[rows if len(layer_mask) > 1 else rows * 0, None]


class Encoder(nn.Module):
    """The BERT encoder, with or without the pooler.

    Source: Devlin et al. 2019; the numbers and the order of operations are those of Hugging Face's BertModel.
    """

    def __init__(self, config: BertConfig, *, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, number=number) for number in range(config.num_hidden_layers))
        self.pooler = Linear(config.hidden_size, config.hidden_size) if pooler else None
        self.gradient_checkpointing = False  # True: activations inside a layer are computed again in the backward pass
        self.packs_rows = False  # True: attention, too, sees no padding in training; see `attend_packed`
        initialise(self, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        word_matrix: Tensor | None = None,
        head_mask: Tensor | None = None,
        layer_mask: Tensor | None = None,
        read_positions: Tensor | None = None,
        padding_is_read: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        output_head_outputs: bool = False,
    ) -> EncoderOutput:
        """Return the hidden states of a batch.

        input_ids: (batch, seq) int64, ids below vocab_size; or inputs_embeds (batch, seq, hidden) in their place.
        attention_mask: (batch, seq), True or 1 = token; all true when left out.
        token_type_ids: (batch, seq) int64, 0 or 1; all 0 when left out.
        position_ids: (batch or 1, seq) int64; 0 … seq − 1 when left out.
        word_matrix: (vocab_size, hidden), where ids are looked up in place of the own matrix; its gradient is sparse,
            and it is no parameter itself: see tied_weights.py.
        head_mask: (layers, heads) or (batch, layers, heads) floating point, a factor for the context of each head,
            counted as in the model that was not pruned; the gradient of a loss by it says what a head matters.
        layer_mask: (layers,) or (batch, layers) floating point, 1 = the layer as it is, 0 = its input passed on.
        read_positions: (n,) int64, flat index row · seq + column, where nothing else of the last layer is read: it is
            finished there, and at [CLS] for a pooler, only. last_hidden_state is then (n, hidden), as exact.
        padding_is_read: False where nobody reads last_hidden_state at padding, which is then left out of the layers:
            some token's state stands there. (It is also left out where read_positions name real tokens only.)

        Raises:
            InputError: both or neither of ids and embeddings, a row longer than the model's positions, an id outside
                its table (row and column are named), an input of another shape, read_positions with whole states.
        """
        given = check_given(input_ids, inputs_embeds)
        batch = given.size(0)
        types = torch.zeros(1, 1, dtype=torch.int64, device=given.device) if token_type_ids is None else token_type_ids
        places = torch.arange(given.size(1), device=given.device)[None] if position_ids is None else position_ids
        check_inputs(self.config, given, input_ids, attention_mask, types, places)
        mask = None if attention_mask is None else attention_mask.bool().expand(given.shape[:2])  # (batch, seq)
        whole = output_hidden_states or output_attentions or output_head_outputs
        packed = self.packs_rows and self.training and head_mask is None
        unpadding, read = self._read(
            read_positions, given, mask, whole=whole, padding_is_read=padding_is_read, packed=packed
        )
        shape = (len(self.layers), self.config.num_attention_heads)
        head_masks = by_layer("head_mask", head_mask, shape, batch=batch)
        gates = by_layer("layer_mask", layer_mask, shape[:1], batch=batch)
        if unpadding is not None:
            given, types, places = (unpadding.unpad_batch(part, given.shape[:2]) for part in (given, types, places))
        words = given if input_ids is None else self.embeddings.words_of(given, word_matrix)
        hidden = self.embeddings(words, types, places)  # (batch, seq, hidden), or (tokens, hidden) without padding
        hidden_states, attentions, head_outputs = [hidden], [], []
        for layer, heads, gate in zip(self.layers, head_masks, gates, strict=True):
            some = read if layer is self.layers[-1] else None
            hidden, weights, shares = self._run(layer)(
                hidden,
                mask,
                heads,
                gate,
                unpadding,
                some,
                need_weights=output_attentions,
                need_heads=output_head_outputs,
            )
            if output_hidden_states:
                hidden_states.append(hidden)
            attentions.append(weights)  # None unless asked for
            head_outputs.append(shares)
        if unpadding is not None and read is None:
            hidden = unpadding.pad(hidden).view(batch, -1, hidden.size(-1))  # (batch, seq, hidden)
        first, hidden = self._pooled_rows(hidden, read, batch=batch)
        return EncoderOutput(
            last_hidden_state=hidden,
            pooler_output=None if self.pooler is None else torch.tanh(self.pooler(first)),  # (batch, hidden)
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            head_outputs=tuple(head_outputs) if output_head_outputs else None,
        )

    def _run(self, layer: nn.Module) -> Callable[..., Any]:
        """The layer, or what computes it anew in the backward pass."""
        saves_memory = self.gradient_checkpointing and self.training
        return partial(checkpoint, layer, use_reentrant=False) if saves_memory else layer

    def _read(
        self,
        positions: Tensor | None,
        given: Tensor,
        mask: Tensor | None,
        *,
        whole: bool,
        padding_is_read: bool,
        packed: bool,
    ) -> tuple[Unpadding | None, ReadRows | None]:
        """How padding is left out, and the rows that the last layer finishes: the positions, then [CLS] of each row
        where a pooler reads it.
        """
        batch, seq = given.shape[:2]
        # Looking into the mask is a wait on other devices, and nothing that a compiler or an export can follow.
        may_unpad = not whole and (given.device.type == "cpu" or packed) and not torch.compiler.is_compiling()
        if positions is None:
            needed = may_unpad and not padding_is_read
            return self._unpadding(mask, batch, seq, packed=packed) if needed else None, None
        if whole:
            raise InputError(
                "leave the last layer unfinished, of which whole states or attentions were asked for",
                field="read_positions",
                remedy="leave read_positions away",
            )
        check_positions(positions, batch=batch, seq=seq)
        if self.pooler is not None:
            first = torch.arange(0, batch * seq, seq, device=positions.device)  # (batch,)
            positions = torch.cat([positions, first])  # (n + batch,)
        may_unpad = may_unpad and (mask is None or bool(mask.flatten()[positions].all()))
        unpadding = self._unpadding(mask, batch, seq, packed=packed) if may_unpad else None
        return unpadding, read_rows(positions, batch=batch, seq=seq, unpadding=unpadding, multiple=round_rows())

    def _unpadding(self, mask: Tensor | None, batch: int, seq: int, *, packed: bool) -> Unpadding | None:
        device = self.embeddings.word_embeddings.weight.device
        return unpadding_of(mask, batch=batch, seq=seq, multiple=round_rows(), device=device, packed=packed)

    def _pooled_rows(self, hidden: Tensor, read: ReadRows | None, *, batch: int) -> tuple[Tensor, Tensor]:
        """What the pooler reads, (batch, hidden), and what the caller does."""
        if read is None:
            return hidden[:, 0], hidden
        hidden = hidden[: read.num_real]
        if self.pooler is None:
            return hidden[:0], hidden
        positions = read.num_real - batch
        return hidden[positions:], hidden[:positions]


def initialise(module: nn.Module, config: BertConfig) -> None:
    """Draw every matrix and embedding from N(0, initializer_range); biases 0, LayerNorm 1 and 0, the padding row 0.

    Source: Google's code uses a normal truncated at two standard deviations; this is Hugging Face's plain normal.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=config.initializer_range)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            with torch.no_grad():
                part.weight[part.padding_idx].zero_()
