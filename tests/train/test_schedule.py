"""The learning rate by hand."""

import math

import pytest

from bertkit.train.schedule import rate_factor, warmup_steps
from bertkit.train.settings import TrainSettings

KINDS = ["linear", "cosine", "polynomial", "constant", "wsd", "one-cycle"]


def factors(max_steps: int, settings: TrainSettings) -> list[float]:
    return [rate_factor(step, max_steps=max_steps, settings=settings) for step in range(max_steps)]


def test_the_rate_rises_in_the_warm_up_and_falls_in_a_line_to_nothing_one_step_after_the_run() -> None:
    settings = TrainSettings(warmup_ratio=0.2)
    assert factors(10, settings) == pytest.approx([1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert rate_factor(10, max_steps=10, settings=settings) == 0


def test_the_line_ends_at_the_share_asked_for() -> None:
    settings = TrainSettings(warmup_ratio=0.0, final_learning_rate_ratio=0.2)
    assert factors(4, settings) == pytest.approx([1.0, 0.8, 0.6, 0.4])
    assert rate_factor(4, max_steps=4, settings=settings) == pytest.approx(0.2)


def test_the_cosine_falls_slowly_fast_and_slowly() -> None:
    settings = TrainSettings(warmup_ratio=0.2, lr_scheduler_type="cosine", final_learning_rate_ratio=0.1)
    cosine = [0.1 + 0.9 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(4)]
    assert factors(5, settings) == pytest.approx([1.0, *cosine])


def test_a_constant_rate_stays_after_the_warm_up() -> None:
    settings = TrainSettings(warmup_ratio=0.5, lr_scheduler_type="constant", final_learning_rate_ratio=0.1)
    assert factors(6, settings) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])


def test_a_polynomial_falls_by_its_power() -> None:
    settings = TrainSettings(warmup_ratio=0.2, lr_scheduler_type="polynomial", polynomial_power=3.0)
    assert factors(5, settings) == pytest.approx([1.0, 1.0, (3 / 4) ** 3, (2 / 4) ** 3, (1 / 4) ** 3])
    ending = TrainSettings(warmup_ratio=0.0, lr_scheduler_type="polynomial", final_learning_rate_ratio=0.2)
    assert factors(2, ending) == pytest.approx([1.0, 0.2 + 0.8 / 4])  # the power is 2 unless said otherwise


def test_wsd_warms_up_is_stable_and_falls_in_a_line_over_its_last_share() -> None:
    settings = TrainSettings(warmup_ratio=0.2, lr_scheduler_type="wsd", decay_ratio=0.5)
    assert factors(10, settings) == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    ending = TrainSettings(warmup_ratio=0, lr_scheduler_type="wsd", decay_ratio=0.5, final_learning_rate_ratio=0.5)
    assert factors(4, ending) == pytest.approx([1, 1, 1, 0.75])


def test_a_long_fall_of_wsd_begins_after_the_warm_up_and_one_of_nothing_never() -> None:
    long = TrainSettings(warmup_ratio=0.6, lr_scheduler_type="wsd", decay_ratio=0.8)
    assert factors(10, long) == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1, 0.75, 0.5, 0.25])
    never = TrainSettings(warmup_ratio=0.0, lr_scheduler_type="wsd", decay_ratio=0.0)
    assert factors(5, never) == [1.0] * 5


def test_one_cycle_rises_from_a_twenty_fifth_and_falls_as_a_cosine() -> None:
    settings = TrainSettings(warmup_ratio=0.5, lr_scheduler_type="one-cycle")
    middle = 1 / 25 + (24 / 25) * 0.5  # half way up a cosine
    assert factors(4, settings) == pytest.approx([middle, 1.0, 1.0, 0.5])
    early = rate_factor(0, max_steps=10**6, settings=settings)
    assert early == pytest.approx(1 / 25)


@pytest.mark.parametrize("kind", KINDS)
def test_without_warm_up_the_first_step_has_the_whole_rate(kind: str) -> None:
    settings = TrainSettings(warmup_ratio=0.0, lr_scheduler_type=kind)  # type: ignore[arg-type]
    assert factors(3, settings)[0] == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("max_steps", [1, 2, 7, 100])
def test_every_step_has_a_share_above_zero_and_at_most_one(kind: str, ratio: float, max_steps: int) -> None:
    settings = TrainSettings(warmup_ratio=ratio, lr_scheduler_type=kind)  # type: ignore[arg-type]
    found = factors(max_steps, settings)
    assert all(0 < factor <= 1 for factor in found)
    warm = warmup_steps(settings, max_steps)
    assert found[:warm] == sorted(found[:warm])
    assert found[warm:] == sorted(found[warm:], reverse=True)


def test_the_warm_up_is_rounded_to_whole_steps() -> None:
    assert [warmup_steps(TrainSettings(warmup_ratio=0.1), steps) for steps in (4, 6, 10, 104, 106)] == [0, 1, 1, 10, 11]
