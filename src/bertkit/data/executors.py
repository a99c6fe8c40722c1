"""Who does the work of preparation: this process, several processes, or the workers of a Dask cluster.

In: how many, or where.  Out: a concurrent.futures.Executor, or None for this process alone, and how many work.
Next: helpers.py
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from bertkit.errors import InputError

SWITCH_SECONDS = 0.0002  # Python's own 0.005 are as long as a chunk: a worker stood still while we held the interpreter
DASK_TIMEOUT = "10s"  # for the scheduler to answer


@contextmanager
def open_executor(
    *, workers: int, dask: str | None, at_start: Callable[[], None] | None = None
) -> Iterator[tuple[Executor | None, int]]:
    """Yield what runs the work, and how many work; it ends with the block.

    workers: processes, this one among them: the executor has one less.
    at_start: what each new process of our own does first; not done by Dask's workers, which are not ours.

    Raises:
        InputError: no Dask installed, or no scheduler at the address.
    """
    if dask is not None:
        with _dask_executor(dask) as executor_and_size:
            yield executor_and_size
    elif workers == 1:
        yield None, 1
    else:
        # Fresh processes: a fork of a process whose tokenizer has started threads may never wake up.
        context = multiprocessing.get_context("spawn")
        with (
            _quick_switches(),
            ProcessPoolExecutor(workers - 1, mp_context=context, initializer=at_start) as executor,
        ):
            yield executor, workers


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Have this process's threads take turns quickly: the executor's hand over work while the main one encodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("needs Dask", field="--dask", value=address, remedy='pip install "bertkit[cluster]"') from None
    try:
        client = Client(address, timeout=DASK_TIMEOUT)
    except (OSError, ValueError) as problem:
        raise InputError(
            f"gives no scheduler ({problem})",
            field="--dask",
            value=address,
            expected="tcp://HOST:PORT",
            remedy="start one with `dask scheduler` and workers with `dask worker ADDRESS`",
        ) from None
    with client, client.get_executor(pure=False) as executor:
        yield executor, max(1, sum(client.nthreads().values()))
