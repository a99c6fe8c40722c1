"""The learning rate of a step, as a share of its peak.

In: a step and the length of the run.  Out: a factor from 0 to 1.  Next: optimizer.py
"""

import math

from bertkit.train.settings import TrainSettings

ONE_CYCLE_START = 1 / 25  # share of the peak at which a one-cycle run begins: Smith and Topin's, as PyTorch has it


def warmup_steps(settings: TrainSettings, max_steps: int) -> int:
    """Return the steps of the warm-up: warmup_ratio of max_steps, rounded."""
    return round(settings.warmup_ratio * max_steps)


def rate_factor(step: int, *, max_steps: int, settings: TrainSettings) -> float:
    """Return the share of the peak rate for the update that follows `step` finished ones (0 ≤ step < max_steps).

    The first update of a warm-up of w steps has the share 1 / w, the last one 1; the fall ends at
    final_learning_rate_ratio one step after the run. one-cycle rises and falls as a cosine, from 1/25.

    >>> settings = TrainSettings(warmup_ratio=0.5)
    >>> [rate_factor(step, max_steps=4, settings=settings) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warm, kind = warmup_steps(settings, max_steps), settings.lr_scheduler_type
    if step < warm:
        risen = (step + 1) / warm
        return ONE_CYCLE_START + (1.0 - ONE_CYCLE_START) * _cosine(1.0 - risen) if kind == "one-cycle" else risen
    start = warm
    if kind == "constant":
        return 1.0
    if kind == "wsd":
        start = max(warm, max_steps - round(settings.decay_ratio * max_steps))
        if step < start:
            return 1.0
    progress = (step - start) / max(1, max_steps - start)  # 0 … below 1
    if kind in ("cosine", "one-cycle"):
        falling = _cosine(progress)
    elif kind == "polynomial":
        falling = (1.0 - progress) ** settings.polynomial_power
    else:
        falling = 1.0 - progress
    return settings.final_learning_rate_ratio + (1.0 - settings.final_learning_rate_ratio) * falling


def _cosine(progress: float) -> float:
    """1 at 0, 0 at 1, flat at both ends."""
    return (1.0 + math.cos(math.pi * progress)) / 2.0
