"""The running average of the weights by hand, and that it is evaluated while training goes on from the raw weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from toy_checkpoint import SavedRun
from toy_job import Trial, same, state_of, toy_job

from bertkit.train.average import Average
from bertkit.train.checkpoint import write_checkpoint
from bertkit.train.loop import train
from bertkit.train.state import TrainState, restore, take_snapshot


def test_the_average_by_hand() -> None:
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    average = Average(layer, decay=0.75)
    assert average.whole_weights()["weight"].item() == 1.0  # it begins as the weights
    for weight, expected in ((5.0, 2.0), (6.0, 3.0), (-1.0, 2.0)):  # 0.75 · before + 0.25 · weight
        with torch.no_grad():
            layer.weight.fill_(weight)
        average.update()
        assert average.whole_weights()["weight"].item() == expected
        assert layer.weight.item() == weight


def test_a_decay_of_zero_is_the_weights_themselves() -> None:
    layer = nn.Linear(2, 2)
    average = Average(layer, decay=0.0)
    with torch.no_grad():
        layer.weight.add_(1.0)
    average.update()
    assert torch.equal(average.whole_weights()["weight"], layer.weight)


def test_an_average_put_back_is_a_copy() -> None:
    layer = nn.Linear(2, 2)
    average = Average(layer, decay=0.5)
    given = {name: torch.full_like(p, 7.0) for name, p in layer.named_parameters()}
    average.load(given)
    average.update()
    assert all((tensor == 7.0).all() for tensor in given.values())
    assert not (average.tensors["weight"] == 7.0).all()


def trained(folder: Path, *, ema_decay: float | None) -> tuple[Trial, list[list[Tensor]], list[list[Tensor]]]:
    """A job that ended, its weights after each step, and what each of its evaluations saw."""
    made = toy_job(folder, ema_decay=ema_decay, eval_every=1)
    raw: list[list[Tensor]] = []
    seen: list[list[Tensor]] = []
    evaluate = made.job.evaluate

    def watched(step: int) -> object:
        found = evaluate(step)
        raw.append([p.detach().clone() for p in made.scores.parameters()])
        seen.append([p.detach().clone() for p in made.job.module.evaluated.parameters()])
        return found

    vars(made.job)["evaluate"] = watched
    train(made.job, TrainState())
    return made, raw, seen


def test_training_goes_on_from_the_raw_weights_and_the_average_is_evaluated(tmp_path: Path) -> None:
    first = [p.detach().clone() for p in toy_job(tmp_path / "first").scores.parameters()]
    without, plain, _ = trained(tmp_path / "without", ema_decay=None)
    averaged, raw, seen = trained(tmp_path / "averaged", ema_decay=0.9)
    assert all(same(a, b) for a, b in zip(plain, raw, strict=True))
    assert same(state_of(without), state_of(averaged))
    expected = first
    for weights, found in zip(raw, seen, strict=True):
        expected = [0.9 * before + 0.1 * now for before, now in zip(expected, weights, strict=True)]
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert not same(raw[-1], seen[-1])


def test_an_averaged_checkpoint_holds_the_raw_weights_and_the_average(tmp_path: Path) -> None:
    run = SavedRun(tmp_path, ema_decay=0.5)
    folder = run.save(4)
    raw, averaged = run.module.whole_weights(), run.module.average
    assert averaged is not None
    raw = {name: tensor.clone() for name, tensor in raw.items()}
    kept = {name: tensor.clone() for name, tensor in averaged.whole_weights().items()}
    run.save(5)
    restore(folder, run.module, run.optimizers)
    assert all(torch.equal(tensor, raw[name]) for name, tensor in run.module.whole_weights().items())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in averaged.whole_weights().items())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in run.module.refresh().named_parameters())


def test_a_run_without_an_average_goes_on_from_the_raw_weights_of_one_with(tmp_path: Path) -> None:
    averaged = SavedRun(tmp_path, ema_decay=0.5)
    folder = averaged.save(4)
    plain = SavedRun(tmp_path)
    restore(folder, plain.module, averaged.optimizers)
    raw = averaged.module.whole_weights()
    assert all(torch.equal(tensor, raw[name]) for name, tensor in plain.module.whole_weights().items())


def test_an_average_that_a_checkpoint_lacks_begins_anew_and_this_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SavedRun(tmp_path).save(4)
    run = SavedRun(tmp_path, ema_decay=0.5)
    restore(folder, run.module, run.optimizers)
    assert f"{folder} has no averaged weights; the average begins anew" in capsys.readouterr().err


def test_a_snapshot_is_a_copy(tmp_path: Path) -> None:
    run = SavedRun(tmp_path, ema_decay=0.5)
    snapshot = run.snapshot(1)
    before = {name: {key: t.clone() for key, t in tensors.items()} for name, tensors in snapshot.tensors.items()}
    run.snapshot(2)
    for name, tensors in snapshot.tensors.items():
        assert all(torch.equal(tensor, before[name][key]) for key, tensor in tensors.items())
    again = take_snapshot(
        TrainState(step=3), model_files={}, module=run.module, optimizers=run.optimizers, fingerprint={}, facts={}
    )
    assert (
        set(again.tensors)
        == set(snapshot.tensors)
        == {*("optimizer-0.safetensors", "optimizer-1.safetensors", "weights.safetensors", "average.safetensors")}
    )
    assert write_checkpoint(tmp_path, again, limit=2).name == "step-3"
