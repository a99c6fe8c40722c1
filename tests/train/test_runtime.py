"""Device, precision, processes and the seeds of weights and dropout."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bertkit.errors import InputError
from bertkit.train import runtime
from bertkit.train.settings import TrainSettings


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_each_run_of_a_process_has_the_precision_it_asks_for(precision: str, dtype: torch.dtype) -> None:
    runtime.start(TrainSettings(precision="bf16" if precision == "fp32" else "fp32"))  # a run before it
    started = runtime.start(TrainSettings(precision=precision))  # type: ignore[arg-type]
    layer = nn.Linear(3, 3).to(started.device)
    with started.autocast():
        output = layer(torch.zeros(1, 3, device=started.device))
    assert output.dtype == dtype
    assert layer.weight.dtype == torch.float32
    assert started.description()["precision"] == precision


def test_the_description_names_device_and_threads() -> None:
    described = runtime.start(TrainSettings()).description()
    assert described["threads"] == torch.get_num_threads()
    assert set(described) == {"device", "precision", "sharding", "processes", "threads", "cpu_count"}


def test_the_seed_decides_what_is_drawn_after_the_start() -> None:
    drawn = []
    for seed in (1, 1, 2):
        runtime.start(TrainSettings(seed=seed))
        drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_batch_arrives_whole_on_the_device() -> None:
    started = runtime.start(TrainSettings())
    batch = {"input_ids": torch.arange(6).view(2, 3), "mlm_positions": torch.tensor([1, 5])}
    moved = started.to_device(batch)
    assert all(torch.equal(moved[name].cpu(), tensor) for name, tensor in batch.items())
    assert {tensor.device.type for tensor in moved.values()} == {started.device.type}


# --- what processes tell each other ---------------------------------------------------------------------------------


def test_alone_a_process_hears_itself() -> None:
    alone = runtime.start(TrainSettings())
    assert alone.gathered([1.5, 2.0]) == [[1.5, 2.0]]
    assert alone.sums([1.5, 2.0]) == [1.5, 2.0]
    alone.wait_for_all()
    assert alone.is_first
    assert alone.asked_to_stop() == 0
    alone.stop.received = 15
    assert alone.asked_to_stop() == 15


def test_the_wish_of_any_process_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.Runtime, "gathered", lambda self, numbers: [list(numbers), [2.0], [0.0]])
    assert runtime.start(TrainSettings()).asked_to_stop() == 2
    assert runtime.start(TrainSettings()).sums([0.5]) == [2.5]


def test_the_failure_of_a_collective_is_said_with_rank_and_remedy() -> None:
    second = runtime.Runtime(torch.device("cpu"), rank=1, num_ranks=2)
    expected = "process 1 of 2: another process of this run is gone, or has not"
    with pytest.raises(InputError, match=expected) as caught, second.answering():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:44")
    assert "within --hang_timeout ([gloo/transport/tcp/pair.cc:547] Connection closed by peer" in str(caught.value)
    assert "go on by --resume_from last" in str(caught.value)
    with pytest.raises(InputError, match="is gone"), second.answering():
        raise dist.DistStoreError("wait timeout after 8000ms")


def test_other_failures_and_those_of_one_process_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), runtime.Runtime(torch.device("cpu"), num_ranks=2).answering():
        raise RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="gloo"), runtime.Runtime(torch.device("cpu")).answering():
        raise RuntimeError("gloo is not built")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "did not meet .invalid literal"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "", "MASTER_PORT": "0"}, "did not meet"),
    ],
)
def test_processes_that_do_not_meet_are_an_input_error(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    def unable(*_: object, **__: object) -> None:
        raise ValueError("MASTER_ADDR expected, but not set")

    monkeypatch.setattr(runtime, "PartialState", unable)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"WORLD_SIZE: the processes of this run {message}") as caught:
        runtime.start(TrainSettings())
    assert "start them by torchrun" in str(caught.value)


def test_more_processes_than_met_are_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone:
        device, num_processes = torch.device("cpu"), 1

    monkeypatch.setattr(runtime, "PartialState", lambda **_: Alone)
    monkeypatch.setattr(dist, "new_group", lambda **_: None)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(InputError, match=r"WORLD_SIZE: is not the number of processes that met\n  value: 3\n.*: 1"):
        runtime.start(TrainSettings())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"precision": "fp16"}, r"--precision: is for GPUs: a processor computes it more slowly.*\n  value: 'fp16'"),
        ({"sharding": "fsdp"}, r"--sharding: cuts the model over processes, but there is one\n  value: 'fsdp'"),
    ],
)
def test_what_would_be_slow_or_ignored_is_refused(values: dict[str, str], message: str) -> None:
    settings = TrainSettings(**values)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        runtime._require_what_was_asked(settings, torch.device("cpu"), 1)


def test_packed_rows_are_for_gpus() -> None:
    packed = TrainSettings(attention="packed", precision="bf16")
    with pytest.raises(InputError, match=r"--attention: is a kernel of CUDA devices[\s\S]*leave it away"):
        runtime._require_what_was_asked(packed, torch.device("cpu"), 1)
    runtime._require_what_was_asked(TrainSettings(attention="packed", precision="fp16"), torch.device("cuda"), 1)


def test_a_gpu_without_bf16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    with pytest.raises(InputError, match="--precision: is not what this GPU computes"):
        runtime._require_what_was_asked(TrainSettings(precision="bf16"), torch.device("cuda"), 1)
