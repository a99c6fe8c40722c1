"""The tokenizer that stands beside a model, opened where it can be the model's own.

In: a model folder, the rows of its embeddings.  Out: a Tokenizer.  Next: opening.py
"""

from pathlib import Path

from bertkit.console import warn
from bertkit.errors import InputError
from bertkit.model.foreign_folder import require_plain_tokenizer_files
from bertkit.text.tokenizer import Tokenizer, load_tokenizer

PADDED_TO = 128  # embeddings are filled up to a multiple of as many rows, for speed; more without a token is no padding


def fitting_tokenizer(directory: str | Path, *, vocab_size: int) -> Tokenizer:
    """Return the tokenizer of a model folder; warn where much of the vocabulary seems to be missing.

    Raises:
        InputError: there is none, or it has more tokens than the model.
    """
    require_plain_tokenizer_files(directory)
    tokenizer = load_tokenizer(directory)
    spare = vocab_size - tokenizer.vocabulary.size
    if spare < 0:
        raise InputError(
            f"the tokenizer has {tokenizer.vocabulary.size} tokens, the model {vocab_size}",
            file=directory,
            remedy="the folder mixes two models; copy tokenizer and weights from one checkpoint",
        )
    if spare >= PADDED_TO:
        warn(f"{directory}: {cut_short(tokenizer.vocabulary.size, vocab_size)}")
    return tokenizer


def cut_short(num_tokens: int, vocab_size: int) -> str:
    """Return what there is to say of a vocabulary far smaller than the model's."""
    return f"the model has embeddings for {vocab_size:,} tokens, its vocabulary has {num_tokens:,}: is it cut short?"
