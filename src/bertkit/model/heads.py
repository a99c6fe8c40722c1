"""What stands on the encoder: the masked-LM head, the next-sentence head, and the model that is pre-trained with both.

In: a batch with or without labels.  Out: PretrainingOutput: logits, both losses apart, their sum.
Next: task_heads.py (the heads of fine-tuning), huggingface.py (how they lie on disk)
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder, activation, initialise
from bertkit.model.inputs import check_positions
from bertkit.model.losses import IGNORE_INDEX as IGNORE_INDEX
from bertkit.model.losses import check_labels, cross_entropy, linear_cross_entropy, mean, summed_cross_entropy
from bertkit.model.tied_weights import two_uses
from bertkit.products import Linear, linear, round_rows


@dataclass
class PretrainingOutput:
    """What the pre-training model gives; a loss is set when its label was given."""

    loss: Tensor | None  # (): the sum of the losses that are set
    mlm_loss: Tensor | None  # (): mean over the labelled tokens
    nsp_loss: Tensor | None  # (): mean over the pairs
    mlm_logits: Tensor | None  # (n, vocab) at the n positions named, else (batch, seq, vocab)
    nsp_logits: Tensor | None  # (batch, 2); column 0: B follows A
    last_hidden_state: Tensor  # (batch, seq, hidden)
    pooler_output: Tensor | None  # (batch, hidden)
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class MaskedLMHead(nn.Module):
    """Dense, activation, LayerNorm, then one score per vocabulary entry by the (tied) embedding matrix and a bias."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.activation = activation(config.hidden_act)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        # Tied weights are no second parameter: the embedding matrix is handed to forward.
        self.decoder = (
            None if config.tie_word_embeddings else nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        initialise(self, config)
        if self.decoder is not None:
            nn.init.normal_(self.decoder, std=config.initializer_range)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return logits (…, vocab) for hidden states (…, hidden) and the embedding matrix (vocab, hidden)."""
        return linear(self._transformed(hidden), self._matrix(word_embeddings), self.bias)

    def summed_loss(self, hidden: Tensor, word_embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss () and how many labels () have the highest score.

        hidden: (n, hidden); word_embeddings: (vocab, hidden); labels: (n,) int64, IGNORE_INDEX for none.
        """
        return linear_cross_entropy(self._transformed(hidden), self._matrix(word_embeddings), self.bias, labels)

    def _transformed(self, hidden: Tensor) -> Tensor:
        transformed: Tensor = self.layer_norm(self.activation(self.dense(hidden)))  # (…, hidden)
        return transformed

    def _matrix(self, word_embeddings: Tensor) -> Tensor:
        return word_embeddings if self.decoder is None else self.decoder


class PretrainingModel(nn.Module):
    """BERT with the masked-LM head, the next-sentence head, or both.

    mlm, nsp: which heads it has. Without the next-sentence head there is no pooler either, as in Hugging Face's
        BertForMaskedLM, so that no parameter goes without a gradient.
    """

    def __init__(self, config: BertConfig, *, mlm: bool = True, nsp: bool = True) -> None:
        super().__init__()
        if not (mlm or nsp):
            raise InputError("a pre-training model needs at least one head", field="mlm, nsp")
        self.config = config
        self.encoder = Encoder(config, pooler=nsp)
        self.mlm_head = MaskedLMHead(config) if mlm else None
        self.nsp_head = Linear(config.hidden_size, 2) if nsp else None
        if self.nsp_head is not None:
            initialise(self.nsp_head, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        mlm_positions: Tensor | None = None,
        mlm_targets: Tensor | None = None,
        mlm_labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> PretrainingOutput:
        """Return logits, and the losses of the labels given; the inputs of the encoder are described there.

        mlm_positions: (n,) int64, flat index row · seq + column; the masked-LM head is computed there only.
        mlm_targets: (n,) int64, the true ids at mlm_positions, or IGNORE_INDEX.
        mlm_labels: (batch, seq) int64, the true id or IGNORE_INDEX, in place of the two: the logits are then those of
            the labelled positions in row-major order (Hugging Face computes and returns all of them).
        next_sentence_label: (batch,) int64, 0 = B follows A, 1 = B is random, or IGNORE_INDEX.

        Raises:
            InputError: labels or positions without their head, of a wrong shape, out of range or given twice; an input
                refused.
        """
        self._check_labels(mlm_positions, mlm_targets, mlm_labels, next_sentence_label)
        encoded = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        if mlm_labels is not None:
            shape = encoded.last_hidden_state.shape[:2]
            check_labels("mlm_labels", mlm_labels, shape=shape, limit=self.config.vocab_size)
            mlm_positions = (mlm_labels.flatten() != IGNORE_INDEX).nonzero().squeeze(1)  # (n,)
            mlm_targets = mlm_labels.flatten()[mlm_positions]  # (n,)
        elif mlm_positions is not None:
            batch, seq = encoded.last_hidden_state.shape[:2]
            check_positions(mlm_positions, batch=batch, seq=seq, name="mlm_positions")
        mlm_logits = self._mlm_logits(encoded.last_hidden_state, mlm_positions)
        nsp_logits = None if self.nsp_head is None else self.nsp_head(encoded.pooler_output)  # (batch, 2)
        mlm_loss = nsp_loss = None
        if mlm_targets is not None and mlm_logits is not None:
            mlm_loss = mean(cross_entropy("mlm_targets", mlm_logits, mlm_targets))
        if next_sentence_label is not None and nsp_logits is not None:
            nsp_loss = mean(cross_entropy("next_sentence_label", nsp_logits, next_sentence_label))
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        return PretrainingOutput(
            loss=torch.stack(losses).sum() if losses else None,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
            mlm_logits=mlm_logits,
            nsp_logits=nsp_logits,
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=encoded.pooler_output,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )

    def logits_where_read(
        self,
        input_ids: Tensor,
        *,
        mlm_positions: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the masked-LM logits (n, vocab) at the positions, and the next-sentence logits (batch, 2) or None.

        They are those of `forward`, and so are the gradients; the last layer is finished at these positions, and at
        [CLS] where there is a next-sentence head, only. (Its dropout draws for fewer activations, so other ones.)

        Raises:
            InputError: no masked-LM head; a position or an input refused.
        """
        self._check_labels(mlm_positions, None, None, None)
        assert self.mlm_head is not None
        hidden, matrix, nsp_logits = self._where_read(input_ids, mlm_positions, attention_mask, token_type_ids)
        mlm_logits: Tensor = self.mlm_head(hidden, matrix)
        return mlm_logits[: len(mlm_positions)], nsp_logits

    def losses_where_read(
        self,
        input_ids: Tensor,
        *,
        mlm_positions: Tensor,
        mlm_targets: Tensor,
        next_sentence_label: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return `mlm` and, with its labels, `nsp`: the sum of the losses (), and how many labels () score highest.

        The labels are those of `forward`, and are not looked at; the pass is that of `logits_where_read`, whose
        masked-LM logits are not kept.

        Raises:
            InputError: no masked-LM head, labels without their head, targets that are not one a position.
        """
        if mlm_targets.shape != mlm_positions.shape:
            raise InputError(
                f"has shape {tuple(mlm_targets.shape)}", field="mlm_targets", expected=str(tuple(mlm_positions.shape))
            )
        self._check_labels(mlm_positions, mlm_targets, None, next_sentence_label)
        assert self.mlm_head is not None
        hidden, matrix, nsp_logits = self._where_read(input_ids, mlm_positions, attention_mask, token_type_ids)
        # The rows that fill up to a round number have no label: to cut them off would copy the gradient of all.
        targets = F.pad(mlm_targets, (0, len(hidden) - len(mlm_targets)), value=IGNORE_INDEX)
        losses = {"mlm": self.mlm_head.summed_loss(hidden, matrix, targets)}
        if next_sentence_label is not None and nsp_logits is not None:
            losses["nsp"] = summed_cross_entropy(nsp_logits, next_sentence_label)
        return losses

    def _where_read(
        self, input_ids: Tensor, positions: Tensor, mask: Tensor | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden states (n or more, hidden) at positions, the matrix for their scores, next-sentence logits or None."""
        weight = self.encoder.embeddings.word_embeddings.weight
        uses = two_uses(weight) if self.mlm_head is not None and self.mlm_head.decoder is None else None
        looked_up, multiplied = (None, weight) if uses is None else uses
        encoded = self.encoder(
            input_ids, attention_mask=mask, token_type_ids=types, word_matrix=looked_up, read_positions=positions
        )
        hidden = F.pad(encoded.last_hidden_state, (0, 0, 0, -len(positions) % round_rows()))
        return hidden, multiplied, None if self.nsp_head is None else self.nsp_head(encoded.pooler_output)

    def _mlm_logits(self, hidden: Tensor, positions: Tensor | None) -> Tensor | None:
        if self.mlm_head is None:
            return None
        if positions is not None:
            hidden = hidden.flatten(0, 1).index_select(0, positions)  # (n, hidden)
        logits: Tensor = self.mlm_head(hidden, self.encoder.embeddings.word_embeddings.weight)
        return logits  # (n, vocab) or (batch, seq, vocab)

    def _check_labels(
        self,
        positions: Tensor | None,
        targets: Tensor | None,
        labels: Tensor | None,
        next_sentence_label: Tensor | None,
    ) -> None:
        if labels is not None and positions is not None:
            raise InputError("give mlm_labels, or mlm_positions with mlm_targets", field="mlm_labels")
        if targets is not None and positions is None:
            raise InputError("mlm_targets need mlm_positions", field="mlm_targets")
        if self.mlm_head is None and (labels is not None or positions is not None):
            raise InputError("this model has no masked-LM head", field="mlm_labels", remedy="build it with mlm=True")
        if self.nsp_head is None and next_sentence_label is not None:
            raise InputError(
                "this model has no next-sentence head", field="next_sentence_label", remedy="build it with nsp=True"
            )
