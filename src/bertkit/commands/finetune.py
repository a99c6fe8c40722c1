"""`bertkit finetune TASK`: from a pre-trained model and labelled files to a model that answers.

In: a model folder, files as people have them.  Out: RUN with the best model, its results, predictions, report.html.
Next: tasks/finetuning_setup.py … train/loop.py (the work itself)
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bertkit.commands.running import carry_out, length_of_checkpoint, require_new_or_resumed, with_steps
from bertkit.commands.several import Member, figures_of, make_all, write_summary
from bertkit.console import result, say, table
from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError
from bertkit.options import ALLOW_BIN, argument, group, option, values_of
from bertkit.tasks.task_settings import KNOWN_BY, TaskName, TaskSettings, require_known
from bertkit.train.settings import TrainSettings, require_effect

if TYPE_CHECKING:
    from bertkit.tasks.finetuning_run import FineTuningRun

DEFAULT_EPOCHS = 3.0  # where neither steps, epochs nor minutes are given
# The rates and lengths with which BERT is fine-tuned: Devlin et al. 2019, appendix A.3.
FINE_TUNING = {"learning_rate": 5e-5, "adam_beta2": 0.999, "save_total_limit": 1}

HELPS = {
    "num_train_epochs": f"passes over the training examples in all; null with no other length: {DEFAULT_EPOCHS:g}",
    "eval_every": "steps between two evaluations; null: an epoch",
    "early_stopping_patience": "end after so many evaluations in a row without a better one, which needs held-out "
    "examples; null: never",
    "seed": "seed of the new head, of order and dropout",
}


@dataclass(frozen=True)
class Config:
    """The task, the model, the data, and the training."""

    task: TaskName = argument(help="sequence-classification, token-classification, multiple-choice, question-answering")
    model_name_or_path: str = option(help="model to start from: a folder, or owner/name on the hub", fixed=True)
    train_file: str = option(help="labelled examples: paths, comma separated; globs; folders")
    output_dir: str = option(help="folder of the run (RUN); the finished model stands in it")
    validation_file: str | None = option(None, help="labelled examples that decide which checkpoint is best")
    test_file: str | None = option(None, help="labelled examples on which the best model is measured at the end")
    validation_split: float | None = option(
        None, help="share of the training examples kept for validation, where there is no file for it"
    )
    split_seed: int = option(12345, help="seed that draws --validation_split, the same in all runs of --seeds")
    reading: ReadingSettings = group(ReadingSettings)
    settings: TaskSettings = group(TaskSettings)
    allow_bin: bool = option(False, help=ALLOW_BIN)
    hidden_dropout_prob: float | None = option(None, help="share of activations dropped; null: as the model says")
    attention_probs_dropout_prob: float | None = option(
        None, help="share of attention weights dropped; null: as the model says"
    )
    classifier_dropout: float | None = option(None, help="share dropped before the head; null: hidden_dropout_prob")
    freeze_layers: int | None = option(
        None, help="keep the embeddings and so many of the lowest layers as they are; 0: the embeddings; null: nothing"
    )
    new_head: bool = option(
        False, help="make the head anew, also where the folder has one that was trained for these labels", fixed=True
    )
    seeds: str | None = option(
        None,
        help="several runs, as 1,2,3: each in a folder of its own, and mean ± sd of all; given again, what is finished "
        "stays and what was begun goes on",
    )
    compare_layers: bool = option(
        False,
        help="a run for each layer of the model (or of --layers), which stays as it is: how good the head is that "
        "reads it; given again, it goes on as --seeds does",
    )
    training: TrainSettings = group(TrainSettings, defaults=FINE_TUNING, helps=HELPS)

    def __post_init__(self) -> None:
        require_known(self.task, self.settings, self.reading)
        require_effect(self.training, defaults=FINE_TUNING)
        if self.validation_split is not None and not 0 < self.validation_split < 1:
            raise InputError(
                "is no share", field="--validation_split", value=self.validation_split, expected="above 0, below 1"
            )
        if self.validation_split is not None and self.validation_file is not None:
            remedy = "give one of them"
            raise InputError(
                "name two validation parts", field="--validation_file and --validation_split", remedy=remedy
            )
        if self.validation_split is None and self.split_seed != Config.split_seed:
            raise InputError("has no effect without --validation_split", field="--split_seed", value=self.split_seed)
        held_out = (self.validation_split, self.validation_file, self.test_file)
        if self.training.early_stopping_patience is not None and not any(held_out):
            raise InputError(
                "has no effect where nothing is held out",
                field="--early_stopping_patience",
                value=self.training.early_stopping_patience,
                remedy="give --validation_file or --validation_split",
            )
        if self.seeds is not None:
            if self.training.resume_from is not None:
                remedy = "leave --resume_from away: the same command goes on with what was begun"
                raise InputError("are several runs", field="--seeds", remedy=remedy)
            _numbers(self.seeds)
            if self.training.seed != TrainSettings.seed:
                raise InputError("has no effect beside --seeds", field="--seed", value=self.training.seed)
        if self.compare_layers and (self.seeds is not None or self.training.resume_from is not None):
            raise InputError("goes neither with --seeds nor with --resume_from", field="--compare_layers")
        if len(self.settings.layers) > 1 and self.settings.combine == "last" and not self.compare_layers:
            raise InputError(
                "only the deepest of several layers is read by --combine last",
                field="--layers",
                value=",".join(map(str, self.settings.layers)),
                remedy="name one layer, or choose how they become one: --combine concat, sum, mean or weighted",
            )
        if self.compare_layers and (self.settings.combine != "last" or self.freeze_layers is not None):
            raise InputError("sets --combine and --freeze_layers itself", field="--compare_layers")


def unknown_options(words: list[str]) -> frozenset[str]:
    """Return the options that belong to other tasks than the one that the words name, for --help."""
    known = [name for name in get_args(TaskName) if name in words[:1]]
    return frozenset(name for name, tasks in KNOWN_BY.items() if known and known[0] not in tasks)


def run(config: Config) -> None:
    """Fine-tune and say what came of it."""
    if config.seeds is not None:
        _run_seeds(config, _numbers(config.seeds))
        return
    if config.compare_layers:
        _run_layers(config)
        return
    results = finetune(config)
    _say(results)
    result(f"model: {config.output_dir}")
    report = Path(config.output_dir) / "report.html"
    if report.exists():
        result(f"report: {report}")


def finetune(config: Config) -> dict[str, Any]:
    """Fine-tune as configured and return the results by part.

    Raises:
        InputError: anything the user can mend; all of it before the first step.
        Stopped: a signal asked to; what was trained is saved.
    """
    from bertkit.tasks.example_files import DataFiles, read_parts

    directory = Path(config.output_dir)
    require_new_or_resumed(directory, resume_from=config.training.resume_from, base=config.model_name_or_path)
    config = replace(config, training=length_of_checkpoint(directory, config.training))
    files = DataFiles(
        config.train_file, config.validation_file, config.test_file, config.validation_split, config.split_seed
    )
    parts = read_parts(config.task, files, config.reading)

    from bertkit.tasks.finetuning_setup import BaseModel, open_run  # torch, which takes seconds

    base = BaseModel(
        config.model_name_or_path,
        config.allow_bin,
        config.hidden_dropout_prob,
        config.attention_probs_dropout_prob,
        config.classifier_dropout,
        config.freeze_layers,
        config.new_head,
    )
    work = open_run(
        directory,
        task=config.task,
        base=base,
        parts=parts,
        reading=config.reading,
        settings=config.settings,
        training=config.training,
    )
    with work.runtime.answering():
        given, config = values_of(config), _with_length(config, work)
        return carry_out(work, config, config.training, of_the_run=_settings_of_the_run(config, work), given=given)


def _settings_of_the_run(config: Config, work: "FineTuningRun") -> dict[str, Any]:
    """What must be the same for a resumed run to equal one that was never stopped, besides the model and the data."""
    weights = None if work.class_weights is None else work.class_weights.tolist()
    own = {"classifier_dropout": config.classifier_dropout, "freeze_layers": config.freeze_layers}
    settings = {**values_of(config.reading), **values_of(config.settings), **values_of(config.training)}
    return {**settings, **own, "weights_of_classes": weights}


def _with_length(config: Config, work: "FineTuningRun") -> Config:
    """Fix max_steps and how often is evaluated: every epoch, unless said otherwise."""
    training, an_epoch = config.training, work.source(config.training).steps_in_epoch
    if training.max_steps is not None:
        steps = training.max_steps
    elif training.max_minutes is not None:
        steps = max(1, round(training.max_minutes * 60 / work.seconds_a_step(training)))
        say(f"{training.max_minutes:g} minutes are {steps:,} steps here, {steps / an_epoch:.2f} epochs")
    else:
        epochs = DEFAULT_EPOCHS if training.num_train_epochs is None else training.num_train_epochs
        steps = max(1, math.ceil(epochs * an_epoch))
        say(f"{epochs:g} epochs are {steps:,} steps")
    return replace(config, training=with_steps(training, steps, eval_every=an_epoch))


def _numbers(seeds: str) -> list[int]:
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise InputError("is no list of seeds", field="--seeds", value=seeds, expected="as in 1,2,3") from None
    if len(set(numbers)) < len(numbers):
        raise InputError("names a seed twice", field="--seeds", value=seeds, expected="different seeds, as in 1,2,3")
    return numbers


def _run_seeds(config: Config, seeds: list[int]) -> None:
    """Run each seed in its folder, and say mean ± standard deviation of every figure."""
    from bertkit.metrics.scores import mean_and_sd

    common = replace(config, seeds=None)
    runs = {str(seed): replace(common, training=replace(config.training, seed=seed)) for seed in seeds}
    found = make_all(Path(config.output_dir), "seed", _members("seed", runs))
    figures = {name: figures_of(results) for name, results in found.items()}
    rows: list[tuple[str, ...]] = [("part", "metric", "mean", "sd", *(f"seed {name}" for name in figures))]
    overall: dict[str, dict[str, dict[str, float]]] = {}
    for part, names in next(iter(figures.values())).items():
        for metric in names:
            values = [each[part][metric] for each in figures.values()]
            mean, deviation = mean_and_sd(values)
            overall.setdefault(part, {})[metric] = {"mean": mean, "sd": deviation}
            rows.append((part, metric, *(f"{value:.4f}" for value in (mean, deviation, *values))))
    content = {"task": config.task, "overall": overall, "seeds": figures}
    title = f"{config.task}: mean and standard deviation of {len(seeds)} seeds"
    write_summary(Path(config.output_dir), "seed", title=title, rows=rows, content=content)


def _run_layers(config: Config) -> None:
    """Train a head on each layer in its folder, everything below it frozen, and say how good each is."""
    runs = {
        str(layer): replace(
            config,
            compare_layers=False,
            new_head=True,  # that of the folder would be ahead of the others
            freeze_layers=layer,
            settings=replace(config.settings, layers=[layer], combine="last"),
        )
        for layer in _layers_to_compare(config)
    }
    found = make_all(Path(config.output_dir), "layer", _members("layer", runs))
    figures = {name: figures_of(results) for name, results in found.items()}
    first = next(iter(figures.values()))
    part = next(part for part in ("validation", "test", "train") if part in first)
    rows: list[tuple[str, ...]] = [("layer", *(f"{name}, {part}" for name in first[part]))]
    rows += [(name, *(f"{value:.4f}" for value in each[part].values())) for name, each in figures.items()]
    content = {"task": config.task, "part": part, "layers": figures}
    title = f"{config.task}: a head on each layer, everything below it frozen"
    write_summary(Path(config.output_dir), "layer", title=title, rows=rows, content=content)


def _layers_to_compare(config: Config) -> tuple[int, ...]:
    """The layers of --layers, or all that the model has above its embeddings."""
    from bertkit.model.config import config_from_json, read_json_object
    from bertkit.model.hub import model_directory
    from bertkit.model.layer_mix import checked_layers

    base = model_directory(config.model_name_or_path, allow_pickle_weights=config.allow_bin)
    path = base / "config.json"
    number = config_from_json(read_json_object(path), file=path).num_hidden_layers
    if config.settings.layers == TaskSettings().layers:
        return tuple(range(1, number + 1))
    layers = checked_layers(config.settings.layers, num_hidden_layers=number)
    if 0 in layers:
        raise InputError("leaves no layer of the model", field="--layers", value=0, expected=f"1 to {number}")
    return layers


def _members(kind: str, runs: dict[str, Config]) -> dict[str, Member]:
    """Each run with its folder in that of all, and how to make it."""

    def member(own: Config) -> Member:
        def make(goes_on: bool) -> dict[str, Any]:
            last = "last" if goes_on else None
            return finetune(replace(own, training=replace(own.training, resume_from=last)))

        return Member(Path(own.output_dir), values_of(own), make)

    return {
        name: member(replace(own, output_dir=str(Path(own.output_dir) / f"{kind}-{name}")))
        for name, own in runs.items()
    }


def _say(results: dict[str, Any]) -> None:
    rows = [
        (part, name, f"{value:.4f}") for part, figures in figures_of(results).items() for name, value in figures.items()
    ]
    result(table(rows))
