"""The heads of fine-tuning against transformers': logits, losses, gradients, and the folder in both directions."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from bertkit.model.architectures import CLASSIFIERS, Head, build
from bertkit.model.config import BertConfig
from bertkit.model.heads import IGNORE_INDEX
from bertkit.model.huggingface import from_hugging_face
from bertkit.model.pretrained import load, load_with_report, save
from bertkit.model.task_config import TaskConfig

SMALL = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
CONFIGS = {
    "two layers": SMALL,
    "one layer, three narrow heads": dataclasses.replace(
        SMALL, num_hidden_layers=1, hidden_size=24, num_attention_heads=3, intermediate_size=40, hidden_act="gelu_new"
    ),
    "three layers, one head, untied": dataclasses.replace(
        SMALL, num_hidden_layers=3, num_attention_heads=1, tie_word_embeddings=False, pad_token_id=5
    ),
}
TASK = TaskConfig(labels=("喜", "怒", "B-PER"), classifier_dropout=0.25)
HEADS: dict[Head, tuple[Any, Any]] = {
    "sequence_classification": (
        transformers.BertForSequenceClassification,
        transformers.AutoModelForSequenceClassification,
    ),
    "token_classification": (transformers.BertForTokenClassification, transformers.AutoModelForTokenClassification),
    "multiple_choice": (transformers.BertForMultipleChoice, transformers.AutoModelForMultipleChoice),
    "question_answering": (transformers.BertForQuestionAnswering, transformers.AutoModelForQuestionAnswering),
}
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 3 + [0] * 6, [1] * 8 + [0]])
NARROW, WIDE = 1e-5, 1e-10  # float32, float64


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers' progress bars and remarks, switched off for one test."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


def their_model(config: BertConfig, head: Head, *, task: TaskConfig = TASK) -> Any:
    """transformers' model of this shape and head, every tensor at random."""
    torch.manual_seed(0)
    values: dict[str, Any] = dataclasses.asdict(config)
    if head in ("sequence_classification", "token_classification"):
        values |= {"id2label": dict(enumerate(task.labels)), "label2id": {x: i for i, x in enumerate(task.labels)}}
        values["classifier_dropout"] = task.classifier_dropout
    if head == "sequence_classification":
        values["problem_type"] = task.problem_type
    model = HEADS[head][0](transformers.BertConfig(**values, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


def our_model(theirs: Any, config: BertConfig, head: Head, *, task: TaskConfig = TASK) -> Any:
    """Our model with the weights of theirs, in eval mode."""
    model = build(config, head=head, task=task).to(next(theirs.parameters()).dtype).eval()
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    found = from_hugging_face(theirs.state_dict(), wanted=wanted, num_hidden_layers=config.num_hidden_layers)
    assert found.missing == found.ignored == []
    model.load_state_dict(found.tensors)
    return model


def batch_of(config: BertConfig, head: Head) -> dict[str, Tensor]:
    """A ragged batch: (4, 9), or (2, 2, 9) of choices."""
    ids = torch.randint(6, config.vocab_size, MASK.shape, generator=torch.Generator().manual_seed(1))
    batch = {
        "input_ids": ids.where(MASK.bool(), config.pad_token_id),
        "attention_mask": MASK,
        "token_type_ids": (torch.arange(9) > 4).long().expand(4, 9),
    }
    return {name: tensor.view(2, 2, 9) for name, tensor in batch.items()} if head == "multiple_choice" else batch


def labels_of(head: Head, *, task: TaskConfig = TASK) -> dict[str, Tensor]:
    if head == "question_answering":
        return {"start_positions": torch.tensor([1, 3, 99, 0]), "end_positions": torch.tensor([8, 9, 2, 0])}
    if head == "multiple_choice":
        return {"labels": torch.tensor([1, 0])}
    if head == "token_classification":
        labels = torch.randint(0, task.num_labels, MASK.shape, generator=torch.Generator().manual_seed(2))
        return {"labels": labels.where(MASK.bool(), IGNORE_INDEX)}
    if task.problem_type == "single_label_classification":
        return {"labels": torch.tensor([0, 2, 1, 1])}
    numbers = torch.rand(4, task.num_labels, generator=torch.Generator().manual_seed(3))
    numbers = numbers if task.problem_type == "regression" else numbers.round()
    return {"labels": numbers.squeeze(1) if task.num_labels == 1 else numbers}


def scores(output: Any, head: Head) -> Tensor:
    if head == "question_answering":
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    logits: Tensor = output.logits
    return logits


def assert_near(ours: Tensor, theirs: Tensor, *, atol: float = NARROW) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def real_positions(head: Head, tensor: Tensor) -> Tensor:
    """What is not padding, of a tensor with a row a text (or a token of it)."""
    return tensor[MASK.bool()] if head in ("token_classification", "question_answering") else tensor


@torch.no_grad()
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("head", HEADS)
def test_logits_loss_states_and_attentions_are_those_of_transformers(head: Head, config: BertConfig) -> None:
    theirs = their_model(config, head)
    ours, batch, labels = our_model(theirs, config, head), batch_of(config, head), labels_of(head)
    if head == "question_answering":  # transformers softmaxes over padding too: without a mask there is none
        batch.pop("attention_mask")
    expected = theirs(**batch, **labels, output_hidden_states=True, output_attentions=True)
    for explicit in (False, True):
        found = ours(**batch, **labels, output_hidden_states=True, output_attentions=explicit)
        assert_near(found.loss, expected.loss)
        assert_near(real_positions(head, found.logits), real_positions(head, scores(expected, head)))
        for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
            assert_near(one[MASK.bool()], other[MASK.bool()])
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        assert_near(one.transpose(1, 2)[MASK.bool()], other.transpose(1, 2)[MASK.bool()])


TASKS = {
    "single": TASK,
    "multi": dataclasses.replace(TASK, problem_type="multi_label_classification"),
    "regression of three": dataclasses.replace(TASK, problem_type="regression"),
    "regression of one": TaskConfig(labels=("score",), problem_type="regression"),
}
CASES = [(head, TASK) for head in HEADS if head != "sequence_classification"]
CASES += [("sequence_classification", task) for task in TASKS.values()]


@pytest.mark.parametrize("attentions", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, WIDE), (torch.float32, NARROW)])
@pytest.mark.parametrize(("head", "task"), CASES)
def test_the_loss_and_its_gradient_are_those_of_transformers(
    head: Head, task: TaskConfig, dtype: torch.dtype, tolerance: float, attentions: bool
) -> None:
    task = dataclasses.replace(task, classifier_dropout=0.0)
    config = CONFIGS["one layer, three narrow heads"]
    theirs = their_model(config, head, task=task).to(dtype).train()
    ours = our_model(theirs, config, head, task=task).train()
    batch, labels = batch_of(config, head), labels_of(head, task=task)
    labels = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in labels.items()}
    theirs_loss, ours_loss = theirs(**batch, **labels).loss, ours(**batch, **labels, output_attentions=attentions).loss
    assert_near(ours_loss, theirs_loss, atol=tolerance)
    theirs_loss.backward()
    ours_loss.backward()
    expected = from_hugging_face(
        {name: parameter.grad for name, parameter in theirs.named_parameters()},
        wanted={name: parameter.shape for name, parameter in ours.named_parameters()},
        num_hidden_layers=config.num_hidden_layers,
    )
    assert (expected.missing, expected.ignored) == ([], [])
    whole = torch.cat([gradient.flatten() for gradient in expected.tensors.values()]).norm()
    for name, parameter in ours.named_parameters():
        assert (parameter.grad - expected.tensors[name]).norm() <= tolerance * whole, name


@torch.no_grad()
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("head", HEADS)
def test_a_folder_goes_there_and_back_bit_by_bit(tmp_path: Path, head: Head, config: BertConfig) -> None:
    theirs = their_model(config, head)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, report = load_with_report(tmp_path / "theirs", head=head)
    assert report.newly_made == report.ignored == report.unknown_config_keys == report.remarks == []
    batch = batch_of(config, head)
    assert_near(real_positions(head, ours(**batch).logits), real_positions(head, scores(theirs(**batch), head)))
    save(tmp_path / "ours", ours, files={})
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs"))
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    again, info = HEADS[head][1].from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(again) is HEADS[head][0]
    assert not any(info.values()), info
    if head in CLASSIFIERS and head != "multiple_choice":
        assert tuple(again.config.id2label.values()) == TASK.labels == ours.task.labels
        assert again.config.label2id == theirs.config.label2id
        assert again.config.num_labels == 3
        assert again.config.classifier_dropout == TASK.classifier_dropout == ours.task.classifier_dropout
    if head == "sequence_classification":
        assert again.config.problem_type == TASK.problem_type == ours.task.problem_type


@torch.no_grad()
def test_a_classifier_over_cls_opens_there_as_a_token_classifier_with_our_scores_at_cls(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ours = build(SMALL, head="sequence_classification", task=dataclasses.replace(TASK, pooling="cls")).eval()
    for parameter in ours.parameters():
        parameter.normal_(std=0.2)
    save(tmp_path, ours, files={})
    theirs, info = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    batch = batch_of(SMALL, "sequence_classification")
    assert_near(ours(**batch).logits, theirs.eval()(**batch).logits[:, 0])
    back = load(tmp_path, head="sequence_classification")
    assert torch.equal(back(**batch).logits, ours(**batch).logits)
    assert back.task == ours.task
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["problem_type"] == "single_label_classification"
