"""Finished rows: framed, with their words, their tokens hidden; what training and exports both take.

In: which rows of a PairTable.  Out: Rows and MaskedRows, arrays.  Next: batches.py
"""

import numpy as np
from numpy.typing import NDArray

from bertkit.data.masking import MaskedRows, MaskingSettings, mask_tokens
from bertkit.data.pairs import PairTable
from bertkit.data.rows import Rows, build_rows
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.errors import InputError
from bertkit.files import require_file
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import Vocabulary


def masked_rows(
    store: Store,
    table: PairTable,
    rows: NDArray[np.int64],
    *,
    vocabulary: Vocabulary,
    masking: MaskingSettings,
    phrases: Phrases | None,
    seed: int,
    epoch: int,
) -> tuple[Rows, MaskedRows]:
    """Return rows of the epoch's table, (n,) int64, as ids and with their tokens hidden."""
    built = build_rows(store, table, rows, vocabulary)
    masked = mask_tokens(
        built.input_ids,
        index=rows,
        ordinary=vocabulary.ordinary,
        mask_id=vocabulary.mask_id,
        settings=masking,
        seed=seed,
        epoch=epoch,
        word_starts=built.word_starts,
        phrases=phrases,
    )
    return built, masked


def read_phrases(masking: MaskingSettings, tokenizer: Tokenizer) -> Phrases | None:
    """Return the user's terms as ids, or None where no file of them was given.

    Raises:
        InputError: the file cannot be read, holds no term, or a term has a token outside the vocabulary.
    """
    if masking.phrases_file is None:
        return None
    path = require_file(masking.phrases_file, what="a text file, one term a line", remedy="check --phrases_file")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as problem:
        raise InputError(f"is not UTF-8 ({problem})", file=path, remedy="save it as UTF-8") from None
    terms = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not terms:
        raise InputError("holds no term", file=path, expected="one term a line")
    encoded = tokenizer.encode_plain([term for _, term in terms])
    for (number, term), ids in zip(terms, encoded, strict=True):
        if not len(ids) or tokenizer.vocabulary.unk_id in ids:
            raise InputError(
                "has a token that the vocabulary lacks, so it can never be found",
                file=path,
                line=number,
                value=term,
                remedy="remove the line, or add the word to the vocabulary",
            )
    return Phrases((tuple(ids.tolist()) for ids in encoded), continuation=tokenizer.vocabulary.continuation)
