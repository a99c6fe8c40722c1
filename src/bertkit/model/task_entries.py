"""What config.json says of a head of fine-tuning, and whether transformers may open it.

In: a model.  Out: entries of config.json.  Next: pretrained.py
"""

from typing import Any

from bertkit.model.architectures import NEEDS_BERTKIT, Model, needs_bertkit
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.task_config import MIX_KEY, POOLING_KEY
from bertkit.model.task_heads import QuestionAnsweringModel, SequenceClassificationModel, TokenClassificationModel


def task_entries(model: Model) -> dict[str, Any]:
    """Return the entries of config.json that say what a head of fine-tuning is, besides those of the encoder."""
    if isinstance(model, Encoder | PretrainingModel):
        return {}
    task, entries = model.task, dict[str, Any]()
    if needs_bertkit(model):
        # The second entry names a file that is not there: a class of transformers called by its name goes by no type.
        entries |= {"model_type": NEEDS_BERTKIT, "transformers_weights": f"{NEEDS_BERTKIT}.safetensors"}
    if model.mix is not None:
        entries[MIX_KEY] = {"layers": list(model.mix.layers), "combine": model.mix.combine}
    if isinstance(model, QuestionAnsweringModel):
        return entries
    entries["classifier_dropout"] = task.classifier_dropout
    if isinstance(model, SequenceClassificationModel | TokenClassificationModel):
        entries |= task.label_entries()
    if isinstance(model, SequenceClassificationModel):
        entries["problem_type"] = task.problem_type
    if task.pooling != "pooler" and not isinstance(model, TokenClassificationModel):
        entries[POOLING_KEY] = task.pooling
    return entries
