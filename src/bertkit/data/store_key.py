"""What the bytes of a store depend on: its settings, and one hash over all of it.

In: CorpusSettings, a Tokenizer, PreparationSettings.  Out: a key; another key is another store.
Next: preparation.py
"""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass

from bertkit.data.store import FORMAT_VERSION, SHARD_TOKENS
from bertkit.errors import InputError
from bertkit.files import sha256_of_file
from bertkit.options import group, option
from bertkit.text.clean import CleaningSettings
from bertkit.text.documents import CorpusSettings
from bertkit.text.readers import find_sources
from bertkit.text.tokenizer import Tokenizer

RULES_VERSION = 1  # raised when reading, cleaning, splitting or tokenizing gives something else than before


@dataclass(frozen=True)
class PreparationSettings:
    """How text becomes a store, and by how many processes."""

    validation_split: bool = option(
        True, help="keep a tenth of the documents each for validation and test, by the hash of their text"
    )
    word_segmenter: str = option(
        "none",
        help="word boundaries kept for --masking whole_word and its like: none (## tells them), spaces (the text has "
        "them between its words), rjieba, jieba, or package.module:function from a sentence to its words",
    )
    cleaning: CleaningSettings = group(CleaningSettings)
    workers: int = option(1, help="processes, this one among them; the bytes of the store do not depend on it")
    dask: str | None = option(None, help="address of a Dask scheduler (tcp://…) whose workers tokenize instead")
    shard_tokens: int = option(SHARD_TOKENS, help="most tokens in one file of the store; held in memory while written")

    def __post_init__(self) -> None:
        for name, value, most in (("workers", self.workers, 1024), ("shard_tokens", self.shard_tokens, 1 << 30)):
            if not 1 <= value <= most:
                raise InputError("is out of range", field=f"--{name}", value=value, expected=f"1 to {most:,}")


def store_key(corpus: CorpusSettings, tokenizer: Tokenizer, settings: PreparationSettings) -> str:
    """Return a hash of all that the bytes of a store depend on: settings, tokenizer, every file's name and content.

    Where the files stand is no part of it, nor by how many processes; their order is.
    """
    sources = [(source.name, sha256_of_file(source.path)) for source in find_sources(corpus.input_file)]
    reading = asdict(corpus)
    del reading["input_file"]
    described = {
        "format_version": FORMAT_VERSION,
        "sources": sources,
        "settings": reading,
        "functions": [_function_hash(name) for name in (corpus.format, settings.word_segmenter)],
        "tokenizer": {name: hashlib.sha256(content).hexdigest() for name, content in tokenizer.files().items()},
        "validation_split": settings.validation_split,
        "word_segmenter": settings.word_segmenter,
        "cleaning": {name: value for name, value in asdict(settings.cleaning).items() if name != "rejects_file"},
        "shard_tokens": settings.shard_tokens,
        "rules": RULES_VERSION,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _function_hash(name: str) -> str | None:
    """The content of the module of a user's own function, which decides what it gives."""
    if ":" not in name:
        return None
    from bertkit.text.records import load_function

    module = sys.modules[load_function(name).__module__]
    file = vars(module).get("__file__")  # a built-in module has none
    return sha256_of_file(file) if file else None
