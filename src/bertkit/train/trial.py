"""What is tried before the first step, and leaves no trace: the longest batch, the speed of steps, the machine's rate.

In: a Job.  Out: an error before hours are lost; steps a minute; operations a second.  Next: loop.py
"""

import time
from statistics import median

import torch

from bertkit.console import Progress
from bertkit.errors import InputError
from bertkit.products import linear
from bertkit.train.feed import feed
from bertkit.train.loop import Job, LossSums, update
from bertkit.train.optimizer import MOMENTS
from bertkit.train.runtime import Runtime, seed_dropout
from bertkit.train.state import TrainState

MEASURED_STEPS, MEASURED_SECONDS = 20, 5.0  # at least this much is run to tell how many steps fit into minutes
MOST_MEASURED = 10**6
MATRIX_SIZE = {"cpu": 512}  # rows and columns of the matrices whose product is timed: 10 ms on a processor
LARGE_MATRIX, MATRIX_ROUNDS = 4096, 5  # elsewhere: small ones do not fill a GPU


def try_longest_batch(job: Job) -> None:
    """Run the largest micro-batch there can be forward and backward, with room taken for the optimizer's moments.

    (Under DDP this also settles the order in which gradients are summed, so that a resumed run has it from its first
    step.)

    Raises:
        InputError: memory does not suffice.
    """
    batch = job.source.longest()
    parameters = [parameter for parameter in job.module.module.parameters() if parameter.requires_grad]
    started = any(optimizer.state for optimizer in job.optimizers)
    try:
        room = [torch.empty_like(p) for p in parameters for _ in range(0 if started else MOMENTS)]
        job.module.module.train()
        seed_dropout(job.settings.seed, step=0, micro_batch=0)
        with job.runtime.answering(), job.module.gradients(exchanged=True):
            with job.runtime.autocast():
                found: LossSums = job.module(job.runtime.to_device(batch))
            torch.autograd.backward(torch.stack(list(found.sums.values())).sum())
        del room
    except RuntimeError as problem:
        if not isinstance(problem, torch.OutOfMemoryError) and "not enough memory" not in str(problem):
            raise
        rows, width = batch["input_ids"].shape[:2]
        raise InputError(
            f"memory does not suffice for {rows} rows of {width} tokens ({str(problem).splitlines()[0]})",
            field="--micro_batch_tokens",
            value=job.settings.micro_batch_tokens,
            remedy="lower it (results stay the same), or use --gradient_checkpointing, --precision bf16, or a smaller "
            "model",
        ) from None
    finally:
        for optimizer in job.optimizers:
            optimizer.zero_grad(set_to_none=True)


def seconds_a_step(job: Job) -> float:
    """Return how long a step takes here: at least 20 steps and 5 seconds are run, which change the job's weights."""
    seconds: list[float] = []
    state = TrainState()
    batches = feed(job.source, start=0, end=MOST_MEASURED, workers=0, pin_memory=False)
    with job.runtime.answering(), Progress("measuring", total=None, unit="steps") as progress:
        # How long is asked of all processes, so that all make equally many steps.
        while len(seconds) < MEASURED_STEPS or max(job.runtime.gathered([sum(seconds)]))[0] < MEASURED_SECONDS:
            began = time.perf_counter()
            update(job, state, batches)
            seconds.append(time.perf_counter() - began)
            state.step += 1
            progress.advance()
    # The median of blocks of four: a step's time varies with its batch, and the first ones warm up.
    blocks = [sum(seconds[i : i + 4]) / 4 for i in range(4, len(seconds) - 3, 4)]
    return max(job.runtime.gathered([median(blocks)]))[0]


def matrix_rate(runtime: Runtime) -> float:
    """Return the operations a second of matrix products on all processes, in the precision of training, measured."""
    size = MATRIX_SIZE.get(runtime.device.type, LARGE_MATRIX)
    left, right = (torch.randn(size, size, device=runtime.device) for _ in range(2))
    seconds = []
    with runtime.autocast():
        for _ in range(MATRIX_ROUNDS):
            began = time.perf_counter()
            product = linear(left, right, None)  # as the layers make theirs
            product[0, 0].item()  # a GPU is done when a number is here
            seconds.append(time.perf_counter() - began)
    return sum(runtime.sums([2 * size**3 / min(seconds)]))
