"""From spans to rows: [CLS] A [SEP] B [SEP] with segment ids, for many pairs at once.

In: a PairTable and which of its rows.  Out: Rows, padded on the right.  Next: masking.py
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.pairs import SPECIALS_OF_A_PAIR, SPECIALS_OF_A_TEXT, PairTable
from bertkit.data.store import Store
from bertkit.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Rows:
    """Rows of token ids; what lies behind a row's length is padding."""

    input_ids: NDArray[np.int64]  # (rows, seq)
    token_type_ids: NDArray[np.int64]  # (rows, seq): 0 up to and with the first [SEP], then 1; 0 on padding
    lengths: NDArray[np.int64]  # (rows,) special tokens included
    word_starts: NDArray[np.bool_]  # (rows, seq): whether a word begins here; each special token is a word


def row_lengths(table: PairTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the length of each row, special tokens included, without reading a token."""
    length_b = table.end_b[rows] - table.start_b[rows]
    specials = np.where(length_b > 0, SPECIALS_OF_A_PAIR, SPECIALS_OF_A_TEXT)
    return table.end_a[rows] - table.start_a[rows] + length_b + specials


def build_rows(store: Store, table: PairTable, rows: NDArray[np.int64], vocabulary: Vocabulary) -> Rows:
    """Return the rows of the table as ids; a row without B is [CLS] A [SEP]."""
    length_a = table.end_a[rows] - table.start_a[rows]
    length_b = table.end_b[rows] - table.start_b[rows]
    lengths = row_lengths(table, rows)
    width = int(lengths.max())
    input_ids = np.full((len(rows), width), vocabulary.pad_id, dtype=np.int64)
    column = np.arange(width)[None, :]
    first_sep, last_sep = (1 + length_a)[:, None], (lengths - 1)[:, None]
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[(column == first_sep) | (column == last_sep)] = vocabulary.sep_id
    in_a = (column >= 1) & (column < first_sep)
    in_b = (column > first_sep) & (column < last_sep) & (length_b > 0)[:, None]
    input_ids[in_a] = store.tokens(table.start_a[rows], table.end_a[rows])
    input_ids[in_b] = store.tokens(table.start_b[rows], table.end_b[rows])
    token_type_ids = ((column > first_sep) & (column <= last_sep)).astype(np.int64)
    word_starts = ~vocabulary.continuation[input_ids]
    if store.shard_word_starts:
        word_starts[in_a] = store.word_starts(table.start_a[rows], table.end_a[rows])
        word_starts[in_b] = store.word_starts(table.start_b[rows], table.end_b[rows])
    word_starts[:, 1:2] = True  # where trimming cut a word, its rest is one
    word_starts |= np.roll(input_ids == vocabulary.sep_id, 1, axis=1)
    return Rows(input_ids, token_type_ids, lengths, word_starts)
