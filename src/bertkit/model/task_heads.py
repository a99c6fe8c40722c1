"""What stands on the encoder in fine-tuning: a head for texts, for tokens, for choices, and for answers in a text.

In: a batch with or without labels.  Out: TaskOutput: logits, and the loss of the labels.
Next: huggingface.py (how they lie on disk)
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder, EncoderOutput, initialise
from bertkit.model.layer_mix import features, mix_of, width_of
from bertkit.model.losses import (
    check_choices,
    check_class_weights,
    check_labels,
    cross_entropy,
    in_float32,
    mean,
    position_loss,
)
from bertkit.model.pooling import read_texts
from bertkit.model.task_config import TaskConfig
from bertkit.products import Linear


@dataclass
class TaskOutput:
    """What a fine-tuning model gives; the loss is set when its labels were given, the last two only on request."""

    loss: Tensor | None  # (): mean over the labels
    logits: Tensor  # texts: (batch, labels); tokens: (batch, seq, labels); choices: (batch, choices); answers: below
    hidden_states: tuple[Tensor, ...] | None = None  # of the encoder's rows, which are batch × choices for choices
    attentions: tuple[Tensor, ...] | None = None

    @property
    def start_logits(self) -> Tensor:
        """Scores (batch, seq) of a QuestionAnsweringModel for the first token of the answer."""
        return self.logits[..., 0]

    @property
    def end_logits(self) -> Tensor:
        """Scores (batch, seq) of a QuestionAnsweringModel for the last token of the answer."""
        return self.logits[..., 1]


class SequenceClassificationModel(nn.Module):
    """BERT with one row of scores a text: dropout and a linear layer over what TaskConfig.pooling reads of it.

    Source: Hugging Face's BertForSequenceClassification; with task.pooling "cls" or "mean" there is no pooler.
    """

    def __init__(self, config: BertConfig, *, task: TaskConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.mix = mix_of(task, config, pooler=task.pooling == "pooler")
        self.encoder = Encoder(config, pooler=task.pooling == "pooler")
        self.dropout = _dropout(config, task)
        self.classifier = Linear(width_of(self.mix, config), task.num_labels)
        initialise(self.classifier, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TaskOutput:
        """Return logits (batch, labels) and the loss; the inputs of the encoder are described there.

        labels: by task.problem_type. single_label_classification: (batch,) int64, or IGNORE_INDEX, cross entropy;
            multi_label_classification: (batch, labels), 0 to 1, binary cross entropy; regression: (batch, labels),
            or (batch,) where there is one, mean squared error.
        class_weights: (labels,); single-label: as in F.cross_entropy; multi-label: the weight of a label that is 1.
        label_smoothing: share of the target spread over all labels; single-label only.

        Raises:
            InputError: labels or weights of a wrong shape or out of range; an option the problem type has not; an
                input refused.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        read, encoded = read_texts(
            self.encoder,
            self.mix,
            inputs,
            pooling=self.task.pooling,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )  # (batch, width)
        logits = self.classifier(self.dropout(read))  # (batch, labels)
        loss = None if labels is None else self._loss(logits, labels, class_weights, label_smoothing)
        return _output(loss, logits, encoded, output_hidden_states)

    def _loss(self, logits: Tensor, labels: Tensor, class_weights: Tensor | None, label_smoothing: float) -> Tensor:
        problem = self.task.problem_type
        if problem == "single_label_classification":
            return mean(
                cross_entropy("labels", logits, labels, class_weights=class_weights, label_smoothing=label_smoothing)
            )
        if label_smoothing or (class_weights is not None and problem == "regression"):
            field = "label_smoothing" if label_smoothing else "class_weights"
            raise InputError(f"has no meaning for a {problem}", field=field, remedy="leave it out")
        wide = in_float32(logits)
        if problem == "regression" and logits.size(1) == 1:
            labels = labels.view(-1, 1) if labels.dim() == 1 else labels  # (batch, 1)
        if labels.shape != logits.shape:
            raise InputError(f"has shape {tuple(labels.shape)}", field="labels", expected=str(tuple(logits.shape)))
        if problem == "regression":
            return F.mse_loss(wide, labels.to(wide))
        if class_weights is not None:
            check_class_weights(class_weights, classes=logits.size(1))
        weights = None if class_weights is None else class_weights.to(wide)
        return F.binary_cross_entropy_with_logits(wide, labels.to(wide), pos_weight=weights)


class TokenClassificationModel(nn.Module):
    """BERT with one row of scores a token: dropout and a linear layer over its hidden state.

    Source: Hugging Face's BertForTokenClassification, which has no pooler.
    """

    def __init__(self, config: BertConfig, *, task: TaskConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.mix = mix_of(task, config, pooler=False)
        self.encoder = Encoder(config, pooler=False)
        self.dropout = _dropout(config, task)
        self.classifier = Linear(width_of(self.mix, config), task.num_labels)
        initialise(self.classifier, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TaskOutput:
        """Return logits (batch, seq, labels) and the loss; the inputs of the encoder are described there.

        labels: (batch, seq) int64, or IGNORE_INDEX: special tokens, padding, the later pieces of a word.
        class_weights: (labels,), label_smoothing: a share; both as in F.cross_entropy.

        Raises:
            InputError: labels or weights of a wrong shape or out of range; an input refused.
        """
        encoded = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            padding_is_read=False,
            output_hidden_states=output_hidden_states or self.mix is not None,
            output_attentions=output_attentions,
        )
        logits = self.classifier(self.dropout(features(encoded, self.mix)))  # (batch, seq, labels)
        loss = None
        if labels is not None:
            check_labels("labels", labels, shape=logits.shape[:2], limit=logits.size(2))
            flat, targets = logits.flatten(0, 1), labels.flatten()  # (batch · seq, labels), (batch · seq,)
            parts = cross_entropy("labels", flat, targets, class_weights=class_weights, label_smoothing=label_smoothing)
            loss = mean(parts)
        return _output(loss, logits, encoded, output_hidden_states)


class MultipleChoiceModel(nn.Module):
    """BERT with one score a choice: each stands with its question in a row, and goes through the encoder alone.

    Source: Hugging Face's BertForMultipleChoice; the mask of choices is ours.
    """

    def __init__(self, config: BertConfig, *, task: TaskConfig) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.mix = mix_of(task, config, pooler=task.pooling == "pooler")
        self.encoder = Encoder(config, pooler=task.pooling == "pooler")
        self.dropout = _dropout(config, task)
        self.classifier = Linear(width_of(self.mix, config), 1)
        initialise(self.classifier, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        choice_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TaskOutput:
        """Return logits (batch, choices) and the loss; every input of the encoder is (batch, choices, seq) here.

        choice_mask: (batch, choices), True or 1 = a choice, where rows have different numbers of them; the logit of
            what is none is −inf, its probability 0. All are choices when left out.
        labels: (batch,) int64, the right choice, or IGNORE_INDEX.

        Raises:
            InputError: an input of another shape; a row without a choice; a label that is no choice of its row.
        """
        given = input_ids if input_ids is not None else inputs_embeds
        if given is None or given.dim() != (3 if inputs_embeds is None else 4):
            shape = None if given is None else tuple(given.shape)
            raise InputError(f"has shape {shape}", field="input_ids", expected="(batch, choices, seq)")
        batch, choices = given.shape[:2]
        inputs = {
            "input_ids": _rows(input_ids),
            "attention_mask": _rows(attention_mask),
            "token_type_ids": _rows(token_type_ids),
            "position_ids": _rows(position_ids),
            "inputs_embeds": _rows(inputs_embeds),
        }
        read, encoded = read_texts(
            self.encoder,
            self.mix,
            inputs,
            pooling=self.task.pooling,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )  # (batch · choices, width)
        logits = self.classifier(self.dropout(read)).view(batch, choices)  # (batch, choices)
        if choice_mask is not None:
            check_choices(choice_mask, labels, shape=logits.shape)
            logits = logits.masked_fill(~choice_mask.bool(), float("-inf"))
        loss = None if labels is None else mean(cross_entropy("labels", logits, labels))
        return _output(loss, logits, encoded, output_hidden_states)


class QuestionAnsweringModel(nn.Module):
    """BERT with two scores a token: that the answer begins there, and that it ends there.

    Source: Hugging Face's BertForQuestionAnswering, which has no pooler and no dropout before the head.
    """

    def __init__(self, config: BertConfig, *, task: TaskConfig | None = None) -> None:
        super().__init__()
        self.config, self.task = config, task or TaskConfig()  # of which only the mix of layers is read
        self.mix = mix_of(self.task, config, pooler=False)
        self.encoder = Encoder(config, pooler=False)
        self.span_head = Linear(width_of(self.mix, config), 2)
        initialise(self.span_head, config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TaskOutput:
        """Return logits (batch, seq, 2), start before end, and the mean of both losses.

        start_positions, end_positions: (batch,) int64, columns of the answer's first and last token. A position that
            is no column of the row is left out of the loss (Hugging Face takes a negative one for column 0).

        Raises:
            InputError: one of the two positions without the other, or of another shape; an input refused.
        """
        if (start_positions is None) != (end_positions is None):
            raise InputError("give start_positions and end_positions, or neither", field="start_positions")
        encoded = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,  # padding is read: as in Hugging Face, its scores are in the softmax
            output_hidden_states=output_hidden_states or self.mix is not None,
            output_attentions=output_attentions,
        )
        logits = self.span_head(features(encoded, self.mix))  # (batch, seq, 2)
        loss = None
        if start_positions is not None and end_positions is not None:
            sides = (("start_positions", start_positions), ("end_positions", end_positions))
            losses = [position_loss(name, logits[..., side], at) for side, (name, at) in enumerate(sides)]
            loss = torch.stack(losses).mean()
        return _output(loss, logits, encoded, output_hidden_states)


def _output(loss: Tensor | None, logits: Tensor, encoded: EncoderOutput, wants_states: bool) -> TaskOutput:
    """The answer; states that only the mix has asked for are not in it."""
    return TaskOutput(loss, logits, encoded.hidden_states if wants_states else None, encoded.attentions)


def _dropout(config: BertConfig, task: TaskConfig) -> nn.Dropout:
    given = task.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if given is None else given)


def _rows(tensor: Tensor | None) -> Tensor | None:
    """(batch, choices, …) as rows of the encoder, (batch · choices, …)."""
    return None if tensor is None else tensor.flatten(0, 1)
