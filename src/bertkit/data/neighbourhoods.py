"""Which tokens stand near which: how often each stands in the training part, and beside every other.

In: a store and its vocabulary.  Out: Neighbourhoods, of which a new model makes its first word vectors.
Next: ../tasks/word_vectors.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.console import Progress
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.text.vocabulary import Vocabulary

WINDOW = 2  # places to either side that are near
MOST_TOKENS = 1 << 23  # that pairs are counted in; of a longer text documents drawn at random
TOKENS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Neighbourhoods:
    """Counts of ordinary tokens; special ones, which are never predicted, count as never seen.

    first, second: (pairs,) int64, each pair of ids once, first ≤ second.
    counts: (pairs,) int64, how often the two stand near each other, in either order.
    token_counts: (vocab,) int64, how often each id stands in the whole part.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    counts: NDArray[np.int64]
    token_counts: NDArray[np.int64]


def count_neighbours(
    store: Store, vocabulary: Vocabulary, *, window: int = WINDOW, most_tokens: int = MOST_TOKENS
) -> Neighbourhoods:
    """Return which tokens of a part stand at most `window` places from each other in a document.

    most_tokens: of a longer part documents are drawn until they have so many tokens; the last one is cut.
    """
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    with Progress("counting neighbours", total=min(store.num_tokens, most_tokens), unit="tokens") as progress:
        for tokens, documents in _documents(store, most_tokens):
            is_ordinary = vocabulary.ordinary[tokens]
            found = []
            for distance in range(1, window + 1):
                one, other = tokens[:-distance], tokens[distance:]
                near = documents[:-distance] == documents[distance:]
                near &= is_ordinary[:-distance] & is_ordinary[distance:]
                low, high = np.minimum(one, other)[near], np.maximum(one, other)[near]
                found.append(low * vocabulary.size + high)
            keys, counts = _merged(keys, counts, *np.unique(np.concatenate(found), return_counts=True))
            progress.advance(len(tokens))
    first, second = np.divmod(keys, vocabulary.size)
    return Neighbourhoods(first, second, counts, store.token_counts(vocabulary.size) * vocabulary.ordinary)


def _documents(store: Store, most_tokens: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The tokens of the documents looked at, and the number of the document of each, some documents at a time."""
    bounds = store.sentence_starts[store.document_sentences]  # (documents + 1,) tokens
    chosen, lengths = np.arange(store.num_documents), np.diff(bounds)
    if store.num_tokens > most_tokens:
        # Not every second or third one: a text may change its language or its book as regularly.
        drawn = np.argsort(Stream(0, "neighbours", 0).bits(index=chosen), kind="stable")
        before = np.cumsum(lengths[drawn]) - lengths[drawn]  # tokens of those drawn before
        drawn = drawn[before < most_tokens]
        lengths[drawn] = np.minimum(lengths[drawn], most_tokens - before[: len(drawn)])
        chosen = np.sort(drawn)
    starts, ends = bounds[chosen], bounds[chosen] + lengths[chosen]
    parts = np.cumsum(ends - starts) // TOKENS_AT_ONCE
    for part in np.split(np.arange(len(chosen)), np.flatnonzero(np.diff(parts)) + 1):
        yield store.tokens(starts[part], ends[part]), np.repeat(part, ends[part] - starts[part])


def _merged(
    keys: NDArray[np.int64], counts: NDArray[np.int64], more: NDArray[np.int64], more_counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both lists of counts as one, its keys rising."""
    merged, place = np.unique(np.concatenate([keys, more]), return_inverse=True)
    sums = np.bincount(place, weights=np.concatenate([counts, more_counts]), minlength=len(merged))
    return merged, sums.astype(np.int64)  # exact: below 2⁵³
