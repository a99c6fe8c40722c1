"""Many rows of different lengths through a model: sorted a window at a time, cut by tokens, answered in their order.

In: any iterable, and a function that answers a batch.  Out: its answers, in the order of the items, as they come.
Next: fill_mask.py, next_sentence.py, embedding.py
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.errors import InputError

Row = tuple[NDArray[np.int64], NDArray[np.int64]]  # input ids and token types of one row, (seq,) each
Item = TypeVar("Item")
Answer = TypeVar("Answer")

READ_AHEAD_TOKENS = 2**15  # what is sorted at a time; answers are held back until their window is done
BATCH_TOKENS = 1024  # of one forward pass, padding included
ROWS_WITHOUT_PADDING = 8  # so many rows of one length are a batch of their own, which needs no mask
MAX_CHARACTERS = 400_000  # of one text; a second of tokenizing


def require_top_k(top_k: Any, *, field: str = "top_k") -> None:
    """Refuse what is no number of answers.

    Raises:
        InputError: it is below 1, or no whole number.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, Integral) or top_k < 1:
        raise InputError("is no number of answers", field=field, value=top_k, expected="a whole number, 1 or more")


def in_order(
    items: Iterable[Item],
    *,
    length: Callable[[Item], int],
    answer: Callable[[list[Item]], Iterable[Answer]],
    batch_tokens: int = BATCH_TOKENS,
    read_ahead_tokens: int = READ_AHEAD_TOKENS,
) -> Iterator[Answer]:
    """Yield the answer to each item, in order, reading no further ahead than a window of tokens.

    length: tokens of an item.
    answer: one answer for each item of a batch, which are of similar length, the shorter first.
    batch_tokens, read_ahead_tokens: tokens; at least one item is taken whatever its length.
    """
    window: list[Item] = []
    lengths: list[int] = []
    total = 0
    for item in items:
        window.append(item)
        lengths.append(length(item))
        total += lengths[-1]
        if total >= read_ahead_tokens:
            yield from _window(window, lengths, answer, batch_tokens)
            window, lengths, total = [], [], 0
    yield from _window(window, lengths, answer, batch_tokens)


def _window(
    window: list[Item], lengths: list[int], answer: Callable[[list[Item]], Iterable[Answer]], batch_tokens: int
) -> Iterator[Answer]:
    answers: dict[int, Answer] = {}
    for batch in cut_by_length(lengths, batch_tokens=batch_tokens):
        answers |= zip(batch, answer([window[index] for index in batch]), strict=True)
    yield from (answers[index] for index in range(len(window)))


def cut_by_length(lengths: Sequence[int], *, batch_tokens: int) -> Iterator[list[int]]:
    """Yield lists of indices, each once, the shortest first: rows × the longest of them is at most batch_tokens.

    A batch also ends where the next row is longer and there are enough rows of one length.

    >>> list(cut_by_length([3, 9, 3, 3, 4, 3, 5], batch_tokens=20))
    [[0, 2, 3, 5, 4], [6, 1]]
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        width = lengths[index]
        longer = bool(batch) and width > lengths[batch[-1]]
        even = longer and len(batch) >= ROWS_WITHOUT_PADDING and lengths[batch[0]] == lengths[batch[-1]]
        if batch and (even or (len(batch) + 1) * width > batch_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(rows: Sequence[Row], *, pad_id: int, device: torch.device) -> dict[str, Tensor]:
    """Return rows as the inputs of an encoder, (batch, seq) each.

    Left out is what says nothing: token_type_ids where all are 0, attention_mask where nothing is padded.
    """
    lengths = np.array([len(ids) for ids, _ in rows])
    width = int(lengths.max())
    input_ids, token_types = np.full((len(rows), width), pad_id), np.zeros((len(rows), width), dtype=np.int64)
    for row, (ids, types) in enumerate(rows):
        input_ids[row, : len(ids)], token_types[row, : len(ids)] = ids, types
    batch = {"input_ids": torch.from_numpy(input_ids)}
    if token_types.any():
        batch["token_type_ids"] = torch.from_numpy(token_types)
    if (lengths < width).any():
        batch["attention_mask"] = torch.from_numpy(np.arange(width)[None, :] < lengths[:, None])
    return {name: tensor.to(device) for name, tensor in batch.items()}


def device_of(model: nn.Module) -> torch.device:
    """Return the device on which a model lies."""
    return next(model.parameters()).device


def require_length(length: int, *, positions: int, what: str, text: str) -> None:
    """Refuse a row of `length` tokens, special ones included, for which the model has no positions.

    what: the text's name in the message: "text 3".

    Raises:
        InputError: it is too long.
    """
    if length > positions:
        raise InputError(
            f"has {length} tokens, special ones included, but the model has {positions} positions",
            field=what,
            value=text,
            expected=f"at most {positions} tokens",
            remedy="shorten it, or give it in parts",
        )


def require_short(text: str, *, what: str) -> None:
    """Refuse a text that would take seconds to cut into tokens, and that no model has positions for.

    Raises:
        InputError: it is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"has {len(text):,} characters",
            field=what,
            value=text[:1000],
            expected=f"at most {MAX_CHARACTERS:,}",
            remedy="give it in parts",
        )
