"""The model of a pipeline: opened from a folder or the hub, or handed over with its tokenizer.

In: what a user names, or has in hand.  Out: a model in eval mode, its tokenizer.  Next: fill_mask.py, next_sentence.py
"""

from pathlib import Path

from bertkit.errors import InputError
from bertkit.model.architectures import Head
from bertkit.model.heads import PretrainingModel
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import load
from bertkit.tasks.tokenizers import fitting_tokenizer
from bertkit.text.tokenizer import Tokenizer


def opened(
    model: str | Path | PretrainingModel, *, head: Head, tokenizer: Tokenizer | None, allow_bin: bool
) -> tuple[PretrainingModel, Tokenizer]:
    """Return a model with a head of pre-training, and its tokenizer.

    model: a folder, an id of the hub, or a model already loaded; tokenizer: None: that of the folder.

    Raises:
        InputError: a loaded model without a tokenizer; what `load` and `fitting_tokenizer` raise.
    """
    if isinstance(model, PretrainingModel):
        return model.eval(), own_tokenizer(tokenizer)
    folder = model_directory(model, allow_pickle_weights=allow_bin)
    loaded = load(folder, head=head, allow_pickle_weights=allow_bin)
    assert isinstance(loaded, PretrainingModel)
    return loaded, tokenizer or fitting_tokenizer(folder, vocab_size=loaded.config.vocab_size)


def own_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer that was given with a model already loaded.

    Raises:
        InputError: none was.
    """
    if tokenizer is None:
        remedy = "give its tokenizer, or the folder in place of the model"
        raise InputError("is needed beside a model that is loaded already", field="tokenizer", remedy=remedy)
    return tokenizer
