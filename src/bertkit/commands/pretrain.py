"""`bertkit pretrain`: from a store (or raw text) to a pre-trained model folder, resumable, with its report.

In: a store, a model size or a checkpoint.  Out: RUN with the best model, checkpoints, metrics, results, report.html.
Next: data/store.py … train/loop.py (the work itself); tasks/pretraining_run.py (what is put together for it)
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.commands.running import carry_out, length_of_checkpoint, require_new_or_resumed, with_steps
from bertkit.console import result, say, table
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.preparation import PreparationSettings
from bertkit.errors import InputError
from bertkit.files import sha256_of_file
from bertkit.options import ALLOW_BIN, group, option, values_of
from bertkit.tasks.recipes import (
    DEFAULT_RECIPE,
    MASKING_OF_DEFAULT_RECIPE,
    RATE_ABOVE_TINY,
    RECIPES,
    TRAINING_OF_DEFAULT_RECIPE,
    Initialization,
    Recipe,
    in_words,
    of_loaded,
    of_recipe,
    of_size,
)
from bertkit.text.documents import CorpusSettings
from bertkit.train.settings import TrainSettings, require_effect

if TYPE_CHECKING:
    from bertkit.model.heads import PretrainingModel
    from bertkit.tasks.pretraining_run import PretrainingRun
    from bertkit.text.tokenizer import Tokenizer

DEFAULT_EPOCHS = 10.0  # where neither steps, epochs nor minutes are given
EVALUATIONS = 10  # in a run, unless eval_every says otherwise


@dataclass(frozen=True)
class Config:
    """The data, the model, the pairs and masks, and the training."""

    output_dir: str = option(help="folder of the run (RUN); the finished model stands in it")
    data_dir: str | None = option(None, help="store of `bertkit prepare`: a folder, or a URL that fsspec opens")
    corpus: CorpusSettings = group(CorpusSettings)
    tokenizer: str | None = option(None, help="tokenizer for --input_file: folder, vocab.txt or tokenizer.json")
    do_lower_case: bool | None = option(None, help="lower-case --input_file; null: as the tokenizer's files say")
    preparation: PreparationSettings = group(PreparationSettings)
    model_size: str = option(
        "tiny",
        presets=of_size,
        fixed=True,
        help="tiny, mini, small, medium, base, large, or a config.json: a new model of this size",
    )
    model_name_or_path: str | None = option(
        None,
        presets=of_loaded,
        help="model folder, or owner/name of the Hugging Face hub, to go on from, in place of a new model",
        fixed=True,
    )
    allow_bin: bool = option(False, help=ALLOW_BIN)
    recipe: Recipe = option(
        DEFAULT_RECIPE,
        presets=of_recipe,
        fixed=True,
        help="values of settings that are not given: muon (learns most in little time), continue (the same for a "
        "model that has learnt: a tenth of a tiny model's rates, and its own dropout; with --model_name_or_path where "
        "no recipe is given), or bert (as BERT was trained: AdamW, dropout 0.1, 256 rows)",
    )
    initialization: Initialization = option(
        RECIPES[DEFAULT_RECIPE]["initialization"],
        help="what a new model begins with: normal (random numbers, as BERT did), or neighbours (what counting the "
        "text tells: how frequent tokens are, which have like neighbours, and a first layer that looks at these)",
        fixed=True,
    )
    hidden_dropout_prob: float | None = option(
        RECIPES[DEFAULT_RECIPE]["hidden_dropout_prob"], help="share of activations dropped; null: the model's"
    )
    attention_probs_dropout_prob: float | None = option(
        RECIPES[DEFAULT_RECIPE]["attention_probs_dropout_prob"],
        help="share of attention weights dropped; null: the model's",
    )
    pairs: PairSettings = group(PairSettings)
    masking: MaskingSettings = group(MaskingSettings, defaults=MASKING_OF_DEFAULT_RECIPE)
    training: TrainSettings = group(
        TrainSettings,
        defaults=TRAINING_OF_DEFAULT_RECIPE,
        helps={
            "muon_learning_rate": f"peak rate of Muon; with a --model_size other than tiny {RATE_ABOVE_TINY} where it "
            "is not given"
        },
    )
    phases: str | None = option(
        None,
        help="lengths of rows one after the other, as 128:0.9,512:0.1: LENGTH:SHARE of the steps, in place of "
        "--max_seq_length",
    )
    freeze_layers: int | None = option(
        None, help="keep the embeddings and so many of the lowest layers as they are; 0: the embeddings; null: nothing"
    )
    eval_rows: int = option(1024, help="held-out rows of each evaluation on the way; the last one takes all")
    dry_run: bool = option(False, help="say what the run would cost (memory, time, disk), measured, and train nothing")
    verify_resume: bool = option(
        False, help="train 20 steps, and again with a stop in the middle, compare every weight, and train nothing more"
    )
    overfit_one_batch: bool = option(
        False, help="train on one batch again and again: a model and settings that can learn drive its loss to 0"
    )

    def __post_init__(self) -> None:
        require_effect(self.training, defaults=self._training_defaults())
        if self.data_dir is not None and self.corpus.input_file is None:
            self._refuse_what_a_store_has_settled()
        if self.model_name_or_path is not None and self.model_size != "tiny":
            raise InputError(
                "has no effect with --model_name_or_path, which has a size", field="--model_size", value=self.model_size
            )
        if self.recipe == "continue" and self.model_name_or_path is None:
            raise InputError(
                "has the rates of a model that goes on",
                field="--recipe",
                value="continue",
                expected="muon or bert, or the model by --model_name_or_path",
            )
        defaults = {recipe.get("initialization") for recipe in (of_recipe(self.recipe), RECIPES[DEFAULT_RECIPE])}
        if self.model_name_or_path is not None and self.initialization not in defaults:
            raise InputError(
                "has no effect with --model_name_or_path, whose weights are there",
                field="--initialization",
                value=self.initialization,
            )
        if not self.masking.mlm_probability > 0:
            raise InputError("hides nothing", field="--mlm_probability", value=0, expected="above 0, up to 1")
        if self.pairs.static and self.masking.final_mlm_probability is not None:
            raise InputError("contradict each other", field="--static and --final_mlm_probability")
        if self.phases is not None:
            self._check_phases()
        rehearsals = [self.dry_run, self.verify_resume, self.overfit_one_batch]
        if sum(rehearsals) > 1 or (any(rehearsals) and self.training.resume_from is not None):
            raise InputError(
                "go one by one, and not with --resume_from", field="--dry_run, --verify_resume, --overfit_one_batch"
            )
        if self.eval_rows < 1:
            raise InputError("evaluates nothing", field="--eval_rows", value=self.eval_rows, expected="1 or more")

    def _training_defaults(self) -> dict[str, Any]:
        """The settings of training that nobody need have given; Muon's rate may be any size's, as in old files."""
        rates = {RATE_ABOVE_TINY, RECIPES[DEFAULT_RECIPE]["muon_learning_rate"]}
        own = self.training.muon_learning_rate
        return {
            **TRAINING_OF_DEFAULT_RECIPE,
            **of_recipe(self.recipe),
            **({"muon_learning_rate": own} if own in rates else {}),
        }

    def _check_phases(self) -> None:
        from bertkit.tasks.phases import phases_from

        assert self.phases is not None
        longest = max(phase.max_seq_length for phase in phases_from(self.phases))
        if self.pairs.max_seq_length not in (longest, PairSettings().max_seq_length):
            raise InputError("is said by --phases already", field="--max_seq_length", value=self.pairs.max_seq_length)

    def _refuse_what_a_store_has_settled(self) -> None:
        settled = {
            **values_of(self.preparation),
            **values_of(self.corpus),
            "tokenizer": self.tokenizer,
            "do_lower_case": self.do_lower_case,
        }
        defaults = {**values_of(PreparationSettings()), **values_of(CorpusSettings())}
        different = [f"--{name}" for name, value in settled.items() if value != defaults.get(name)]
        if different:
            raise InputError(
                "has no effect with --data_dir: the store was prepared before",
                field=", ".join(different),
                remedy="leave it out, or give --input_file in place of --data_dir",
            )


def run(config: Config) -> None:
    """Pre-train and say where everything lies; or rehearse."""
    if config.dry_run or config.verify_resume or config.overfit_one_batch:
        result(table(_rehearsed(config)))
        return
    results = pretrain(config)
    result(table([(name, f"{value:.4f}" if isinstance(value, float) else value) for name, value in results.items()]))
    result(f"model: {config.output_dir}")
    report = Path(config.output_dir) / "report.html"
    if report.exists():
        result(f"report: {report}")


def pretrain(config: Config) -> dict[str, Any]:
    """Pre-train as configured and return the held-out results under Google's names.

    Raises:
        InputError: anything the user can mend; all of it before the first step.
        Stopped: a signal asked to; what was trained is saved.
    """
    require_new_or_resumed(
        Path(config.output_dir), resume_from=config.training.resume_from, base=config.model_name_or_path
    )
    config = replace(config, training=length_of_checkpoint(Path(config.output_dir), config.training))
    if config.training.resume_from is None:
        _say_recipe(config)
    work = open_work(config)
    with work.runtime.answering():
        given, config = values_of(config), _with_length(config, work)
        return carry_out(work, config, config.training, of_the_run=_settings_of_the_run(config), given=given)


def _say_recipe(config: Config) -> None:
    values = values_of(config)
    if config.model_name_or_path is not None:
        del values["initialization"]
    say(in_words(config.recipe, values))


def _rehearsed(config: Config) -> list[tuple[str, str]]:
    """What one of --dry_run, --overfit_one_batch and --verify_resume finds, in a folder that is thrown away."""
    from bertkit.tasks import rehearsals

    settings = _settings_of_the_run(config)
    _say_recipe(config)
    with _thrown_away(Path(config.output_dir)) as folder:
        if config.verify_resume:

            def open_run(directory: Path, training: TrainSettings) -> "PretrainingRun":
                return open_work(replace(config, output_dir=str(directory), training=training, verify_resume=False))

            return rehearsals.verify_resume(open_run, folder, config.training, settings)
        work = open_work(replace(config, output_dir=str(folder)))
        if config.overfit_one_batch:
            return rehearsals.overfit(work, config.training, settings=settings)
        step = work.mean_step(config.training)
        config = _with_length(config, work, seconds=step.seconds)
        return rehearsals.costs(work, config.training, step=step)


@contextmanager
def _thrown_away(directory: Path) -> Iterator[Path]:
    """A folder beside the run's, so on the disk that the run would have, and the same one for every process."""
    folder = directory.absolute().with_name(f".rehearsal-of-{directory.absolute().name}")
    is_first = os.environ.get("RANK", "0") == "0"
    if is_first:  # before the processes have met, so before another one can write there
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        if is_first:
            shutil.rmtree(folder, ignore_errors=True)


def open_work(config: Config) -> "PretrainingRun":
    """Return the run with its data and model, its folder made.

    Raises:
        InputError: what `open_run` raises.
    """
    from bertkit.tasks.phases import phases_from
    from bertkit.tasks.pretraining_model import ModelChoice
    from bertkit.tasks.pretraining_setup import open_run

    phases = () if config.phases is None else phases_from(config.phases)
    longest = max([phase.max_seq_length for phase in phases] or [config.pairs.max_seq_length])
    return open_run(
        Path(config.output_dir),
        store_directory=_store_directory(config),
        pairs=replace(config.pairs, max_seq_length=longest),
        masking=config.masking,
        training=config.training,
        choice=ModelChoice(
            config.model_size,
            config.model_name_or_path,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
            config.freeze_layers,
            config.allow_bin,
        ),
        initialization=config.initialization,
        phases=phases,
        eval_rows=config.eval_rows,
        sampler=_filled_samples,
    )


def _settings_of_the_run(config: Config) -> dict[str, Any]:
    """What must be the same for a resumed run to equal one that was never stopped, besides the model and the store.

    (The store's key stands for the text, the tokenizer and how they were prepared.)
    """
    settings = {**values_of(config.pairs), **values_of(config.masking), **values_of(config.training)}
    if config.masking.phrases_file is not None:
        settings["phrases_file"] = sha256_of_file(config.masking.phrases_file)
    own = {"eval_rows": config.eval_rows, "phases": config.phases, "freeze_layers": config.freeze_layers}
    return {**own, **settings}


def _filled_samples(model: "PretrainingModel", tokenizer: "Tokenizer", texts: list[str]) -> list[dict[str, str]]:
    """Hide the same tokens of the texts at every evaluation and fill them."""
    from bertkit.pipelines import FillMask

    filled = FillMask(model, tokenizer=tokenizer).fill(texts, masked=False)
    return [{"original": row.original, "masked": row.masked, "filled": row.filled} for row in filled]


def _store_directory(config: Config) -> Path:
    """The store named, or the one made of the raw text: found again under the hash of all that it depends on."""
    if (config.data_dir is None) == (config.corpus.input_file is None):
        raise InputError(
            "give a store or raw text, one of the two",
            field="--data_dir, --input_file",
            remedy="run `bertkit prepare` first, or name your text by --input_file",
        )
    if config.data_dir is not None:
        from bertkit.data.remote import local_store

        return local_store(config.data_dir)
    from bertkit.data.cached_store import cached_store
    from bertkit.model.hub import model_directory
    from bertkit.text.tokenizer import load_tokenizer

    model = config.model_name_or_path
    source = config.tokenizer or (
        None if model is None else model_directory(model, allow_pickle_weights=config.allow_bin)
    )
    if source is None:
        raise InputError(
            "is needed to turn --input_file into ids",
            field="--tokenizer",
            remedy="learn one by `bertkit vocab --input_file … --vocab_size … --output_dir DIR`, or let `bertkit demo "
            "--input_file …` go the whole way",
        )
    if config.tokenizer is None and not Path(source).exists():
        raise InputError("does not exist", field="--model_name_or_path", value=model, expected="a model folder")
    tokenizer = load_tokenizer(source, do_lower_case=config.do_lower_case)
    return cached_store(config.corpus, tokenizer, config.preparation)


def _with_length(config: Config, work: "PretrainingRun", *, seconds: float | None = None) -> Config:
    """Fix max_steps, from epochs or by how many fit into the minutes; `seconds`: of a step, if measured already."""
    training = config.training
    if training.max_steps is not None:
        steps = training.max_steps
    elif training.max_minutes is not None:
        steps = max(1, round(training.max_minutes * 60 / (seconds or work.mean_step(training).seconds)))
        say(f"{training.max_minutes:g} minutes of training are {steps:,} steps here")
    else:
        epochs = DEFAULT_EPOCHS if training.num_train_epochs is None else training.num_train_epochs
        steps = work.source.steps_of_epochs(epochs)
        say(f"{epochs:g} epochs are {steps:,} steps")
    return replace(config, training=with_steps(training, steps, eval_every=math.ceil(steps / EVALUATIONS)))
