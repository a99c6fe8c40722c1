"""One module on many processes: copied to each (DDP) or cut over them (FSDP2), and its whole weights again.

In: a module, the parts of it that are cut one by one, a Runtime.  Out: a ParallelModule.  Next: loop.py
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from bertkit.train.average import Average
from bertkit.train.runtime import Runtime
from bertkit.train.shards import part_like, whole


class ParallelModule:
    """A module that trains on all processes of a Runtime; a call gives what the module's forward gives.

    module: the module whose parameters the optimizers change; cut over the processes under FSDP2.
    evaluated: what is evaluated and saved: the same module, or a plain copy where that one is cut or averaged.
    """

    def __init__(self, module: nn.Module, runtime: Runtime, *, units: Sequence[nn.Module], ema_decay: float | None):
        self._runtime = runtime
        needs_copy = ema_decay is not None or runtime.sharding == "fsdp"
        self.evaluated = copy.deepcopy(module) if needs_copy else module
        self.module = module
        self._forward: Callable[[dict[str, Tensor]], Any] = module
        if runtime.sharding == "fsdp":
            for unit in units:
                fully_shard(unit)
            fully_shard(module)
        elif runtime.num_ranks > 1:
            self._forward = DistributedDataParallel(
                module, device_ids=[runtime.device] if runtime.device.type == "cuda" else None
            )
        self.average = None if ema_decay is None else Average(module, decay=ema_decay)

    def __call__(self, batch: dict[str, Tensor]) -> Any:
        """Return what the module gives for a batch."""
        return self._forward(batch)

    @contextmanager
    def gradients(self, *, exchanged: bool) -> Iterator[None]:
        """Let a forward and backward pass inside add to the gradients; `exchanged`: and then sum them over processes.

        A sum because a loss is multiplied by `loss_factor` first: both DDP and FSDP2 take the mean over processes.
        """
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(exchanged)
            yield
        elif isinstance(self._forward, DistributedDataParallel) and not exchanged:
            with self._forward.no_sync():
                yield
        else:
            yield

    @property
    def loss_factor(self) -> int:
        """What turns the mean of gradients over the processes into their sum."""
        return self._runtime.num_ranks

    def gradient_norm(self) -> Tensor:
        """Return the length of the whole gradient, (), over all parameters that have one and all processes."""
        gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        with self._runtime.answering():
            return whole(torch.nn.utils.get_total_norm(gradients))

    def refresh(self) -> nn.Module:
        """Return `evaluated` with the weights of now (the averaged ones, where there is an average), in eval mode.

        Every process must call it: under FSDP2 the parts are brought together.
        """
        if self.evaluated is not self.module:
            weights = self.whole_weights() if self.average is None else self.average.whole_weights()
            self.evaluated.load_state_dict(weights, strict=False)
        return self.evaluated.eval()

    def whole_weights(self) -> dict[str, Tensor]:
        """Return every parameter by name, whole; every process must call it."""
        return {name: whole(parameter.detach()) for name, parameter in self.module.named_parameters()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Set every parameter to the whole tensor of its name."""
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.copy_(part_like(weights[name], parameter))
