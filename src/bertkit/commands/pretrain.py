"""`bertkit pretrain`: from a store (or raw text) to a pre-trained model folder, resumable, with its report.

In: a store, a model size or a checkpoint.  Out: RUN with the best model, checkpoints, metrics, results, report.html.
Next: data/store.py … train/loop.py (the work itself); tasks/pretraining_run.py (what is put together for it)
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.console import result, say, table
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.preparation import PreparationSettings, prepare_store, store_key
from bertkit.errors import InputError
from bertkit.files import sha256_of_file
from bertkit.options import SETTINGS_FILE, group, option, values_of, write_settings
from bertkit.text.documents import CorpusSettings
from bertkit.train.settings import TrainSettings

if TYPE_CHECKING:
    from bertkit.model.heads import PretrainingModel
    from bertkit.tasks.pretraining_run import PretrainingRun
    from bertkit.text.tokenizer import Tokenizer

DEFAULT_EPOCHS = 10.0  # where neither steps, epochs nor minutes are given
EVALUATIONS = 10  # in a run, unless eval_every says otherwise
# Settings of training that a resumed run may change without becoming another run.
FREE_ON_RESUME = frozenset({"resume_from", "report_to", "log_every", "save_every", "save_total_limit"})


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
        "tiny", help="tiny, mini, small, medium, base, large, or a config.json: a new model of this size"
    )
    model_name_or_path: str | None = option(
        None, help="model folder, or owner/name of the Hugging Face hub, to go on from, in place of a new model"
    )
    hidden_dropout_prob: float | None = option(None, help="share of activations dropped; null: 0.1, or the model's")
    attention_probs_dropout_prob: float | None = option(
        None, help="share of attention weights dropped; null: 0.1, or the model's"
    )
    pairs: PairSettings = group(PairSettings)
    masking: MaskingSettings = group(MaskingSettings)
    training: TrainSettings = group(TrainSettings)
    eval_rows: int = option(1024, help="held-out rows of each evaluation on the way; the last one takes all")

    def __post_init__(self) -> None:
        if self.data_dir is not None and self.corpus.input_file is None:
            self._refuse_what_a_store_has_settled()
        if self.model_name_or_path is not None and self.model_size != "tiny":
            raise InputError(
                "has no effect with --model_name_or_path, which has a size", field="--model_size", value=self.model_size
            )
        if not self.masking.mlm_probability > 0:
            raise InputError("hides nothing", field="--mlm_probability", value=0, expected="above 0, up to 1")
        if self.pairs.static and self.masking.final_mlm_probability is not None:
            raise InputError("contradict each other", field="--static and --final_mlm_probability")
        if self.eval_rows < 1:
            raise InputError("evaluates nothing", field="--eval_rows", value=self.eval_rows, expected="1 or more")

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
    """Pre-train and say where everything lies."""
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
    """
    from bertkit.tasks.pretraining_model import ModelChoice
    from bertkit.tasks.pretraining_run import open_run
    from bertkit.train.loop import train

    _require_new_or_resumed(config)
    config = _with_known_length(config)
    work = open_run(
        Path(config.output_dir),
        store_directory=_store_directory(config),
        pairs=config.pairs,
        masking=config.masking,
        training=config.training,
        choice=ModelChoice(
            config.model_size,
            config.model_name_or_path,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
        ),
        eval_rows=config.eval_rows,
        sampler=_filled_samples,
    )
    config = _with_length(config, work)
    job, state = work.start(config.training, settings=_settings_of_the_run(config), record=values_of(config))
    # What repeats the run is what began it: a resume may leave out what its checkpoint knows (the model, say).
    if config.training.resume_from is None:
        write_settings(config, work.directory)
    train(job, state)
    results = work.finish(job, state)
    _write_report(work.directory)
    return results


def _settings_of_the_run(config: Config) -> dict[str, Any]:
    """What must be the same for a resumed run to equal one that was never stopped, besides the model and the store.

    (The store's key stands for the text, the tokenizer and how they were prepared.)
    """
    settings = {**values_of(config.pairs), **values_of(config.masking), **values_of(config.training)}
    if config.masking.phrases_file is not None:
        settings["phrases_file"] = sha256_of_file(config.masking.phrases_file)
    return {"eval_rows": config.eval_rows, **{k: v for k, v in settings.items() if k not in FREE_ON_RESUME}}


def _filled_samples(model: "PretrainingModel", tokenizer: "Tokenizer", texts: list[str]) -> list[dict[str, str]]:
    """Hide the same tokens of the texts at every evaluation and fill them."""
    from bertkit.pipelines import FillMask

    filled = FillMask(model, tokenizer=tokenizer).fill(texts, masked=False)
    return [{"original": row.original, "masked": row.masked, "filled": row.filled} for row in filled]


def _write_report(directory: Path) -> None:
    from bertkit.report.page import plotly_is_installed, write_report

    if plotly_is_installed():
        write_report(directory)
    else:
        say('no report.html was written: pip install "bertkit[report]", then bertkit report ' + str(directory))


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
    from bertkit.model.hub import model_directory
    from bertkit.text.corpora import cache_directory
    from bertkit.text.tokenizer import load_tokenizer

    model = config.model_name_or_path
    source = config.tokenizer or (None if model is None else model_directory(model))
    if source is None:
        raise InputError(
            "is needed to turn --input_file into ids",
            field="--tokenizer",
            remedy="learn one by `bertkit vocab --input_file … --vocab_size … --output_dir DIR`, or let `bertkit demo "
            "--input_file …` go the whole way",
        )
    tokenizer = load_tokenizer(source, do_lower_case=config.do_lower_case)
    key = store_key(config.corpus, tokenizer, config.preparation)
    directory = cache_directory() / "stores" / key[:24]
    if directory.exists():
        say(f"store: {directory} (prepared before from the same text, tokenizer and settings)")
    else:
        report = prepare_store(config.corpus, tokenizer, directory, config.preparation)
        say(report.text())
    return directory


def _require_new_or_resumed(config: Config) -> None:
    directory = Path(config.output_dir)
    if config.training.resume_from is None and (directory / "checkpoints").is_dir():
        raise InputError(
            "holds a run already",
            file=directory,
            field="--output_dir",
            remedy="go on with it by --resume_from last, or name another folder",
        )
    given = config.model_name_or_path
    if given is not None and Path(given).resolve() == directory.resolve():
        raise InputError(
            "is the model that training starts from, which the run would overwrite",
            file=directory,
            field="--output_dir",
            remedy="name another folder",
        )


def _with_known_length(config: Config) -> Config:
    """A resumed run keeps the number of steps that was fixed when it began: minutes are never measured again."""
    path = Path(config.output_dir) / SETTINGS_FILE
    training = config.training
    if training.resume_from is None or training.max_steps is not None:
        return config
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
    training = replace(
        training, max_steps=steps, num_train_epochs=None, max_minutes=None, eval_every=training.eval_every or every
    )
    return replace(config, training=training)


def _with_length(config: Config, work: "PretrainingRun") -> Config:
    """Fix max_steps, from epochs or by measuring how many fit into the minutes."""
    training = config.training
    if training.max_steps is not None:
        steps = training.max_steps
    elif training.max_minutes is not None:
        steps = work.steps_that_fit(training, training.max_minutes)
        say(f"{training.max_minutes:g} minutes of training are {steps:,} steps here")
    else:
        epochs = DEFAULT_EPOCHS if training.num_train_epochs is None else training.num_train_epochs
        steps = work.source.steps_of_epochs(epochs)
        say(f"{epochs:g} epochs are {steps:,} steps")
    every = training.eval_every or math.ceil(steps / EVALUATIONS)
    training = replace(
        training,
        max_steps=steps,
        num_train_epochs=None,
        max_minutes=None,
        eval_every=every,
        save_every=training.save_every or every,
    )
    return replace(config, training=training)
