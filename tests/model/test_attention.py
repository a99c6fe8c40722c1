"""attend(): two ways to the same numbers, and what a mask, dropout and a row of padding do to them."""

import math

import pytest
import torch
from torch import Tensor

from bertkit.model.attention import attend

BATCH, HEADS, SEQ, HEAD_DIM = 3, 2, 5, 4
RAGGED = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
WITH_EMPTY_ROW = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()


def inputs(*, seed: int = 0) -> list[Tensor]:
    """Query, key and value (batch, heads, seq, head_dim) in float64, each asking for its gradient."""
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, HEADS, SEQ, HEAD_DIM)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("mask", [None, RAGGED, WITH_EMPTY_ROW], ids=["no mask", "ragged", "a row of padding"])
def test_the_fused_and_the_explicit_way_give_the_same_values_and_gradients(mask: Tensor | None) -> None:
    fused_inputs, explicit_inputs = inputs(), inputs()
    fused, nothing = attend(*fused_inputs, mask=mask)
    explicit, weights = attend(*explicit_inputs, mask=mask, need_weights=True)
    assert nothing is None
    assert weights is not None
    assert weights.shape == (BATCH, HEADS, SEQ, SEQ)
    torch.testing.assert_close(fused, explicit, rtol=0, atol=1e-12)
    upstream = torch.randn(fused.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fused.backward(upstream)
    explicit.backward(upstream)
    for one, other in zip(fused_inputs, explicit_inputs, strict=True):
        assert one.grad is not None
        assert bool(one.grad.isfinite().all())
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)


def test_weights_of_a_token_sum_to_one_and_are_exactly_zero_on_padding() -> None:
    _, weights = attend(*inputs(), mask=RAGGED, need_weights=True)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, SEQ, dtype=torch.float64))
    assert bool((weights.masked_select(~RAGGED[:, None, None, :]) == 0).all())


def test_without_a_mask_every_token_is_read() -> None:
    _, unmasked = attend(*inputs(), need_weights=True)
    _, all_tokens = attend(*inputs(), mask=torch.ones(BATCH, SEQ, dtype=torch.bool), need_weights=True)
    torch.testing.assert_close(unmasked, all_tokens, rtol=0, atol=0)


def test_what_stands_on_padding_changes_nothing() -> None:
    query, key, value = (tensor.detach() for tensor in inputs())
    before, _ = attend(query, key, value, mask=RAGGED)
    padding = ~RAGGED[:, None, :, None]
    after, _ = attend(query, key.masked_fill(padding, 1e3), value.masked_fill(padding, -1e3), mask=RAGGED)
    torch.testing.assert_close(before, after, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_row_of_padding_alone_gets_the_context_zero(dtype: torch.dtype, need_weights: bool) -> None:
    query, key, value = (tensor.detach().to(dtype) for tensor in inputs())
    context, _ = attend(query, key, value, mask=WITH_EMPTY_ROW, need_weights=need_weights)
    assert bool((context[1] == 0).all())
    assert bool(context.isfinite().all())


def test_a_worked_example_by_hand() -> None:
    """Scores 0 and ln 3 give the weights 1/4 and 3/4."""
    query = torch.tensor([[[[1.0]]]], dtype=torch.float64)
    key = torch.tensor([[[[0.0], [math.log(3)]]]], dtype=torch.float64)
    value = torch.tensor([[[[4.0], [8.0]]]], dtype=torch.float64)
    context, weights = attend(query, key, value, need_weights=True)
    torch.testing.assert_close(weights, torch.tensor([[[[0.25, 0.75]]]], dtype=torch.float64))
    torch.testing.assert_close(context, torch.tensor([[[[7.0]]]], dtype=torch.float64))


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_changes_the_context(need_weights: bool) -> None:
    torch.manual_seed(0)
    still, _ = attend(*inputs(), mask=RAGGED, need_weights=need_weights)
    dropped, _ = attend(*inputs(), mask=RAGGED, dropout=0.5, need_weights=need_weights)
    assert not torch.allclose(still, dropped)


def test_the_weights_returned_are_those_before_dropout() -> None:
    torch.manual_seed(0)
    _, still = attend(*inputs(), mask=RAGGED, need_weights=True)
    _, dropped = attend(*inputs(), mask=RAGGED, dropout=0.5, need_weights=True)
    torch.testing.assert_close(still, dropped, rtol=0, atol=0)


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_mean_of_many_dropouts_is_the_context_without_dropout(need_weights: bool) -> None:
    torch.manual_seed(0)
    query, key, value = (tensor.detach()[:1] for tensor in inputs())
    still, _ = attend(query, key, value)
    many = [tensor.expand(5000, -1, -1, -1) for tensor in (query, key, value)]
    dropped, _ = attend(*many, dropout=0.3, need_weights=need_weights)
    torch.testing.assert_close(dropped.mean(0, keepdim=True), still, rtol=0, atol=0.05)
