"""A pre-training run opened: its checkpoint found, its data and model loaded, its folder made.

In: a store, settings, a model size or folder.  Out: a PretrainingRun.  Next: pretraining_run.py
"""

from pathlib import Path

from bertkit.console import warn
from bertkit.data.instances import read_phrases
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings, require_pairs
from bertkit.data.prepared import open_prepared
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.tasks.diagnosis import require_readable
from bertkit.tasks.held_out import held_out_pairs
from bertkit.tasks.layers import prepare
from bertkit.tasks.phases import Phase
from bertkit.tasks.pretraining import PretrainingSource
from bertkit.tasks.pretraining_model import ModelChoice, choose_model, count_head_start
from bertkit.tasks.pretraining_run import PretrainingRun, Sampler
from bertkit.tasks.recipes import Initialization
from bertkit.text.tokenizer import Tokenizer
from bertkit.train import runtime as runtimes
from bertkit.train import trial
from bertkit.train.checkpoint import find_checkpoint_on_all
from bertkit.train.settings import TrainSettings


def open_run(
    directory: Path,
    *,
    store_directory: Path,
    pairs: PairSettings,
    masking: MaskingSettings,
    training: TrainSettings,
    choice: ModelChoice,
    initialization: Initialization,
    phases: tuple[Phase, ...],
    eval_rows: int,
    sampler: Sampler,
) -> PretrainingRun:
    """Return the run with its data open and its model built or loaded; the folder is made.

    Raises:
        InputError: data on which the task is impossible, a model that does not fit the data, no such checkpoint.
    """
    runtime = runtimes.start(training)
    checkpoint = (
        None if training.resume_from is None else find_checkpoint_on_all(runtime, directory, training.resume_from)
    )
    parts, tokenizer = open_prepared(store_directory)
    require_readable(parts["train"])
    require_pairs(parts["train"], pairs)
    parts = {name: store for name, store in parts.items() if name == "train" or _has_pairs(store, pairs)}
    model, is_new = choose_model(choice, checkpoint, tokenizer, pairs)
    has_head_start = is_new and initialization == "neighbours"
    if has_head_start:
        _give_head_start(model, parts["train"], tokenizer, runtime)
    prepare(model.encoder, training)
    source = PretrainingSource(
        parts["train"],
        tokenizer.vocabulary,
        pairs,
        masking,
        seed=training.seed,
        batch_size=training.batch_size,
        micro_batch_tokens=training.micro_batch_tokens,
        phrases=read_phrases(masking, tokenizer),
        config=model.config,
        rank=runtime.rank,
        num_ranks=runtime.num_ranks,
        phases=phases,
    )
    runtimes.make_shared_folder(directory, runtime)
    return PretrainingRun(
        directory=directory,
        parts=parts,
        tokenizer=tokenizer,
        model=model.to(runtime.device),
        source=source,
        runtime=runtime,
        checkpoint=checkpoint,
        is_new_model=is_new,
        has_head_start=has_head_start,
        eval_rows=eval_rows,
        sampler=sampler,
        peak_flops=trial.matrix_rate(runtime),
    )


def _give_head_start(model: PretrainingModel, train: Store, tokenizer: Tokenizer, runtime: runtimes.Runtime) -> None:
    """Count in the first process; the others take its numbers, whatever their processors would make of them."""
    if runtime.is_first:
        count_head_start(model, train, tokenizer.vocabulary)
    runtime.take_from_first(model.parameters())


def _has_pairs(store: Store, pairs: PairSettings) -> bool:
    try:
        held_out_pairs(store, pairs)
    except InputError as problem:
        warn(f"a held-out part is left out: {problem.problem}")
        return False
    return True
