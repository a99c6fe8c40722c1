"""The store of raw text, made once and found again under the hash of all that it depends on.

In: where the text is, a tokenizer, settings.  Out: the folder of a store in the cache.  Next: preparation.py
"""

from pathlib import Path

from bertkit.console import say
from bertkit.data.preparation import PreparationSettings, prepare_store, store_key
from bertkit.files import cache_directory, locked
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import Tokenizer


def cached_store(corpus: CorpusSettings, tokenizer: Tokenizer, settings: PreparationSettings) -> Path:
    """Return the store of a text, prepared now if it was not before; other processes of this host wait meanwhile.

    Raises:
        InputError: what `prepare_store` raises.
    """
    key = store_key(corpus, tokenizer, settings)
    directory = cache_directory() / "stores" / key[:24]
    with locked(cache_directory() / "locks" / f"{directory.name}.lock"):
        if directory.exists():
            say(f"store: {directory} (prepared before from the same text, tokenizer and settings)")
        else:
            say(prepare_store(corpus, tokenizer, directory, settings).text())
    return directory
