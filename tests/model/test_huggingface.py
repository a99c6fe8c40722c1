"""The name table: one to one in both directions, and every tensor left over or lacking is named."""

import re

import pytest
import torch
from torch import Tensor

from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.huggingface import from_hugging_face, name_table, to_hugging_face

LAYERS = 2
DECODER, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
Q = "bert.encoder.layer.1.attention.self.{}.weight"


def state_of(*, tied: bool = True, mlm: bool = True, nsp: bool = True) -> dict[str, Tensor]:
    """The state dict of a small model, every tensor at random (no two are equal)."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=64,
        tie_word_embeddings=tied,
    )
    state = PretrainingModel(config, mlm=mlm, nsp=nsp).state_dict()
    return {name: torch.randn_like(tensor) for name, tensor in state.items()}


def shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    """Our name to shape: what a model of this state wants."""
    return {name: tensor.shape for name, tensor in state.items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("mlm", "nsp"), [(True, True), (True, False), (False, True)])
def test_a_state_comes_back_bit_by_bit_through_hugging_faces_names(tied: bool, mlm: bool, nsp: bool) -> None:
    state = state_of(tied=tied, mlm=mlm, nsp=nsp)
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    back = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert_equal(back.tensors, state)
    assert (back.missing, back.ignored) == ([], [])
    assert back.tied == (["cls.predictions.bias"] if mlm and not tied else [])


def test_the_table_names_every_tensor_of_a_model_and_no_other() -> None:
    tasks = {f"{head}.{part}" for head in ("classifier", "span_head") for part in ("weight", "bias")}
    names = state_of(tied=False).keys() | tasks | {"mix.weights", "mix.gamma"}
    assert name_table(LAYERS).keys() == names
    assert name_table(LAYERS + 1).keys() - names == {name for name in name_table(LAYERS + 1) if "layers.2." in name}


def test_no_name_of_hugging_face_stands_twice_in_the_table() -> None:
    theirs = [name for names in name_table(12).values() for name in names]
    assert len(theirs) == len(set(theirs))


def test_our_names_are_short_and_do_not_contain_theirs() -> None:
    assert not [name for name in name_table(3) if re.search(r"\bbert\b|\bcls\b|\bself\b|LayerNorm", name)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("encoder.embeddings.layer_norm.bias", "bert.embeddings.LayerNorm.bias"),
        ("encoder.layers.1.attention.output.weight", "bert.encoder.layer.1.attention.output.dense.weight"),
        ("encoder.layers.1.attention_norm.weight", "bert.encoder.layer.1.attention.output.LayerNorm.weight"),
        ("encoder.layers.0.intermediate.bias", "bert.encoder.layer.0.intermediate.dense.bias"),
        ("encoder.layers.0.output_norm.bias", "bert.encoder.layer.0.output.LayerNorm.bias"),
        ("encoder.pooler.weight", "bert.pooler.dense.weight"),
        ("mlm_head.dense.weight", "cls.predictions.transform.dense.weight"),
        ("mlm_head.bias", "cls.predictions.bias"),
        ("nsp_head.weight", "cls.seq_relationship.weight"),
    ],
)
def test_a_tensor_goes_under_the_name_users_know(ours: str, theirs: str) -> None:
    state = state_of()
    assert torch.equal(to_hugging_face(state, num_hidden_layers=LAYERS)[theirs], state[ours])


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_query_key_and_value_are_cut_from_the_fused_matrix_in_this_order(part: str) -> None:
    state = state_of()
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    fused = state[f"encoder.layers.1.attention.query_key_value.{part}"]
    for n, name in enumerate(("query", "key", "value")):
        cut = theirs[f"bert.encoder.layer.1.attention.self.{name}.{part}"]
        assert torch.equal(cut, fused[32 * n : 32 * (n + 1)])
        assert cut.is_contiguous()


def test_a_tied_decoder_is_written_once_and_an_untied_one_with_its_bias() -> None:
    tied = to_hugging_face(state_of(), num_hidden_layers=LAYERS)
    assert not {DECODER, DECODER_BIAS} & tied.keys()
    untied = to_hugging_face(state_of(tied=False), num_hidden_layers=LAYERS)
    assert torch.equal(untied[DECODER_BIAS], untied["cls.predictions.bias"])
    assert untied[DECODER].shape == (60, 32)


def test_names_without_the_prefix_are_found_and_reported_as_they_stand_on_disk() -> None:
    state = {name: tensor for name, tensor in state_of().items() if name.startswith("encoder.")}
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    bare = {name.removeprefix("bert."): tensor for name, tensor in theirs.items()}
    bare["embeddings.position_ids"] = torch.arange(512)[None]
    found = from_hugging_face(bare, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert_equal(found.tensors, state)
    assert found.ignored == ["embeddings.position_ids"]
    assert {name for names in found.sources.values() for name in names} == bare.keys() - {"embeddings.position_ids"}


def test_heads_beside_an_encoder_without_prefix_are_found() -> None:
    state = state_of()
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    bare = {name.removeprefix("bert."): tensor for name, tensor in theirs.items()}
    assert_equal(from_hugging_face(bare, wanted=shapes(state), num_hidden_layers=LAYERS).tensors, state)


def test_a_fused_tensor_is_missing_when_one_of_its_parts_is_and_the_others_are_left_over() -> None:
    state = state_of()
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    del theirs[Q.format("key")]
    found = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert found.missing == ["encoder.layers.1.attention.query_key_value.weight"]
    assert found.ignored == [Q.format("query"), Q.format("value")]


def test_a_second_copy_on_disk_is_listed_as_tied_only_if_it_is_equal() -> None:
    state = state_of()
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    theirs[DECODER] = state["encoder.embeddings.word_embeddings.weight"].clone()
    theirs[DECODER_BIAS] = state["mlm_head.bias"] + 1
    found = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert (found.tied, found.ignored) == ([DECODER], [DECODER_BIAS])


def test_an_untied_decoder_takes_the_bias_that_hugging_face_adds() -> None:
    state = state_of(tied=False)
    theirs = to_hugging_face(state, num_hidden_layers=LAYERS)
    theirs["cls.predictions.bias"] += 1
    found = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert torch.equal(found.tensors["mlm_head.bias"], theirs[DECODER_BIAS])
    assert found.ignored == ["cls.predictions.bias"]
    del theirs[DECODER_BIAS]  # the layout of old files
    found = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    assert torch.equal(found.tensors["mlm_head.bias"], theirs["cls.predictions.bias"])


def test_tensors_of_other_heads_are_ignored_by_name() -> None:
    with torch.device("meta"):
        config = BertConfig(
            vocab_size=60, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=64
        )
        wanted = {f"encoder.{name}": t.shape for name, t in Encoder(config).state_dict().items()}
    theirs = to_hugging_face(state_of(), num_hidden_layers=LAYERS) | {"classifier.weight": torch.zeros(3, 32)}
    found = from_hugging_face(theirs, wanted=wanted, num_hidden_layers=LAYERS)
    assert found.missing == []
    assert found.ignored == sorted(name for name in theirs if not name.startswith("bert."))


def test_what_was_translated_shares_no_memory_with_the_file() -> None:
    state = state_of()
    theirs = to_hugging_face({name: tensor.clone() for name, tensor in state.items()}, num_hidden_layers=LAYERS)
    found = from_hugging_face(theirs, wanted=shapes(state), num_hidden_layers=LAYERS)
    for tensor in theirs.values():
        tensor.zero_()
    assert_equal(found.tensors, state)
