"""Products by oneDNN are those of F.linear, and so are their gradients; where it is not to be used, it is not."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit import products
from bertkit.products import Linear, linear, product, times_transposed

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch was built without oneDNN",
)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor of another maker than MKL's."""
    monkeypatch.setattr(products, "has_slow_mkl", lambda: True)


def results(x: Tensor, weight: Tensor, bias: Tensor | None, *, ours: bool) -> list[Tensor]:
    """The output, and the gradients by all inputs of a loss that weighs every output."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
    output = (linear if ours else F.linear)(inputs[0], inputs[1], inputs[2] if bias is not None else None)
    torch.manual_seed(1)
    (output * torch.randn(output.shape)).sum().backward()
    return [output.detach(), *(tensor.grad for tensor in inputs)]


@needs_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12), (1, 12), (2, 3, 4, 12)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_outputs_and_gradients_are_those_of_torch(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(9, 12), torch.randn(9)
    given = (x, weight, bias if has_bias else None)
    for ours, theirs in zip(results(*given, ours=True), results(*given, ours=False), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_views_that_are_not_contiguous_are_taken() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(12, 7).t(), torch.randn(30, 12)[::3]
    torch.testing.assert_close(linear(x, weight, None), F.linear(x, weight), rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = Linear(4, 3)
    layer.weight.requires_grad_(False)
    x = torch.randn(2, 4, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None
    torch.testing.assert_close(layer.bias.grad, torch.full((3,), 2.0))


@needs_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_torchs_own(dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    assert torch.equal(linear(x, weight, None), F.linear(x, weight))


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_autocast_keeps_its_dtype() -> None:
    layer = Linear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.randn(2, 4)).dtype == torch.bfloat16


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_a_batch_without_rows_is_taken() -> None:
    layer = Linear(4, 3)
    layer(torch.randn(0, 4)).sum().backward()
    assert torch.equal(layer.weight.grad, torch.zeros(3, 4))


@needs_onednn
@pytest.mark.parametrize("slow", [True, False])
def test_a_stack_of_matrices_is_multiplied_one_by_one(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    monkeypatch.setattr(products, "has_slow_mkl", lambda: slow)
    torch.manual_seed(0)
    left, right = torch.randn(3, 4, 6), torch.randn(3, 5, 6)
    torch.testing.assert_close(times_transposed(left, right), left @ right.mT, rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize(("inner", "rows", "columns"), [(3, 4, 5), (9, 8, 3)])
@pytest.mark.parametrize("bias", [None, 1.0])
def test_a_product_takes_transposed_views(
    monkeypatch: pytest.MonkeyPatch, slow: bool, inner: int, rows: int, columns: int, bias: float | None
) -> None:
    monkeypatch.setattr(products, "has_slow_mkl", lambda: slow)
    torch.manual_seed(0)
    left, right = torch.randn(inner, rows), torch.randn(inner, columns)
    added = None if bias is None else torch.arange(columns) * bias
    found = product(left.t(), right, added)
    assert found.is_contiguous()
    expected = left.t() @ right if added is None else left.t() @ right + added
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(("inner", "first"), [(4, (8, 4)), (5, (3, 5))])
def test_the_first_factor_is_the_one_that_costs_less_to_copy(
    monkeypatch: pytest.MonkeyPatch, inner: int, first: tuple[int, int]
) -> None:
    """8 · inner numbers, or 3 · inner and the 8 · 3 of the result."""
    seen, multiply = [], products._by_onednn
    monkeypatch.setattr(products, "_by_onednn", lambda *factors: seen.append(factors[0].shape) or multiply(*factors))
    product(torch.randn(inner, 8).t(), torch.randn(inner, 3))
    assert seen == [first]


def test_an_intel_processor_stays_with_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities = {"avx2": True, "cpu_name": "Intel(R) Xeon(R) Gold"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert not products.has_slow_mkl.__wrapped__()
    capabilities["cpu_name"] = "AMD EPYC"
    built_with_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    assert products.has_slow_mkl.__wrapped__() == built_with_both
