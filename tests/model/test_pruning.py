"""Heads pruned: as with a mask of 0, smaller on disk, loaded again; put back; and refused by transformers out loud."""

import json
from pathlib import Path

import pytest
import torch
import toy_model as toy
import transformers

from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.model.importance import importance, masked_lm_losses
from bertkit.model.pretrained import load
from bertkit.model.pruning import encoder_of, prune_heads, restore_heads

PRUNED = {0: [1, 3], 1: [0]}
IDS = torch.tensor([[2, 17, 9, 33, 28, 3], [2, 11, 20, 3, 0, 0]])
BATCH = {
    "input_ids": IDS,
    "attention_mask": IDS != 0,
    "mlm_positions": torch.tensor([2, 4, 8]),
    "mlm_targets": torch.tensor([9, 28, 20]),
}


def scores(model: PretrainingModel) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, attention_mask=IDS != 0).mlm_logits[IDS != 0]


def mask_of(heads: dict[int, list[int]]) -> torch.Tensor:
    mask = torch.ones(2, 4)
    for layer, numbers in heads.items():
        mask[layer, numbers] = 0.0
    return mask


def test_a_pruned_model_gives_what_a_mask_of_zero_gives() -> None:
    model = toy.random_model()
    masked = model.encoder(IDS, attention_mask=IDS != 0, head_mask=mask_of(PRUNED)).last_hidden_state
    prune_heads(model, PRUNED)
    found = model.encoder(IDS, attention_mask=IDS != 0, output_attentions=True)
    torch.testing.assert_close(found.last_hidden_state, masked, rtol=0, atol=1e-5)
    assert [tuple(weights.shape[:2]) for weights in found.attentions] == [(2, 2), (2, 3)]
    ones = model.encoder(IDS, attention_mask=IDS != 0, head_mask=mask_of(PRUNED)).last_hidden_state
    torch.testing.assert_close(ones, masked, rtol=0, atol=1e-5)  # heads keep their numbers


def test_the_matrices_are_smaller_and_can_be_trained() -> None:
    model = toy.random_model().train()
    before = sum(parameter.numel() for parameter in model.parameters())
    prune_heads(model, PRUNED)
    first = encoder_of(model).layers[0].attention
    assert first.query_key_value.weight.shape == (3 * 16, 32)
    assert first.output.weight.shape == (32, 16)
    one_head = 3 * 8 * 32 + 3 * 8 + 32 * 8
    assert before - sum(parameter.numel() for parameter in model.parameters()) == 3 * one_head
    assert first.training
    masked_lm_losses(model, BATCH).backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "attention" in name)


def test_pruning_twice_is_pruning_once() -> None:
    one, two = toy.random_model(), toy.random_model()
    prune_heads(one, PRUNED)
    prune_heads(two, {0: [3]})
    prune_heads(two, {0: [1], 1: {0}})
    assert one.config == two.config == one.encoder.config
    assert one.config.pruned_heads == {0: (1, 3), 1: (0,)}
    assert torch.equal(scores(one), scores(two))


def test_a_pruned_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = toy.random_model()
    prune_heads(model, PRUNED)
    folder = toy.model_folder(tmp_path, model)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["pruned_heads"] == {"0": [1, 3], "1": [0]}
    loaded = load(folder)
    assert loaded.config == model.config
    assert torch.equal(scores(loaded), scores(model))


def test_a_model_that_was_never_pruned_says_nothing_of_it() -> None:
    assert "pruned_heads" not in toy.toy_config().to_json()


def test_heads_put_back_change_no_answer_and_transformers_opens_the_folder(tmp_path: Path) -> None:
    model = toy.random_model()
    prune_heads(model, PRUNED)
    expected = scores(model)
    restore_heads(model)
    assert model.config == toy.toy_config()
    torch.testing.assert_close(scores(model), expected, rtol=0, atol=1e-5)
    theirs = transformers.BertForMaskedLM.from_pretrained(toy.model_folder(tmp_path, model)).eval()
    with torch.no_grad():
        logits = theirs(IDS, attention_mask=(IDS != 0).long()).logits[IDS != 0]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_transformers_refuses_a_pruned_folder(tmp_path: Path) -> None:
    model = toy.random_model()
    prune_heads(model, PRUNED)
    with pytest.raises(RuntimeError, match="mismatch"):
        transformers.BertForMaskedLM.from_pretrained(toy.model_folder(tmp_path, model))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({2: [0]}, "pruned_heads: is no layer of the model\n  value: 2\n  expected: a layer, 0 to 1"),
        ({0: [4]}, r"pruned_heads\[0\]: is no head\n  value: 4\n  expected: a head, 0 to 3"),
        ({0: [0, 1, 2, 3]}, r"pruned_heads\[0\]: takes out every head of the layer"),
    ],
)
def test_heads_that_cannot_be_pruned_are_refused(heads: dict, message: str) -> None:
    model = toy.random_model()
    with pytest.raises(InputError, match=message):
        prune_heads(model, heads)
    assert model.config == toy.toy_config()


@pytest.mark.parametrize(
    ("value", "message"),
    [([0], "pruned_heads: is no object"), ({"x": [0]}, "is no layer"), ({"0": "1"}, "is no list of heads")],
)
def test_a_config_with_something_else_there_is_refused(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy.toy_config(pruned_heads=value)


def test_a_module_without_an_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="model: holds 0 encoders"):
        encoder_of(torch.nn.Linear(2, 2))


# ---- importance ------------------------------------------------------------------------------------------------------


def test_importance_does_not_depend_on_the_batches() -> None:
    model = toy.random_model().double()
    together = importance(model, [BATCH], loss=masked_lm_losses)
    first = {"input_ids": IDS[:1], "mlm_positions": torch.tensor([2, 4]), "mlm_targets": torch.tensor([9, 28])}
    second = {"input_ids": IDS[1:, :4], "mlm_positions": torch.tensor([2]), "mlm_targets": torch.tensor([20])}
    apart = importance(model, [first, second], loss=masked_lm_losses)
    assert together.examples == apart.examples == 2
    torch.testing.assert_close(together.heads, apart.heads, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(together.layers, apart.layers, rtol=1e-9, atol=1e-12)


def test_importance_is_the_mean_size_of_the_gradient_by_the_mask() -> None:
    model = toy.random_model().double().train()
    found = importance(model, [BATCH], loss=masked_lm_losses)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = torch.zeros(2, 4, dtype=torch.float64)
    for row, targets in ((0, [(2, 9), (4, 28)]), (1, [(2, 20)])):
        mask = torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
        ids = IDS[row : row + 1]
        hidden = model.encoder(ids, attention_mask=ids != 0, head_mask=mask).last_hidden_state[0]
        logits = model.mlm_head(hidden, model.encoder.embeddings.word_embeddings.weight)
        loss = torch.stack([-logits[column].log_softmax(0)[target] for column, target in targets]).mean()
        expected += torch.autograd.grad(loss, mask)[0].abs() / 2
    torch.testing.assert_close(found.heads, expected, rtol=1e-9, atol=1e-12)


def test_a_head_that_adds_nothing_matters_nothing() -> None:
    model = toy.random_model()
    with torch.no_grad():
        model.encoder.layers[1].attention.output.weight[:, 8:16] = 0.0
    found = importance(model, [BATCH], loss=masked_lm_losses)
    assert found.heads[1, 1] == 0
    assert (found.heads == 0).sum() == 1
    assert (found.layers > 0).all()
    assert found.least_important_heads(1) == {1: [1]}


def test_one_head_stays_in_every_layer() -> None:
    found = importance(toy.random_model(), [BATCH], loss=masked_lm_losses)
    chosen = found.least_important_heads(99)
    assert [len(chosen[layer]) for layer in (0, 1)] == [3, 3]
    prune_heads(toy.random_model(), chosen)


def test_importance_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="batches: no example was given"):
        importance(toy.random_model(), [], loss=masked_lm_losses)
