"""What an exported file makes of labelled examples: the figures of the model, whatever the task and the batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from toy_tasks import write_task, write_tuned

from bertkit.data.examples.reading import ReadingSettings
from bertkit.model.export import INPUTS, exportable
from bertkit.tasks.exported import figures_of_files
from bertkit.tasks.opening import open_predictor
from bertkit.tasks.predicting import Predictor

KINDS: dict[str, dict[str, Any]] = {
    "single": {"labels": ("english", "中文")},
    "multi": {"labels": ("english", "中文"), "problem_type": "multi_label_classification"},
    "regression": {"labels": ("score",), "problem_type": "regression"},
    "tags": {"labels": ("O", "B-PLACE", "I-PLACE"), "scheme": "IOB2"},
    "choices": {},
    "questions": {},
    "questions2": {"unanswerable": True},
}


def opened(kind: str, folder: Path) -> tuple[Predictor, list[Any]]:
    predictor = open_predictor(write_tuned(folder / "model", kind, **KINDS[kind]))
    examples = predictor.labelled(str(write_task(folder, kind, number=30)), ReadingSettings(), flag="--input_file")
    return predictor, examples


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_answers_as_the_model_has_its_figures(kind: str, tmp_path: Path) -> None:
    predictor, examples = opened(kind, tmp_path)
    wish, shapes = exportable(predictor.model), set()

    def as_the_model(inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        assert [(name, array.dtype) for name, array in inputs.items()] == [(name, np.int64) for name in INPUTS]
        shapes.add(inputs["input_ids"].shape)
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return [tensor.numpy() for tensor in wish.pick(predictor.model(**given))]

    def otherwise(inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        generator = np.random.default_rng(0)
        return [generator.normal(size=logits.shape).astype(np.float32) for logits in as_the_model(inputs)]

    predictor.micro_batch_tokens = 100  # several batches, so that rows are padded differently
    figures = figures_of_files(predictor, examples, {"same": as_the_model, "other": otherwise})
    assert len(shapes) > 1
    assert list(figures) == ["model", "same", "other"]
    assert figures["same"] == pytest.approx(figures["model"], abs=1e-6)
    assert figures["other"] != pytest.approx(figures["model"], abs=1e-3)
    assert predictor.task.best_by(predictor.config)[0] in figures["model"]
    assert dict(predictor.coverage.rows())["examples"] == len(examples)  # counted once
