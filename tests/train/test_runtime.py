"""Device, precision, processes and the seeds of weights and dropout."""

import pytest
import torch
from torch import nn

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
