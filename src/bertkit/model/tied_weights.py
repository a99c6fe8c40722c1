"""One matrix, used twice in a pass: looked up at the bottom, multiplied at the top; its gradient is made once.

In: the embedding matrix.  Out: the same matrix for each of its uses.  Next: heads.py (which asks for it)
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertkit.products import is_plain


def two_uses(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return a matrix (rows, columns) to look up in and the same one to multiply, or None where that gains nothing.

    By itself each use has a dense gradient, and both are added up, which is a tenth of a small model's step where the
    vocabulary is large. Here the gradient of the rows looked up is sparse, by `F.embedding(…, sparse=True)`, and is
    added to that of the product, in its memory: the second matrix has to go into one product and nothing else. On the
    processor only.
    """
    may_be_sparse = weight.device.type == "cpu" and is_plain(weight) and not torch.compiler.is_compiling()
    if not (may_be_sparse and weight.requires_grad and torch.is_grad_enabled()):
        return None
    looked_up, multiplied = _TwoUses.apply(weight)  # type: ignore[no-untyped-call]
    return looked_up, multiplied


class _TwoUses(torch.autograd.Function):
    """The gradient is the sum of both, made in the memory of the product's."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return weight.view_as(weight), weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_lookup: Tensor | None, by_product: Tensor | None) -> Tensor | None:
        if by_product is None:
            return None if by_lookup is None else by_lookup.to_dense()
        return by_product if by_lookup is None else by_product.add_(by_lookup)
