"""Rows of one length, of random tokens: what a step costs where nothing is padded.

In: a BertConfig.  Out: the batches of bertkit's loop, those of transformers, and the useful work in a token.
Next: contenders.py, pretraining.py
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from contenders import folder_of_this_process, with_dense_labels

from bertkit.data.collate import Batch
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.model.config import BertConfig
from bertkit.model.costs import training_flops
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.train.feed import StepBatches
from bertkit.train.settings import TrainSettings

LENGTH = 128
TARGETS = 19  # of a row: 15 % of what is not [CLS] or [SEP]
MICRO_BATCH_TOKENS = TrainSettings().micro_batch_tokens  # as `bertkit pretrain` by default
FIRST_ORDINARY = 5  # id behind the special tokens
SMALL = 8  # tokens of a row of a first step that only makes room
CHARACTERS = 20_000  # from U+4E00 on
DOCUMENTS, SENTENCES, LONGEST = 200, 8, 40  # of a store of random characters


class UniformRows:
    """A source of steps: `rows` rows of `length` tokens, in micro-batches by bertkit's token budget."""

    def __init__(
        self, config: BertConfig, *, rows: int, length: int = LENGTH, micro_batch_tokens: int = MICRO_BATCH_TOKENS
    ) -> None:
        self._config, self._rows, self._length = config, rows, length
        self._at_once = max(1, min(rows, micro_batch_tokens // length))

    def step(self, step: int) -> StepBatches:
        """Return the batches of a step; they depend on its number."""
        generator = torch.Generator().manual_seed(step)
        cuts = [min(self._at_once, self._rows - start) for start in range(0, self._rows, self._at_once)]
        batches = [uniform_batch(self._config, rows, length=self._length, generator=generator) for rows in cuts]
        tokens = self._rows * self._length
        return StepBatches(
            batches,
            numbers=range(len(batches)),
            counts={"mlm": sum(len(batch["mlm_targets"]) for batch in batches), "nsp": self._rows},
            tokens=tokens,
            slots=tokens,
        )

    def longest(self) -> Batch:
        """Return the largest micro-batch there can be."""
        return self.step(0).micro_batches[0]

    def describe(self, step: int) -> str:
        """Return which examples a step holds, in words."""
        return "random tokens"


class SmallFirst(UniformRows):
    """The same, but for a first step of short rows, which makes weights, moments and the libraries' own rooms."""

    def step(self, step: int) -> StepBatches:
        """Return the batches of a step."""
        if step:
            return super().step(step)
        return UniformRows(self._config, rows=self._rows, length=SMALL).step(0)


def uniform_store(vocab_size: int) -> Path:
    """Return a store of random characters whose vocabulary has that many entries; it lasts as long as the process."""
    folder = folder_of_this_process()
    characters = [chr(0x4E00 + number) for number in range(min(CHARACTERS, vocab_size - len(SPECIAL_TOKENS) - 1))]
    tokens = [*SPECIAL_TOKENS, "。", *characters]
    tokens += [f"[unused{number}]" for number in range(vocab_size - len(tokens))]
    draw = np.random.default_rng(1)
    lines = []
    for _ in range(DOCUMENTS):
        lengths = draw.integers(1, LONGEST, SENTENCES)
        lines.append("".join("".join(draw.choice(characters, length)) + "。" for length in lengths))
    text = folder / "text.txt"
    text.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    tokenizer = make_tokenizer(Vocabulary(tuple(tokens)), do_lower_case=True)
    prepare_store(CorpusSettings(str(text), "lines"), tokenizer, folder / "store", PreparationSettings())
    return folder / "store"


def uniform_batch(config: BertConfig, rows: int, *, length: int = LENGTH, generator: torch.Generator) -> Batch:
    """Return a batch of rows of one length, 15 % of whose tokens are targets, as data/collate.py makes them."""
    ids = torch.randint(FIRST_ORDINARY, config.vocab_size, (rows, length), generator=generator)
    chosen = torch.rand(rows, length, generator=generator)[:, 1:].topk(targets_of(length), dim=1).indices + 1
    positions = (chosen + torch.arange(rows)[:, None] * length).flatten().sort().values  # (n,)
    return {
        "input_ids": ids,
        "token_type_ids": (torch.arange(length) >= length // 2).long().expand(rows, length).contiguous(),
        "mlm_positions": positions,
        "mlm_targets": ids.flatten()[positions],
        "next_sentence_label": torch.randint(0, 2, (rows,), generator=generator),
    }


def targets_of(length: int) -> int:
    """Return the hidden tokens of a row.

    >>> targets_of(128)
    19
    """
    return max(1, round(TARGETS * length / LENGTH))


def dense_uniform_batches(config: BertConfig, rows: int, *, length: int = LENGTH, seed: int = 1) -> Iterator[Batch]:
    """Yield the same kind of rows as transformers takes them, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield with_dense_labels(uniform_batch(config, rows, length=length, generator=generator), always_masked=False)


def useful_flops_a_token(config: BertConfig, *, length: int = LENGTH) -> float:
    """Return the operations in a token that gradients need: the head at targets, the last layer where it is read.

    >>> from bertkit.model.config import config_of_size
    >>> round(useful_flops_a_token(config_of_size("mini", vocab_size=21128)) / 1e6, 1)
    21.7
    """
    targets = targets_of(length)
    flops = training_flops(config, tokens=length, squares=length**2, targets=targets, pairs=1, read=targets + 1)
    return flops / length


def dense_flops_a_token(config: BertConfig, *, length: int = LENGTH) -> float:
    """Return the operations in a token of a model that finishes every layer and scores every token."""
    return training_flops(config, tokens=length, squares=length**2, targets=length, pairs=1) / length
