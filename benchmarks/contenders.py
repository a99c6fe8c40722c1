"""Who pre-trains side by side: bertkit by its own loop, and transformers' BertForPreTraining, as it comes and tuned.

In: a prepared store, the size of the model.  Out: contenders, each of which makes one step when asked.
HF-d: `transformers` by its defaults: random padded batches, AdamW 5e-5, dropout 0.1.  HF-t: the same model without
dropout, batches grouped by length as its Trainer groups them, no mask where nothing is padded, a tuned rate.
Both are given bertkit's own data pipeline and a bare loop. Next: elsewhere.py, pretraining.py, time_to_loss.py, gpu.py
"""

import atexit
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import transformers

from bertkit.allocator import keep_freed_memory
from bertkit.commands.pretrain import Config, open_work
from bertkit.commands.vocab import build_vocabulary
from bertkit.data.cached_store import cached_store
from bertkit.data.collate import Batch, collate
from bertkit.data.instances import masked_rows
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import global_batch, steps_in_epoch
from bertkit.data.pairs import PairSettings, build_pairs
from bertkit.data.preparation import PreparationSettings
from bertkit.data.prepared import open_prepared
from bertkit.files import cache_directory
from bertkit.model.config import BertConfig
from bertkit.model.losses import IGNORE_INDEX
from bertkit.options import config_from
from bertkit.text.corpora import fetch_corpus
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import Vocabulary
from bertkit.train.feed import Source, feed
from bertkit.train.loop import update
from bertkit.train.state import TrainState

SHARED = Path(os.environ.get("BERTKIT_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TEXTS = {"Song ci": "songci/songci.txt", "Wikipedia": "zhwiki_paragraphs/zhwiki_paragraphs.txt"}
VOCABULARY = "vocabs/bert-base-chinese-vocab.txt"
VOCAB_SIZE = 21_128  # of the Chinese base model
ROWS = 256  # of a step
DEFAULT_RATE = 5e-5  # transformers.TrainingArguments
GROUPED_BATCHES = 50  # among so many batches transformers' Trainer sorts rows, to group them by length
NO_DECAY = ("bias", "LayerNorm.weight")  # as in transformers' Trainer
MANY_STEPS = 10**6


class Step(NamedTuple):
    """What one step took."""

    tokens: int  # padding not counted
    slots: int  # padding counted
    seconds: float


class Contender(Protocol):
    """Somebody who trains."""

    def step(self) -> Step:
        """Make one update, or a share of it from which the whole follows."""
        ...


def text_of(corpus: str) -> CorpusSettings:
    """Return where a corpus of TEXTS lies; the Song ci are fetched where there is no folder of shared data."""
    if SHARED.is_dir():
        return CorpusSettings(str(SHARED / TEXTS[corpus]), "lines")
    if corpus != "Song ci":
        raise SystemExit(f"{corpus} stands in the shared data only: {SHARED}; set BERTKIT_SHARED_DATA")
    path = cache_directory() / "bench" / "songci.txt"
    fetch_corpus("songci", output_file=path)
    return CorpusSettings(str(path), "lines")


def large_vocabulary() -> Tokenizer:
    """Return the tokenizer of the Chinese base model; where it is absent, one of the Song ci filled up to its size."""
    if SHARED.is_dir():
        return load_tokenizer(SHARED / VOCABULARY, do_lower_case=True)
    learnt = build_vocabulary(text_of("Song ci"), vocab_size=VOCAB_SIZE).vocabulary.tokens
    unused = (f"[unused{number}]" for number in range(VOCAB_SIZE - len(learnt)))
    return make_tokenizer(Vocabulary((*learnt, *unused)), do_lower_case=True)


def store_of(corpus: str, tokenizer: Tokenizer) -> Path:
    """Return the store of a corpus, prepared once."""
    return cached_store(text_of(corpus), tokenizer, PreparationSettings())


def folder_of_this_process() -> Path:
    """Return a new folder that lasts as long as the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class Bertkit:
    """bertkit as `bertkit pretrain` trains: its default recipe, its own loop, whole steps.

    values: settings that differ from the defaults.
    source: batches in place of the store's.
    """

    def __init__(self, store: Path, values: dict[str, Any], *, source: Source | None = None) -> None:
        given = {"output_dir": str(folder_of_this_process()), "data_dir": str(store), "max_steps": MANY_STEPS, **values}
        config: Config = config_from(Config, given)
        job = open_work(config).start_nothing(config.training)
        self.job = job if source is None else replace(job, source=source)
        self._state = TrainState()
        self._batches = feed(self.job.source, start=0, end=MANY_STEPS, workers=0, pin_memory=False)

    def step(self) -> Step:
        """Make one update."""
        before, began = self._state.tokens, time.perf_counter()
        found = update(self.job, self._state, self._batches)
        assert found is not None
        wait_for_the_device(self.job.runtime.device)
        self._state.step += 1
        return Step(self._state.tokens - before, found.slots, time.perf_counter() - began)


@dataclass(frozen=True)
class Tuning:
    """How transformers is run; the defaults are its own.

    rows_at_once: of one forward pass; those of a step are accumulated.
    """

    rows: int = ROWS
    rows_at_once: int = 32
    by_length: bool = False  # and no mask where nothing is padded
    dropout: float = 0.1
    learning_rate: float = DEFAULT_RATE
    warmup: float = 0.0  # share of the run
    mlm_probability: float = 0.15
    weight_decay: float = 0.0
    beta2: float = 0.999
    keep_freed_memory: bool = False  # as bertkit's training does, for its whole process


HF_D = Tuning()
# Rows at once: pretraining.py --only HF-t-rows. The rate does not change the speed: it is tuned in time_to_loss.py.
HF_T = Tuning(
    rows_at_once=8,
    by_length=True,
    dropout=0.0,
    learning_rate=2e-3,
    warmup=0.1,
    weight_decay=0.01,
    beta2=0.98,
    keep_freed_memory=True,
)


class Transformers:
    """transformers' BertForPreTraining in a bare loop: dense labels, dense head, fused AdamW, gradients clipped at 1.

    share: of the micro-batches of a step, how many are timed; the step's time is that of all, by proportion, and of
        the optimizer.
    """

    def __init__(
        self,
        config: BertConfig,
        batches: Iterator[Batch],
        tuning: Tuning,
        *,
        share: float = 1.0,
        device: str = "cpu",
        bf16: bool = False,
    ) -> None:
        if tuning.keep_freed_memory:
            keep_freed_memory()
        theirs = transformers.BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            hidden_dropout_prob=tuning.dropout,
            attention_probs_dropout_prob=tuning.dropout,
        )
        self.model = transformers.BertForPreTraining(theirs).to(device).train()
        named = list(self.model.named_parameters())
        decayed = [p for name, p in named if not name.endswith(NO_DECAY)]
        others = [p for name, p in named if name.endswith(NO_DECAY)]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": tuning.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=tuning.learning_rate,
            betas=(0.9, tuning.beta2),
            fused=True,  # the default of TrainingArguments by now
        )
        self._batches, self._tuning = batches, tuning
        self._device, self._bf16 = torch.device(device), bf16
        self._whole = math.ceil(tuning.rows / tuning.rows_at_once)  # micro-batches of a step
        self._parts = max(1, round(share * self._whole))

    def step(self, progress: float | None = None) -> Step:
        """Make one update; `progress`: how much of the run is over, 0 to 1, for the schedule; None: the peak rate."""
        began = time.perf_counter()
        tokens = slots = 0
        for _ in range(self._parts):
            batch = next(self._batches)
            slots += batch["input_ids"].numel()
            mask = batch.get("attention_mask")
            tokens += batch["input_ids"].numel() if mask is None else int(mask.sum())
            self._forward_and_backward(batch)
        wait_for_the_device(self._device)
        computed = time.perf_counter()
        if progress is not None:
            self._set_rate(progress)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait_for_the_device(self._device)
        scale = self._whole / self._parts
        return Step(
            round(tokens * scale), round(slots * scale), (computed - began) * scale + time.perf_counter() - computed
        )

    def warm_up(self) -> None:
        """Take one micro-batch and forget it."""
        self._forward_and_backward(next(self._batches))
        self.optimizer.zero_grad()

    def _forward_and_backward(self, batch: Batch) -> None:
        inputs = {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16):
            loss = self.model(**inputs).loss
        (loss / self._whole).backward()

    def _set_rate(self, progress: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._tuning.learning_rate * linear_schedule(progress, warmup=self._tuning.warmup)


def linear_schedule(progress: float, *, warmup: float) -> float:
    """Return the share of the peak rate: up over the warm-up, then down to 0.

    >>> [linear_schedule(progress, warmup=0.2) for progress in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if progress < warmup:
        return max(progress / warmup, 1e-3)  # the first step too is one
    return max(0.0, 1.0 - progress) / (1.0 - warmup)


def dense_batches(store: Path, pairs: PairSettings, tuning: Tuning, *, seed: int = 1) -> Iterator[Batch]:
    """Yield the padded batches of transformers without end: random rows, or rows of like length together.

    input_ids, token_type_ids, attention_mask, labels: (rows, seq); next_sentence_label: (rows,); all int64.
    """
    parts, tokenizer = open_prepared(store)
    shuffle = np.random.default_rng(seed)
    together = GROUPED_BATCHES * tuning.rows if tuning.by_length else tuning.rows
    for epoch in range(MANY_STEPS):
        table = build_pairs(parts["train"], pairs, seed=seed, epoch=epoch)
        whole = steps_in_epoch(len(table), together) - 1  # the last, short one would be timed like others
        for number in range(max(1, whole)):  # where it is the only one, a small corpus is not without batches
            rows = global_batch(seed=seed, epoch=epoch, step=number, num_rows=len(table), batch_size=together)
            built, masked = masked_rows(
                parts["train"],
                table,
                rows,
                vocabulary=tokenizer.vocabulary,
                masking=MaskingSettings(mlm_probability=tuning.mlm_probability),
                phrases=None,
                seed=seed,
                epoch=epoch,
            )
            order = np.argsort(-built.lengths, kind="stable") if tuning.by_length else np.arange(len(rows))
            cuts = [order[start : start + tuning.rows_at_once] for start in range(0, len(rows), tuning.rows_at_once)]
            for cut in shuffle.permutation(len(cuts)):
                batch = collate(built, masked, table.next_sentence_label[rows], positions=cuts[cut])
                yield with_dense_labels(batch, always_masked=not tuning.by_length)


def with_dense_labels(batch: Batch, *, always_masked: bool) -> Batch:
    """Return a batch of bertkit's as transformers wants it: a label for every token, −100 where there is none."""
    ids = batch["input_ids"]
    labels = torch.full_like(ids, IGNORE_INDEX)
    labels.view(-1)[batch["mlm_positions"]] = batch["mlm_targets"]
    dense = {"input_ids": ids, "token_type_ids": batch["token_type_ids"], "labels": labels}
    if "attention_mask" in batch:
        dense["attention_mask"] = batch["attention_mask"].long()
    elif always_masked:
        dense["attention_mask"] = torch.ones_like(ids)
    return dense | {"next_sentence_label": batch["next_sentence_label"]}


def wait_for_the_device(device: torch.device) -> None:
    """Return when a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
