"""A running average of the weights (EMA), which is evaluated and kept in their place.

In: a module after each update.  Out: the averaged weights.  Next: parallel.py
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertkit.train.shards import whole


class Average:
    """average ← decay · average + (1 − decay) · weight, after each update; it begins as the weights themselves."""

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        self._module, self._decay = module, decay
        self.tensors = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of now."""
        for name, parameter in self._module.named_parameters():
            self.tensors[name].lerp_(parameter.detach(), 1.0 - self._decay)

    def whole_weights(self) -> dict[str, Tensor]:
        """Return every averaged parameter by name, whole; under FSDP2 every process must call it."""
        return {name: whole(tensor) for name, tensor in self.tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back an average; the tensors are cut as the parameters are."""
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)
