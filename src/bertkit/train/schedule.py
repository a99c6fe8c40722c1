"""The learning rate of a step, as a share of its peak.

In: a step and the length of the run.  Out: a factor from 0 to 1.  Next: optimizer.py
"""

import math

from bertkit.train.settings import TrainSettings


def warmup_steps(settings: TrainSettings, max_steps: int) -> int:
    """Return the steps of the warm-up: warmup_ratio of max_steps, rounded."""
    return round(settings.warmup_ratio * max_steps)


def rate_factor(step: int, *, max_steps: int, settings: TrainSettings) -> float:
    """Return the share of the peak rate for the update that follows `step` finished ones (0 ≤ step < max_steps).

    The first update of a warm-up of w steps has the share 1 / w, the last one 1; the decay ends at
    final_learning_rate_ratio one step after the run.

    >>> settings = TrainSettings(warmup_ratio=0.5)
    >>> [rate_factor(step, max_steps=4, settings=settings) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warm = warmup_steps(settings, max_steps)
    if step < warm:
        return (step + 1) / warm
    if settings.lr_scheduler_type == "constant":
        return 1.0
    progress = (step - warm) / max(1, max_steps - warm)  # 0 … below 1
    falling = 1.0 - progress if settings.lr_scheduler_type == "linear" else (1.0 + math.cos(math.pi * progress)) / 2.0
    return settings.final_learning_rate_ratio + (1.0 - settings.final_learning_rate_ratio) * falling
