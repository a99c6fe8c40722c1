"""The optimizers: AdamW for everything, or Muon for the matrices inside the network and AdamW for the rest.

In: named parameters, and which of them are matrices of the layers.  Out: the optimizers whose `step` updates them.
Next: state.py
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from bertkit.train.settings import TrainSettings

# Quintic Newton–Schulz coefficients and the number of steps: Keller Jordan's Muon (2024).
_NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
MUON_MOMENTUM = 0.95
PEAK_RATE = "peak_learning_rate"  # key of a parameter group; the schedule multiplies it


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, for 2-D parameters; in fp32 throughout.

    The update of a matrix has all singular values near 1, times √max(1, rows / columns). Matrices of one shape are
    orthogonalised together.

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
            directions.append(gradient.lerp(momentum, MUON_MOMENTUM))  # Nesterov's look ahead
        rows, columns = parameters[0].shape
        scale = max(1.0, rows / columns) ** 0.5
        for parameter, update in zip(parameters, orthogonalise(torch.stack(directions)), strict=True):
            parameter.mul_(1.0 - rate * weight_decay).add_(update, alpha=-rate * scale)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (count, rows, columns) with the same singular vectors and singular values of 0.68 to 1.21.

    Those below 0.0015 of the matrix's length stay smaller: five steps do not lift them.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.transpose(1, 2)  # (count, short, short)
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.transpose(1, 2) if tall else x
    return result


def build_optimizers(
    module: nn.Module, settings: TrainSettings, *, is_layer_matrix: Callable[[str], bool]
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a module's trainable parameters.

    is_layer_matrix: by a parameter's name, whether Muon may have it (given --optimizer muon); it must be 2-D.
    Biases and LayerNorm weights (the 1-D parameters) get no decay.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    use_muon = settings.optimizer == "muon"
    for_muon = [parameter for name, parameter in named if use_muon and is_layer_matrix(name)]
    taken = {id(parameter) for parameter in for_muon}
    rest = [parameter for _, parameter in named if id(parameter) not in taken]
    groups = [
        {"params": [p for p in rest if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.learning_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            eps=settings.adam_epsilon,
            fused=True,
        )
    ]
    if for_muon:
        optimizers.append(Muon(for_muon, lr=settings.muon_learning_rate, weight_decay=settings.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group[PEAK_RATE] = group["lr"]
    return optimizers


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every group's rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group[PEAK_RATE]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as {"parameter index.key": tensor}: all that a resume needs of it."""
    return {
        f"{index}.{key}": value
        for index, entries in optimizer.state_dict()["state"].items()
        for key, value in entries.items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; the groups' settings stay those of the running optimizer."""
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
