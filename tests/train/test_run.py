"""A task made into a job: what a resume may change, what it may not, and the room that checkpoints take."""

import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_checkpoint import FINGERPRINT, SavedRun
from toy_job import toy_job

from bertkit.errors import InputError
from bertkit.train import run, runtime
from bertkit.train.checkpoint import write_checkpoint
from bertkit.train.loop import train
from bertkit.train.run import fingerprint_of, one_batch, require_disk, require_learned, state_at
from bertkit.train.runtime import Runtime
from bertkit.train.settings import FREE_ON_RESUME, TrainSettings
from bertkit.train.state import TrainState, read_state

# Every setting of TrainSettings that changes a number, and another value of it.
CHANGED: dict[str, Any] = {
    "batch_size": 64,
    "micro_batch_tokens": 512,  # sums are rounded in another order
    "optimizer": "muon",
    "learning_rate": 0.5,
    "muon_learning_rate": 0.5,
    "layer_decay": 0.9,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.2,
    "decay_ratio": 0.3,
    "polynomial_power": 3.0,
    "final_learning_rate_ratio": 0.1,
    "weight_decay": 0.1,
    "max_grad_norm": 2.0,
    "adam_beta1": 0.8,
    "adam_beta2": 0.99,
    "adam_epsilon": 1e-6,
    "ema_decay": 0.99,
    "max_steps": 20,
    "num_train_epochs": 3.0,
    "max_minutes": 2.0,
    "precision": "bf16",
    "attention": "packed",
    "torch_compile": True,
    "sharding": "fsdp",
    "eval_every": 7,
    "seed": 2,
}


def fingerprint(settings: TrainSettings, runtime: Runtime | None = None, **others: Any) -> dict[str, Any]:
    return fingerprint_of(vars(settings), runtime or Runtime(torch.device("cpu")), {"store": "abc", **others})


def saved(folder: Path, **before: Any) -> Path:
    run = SavedRun(folder)
    snapshot = run.snapshot(3)
    state = {**snapshot.state, "fingerprint": {**fingerprint(TrainSettings()), **before}}
    return write_checkpoint(folder, replace(snapshot, state=state), limit=2)


def test_every_setting_either_changes_numbers_or_is_free() -> None:
    assert {field.name for field in fields(TrainSettings)} == CHANGED.keys() | FREE_ON_RESUME
    assert not CHANGED.keys() & FREE_ON_RESUME


def differing(name: str, value: Any) -> dict[str, Any]:
    """The fingerprint of a resume in which one thing is another."""
    settings = TrainSettings()
    if name in CHANGED:
        return fingerprint(replace(settings, **{name: value}))
    if name == "processes":
        return fingerprint(settings, Runtime(torch.device("cpu"), num_ranks=value))
    if name == "device":
        return fingerprint(settings, Runtime(torch.device(value)))
    return {**fingerprint(settings), name: value}


OTHERS = {"processes": 2, "device": "cuda", "threads": 77, "versions": {"torch": "3.0"}, "store": "xyz", "new": 5}


@pytest.mark.parametrize(
    ("name", "value"), [*CHANGED.items(), *OTHERS.items()], ids=lambda v: v if isinstance(v, str) else ""
)
def test_whatever_differs_is_refused_and_goes_on_with_a_warning_where_allowed(
    tmp_path: Path, name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, now = saved(tmp_path), differing(name, value)
    with pytest.raises(InputError, match=rf"was written by a run that differs: {name}: .* then, .* now\n") as caught:
        read_state(folder, fingerprint=now)
    assert f"{value!r} now" in str(caught.value)
    assert "--allow_inexact" in str(caught.value)
    state = read_state(folder, fingerprint=now, allow_inexact=True)
    assert state.step == 3
    # Where the epochs begin stays known only where the data and its order are the same.
    assert bool(state.source) == (name in ("processes", "device", "threads", "versions"))
    assert f"warning: this resume is not exact (--allow_inexact): {name}: " in capsys.readouterr().err


def test_what_changes_no_number_may_change() -> None:
    before = fingerprint(TrainSettings())
    other = TrainSettings(
        allow_inexact=True,
        data_workers=3,
        early_stopping_patience=2,
        gradient_checkpointing=True,
        hang_timeout=5.0,
        keep_every=7,
        log_every=3,
        max_skipped_steps=2,
        on_non_finite="skip",
        report_to="wandb",
        resume_from="last",
        save_every=9,
        save_total_limit=5,
    )
    assert all(vars(other)[name] != vars(TrainSettings())[name] for name in FREE_ON_RESUME)
    assert fingerprint(other) == before


def test_a_run_without_a_checkpoint_starts_at_step_zero() -> None:
    assert state_at(None, FINGERPRINT, allow_inexact=False) == TrainState()


def test_no_room_for_the_checkpoints_is_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy_job(tmp_path / "job")
    size = 4 * 4 * 3 * 4  # 4 numbers of 4 bytes; weight and two moments; two kept, the best, the one being written
    assert require_disk(made.job, tmp_path) == size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size - 1))
    with pytest.raises(
        InputError, match=rf"has no room for 4 checkpoints(.|\n)*expected: {size} bytes; {size - 1} are"
    ):
        require_disk(made.job, tmp_path)


def test_a_resume_needs_no_room_for_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy_job(tmp_path / "job")
    size = require_disk(made.job, tmp_path)
    (tmp_path / "checkpoints" / "step-5").mkdir()
    (tmp_path / "checkpoints" / "step-5" / "model.safetensors").write_bytes(b"x" * 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size - 100))
    assert require_disk(made.job, tmp_path) == size


def test_averages_and_what_is_kept_for_good_take_room(tmp_path: Path) -> None:
    made = toy_job(tmp_path / "job", ema_decay=0.9, keep_every=2, save_total_limit=1)
    assert require_disk(made.job, tmp_path) == 4 * 4 * 5 * (1 + 2 + 5)


def test_a_job_of_one_batch_asks_for_the_first_step_only(tmp_path: Path) -> None:
    made = toy_job(tmp_path)
    job = one_batch(made.job)
    train(job, TrainState())
    assert made.job.source.asked == [0] * 10  # type: ignore[attr-defined]
    assert job.source.describe(7) == "rows of step 0"
    assert job.source.longest().keys() == made.job.source.longest().keys()


def test_the_machine_is_part_of_what_must_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "versions", lambda: {"torch": "1"})
    found = fingerprint(TrainSettings(), runtime.start(TrainSettings()))
    assert (found["versions"], found["processes"], found["device"]) == ({"torch": "1"}, 1, "cpu")
    assert found["threads"] == torch.get_num_threads()


# --- what a run that made nothing better is told ---------------------------------------------------------------------


def judged(**values: Any) -> None:
    job: Any = SimpleNamespace(
        deciding_metric=values.pop("metric", "loss"),
        higher_is_better=values.pop("higher", False),
        begins_low=values.pop("begins_low", False),
        settings=TrainSettings(learning_rate=0.5),
    )
    require_learned(job, TrainState(**{"step": 10, "best_score": 2.0, **values}))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"start_score": 2.0},
        {"start_score": 1.95},  # less than chance
        {"start_score": 0.5, "best_score": 0.6, "higher": True},
        {"skipped_steps": 9},
        {"first_loss": 1.0, "lowest_loss": 0.9, "later_lines": 20},
        {"first_loss": 1.0, "lowest_loss": 1.1, "later_lines": 4},
        {"first_loss": 1.56, "lowest_loss": 1.58, "later_lines": 20, "begins_low": True},
        {"step": 0, "best_score": None},
    ],
)
def test_a_run_that_learned_something_or_says_too_little_is_fine(values: dict[str, Any]) -> None:
    judged(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"skipped_steps": 10}, "not one of the 10 steps was made: no loss or gradient was finite"),
        ({"start_score": 1.5}, "the held-out loss was 1.5000 before training and is 2.0000 at best after it"),
        (
            {"start_score": 0.7, "best_score": 0.5, "higher": True, "metric": "f1"},
            "the held-out f1 was 0.7000 before training and is 0.5000 at best after it",
        ),
        (
            {"first_loss": 0.7, "lowest_loss": 9.0, "later_lines": 5},
            "the training loss never fell: 0.7000 at first, 9.0000 at best",
        ),
        (
            {"first_loss": 0.69, "lowest_loss": 0.69, "later_lines": 5},
            "the training loss never fell: 0.6900 at first, 0.6900 at best",
        ),
        (
            {"first_loss": 1.5, "lowest_loss": 1.6, "later_lines": 5, "begins_low": True},
            "the training loss never fell: 1.5000 at first, 1.6000 at best",
        ),
    ],
)
def test_a_run_that_made_nothing_better_is_an_error(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as problem:
        judged(**values)
    assert str(problem.value).startswith(f"--learning_rate: {said}; the model that this run leaves is worth nothing")
    assert "  value: 0.5\n  what to do: start anew with a lower rate" in str(problem.value)


def test_a_best_checkpoint_that_is_gone_is_replaced_by_the_one_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = SavedRun(tmp_path)
    saved.save(2, best=2)
    later = saved.save(4, best=2)
    assert state_at(later, FINGERPRINT, allow_inexact=False).best_step == 2
    shutil.rmtree(later.with_name("step-2"))
    state = state_at(later, FINGERPRINT, allow_inexact=False)
    assert (state.best_step, state.best_score, state.evaluations_since_best) == (4, None, 0)
    assert (
        "warning: the best checkpoint, of step 2, is gone; the one of step 4 stands for it" in capsys.readouterr().err
    )
