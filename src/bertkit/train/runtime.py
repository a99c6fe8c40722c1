"""Where training runs: device, number format, processes and what they tell each other, random state.

In: TrainSettings, and what `torchrun` or `accelerate launch` have put into the environment.  Out: a Runtime.
Next: parallel.py
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor

from bertkit.allocator import keep_freed_memory
from bertkit.errors import InputError
from bertkit.train.settings import Precision, Sharding, TrainSettings
from bertkit.train.signals import StopFlag
from bertkit.train.watchdog import Watchdog

# A collective must end some day even where --hang_timeout is 0; PyTorch's own default.
DEFAULT_TIMEOUT = 1800.0  # seconds
_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Runtime:
    """The device, number format and processes that training really got."""

    device: torch.device
    precision: Precision = "fp32"
    sharding: Sharding = "none"
    rank: int = 0
    num_ranks: int = 1
    control: dist.ProcessGroup | None = None  # between processors, so that asking costs no wait for a GPU
    stop: StopFlag = field(default_factory=StopFlag)
    watchdog: Watchdog = field(default_factory=lambda: Watchdog(0))

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass in the chosen precision."""
        # Not accelerate's: its state is one for the whole process, so that a second run in it could not choose anew.
        return torch.autocast(
            self.device.type, dtype=_FORMATS.get(self.precision, torch.bfloat16), enabled=self.precision != "fp32"
        )

    def to_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the batch on the device."""
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def gathered(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of every process, by rank; all processes give equally many."""
        if self.control is None:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.float64)
        everyones = [torch.empty_like(mine) for _ in range(self.num_ranks)]
        with self.answering():
            dist.all_gather(everyones, mine, group=self.control)
        return [tensor.tolist() for tensor in everyones]

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """Return each number summed over the processes, in the order of their ranks: the same on all of them."""
        return [sum(column) for column in zip(*self.gathered(numbers), strict=True)]

    def take_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors on the processor, of the same shapes in every process, by those of the first process."""
        if self.control is None:
            return
        with self.answering():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0, group=self.control)

    def wait_for_all(self) -> None:
        """Return when every process has come here."""
        self.gathered([0.0])

    def asked_to_stop(self) -> int:
        """Return the signal that any process has received, 0 for none: the same answer on all of them."""
        return int(max(row[0] for row in self.gathered([self.stop.received])))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn the failure of a collective inside into one message.

        Raises:
            InputError: another process is gone, or has not answered in time.
        """
        try:
            yield
        except RuntimeError as problem:
            text = str(problem)
            if self.num_ranks == 1 or not (isinstance(problem, dist.DistError) or "gloo" in text or "NCCL" in text):
                raise
            raise InputError(
                f"process {self.rank} of {self.num_ranks}: another process of this run is gone, or has not answered "
                f"within --hang_timeout ({text.splitlines()[0][-200:]})",
                remedy="look for the first error among the processes' outputs; then go on by --resume_from last",
            ) from problem

    def description(self) -> dict[str, object]:
        """Return device, precision, processes and threads, for `run.json`."""
        return {
            "device": str(self.device),
            "precision": self.precision,
            "sharding": self.sharding,
            "processes": self.num_ranks,
            "threads": torch.get_num_threads(),
            "cpu_count": os.cpu_count(),
        }


def start(settings: TrainSettings) -> Runtime:
    """Return the Runtime, the generator of weights seeded; several processes meet here. A processor keeps freed memory.

    Raises:
        InputError: a precision or sharding that this machine does not give, or processes that do not meet.
    """
    timeout = timedelta(seconds=settings.hang_timeout or DEFAULT_TIMEOUT)
    try:
        num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
        # Without cpu=True accelerate leaves processes without a GPU each alone, and says nothing.
        on_cpu = not torch.accelerator.is_available()
        state = PartialState(cpu=on_cpu, timeout=timeout) if num_ranks > 1 else PartialState(cpu=on_cpu)
        control = dist.new_group(backend="gloo", timeout=timeout) if num_ranks > 1 else None
    except (RuntimeError, ValueError) as problem:
        raise InputError(
            f"the processes of this run did not meet ({str(problem).splitlines()[0]})",
            field="WORLD_SIZE",
            value=os.environ.get("WORLD_SIZE"),
            remedy="start them by torchrun or accelerate launch; on several hosts check MASTER_ADDR and MASTER_PORT",
        ) from None
    device: torch.device = state.device
    _require_what_was_asked(settings, device, num_ranks)
    if state.num_processes != num_ranks:
        raise InputError(
            "is not the number of processes that met",
            field="WORLD_SIZE",
            value=num_ranks,
            expected=str(state.num_processes),
        )
    seed(settings.seed)
    if device.type == "cpu":
        keep_freed_memory()
    return Runtime(
        device=device,
        precision=settings.precision,
        sharding=settings.sharding,
        rank=dist.get_rank() if num_ranks > 1 else 0,
        num_ranks=num_ranks,
        control=control,
        watchdog=Watchdog(settings.hang_timeout),
    )


def _require_what_was_asked(settings: TrainSettings, device: torch.device, num_ranks: int) -> None:
    """Refuse what would be ignored or made slow without a word."""
    if settings.precision == "fp16" and device.type == "cpu":
        raise InputError(
            "is for GPUs: a processor computes it more slowly than fp32",
            field="--precision",
            value="fp16",
            expected="fp32, or bf16 on a processor with AMX or AVX-512 BF16",
        )
    if (
        settings.precision == "bf16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise InputError("is not what this GPU computes", field="--precision", value="bf16", remedy="use fp16 or fp32")
    if settings.attention == "packed" and device.type != "cuda":
        raise InputError("is a kernel of CUDA devices", field="--attention", value="packed", remedy="leave it away")
    if settings.sharding == "fsdp" and num_ranks == 1:
        raise InputError(
            "cuts the model over processes, but there is one",
            field="--sharding",
            value="fsdp",
            remedy="start by torchrun --nproc_per_node N, or leave it away",
        )


def seed(number: int) -> None:
    """Seed the generator that new weights are drawn from; data has its own numbers (data/random.py)."""
    torch.manual_seed(number)


def seed_dropout(seed: int, *, step: int, micro_batch: int) -> None:
    """Seed the generator that dropout draws from: a function of the micro-batch, whichever process computes it.

    So a resume needs no state of a generator, and any number of processes drops the same activations.
    """
    digest = hashlib.sha256(f"{seed} dropout {step} {micro_batch}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def make_shared_folder(directory: Path, runtime: Runtime) -> None:
    """Make the run's folder, and check that every process sees it.

    Raises:
        InputError: one does not.
    """
    if runtime.is_first:
        directory.mkdir(parents=True, exist_ok=True)
    runtime.wait_for_all()
    unseen = sum(runtime.sums([0.0 if directory.is_dir() else 1.0]))
    if unseen:
        raise InputError(
            f"is not seen by {unseen:.0f} of the {runtime.num_ranks} processes",
            file=directory,
            field="--output_dir",
            expected="a folder on a disk that all hosts share",
        )
