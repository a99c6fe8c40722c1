"""Which model a run trains: a new one of some size, one to go on from, or the checkpoint's.

In: a ModelChoice, the data's tokenizer and pair settings.  Out: a PretrainingModel that fits them.
Next: pretraining_run.py
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bertkit.console import say, warn
from bertkit.data.neighbourhoods import count_neighbours
from bertkit.data.pairs import PairSettings
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.model.config import MODEL_SIZES, BertConfig, config_from_json, config_of_size, read_json_object
from bertkit.model.head_start import give_head_start
from bertkit.model.heads import PretrainingModel
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import Head, build, load_with_report
from bertkit.tasks.layers import freeze, with_dropout
from bertkit.tasks.word_vectors import word_vectors
from bertkit.text.tokenizer import Tokenizer, load_tokenizer
from bertkit.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class ModelChoice:
    """Which model a run trains."""

    size: str  # a name of MODEL_SIZES or the path of a config.json
    directory: str | None  # a model folder to go on from, in place of a new model
    hidden_dropout_prob: float | None  # None: as the configuration says
    attention_probs_dropout_prob: float | None
    freeze_layers: int | None = None  # embeddings and so many of the lowest layers stay as they are; None: nothing
    allow_pickle_weights: bool = False  # of `directory`, where it has no safetensors


def choose_model(
    choice: ModelChoice, checkpoint: Path | None, tokenizer: Tokenizer, pairs: PairSettings
) -> tuple[PretrainingModel, bool]:
    """Return the model of a run, and whether every weight is new; the checkpoint, where there is one, goes first.

    Raises:
        InputError: no such model, or one whose vocabulary or positions do not fit the data.
    """
    head: Head = "masked_lm" if pairs.pairing == "none" else "pretraining"
    given, allow_pickle_weights = checkpoint, choice.allow_pickle_weights and checkpoint is None
    if given is None and choice.directory is not None:
        given = model_directory(choice.directory, allow_pickle_weights=allow_pickle_weights)
    loaded = None
    if given is None:
        config = _new_config(choice.size, tokenizer)
    else:
        loaded, report = load_with_report(
            given, head=head, allow_new_head=checkpoint is None, allow_pickle_weights=allow_pickle_weights
        )
        config = loaded.config
        say(f"model loaded from {given}: {report.summary()}")
    _require_fit(config, tokenizer, pairs, given=given, size=choice.size)
    config = with_dropout(
        config,
        hidden_dropout_prob=choice.hidden_dropout_prob,
        attention_probs_dropout_prob=choice.attention_probs_dropout_prob,
    )
    model = build(config, head=head)
    if loaded is not None:
        model.load_state_dict(loaded.state_dict())
    assert isinstance(model, PretrainingModel)
    if choice.freeze_layers is not None:
        if given is None:
            warn("--freeze_layers keeps layers of a new model as they were drawn: they learn nothing")
        freeze(model.encoder, choice.freeze_layers)
    return model, given is None


def count_head_start(model: PretrainingModel, train: Store, vocabulary: Vocabulary) -> None:
    """Give a new model what counting the training part tells: a tiny one in a second or two, a base one in minutes."""
    say("head start: frequencies, word vectors and heads that look at neighbours, by counting the training part")
    found = count_neighbours(train, vocabulary)
    vectors = word_vectors(found, width=model.config.hidden_size)
    give_head_start(model, token_counts=torch.from_numpy(found.token_counts), vectors=vectors)


def _new_config(size: str, tokenizer: Tokenizer) -> BertConfig:
    vocabulary = tokenizer.vocabulary
    if size in MODEL_SIZES:
        config = config_of_size(size, vocab_size=vocabulary.size)
    elif Path(size).exists():
        config = config_from_json(read_json_object(size), file=size)
    else:
        raise InputError(
            "is neither a model size nor a file",
            field="--model_size",
            value=size,
            expected=" | ".join([*MODEL_SIZES, "the path of a config.json"]),
        )
    if vocabulary.pad_id >= config.vocab_size:
        return config  # refused below, for the size of its vocabulary
    return replace(config, pad_token_id=vocabulary.pad_id)  # whose row is 0 and takes no gradient


def _require_fit(
    config: BertConfig, tokenizer: Tokenizer, pairs: PairSettings, *, given: Path | str | None, size: str
) -> None:
    """Refuse a model that lacks a row for a token or for a position, or whose ids mean other tokens."""
    vocab_size = tokenizer.vocabulary.size
    if config.vocab_size < vocab_size:
        raise InputError(
            f"the data has {vocab_size} tokens in its vocabulary, the model {config.vocab_size}",
            field="--model_size" if given is None else "--model_name_or_path",
            value=size if given is None else str(given),
            remedy=f"write vocab_size {vocab_size} into that file"
            if given is None
            else "prepare the data with the model's own tokenizer: bertkit prepare --tokenizer MODEL",
        )
    if config.max_position_embeddings < pairs.max_seq_length:
        raise InputError(
            f"is longer than the {config.max_position_embeddings} positions of the model",
            field="--max_seq_length",
            value=pairs.max_seq_length,
            remedy=f"use at most {config.max_position_embeddings}",
        )
    if given is not None:
        _require_same_tokens(Path(given), tokenizer)


def _require_same_tokens(directory: Path, tokenizer: Tokenizer) -> None:
    if not any((directory / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        warn(f"{directory} has no vocabulary; that its ids mean the tokens of the data is taken on trust")
        return
    theirs = load_tokenizer(directory).vocabulary.tokens
    for number, (ours, other) in enumerate(zip(tokenizer.vocabulary.tokens, theirs, strict=False)):
        if ours != other:
            raise InputError(
                f"id {number} is {ours!r} in the data and {other!r} in the model: they have different vocabularies",
                file=directory,
                field="--model_name_or_path",
                remedy="prepare the data with the model's own tokenizer: bertkit prepare --tokenizer "
                f"{directory}; or train a new model by --model_size",
            )


def num_parameters(model: PretrainingModel) -> int:
    """Return how many numbers a model has, frozen ones too."""
    return sum(parameter.numel() for parameter in model.parameters())
