"""The loop with a module of one layer: what it sums, clips, logs, evaluates, saves, and when it stops."""

import math
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_job import Trial, same, state_of, toy_job

from bertkit.errors import InputError
from bertkit.train import loop
from bertkit.train.loop import train
from bertkit.train.runtime import seed_dropout
from bertkit.train.state import TrainState


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Trial]:
    number = count()
    return lambda **values: toy_job(tmp_path / str(next(number)), **values)


# --- what is evaluated, saved and logged ---------------------------------------------------------------------------


def test_evaluations_and_checkpoints_come_as_often_as_asked_and_at_the_end(trial: Callable[..., Trial]) -> None:
    losses = dict.fromkeys(range(1, 30), 9.0)
    made = trial(max_steps=11, eval_every=4, save_every=3, losses=losses | {4: 1.0})
    end = train(made.job, TrainState())
    assert made.evaluated == [4, 8, 11]
    assert [saved["step"] for saved in made.saved] == [3, 4, 6, 9, 11]  # 4: the best
    assert end.step == 11


def test_the_best_is_always_saved_and_known_to_its_own_checkpoint(trial: Callable[..., Trial]) -> None:
    losses = {2: 3.0, 4: 2.0, 6: 2.0, 8: 1.0, 10: 5.0}
    made = trial(eval_every=2, save_every=100, losses=losses)
    end = train(made.job, TrainState())
    assert [(saved["step"], saved["best"]) for saved in made.saved] == [(2, 2), (4, 4), (8, 8), (10, 8)]
    assert (end.best_step, end.best_score) == (8, 1.0)


def test_a_checkpoint_keeps_what_the_source_wants_back(trial: Callable[..., Trial]) -> None:
    made = trial()
    train(made.job, TrainState())
    assert [saved["source"] for saved in made.saved] == [{"asked": 5}, {"asked": 10}]


def test_a_run_goes_on_where_its_state_says(trial: Callable[..., Trial]) -> None:
    made = trial()
    train(made.job, TrainState(step=7, tokens=70))
    assert made.job.source.asked == [7, 8, 9]  # type: ignore[attr-defined]
    assert [row["step"] for row in made.lines()] == [8, 9, 10]
    assert made.lines()[-1]["tokens"] == 100


def test_a_finished_run_does_nothing_more(trial: Callable[..., Trial]) -> None:
    made = trial()
    train(made.job, TrainState(step=10))
    assert (made.evaluated, made.saved, made.lines()) == ([], [], [])


def test_a_line_is_written_every_so_many_steps_and_at_the_end(trial: Callable[..., Trial]) -> None:
    made = trial(max_steps=11, log_every=4)
    train(made.job, TrainState())
    assert [row["step"] for row in made.lines()] == [4, 8, 11]


def test_the_line_of_a_step_is_what_it_says(trial: Callable[..., Trial]) -> None:
    """Every number of a line, computed again."""
    made = trial(rows=2, warmup_ratio=0.0)
    module = made.scores
    module.dropout.p = 0.0
    batches = made.job.source.step(0)
    inputs = torch.cat([batch["input"] for batch in batches.micro_batches])
    target = torch.cat([batch["target"] for batch in batches.micro_batches])
    output = module.linear(inputs).squeeze(-1)
    losses = torch.stack([(output - target).pow(2).mean(), output.abs().mean()])
    losses.sum().backward()
    norm = torch.stack([p.grad.norm() for p in module.parameters() if p.grad is not None]).norm().item()
    module.zero_grad()
    train(replace(made.job, max_steps=1), TrainState())
    [row] = made.lines()
    assert [row["mlm_loss"], row["nsp_loss"]] == pytest.approx(losses.tolist())
    assert row["mlm_accuracy"] == row["nsp_accuracy"] == ((output > 0) == (target > 0)).sum().item() / 6
    assert row["loss"] == row["mlm_loss"] + row["nsp_loss"]
    assert (row["tokens"], row["padding"]) == (10, 1 - 10 / 16)
    assert row["learning_rate"] == 0.05
    assert row["tokens_per_second"] == pytest.approx(10 / row["training_seconds"])
    assert row["gradient_norm"] == pytest.approx(norm)


def test_a_line_is_the_mean_over_its_steps(trial: Callable[..., Trial]) -> None:
    lines = []
    for log_every in (1, 4):
        made = trial(log_every=log_every, max_steps=4)
        train(made.job, TrainState())
        lines.append(made.lines())
    single, [mean] = lines
    for name in ("mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"):
        assert mean[name] == pytest.approx(sum(row[name] for row in single) / 4)
    assert mean["gradient_norm"] == single[-1]["gradient_norm"]
    assert (mean["tokens"], mean["padding"]) == (40, single[0]["padding"])


def test_the_time_of_evaluating_and_saving_is_not_training_time(
    trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def after(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any) -> Any:
            now[0] += seconds
            return function(*arguments)

        return slow

    made = trial(eval_every=2, save_every=2)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(loop, "update", after(1.0, loop.update))
    job = replace(made.job, evaluate=after(100.0, made.job.evaluate), save=after(1000.0, made.job.save))
    end = train(job, TrainState())
    assert end.training_seconds == 10.0
    assert [row["training_seconds"] for row in made.lines()] == [float(step) for step in range(1, 11)]
    assert [row["tokens_per_second"] for row in made.lines()] == [10.0] * 10


# --- an end before the last step -----------------------------------------------------------------------------------


def test_a_run_ends_early_after_so_many_evaluations_without_a_better_one(
    trial: Callable[..., Trial], capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {1: 5.0, 2: 4.0, 3: 4.5, 4: 3.0, 5: 3.5, 6: 3.0, 7: 1.0}
    made = trial(eval_every=1, save_every=100, losses=losses, early_stopping_patience=2)
    end = train(made.job, TrainState())
    assert (end.step, end.best_step, end.evaluations_since_best) == (6, 4, 2)
    assert [saved["step"] for saved in made.saved] == [1, 2, 4, 6]
    assert "no better loss in 2 evaluations: training ends early" in capsys.readouterr().err


def test_a_resumed_run_counts_the_evaluations_before_its_stop(trial: Callable[..., Trial]) -> None:
    losses = dict(enumerate([0.0, 5.0, 4.0, 4.5, 4.5, 4.5, 1.0, 1.0, 1.0, 1.0, 1.0]))
    straight = train(trial(eval_every=1, losses=losses, early_stopping_patience=3).job, TrainState())
    made = trial(eval_every=1, losses=losses, early_stopping_patience=3)
    state = train(made.job, TrainState(), until=4)
    assert state.evaluations_since_best == 2
    end = train(made.job, state)
    assert (end.step, end.best_step) == (straight.step, straight.best_step) == (5, 2)


def test_a_run_that_ended_early_goes_on_where_more_patience_is_given(trial: Callable[..., Trial]) -> None:
    losses = dict(enumerate([0.0, 5.0, 6.0, 4.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]))
    made = trial(eval_every=1, losses=losses, early_stopping_patience=1)
    end = train(made.job, TrainState())
    assert end.step == 2
    assert train(made.job, end).step == 2  # it is over
    more = replace(made.job, settings=replace(made.job.settings, early_stopping_patience=8))
    assert train(more, end).best_step == 3


def test_an_early_end_follows_the_metric_that_decides(trial: Callable[..., Trial]) -> None:
    losses = {1: 0.5, 2: 0.6, 3: 0.4, 4: 0.7}
    made = trial(eval_every=1, max_steps=4, losses=losses, early_stopping_patience=1, higher_is_better=True)
    assert train(made.job, TrainState()).best_step == 2


def test_a_run_asked_to_stop_in_the_middle_of_a_step_throws_it_away(
    trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = trial(rows=2)
    train(straight.job, TrainState())
    made = trial(rows=2)

    def seed_and_stop(seed: int, *, step: int, micro_batch: int) -> None:
        made.job.runtime.stop.received = signal.SIGTERM if (step, micro_batch) == (3, 1) else 0
        seed_dropout(seed, step=step, micro_batch=micro_batch)

    monkeypatch.setattr(loop, "seed_dropout", seed_and_stop)
    state = train(made.job, TrainState())
    assert (state.step, made.saved[-1]["step"]) == (3, 3)
    assert all(parameter.grad is None for parameter in made.scores.parameters())
    made.job.runtime.stop.received = 0
    monkeypatch.setattr(loop, "seed_dropout", seed_dropout)
    train(made.job, state)
    assert same(state_of(made), state_of(straight))


def test_nothing_watches_a_run_that_failed(trial: Callable[..., Trial]) -> None:
    made = trial(hang_timeout=100.0, losses={5: math.nan})
    with pytest.raises(InputError, match="the held-out loss after step 5 is nan"):
        train(made.job, TrainState())
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]


# --- what a step does ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_step_is_the_same_however_it_is_cut(trial: Callable[..., Trial], kind: str) -> None:
    ends = []
    for rows in (6, 3, 2, 1):
        made = trial(rows=rows, optimizer=kind)
        made.scores.dropout.p = 0.0
        train(made.job, TrainState())
        ends.append(made)
    for made in ends[1:]:
        for mine, whole in zip(made.scores.parameters(), ends[0].scores.parameters(), strict=True):
            torch.testing.assert_close(mine, whole, atol=1e-5, rtol=1e-5)
        assert [row["loss"] for row in made.lines()] == pytest.approx(
            [row["loss"] for row in ends[0].lines()], rel=1e-5
        )


def test_a_long_gradient_is_scaled_as_torch_does_it(
    trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trial(max_grad_norm=0.1)
    seen: list[Tensor] = []
    optimizer = made.job.optimizers[0]
    monkeypatch.setattr(
        optimizer,
        "step",
        lambda: seen.extend(p.grad.clone() for p in made.scores.parameters() if p.grad is not None),
    )
    train(replace(made.job, max_steps=1), TrainState())
    seed_dropout(made.job.settings.seed, step=0, micro_batch=0)
    made.scores.train()
    sums = made.job.module(made.job.source.step(0).micro_batches[0])
    torch.stack([total / 6 for total in sums.sums.values()]).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(made.scores.parameters(), 0.1)
    assert norm > 0.1
    assert made.lines()[0]["gradient_norm"] == pytest.approx(norm.item())  # the length before
    for mine, parameter in zip(seen, made.scores.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad)


def test_a_short_gradient_is_left_alone(trial: Callable[..., Trial]) -> None:
    ends = []
    for longest in (1e3, 1e6):
        made = trial(max_grad_norm=longest)
        train(made.job, TrainState())
        ends.append(state_of(made))
    assert same(*ends)


def test_gradients_do_not_pile_up_from_step_to_step(trial: Callable[..., Trial]) -> None:
    made = trial()
    train(made.job, TrainState())
    assert all(parameter.grad is None for parameter in made.scores.parameters())


def test_training_goes_on_with_dropout_after_an_evaluation(trial: Callable[..., Trial]) -> None:
    made = trial(eval_every=1)
    modes: list[bool] = []
    made.scores.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    train(made.job, TrainState())
    assert modes == [True] * 10


def test_the_rate_follows_the_schedule(trial: Callable[..., Trial]) -> None:
    made = trial(warmup_ratio=0.5, learning_rate=0.1)
    train(made.job, TrainState())
    found = [row["learning_rate"] for row in made.lines()]
    assert found == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.08, 0.06, 0.04, 0.02])


def test_a_label_that_no_row_has_divides_by_one(trial: Callable[..., Trial]) -> None:
    made = trial()
    batches = made.job.source.step(0)
    source = SimpleNamespace(step=lambda _: replace(batches, counts={"mlm": 6, "nsp": 0}))
    train(replace(made.job, source=source, max_steps=1), TrainState())  # type: ignore[arg-type]
    assert math.isfinite(made.lines()[0]["nsp_loss"])


# --- what is not finite --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize(
    ("attribute", "value", "named"),
    [("factor", math.nan, "loss"), ("offset", math.inf, "loss"), ("factor", 3e38, "gradient|loss")],
    ids=["nan", "inf loss with a finite gradient", "overflow"],
)
def test_no_step_is_made_on_what_is_not_finite(
    trial: Callable[..., Trial], kind: str, attribute: str, value: float, named: str
) -> None:
    made = trial(optimizer=kind, rows=2, max_steps=20)
    train(replace(made.job, max_steps=4), TrainState())
    before = state_of(made)
    vars(made.scores)[attribute] = value
    with pytest.raises(InputError, match=rf"the ({named}) of step 5 is (nan|inf); this step was not made") as caught:
        train(made.job, TrainState(step=4))
    assert same(state_of(made), before)
    assert "--learning_rate" in str(caught.value)
    assert [row["step"] for row in made.lines()] == [1, 2, 3, 4]


def test_one_bad_micro_batch_among_good_ones_stops_the_step(trial: Callable[..., Trial]) -> None:
    made = trial(rows=2)
    before = state_of(made)
    batches = made.job.source.step(0)
    batches.micro_batches[1]["input"][0, 0] = math.nan
    source = SimpleNamespace(step=lambda _: batches, describe=str)
    with pytest.raises(InputError, match="of step 1 is nan"):
        train(replace(made.job, source=source), TrainState())  # type: ignore[arg-type]
    assert same(state_of(made), before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_held_out_loss_that_is_not_finite_stops_the_run_and_is_never_the_best(
    trial: Callable[..., Trial], value: float
) -> None:
    made = trial(losses={5: 2.0, 10: value})
    with pytest.raises(InputError, match=f"the held-out loss after step 10 is {value}"):
        train(made.job, TrainState())
    assert [saved["step"] for saved in made.saved] == [5]
