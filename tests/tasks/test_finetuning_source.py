"""Batches of fine-tuning: the largest is tried as large as any gets, and what is counted of a step is what it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_parts import Parts, parts_of
from torch import Tensor

from bertkit.model.costs import training_flops
from bertkit.model.task_heads import MultipleChoiceModel, SequenceClassificationModel
from bertkit.tasks.finetuning_source import FeatureSource

KINDS = ("single", "pair", "tags", "choices", "questions")


@pytest.fixture(scope="module", params=KINDS)
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts_of(request.param, tmp_path_factory.mktemp(request.param))


def source_of(parts: Parts, **values: Any) -> FeatureSource:
    given: dict[str, Any] = {"batch_size": 8, "micro_batch_tokens": 100, "pad_id": 0, "seed": 1, **values}
    ids = [str(number) for number in range(1000)]
    return FeatureSource(parts.task, parts.features, ids, parts.model, **given)


def shape(batch: dict[str, Tensor]) -> tuple[int, int]:
    """Rows that go through the encoder, and the tokens of each."""
    *rows, width = batch["input_ids"].shape
    return int(np.prod(rows)), width


@pytest.mark.parametrize("tokens", [1, 60, 100, 250, 10**6])
def test_no_batch_is_larger_than_the_one_that_is_tried(parts: Parts, tokens: int) -> None:
    for batch_size in (1, 3, 8):
        source = source_of(parts, micro_batch_tokens=tokens, batch_size=batch_size)
        longest = source.longest()
        assert len(longest["input_ids"]) <= batch_size
        assert longest["attention_mask"].shape == longest["input_ids"].shape
        rows, width = shape(longest)
        steps = [source.step(step) for step in range(source.steps_in_epoch)]
        sizes = [np.prod(shape(batch)) for found in steps for batch in found.micro_batches]
        assert rows * width >= 0.8 * max(sizes)  # the very largest is of rows that nearly fit


def test_what_is_counted_of_a_step_is_what_its_batches_hold(parts: Parts) -> None:
    source = source_of(parts)
    for step in range(source.steps_in_epoch):
        found = source.step(step)
        shapes = [shape(batch) for batch in found.micro_batches]
        assert found.slots == sum(rows * width for rows, width in shapes)
        squares = sum(rows * width**2 for rows, width in shapes)
        of_rows = isinstance(parts.model, SequenceClassificationModel | MultipleChoiceModel)
        read = source._rows_of_each[source._rows(step)].sum() if of_rows else None  # [CLS] of the last layer alone
        costs = {"tokens": found.tokens, "squares": squares, "targets": 0, "pairs": 0, "read": read}
        assert found.flops == pytest.approx(training_flops(parts.model.config, **costs))
        assert 0 < found.tokens <= found.slots
        masks = [batch.get("attention_mask") for batch in found.micro_batches]
        if all("choice_mask" not in batch for batch in found.micro_batches):
            real = [
                batch["input_ids"].numel() if m is None else int(m.sum())
                for batch, m in zip(found.micro_batches, masks, strict=True)
            ]
            assert found.tokens == sum(real)


@pytest.mark.parametrize("kind", ["single", "choices"])
def test_a_mean_is_counted_with_the_last_layer_finished_everywhere(tmp_path: Path, kind: str) -> None:
    parts = parts_of(kind, tmp_path)
    by_cls = source_of(parts).step(0)
    parts.model.task = replace(parts.model.task, pooling="mean")
    by_mean = source_of(parts).step(0)
    squares = sum(rows * width**2 for rows, width in map(shape, by_mean.micro_batches))
    costs = {"tokens": by_mean.tokens, "squares": squares, "targets": 0, "pairs": 0, "read": None}
    assert by_mean.flops == pytest.approx(training_flops(parts.model.config, **costs))
    assert by_mean.flops > by_cls.flops


def test_choices_of_different_numbers_stay_within_the_tokens_asked_for(tmp_path: Path) -> None:
    parts = parts_of("choices", tmp_path)
    source = source_of(parts, micro_batch_tokens=200)
    for step in range(source.steps_in_epoch):
        for batch in source.step(step).micro_batches:
            assert batch["input_ids"].numel() <= 200 or len(batch["input_ids"]) == 1
