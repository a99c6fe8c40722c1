"""A question and a text → the stretch of the text that answers it, or none.

In: questions on texts.  Out: windows, losses, QuestionAnswers, exact match and F1.  Next: finetuning_run.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.data.answers import QuestionAnswer, SearchSettings, best_threshold, decode_answers
from bertkit.data.collate import Batch, padded
from bertkit.data.examples.example import QuestionExample
from bertkit.data.examples.questions import has_unanswerable
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import CoverageReport
from bertkit.data.question_features import QuestionFeatures, WindowSettings, build_question_features
from bertkit.metrics.cmrc import cmrc_scores, run_f1
from bertkit.metrics.question_answering import question_scores, squad1_scores, squad2_scores
from bertkit.model.architectures import Head, TaskModel
from bertkit.model.losses import IGNORE_INDEX, cross_entropy
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.finetuning import Metrics, Outputs, inputs_of
from bertkit.tasks.task_settings import Knowledge, TaskName, TaskSettings, length_of_rows
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.loop import LossSums

LOSS = "span"
CHINESE = 0.5  # share of Chinese characters in the answers from which CMRC's rules are the ones that count


class QuestionAnswering:
    """Extractive: the answer is always `context[start:end]`."""

    name: TaskName = "question-answering"
    head: Head = "question_answering"

    def best_by(self, task: TaskConfig) -> tuple[str, bool]:
        """F1."""
        return "f1", True

    def resolve(
        self, splits: Mapping[str, Sequence[QuestionExample]], settings: ReadingSettings, report: ExampleReport
    ) -> tuple[dict[str, list[QuestionExample]], TaskConfig, Knowledge]:
        """Whether some question of the training part has no answer decides whether answers may be empty."""
        unanswerable = has_unanswerable(list(splits["train"]))
        if unanswerable:
            report.note("some questions have no answer (SQuAD 2.0): the model may say so")
        kept = {name: list(examples) for name, examples in splits.items()}
        return kept, TaskConfig(), Knowledge(unanswerable=unanswerable)

    def check(
        self,
        examples: Sequence[QuestionExample],
        model: TaskConfig,
        settings: ReadingSettings,
        report: ExampleReport,
        *,
        knowledge: Knowledge,
    ) -> list[QuestionExample]:
        """Every question fits every model."""
        return list(examples)

    def features(
        self,
        examples: Sequence[QuestionExample],
        tokenizer: Tokenizer,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
        coverage: CoverageReport,
    ) -> list[QuestionFeatures]:
        """See `data/question_features.py`."""
        windows = WindowSettings(
            max_seq_length=length_of_rows(settings),
            doc_stride=settings.doc_stride,
            max_query_length=settings.max_query_length,
        )
        return build_question_features(
            examples, tokenizer, settings=windows, unanswerable=knowledge.unanswerable, coverage=coverage
        )

    def lengths(self, feature: QuestionFeatures) -> list[int]:
        """Return the tokens of the window."""
        return [len(feature.input_ids)]

    def collate(self, features: Sequence[QuestionFeatures], *, pad_id: int, task: TaskConfig) -> Batch:
        """Return the windows, and `positions`: (batch, 2) int64, the answer's first and last token or IGNORE_INDEX."""
        batch = padded([(feature.input_ids, feature.token_type_ids) for feature in features], pad_id=pad_id)
        places = [(feature.start_position, feature.end_position) for feature in features]
        return {**batch, "positions": torch.tensor(places, dtype=torch.int64).view(-1, 2)}

    def weights(
        self, features: Sequence[QuestionFeatures], class_weights: NDArray[np.float32] | None
    ) -> dict[str, float]:
        """Return the windows with a target: of data without unanswerable questions those with the answer in them."""
        return {LOSS: float(sum(feature.start_position != IGNORE_INDEX for feature in features))}

    def losses(
        self, model: TaskModel, batch: Batch, *, class_weights: Tensor | None, label_smoothing: float
    ) -> LossSums:
        """Return the sum over the windows of the mean of the losses of start and end."""
        positions = batch["positions"]  # (batch, 2)
        logits = model(**inputs_of(batch)).logits  # (batch, seq, 2)
        if "attention_mask" in batch:  # padding is no place for an answer
            logits = logits.masked_fill(~batch["attention_mask"][..., None], torch.finfo(logits.dtype).min)
        sides = [cross_entropy("positions", logits[..., side], positions[:, side])[0] for side in (0, 1)]
        hits = (logits.argmax(1) == positions).all(dim=1)  # (batch,)
        return LossSums({LOSS: torch.stack(sides).sum() / 2}, {LOSS: hits.sum()})

    def scores(self, model: TaskModel, batch: Batch, features: Sequence[QuestionFeatures]) -> Outputs:
        """Return the logits of each window, (seq, 2) float32."""
        logits = model(**inputs_of(batch)).logits.float().cpu().numpy()
        return [logits[row, : len(feature.input_ids)] for row, feature in enumerate(features)]

    def answers(
        self,
        examples: Sequence[QuestionExample],
        features: Sequence[QuestionFeatures],
        outputs: Outputs,
        *,
        settings: TaskSettings,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> list[QuestionAnswer]:
        """Return an answer to each question; see `data/answers.py`."""
        threshold = settings.null_score_diff_threshold
        if threshold is None:
            threshold = knowledge.threshold or 0.0
        search = SearchSettings(settings.n_best_size, settings.max_answer_length, threshold)
        starts, ends = [output[:, 0] for output in outputs], [output[:, 1] for output in outputs]
        return decode_answers(examples, features, starts, ends, settings=search, unanswerable=knowledge.unanswerable)

    def tuned(
        self, examples: Sequence[QuestionExample], answers: Sequence[QuestionAnswer], knowledge: Knowledge
    ) -> Knowledge:
        """Return the knowledge with the threshold of null_odds that has the best F1."""
        if not knowledge.unanswerable or not examples:
            return knowledge
        scores = {
            name: f1 for name, (_, f1) in question_scores(_gold(examples), {a.id: a.best.text for a in answers}).items()
        }
        without = frozenset(example.id for example in examples if not example.answers)
        threshold, _ = best_threshold(answers, scores, unanswerable_ids=without)
        return replace(knowledge, threshold=threshold)

    def metrics(
        self,
        examples: Sequence[QuestionExample],
        answers: Sequence[QuestionAnswer],
        *,
        task: TaskConfig,
        knowledge: Knowledge,
    ) -> tuple[Metrics, dict[str, Any]]:
        """Return exact match and F1, 0 to 1, by the rules of SQuAD, or of CMRC where the answers are Chinese.

        The official figures, in percent, stand in the tables.
        """
        gold, predictions = _gold(examples), {answer.id: answer.text for answer in answers}
        tables: dict[str, Any] = {}
        if knowledge.unanswerable or not all(gold.values()):
            odds = {answer.id: answer.null_odds for answer in answers if answer.null_odds is not None}
            tables["squad_v2"] = squad2_scores(gold, predictions, null_odds=odds or None)
            exact, f1 = tables["squad_v2"]["exact"], tables["squad_v2"]["f1"]
        else:
            tables["squad_v1"] = squad1_scores(gold, predictions)
            exact, f1 = tables["squad_v1"]["exact_match"], tables["squad_v1"]["f1"]
            if _is_chinese(examples):
                tables["cmrc"] = cmrc_scores(gold, predictions)
                exact, f1 = tables["cmrc"]["exact_match"], tables["cmrc"]["f1"]
        return {"exact_match": exact / 100, "f1": f1 / 100}, tables

    def record(self, example: QuestionExample, answer: QuestionAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {answer, score, start, end, null_odds}."""
        given = next(candidate for candidate in answer.candidates if candidate.text == answer.text)
        return {
            "id": example.id,
            "answer": answer.text,
            "score": given.probability,
            "start": given.start,
            "end": given.end,
            "null_odds": answer.null_odds,
        }

    def gold(self, example: QuestionExample) -> Any:
        """Return the texts of the answers."""
        return [answer.text for answer in example.answers]

    def text(self, example: QuestionExample) -> str:
        """Return question and context."""
        return f"{example.question}\n{example.context}"

    def shown(self, example: QuestionExample, answer: QuestionAnswer, *, task: TaskConfig) -> dict[str, Any]:
        """Return {error, context_start, gold_starts}: what F1 lacks, times the probability; where in `text` all begins.

        gold_starts, like start and end, count from the beginning of the context.
        """
        gold = [each.text for each in example.answers]
        if _is_chinese([example]):
            f1 = max(run_f1(answer.text, text) for text in gold)
        else:
            f1 = question_scores({example.id: gold}, {example.id: answer.text})[example.id][1]
        return {
            "error": (1 - f1) * answer.candidates[0].probability,
            "context_start": len(example.question) + 1,
            "gold_starts": [each.start for each in example.answers],
        }


def _gold(examples: Sequence[QuestionExample]) -> dict[str, list[str]]:
    return {example.id: [answer.text for answer in example.answers] for example in examples}


def _is_chinese(examples: Sequence[QuestionExample]) -> bool:
    text = "".join(answer.text for example in examples for answer in example.answers)
    return sum("一" <= character <= "龥" for character in text) > CHINESE * len(text)
