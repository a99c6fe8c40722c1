"""Muon: momentum whose update is made orthogonal, for the matrices inside a network.

In: 2-D parameters with gradients.  Out: the parameters updated.  Next: optimizer.py
"""

from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor, nn

from bertkit.products import times_transposed
from bertkit.train.shards import part_like, whole

# Quintic Newton–Schulz coefficients and the number of steps: Keller Jordan's Muon (2024).
_NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
MUON_MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, for 2-D parameters; in fp32 throughout.

    The update of a matrix has all singular values near 1, times √max(1, rows / columns). Matrices of one shape are
    orthogonalised together. Of matrices that are cut over processes (FSDP2) each update is brought together first, as
    a part of a matrix has other singular vectors than the whole.

    Source: Jordan et al. 2024. torch.optim.Muon iterates in bf16, which a CPU only emulates.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float) -> None:
        super().__init__(list(parameters), {"lr": lr, "weight_decay": weight_decay})
        assert all(parameter.ndim == 2 for group in self.param_groups for parameter in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self._update(parameters, rate=group["lr"], weight_decay=group["weight_decay"])

    def _update(self, parameters: list[nn.Parameter], *, rate: float, weight_decay: float) -> None:
        directions = []
        for parameter in parameters:
            gradient = cast(Tensor, parameter.grad)
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"]
            momentum.lerp_(gradient, 1.0 - MUON_MOMENTUM)
            directions.append(whole(gradient.lerp(momentum, MUON_MOMENTUM)))  # Nesterov's look ahead
        rows, columns = parameters[0].shape
        scale = max(1.0, rows / columns) ** 0.5
        for parameter, update in zip(parameters, orthogonalise(torch.stack(directions)), strict=True):
            parameter.mul_(1.0 - rate * weight_decay).add_(part_like(update, parameter), alpha=-rate * scale)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (count, rows, columns) with the same singular vectors and singular values of 0.68 to 1.21.

    Those below 0.0015 of the matrix's length stay smaller: five steps do not lift them.
    """
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    # A GPU may round factors to TF32, which the powers of squares do not bear.
    x = all_at_once(x) if x.device.type == "cpu" else one_by_one(x)
    return x.transpose(1, 2) if tall else x


def one_by_one(x: Tensor) -> Tensor:
    """Return x (count, short, long), of length 1, after all steps, each times a + b · x · xᵀ + c · (x · xᵀ)²."""
    a, _, _ = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_STEPS):
        rest = _squares(times_transposed(x, x))
        x = times_transposed(rest, x.transpose(1, 2)).add_(x, alpha=a)
    return x


def all_at_once(x: Tensor) -> Tensor:
    """Return what `one_by_one` does, for two thirds of the work where x is three or four times as long as short.

    What x is multiplied by is as small as its shorter side, and commutes with all that is made of x · xᵀ: the steps are
    made on that, and x is multiplied once, by the product of all. In float32 equal to 1.5e-3 of its length.
    """
    a, _, _ = _NEWTON_SCHULZ
    gram = times_transposed(x, x)  # (count, short, short), symmetric, as all that is made of it
    step = product = _squares(gram)
    step.diagonal(dim1=1, dim2=2).add_(a)
    for _ in range(_NEWTON_SCHULZ_STEPS - 1):
        gram = times_transposed(times_transposed(step, gram), step)
        step = _squares(gram)
        step.diagonal(dim1=1, dim2=2).add_(a)
        product = times_transposed(step, product)
    return times_transposed(product, x.transpose(1, 2))


def _squares(gram: Tensor) -> Tensor:
    """What a step multiplies by, but for a times the identity: b · gram + c · gram²."""
    _, b, c = _NEWTON_SCHULZ
    return times_transposed(gram, gram).mul_(c).add_(gram, alpha=b)
