"""The configuration: sizes by name, the way through config.json, and every value it refuses."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import InputError
from bertkit.model.config import (
    HIDDEN_ACTS,
    MODEL_SIZES,
    BertConfig,
    config_from_json,
    config_of_size,
    read_json_object,
    unknown_keys,
)
from bertkit.model.encoder import ACTIVATIONS

SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


@pytest.mark.parametrize("hidden_act", HIDDEN_ACTS)
def test_a_configuration_comes_back_from_its_json(hidden_act: str) -> None:
    config = BertConfig(
        **SMALL,
        hidden_act=hidden_act,
        layer_norm_eps=1e-5,
        pad_token_id=3,
        tie_word_embeddings=False,
        type_vocab_size=1,
    )
    values = json.loads(json.dumps(config.to_json()))
    assert config_from_json(values, file="config.json") == config


def test_the_defaults_are_those_of_the_original_base_model() -> None:
    assert BertConfig() == config_of_size("base", vocab_size=30522)
    assert BertConfig().head_dim == 64


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "heads", "intermediate"),
    [
        ("tiny", 2, 128, 2, 512),
        ("mini", 4, 256, 4, 1024),
        ("small", 4, 512, 8, 2048),
        ("medium", 8, 512, 8, 2048),
        ("base", 12, 768, 12, 3072),
        ("large", 24, 1024, 16, 4096),
    ],
)
def test_a_size_by_name_is_googles(size: str, layers: int, hidden: int, heads: int, intermediate: int) -> None:
    config = config_of_size(size, vocab_size=21128)
    assert (config.num_hidden_layers, config.hidden_size) == (layers, hidden)
    assert (config.num_attention_heads, config.intermediate_size, config.vocab_size) == (heads, intermediate, 21128)
    assert config.head_dim == 64


def test_an_unknown_size_is_refused_with_the_sizes_there_are() -> None:
    with pytest.raises(InputError, match=r"(?s)--model_size: is no model size.*'huge'.*tiny \| mini.*large"):
        config_of_size("huge", vocab_size=60)


def test_every_activation_by_name_has_its_function() -> None:
    assert set(ACTIVATIONS) == set(HIDDEN_ACTS)
    assert "base" in MODEL_SIZES


@pytest.mark.parametrize(
    "name",
    [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "type_vocab_size",
    ],
)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "12", [1]])
def test_a_count_that_is_no_positive_whole_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}: is not a positive whole number\n  value: .*\n  expected: 1 or more"):
        BertConfig(**{name: value})


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
@pytest.mark.parametrize("value", [-0.1, 1, math.nan, "0.1", True])
def test_a_dropout_that_is_no_probability_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"(?s){name}: is not a probability.*0 ≤ p < 1"):
        BertConfig(**{name: value})


@pytest.mark.parametrize("name", ["initializer_range", "layer_norm_eps"])
@pytest.mark.parametrize("value", [-1e-12, math.inf, math.nan, "1e-12", False])
def test_a_width_that_is_no_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}: is not a number of 0 or more"):
        BertConfig(**{name: value})


def test_heads_that_do_not_divide_the_width_are_refused_with_a_number_that_does() -> None:
    with pytest.raises(InputError, match=r"(?s)768 is not divisible by num_attention_heads 7.*use 12 heads of 64"):
        BertConfig(num_attention_heads=7)


@pytest.mark.parametrize("value", ["swish", 5])
def test_an_unknown_activation_is_refused_with_the_known_ones(value: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)hidden_act: is no activation.*gelu \| gelu_new \| relu \| silu \| tanh"):
        BertConfig(hidden_act=value)


@pytest.mark.parametrize("value", [-1, 60, "0", 1.0])
def test_a_padding_id_outside_the_vocabulary_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)pad_token_id: is no id of the vocabulary.*0 to 59"):
        BertConfig(**SMALL, pad_token_id=value)


def test_tying_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(InputError, match="tie_word_embeddings: is neither true nor false\n  value: 'false'"):
        BertConfig(tie_word_embeddings="false")  # type: ignore[arg-type]


def test_a_callable_activation_works_in_python_but_is_not_saved() -> None:
    config = BertConfig(**SMALL, hidden_act=torch.sin)
    with pytest.raises(InputError, match="hidden_act: is a Python function and cannot be saved"):
        config.to_json()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("add_cross_attention", True),
    ],
)
def test_a_model_that_is_no_bert_encoder_is_refused_by_the_key_that_says_so(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"模型/config.json: {key}: describes a model that is not a BERT") as caught:
        config_from_json({**SMALL, key: value}, file="模型/config.json")
    assert repr(value) in str(caught.value)
    assert "give a folder with a BERT checkpoint" in str(caught.value)


def test_entries_without_the_size_of_the_network_are_refused() -> None:
    with pytest.raises(InputError, match=r"config\.json: lacks hidden_size, num_hidden_layers"):
        config_from_json({"vocab_size": 60, "num_attention_heads": 4, "intermediate_size": 64}, file="config.json")


def test_a_value_out_of_range_in_a_file_is_reported_with_the_file() -> None:
    with pytest.raises(InputError, match=r"(?s)config\.json: num_attention_heads: .*32.*divisible.* 5") as caught:
        config_from_json({**SMALL, "num_attention_heads": 5}, file="config.json")
    assert (caught.value.file, caught.value.field) == ("config.json", "num_attention_heads")
    with pytest.raises(InputError, match=r"config\.json: layer_norm_eps: is not a number") as caught:
        config_from_json({**SMALL, "layer_norm_eps": "1e-12"}, file="config.json")
    assert caught.value.value == "1e-12"


def test_an_entry_of_null_means_the_default() -> None:
    config = config_from_json({**SMALL, "layer_norm_eps": None, "model_type": None}, file="config.json")
    assert config == BertConfig(**SMALL)


def test_only_keys_that_mean_nothing_here_are_listed_as_unknown() -> None:
    values = {
        **BertConfig(**SMALL).to_json(),
        "auto_map": {},
        "id2label": {"0": "词"},
        "_name_or_path": "m",
        "chunk": 1,
    }
    assert unknown_keys(values) == ["auto_map", "chunk"]


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BertConfig().vocab_size = 1  # type: ignore[misc]


def test_a_missing_config_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)config\.json: does not exist.*a model folder holds config\.json"):
        read_json_object(tmp_path / "config.json")


@pytest.mark.parametrize(
    "content",
    [
        b"{'vocab_size': 60}",
        '{"作者": "苏轼"}'.encode("gb18030"),
        b"",
        b'{"vocab_size": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
    ids=["single quotes", "GB18030", "empty", "a number of 5,000 digits", "nested too deeply"],
)
def test_a_file_that_is_not_json_is_reported_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json: is not JSON in UTF-8 \(.+\)\n  expected: a JSON object"):
        read_json_object(path)


def test_a_json_list_is_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json: holds no JSON object"):
        read_json_object(path)
