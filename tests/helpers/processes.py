"""Real processes that a test may kill: forked from one that has imported everything (half a second), or begun anew.

Run as a program it is the process that forks: it reads one JSON request a line, and answers each with one line.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).parent
SOURCE = HELPERS.parents[1] / "src"
IMPORTED = ("bertkit.cli", "bertkit.commands.pretrain", "bertkit.tasks.pretraining_run", "bertkit.pipelines")
IMPORTED_TOO = (
    "bertkit.report.page",
    "torch._dynamo",
    "jsonargparse",
    "fsspec.core",
    "plotly.graph_objects",
    "toy_saves",
)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "GLOO_SOCKET_IFNAME": "lo"}
LOOK_SECONDS = 0.01


# --- on the test's side --------------------------------------------------------------------------------------------


@dataclass
class Running:
    """A process that a test has begun, the leader of a session of its own."""

    pid: int
    output: Path  # what it prints, both streams
    ask: Callable[[], int | None]  # its exit code once it has ended; negative: the signal that ended it
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.code is None:
            self.code = self.ask()
        return self.code

    def wait(self, seconds: float) -> int:
        """Return the exit code; fail where it does not end in time."""
        end = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < end, f"{self.pid} still runs after {seconds} s\n{self.said()}"
            time.sleep(LOOK_SECONDS)
        assert self.code is not None
        return self.code

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def said(self) -> str:
        """Return all that it has printed."""
        return self.output.read_text(encoding="utf-8") if self.output.exists() else ""

    def end(self) -> None:
        """Kill it and whatever it has begun."""
        for pid in {self.pid, *session_of(self.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(AssertionError):
            self.wait(10)


def session_of(leader: int) -> list[int]:
    """Return the living processes of the session of `leader`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            state, _, _, session = status.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
            if int(session) == leader and state not in "ZX":
                found.append(int(status.parent.name))
    return found


def orphans(leader: int, *, seconds: float = 15) -> list[int]:
    """Return what is still alive of a session when its leader is gone for so long."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in session_of(leader) if pid != leader]) and time.monotonic() < end:
        time.sleep(0.1)
    return left


class Forge:
    """Begins processes by forking one that has imported what they need."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**environment(), "PYTHONPATH": f"{SOURCE}:{HELPERS}"},
        )

    def _answer(self, request: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def begin(
        self, words: Sequence[object], output: Path, *, target: str = "bertkit.cli:main", **variables: object
    ) -> Running:
        """Call the target with a list of words in a new process; `variables` are added to its environment."""
        request = {
            "target": target,
            "words": [str(word) for word in words],
            "output": str(output),
            "environment": {name: str(value) for name, value in variables.items()},
        }
        pid = self._answer(request)
        return Running(pid, output, lambda: self._answer({"ended": pid}))

    def close(self) -> None:
        """End the process that forks."""
        self._server.communicate()
        self._server.wait()


def environment() -> dict[str, str]:
    """Return an environment that knows of no other run, for one thread."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, **ENVIRONMENT, "PYTHONPATH": str(SOURCE)}


def begin_anew(words: Sequence[object], output: Path, *, variables: Mapping[str, str] | None = None) -> Running:
    """Begin a command as a user does, in a session of its own."""
    with open(output, "wb") as file:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**environment(), **(variables or {})},
            start_new_session=True,
        )
    return Running(process.pid, output, process.poll)


@contextmanager
def ended(*processes: Running) -> Iterator[None]:
    """Kill the processes after the block, however it ends."""
    try:
        yield
    finally:
        for process in processes:
            process.end()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def rank_variables(rank: int, *, ranks: int, port: int) -> dict[str, str]:
    """Return what a launcher puts into the environment of a process."""
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in values.items()}


def wait_until(condition: Callable[[], object], *, seconds: float, processes: Sequence[Running] = ()) -> None:
    """Return when the condition holds; fail when time is up or a process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        for process in processes:
            assert process.poll() is None, f"ended with {process.code}\n{process.said()}"
        assert time.monotonic() < end, "\n".join(process.said() for process in processes)
        time.sleep(LOOK_SECONDS)


def steps_logged(run: Path) -> int:
    """Return how many steps metrics.jsonl has lines of."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b'"kind": "train"') if path.exists() else 0


def moments(seed: int, number: int, *, longest: float) -> list[float]:
    """Return so many random times in seconds, the same every time."""
    generator = random.Random(seed)
    return [generator.uniform(0, longest) for _ in range(number)]


# --- the process that forks ----------------------------------------------------------------------------------------


def _serve() -> None:
    for name in (*IMPORTED, *IMPORTED_TOO):
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                _become(request)
        print(json.dumps(answer), flush=True)  # noqa: T201 (it is the answer)


def _become(request: dict[str, Any]) -> None:
    """Be what was asked for, and end."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for descriptor, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, descriptor)
    os.environ.update(request["environment"])
    module, name = request["target"].split(":")
    sys.argv = ["bertkit", *request["words"]]
    code = getattr(import_module(module), name)(request["words"])
    if module.startswith("bertkit"):
        sys.exit(code)
    sys.stdout.flush()
    os._exit(code)  # what only a test does need not end as a command does, which takes a second


if __name__ == "__main__":
    _serve()
