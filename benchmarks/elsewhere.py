"""A contender in a process of its own: what one library sets there (an allocator, say) does not serve the others.

In: a function that makes a contender.  Out: the same contender, which makes a step when asked, and waits in between.
Next: pretraining.py, time_to_loss.py
"""

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
import transformers
from contenders import Contender, Step

PATIENCE = 30.0  # seconds that a process has to clear up before it is ended


class Elsewhere:
    """A contender that another process makes and runs, one step when it is asked.

    make: is called there before this returns; it has to be a function of a module, or a partial of one, whose
        arguments pickle.

    Raises:
        RuntimeError: the process failed, here or in a step; what it said stands on its standard error.
    """

    def __init__(self, make: Callable[[], Contender]) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would have this one's allocator
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, torch.get_num_threads()), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._answer()  # it is ready
        except BaseException:
            self.close()
            raise

    def step(self) -> Step:
        """Make one update."""
        self._pipe.send("step")
        found: Step = self._answer()
        return found

    def close(self) -> None:
        """Let the process clear up and end."""
        self._pipe.close()
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(PATIENCE)
            raise RuntimeError(f"a contender failed: its process ended with {self._process.exitcode}") from None


@contextmanager
def side_by_side(makers: Mapping[str, Callable[[], Contender]]) -> Iterator[dict[str, Contender]]:
    """Give the contenders by name, made one after the other, each in a process that ends with the context."""
    with ExitStack() as stack:
        everybody: dict[str, Contender] = {}
        for name, make in makers.items():
            everybody[name] = other = Elsewhere(make)
            stack.callback(other.close)
        yield everybody


def _serve(pipe: Connection, make: Callable[[], Contender], threads: int) -> None:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    contender = make()
    pipe.send("ready")
    while True:
        try:
            pipe.recv()
        except EOFError:  # nobody asks any more
            return
        pipe.send(contender.step())
