"""Where training runs: device, number format, random state.

In: TrainSettings.  Out: a Runtime on accelerate's device, and the generators' state to save and restore.
Next: log.py
"""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.train.settings import TrainSettings


@dataclass(frozen=True)
class Runtime:
    """The device and number format that training really got."""

    accelerator: Accelerator
    precision: Literal["fp32", "bf16"]

    @property
    def device(self) -> torch.device:
        """Where the tensors of a forward pass lie."""
        device: torch.device = self.accelerator.device
        return device

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass in the chosen precision."""
        # Not accelerate's: its state is one for the whole process, so that a second run in it could not choose anew.
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def to_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the batch on the device."""
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def description(self) -> dict[str, object]:
        """Return device, precision and threads, for `run.json`."""
        return {
            "device": str(self.device),
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "cpu_count": os.cpu_count(),
        }


def start(settings: TrainSettings) -> Runtime:
    """Return the Runtime, the generators of weights and dropout seeded.

    Raises:
        InputError: more than one process (which a later version will bring).
    """
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.num_processes > 1:
        raise InputError(
            "training in several processes is not there yet",
            field="WORLD_SIZE",
            value=accelerator.num_processes,
            expected="1",
            remedy="start `bertkit pretrain` without torchrun",
        )
    seed(settings.seed)
    return Runtime(accelerator, settings.precision)


def seed(number: int) -> None:
    """Seed the generators that weights and dropout draw from; data has its own numbers (data/random.py)."""
    torch.manual_seed(number)


def generator_state(runtime: Runtime) -> dict[str, Tensor]:
    """Return the state of the generators that dropout draws from, uint8."""
    state = {"cpu": torch.get_rng_state()}
    if runtime.device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(runtime.device)
    return state


def restore_generators(runtime: Runtime, state: dict[str, Tensor]) -> None:
    """Put back what `generator_state` gave."""
    torch.set_rng_state(state["cpu"])
    if runtime.device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], runtime.device)


def gradient_norm(module: nn.Module) -> Tensor:
    """Return the length of the whole gradient, (), taken over all parameters that have one."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)
