"""What a fine-tuning head is, under Hugging Face's `config.json` keys: its labels, its loss, its dropout.

In: numbers, or the entries of a config.json.  Out: one frozen TaskConfig, checked once.  Next: task_heads.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bertkit.errors import InputError

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
Pooling = Literal["pooler", "cls", "mean"]
Combine = Literal["last", "concat", "sum", "mean", "weighted"]
MAX_LABELS = 100_000
# Not one of Hugging Face's BERT keys: their ModernBERT uses it with this meaning.
POOLING_KEY = "classifier_pooling"
MIX_KEY = "layer_mix"  # ours: {"layers": […], "combine": …}


@dataclass(frozen=True)
class TaskConfig:
    """The labels of a head, and how it is trained.

    labels: their names, label i being column i of the logits; a regression has one for each number it gives.
    problem_type: which loss a text classifier has; the other heads have but one.
    classifier_dropout: probability of dropping a feature before the head; None: the model's hidden_dropout_prob.
    pooling: what is read of a text or a choice: "pooler", the pooler's output; "cls", the hidden state of [CLS];
        "mean", the mean of the hidden states of all its tokens, special ones included.
    layers, combine: which layers the head reads and how they become one, as in LayerMix; None: the last one.

    Raises:
        InputError: no label, two labels of one name, a value out of range.
    """

    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    problem_type: ProblemType = "single_label_classification"
    classifier_dropout: float | None = None
    pooling: Pooling = "pooler"
    layers: tuple[int, ...] | None = None
    combine: Combine = "last"

    def __post_init__(self) -> None:
        if not 1 <= len(self.labels) <= MAX_LABELS:
            raise InputError("has no label" if not self.labels else "has too many labels", field="labels")
        if not all(isinstance(label, str) for label in self.labels):
            raise InputError("holds a label that is no text", field="labels", value=self.labels)
        if len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise InputError("names two labels alike", field="labels", value=twice, expected="different names")
        for name, value, known in (
            ("problem_type", self.problem_type, get_args(ProblemType)),
            ("pooling", self.pooling, get_args(Pooling)),
            ("combine", self.combine, get_args(Combine)),
        ):
            if value not in known:
                raise InputError("is not known", field=name, value=value, expected=" | ".join(known))
        dropout = self.classifier_dropout
        if dropout is not None and not (type(dropout) in (int, float) and 0 <= dropout < 1):
            raise InputError("is not a probability", field="classifier_dropout", value=dropout, expected="0 ≤ p < 1")

    @property
    def num_labels(self) -> int:
        """Number of labels, and of columns of the logits."""
        return len(self.labels)

    def label_entries(self) -> dict[str, Any]:
        """Return the `config.json` entries of the labels that Hugging Face reads."""
        return {
            "id2label": {str(id): label for id, label in enumerate(self.labels)},
            "label2id": {label: id for id, label in enumerate(self.labels)},
            "num_labels": self.num_labels,
        }


def default_labels(number: int) -> tuple[str, ...]:
    """Return the names that Hugging Face gives to labels without any.

    >>> default_labels(3)
    ('LABEL_0', 'LABEL_1', 'LABEL_2')
    """
    return tuple(f"LABEL_{id}" for id in range(number))


def same_labels(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two heads have the same labels in the same places; a name made up by number equals any."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a == b or f"LABEL_{id}" in (a, b) for id, (a, b) in enumerate(pairs))


def task_from_json(values: dict[str, Any], *, num_labels: int | None, file: str | Path) -> TaskConfig:
    """Return what the entries of a `config.json` say of the head; `file` names it in errors.

    num_labels: the rows of the head in the weights, which go before what the entries say; None: there is no head.
    Without a problem_type one label is a regression, as Hugging Face has it; more are single-label.

    Raises:
        InputError: an entry of another type or out of range.
    """
    names = _names(values, file=file)
    number = values.get("num_labels")
    if number is not None and not (type(number) is int and 1 <= number <= MAX_LABELS):
        expected = f"1 to {MAX_LABELS}"
        raise InputError("is no number of labels", file=file, field="num_labels", value=number, expected=expected)
    count = num_labels or (len(names) if names else number or 2)
    if names is None or len(names) != count:
        names = default_labels(count)
    given = {key: values[key] for key in ("problem_type", "classifier_dropout") if values.get(key) is not None}
    given |= reading_from_json(values, file=file)
    if "problem_type" not in given and count == 1:
        given["problem_type"] = "regression"
    try:
        return TaskConfig(labels=names, **given)
    except InputError as problem:
        raise InputError(
            problem.problem, file=file, field=problem.field, value=problem.value, expected=problem.expected
        ) from None


def reading_from_json(values: dict[str, Any], *, file: str | Path) -> dict[str, Any]:
    """Return what of the encoder a head reads, as `pooling`, `layers` and `combine` of a TaskConfig.

    layers and combine are left out where it is the last layer.

    Raises:
        InputError: an entry is something else.
    """
    pooling, mix = values.get(POOLING_KEY) or TaskConfig.pooling, values.get(MIX_KEY)
    if pooling not in get_args(Pooling):
        known = " | ".join(get_args(Pooling))
        raise InputError("is not known", file=file, field=POOLING_KEY, value=pooling, expected=known)
    if mix is None:
        return {"pooling": pooling}
    layers, combine = (mix.get("layers"), mix.get("combine")) if isinstance(mix, dict) else (None, None)
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers) or not isinstance(combine, str):
        expected = '{"layers": [1, 2], "combine": "sum"}'
        raise InputError("is no mix of layers", file=file, field=MIX_KEY, value=mix, expected=expected)
    return {"pooling": pooling, "layers": tuple(layers), "combine": combine}


def _names(values: dict[str, Any], *, file: str | Path) -> tuple[str, ...] | None:
    """The labels by id, from id2label or else label2id; None where there are none."""
    table = values.get("id2label")
    if table is None and isinstance(values.get("label2id"), dict):
        table = {str(id): label for label, id in values["label2id"].items()}
    if table is None:
        return None
    ids = {str(id) for id in range(len(table))} if isinstance(table, dict) else set[str]()
    if not isinstance(table, dict) or len(table) > MAX_LABELS or table.keys() != ids:
        raise InputError(
            "does not number the labels from 0 on", file=file, field="id2label", expected='{"0": "no", "1": "yes"}'
        )
    return tuple(str(table[str(id)]) for id in range(len(table)))
