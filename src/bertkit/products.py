"""Matrix products by the library that is fast on this processor.

In: activations, a weight matrix, a bias.  Out: what F.linear gives, to rounding, and its gradients.
Next: model/ (all of whose linear layers these are), train/muon.py
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Linear(nn.Linear):
    """nn.Linear whose products are made by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (…, out_features) for (…, in_features)."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x · weightᵀ + bias, (…, out), for x (…, in), weight (out, in) and bias (out,).

    In float32 on an x86 processor that is not Intel's, oneDNN makes the products: torch calls MKL, which takes its
    slow path there (docs/performance.md). Everything else is F.linear.
    """
    if not _takes_onednn(x, weight):
        return F.linear(x, weight, bias)
    output: Tensor = _LinearByOneDNN.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return left · right + bias, (n, m), for (n, k), (k, m) and (m,); either factor may be a transposed view.

    To be called where no gradient is recorded: it may have none.
    """
    if not _takes_onednn(left, right):
        found = left @ right
        return found if bias is None else found.add_(bias)
    if bias is None and not left.is_contiguous() and left.numel() > right.numel() + left.size(0) * right.size(1):
        # torch copies a first factor that is a transposed view, n · k numbers, before oneDNN gets it. The transposed
        # product has the other one in its place, k · m numbers, and its result, n · m, is copied too.
        return _by_onednn(right.t(), left).t().contiguous()
    return _by_onednn(left, right.t(), bias)


def times_transposed(left: Tensor, right: Tensor) -> Tensor:
    """Return left · rightᵀ, (count, n, m), for (count, n, k) and (count, m, k), as `product`: without a gradient."""
    if not _takes_onednn(left, right):
        return left @ right.transpose(1, 2)
    return torch.stack([_by_onednn(one, other) for one, other in zip(left, right, strict=True)])


def _takes_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        has_slow_mkl()
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and not stays_with_torch(x, weight)
    )


def stays_with_torch(*tensors: Tensor) -> bool:
    """Return whether a compiler, autocast or a subclass has to see torch's own operators, on the first one's device."""
    return (
        torch.compiler.is_compiling()  # the compiler chooses for itself; an export stays with public operators
        or torch.is_autocast_enabled(tensors[0].device.type)
        or not all(map(is_plain, tensors))
    )


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is of no subclass: no tracer's, and no DTensor (FSDP2's weights are none in a pass)."""
    return type(tensor) in (Tensor, nn.Parameter)


@functools.cache
def has_slow_mkl() -> bool:
    """Whether torch makes float32 products by MKL on a processor of another maker, and oneDNN is there instead."""
    capabilities = torch.cpu.get_capabilities()
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and bool(capabilities.get("avx2"))
        and "Intel" not in str(capabilities.get("cpu_name", "Intel"))
    )


def round_rows() -> int:
    """Return the number of which the rows of a product had better be a multiple: oneDNN builds its code anew for each.

    Building takes as long as the product of a small model's layer itself.
    """
    return 32 if has_slow_mkl() else 1


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias by oneDNN; either may be a transposed view."""
    output: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return output


class _LinearByOneDNN(torch.autograd.Function):
    """The three products of a linear layer: its output, and the gradients by its input and by its weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        by_x, by_weight, by_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.size(-1))  # (n, out)
        return (
            _by_onednn(gradient, weight.t()) if by_x else None,
            product(rows.t(), x.reshape(-1, x.size(-1))) if by_weight else None,
            rows.sum(dim=0) if by_bias else None,
        )
