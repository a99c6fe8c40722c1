"""Steps that are not made: what is not finite under --on_non_finite skip, and what overflows in fp16."""

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_checkpoint import FINGERPRINT
from toy_job import Poisoned, Trial, same, state_of, toy_job

from bertkit.errors import InputError
from bertkit.train import state as states
from bertkit.train.checkpoint import write_checkpoint
from bertkit.train.loop import train
from bertkit.train.state import FIRST_LOSS_SCALE, LOWEST_LOSS_SCALE, TrainState, read_state, take_snapshot


def poisoned(folder: Path, steps: Collection[int], *, value: float = math.nan, **values: Any) -> Trial:
    made = toy_job(folder, on_non_finite="skip", ema_decay=0.5, rows=2, **values)
    return replace(made, job=replace(made.job, source=Poisoned(2, steps=steps, value=value)))


def all_of(trial: Trial) -> list[Tensor]:
    """Weights, moments and their average, copied."""
    assert trial.job.module.average is not None
    return [*state_of(trial), *(t.clone() for t in trial.job.module.average.tensors.values())]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_a_step_left_out_changes_no_weight_no_moment_and_no_average(
    tmp_path: Path, kind: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    made = poisoned(tmp_path, {4}, value=value, optimizer=kind)
    train(made.job, TrainState(), until=4)
    before = all_of(made)
    end = train(made.job, TrainState(step=4, tokens=40), until=5)
    assert same(all_of(made), before)
    assert (end.step, end.tokens, end.skipped_steps, end.skipped_in_a_row) == (5, 40, 1, 1)
    found = capsys.readouterr().err
    assert "step 5 is left out: its loss is " in found
    assert "(rows of step 4)" in found
    train(made.job, end, until=6)
    assert not same(all_of(made), before)


def test_a_run_goes_on_behind_what_it_leaves_out_and_counts_it(tmp_path: Path) -> None:
    made = poisoned(tmp_path, {2, 3, 6}, max_skipped_steps=3)
    end = train(made.job, TrainState())
    assert (end.step, end.skipped_steps, end.skipped_in_a_row, end.tokens) == (10, 3, 0, 70)
    assert [row["skipped_steps"] for row in made.lines()] == [0, 0, 1, 2, 2, 2, 3, 3, 3, 3]


def test_a_line_of_steps_left_out_has_no_loss_and_the_gradient_before_them(tmp_path: Path) -> None:
    made = poisoned(tmp_path, {2, 4})
    train(made.job, TrainState())
    lines = {row["step"]: row for row in made.lines()}
    assert lines[3]["loss"] is None
    assert "mlm_loss" not in lines[3]
    assert lines[4]["loss"] > 0
    pairs = poisoned(tmp_path / "pairs", {3}, log_every=2)
    train(pairs.job, TrainState())
    mixed = {row["step"]: row for row in pairs.lines()}
    alone = poisoned(tmp_path / "alone", {3})
    train(alone.job, TrainState())
    single = {row["step"]: row for row in alone.lines()}
    assert mixed[4]["loss"] == single[3]["loss"]  # of the one step that was made
    assert mixed[4]["gradient_norm"] == single[3]["gradient_norm"]


def test_too_many_left_out_in_a_row_stop_the_run(tmp_path: Path) -> None:
    made = poisoned(tmp_path, {1, 3, 4, 5, 6}, max_skipped_steps=3)
    with pytest.raises(
        InputError, match=r"the loss of step 6 is nan; this step was not made \(rows of step 5\)"
    ) as found:
        train(made.job, TrainState())
    assert "expected: fewer than 3 such steps in a row (--max_skipped_steps)" in str(found.value)


def test_under_muon_both_rates_are_named(tmp_path: Path) -> None:
    made = poisoned(tmp_path, {1}, max_skipped_steps=1, optimizer="muon", learning_rate=0.5, muon_learning_rate=0.25)
    with pytest.raises(InputError, match=r"^--learning_rate and --muon_learning_rate: the loss of step 2") as found:
        train(made.job, TrainState())
    assert "value: [0.5, 0.25]" in str(found.value)


def test_the_row_of_steps_left_out_goes_on_behind_a_resume(tmp_path: Path) -> None:
    made = poisoned(tmp_path, {3, 4, 5}, max_skipped_steps=3)
    state = train(made.job, TrainState(), until=5)
    assert state.skipped_in_a_row == 2
    with pytest.raises(InputError, match="the loss of step 6 is nan"):
        train(made.job, through_a_checkpoint(made, state, tmp_path / "run"))


# --- fp16 ----------------------------------------------------------------------------------------------------------


def through_a_checkpoint(made: Trial, state: TrainState, folder: Path) -> TrainState:
    """The counters as a resumed run reads them."""
    snapshot = take_snapshot(
        state,
        model_files={},
        module=made.job.module,
        optimizers=made.job.optimizers,
        fingerprint=FINGERPRINT,
        facts={},
    )
    return read_state(write_checkpoint(folder, snapshot, limit=1), fingerprint=FINGERPRINT)


def half(folder: Path, **values: Any) -> Trial:
    """A job whose forward pass is in fp16, on a processor (which the flag refuses, as it is slow there)."""
    made = toy_job(folder, **values)
    return replace(made, job=replace(made.job, runtime=replace(made.job.runtime, precision="fp16")))


def test_the_factor_of_losses_is_halved_until_nothing_overflows(tmp_path: Path) -> None:
    made = half(tmp_path, max_steps=30)
    before = state_of(made)
    state = train(made.job, TrainState(loss_scale=2.0**24), until=1)
    assert same(state_of(made), before)
    assert (state.loss_scale, state.skipped_steps, state.skipped_in_a_row) == (2.0**23, 1, 0)
    end = train(made.job, state)
    assert end.skipped_steps > 1
    assert end.loss_scale == 2.0 ** (24 - end.skipped_steps)
    assert not same(state_of(made), before)
    assert [row["loss_scale"] for row in made.lines()][-1] == end.loss_scale


def test_the_factor_is_doubled_after_many_good_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states.STEPS_BEFORE_A_HIGHER_SCALE == 2000
    monkeypatch.setattr(states, "STEPS_BEFORE_A_HIGHER_SCALE", 4)
    made = half(tmp_path)
    train(made.job, TrainState(loss_scale=2.0))
    assert [row["loss_scale"] for row in made.lines()] == [2, 2, 2, 4, 4, 4, 4, 8, 8, 8]


def test_an_overflow_begins_the_count_of_good_steps_anew() -> None:
    state = TrainState(loss_scale=8.0, steps_since_scaled=1999)
    assert state.lower_loss_scale()
    assert (state.loss_scale, state.steps_since_scaled) == (4.0, 0)
    state.note_good_step()
    assert (state.loss_scale, state.steps_since_scaled) == (4.0, 1)


def test_gradients_are_divided_by_the_factor_before_they_are_clipped_and_used(tmp_path: Path) -> None:
    ends, norms = [], []
    for scale in (1.0, 2.0**6):  # a power of two changes no digit of a number
        made = half(tmp_path / str(scale), max_grad_norm=0.5)
        train(made.job, TrainState(loss_scale=scale))
        ends.append(state_of(made))
        norms.append([row["gradient_norm"] for row in made.lines()])
    plain = toy_job(tmp_path / "plain", max_grad_norm=0.5)
    train(plain.job, TrainState())
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)
    assert norms[0] == pytest.approx([row["gradient_norm"] for row in plain.lines()], rel=0.02)
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_the_factor_and_its_count_are_saved_and_come_back(tmp_path: Path) -> None:
    made = half(tmp_path)
    state = train(made.job, TrainState(loss_scale=4.0), until=3)
    found = through_a_checkpoint(made, state, tmp_path / "run")
    assert (found.loss_scale, found.steps_since_scaled) == (4.0, 3)
    assert TrainState().loss_scale == FIRST_LOSS_SCALE == 65536


def test_what_overflows_at_the_lowest_factor_is_not_finite_as_anywhere(tmp_path: Path) -> None:
    made = half(tmp_path)
    made.scores.factor = 1e36  # a loss that fp32 holds; no gradient does
    before = state_of(made)
    with pytest.raises(InputError, match=r"the gradient of step 2 is (inf|nan); this step was not made"):
        train(made.job, TrainState(loss_scale=2 * LOWEST_LOSS_SCALE))
    assert same(state_of(made), before)


def test_a_loss_that_is_not_finite_is_no_overflow_of_the_factor(tmp_path: Path) -> None:
    made = half(tmp_path)
    made.scores.offset = math.inf
    with pytest.raises(InputError, match="the loss of step 1 is inf"):
        train(made.job, TrainState())


def test_in_other_precisions_no_loss_is_scaled(tmp_path: Path) -> None:
    ends = []
    for scale in (1.0, 1e6):
        made = toy_job(tmp_path / str(scale))
        train(made.job, TrainState(loss_scale=scale))
        assert "loss_scale" not in made.lines()[0]
        ends.append(state_of(made))
    assert same(*ends)
