"""BERT itself: embeddings, a stack of post-LayerNorm layers, and the pooler over [CLS].

In: a batch of token ids.  Out: EncoderOutput: last_hidden_state, pooler_output, and what lies between on request.
Next: heads.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bertkit.errors import InputError
from bertkit.model.attention import attend
from bertkit.model.config import BertConfig

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
    """What the encoder gives; the last two only on request."""

    last_hidden_state: Tensor  # (batch, seq, hidden)
    pooler_output: Tensor | None  # (batch, hidden); None for an encoder without pooler
    hidden_states: tuple[Tensor, ...] | None = None  # num_hidden_layers + 1 times (batch, seq, hidden); [0]: embeddings
    attentions: tuple[Tensor, ...] | None = None  # num_hidden_layers times (batch, heads, seq, seq)


class Embeddings(nn.Module):
    """Token + position + segment embedding, LayerNorm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )  # the padding row takes no gradient from being looked up
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, words: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Return (batch, seq, hidden) for word embeddings of that shape and two id tensors (batch or 1, seq)."""
        total = words + self.token_type_embeddings(token_type_ids) + self.position_embeddings(position_ids)
        output: Tensor = self.dropout(self.layer_norm(total))  # (batch, seq, hidden)
        return output


class SelfAttention(nn.Module):
    """Multi-head self-attention with query, key and value in one matrix product, and its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.num_attention_heads, config.head_dim
        self.dropout_probability = config.attention_probs_dropout_prob
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Return (batch, seq, hidden) and the weights (batch, heads, seq, seq) or None."""
        batch, seq, width = hidden.shape
        fused = self.query_key_value(hidden).view(batch, seq, 3, self.heads, self.head_dim)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)  # 3 times (batch, heads, seq, head_dim)
        context, weights = attend(
            query,
            key,
            value,
            mask=mask,
            dropout=self.dropout_probability if self.training else 0.0,
            need_weights=need_weights,
        )
        merged = context.transpose(1, 2).reshape(batch, seq, width)  # (batch, seq, hidden)
        return self.output(merged), weights


class Layer(nn.Module):
    """Self-attention, then a feed-forward network; each is added to its input and normalised after (post-LayerNorm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config.hidden_act)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Return (batch, seq, hidden) and the attention weights or None."""
        attended, weights = self.attention(hidden, mask, need_weights)
        hidden = self.attention_norm(hidden + self.dropout(attended))
        inner = self.activation(self.intermediate(hidden))  # (batch, seq, intermediate)
        return self.output_norm(hidden + self.dropout(self.output(inner))), weights  # (batch, seq, hidden)


class Encoder(nn.Module):
    """The BERT encoder, with or without the pooler.

    Source: Devlin et al. 2019; the numbers and the order of operations are those of Hugging Face's BertModel.
    """

    def __init__(self, config: BertConfig, *, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if pooler else None
        self.gradient_checkpointing = False  # True: activations inside a layer are computed again in the backward pass
        initialise(self, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Return the hidden states of a batch.

        input_ids: (batch, seq) int64, ids below vocab_size; or inputs_embeds (batch, seq, hidden) in their place.
        attention_mask: (batch, seq), True or 1 = token; all true when left out.
        token_type_ids: (batch, seq) int64, 0 or 1; all 0 when left out.
        position_ids: (batch or 1, seq) int64; 0 … seq − 1 when left out.

        Raises:
            InputError: both or neither of ids and embeddings, a row longer than the positions the model has,
                an id outside its table (named with its row and column), or an input of another shape.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError("give input_ids or inputs_embeds, one of the two", field="input_ids")
        given = input_ids if input_ids is not None else inputs_embeds
        assert given is not None
        if given.dim() != (2 if inputs_embeds is None else 3) or given.size(1) == 0:
            raise InputError(
                f"has shape {tuple(given.shape)}",
                field="input_ids" if inputs_embeds is None else "inputs_embeds",
                expected="(batch, seq)" if inputs_embeds is None else "(batch, seq, hidden)",
            )
        if token_type_ids is None:
            token_type_ids = torch.zeros(1, 1, dtype=torch.int64, device=given.device)
        if position_ids is None:
            position_ids = torch.arange(given.size(1), device=given.device)[None]  # (1, seq)
        self._check(given, input_ids, attention_mask, token_type_ids, position_ids)
        words = self.embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        mask = None if attention_mask is None else attention_mask.bool()
        hidden = self.embeddings(words, token_type_ids, position_ids)  # (batch, seq, hidden)
        hidden_states, attentions = [hidden], []
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                hidden, weights = checkpoint(layer, hidden, mask, output_attentions, use_reentrant=False)
            else:
                hidden, weights = layer(hidden, mask, output_attentions)
            if output_hidden_states:
                hidden_states.append(hidden)
            if output_attentions:
                attentions.append(weights)
        return EncoderOutput(
            last_hidden_state=hidden,
            pooler_output=None if self.pooler is None else torch.tanh(self.pooler(hidden[:, 0])),  # (batch, hidden)
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def _check(
        self,
        given: Tensor,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor,
        position_ids: Tensor,
    ) -> None:
        batch, seq = given.shape[:2]
        positions = self.config.max_position_embeddings
        if seq > positions:
            row = 0 if attention_mask is None else int(attention_mask.sum(dim=1).argmax())
            raise InputError(
                f"a row is {seq} tokens wide (the longest is row {row}), but the model has {positions} positions",
                field="input_ids",
                remedy=f"cut the text or use windows of at most {positions} tokens",
            )
        for name, tensor, limit in (
            ("attention_mask", attention_mask, None),
            ("input_ids", input_ids, self.config.vocab_size),
            ("token_type_ids", token_type_ids, self.config.type_vocab_size),
            ("position_ids", position_ids, positions),
        ):
            if tensor is not None:
                _check_input(name, tensor, batch=batch, seq=seq, limit=limit)


def _check_input(name: str, tensor: Tensor, *, batch: int, seq: int, limit: int | None) -> None:
    """Refuse a tensor that is not (batch or 1, seq or 1), or that holds an id outside 0 … limit − 1."""
    if tensor.dim() != 2 or tensor.size(0) not in (1, batch) or tensor.size(1) not in (1, seq):
        raise InputError(f"has shape {tuple(tensor.shape)}", field=name, expected=f"({batch}, {seq})")
    # Only where looking costs no wait for a device; a wrong id there would end the process without a word.
    if limit is None or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = (tensor < 0) | (tensor >= limit)
    if not wrong.any():
        return
    row, column = wrong.nonzero()[0].tolist()
    raise InputError(
        f"row {row}, column {column} is {int(tensor[row, column])}, but the table has {limit} entries",
        field=name,
        expected=f"0 to {limit - 1}",
        remedy="check that the tokenizer belongs to this model",
    )


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
