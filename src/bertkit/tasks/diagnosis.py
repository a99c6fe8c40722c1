"""What is said of a run while there is time to change it: its data and model, its first losses, a loss that stays.

In: settings, counts, metrics.  Out: lines and warnings.  Next: pretraining_run.py
"""

import math
from collections.abc import Mapping

import torch

from bertkit.console import say, warn
from bertkit.data.preparation_report import REPEATED
from bertkit.data.store import Store, read_manifest
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.tasks.pretraining import PretrainingSource
from bertkit.tasks.pretraining_model import num_parameters
from bertkit.train.settings import TrainSettings

# A model that guesses has the losses ln V and ln 2. A new one further off than this is wrong; a trained one this near
# has learnt nothing.
GUESSING = 0.5
# Guessing by frequency alone: a loss this near knows nothing of contexts. Small models stay there for some hundred
# steps, so it is said only after so many.
PLATEAU, PLATEAU_STEPS = 0.1, 500
# Outside these, runs on real text were seen to diverge or to stand still.
RATES = {"adamw": (1e-5, 5e-3), "muon": (1e-5, 5e-3), "lamb": (1e-4, 2e-2)}
MUON_RATES = (1e-3, 0.1)
SMALLEST_BATCH = 8  # rows
MOST_HIDDEN = 0.6  # share of tokens; what is left tells little of them
UNKNOWN, UNREADABLE = 0.05, 0.95  # shares of [UNK]: warned of, refused
DUPLICATES = 0.1  # share of documents


def announce(
    parts: Mapping[str, Store],
    source: PretrainingSource,
    settings: TrainSettings,
    model: PretrainingModel,
    *,
    device: torch.device,
) -> None:
    """Say what is trained on what, and what is unusual about it."""
    train, pairs = parts["train"], source.pairs
    if missing := [name for name in ("validation", "test") if name not in parts]:
        what = "nothing is held out: all figures are of the training text" if len(missing) == 2 else "the other serves"
        warn(f"no {' and no '.join(missing)} part can be used (none in the store, or left out); {what}")
    unknown = 100 * train.manifest["unknown_tokens"] / train.num_tokens
    say(
        f"data: {train.num_documents:,} documents, {train.num_tokens:,} tokens, {unknown:.2f} % [UNK]; "
        f"pairing {pairs.pairing}, {100 * source.masking.mlm_probability:g} % hidden"
    )
    if unknown > 100 * UNKNOWN:
        warn(f"{unknown:.1f} % of the text is [UNK], of which nothing is learnt: is it the tokenizer for this text?")
    table = source.table(0)
    if table.unresolved:
        warn(f"{table.unresolved:,} pairs of epoch 0 left out: every random B drawn truly follows A by its text")
    if table.hard_fallbacks:
        say(f"{table.hard_fallbacks:,} random Bs come from another document: their own is too short for a hard one")
    if table.trimmed_tokens:
        say(f"pairs: {len(table):,} in epoch 0; {table.trimmed_tokens:,} tokens cut from over-long ones")
    fixed = num_parameters(model) - sum(p.numel() for p in model.parameters() if p.requires_grad)
    frozen = f" ({fixed:,} of them frozen)" if fixed else ""
    say(
        f"model: {num_parameters(model):,} parameters{frozen}, vocabulary {model.config.vocab_size:,}; "
        f"{settings.optimizer}, {settings.max_steps:,} steps of {settings.batch_size} rows on {device}"
    )
    repeated = read_manifest(train.directory.parent).get("report", {}).get(REPEATED, 0) / train.num_documents
    if repeated > DUPLICATES:
        warn(
            f"{100 * repeated:.0f} % of the documents repeat an earlier one: the model learns these by heart; "
            "`bertkit prepare --drop_duplicates documents` leaves the first of each"
        )
    warn_of_unusual(settings, source)


def require_readable(train: Store) -> None:
    """Refuse a text that the tokenizer does not know.

    Raises:
        InputError: with the share of [UNK].
    """
    share = train.manifest["unknown_tokens"] / max(1, train.num_tokens)
    if share > UNREADABLE:
        raise InputError(
            f"{100 * share:.0f} % of the text is [UNK] by this tokenizer, of which nothing can be learnt",
            file=train.directory,
            expected=f"{100 * UNREADABLE:.0f} % at most",
            remedy="take the model or the tokenizer of this text's language, or learn one by `bertkit vocab`",
        )


def warn_of_unusual(settings: TrainSettings, source: PretrainingSource) -> None:
    """Say what of a run's settings is unusual."""
    for warning in unusual(settings, rows=len(source.table(0)), hidden=source.masking.mlm_probability):
        warn(warning)


def unusual(settings: TrainSettings, *, rows: int, hidden: float) -> list[str]:
    """Return what of the settings lies outside the range in which runs are known to learn.

    rows: of an epoch; hidden: the share of the tokens.
    """
    found = []
    if hidden > MOST_HIDDEN:
        found.append(f"--mlm_probability {hidden:g} leaves little to guess by: up to {MOST_HIDDEN:g} is known to learn")
    ranges = {"--learning_rate": RATES[settings.optimizer], "--muon_learning_rate": MUON_RATES}
    for flag, rate in settings.peak_rates.items():
        low, high = ranges[flag]
        if not low <= rate <= high:
            found.append(f"{flag} {rate:g} is unusual for {settings.optimizer}: {low:g} to {high:g} is known to learn")
    if settings.batch_size < SMALLEST_BATCH:
        found.append(f"--batch_size {settings.batch_size}: gradients of so few rows are mostly noise; try 32")
    if settings.batch_size > rows:
        found.append(f"--batch_size {settings.batch_size} is more than the {rows:,} rows of an epoch: each step is one")
    return found


def check_first_losses(
    metrics: Mapping[str, float], *, vocab_size: int, is_new: bool, unigram: float | None = None
) -> None:
    """Hold the losses before training beside those of guessing: a new model guesses, a loaded one should not.

    unigram: the masked-LM loss of guessing by frequency alone, where a new model knows the frequencies.
    """
    for name, guessing in {"mlm_loss": math.log(vocab_size), "nsp_loss": math.log(2)}.items():
        if name not in metrics:
            continue
        loss = metrics[name]
        line = f"before training: {name} {loss:.3f}, a model that guesses has {guessing:.3f}"
        if is_new:
            lowest = guessing
            if name == "mlm_loss" and unigram is not None:
                lowest = unigram
                line += f", one that knows the frequencies {unigram:.3f}"
            (say if lowest - GUESSING <= loss <= guessing + GUESSING else warn)(line)
        elif name == "mlm_loss" and loss > guessing - GUESSING:
            warn(f"{line}: the masked-LM head of this model is not trained for this vocabulary and text")
        else:
            say(line)


def warn_of_plateau(mlm_loss: float, *, unigram: float) -> bool:
    """Warn where the held-out masked-LM loss is that of guessing by frequency alone; return whether it is."""
    if mlm_loss < unigram - PLATEAU:
        return False
    warn(
        f"the masked-LM loss {mlm_loss:.3f} is that of guessing by frequency alone ({unigram:.3f}): nothing is learnt "
        "from context yet. Small models need some hundred to some thousand steps to leave this; the defaults "
        "(--initialization neighbours, --optimizer muon, dropout 0) leave it sooner. If it lasts: higher rates, "
        "`bertkit inspect data` on the text, or --overfit_one_batch"
    )
    return True
