"""Text in, answers out: fill-mask and next sentence, for the command line, the report and Python.

In: strings and a model folder.  Out: one record a text, in the order given.  Next: commands/fill_mask.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.masking import MaskingSettings, mask_tokens
from bertkit.data.pairs import IS_NEXT, SPECIALS_OF_A_TEXT
from bertkit.errors import InputError
from bertkit.model.foreign_folder import require_plain_tokenizer_files
from bertkit.model.heads import PretrainingModel
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import Head, load
from bertkit.text.tokenizer import Encoding, Tokenizer, load_tokenizer, with_special_tokens
from bertkit.text.vocabulary import CONTINUATION, MASK

TEXTS_AT_ONCE = 32  # rows of one forward pass


@dataclass(frozen=True)
class FilledText:
    """One text with its masks filled."""

    original: str
    masked: str  # the original with [MASK] where a token was hidden
    filled: str  # the original with the best token at each mask, no other character changed
    candidates: list[list[dict[str, Any]]]  # for each mask the top k: score, token, token_str, sequence


class FillMask:
    """Fills [MASK] in texts, or hides tokens itself and fills them.

    model: a model folder with a masked-LM head, an id of the hub, or a model already loaded (then give its tokenizer).
    allow_bin: open a pickle where the folder has no safetensors.
    """

    def __init__(
        self, model: str | Path | PretrainingModel, *, tokenizer: Tokenizer | None = None, allow_bin: bool = False
    ) -> None:
        self.model, self.tokenizer = _loaded(model, tokenizer, head="masked_lm", allow_bin=allow_bin)

    def __call__(self, text: str, *, top_k: int = 5) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """Return the top k records (score, token, token_str, sequence) of the one [MASK]; of each, where several are.

        score: probability over the whole vocabulary. Unlike Hugging Face's pipeline no special or unused token is
        offered, and `sequence` is the given string with only this mask filled.
        """
        [filled] = self.fill([text], masked=True, top_k=top_k)
        return filled.candidates[0] if len(filled.candidates) == 1 else filled.candidates

    def fill(
        self,
        texts: Iterable[str],
        *,
        masked: bool | None = None,
        mlm_probability: float = 0.15,
        seed: int = 12345,
        top_k: int = 5,
    ) -> Iterator[FilledText]:
        """Yield one FilledText a text, in order.

        masked: True: the texts hold [MASK]; False: hide mlm_probability of the tokens, at least one, the same places
            for the same seed, text and place in the order, and fill these and every [MASK] that stands there
            already; None: by whether the text holds a [MASK].

        Raises:
            InputError: a text without a [MASK] (masked=True) or without a token that could be hidden, a text longer
                than the model has positions, a top_k below 1.
        """
        if top_k < 1:
            raise InputError("is not a positive number", field="--top_k", value=top_k, expected="1 or more")
        settings = MaskingSettings(mlm_probability=mlm_probability, mask_replace_prob=1.0, random_replace_prob=0.0)
        numbered = enumerate(texts)
        while chunk := list(islice(numbered, TEXTS_AT_ONCE)):
            rows = [_prepare(text, index, masked, settings, seed, self.tokenizer) for index, text in chunk]
            for (index, text), row in zip(chunk, rows, strict=True):
                _require_room(len(row.ids) + SPECIALS_OF_A_TEXT, f"text {index + 1}", text, self.model)
            yield from self._answer(rows, top_k)

    @torch.inference_mode()
    def _answer(self, rows: Sequence["_Masked"], top_k: int) -> Iterator[FilledText]:
        vocabulary = self.tokenizer.vocabulary
        ids = [with_special_tokens(row.ids, None, vocabulary) for row in rows]
        batch = _padded(ids, vocabulary.pad_id, self.model)
        width = batch["input_ids"].size(1)
        flat = [r * width + 1 + column for r, row in enumerate(rows) for column in row.columns]  # 1: behind [CLS]
        device = batch["input_ids"].device
        output = self.model(**batch, mlm_positions=torch.tensor(flat, dtype=torch.int64, device=device))
        assert output.mlm_logits is not None
        scores = output.mlm_logits.float().softmax(dim=-1).cpu()  # (masks, vocab)
        never = np.ones(scores.size(1), dtype=bool)  # a model's vocabulary may be padded beyond the tokenizer's
        never[: vocabulary.size] = ~vocabulary.ordinary
        scores[:, torch.from_numpy(never)] = -1.0  # never offered
        best = scores.topk(min(top_k, int(vocabulary.ordinary.sum())), dim=-1)
        tops = iter(zip(best.values.tolist(), best.indices.tolist(), strict=True))
        for row in rows:
            yield row.filled(list(islice(tops, len(row.columns))), self.tokenizer)


@dataclass(frozen=True)
class _Masked:
    """A text with hidden tokens: what the model sees, and where in the string they stand."""

    text: str
    encoding: Encoding  # of the text as given
    ids: NDArray[np.int64]  # (seq,) with [MASK] in place, no special tokens around
    columns: list[int]  # which tokens are hidden

    def filled(self, tops: list[tuple[list[float], list[int]]], tokenizer: Tokenizer) -> FilledText:
        """Return the record, given the (scores, ids) of the best candidates at each hidden token."""
        best = [_string(tokenizer.token_of(ids[0])) for _, ids in tops]
        masks = [MASK] * len(self.columns)
        candidates = []
        for place, (scores, ids) in enumerate(tops):
            records = []
            for score, token in zip(scores, ids, strict=True):
                string = _string(tokenizer.token_of(token))
                sequence = self._with([*masks[:place], string, *masks[place + 1 :]])
                records.append({"score": score, "token": token, "token_str": string, "sequence": sequence})
            candidates.append(records)
        return FilledText(self.text, self._with(masks), self._with(best), candidates)

    @cached_property
    def _places(self) -> list[tuple[int, int, list[int]]]:
        """(start, end, columns) of each run of characters in which a token is hidden, in the order of the text.

        The run is one token's, with the accents behind it that were taken off; but a character that the normalizer
        takes apart (한 → ᄒ ᅡ ᆫ where lower-casing) is several tokens.
        """
        offsets, hidden = self.encoding.offsets, set(self.columns)
        starts = {start for start, _ in offsets}
        places = []
        for start, group in groupby(range(len(offsets)), key=lambda column: offsets[column][0]):
            columns = list(group)
            end = offsets[columns[-1]][1]
            while end < len(self.text) and end not in starts and category(self.text[end]) == "Mn":
                end += 1
            if not hidden.isdisjoint(columns):
                places.append((start, end, columns))
        return places

    def _with(self, strings: list[str]) -> str:
        """The text with the hidden tokens replaced, every other character as given.

        Where what is put in is what stood there, it has the original's spelling (The, not the).
        """
        shown = dict(zip(self.columns, strings, strict=True))
        parts, end = [], 0
        for start, next_end, columns in self._places:
            old = [_string(self.encoding.tokens[column]) for column in columns]
            new = [shown.get(column, string) for column, string in zip(columns, old, strict=True)]
            # Accents that were taken off go with the last piece: hidden with it, or left standing behind it.
            accents = "" if columns[-1] in shown else self.text[self.encoding.offsets[columns[-1]][1] : next_end]
            parts += [self.text[end:start], self.text[start:next_end] if new == old else "".join(new) + accents]
            end = next_end
        return "".join([*parts, self.text[end:]])


def _string(token: str) -> str:
    """The token as it stands in a text: without the ## of a continuation."""
    return token.removeprefix(CONTINUATION) or token


def _prepare(
    text: str, index: int, masked: bool | None, settings: MaskingSettings, seed: int, tokenizer: Tokenizer
) -> _Masked:
    encoding = tokenizer.encode(text)
    mask_id = tokenizer.vocabulary.mask_id
    given = np.flatnonzero(encoding.ids == mask_id).tolist()
    if masked is None:
        masked = bool(given)
    if masked:
        if not given:
            raise InputError(
                f"holds no {MASK}",
                field=f"text {index + 1}",
                value=text,
                expected=f"a text with {MASK} in it",
                remedy="write one, or leave --masked away: tokens are then hidden for you",
            )
        return _Masked(text, encoding, encoding.ids, given)
    if not len(encoding.ids):
        raise InputError("holds no token", field=f"text {index + 1}", value=text, remedy="give a text with words")
    hidden = mask_tokens(
        encoding.ids[None, :],
        index=np.array([index]),
        ordinary=tokenizer.vocabulary.ordinary,
        mask_id=mask_id,
        settings=settings,
        seed=seed,
        epoch=0,
    )
    columns = np.flatnonzero(hidden.selected[0] | (encoding.ids == mask_id)).tolist()
    if not columns:
        raise InputError(
            "holds no token that could be hidden",
            field=f"text {index + 1}",
            value=text,
            expected="at least one token of the vocabulary that is not special, and --mlm_probability above 0",
            remedy="is this the vocabulary of the text's language? See `bertkit inspect vocab`",
        )
    return _Masked(text, encoding, hidden.input_ids[0], columns)


class NextSentence:
    """Judges whether B follows A.

    model: a model folder with a next-sentence head, an id of the hub, or a model already loaded (then give its
        tokenizer).
    allow_bin: open a pickle where the folder has no safetensors.
    """

    def __init__(
        self, model: str | Path | PretrainingModel, *, tokenizer: Tokenizer | None = None, allow_bin: bool = False
    ) -> None:
        self.model, self.tokenizer = _loaded(model, tokenizer, head="next_sentence", allow_bin=allow_bin)

    def __call__(self, first: str, second: str) -> dict[str, Any]:
        """Return {"is_next": bool, "score": probability that `second` follows `first`}."""
        [answer] = self.judge([(first, second)])
        return answer

    def judge(self, pairs: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield one record a pair, in order.

        Raises:
            InputError: a side without a token, or a pair longer than the model has positions.
        """
        numbered = enumerate(pairs)
        while chunk := list(islice(numbered, TEXTS_AT_ONCE)):
            yield from self._answer([self._encode(index, first, second) for index, (first, second) in chunk])

    def _encode(self, index: int, first: str, second: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sides = [self.tokenizer.encode_plain([text])[0].astype(np.int64) for text in (first, second)]
        for name, text, ids in zip("AB", (first, second), sides, strict=True):
            if not len(ids):
                raise InputError(
                    "holds no token", field=f"pair {index + 1}, {name}", value=text, remedy="give a text with words"
                )
        ids, types = with_special_tokens(sides[0], sides[1], self.tokenizer.vocabulary)
        _require_room(len(ids), f"pair {index + 1}", f"{first}\t{second}", self.model)
        return ids, types

    @torch.inference_mode()
    def _answer(self, rows: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Iterator[dict[str, Any]]:
        output = self.model(**_padded(rows, self.tokenizer.vocabulary.pad_id, self.model))
        assert output.nsp_logits is not None
        for logits in output.nsp_logits.float().cpu():
            score = logits.softmax(dim=-1)[IS_NEXT].item()
            yield {"is_next": bool(logits.argmax() == IS_NEXT), "score": score}


def _loaded(
    model: str | Path | PretrainingModel, tokenizer: Tokenizer | None, *, head: Head, allow_bin: bool
) -> tuple[PretrainingModel, Tokenizer]:
    if isinstance(model, PretrainingModel):
        assert tokenizer is not None, "a model that is loaded already needs its tokenizer"
        return model.eval(), tokenizer
    model = model_directory(model, allow_pickle_weights=allow_bin)
    loaded = load(model, head=head, allow_pickle_weights=allow_bin)
    require_plain_tokenizer_files(model)
    assert isinstance(loaded, PretrainingModel)
    tokenizer = tokenizer or load_tokenizer(model)
    if tokenizer.vocabulary.size > loaded.config.vocab_size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocabulary.size} tokens, the model {loaded.config.vocab_size}",
            file=model,
            remedy="the folder mixes two models; copy tokenizer and weights from one checkpoint",
        )
    return loaded, tokenizer


def _require_room(length: int, what: str, text: str, model: PretrainingModel) -> None:
    positions = model.config.max_position_embeddings
    if length > positions:
        raise InputError(
            f"has {length} tokens, special ones included, but the model has {positions} positions",
            field=what,
            value=text,
            expected=f"at most {positions} tokens",
            remedy="shorten it, or give it in parts",
        )


def _padded(
    rows: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], pad_id: int, model: PretrainingModel
) -> dict[str, Tensor]:
    """Return (input ids, token types) of rows as one batch on the model's device; no mask where nothing is padded."""
    lengths = np.array([len(ids) for ids, _ in rows])
    width = int(lengths.max())
    input_ids, token_types = np.full((len(rows), width), pad_id), np.zeros((len(rows), width), dtype=np.int64)
    for row, (ids, types) in enumerate(rows):
        input_ids[row, : len(ids)], token_types[row, : len(ids)] = ids, types
    device = next(model.parameters()).device
    batch = {"input_ids": torch.from_numpy(input_ids), "token_type_ids": torch.from_numpy(token_types)}
    if (lengths < width).any():
        batch["attention_mask"] = torch.from_numpy(np.arange(width)[None, :] < lengths[:, None])
    return {name: tensor.to(device) for name, tensor in batch.items()}
