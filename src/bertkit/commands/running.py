"""What `pretrain` and `finetune` do alike around a run: a new folder or a resumed one, its length, training, its files.

In: a run's folder and settings.  Out: settings that are fixed; report.html.  Next: ../train/loop.py
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bertkit.console import say
from bertkit.errors import InputError, Stopped
from bertkit.options import SETTINGS_FILE, values_of, write_values
from bertkit.train.settings import TrainSettings

if TYPE_CHECKING:
    from bertkit.train.loop import Job
    from bertkit.train.runtime import Runtime
    from bertkit.train.state import TrainState

# What tells the folder of a model, a finished run or a store, whose vocabulary must not be another one afterwards.
PATHS = ("data_dir", "train_file", "validation_file", "test_file")  # settings that are paths, comma separated
MODEL_FILES = ("model*.safetensors", "pytorch_model*.bin", "eval_results.json", "manifest.json")
SUMMARIES = ("seeds.json", "layers.json")  # of several runs in folders beside them


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
    if resume_from is None:
        require_no_model(directory)
        require_no_summary(directory)


def require_no_model(directory: Path) -> None:
    """Refuse to write a model, or what is made of one, into the folder of another.

    Raises:
        InputError: weights stand there, or a run has left checkpoints or results, or it is a store.
    """
    if has_checkpoint(directory) or any(file for name in MODEL_FILES for file in directory.glob(name)):
        raise InputError("holds a model or a store", file=directory, field="--output_dir", remedy="name another folder")


def require_no_summary(directory: Path, *, but: str | None = None) -> None:
    """Refuse to write into the folder of several runs; but: the name of the summary that may stand there.

    Raises:
        InputError: another summary stands there.
    """
    if any((directory / name).is_file() for name in SUMMARIES if name != but):
        raise InputError(
            "holds several runs (--seeds, --compare_layers)",
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
    return with_steps(training, steps, eval_every=every)


def with_steps(training: TrainSettings, steps: int, *, eval_every: int) -> TrainSettings:
    """Return the settings with the length of the run fixed; eval_every: where they do not say it themselves."""
    every = training.eval_every or eval_every
    return replace(
        training,
        max_steps=steps,
        num_train_epochs=None,
        max_minutes=None,
        eval_every=every,
        save_every=training.save_every or every,
    )


class Run(Protocol):
    """What is carried out: a run of any kind, opened."""

    directory: Path
    runtime: "Runtime"

    def start(
        self, training: TrainSettings, *, settings: Mapping[str, Any], record: Mapping[str, Any]
    ) -> "tuple[Job, TrainState]":
        """Return the job and where it starts."""
        ...

    def finish(self, job: "Job", state: "TrainState") -> dict[str, Any]:
        """Put the best model into the run's folder and return its results, which are not written yet."""
        ...


def carry_out(
    work: Run, config: Any, training: TrainSettings, *, of_the_run: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Train a run from where it stands to its end, write all its files, and return its results.

    config, training: with the length of the run fixed; given: all settings as they were before that.
    of_the_run: what a resume must have alike.

    Raises:
        InputError: anything the user can mend before the first step, what training raises, or that nothing was learned.
        Stopped: a signal asked to; what was trained is saved.
    """
    from bertkit.train.loop import train
    from bertkit.train.record import GIVEN, update_run, write_results
    from bertkit.train.run import require_learned

    job, state = work.start(training, settings=of_the_run, record=values_of(config))
    with closing(job.log):
        if work.runtime.is_first:
            _keep_settings(config, work.directory, training=training, of_the_run=of_the_run)
            if training.resume_from is None:
                update_run(work.directory, {GIVEN: dict(given)})
        train(job, state)
        if signal_number := work.runtime.asked_to_stop():
            raise _stopped(signal_number, step=state.step, max_steps=job.max_steps)
        results = work.finish(job, state)
    try:
        require_learned(job, state)
        if work.runtime.is_first:
            write_results(work.directory, results)  # last: a run that has them is finished
    finally:
        if work.runtime.is_first:
            write_report(work.directory)  # which shows, too, where it went wrong
    return results


def _keep_settings(config: Any, directory: Path, *, training: TrainSettings, of_the_run: Mapping[str, Any]) -> None:
    """Write settings.yaml, which repeats the run: as it began, or as an inexact resume has changed it.

    of_the_run: what a resume must have alike; only of these does an inexact one change any.
    """
    values = values_of(config)
    path = directory / SETTINGS_FILE
    if training.resume_from is not None:
        if not training.allow_inexact:
            return
        import yaml

        before = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else values
        values = {**before, **{name: value for name, value in values.items() if name in of_the_run}}
    values |= {"resume_from": None, "allow_inexact": False}
    for name in PATHS:  # so that a resume finds them from any folder
        if values.get(name) is not None:
            parts = [part.strip() for part in values[name].split(",")]
            values[name] = ",".join(part if "://" in part else str(Path(part).absolute()) for part in parts)
    write_values(values, directory)


def write_report(directory: Path) -> None:
    """Write RUN/report.html, or say how to get it."""
    from bertkit.report.page import plotly_is_installed
    from bertkit.report.page import write_report as write

    if plotly_is_installed():
        write(directory)
    else:
        say('no report.html was written: pip install "bertkit[report]", then bertkit report ' + str(directory))


def _stopped(signal_number: int, *, step: int, max_steps: int) -> Stopped:
    """Return what ends a run that a signal asked to stop, with the way on."""
    way_on = "go on by --resume_from last" if step else "nothing was trained yet: start it again"
    return Stopped(signal_number, f"stopped after step {step:,} of {max_steps:,}; {way_on}")
