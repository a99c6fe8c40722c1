"""What `pretrain` and `finetune` do alike around a run: a new folder or a resumed one, its length, its report.

In: a run's folder and settings.  Out: settings that are fixed; report.html.  Next: ../train/loop.py
"""

from dataclasses import replace
from pathlib import Path

from bertkit.console import say
from bertkit.errors import InputError
from bertkit.options import SETTINGS_FILE
from bertkit.train.settings import TrainSettings


def require_new_or_resumed(directory: Path, *, resume_from: str | None, base: str | None) -> None:
    """Refuse to write a run over another one, or over the model it starts from.

    base: the model's folder; None: it starts from none.

    Raises:
        InputError: with the way out.
    """
    if resume_from is None and _has_checkpoint(directory):
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


def _has_checkpoint(directory: Path) -> bool:
    """Whether a run in the folder has finished one, that is, has anything to go on from."""
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
