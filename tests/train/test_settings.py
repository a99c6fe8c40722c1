"""TrainSettings: what is refused, by the name of its flag."""

import math
from typing import Any

import pytest

from bertkit.errors import InputError, InputErrors
from bertkit.train.settings import NEEDS, TrainSettings, require_effect


@pytest.mark.parametrize(
    "name",
    [
        *("batch_size", "micro_batch_tokens", "log_every", "save_total_limit", "max_steps", "eval_every", "save_every"),
        *("keep_every", "early_stopping_patience", "max_skipped_steps"),
    ],
)
def test_a_count_below_one_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is out of range\n  value: 0\n  expected: 1 to 1,000,000,000"):
        TrainSettings(**{name: 0})
    assert vars(TrainSettings(**{name: 1}))[name] == 1


@pytest.mark.parametrize(
    "name",
    ["learning_rate", "muon_learning_rate", "num_train_epochs", "max_minutes", "max_grad_norm", "polynomial_power"],
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_or_length_must_be_above_zero_and_finite(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is not above 0\n  value: {value}"):
        TrainSettings(**{name: value})


@pytest.mark.parametrize("name", ["weight_decay", "adam_epsilon", "hang_timeout"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_decay_or_epsilon_below_zero_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is not a number of 0 or more\n  value: {value}"):
        TrainSettings(**{name: value})


@pytest.mark.parametrize("name", ["adam_beta1", "adam_beta2", "ema_decay"])
@pytest.mark.parametrize("value", [-0.1, 1.0, math.nan])
def test_a_decay_of_adam_must_be_below_one(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is not a decay\n  value: {value}\n  expected: 0 ≤ decay < 1"):
        TrainSettings(**{name: value})


@pytest.mark.parametrize("name", ["warmup_ratio", "decay_ratio", "final_learning_rate_ratio"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_share_must_lie_between_zero_and_one(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is not a share\n  value: {value}\n  expected: 0 to 1"):
        TrainSettings(**{name: value})


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_seed_that_torch_could_not_take_is_refused(value: int) -> None:
    with pytest.raises(InputError, match=f"--seed: is no seed\n  value: {value}"):
        TrainSettings(seed=value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_steps": 5, "max_minutes": 1.0}, "--max_steps and --max_minutes"),
        ({"num_train_epochs": 2.0, "max_minutes": 1.0}, "--num_train_epochs and --max_minutes"),
        ({"max_steps": 5, "num_train_epochs": 2.0}, "--max_steps and --num_train_epochs"),
    ],
)
def test_the_length_of_a_run_is_given_once(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"{named}: set the same thing\n  what to do: give one of them"):
        TrainSettings(**given)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5, math.nan])
def test_the_decay_of_rates_over_layers_is_a_share_above_zero(value: float) -> None:
    with pytest.raises(
        InputError, match=rf"--layer_decay: is no share\n  value: {value}\n  expected: above 0, at most 1"
    ):
        TrainSettings(layer_decay=value)


def test_more_epochs_than_numbers_tell_apart_are_refused() -> None:
    with pytest.raises(InputError, match=r"--num_train_epochs: is out of range\n  value: 1000001\n  expected: up to"):
        TrainSettings(num_train_epochs=1_000_001)


def test_fewer_than_no_processes_are_refused() -> None:
    with pytest.raises(InputError, match=r"--data_workers: is no number of processes\n  value: -1"):
        TrainSettings(data_workers=-1)


def test_going_on_inexactly_needs_something_to_go_on_from() -> None:
    with pytest.raises(InputError, match="--allow_inexact: has no effect without --resume_from"):
        TrainSettings(allow_inexact=True)
    assert TrainSettings(allow_inexact=True, resume_from="last").allow_inexact


WITHOUT_EFFECT: list[tuple[dict[str, Any], str, Any]] = [
    ({"optimizer": "adamw", "muon_learning_rate": 0.05}, "muon_learning_rate", "muon"),
    ({"lr_scheduler_type": "linear", "decay_ratio": 0.3}, "decay_ratio", "wsd"),
    ({"lr_scheduler_type": "cosine", "polynomial_power": 3.0}, "polynomial_power", "polynomial"),
    ({"lr_scheduler_type": "constant", "final_learning_rate_ratio": 0.1}, "final_learning_rate_ratio", "cosine"),
    ({"on_non_finite": "stop", "max_skipped_steps": 3}, "max_skipped_steps", "skip"),
    ({"precision": "fp32", "attention": "packed"}, "attention", "bf16 or fp16"),
]


@pytest.mark.parametrize(("given", "name", "wanted"), WITHOUT_EFFECT)
def test_a_setting_that_would_do_nothing_is_refused(given: dict[str, Any], name: str, wanted: str) -> None:
    other, values = NEEDS[name]
    said = rf"--{name}: has no effect with --{other} {given[other]}\n  value: .*\n  expected: --{other} .*{wanted}"
    with pytest.raises(InputErrors, match=said):
        require_effect(TrainSettings(**given), defaults={})
    require_effect(TrainSettings(**given), defaults={name: given[name]})  # a recipe gave it, not the user
    for value in values:
        require_effect(TrainSettings(**{**given, other: value}), defaults={})


def test_every_setting_that_depends_on_another_is_tried() -> None:
    assert {name for _, name, _ in WITHOUT_EFFECT} == set(NEEDS)
