"""A run in phases, each with rows of its own length: 128 tokens for most of it, then 512.

In: "128:0.9,512:0.1".  Out: Phases, and which one a step lies in.  Next: pretraining.py
"""

from dataclasses import dataclass

from bertkit.errors import InputError

TOLERANCE = 1e-6  # of the sum of shares


@dataclass(frozen=True)
class Phase:
    """A part of a run."""

    max_seq_length: int  # tokens
    share: float  # of the run's steps


def phases_from(text: str) -> tuple[Phase, ...]:
    """Return the phases of a flag like 128:0.9,512:0.1, in their order.

    >>> phases_from("128:0.9,512:0.1")
    (Phase(max_seq_length=128, share=0.9), Phase(max_seq_length=512, share=0.1))

    Raises:
        InputError: it has another form, or its shares do not add up to 1.
    """
    phases = []
    for part in text.split(","):
        length, _, share = part.partition(":")
        try:
            phases.append(Phase(int(length), float(share)))
        except ValueError:
            raise InputError(
                "is no phase", field="--phases", value=part, expected="LENGTH:SHARE, as in 128:0.9,512:0.1"
            ) from None
    total = sum(phase.share for phase in phases)
    if abs(total - 1) > TOLERANCE or any(not 0 < phase.share <= 1 for phase in phases):
        raise InputError(
            f"has shares that add up to {total:g}", field="--phases", value=text, expected="shares above 0, in all 1"
        )
    return tuple(phases)


def first_steps(phases: tuple[Phase, ...], max_steps: int) -> list[int]:
    """Return the step at which each phase begins.

    >>> first_steps(phases_from("128:0.9,512:0.1"), 1000)
    [0, 900]
    """
    shares = [0.0]
    for phase in phases[:-1]:
        shares.append(shares[-1] + phase.share)
    return [round(share * max_steps) for share in shares]
