"""A prepared corpus opened whole: its parts, and the tokenizer whose ids they hold.

In: the folder that `bertkit prepare` wrote.  Out: Stores by part, and the Tokenizer, checked against each other.
Next: pairs.py
"""

from pathlib import Path

from bertkit.data.store import Store, open_parts
from bertkit.errors import InputError
from bertkit.text.tokenizer import Tokenizer, load_tokenizer


def open_prepared(directory: str | Path) -> tuple[dict[str, Store], Tokenizer]:
    """Return the parts of a store that hold a document, by name, and its tokenizer.

    Raises:
        InputError: no store there, or the vocabulary in the folder is not that of the ids.
    """
    parts, tokenizer = open_parts(directory), load_tokenizer(directory)
    expected = parts["train"].manifest["vocabulary_sha256"]
    if tokenizer.vocabulary.hash != expected:
        raise InputError(
            "is not the vocabulary that the ids of the store are of",
            file=Path(directory) / "vocab.txt",
            expected=f"SHA-256 {expected}",
            remedy="put the tokenizer's files back, or run `bertkit prepare` again",
        )
    return parts, tokenizer
