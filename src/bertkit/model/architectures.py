"""The models by the name of their head: what each is called on disk, how it is built, and which a folder holds.

In: a head's name, or a model, or the names of a folder's tensors.  Out: a model, or a head's name.
Next: pretrained.py
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.task_config import POOLING_KEY, TaskConfig
from bertkit.model.task_heads import (
    MultipleChoiceModel,
    QuestionAnsweringModel,
    SequenceClassificationModel,
    TokenClassificationModel,
)

Head = Literal[
    "pretraining",
    "masked_lm",
    "next_sentence",
    "sequence_classification",
    "token_classification",
    "multiple_choice",
    "question_answering",
]
TaskModel = SequenceClassificationModel | TokenClassificationModel | MultipleChoiceModel | QuestionAnsweringModel
Model = Encoder | PretrainingModel | TaskModel
ARCHITECTURES: dict[Head | None, str] = {
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "next_sentence": "BertForNextSentencePrediction",
    "sequence_classification": "BertForSequenceClassification",
    "token_classification": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
    "question_answering": "BertForQuestionAnswering",
    None: "BertModel",
}
NEEDS_BERTKIT = "bertkit"  # model_type of what transformers cannot compute, so that it refuses instead of answering
# The three whose head is called `classifier` on disk: only config.json says for which of them it was trained.
CLASSIFIERS: tuple[Head, ...] = ("sequence_classification", "token_classification", "multiple_choice")
TASKS: tuple[Head, ...] = (*CLASSIFIERS, "question_answering")


def build(config: BertConfig, *, head: Head | None, task: TaskConfig | None = None) -> Model:
    """Return a randomly initialised model; None builds the encoder with its pooler.

    task: what a fine-tuning head is; None: two labels.

    Raises:
        InputError: no such head.
    """
    if head not in ARCHITECTURES:
        raise InputError("is no head", field="head", value=head, expected=" | ".join(map(repr, ARCHITECTURES)))
    task = task or TaskConfig()
    if head is None:
        return Encoder(config)
    if head == "sequence_classification":
        return SequenceClassificationModel(config, task=task)
    if head == "token_classification":
        return TokenClassificationModel(config, task=task)
    if head == "multiple_choice":
        return MultipleChoiceModel(config, task=task)
    if head == "question_answering":
        return QuestionAnsweringModel(config, task=task)
    return PretrainingModel(config, mlm=head != "next_sentence", nsp=head != "masked_lm")


class Unfilled(TorchFunctionMode):
    """In a `with` statement beside `torch.device("meta")`: modules are made without drawing the numbers they lack.

    The device alone would do, but the first normal_ on it imports 800 modules of PyTorch: 0.9 s of every process.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, unless it draws numbers."""
        if func in (torch.nn.init.normal_, torch.Tensor.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def head_of(model: Model) -> Head | None:
    """Return the name of the head a model has."""
    if isinstance(model, Encoder):
        return None
    if isinstance(model, SequenceClassificationModel):
        return "sequence_classification"
    if isinstance(model, TokenClassificationModel):
        return "token_classification"
    if isinstance(model, MultipleChoiceModel):
        return "multiple_choice"
    if isinstance(model, QuestionAnsweringModel):
        return "question_answering"
    if model.mlm_head is not None and model.nsp_head is not None:
        return "pretraining"
    return "masked_lm" if model.mlm_head is not None else "next_sentence"


def head_in(names: Collection[str], values: Mapping[str, Any]) -> Head | None:
    """Return the head that a folder holds, by the names of its tensors and the entries of its config.json."""
    if "qa_outputs.weight" in names:
        return "question_answering"
    if "classifier.weight" in names:
        return trained_classifier(values) or "sequence_classification"
    mlm = any(name.startswith("cls.predictions.") for name in names)
    nsp = "cls.seq_relationship.weight" in names
    if mlm and nsp:
        return "pretraining"
    return "masked_lm" if mlm else "next_sentence" if nsp else None


def trained_classifier(values: Mapping[str, Any]) -> Head | None:
    """Return for which head a `classifier` was trained, as config.json says; None where it does not say."""
    architectures = values.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    if named == ARCHITECTURES["token_classification"] and values.get(POOLING_KEY) == "cls":
        return "sequence_classification"  # see `architecture_of`
    return next((head for head in CLASSIFIERS if ARCHITECTURES[head] == named), None)


def architecture_of(model: Model) -> str:
    """Return the class of transformers that opens a model, saved.

    None of theirs reads the hidden state of [CLS] past the pooler. A classifier that does so is a token classifier
    there, whose scores at [CLS] are ours, number for number.
    """
    head = head_of(model)
    if isinstance(model, SequenceClassificationModel) and model.task.pooling == "cls" and not needs_bertkit(model):
        head = "token_classification"
    return ARCHITECTURES[head]


def needs_bertkit(model: Model) -> bool:
    """Return whether no class of transformers computes a model: mixed layers, a mean, choices by no pooler."""
    if isinstance(model, Encoder | PretrainingModel):
        return False
    if isinstance(model, MultipleChoiceModel) and model.task.pooling != "pooler":
        return True
    return model.mix is not None or (isinstance(model, SequenceClassificationModel) and model.task.pooling == "mean")
