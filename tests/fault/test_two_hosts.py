"""Two hosts, each a network of its own: the same losses as one process; parted, both end in bounded time."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from disturbed_runs import SECONDS, ToyRuns, last_step
from processes import Forge, Running, begin_anew, ended, steps_logged, wait_until
from toy_run import metrics_of

HANG_TIMEOUT = 8
PORT = 29_511  # nothing else lives in these networks


@dataclass(frozen=True)
class Hosts:
    """Two network namespaces with a cable between them."""

    names: tuple[str, str]
    devices: tuple[str, str]
    addresses: tuple[str, str] = ("10.77.0.1", "10.77.0.2")

    def begin(self, host: int, words: list[object], output: Path, **variables: object) -> Running:
        """Begin a process on a host."""
        given = {"GLOO_SOCKET_IFNAME": self.devices[host], "TP_SOCKET_IFNAME": self.devices[host]}
        given |= {name: str(value) for name, value in variables.items()}
        return begin_anew(["ip", "netns", "exec", self.names[host], *words], output, variables=given)

    def pull_the_cable(self) -> None:
        """Part them: packets are lost from now on, and nobody is told."""
        for name, device in zip(self.names, self.devices, strict=True):
            ip("-n", name, "link", "set", device, "down")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("networks of one's own need root and the program `ip`")
    end = f"{os.getpid() % 100_000}"
    made = Hosts((f"bk-a{end}", f"bk-b{end}"), (f"bka{end}", f"bkb{end}"))
    try:
        try:
            for name in made.names:
                ip("netns", "add", name)
        except subprocess.CalledProcessError as problem:
            pytest.skip(f"no network of one's own can be made here ({problem.stderr!r})")
        (a, b), (device_a, device_b) = made.names, made.devices
        ip("link", "add", device_a, "netns", a, "type", "veth", "peer", "name", device_b, "netns", b)
        for name, device, address in zip(made.names, made.devices, made.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", device, "up")
        yield made
    finally:
        for name in made.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.slow
def test_two_hosts_train_as_one_process_does(forge: Forge, hosts: Hosts, tmp_path: Path) -> None:
    runs = ToyRuns(forge, tmp_path)
    runs.finish(tmp_path / "alone")
    run = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc_per_node", 1]
    launcher += ["--master_addr", hosts.addresses[0], "--master_port", PORT]
    with ExitStack() as stack:
        processes = []
        for host in (0, 1):
            words = [*launcher, "--node_rank", host, "-m", "bertkit", *runs.words(run)]
            process = hosts.begin(host, words, tmp_path / f"{host}.output")
            stack.enter_context(ended(process))
            processes.append(process)
        codes = [process.wait(2 * SECONDS) for process in processes]
    assert codes == [0, 0], processes[0].said() + processes[1].said()
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["processes"] == 2
    together, alone = (metrics_of(each) for each in (run, tmp_path / "alone"))
    losses = [(mine["loss"], theirs["loss"]) for mine, theirs in zip(together, alone, strict=True) if "loss" in theirs]
    assert len(losses) > 60
    difference = max(abs(mine - theirs) for mine, theirs in losses)
    assert difference <= 1e-5
    print(f"two hosts: {len(losses)} losses, at most {difference:.1e} from those of one process")  # noqa: T201


@pytest.mark.slow
def test_parted_hosts_end_both_in_bounded_time(forge: Forge, hosts: Hosts, tmp_path: Path) -> None:
    runs, run = ToyRuns(forge, tmp_path, steps=20_000), tmp_path / "run"
    words = [sys.executable, "-m", "bertkit", *runs.words(run, "--hang_timeout", HANG_TIMEOUT)]
    with ExitStack() as stack:
        processes = []
        for rank in (0, 1):
            process = hosts.begin(
                rank,
                words,
                tmp_path / f"{rank}.output",
                RANK=rank,
                LOCAL_RANK=0,
                WORLD_SIZE=2,
                MASTER_ADDR=hosts.addresses[0],
                MASTER_PORT=PORT,
            )
            stack.enter_context(ended(process))
            processes.append(process)
        wait_until(lambda: steps_logged(run) > 12, seconds=SECONDS, processes=processes)
        began = time.monotonic()
        hosts.pull_the_cable()
        times = []
        for process in processes:
            assert process.wait(HANG_TIMEOUT + 10) in (2, 3), process.said()
            times.append(time.monotonic() - began)
        said = [process.said() for process in processes]
    figures = [f"{seconds:.1f} s ({process.code})" for seconds, process in zip(times, processes, strict=True)]
    print(f"parted hosts: --hang_timeout {HANG_TIMEOUT}, ended after {' and '.join(figures)}")  # noqa: T201
    assert all("--hang_timeout" in each for each in said)
    assert last_step(run) >= 10
