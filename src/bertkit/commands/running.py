"""What `pretrain` and `finetune` do alike around a run: a new folder or a resumed one, its length, its report.

In: a run's folder and settings.  Out: settings that are fixed; report.html.  Next: ../train/loop.py
"""

from dataclasses import replace
from pathlib import Path

from bertkit.console import say
from bertkit.errors import InputError, Stopped
from bertkit.options import SETTINGS_FILE
from bertkit.train.settings import TrainSettings


def require_new_or_resumed(directory: Path, *, resume_from: str | None, base: str | None) -> None:
    """Refuse to write a run over another one, or over the model it starts from.

    base: the model's folder; None: it starts from none.

    Raises:
        InputError: with the way out.
    """
    if directory.exists() and not directory.is_dir():
        raise InputError("is no folder", file=directory, field="--output_dir", remedy="name another folder")
    if resume_from is not None and not has_checkpoint(directory):
        raise InputError(
            "holds no checkpoint to go on from" if directory.exists() else "does not exist",
            file=directory,
            field="--resume_from",
            value=resume_from,
            remedy="name the run's folder by --output_dir, or start it without --resume_from",
        )
    if resume_from is None and has_checkpoint(directory):
        raise InputError(
            "holds a run already",
            file=directory,
            field="--output_dir",
            remedy="go on with it by --resume_from last, or name another folder",
        )
    if base is not None and Path(base).resolve() == directory.resolve():
        raise InputError(
            "is the model that training starts from, which the run would overwrite",
            file=directory,
            field="--output_dir",
            remedy="name another folder",
        )


def has_checkpoint(directory: Path) -> bool:
    """Return whether a run in the folder has finished one, that is, has anything to go on from."""
    return any(path.suffix != ".tmp" for path in (directory / "checkpoints").glob("step-*"))


def length_of_checkpoint(directory: Path, training: TrainSettings) -> TrainSettings:
    """Return the settings of a resumed run with the number of steps that was fixed when it began.

    Raises:
        InputError: the run's settings are gone or damaged, and no length is given.
    """
    path = directory / SETTINGS_FILE
    if training.resume_from is None or training.max_steps is not None:
        return training
    if not path.is_file():
        raise InputError("is missing, so the length of the run is not known", file=path, remedy="give its --max_steps")
    import yaml

    try:
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
        steps, every = int(before["max_steps"]), int(before["eval_every"])
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as problem:
        raise InputError(
            f"is damaged, so the length of the run is not known ({problem!r})",
            file=path,
            remedy="give its --max_steps",
        ) from None
    say(f"resuming a run of {steps:,} steps in all, as fixed when it began")
    return replace(
        training, max_steps=steps, num_train_epochs=None, max_minutes=None, eval_every=training.eval_every or every
    )


def write_report(directory: Path) -> None:
    """Write RUN/report.html, or say how to get it."""
    from bertkit.report.page import plotly_is_installed
    from bertkit.report.page import write_report as write

    if plotly_is_installed():
        write(directory)
    else:
        say('no report.html was written: pip install "bertkit[report]", then bertkit report ' + str(directory))


def stopped(signal_number: int, *, step: int, max_steps: int) -> Stopped:
    """Return what ends a run that a signal asked to stop, with the way on."""
    way_on = "go on by --resume_from last" if step else "nothing was trained yet: start it again"
    return Stopped(signal_number, f"stopped after step {step:,} of {max_steps:,}; {way_on}")
