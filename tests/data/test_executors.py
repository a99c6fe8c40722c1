"""Who does the work: this process, processes, or a cluster; and what is said where there is none."""

import builtins
import os
import socket
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from bertkit.data.executors import open_executor
from bertkit.errors import InputError


def test_one_worker_is_this_process() -> None:
    with open_executor(workers=1, dask=None) as (executor, size):
        assert executor is None
        assert size == 1


def test_of_several_workers_all_but_one_are_processes_of_their_own_that_end_with_the_block() -> None:
    with open_executor(workers=2, dask=None) as (executor, size):
        assert isinstance(executor, ProcessPoolExecutor)
        assert size == 2
        assert {executor.submit(os.getpid).result() for _ in range(3)} - {os.getpid()} == {*executor._processes}
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(os.getpid)


def test_threads_take_turns_quickly_only_while_there_are_other_processes() -> None:
    before = sys.getswitchinterval()
    with open_executor(workers=1, dask=None):
        assert sys.getswitchinterval() == before
    with open_executor(workers=3, dask=None):
        assert sys.getswitchinterval() < before / 10
    assert sys.getswitchinterval() == before


def test_a_cluster_without_dask_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(module: str, *arguments: Any, **named: Any) -> Any:
        if module == "distributed":
            raise ImportError(module)
        return real(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with (
        pytest.raises(InputError, match=r"--dask: needs Dask\n  value: 'tcp://10.0.0.1:8786'\n.*bertkit\[cluster\]"),
        open_executor(workers=1, dask="tcp://10.0.0.1:8786"),
    ):
        pass


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "nonsense://x", "127.0.0.1:{port}"])
def test_no_scheduler_at_the_address_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs the extra bertkit[cluster]")
    monkeypatch.setattr("bertkit.data.executors.DASK_TIMEOUT", "200ms")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = address.format(port=free.getsockname()[1])
        with (
            pytest.raises(
                InputError, match=rf"--dask: gives no scheduler .*\n  value: '{address}'\n  expected: tcp://HOST:PORT"
            ),
            open_executor(workers=1, dask=address),
        ):
            pass


@pytest.mark.slow
def test_a_cluster_of_two_runs_the_work_and_says_how_many_it_is() -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra bertkit[cluster]")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        open_executor(workers=1, dask=cluster.scheduler_address) as (executor, size),
    ):
        assert executor is not None
        assert size == 2
        assert [future.result() for future in [executor.submit(abs, -1), executor.submit(abs, -2)]] == [1, 2]
