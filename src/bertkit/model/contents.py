"""What a model folder says of its model, before a number of it is read: config.json, tensor names, whose head it is.

In: a ForeignFolder.  Out: Contents, and whether a classifier in it is the one that is wanted.  Next: pretrained.py
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import InputError
from bertkit.model.architectures import ARCHITECTURES, CLASSIFIERS, NEEDS_BERTKIT, Head, trained_classifier
from bertkit.model.config import BertConfig, config_from_json, json_object
from bertkit.model.foreign_folder import ForeignFolder
from bertkit.model.huggingface import PREFIX, WORD_EMBEDDINGS, canonical_names
from bertkit.model.layer_mix import normal_mix
from bertkit.model.recognition import require_prefix_of_bert
from bertkit.model.task_config import TaskConfig, reading_from_json, same_labels, task_from_json
from bertkit.model.weights import Weights, open_weights

CONFIG = "config.json"
SHOWN_NAMES = 5  # an error lists this many names and then the number of the others


@dataclass(frozen=True)
class Contents:
    """What a folder says of its model, no number of it read yet."""

    path: Path  # of the weights
    values: dict[str, Any]  # of config.json
    config: BertConfig
    weights: Weights
    names: dict[str, str]  # Hugging Face's names -> the file's


def contents_of(folder: ForeignFolder, *, allow_pickle_weights: bool) -> Contents:
    """Return what a folder says of its model.

    Raises:
        InputError: config.json or the headers of the weights are missing, damaged, or no BERT's.
    """
    path = folder.path / CONFIG
    if not folder.has(CONFIG):
        _refuse_unfinished_run(folder.path)
    content = folder.read(CONFIG, what="a JSON file", remedy="check the folder; a model folder holds config.json")
    values = json_object(content, file=path)
    config = config_from_json(values, file=path)
    weights = open_weights(folder, allow_pickle_weights=allow_pickle_weights)
    path = folder.path / weights.file
    try:
        names = canonical_names(weights.shapes)
    except InputError as problem:
        raise InputError(problem.problem, file=path, expected=problem.expected) from None
    require_prefix_of_bert(encoder_prefix(names), file=path)
    return Contents(path, values, config, weights, names)


def _refuse_unfinished_run(path: Path) -> None:
    """Name what to ask of a run whose best model does not stand in its folder yet, and of several runs.

    Raises:
        InputError: it is such a run.
    """
    several = sorted(place.parent.name for kind in ("seed", "layer") for place in path.glob(f"{kind}-*/{CONFIG}"))
    if several:
        raise InputError(
            f"holds several runs: {', '.join(several[:SHOWN_NAMES])}",
            file=path,
            expected="a model folder",
            remedy=f"ask one of them, such as {path / several[0]}",
        )
    steps = [int(place.name[5:]) for place in path.glob("checkpoints/step-*") if place.name[5:].isdecimal()]
    if steps:
        raise InputError(
            "is a run that has not finished: its best model comes to stand here at the end",
            file=path,
            expected="a model folder",
            remedy=f"ask its last checkpoint, {path / 'checkpoints' / f'step-{max(steps)}'}, or let it finish "
            "(--resume_from last)",
        )


def encoder_prefix(names: dict[str, str]) -> str:
    """Return what the names of an encoder's tensors begin with in a file; names: Hugging Face's -> the file's."""
    return names.get(PREFIX + WORD_EMBEDDINGS, WORD_EMBEDDINGS).removesuffix(WORD_EMBEDDINGS)


def remarks_on(found: Contents) -> list[str]:
    """Return, as sentences, what is unusual and was taken for a BERT all the same."""
    remarks, kind = [], found.values.get("model_type")
    if kind not in ("bert", NEEDS_BERTKIT):
        named = "has no model_type" if kind is None else f"calls the model {kind!r}"
        remarks.append(f"config.json {named}; its keys and its tensors are a BERT's")
    prefix = encoder_prefix(found.names)
    if prefix not in ("", PREFIX):
        remarks.append(f"the encoder's tensors begin with {prefix!r}")
    return remarks


def task_head_names(found: Contents) -> set[str]:
    """Return the names in the file of a head of fine-tuning."""
    heads = ("classifier.", "qa_outputs.", "layer_mix.")
    return {source for name, source in found.names.items() if name.startswith(heads)}


def task_of(found: Contents, head: Head | None, task: TaskConfig | None) -> tuple[TaskConfig, str]:
    """Return what a head is, and why the one in the file is not it ("" where it is, or where there is none).

    head: one of fine-tuning; task: what it is to be, None for what config.json says.

    Raises:
        InputError: an entry of config.json on labels, pooling or layers is of another type or out of range.
    """
    file = found.path.parent / CONFIG
    name = "classifier.weight" if head in CLASSIFIERS else "qa_outputs.weight"
    weight = found.names.get(name)
    shape = found.weights.shapes[weight] if weight is not None else ()
    trained = trained_classifier(found.values) if head in CLASSIFIERS else None
    foreign = f"the file's classifier is that of a {ARCHITECTURES[trained]}" if trained not in (None, head) else ""
    labelled = head in ("sequence_classification", "token_classification")
    rows = shape[0] if len(shape) == 2 and shape[0] > 0 and labelled and not foreign else None
    saved = (
        task_from_json(found.values, num_labels=rows, file=file)
        if head in CLASSIFIERS
        else TaskConfig(**reading_from_json(found.values, file=file))
    )
    if weight is None:
        return task or saved, ""
    if head == "multiple_choice" and shape[:1] != (1,) and not foreign:
        foreign = f"the file's classifier has {shape[0] if shape else 0} scores a text, not one"
    if task is not None and not foreign:
        foreign = _difference(found, head, saved, task)
    return task or saved, foreign


def _difference(found: Contents, head: Head | None, saved: TaskConfig, wanted: TaskConfig) -> str:
    """Why the head in the file does not compute what is wanted; "" where it does."""
    if head in ("sequence_classification", "token_classification") and not same_labels(wanted.labels, saved.labels):
        shown = ", ".join(saved.labels[:SHOWN_NAMES]) + ("…" if saved.num_labels > SHOWN_NAMES else "")
        return f"the file's classifier has other labels ({saved.num_labels}: {shown})"
    # Of several labels Hugging Face's files need not say which loss they had.
    problem_is_known = found.values.get("problem_type") is not None or saved.num_labels == 1
    if head == "sequence_classification" and problem_is_known and saved.problem_type != wanted.problem_type:
        return f"the file's classifier is for {saved.problem_type}"
    if head in ("sequence_classification", "multiple_choice") and saved.pooling != wanted.pooling:
        return f"the file's head reads {saved.pooling}, not {wanted.pooling}"
    last = found.config.num_hidden_layers
    mixes = [normal_mix(task.layers, task.combine, num_hidden_layers=last) for task in (saved, wanted)]
    return "" if mixes[0] == mixes[1] else "the file's head reads other layers"
