"""What a user may set about training; free of torch, so that `--help` is quick.

In: flags or YAML.  Out: one frozen TrainSettings, checked.  Next: loop.py
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bertkit.errors import InputError, InputErrors
from bertkit.options import option, values_of, without_effect

LARGEST_COUNT = 10**9
MOST_EPOCHS = 10**6
Precision = Literal["fp32", "bf16", "fp16"]
Sharding = Literal["none", "fsdp"]
Tracker = Literal["none", "tensorboard", "wandb", "mlflow", "trackio", "swanlab"]
# Settings that do something beside some values of another one only.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "muon_learning_rate": ("optimizer", ("muon",)),
    "decay_ratio": ("lr_scheduler_type", ("wsd",)),
    "polynomial_power": ("lr_scheduler_type", ("polynomial",)),
    "final_learning_rate_ratio": ("lr_scheduler_type", ("linear", "cosine", "polynomial", "wsd", "one-cycle")),
    "max_skipped_steps": ("on_non_finite", ("skip",)),
    "attention": ("precision", ("bf16", "fp16")),  # the kernel of packed rows computes in no other
}

# Settings that a resumed run may change without becoming another run.
FREE_ON_RESUME = frozenset(
    {
        "allow_inexact",
        "data_workers",
        "early_stopping_patience",
        "gradient_checkpointing",
        "hang_timeout",
        "keep_every",
        "log_every",
        "max_skipped_steps",
        "on_non_finite",
        "report_to",
        "resume_from",
        "save_every",
        "save_total_limit",
    }
)


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained; steps are optimizer updates."""

    batch_size: int = option(32, help="rows a step, over all devices")
    micro_batch_tokens: int = option(
        2048, help="most tokens in one forward pass, padding counted; a knob for memory and cache, never for results"
    )
    optimizer: Literal["adamw", "muon", "lamb"] = option(
        "adamw",
        help="adamw for every weight, muon for the matrices of the layers and adamw for the rest, or lamb for very "
        "large batches (extra `lamb`)",
    )
    learning_rate: float = option(1e-3, help="peak rate of AdamW or LAMB")
    muon_learning_rate: float = option(0.02, help="peak rate of Muon")
    layer_decay: float = option(1.0, help="rate of each layer as a share of that of the layer above; 1: the same")
    lr_scheduler_type: Literal["linear", "cosine", "polynomial", "constant", "wsd", "one-cycle"] = option(
        "linear", help="what follows the warm-up; wsd: constant, then a linear fall over the last --decay_ratio"
    )
    warmup_ratio: float = option(0.1, help="share of max_steps over which the rate rises from 0")
    decay_ratio: float = option(0.2, help="share of max_steps over which wsd falls")
    polynomial_power: float = option(2.0, help="power of the polynomial fall")
    final_learning_rate_ratio: float = option(0.0, help="share of the peak rate that is left at the end")
    weight_decay: float = option(0.01, help="decoupled decay per unit of rate; none on biases and LayerNorm")
    max_grad_norm: float = option(1.0, help="longest gradient; a longer one is scaled down to it")
    adam_beta1: float = option(0.9, help="AdamW's decay of the mean")
    adam_beta2: float = option(0.98, help="AdamW's decay of the squares")
    adam_epsilon: float = option(1e-8, help="AdamW's term against division by 0")
    ema_decay: float | None = option(
        None, help="decay a step of a running average of the weights, which is then evaluated and kept; null: none"
    )
    max_steps: int | None = option(None, help="optimizer updates in all; null: from num_train_epochs or max_minutes")
    num_train_epochs: float | None = option(None, help="passes over the data in all; null with no other length: 10")
    max_minutes: float | None = option(
        None, help="minutes of training, evaluation and saving not counted; measured once and turned into max_steps"
    )
    early_stopping_patience: int | None = option(
        None, help="end after so many evaluations in a row without a better one; null: never"
    )
    precision: Precision = option("fp32", help="numbers of the forward pass; weights stay fp32")
    gradient_checkpointing: bool = option(False, help="compute activations again in the backward pass: less memory")
    attention: Literal["padded", "packed"] = option(
        "padded", help="packed: no padding in attention either (FlashAttention: a GPU with --precision bf16 or fp16)"
    )
    torch_compile: bool = option(False, help="compile the layers by torch.compile; needs a C++ compiler or a GPU")
    sharding: Sharding = option("none", help="fsdp: weights, gradients and moments are cut over the processes (FSDP2)")
    data_workers: int = option(0, help="processes that make batches ahead; 0: made where they are used")
    on_non_finite: Literal["stop", "skip"] = option(
        "stop", help="a step whose loss or gradient is not finite is never made: stop there, or go on without it"
    )
    max_skipped_steps: int = option(10, help="steps left out in a row before training stops all the same")
    hang_timeout: float = option(1800.0, help="seconds without any progress after which the run ends itself; 0: never")
    log_every: int = option(10, help="steps between two lines of metrics.jsonl")
    eval_every: int | None = option(None, help="steps between two evaluations; null: a tenth of the run")
    save_every: int | None = option(None, help="steps between two checkpoints; null: as eval_every")
    save_total_limit: int = option(2, help="checkpoints kept besides the best one")
    keep_every: int | None = option(
        None, help="checkpoints at multiples of so many steps are kept for good; null: none"
    )
    resume_from: str | None = option(None, help="last, best, or a checkpoint folder: go on from there")
    allow_inexact: bool = option(
        False, help="resume although settings, data or machine differ, so that the result is not that of one run"
    )
    report_to: Tracker = option("none", help="tracker beside metrics.jsonl")
    seed: int = option(12345, help="seed of weights, order, pairs, masks and dropout")

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_numbers()
        lengths = {
            "max_steps": self.max_steps,
            "num_train_epochs": self.num_train_epochs,
            "max_minutes": self.max_minutes,
        }
        given = [f"--{name}" for name, value in lengths.items() if value is not None]
        if len(given) > 1:
            raise InputError("set the same thing", field=" and ".join(given), remedy="give one of them")
        if self.allow_inexact and self.resume_from is None:
            raise InputError("has no effect without --resume_from", field="--allow_inexact")

    def _check_counts(self) -> None:
        counts = {
            "batch_size": self.batch_size,
            "micro_batch_tokens": self.micro_batch_tokens,
            "log_every": self.log_every,
            "save_total_limit": self.save_total_limit,
            "max_steps": self.max_steps,
            "eval_every": self.eval_every,
            "save_every": self.save_every,
            "keep_every": self.keep_every,
            "early_stopping_patience": self.early_stopping_patience,
            "max_skipped_steps": self.max_skipped_steps,
        }
        for name, count in counts.items():
            if count is not None and not 1 <= count <= LARGEST_COUNT:
                raise InputError("is out of range", field=f"--{name}", value=count, expected=f"1 to {LARGEST_COUNT:,}")
        if self.data_workers < 0:
            raise InputError(
                "is no number of processes", field="--data_workers", value=self.data_workers, expected="0 or more"
            )
        if not 0 <= self.seed < 2**63:
            raise InputError("is no seed", field="--seed", value=self.seed, expected="0 to 2⁶³ − 1")

    @property
    def peak_rates(self) -> dict[str, float]:
        """The peak rates that the optimizer uses, by flag."""
        rates = {"--learning_rate": self.learning_rate}
        return rates | ({"--muon_learning_rate": self.muon_learning_rate} if self.optimizer == "muon" else {})

    def _check_numbers(self) -> None:
        above_zero = {
            "learning_rate": self.learning_rate,
            "muon_learning_rate": self.muon_learning_rate,
            "num_train_epochs": self.num_train_epochs,
            "max_minutes": self.max_minutes,
            "max_grad_norm": self.max_grad_norm,
            "polynomial_power": self.polynomial_power,
        }
        for name, number in above_zero.items():
            if number is not None and not 0 < number < math.inf:
                raise InputError("is not above 0", field=f"--{name}", value=number, expected="a number above 0")
        if self.num_train_epochs is not None and self.num_train_epochs > MOST_EPOCHS:
            raise InputError(
                "is out of range",
                field="--num_train_epochs",
                value=self.num_train_epochs,
                expected=f"up to {MOST_EPOCHS:,}",
            )
        at_least_zero = {
            "weight_decay": self.weight_decay,
            "adam_epsilon": self.adam_epsilon,
            "hang_timeout": self.hang_timeout,
        }
        for name, number in at_least_zero.items():
            if not 0 <= number < math.inf:
                raise InputError("is not a number of 0 or more", field=f"--{name}", value=number, expected="0 or more")
        decays = {"adam_beta1": self.adam_beta1, "adam_beta2": self.adam_beta2, "ema_decay": self.ema_decay}
        for name, decay in decays.items():
            if decay is not None and not 0 <= decay < 1:
                raise InputError("is not a decay", field=f"--{name}", value=decay, expected="0 ≤ decay < 1")
        if not 0 < self.layer_decay <= 1:
            raise InputError(
                "is no share", field="--layer_decay", value=self.layer_decay, expected="above 0, at most 1"
            )
        shares = {
            "warmup_ratio": self.warmup_ratio,
            "decay_ratio": self.decay_ratio,
            "final_learning_rate_ratio": self.final_learning_rate_ratio,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise InputError("is not a share", field=f"--{name}", value=share, expected="0 to 1")


def require_effect(settings: TrainSettings, *, defaults: Mapping[str, Any]) -> None:
    """Refuse what was set and would do nothing; defaults: by name, where a command's are other than these here.

    Raises:
        InputErrors: all such settings, with the one that each depends on.
    """
    if problems := without_effect(values_of(settings), {**values_of(TrainSettings()), **defaults}, NEEDS):
        raise InputErrors(problems)


def rates_at_fault(settings: TrainSettings) -> dict[str, Any]:
    """Return `field` and `value` of an InputError that is about the rates."""
    flags, rates = list(settings.peak_rates), list(settings.peak_rates.values())
    return {"field": " and ".join(flags), "value": rates if len(rates) > 1 else rates[0]}
