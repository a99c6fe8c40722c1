"""Is it a BERT?  Decided by what a config.json says of the network, not by the name it gives itself.

In: the entries of a config.json.  Out: nothing, or an InputError with the reason.  Next: config.py
"""

from pathlib import Path
from typing import Any

from bertkit.errors import InputError

_OFFSET = "its positions count from pad_token_id + 1 and skip padding, and its text has other special tokens"
_RELATIVE = "its attention looks at distances between tokens; BERT adds a vector to each position"
# Networks with BERT's config keys, or nearly so, that compute something else.
NOT_A_BERT = {
    name: reason
    for names, reason in (
        ("roberta xlm-roberta xlm-roberta-xl camembert xmod longformer mpnet ibert data2vec-text", _OFFSET),
        ("roberta-prelayernorm lilt markuplm", _OFFSET),
        ("nezha deberta deberta-v2 roformer xlnet funnel", _RELATIVE),
        ("albert", "all its layers share one set of weights, and its embeddings are narrower than its layers"),
        ("rembert", "its embeddings are narrower than its layers, and its decoder has a width of its own"),
        ("distilbert", "it has no segments, and other names for everything"),
        ("megatron-bert", "it normalises before each part of a layer, BERT after it"),
        ("mobilebert", "its layers are narrower inside than between them"),
        ("modernbert", "its attention turns queries and keys by their position, and looks at a window in most layers"),
        ("nomic_bert esm", "its attention turns queries and keys by their position"),
        ("bert-generation", "it has no segments and writes text from left to right"),
        ("squeezebert", "its layers are grouped convolutions"),
        ("convbert", "half of its heads are convolutions"),
        ("big_bird", "its attention looks at blocks"),
        ("layoutlm", "it adds where on the page a token stands"),
        ("tapas", "it adds where in a table a token stands"),
        ("visual_bert", "it reads pictures too"),
        ("canine", "it reads characters without a vocabulary"),
        ("gpt2", "it writes text from left to right"),
        ("t5 bart", "it has an encoder and a decoder"),
    )
    for name in names.split()
}
# Key -> the values that a BERT encoder has there, and what another value means.
_REQUIRED: dict[str, tuple[tuple[object, ...], str]] = {
    "position_embedding_type": (("absolute",), _RELATIVE),
    "is_decoder": ((False,), "it looks only to the left"),
    "add_cross_attention": ((False,), "it looks at a second text"),
    "is_encoder_decoder": ((False,), "it has an encoder and a decoder"),
    "use_task_id": ((False,), "it adds a fourth embedding, of the task"),
    "relative_attention": ((False,), _RELATIVE),
    "num_hidden_groups": ((), "its layers share weights"),
    "inner_group_num": ((), "its layers share weights"),
    "quantization_config": ((), "its weights are whole numbers with factors"),
}


def require_bert(values: dict[str, Any], *, file: str | Path) -> None:
    """Refuse the entries of a config.json that describe another network than BERT's encoder.

    A model_type that is not known, or none, is taken for what its keys say: many a BERT calls itself otherwise.

    Raises:
        InputError: with the key, its value, and what is different.
    """
    for name in _names(values):
        if name in NOT_A_BERT:
            key = "model_type" if values.get("model_type") == name else "architectures"
            raise _refused(file, key, values[key], NOT_A_BERT[name])
    for key, (accepted, reason) in _REQUIRED.items():
        value = values.get(key)
        if value is not None and value not in accepted:
            raise _refused(file, key, value, reason)
    width = values.get("embedding_size")
    if width is not None and width != values.get("hidden_size"):
        raise _refused(file, "embedding_size", width, "its embeddings have another width than its layers")
    # A RoBERTa whose model_type was lost: two positions more than a power of 2, one segment, padding at id 1.
    positions = values.get("max_position_embeddings")
    offset = type(positions) is int and positions > 2 and (positions - 2) & (positions - 3) == 0
    if offset and values.get("pad_token_id") == 1 and values.get("type_vocab_size") == 1:
        raise _refused(file, "max_position_embeddings", positions, f"it is a RoBERTa's: {_OFFSET}")


def _names(values: dict[str, Any]) -> list[str]:
    """What the model calls itself: its model_type, and the architectures without their heads, in the same spelling."""
    given = values.get("model_type")
    names = [given] if isinstance(given, str) else []
    architectures = values.get("architectures")
    for architecture in architectures if isinstance(architectures, list) and given is None else []:
        spelled = str(architecture).lower()
        names += [name for name in NOT_A_BERT if spelled.startswith(name.replace("-", "").replace("_", ""))]
    return names


def _refused(file: str | Path, key: str, value: object, reason: str) -> InputError:
    return InputError(
        f"describes a model that is not a BERT encoder ({key} is {value!r}): {reason}"[:600],
        file=file,
        field=key,
        value=value,
        expected="BERT's encoder",
        remedy="give a folder with a BERT checkpoint",
    )
