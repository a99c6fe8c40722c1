"""Device, precision, generators, and the length of a gradient."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bertkit.errors import InputError
from bertkit.train import runtime
from bertkit.train.settings import TrainSettings


def test_several_processes_are_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "Accelerator", lambda mixed_precision: SimpleNamespace(num_processes=2))
    with pytest.raises(InputError, match=r"WORLD_SIZE: training in several processes is not there yet\n  value: 2"):
        runtime.start(TrainSettings())


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
    assert set(described) == {"device", "precision", "threads", "cpu_count"}


def test_the_seed_decides_what_is_drawn_after_the_start() -> None:
    drawn = []
    for seed in (1, 1, 2):
        runtime.start(TrainSettings(seed=seed))
        drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_generators_put_back_draw_the_same_again() -> None:
    started = runtime.start(TrainSettings())
    state = runtime.generator_state(started)
    first = torch.rand(5)
    runtime.restore_generators(started, state)
    assert torch.equal(torch.rand(5), first)


def test_a_batch_arrives_whole_on_the_device() -> None:
    started = runtime.start(TrainSettings())
    batch = {"input_ids": torch.arange(6).view(2, 3), "mlm_positions": torch.tensor([1, 5])}
    moved = started.to_device(batch)
    assert all(torch.equal(moved[name].cpu(), tensor) for name, tensor in batch.items())
    assert {tensor.device.type for tensor in moved.values()} == {started.device.type}


def test_the_length_of_the_gradient_is_taken_over_all_parameters_that_have_one() -> None:
    module = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    module[0].weight.grad = torch.tensor([[3.0, 0.0]])
    module[0].bias.grad = torch.tensor([4.0])
    module[1].bias.grad = torch.tensor([12.0])
    assert runtime.gradient_norm(module).item() == pytest.approx(13.0)
