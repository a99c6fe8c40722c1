"""How well a model does on held-out text: losses, accuracies, and a few filled masks, in the same way every time.

In: a PretrainingModel and a held-out Store.  Out: an Evaluation; sample texts.  Next: ../pipelines/scoring.py
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bertkit.data.batches import GlobalBatch, build_global_batch
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import IS_NEXT, PairSettings, PairTable, build_pairs
from bertkit.data.random import Stream
from bertkit.data.store import Store
from bertkit.model.heads import PretrainingModel
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import Vocabulary
from bertkit.train.runtime import Runtime

# Held-out pairs and masks never change: not with the run's seed, not with its masking rate.
EVALUATION_SEED, EVALUATION_MLM_PROBABILITY = 20_261_129, 0.15
EVALUATION_ROWS = 256  # rows built at a time
SAMPLE_TOKENS = 48  # a sample text ends with the sentence that reaches this

# Our metric → the name in Google's eval_results.txt.
GOOGLE_NAMES = {
    "mlm_accuracy": "masked_lm_accuracy",
    "mlm_loss": "masked_lm_loss",
    "mlm_accuracy_without_punctuation": "masked_lm_accuracy_without_punctuation",
    "nsp_accuracy": "next_sentence_accuracy",
    "nsp_loss": "next_sentence_loss",
    "loss": "loss",
}


@dataclass(frozen=True)
class Evaluation:
    """How a model does on held-out text."""

    metrics: dict[str, float]  # mlm_loss, mlm_accuracy, mlm_accuracy_without_punctuation, nsp_loss, nsp_accuracy, loss
    counts: dict[str, int]  # mlm: hidden tokens; nsp: pairs; mlm_without_punctuation
    is_next: NDArray[np.bool_]  # (rows,) the answer for each row evaluated; empty without pairs
    rows: NDArray[np.int64]  # (rows,) rows of the table of `held_out_pairs`


def held_out_pairs(store: Store, pairs: PairSettings) -> PairTable:
    """Return the pairs of a held-out part, the same in every run with the same pair settings."""
    return build_pairs(store, pairs, seed=EVALUATION_SEED, epoch=0)


@torch.inference_mode()
def evaluate(
    model: PretrainingModel,
    store: Store,
    *,
    vocabulary: Vocabulary,
    pairs: PairSettings,
    mlm_probability: float = EVALUATION_MLM_PROBABILITY,
    max_rows: int | None = None,
    micro_batch_tokens: int = 4096,
    runtime: Runtime | None = None,
) -> Evaluation:
    """Return the metrics of a model on a held-out part, in eval mode, masks and pairs being fixed.

    mlm_probability: share of ordinary tokens hidden; 0 asks for the next-sentence answers on plain text.
    max_rows: how many pairs, drawn uniformly, None for all.
    runtime: whose processes share the rows, each row being counted once; None: this process alone.
    """
    model.eval()
    table = held_out_pairs(store, pairs)
    number = len(table) if max_rows is None else min(max_rows, len(table))
    rows = Stream(EVALUATION_SEED, "evaluation", 0).permuted(np.arange(number), size=len(table))
    runtime = runtime or Runtime(next(model.parameters()).device)
    totals = _Totals(torch.from_numpy(vocabulary.punctuation))
    for start in range(0, number, EVALUATION_ROWS):
        batch = build_global_batch(
            store,
            table,
            rows[start : start + EVALUATION_ROWS],
            vocabulary=vocabulary,
            masking=MaskingSettings(mlm_probability=mlm_probability),
            seed=EVALUATION_SEED,
            epoch=0,
            micro_batch_tokens=micro_batch_tokens,
            with_pairs=pairs.pairing != "none",
            rank=runtime.rank,
            num_ranks=runtime.num_ranks,
        )
        totals.add(model, batch)
        runtime.watchdog.beat()
    totals.sum_over(runtime)
    return totals.result(rows)


class _Totals:
    """Sums over the rows evaluated."""

    def __init__(self, punctuation: Tensor) -> None:
        self._punctuation = punctuation
        self._sums = dict.fromkeys(("mlm_loss", "mlm", "plain", "nsp_loss", "nsp"), 0.0)
        self._counts = {"mlm": 0, "mlm_without_punctuation": 0, "nsp": 0}
        self._answers: list[NDArray[np.bool_]] = []

    def add(self, model: PretrainingModel, batch: GlobalBatch) -> None:
        device = next(model.parameters()).device
        answers = np.zeros(batch.num_rows, dtype=bool)
        for micro_batch, positions in zip(batch.micro_batches, batch.positions, strict=True):
            on_device = {name: tensor.to(device) for name, tensor in micro_batch.items()}
            labels, targets = on_device.get("next_sentence_label"), on_device["mlm_targets"]
            mlm_logits, nsp_logits = model.logits_where_read(
                on_device["input_ids"],
                mlm_positions=on_device["mlm_positions"],
                attention_mask=on_device.get("attention_mask"),
                token_type_ids=on_device["token_type_ids"],
            )
            hits = (mlm_logits.argmax(-1) == targets).cpu()
            plain = ~self._punctuation[targets.cpu()]
            self._sums["mlm_loss"] += F.cross_entropy(mlm_logits.float(), targets, reduction="sum").item()
            self._sums["mlm"] += hits.sum().item()
            self._sums["plain"] += (hits & plain).sum().item()
            self._counts["mlm"] += len(targets)
            self._counts["mlm_without_punctuation"] += int(plain.sum())
            if labels is not None and nsp_logits is not None:
                predicted = nsp_logits.argmax(-1)
                self._sums["nsp_loss"] += F.cross_entropy(nsp_logits.float(), labels, reduction="sum").item()
                self._sums["nsp"] += (predicted == labels).sum().item()
                self._counts["nsp"] += len(labels)
                answers[positions] = (predicted == IS_NEXT).cpu().numpy()
        self._answers.append(answers)

    def sum_over(self, runtime: Runtime) -> None:
        """Add up the sums of all processes; each answer is 0 but on the process that had its row."""
        self._sums = dict(zip(self._sums, runtime.sums(list(self._sums.values())), strict=True))
        self._counts = {
            name: int(count)
            for name, count in zip(self._counts, runtime.sums(list(self._counts.values())), strict=True)
        }
        if self._counts["nsp"]:
            answers = np.concatenate(self._answers).tolist()
            self._answers = [np.array(runtime.sums(answers), dtype=bool)]

    def result(self, rows: NDArray[np.int64]) -> Evaluation:
        sums, counts = self._sums, {name: max(1, count) for name, count in self._counts.items()}
        metrics = {
            "mlm_loss": sums["mlm_loss"] / counts["mlm"],
            "mlm_accuracy": sums["mlm"] / counts["mlm"],
            "mlm_accuracy_without_punctuation": sums["plain"] / counts["mlm_without_punctuation"],
        }
        if self._counts["nsp"]:
            metrics |= {"nsp_loss": sums["nsp_loss"] / counts["nsp"], "nsp_accuracy": sums["nsp"] / counts["nsp"]}
        metrics["loss"] = metrics["mlm_loss"] + metrics.get("nsp_loss", 0.0)
        answers = self._answers[0] if self._counts["nsp"] else np.zeros(0, dtype=bool)
        return Evaluation(metrics, self._counts, answers, rows)


def in_words(metrics: Mapping[str, float]) -> str:
    """Return metrics as one short line for people.

    >>> in_words({"mlm_loss": 5.76, "mlm_accuracy": 0.181, "loss": 6.3})
    'MLM loss 5.760, accuracy 18.1 %'
    """
    parts = [f"MLM loss {metrics['mlm_loss']:.3f}, accuracy {100 * metrics['mlm_accuracy']:.1f} %"]
    if "nsp_loss" in metrics:
        parts.append(f"NSP loss {metrics['nsp_loss']:.3f}, accuracy {100 * metrics['nsp_accuracy']:.1f} %")
    return "; ".join(parts)


def unigram_loss(train: Store, held_out: Store, vocabulary: Vocabulary) -> float:
    """Return the masked-LM loss in nats of guessing each token by its share of the training part alone.

    Every ordinary token counts as seen once more than it was, so that none has the share 0.
    """
    ordinary = vocabulary.ordinary
    seen = train.token_counts(vocabulary.size)[ordinary] + 1.0
    wanted = held_out.token_counts(vocabulary.size)[ordinary]
    return float(-(wanted * np.log(seen / seen.sum())).sum() / max(1.0, wanted.sum()))


def sample_texts(store: Store, tokenizer: Tokenizer, *, number: int = 4, max_tokens: int) -> list[str]:
    """Return the beginnings of a few documents of a part, evenly spaced, as text (unknown tokens left as they are).

    max_tokens: most tokens of a text, special ones not counted. A document that begins without a single ordinary token
    is left out: nothing could be hidden in it.
    """
    documents = np.unique(np.linspace(0, store.num_documents - 1, num=number).astype(np.int64))
    starts = store.sentence_starts[store.document_sentences[documents]]
    ends = store.sentence_starts[store.document_sentences[documents + 1]]
    full = store.sentence_starts[
        np.searchsorted(store.sentence_starts, starts + SAMPLE_TOKENS, side="left").clip(max=store.num_sentences)
    ]
    ends = np.minimum(np.minimum(ends, full), starts + min(2 * SAMPLE_TOKENS, max_tokens))
    beginnings = [store.tokens(starts[row : row + 1], ends[row : row + 1]) for row in range(len(documents))]
    return [tokenizer.decode(ids.tolist()) for ids in beginnings if tokenizer.vocabulary.ordinary[ids].any()]
