"""The optimizers: AdamW for everything, Muon for the matrices inside the network and AdamW for the rest, or LAMB.

In: named parameters, which of them are matrices of the layers, and how deep each lies.  Out: the optimizers whose
`step` updates them, and their state as tensors.  Next: muon.py
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.train.muon import Muon
from bertkit.train.settings import TrainSettings
from bertkit.train.shards import part_like, whole

MOMENTS = 2  # tensors of a weight's size that AdamW keeps; Muon keeps one
PEAK_RATE = "peak_learning_rate"  # key of a parameter group; the schedule multiplies it
# What an optimizer cannot go on without, of each parameter.
_MOMENTS: dict[type, set[str]] = {torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"}, Muon: {"momentum"}}
_MOMENTS_OF_LAMB = {"exp_avg", "exp_avg_sq"}


def build_optimizers(
    module: nn.Module,
    settings: TrainSettings,
    *,
    is_layer_matrix: Callable[[str], bool],
    depth_of: Callable[[str], int] = lambda _: 0,
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a module's trainable parameters.

    is_layer_matrix: by a parameter's name, whether Muon may have it (given --optimizer muon); it must be 2-D.
    depth_of: by a parameter's name, how many layers lie above it, for --layer_decay: the rate is the peak times
        layer_decay to that power (Howard and Ruder 2018's discriminative rates).
    Biases and LayerNorm weights (the 1-D parameters) get no decay.

    Raises:
        InputError: LAMB without its package, or with a model that is cut over processes.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    use_muon = settings.optimizer == "muon"
    groups: dict[tuple[bool, int, bool], list[nn.Parameter]] = {}
    for name, parameter in named:
        is_muons = use_muon and is_layer_matrix(name)
        # Muon makes the matrices of a group orthogonal together, so they are one group where their rate is one. (The
        # others' groups, and so their order, are those of the checkpoints there are.)
        depth = 0 if is_muons and settings.layer_decay == 1 else depth_of(name)
        key = (is_muons, depth, parameter.ndim > 1)
        groups.setdefault(key, []).append(parameter)
    rest: list[dict[str, Any]] = []
    for_muon: list[dict[str, Any]] = []
    for (is_muons, depth, has_decay), parameters in groups.items():
        peak = settings.muon_learning_rate if is_muons else settings.learning_rate
        group = {
            "params": parameters,
            "lr": peak * settings.layer_decay**depth,
            "weight_decay": settings.weight_decay if has_decay else 0.0,
        }
        (for_muon if is_muons else rest).append(group)
    optimizers = [_first_optimizer(rest, settings)] if rest else []
    if for_muon:
        muon = Muon(for_muon[0]["params"], lr=for_muon[0]["lr"], weight_decay=settings.weight_decay)
        for group in for_muon[1:]:
            muon.add_param_group(group)
        optimizers.append(muon)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group[PEAK_RATE] = group["lr"]
    return optimizers


def _first_optimizer(groups: list[dict[str, Any]], settings: TrainSettings) -> torch.optim.Optimizer:
    betas = (settings.adam_beta1, settings.adam_beta2)
    if settings.optimizer != "lamb":
        is_cut = settings.sharding == "fsdp"  # the fused kernel does not know tensors that are cut on a processor
        return torch.optim.AdamW(
            groups, lr=settings.learning_rate, betas=betas, eps=settings.adam_epsilon, fused=not is_cut
        )
    if settings.sharding == "fsdp":
        raise InputError(
            "needs the length of whole tensors, which --sharding fsdp cuts",
            field="--optimizer",
            value="lamb",
            remedy="use adamw or muon, or --sharding none",
        )
    try:
        from pytorch_optimizer import Lamb
    except ImportError:
        raise InputError(
            "is not installed", field="--optimizer", value="lamb", remedy='pip install "bertkit[lamb]"'
        ) from None
    # You et al. 2020, version 3: no bias correction, decay inside the update whose length the trust ratio sets.
    # Without adam_debias the package multiplies the rate by 1 / (1 − β₁ᵗ), ten times the peak in the first step, and
    # counts t where no state_dict has it.
    lamb: torch.optim.Optimizer = Lamb(
        groups,
        lr=settings.learning_rate,
        betas=betas,
        eps=settings.adam_epsilon,
        weight_decouple=False,
        adam_debias=True,
    )
    return lamb


def num_moments(optimizers: list[torch.optim.Optimizer]) -> int:
    """Return how many numbers the optimizers keep: Muon one for each of its weights, the others MOMENTS."""
    return sum(
        parameter.numel() * (1 if isinstance(optimizer, Muon) else MOMENTS)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    )


def rates_now(optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
    """Return the highest rate of each optimizer: `learning_rate`, and Muon's as `muon_learning_rate`."""
    names = ("muon_learning_rate" if isinstance(optimizer, Muon) else "learning_rate" for optimizer in optimizers)
    return {
        name: max(group["lr"] for group in optimizer.param_groups)
        for name, optimizer in zip(names, optimizers, strict=True)
    }


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every group's rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group[PEAK_RATE]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as {"parameter index.key": whole tensor}: all that a resume needs of it.

    Every process must call it where the model is cut over processes.
    """
    return {
        f"{index}.{key}": whole(value)
        for index, entries in optimizer.state_dict()["state"].items()
        for key, value in entries.items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; the groups' settings stay those of the running optimizer.

    Raises:
        ValueError: another optimizer gave it, or one of other parameters.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        if int(index) >= len(parameters):
            raise ValueError(f"moments of more than {len(parameters)} tensors")
        parameter = parameters[int(index)]
        is_cut_too = tensor.shape == parameter.shape  # moments are; the number of steps is not
        if not is_cut_too and tensor.ndim > 0:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, its weight {tuple(parameter.shape)}")
        state.setdefault(int(index), {})[key] = part_like(tensor, parameter) if is_cut_too else tensor
    needed = _MOMENTS.get(type(optimizer), _MOMENTS_OF_LAMB)
    if missing := [key for kept in state.values() for key in sorted(needed - kept.keys())]:
        raise ValueError(f"{missing[0]} is missing")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
