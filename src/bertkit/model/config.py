"""The shape of a BERT, under Hugging Face's `config.json` keys.

In: a size by name, a config.json, or numbers.  Out: one frozen BertConfig, checked once.  Next: attention.py
"""

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import InputError
from bertkit.files import require_file
from bertkit.model.recognition import require_bert

# Google's released sizes: (num_hidden_layers, hidden_size); heads = hidden / 64, intermediate = 4 x hidden.
MODEL_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
HIDDEN_ACTS = ("gelu", "gelu_new", "relu", "silu", "tanh")
HEAD_WIDTH = 64  # hidden units per head in every released size
# Keys that Hugging Face writes about other things than the network's shape; they are carried by no field of ours.
FOREIGN_KEYS = frozenset(
    (
        *("model_type", "architectures", "position_embedding_type", "is_decoder", "add_cross_attention", "use_cache"),
        *("problem_type", "id2label", "label2id", "classifier_dropout", "finetuning_task", "gradient_checkpointing"),
        *("dtype", "torch_dtype", "transformers_version", "_name_or_path", "bos_token_id", "eos_token_id"),
        *("return_dict", "output_hidden_states", "output_attentions", "directionality", "pooler_type"),
        *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"),
        *(
            "num_labels",
            "classifier_pooling",
            "layer_mix",
            "transformers_weights",
            "is_encoder_decoder",
            "chunk_size_feed_forward",
        ),
        *("embedding_size", "output_past", "torchscript", "use_bfloat16", "use_task_id", "sep_token_id"),
        # How text is written, which transformers once put into every config.json.
        *("do_sample", "eos_token_ids", "length_penalty", "max_length", "num_beams", "num_return_sequences"),
        *("repetition_penalty", "temperature", "top_k", "top_p"),
    )
)
# The most that a config.json may ask for: far beyond every BERT there is, and little enough to be built in a second.
MOST = {
    "vocab_size": 2**24,
    "hidden_size": 2**16,
    "num_hidden_layers": 256,
    "num_attention_heads": 2**12,
    "intermediate_size": 2**18,
    "max_position_embeddings": 2**20,
    "type_vocab_size": 2**10,
}


@dataclass(frozen=True)
class BertConfig:
    """The numbers that fix a BERT; the defaults are the original English base model's.

    hidden_act: one of HIDDEN_ACTS, or (in Python only) a callable from tensor to tensor.
    layer_norm_eps: the masked-LM head's LayerNorm uses it too.
    pruned_heads: {layer: heads that were taken out of it}, both counted from 0 (`model/pruning.py`).

    Raises:
        InputError: a number out of range, heads that do not divide the width, an unknown activation.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | Callable[[Any], Any] = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    tie_word_embeddings: bool = True
    pruned_heads: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # A config.json may hold anything under a key, so the types are checked too.
        for name, count in (
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ):
            if type(count) is not int or count < 1:
                raise InputError("is not a positive whole number", field=name, value=count, expected="1 or more")
        for name, probability in (
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
        ):
            if not (_is_number(probability) and 0 <= probability < 1):
                raise InputError("is not a probability", field=name, value=probability, expected="0 ≤ p < 1")
        for name, number in (
            ("initializer_range", self.initializer_range),
            ("layer_norm_eps", self.layer_norm_eps),
        ):
            if not (_is_number(number) and 0 <= number < math.inf):
                raise InputError("is not a number of 0 or more", field=name, value=number, expected="0 or more")
        self._check_heads_and_choices()

    def _check_heads_and_choices(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not divisible by num_attention_heads {self.num_attention_heads}",
                field="num_attention_heads",
                remedy=f"use {max(1, self.hidden_size // HEAD_WIDTH)} heads of {HEAD_WIDTH}",
            )
        known = self.hidden_act in HIDDEN_ACTS if isinstance(self.hidden_act, str) else callable(self.hidden_act)
        if not known:
            raise InputError(
                "is no activation bertkit knows",
                field="hidden_act",
                value=self.hidden_act,
                expected=" | ".join(HIDDEN_ACTS),
            )
        if type(self.pad_token_id) is not int or not 0 <= self.pad_token_id < self.vocab_size:
            raise InputError(
                "is no id of the vocabulary",
                field="pad_token_id",
                value=self.pad_token_id,
                expected=f"0 to {self.vocab_size - 1}",
            )
        if type(self.tie_word_embeddings) is not bool:
            raise InputError("is neither true nor false", field="tie_word_embeddings", value=self.tie_word_embeddings)
        # In JSON the layers are text.
        object.__setattr__(self, "pruned_heads", checked_pruned_heads(self.pruned_heads, self))

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def kept_heads(self, layer: int) -> tuple[int, ...]:
        """Return the numbers of the heads that a layer has."""
        pruned = self.pruned_heads.get(layer, ())
        return tuple(head for head in range(self.num_attention_heads) if head not in pruned)

    def to_json(self) -> dict[str, Any]:
        """Return the `config.json` entries that Hugging Face reads.

        Raises:
            InputError: hidden_act is a callable, which no file can hold.
        """
        if not isinstance(self.hidden_act, str):
            raise InputError(
                "is a Python function and cannot be saved", field="hidden_act", expected=" | ".join(HIDDEN_ACTS)
            )
        values = dataclasses.asdict(self)
        if not self.pruned_heads:
            del values["pruned_heads"]
        return {"model_type": "bert", "position_embedding_type": "absolute", **values}


def checked_pruned_heads(value: object, config: BertConfig) -> dict[int, tuple[int, ...]]:
    """Return {layer: heads pruned, rising} from what a `config.json` or a caller has; layers without any left out.

    Raises:
        InputError: no such mapping, a layer or head that the model does not have, or no head left in a layer.
    """
    expected = '{layer: [heads]}, as in {"0": [1, 3]}'
    if not isinstance(value, dict):
        raise InputError("is no object", field="pruned_heads", value=value, expected=expected)
    checked: dict[int, tuple[int, ...]] = {}
    for key, heads in value.items():
        layer = int(key) if isinstance(key, str) and key.isdecimal() else key
        if type(layer) is not int or not 0 <= layer < config.num_hidden_layers:
            limit = f"a layer, 0 to {config.num_hidden_layers - 1}"
            raise InputError("is no layer of the model", field="pruned_heads", value=key, expected=limit)
        if not isinstance(heads, list | tuple | set | frozenset) or any(type(head) is not int for head in heads):
            raise InputError("is no list of heads", field=f"pruned_heads[{layer}]", value=heads, expected=expected)
        wrong = sorted(head for head in heads if not 0 <= head < config.num_attention_heads)
        if wrong:
            limit = f"a head, 0 to {config.num_attention_heads - 1}"
            raise InputError("is no head", field=f"pruned_heads[{layer}]", value=wrong[0], expected=limit)
        if len(set(heads)) == config.num_attention_heads:
            raise InputError(
                "takes out every head of the layer", field=f"pruned_heads[{layer}]", remedy="leave one of them"
            )
        if heads:
            checked[layer] = tuple(sorted(set(heads)))
    return dict(sorted(checked.items()))


def config_of_size(size: str, *, vocab_size: int) -> BertConfig:
    """Return the configuration of a size by name, for a vocabulary of `vocab_size` entries.

    >>> config_of_size("mini", vocab_size=5000).num_attention_heads
    4

    Raises:
        InputError: no such size.
    Source: the sizes of google-research/bert's smaller models.
    """
    if size not in MODEL_SIZES:
        raise InputError("is no model size", field="--model_size", value=size, expected=" | ".join(MODEL_SIZES))
    layers, hidden = MODEL_SIZES[size]
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_WIDTH,
        intermediate_size=4 * hidden,
    )


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in the file.

    Raises:
        InputError: the file is missing, not UTF-8, not JSON, or not an object.
    """
    path = require_file(path, what="a JSON file", remedy="check the folder; a model folder holds config.json")
    return json_object(path.read_bytes(), file=path)


def json_object(content: bytes, *, file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object that the bytes of a file spell.

    Raises:
        InputError: they are not UTF-8, not JSON, not an object; one name stands twice in an object, and two readers
            might take two values for it; a number that is none (NaN).
    """
    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:  # bad UTF-8, bad JSON, a number of 5,000 digits; deep nesting
        reason = str(problem)[:200]
        raise InputError(f"is not JSON in UTF-8 ({reason})", file=os.fspath(file), expected="a JSON object") from None
    if not isinstance(values, dict):
        raise InputError("holds no JSON object", file=os.fspath(file), expected='{"vocab_size": …, "hidden_size": …}')
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return values


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def config_from_json(values: dict[str, Any], *, file: str | Path) -> BertConfig:
    """Return the configuration in the entries of a `config.json`; `file` names it in errors.

    Raises:
        InputError: the entries describe something else than a BERT encoder, or a value is out of range.
    """
    require_bert(values, file=file)
    known = {field.name for field in dataclasses.fields(BertConfig)}
    required = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
    if missing := sorted(required - values.keys()):
        raise InputError(f"lacks {', '.join(missing)}", file=file, expected="the configuration of a BERT")
    for name, most in MOST.items():
        value = values.get(name)
        if type(value) is int and value > most:
            raise InputError("is out of range", file=file, field=name, value=value, expected=f"1 to {most:,}")
    try:
        return BertConfig(**{key: value for key, value in values.items() if key in known and value is not None})
    except InputError as problem:
        raise InputError(
            problem.problem,
            file=file,
            field=problem.field,
            value=problem.value,
            expected=problem.expected,
            remedy=problem.remedy,
        ) from None


def unknown_keys(values: dict[str, Any]) -> list[str]:
    """Return the keys of a `config.json` that bertkit does not read, sorted: they are listed to the user."""
    return sorted(values.keys() - {field.name for field in dataclasses.fields(BertConfig)} - FOREIGN_KEYS)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
