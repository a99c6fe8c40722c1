"""Words in a sentence → a tag each, and the entities they mark.

In: tagged sentences.  Out: windows, losses, TaggedAnswers, entity F1, tag accuracy.  Next: multiple_choice.py
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.collate import Batch, padded
from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.labels import LabelMap, only_known
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.tagging import resolve_tags
from bertkit.data.features import IGNORE_INDEX, CoverageReport
from bertkit.data.tag_decoding import TaggedAnswer, decode_tags
from bertkit.data.tag_features import TagFeatures, build_tag_features
from bertkit.data.tags import OUTSIDE, spans_of
from bertkit.errors import InputError
from bertkit.metrics.entities import entity_scores, tag_scores, word_scores
from bertkit.model.architectures import Head, TaskModel
from bertkit.model.losses import cross_entropy
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.finetuning import Metrics, Outputs, inputs_of
from bertkit.tasks.task_settings import Knowledge, TaskName, TaskSettings, length_of_rows
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.loop import LossSums

LOSS = "tag"
TYPELESS = frozenset("BI")  # the tags of a segmentation into words, as IOB2


class TokenClassification:
    """Entities by IOB2 tags, plain classes (parts of speech), or words of a text without spaces."""

    name: TaskName = "token-classification"
    head: Head = "token_classification"

    def best_by(self, task: TaskConfig) -> tuple[str, bool]:
        """F1 of entities or words; of plain classes the accuracy."""
        return ("accuracy" if _kind(task) == "classes" else "f1"), True

    def resolve(
        self, splits: Mapping[str, Sequence[TaggedExample]], settings: ReadingSettings, report: ExampleReport
    ) -> tuple[dict[str, list[TaggedExample]], TaskConfig, Knowledge]:
        """Return the examples with IOB2 tags; the scheme they came in is kept."""
        scheme, resolved, labels = resolve_tags(splits, settings, report)
        task = TaskConfig(labels=labels.names)
        _require_classes(settings, task)
        return resolved, task, Knowledge(scheme=scheme.name)

    def check(
        self,
        examples: Sequence[TaggedExample],
        model: TaskConfig,
        settings: ReadingSettings,
        report: ExampleReport,
        *,
        knowledge: Knowledge,
    ) -> list[TaggedExample]:
        """Return the examples with IOB2 tags; read by the scheme of the training, where they allow it.

        Raises:
            InputErrors: tags that the model does not have.
            InputError: --scheme classes for a model of entities or words.
        """
        _require_classes(settings, model)
        _, resolved, _ = resolve_tags({"data": examples}, settings, report, usual=knowledge.scheme)
        return only_known(resolved["data"], LabelMap(model.labels), report)

    def features(
        self,
        examples: Sequence[TaggedExample],
        tokenizer: Tokenizer,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
        coverage: CoverageReport,
    ) -> list[TagFeatures]:
        """See `data/tag_features.py`."""
        return build_tag_features(
            examples,
            tokenizer,
            max_seq_length=length_of_rows(settings),
            labels=LabelMap(task.labels),
            coverage=coverage,
            stride=settings.stride,
        )

    def lengths(self, feature: TagFeatures) -> list[int]:
        """Return the tokens of the window."""
        return [len(feature.input_ids)]

    def collate(self, features: Sequence[TagFeatures], *, pad_id: int, task: TaskConfig) -> Batch:
        """Return the windows, and `labels`: (batch, seq) int64, IGNORE_INDEX where no word is decided."""
        batch = padded([(feature.input_ids, feature.token_type_ids) for feature in features], pad_id=pad_id)
        labels = np.full(batch["input_ids"].shape, IGNORE_INDEX, dtype=np.int64)
        for row, feature in enumerate(features):
            labels[row, : len(feature.labels)] = feature.labels
        return {**batch, "labels": torch.from_numpy(labels)}

    def weights(self, features: Sequence[TagFeatures], class_weights: NDArray[np.float32] | None) -> dict[str, float]:
        """Return the words decided, or the weight of their tags."""
        labels = np.concatenate([feature.labels for feature in features]) if features else np.zeros(0, np.int64)
        labels = labels[labels != IGNORE_INDEX]
        return {LOSS: float(len(labels) if class_weights is None else class_weights[labels].sum())}

    def losses(
        self, model: TaskModel, batch: Batch, *, class_weights: Tensor | None, label_smoothing: float
    ) -> LossSums:
        """Return the sum of cross entropies over the words."""
        labels = batch["labels"].flatten()  # (batch · seq,)
        logits = model(**inputs_of(batch)).logits.flatten(0, 1)  # (batch · seq, labels)
        total, _ = cross_entropy("labels", logits, labels, class_weights=class_weights, label_smoothing=label_smoothing)
        hits = (logits.argmax(-1) == labels).float()
        weighted = hits if class_weights is None else hits * class_weights[labels.clamp(min=0)]
        return LossSums({LOSS: total}, {LOSS: weighted.sum()})

    def scores(self, model: TaskModel, batch: Batch, features: Sequence[TagFeatures]) -> Outputs:
        """Return the logits of each window, (seq, labels) float32."""
        logits = model(**inputs_of(batch)).logits.float().cpu().numpy()
        return [logits[row, : len(feature.input_ids)] for row, feature in enumerate(features)]

    def answers(
        self,
        examples: Sequence[TaggedExample],
        features: Sequence[TagFeatures],
        outputs: Outputs,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> list[TaggedAnswer]:
        """Return a tag for each word of each sentence, and the entities; see `data/tag_decoding.py`."""
        return decode_tags(
            examples,
            features,
            outputs,
            LabelMap(task.labels),
            classes=knowledge.scheme == "classes",
            constrained=settings.constrained_decoding,
        )

    def tuned(
        self, examples: Sequence[TaggedExample], answers: Sequence[TaggedAnswer], knowledge: Knowledge
    ) -> Knowledge:
        """Nothing is tuned."""
        return knowledge

    def metrics(
        self,
        examples: Sequence[TaggedExample],
        answers: Sequence[TaggedAnswer],
        *,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> tuple[Metrics, dict[str, Any]]:
        """Return entity, tag or word figures: strict and lenient F1 by seqeval's rules, tag accuracy, by type."""
        gold, predicted = [example.tags or () for example in examples], [answer.tags for answer in answers]
        tags = tag_scores(gold, predicted)
        figures = {"accuracy": tags.accuracy}
        if _kind(task) == "classes":
            return figures, {"by_class": {tag: found.to_json() for tag, found in tags.by_tag.items()}}
        if _kind(task) == "words":
            lengths = [
                [[span.end - span.start for span in spans_of(row)] for row in rows] for rows in (gold, predicted)
            ]
            words = word_scores(*lengths)
            return {"precision": words.precision, "recall": words.recall, "f1": words.f1, **figures}, {}
        found = entity_scores([spans_of(row) for row in gold], [spans_of(row) for row in predicted])
        strict = entity_scores(*([spans_of(row, strict=True) for row in rows] for rows in (gold, predicted)))
        overall = found.overall
        return {
            "precision": overall.precision,
            "recall": overall.recall,
            "f1": overall.f1,
            "macro_f1": found.macro_f1,
            "strict_f1": strict.overall.f1,
            "accuracy_without_outside": tags.accuracy_without_outside,
            **figures,
        }, {"by_class": {name: scores.to_json() for name, scores in found.by_type.items()}}

    def record(self, example: TaggedExample, answer: TaggedAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {tokens, tags, scores, entities}; of a segmentation also the text with spaces between its words."""
        record: dict[str, Any] = {
            "id": example.id,
            "tokens": list(example.words),
            "tags": list(answer.tags),
            "scores": [round(score, 6) for score in answer.scores],
            "entities": list(answer.entities),
        }
        if _kind(task) == "words":
            record["segmented"] = _segmented(example.words, answer.tags)
        return record

    def gold(self, example: TaggedExample) -> Any:
        """Return the example's tags."""
        return list(example.tags or ())

    def text(self, example: TaggedExample) -> str:
        """Return the sentence."""
        return example.text

    def shown(self, example: TaggedExample, answer: TaggedAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {error, offsets, gold_entities}: the entities that are wrong or missing, or tags."""
        tags = example.tags or ()
        offsets = [list(place) for place in example.offsets]
        if _kind(task) == "classes":
            wrong = sum(gold != given for gold, given in zip(tags, answer.tags, strict=True))
            return {"error": float(wrong), "offsets": offsets}
        gold, given = set(spans_of(tags)), set(spans_of(answer.tags))
        entities = [
            {"entity_group": span.type, "start": offsets[span.start][0], "end": offsets[span.end - 1][1]}
            for span in sorted(gold, key=lambda span: span.start)
        ]
        return {"error": float(len(gold ^ given)), "offsets": offsets, "gold_entities": entities}


def _segmented(characters: Sequence[str], tags: Sequence[str]) -> str:
    """The text with a space between its words; characters in none (without a token) stay where they stand."""
    begins = {span.start for span in spans_of(tags)} | {span.end for span in spans_of(tags)}
    text = "".join(f" {one}" if place in begins else one for place, one in enumerate(characters))
    return " ".join(text.split())


def _require_classes(settings: ReadingSettings, task: TaskConfig) -> None:
    """Refuse to take tags for plain classes whose names say that they mark entities or words."""
    if settings.scheme == "classes" and _kind(task) != "classes":
        raise InputError(
            f"does not fit the names of the tags, which mark {_kind(task)}",
            field="--scheme",
            value="classes",
            expected="a tag that is neither O, B, I, E, M, S nor begins with B- or I-",
            remedy="leave it out, or name the tags otherwise; the accuracy of tags is among the figures all the same",
        )


def _kind(task: TaskConfig) -> str:
    """What tags mark: entities, words (every character is in one), or nothing beyond themselves (classes)."""
    if set(task.labels) <= TYPELESS:
        return "words"
    is_scheme = all(label == OUTSIDE or label[:2] in ("B-", "I-") or label in TYPELESS for label in task.labels)
    return "entities" if is_scheme else "classes"
