"""A matrix used twice: its gradient is that of both uses, however they are added up."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.model import tied_weights
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.tied_weights import two_uses

IDS = torch.tensor([3, 1, 3, 0, 2, 1])


def gradient(weight: nn.Parameter, looked_up: Tensor, multiplied: Tensor, *, lookup: bool, product: bool) -> Tensor:
    torch.manual_seed(0)
    words = F.embedding(IDS, looked_up, padding_idx=0, sparse=looked_up is not weight)
    losses = [words.sin().sum()] * lookup + [
        (torch.randn(3, 4, dtype=weight.dtype) @ multiplied.T).cos().sum()
    ] * product
    [found] = torch.autograd.grad(torch.stack(losses).sum(), weight)
    return found


@pytest.mark.parametrize(("lookup", "product"), [(True, True), (True, False), (False, True)])
def test_the_gradient_is_that_of_both_uses(lookup: bool, product: bool) -> None:
    torch.manual_seed(1)
    weight = nn.Parameter(torch.randn(5, 4, dtype=torch.float64))
    uses = two_uses(weight)
    assert uses is not None
    found = gradient(weight, *uses, lookup=lookup, product=product)
    assert found.layout == torch.strided  # optimizers take no other
    torch.testing.assert_close(found, gradient(weight, weight, weight, lookup=lookup, product=product))


def test_a_matrix_without_gradient_is_used_as_it_is() -> None:
    weight = nn.Parameter(torch.randn(5, 4))
    assert two_uses(nn.Parameter(weight, requires_grad=False)) is None
    with torch.no_grad():
        assert two_uses(weight) is None


def test_other_devices_compilers_and_subclasses_use_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(Tensor):
        pass

    weight = torch.randn(5, 4, requires_grad=True)
    assert two_uses(weight.to("meta")) is None
    assert two_uses(weight.as_subclass(Cut)) is None  # type: ignore[no-untyped-call]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert two_uses(weight) is None


def small_config(**values: Any) -> BertConfig:
    shape = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertConfig(vocab_size=11, **shape, **none, **values)


def test_the_encoder_looks_up_in_the_matrix_it_is_given() -> None:
    torch.manual_seed(2)
    encoder, ids = Encoder(small_config()), torch.randint(0, 11, (3, 7))
    matrix = encoder.embeddings.word_embeddings.weight
    found = encoder(ids, word_matrix=2 * matrix).last_hidden_state
    with torch.no_grad():
        matrix.mul_(2)
    torch.testing.assert_close(found, encoder(ids).last_hidden_state)
    with pytest.raises(AssertionError, match="sparse gradient"):
        encoder(ids, word_matrix=nn.Parameter(matrix.clone()))
    with pytest.raises(AssertionError):
        encoder(ids, word_matrix=2 * matrix[:, :1])


def test_in_training_the_rows_looked_up_have_a_sparse_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts, backward = [], tied_weights._TwoUses.backward
    monkeypatch.setattr(
        tied_weights._TwoUses,
        "backward",
        staticmethod(lambda ctx, *both: layouts.append([each.layout for each in both]) or backward(ctx, *both)),
    )
    model = PretrainingModel(small_config())
    logits, _ = model.logits_where_read(torch.randint(0, 11, (3, 7)), mlm_positions=torch.tensor([1, 9]))
    logits.logsumexp(dim=1).sum().backward()
    assert layouts == [[torch.sparse_coo, torch.strided]]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_gets_the_gradients_of_the_plain_pass(tied: bool, frozen: bool) -> None:
    """Twice, as gradients of micro-batches are added up; [PAD] in a row takes no gradient from being looked up."""
    torch.manual_seed(2)
    model = PretrainingModel(small_config(tie_word_embeddings=tied)).double()
    matrix = model.encoder.embeddings.word_embeddings.weight.requires_grad_(not frozen)
    ids, positions = torch.randint(0, 11, (2, 3, 7)), torch.tensor([1, 9, 20])
    found = []
    for sparse in (True, False):
        model.zero_grad()
        for batch in ids:
            if sparse:
                mlm, nsp = model.logits_where_read(batch, mlm_positions=positions)
            else:
                output = model(batch, mlm_positions=positions)
                mlm, nsp = output.mlm_logits, output.nsp_logits
            assert mlm is not None
            assert nsp is not None
            (mlm.logsumexp(dim=1).sum() + nsp.logsumexp(dim=1).sum()).backward()
        found.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert (matrix.grad is None) == frozen
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)
