"""Exported files: their answers are the model's whatever the batch and length, inputs by name; damage is found."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import toy_model as toy
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.model.architectures import Head
from bertkit.model.encoder import Encoder, EncoderOutput
from bertkit.model.export import (
    CHECKED_LENGTHS,
    Exportable,
    differences,
    exportable,
    onnx_answer,
    require_equal,
    require_onnx,
    torch_answer,
    write_int8,
    write_onnx,
    write_torch,
)
from bertkit.model.pretrained import build
from bertkit.model.pruning import prune_heads
from bertkit.model.task_config import TaskConfig
from bertkit.model.task_heads import SequenceClassificationModel

OUTPUTS = {
    "pretraining": ("prediction_logits", "seq_relationship_logits"),
    "masked_lm": ("logits",),
    "next_sentence": ("logits",),
    None: ("last_hidden_state", "pooler_output"),
}


def toy_export(head: str | None) -> Exportable:
    torch.manual_seed(0)
    model = build(toy.toy_config(), head=head).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return exportable(model)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime", reason='ONNX needs the extra "onnx"')
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    write_onnx(toy_export("pretraining"), path)
    return path


def test_an_onnx_file_answers_as_the_model_whatever_the_lengths(onnx_file: Path) -> None:
    wish = toy_export("pretraining")
    assert tuple(wish.outputs) == OUTPUTS["pretraining"]
    for seed in range(3):
        found = differences(wish, onnx_answer(onnx_file, wish.outputs), seed=seed)
        assert max(found.values()) < 1e-4


def test_every_size_of_batch_and_row_is_taken(onnx_file: Path) -> None:
    wish = toy_export("pretraining")
    answer = onnx_answer(onnx_file, wish.outputs)
    for shape in ((1, 1), (1, 64), (5, 1), (7, 33)):
        ids = np.random.default_rng(0).integers(1, wish.vocab_size, shape)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        logits, pairs = answer(inputs)
        assert logits.shape == (*shape, wish.vocab_size)
        with torch.no_grad():
            expected = wish.model(torch.from_numpy(ids))
        np.testing.assert_allclose(logits, expected.mlm_logits.numpy(), rtol=0, atol=1e-4)
        np.testing.assert_allclose(pairs, expected.nsp_logits.numpy(), rtol=0, atol=1e-4)


def test_the_inputs_have_the_names_of_transformers(onnx_file: Path) -> None:
    import onnxruntime

    inputs = onnxruntime.InferenceSession(onnx_file).get_inputs()
    assert [entry.name for entry in inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(isinstance(size, str) for entry in inputs for size in entry.shape)
    assert [path.name for path in onnx_file.parent.iterdir()] == ["model.onnx"]  # one file, no data beside it


def test_int8_is_near(onnx_file: Path, tmp_path: Path) -> None:
    write_int8(onnx_file, tmp_path / "int8.onnx")
    wish = toy_export("pretraining")
    found = differences(wish, onnx_answer(tmp_path / "int8.onnx", wish.outputs))
    assert 1e-4 < max(found.values()) < 2
    assert (tmp_path / "int8.onnx").stat().st_size < onnx_file.stat().st_size


@pytest.mark.parametrize("head", ["masked_lm", "next_sentence", None])
@pytest.mark.slow
def test_every_head_becomes_an_onnx_file(head: str | None, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason='ONNX needs the extra "onnx"')
    wish = toy_export(head)
    assert tuple(wish.outputs) == OUTPUTS[head]
    write_onnx(wish, tmp_path / "m.onnx")
    require_equal(differences(wish, onnx_answer(tmp_path / "m.onnx", wish.outputs)), file=tmp_path)


@pytest.mark.parametrize("head", ["pretraining", None])
def test_a_torch_program_answers_as_the_model(head: str | None, tmp_path: Path) -> None:
    wish = toy_export(head)
    write_torch(wish, tmp_path / "m.pt2")
    require_equal(differences(wish, torch_answer(tmp_path / "m.pt2")), file=tmp_path)


LABELS = {
    "sequence_classification": TaskConfig(("a", "b", "c")),
    "regression": TaskConfig(("grade",), problem_type="regression"),
    "multi_label": TaskConfig(("a", "b", "c"), problem_type="multi_label_classification", pooling="cls"),
    "mixed_layers": TaskConfig(("a", "b"), layers=(1, 2), combine="weighted"),
    "mean": TaskConfig(("a", "b"), pooling="mean"),
    "choices_mean": TaskConfig(pooling="mean"),
    "token_classification": TaskConfig(("O", "B-PLACE", "I-PLACE")),
    "multiple_choice": TaskConfig(),
    "question_answering": TaskConfig(),
}
ALIKE = ("regression", "multi_label", "mixed_layers", "mean", "choices_mean")  # to the heads that stand here by name
TASK_OUTPUTS = {**dict.fromkeys(LABELS, ("logits",)), "question_answering": ("start_logits", "end_logits")}


def task_export(name: str) -> Exportable:
    head = "multiple_choice" if name == "choices_mean" else name
    head = head if head in get_args(Head) else "sequence_classification"
    torch.manual_seed(0)
    model = build(toy.toy_config(), head=head, task=LABELS[name]).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return exportable(model)


@pytest.mark.parametrize("name", LABELS)
def test_every_head_of_fine_tuning_is_exported(name: str, tmp_path: Path) -> None:
    wish = task_export(name)
    assert tuple(wish.outputs) == TASK_OUTPUTS[name]
    write_torch(wish, tmp_path / "m.pt2")
    require_equal(differences(wish, torch_answer(tmp_path / "m.pt2")), file=tmp_path)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in LABELS])
def test_every_head_of_fine_tuning_becomes_an_onnx_file(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason='ONNX needs the extra "onnx"')
    wish, path = task_export(name), tmp_path / "m.onnx"
    write_onnx(wish, path)
    entries = onnxruntime.InferenceSession(path).get_inputs()
    assert [entry.name for entry in entries] == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(entry.shape == list(wish.axes) for entry in entries)  # names: every axis may have any size
    answer = onnx_answer(path, wish.outputs)
    for seed in range(3):  # a batch of three lengths, padded, and its longest row alone
        assert max(differences(wish, answer, seed=seed).values()) <= 1e-4
    for batch, choices, seq in ((1, 1, 1), (1, 2, 64), (5, 4, 2), (7, 3, 33)):
        shape = (batch, choices, seq) if "choices" in wish.axes else (batch, seq)
        ids = np.random.default_rng(seq).integers(1, wish.vocab_size, shape)
        found = answer({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
        with torch.no_grad():
            expected = wish.pick(wish.model(torch.from_numpy(ids)))
        for ours, theirs in zip(expected, found, strict=True):
            np.testing.assert_allclose(theirs, ours.numpy(), rtol=0, atol=1e-4)


class Choices(nn.Module):
    """A head of another kind: one score a choice, inputs (batch, choices, seq)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(toy.toy_config())
        self.classifier = nn.Linear(32, 1)

    def forward(self, ids: Tensor, *, attention_mask: Tensor, token_type_ids: Tensor) -> EncoderOutput:
        """Return an output whose logits are (batch, choices)."""
        batch, choices, _ = ids.shape
        encoded = self.encoder(
            ids.flatten(0, 1),
            attention_mask=attention_mask.flatten(0, 1),
            token_type_ids=token_type_ids.flatten(0, 1),
        )
        encoded.logits = self.classifier(encoded.pooler_output).view(batch, choices)
        return encoded


def test_a_head_of_another_kind_with_another_axis_is_exported_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Choices()
    prune_heads(model, {0: [1]})
    wish = exportable(model)
    assert tuple(wish.outputs) == ("logits",)
    wish = replace(wish, axes=("batch", "choices", "sequence"))
    write_torch(wish, tmp_path / "m.pt2")
    require_equal(differences(wish, torch_answer(tmp_path / "m.pt2")), file=tmp_path)


def test_answers_that_differ_are_found() -> None:
    wish = toy_export(None)
    other = toy.random_model(seed=1).encoder

    def answer(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = other(torch.from_numpy(inputs["input_ids"]))
        return [found.last_hidden_state.numpy(), found.pooler_output.numpy()]

    found = differences(wish, answer)
    with pytest.raises(InputError, match=r"m\.onnx: answers differ from the model's: last_hidden_state by "):
        require_equal(found, file=Path("m.onnx"))
    with pytest.raises(InputError, match="answers differ"):
        require_equal({"logits": float("nan")}, file=Path("m.onnx"))


def test_without_the_extra_it_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.model.export.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(InputError, match=r'ONNX needs onnxscript, not installed here\n.*pip install "bertkit\[onnx\]"'):
        require_onnx()


def test_as_many_labels_as_tokens_are_not_taken_for_tokens() -> None:
    """The first text of the check is short: its last labels are no padding."""
    config = replace(toy.toy_config(), type_vocab_size=1)
    labels = tuple(f"label {number}" for number in range(max(CHECKED_LENGTHS)))
    wish = exportable(SequenceClassificationModel(config, task=TaskConfig(labels=labels)))

    def wrong(inputs: dict[str, Any]) -> list[Any]:
        with torch.no_grad():
            [logits] = wish.pick(wish.model(**{name: torch.from_numpy(array) for name, array in inputs.items()}))
        logits[0, -1] += 100
        return [logits.numpy()]

    assert differences(wish, wrong)["logits"] > 99
