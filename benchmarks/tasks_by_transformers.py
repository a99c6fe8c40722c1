"""One task fine-tuned as people do it with transformers: its tokenizer and its model with a head.

In: rows of a training and a test file, settings.  Out: the answers for the test rows; the metrics are tasks.py's.
Features are those of the library's own examples: first pieces of words carry tags, questions lie in windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput

from bertkit.data.order import global_batch, micro_batches
from bertkit.train.settings import TrainSettings

IGNORED = -100
NOT_IN_WINDOW = 10**6  # a position behind the row, which the loss of BertForQuestionAnswering leaves out
PREDICT_BATCH = 64
MICRO_BATCH_TOKENS = TrainSettings().micro_batch_tokens  # bertkit's
N_BEST, LONGEST_ANSWER = 20, 30
PAD = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0, "labels": IGNORED}
Feature = dict[str, Any]
Row = dict[str, Any]
Kind = Literal["texts", "tags", "choices", "questions"]
Pooling = Literal["pooler", "cls"]
MODELS = {
    "texts": transformers.AutoModelForSequenceClassification,
    "tags": transformers.AutoModelForTokenClassification,
    "choices": transformers.AutoModelForMultipleChoice,
    "questions": transformers.AutoModelForQuestionAnswering,
}


@dataclass(frozen=True)
class Settings:
    """What is equal for both contenders."""

    batch_size: int
    epochs: int
    learning_rate: float
    warmup_ratio: float
    max_seq_length: int  # tokens
    doc_stride: int  # tokens from a window to the next
    dropout: float  # everywhere
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    adam_beta2: float = 0.999
    pooling: Pooling = "pooler"  # what the head of a text reads
    both_ways: bool = False  # whether pairs stand among the training rows in both orders


def text_features(rows: Sequence[Row], tokenizer: Any, *, labels: list[str], settings: Settings) -> list[Feature]:
    """Return a row a text or pair; without labels the target is a number."""
    pairs = None if rows[0]["pair"] is None else [row["pair"] for row in rows]
    texts = [row["text"] for row in rows]
    encoded = tokenizer(texts, pairs, truncation=True, max_length=settings.max_seq_length)
    ids = {label: place for place, label in enumerate(labels)}
    targets = [ids[row["label"]] if labels else row["label"] for row in rows]
    return [{**{name: encoded[name][i] for name in encoded}, "labels": target} for i, target in enumerate(targets)]


def tag_features(rows: Sequence[Row], tokenizer: Any, *, labels: list[str], settings: Settings) -> list[Feature]:
    """Return a row a sentence; only the first piece of a word has its tag."""
    words = [row["words"] for row in rows]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=settings.max_seq_length)
    ids, features = {label: place for place, label in enumerate(labels)}, []
    for place, row in enumerate(rows):
        of_tokens = encoded.word_ids(place)
        firsts = [w is not None and (i == 0 or of_tokens[i - 1] != w) for i, w in enumerate(of_tokens)]
        targets = [ids[row["tags"][w]] if first else IGNORED for w, first in zip(of_tokens, firsts, strict=True)]
        features.append({**{name: encoded[name][place] for name in encoded}, "labels": targets, "words": of_tokens})
    return features


def choice_features(rows: Sequence[Row], tokenizer: Any, *, settings: Settings, **_: Any) -> list[Feature]:
    """Return for each row its choices, each behind the context."""
    features = []
    for row in rows:
        contexts = [row["context"]] * len(row["choices"])
        encoded = tokenizer(contexts, row["choices"], truncation=True, max_length=settings.max_seq_length)
        features.append({**encoded, "labels": row["label"]})
    return features


def question_features(rows: Sequence[Row], tokenizer: Any, *, settings: Settings, **_: Any) -> list[Feature]:
    """Return the windows of all questions; one without the whole answer has no target."""
    features: list[Feature] = []
    for place, row in enumerate(rows):
        asked = len(tokenizer(row["question"], add_special_tokens=False)["input_ids"])
        overlap = settings.max_seq_length - asked - 3 - settings.doc_stride  # the library counts what windows share
        encoded = tokenizer(
            row["question"],
            row["context"],
            truncation="only_second",
            max_length=settings.max_seq_length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        text, begin = row["answers"][0]
        for window, offsets in enumerate(encoded["offset_mapping"]):
            of_context = [part == 1 for part in encoded.sequence_ids(window)]
            spans = [span if inside else None for span, inside in zip(offsets, of_context, strict=True)]
            first, last = of_context.index(True), len(of_context) - 1 - of_context[::-1].index(True)
            start = end = NOT_IN_WINDOW
            if offsets[first][0] <= begin and begin + len(text) <= offsets[last][1]:
                inside = [i for i, s in enumerate(spans) if s and s[1] > begin and s[0] < begin + len(text)]
                start, end = inside[0], inside[-1]
            feature = {name: encoded[name][window] for name in ("input_ids", "attention_mask", "token_type_ids")}
            targets = {"start_positions": start, "end_positions": end, "spans": spans, "row": place}
            features.append({**feature, **targets})
    return features


FEATURES = {"texts": text_features, "tags": tag_features, "choices": choice_features, "questions": question_features}
NOT_FOR_THE_MODEL = ("spans", "row", "words")


def collate(features: Sequence[Feature], *, pad_to: int | None = None) -> dict[str, Tensor]:
    """Return features padded to the longest of them, or to a length."""
    batch: dict[str, Tensor] = {}
    for name in features[0]:
        values = [feature[name] for feature in features]
        if name in NOT_FOR_THE_MODEL:
            continue
        if not isinstance(values[0], list):
            batch[name] = torch.tensor(values)
            continue
        nested = isinstance(values[0][0], list)
        flat = [row for value in values for row in value] if nested else values
        longest = pad_to or max(map(len, flat))
        tensor = torch.tensor([row + [PAD[name]] * (longest - len(row)) for row in flat])
        batch[name] = tensor.view(len(features), -1, longest) if nested else tensor
    return batch


def length(feature: Feature) -> int:
    """Return the tokens of a feature's longest row."""
    ids = feature["input_ids"]
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def rows_in(feature: Feature) -> int:
    """Return how many rows a feature is: one a choice."""
    ids = feature["input_ids"]
    return len(ids) if isinstance(ids[0], list) else 1


def targets_of(feature: Feature) -> int:
    """Return over how many targets the model's loss takes its mean, of this feature."""
    if "start_positions" in feature:
        return int(feature["start_positions"] != NOT_IN_WINDOW)
    labels = feature["labels"]
    return sum(label != IGNORED for label in labels) if isinstance(labels, list) else 1


class OnFirstToken(torch.nn.Module):
    """A token classifier of which [CLS] alone is read: the sequence classifier for BERT reads the pooler, always."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *, labels: Tensor | None = None, **inputs: Tensor) -> SequenceClassifierOutput:
        """Return the score (rows, 1) of [CLS] and, given the numbers wanted, the mean squared error."""
        logits = self.model(**inputs).logits[:, 0]
        loss = None if labels is None else F.mse_loss(logits.squeeze(1), labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def load(
    kind: Kind,
    base: str,
    *,
    labels: list[str],
    dropout: float,
    is_regression: bool = False,
    pooling: Pooling = "pooler",
) -> Any:
    """Return the model with a new head."""
    shares = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    if pooling == "cls":
        assert is_regression
        return OnFirstToken(MODELS["tags"].from_pretrained(base, **shares, num_labels=1))
    number = {} if kind in ("choices", "questions") else {"num_labels": 1 if is_regression else len(labels)}
    return MODELS[kind].from_pretrained(base, **shares, **number)


def train_on(model: Any, features: list[Feature], settings: Settings, *, seed: int) -> int:
    """Train as the library's examples do without its Trainer, on the batches that bertkit makes; return the steps.

    A batch goes through the model in parts of like length, each weighed by its targets, so that little is padded.
    """
    lengths = np.array([length(feature) * rows_in(feature) for feature in features])
    steps = -(-len(features) // settings.batch_size)
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]  # biases and LayerNorm
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=settings.learning_rate,
        betas=(0.9, settings.adam_beta2),
        eps=1e-8,
        fused=True,
    )
    end = steps * settings.epochs
    warm_up = round(settings.warmup_ratio * end)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warm_up, end)
    model.train()
    for step in range(end):
        epoch, inside = divmod(step, steps)
        batch = global_batch(
            seed=seed, epoch=epoch, step=inside, num_rows=len(features), batch_size=settings.batch_size
        )
        whole = sum(targets_of(features[row]) for row in batch)
        [parts] = micro_batches(lengths[batch], micro_batch_tokens=MICRO_BATCH_TOKENS)
        for part in parts:
            own = [features[row] for row in batch[part.rows]]
            share = sum(map(targets_of, own)) / whole
            if share:
                (model(**collate(own)).loss * share).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return end


def outputs_of(model: Any, features: list[Feature]) -> list[Any]:
    """Return for each feature its logits (of a question start and end), padding cut off."""
    model.eval()
    found: list[Any] = [None] * len(features)
    order = sorted(range(len(features)), key=lambda place: length(features[place]))
    for start in range(0, len(order), PREDICT_BATCH):
        places = order[start : start + PREDICT_BATCH]
        batch = collate([features[place] for place in places])
        with torch.inference_mode():
            given = model(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
        logits = given.logits if "logits" in given else torch.stack([given.start_logits, given.end_logits], dim=-1)
        for place, own in zip(places, logits.numpy(), strict=True):
            found[place] = own
    return found


def answers_of(
    kind: Kind, rows: Sequence[Row], features: list[Feature], outputs: list[Any], labels: list[str]
) -> list[Any]:
    """Return for each row a number, a label, its tags, the place of a choice, or the text of an answer."""
    if kind == "texts":
        return [labels[int(own.argmax())] if labels else float(own[0]) for own in outputs]
    if kind == "choices":
        return [int(own.argmax()) for own in outputs]
    if kind == "tags":
        tags = [["O"] * len(row["words"]) for row in rows]
        for own, feature, output in zip(tags, features, outputs, strict=True):
            for place, word in enumerate(feature["words"]):
                if word is not None and feature["words"][place - 1] != word:
                    own[word] = labels[int(output[place].argmax())]
        return list(tags)
    best: list[tuple[float, str]] = [(-np.inf, "")] * len(rows)
    for feature, output in zip(features, outputs, strict=True):
        score, begin, end = best_span(feature["spans"], output)
        if score > best[feature["row"]][0]:
            best[feature["row"]] = score, rows[feature["row"]]["context"][begin:end]
    return [text for _, text in best]


def best_span(spans: Sequence[tuple[int, int] | None], output: Any) -> tuple[float, int, int]:
    """Return the score, begin and end (characters) of the best answer in a window."""
    starts, ends = output[: len(spans), 0], output[: len(spans), 1]
    best = (-np.inf, 0, 0)
    for first in np.argsort(-starts)[:N_BEST]:
        for last in np.argsort(-ends)[:N_BEST]:
            begin, end = spans[first], spans[last]
            if begin and end and first <= last < first + LONGEST_ANSWER:
                best = max(best, (float(starts[first] + ends[last]), begin[0], end[1]))
    return best


def fine_tune(
    kind: Kind, base: str, train: list[Row], test: list[Row], *, settings: Settings, seed: int
) -> tuple[list[Any], int]:
    """Return the answers for the test rows, and the steps that were made."""
    transformers.set_seed(seed)
    is_regression = kind == "texts" and isinstance(train[0]["label"], float)
    labels: list[str] = []
    if kind == "tags":
        labels = sorted({tag for row in (*train, *test) for tag in row["tags"]})
    elif kind == "texts" and not is_regression:
        labels = sorted({row["label"] for row in (*train, *test)})
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    features, held_out = (FEATURES[kind](rows, tokenizer, labels=labels, settings=settings) for rows in (train, test))
    model = load(
        kind,
        base,
        labels=labels,
        dropout=settings.dropout,
        is_regression=is_regression,
        pooling=settings.pooling,
    )
    steps = train_on(model, features, settings, seed=seed)
    return answers_of(kind, test, held_out, outputs_of(model, held_out), labels), steps
