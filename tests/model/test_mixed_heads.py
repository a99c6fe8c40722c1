"""Heads over several layers: what they read, what is learned, and what is on disk of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from toy_model import toy_config

from bertkit.errors import InputError
from bertkit.model.architectures import TASKS, Head, build, head_of
from bertkit.model.pretrained import load, load_with_report, save
from bertkit.model.task_config import Pooling, TaskConfig

CONFIG = toy_config(num_hidden_layers=3)
IDS = torch.arange(2, 14).view(2, 6)
MIXES: list[dict[str, Any]] = [
    {"layers": (-1, -2), "combine": "sum"},
    {"layers": (0, 1, 3), "combine": "mean"},
    {"layers": (-1, 1), "combine": "weighted"},
    {"layers": (3, 2), "combine": "concat", "pooling": "cls"},
    {"layers": (1, 2), "combine": "last"},
    {"layers": (1, 2), "combine": "mean", "pooling": "mean"},
]
NAMES = ["-".join(map(str, mix.values())) for mix in MIXES]


def made(head: Head, **task: Any) -> Any:
    torch.manual_seed(0)
    return build(CONFIG, head=head, task=TaskConfig(labels=("a", "b"), **task)).eval()


def inputs_for(head: Head) -> torch.Tensor:
    return IDS[:, None].expand(2, 2, 6) if head == "multiple_choice" else IDS


@pytest.mark.parametrize("mix", MIXES, ids=NAMES)
@pytest.mark.parametrize("head", TASKS)
def test_a_mixed_model_comes_back_equal(tmp_path: Path, head: Head, mix: dict[str, Any]) -> None:
    model = made(head, **mix)
    if model.mix.weights is not None:
        torch.nn.init.normal_(model.mix.weights)
        torch.nn.init.normal_(model.mix.gamma)
    save(tmp_path, model, files={})
    again = load(tmp_path, head=head)
    assert head_of(again) == head
    assert list(again.state_dict()) == list(model.state_dict())
    assert torch.equal(again(inputs_for(head)).logits, model(inputs_for(head)).logits)


@pytest.mark.parametrize("mix", MIXES, ids=NAMES)
@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("sequence_classification", "SequenceClassification"),
        ("token_classification", "TokenClassification"),
        ("multiple_choice", "MultipleChoice"),
        ("question_answering", "QuestionAnswering"),
    ],
)
def test_transformers_refuses_what_it_cannot_compute(
    tmp_path: Path, head: Head, name: str, mix: dict[str, Any]
) -> None:
    save(tmp_path, made(head, **mix), files={})
    with pytest.raises(ValueError, match="model type `bertkit` but Transformers does not recognize"):
        vars(transformers.models.auto.modeling_auto)[f"AutoModelFor{name}"].from_pretrained(tmp_path)
    with pytest.raises((OSError, ValueError)):  # the file that config.json names is not there
        vars(transformers.models.bert.modeling_bert)[f"BertFor{name}"].from_pretrained(tmp_path)


@pytest.mark.parametrize("head", TASKS)
@pytest.mark.parametrize("combine", ["last", "sum", "mean", "concat"])
def test_the_last_layer_alone_is_no_mix(tmp_path: Path, head: Head, combine: str) -> None:
    plain, mixed = made(head), made(head, layers=(-1,), combine=combine)
    assert torch.equal(mixed(inputs_for(head)).logits, plain(inputs_for(head)).logits)
    save(tmp_path, mixed, files={})
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["model_type"] == "bert"


@pytest.mark.parametrize("head", TASKS)
def test_the_weights_of_the_mix_are_learned(head: Head) -> None:
    model = made(head, layers=(1, 2, 3), combine="weighted").train()
    model(inputs_for(head)).logits.square().sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())


def test_a_head_reads_what_the_mix_says() -> None:
    model = made("token_classification", layers=(1, -1), combine="mean")
    states = model(IDS, output_hidden_states=True).hidden_states
    expected = model.classifier((states[1] + states[3]) / 2)
    torch.testing.assert_close(model(IDS).logits, expected)
    assert model(IDS).hidden_states is None
    pooled = made("sequence_classification", layers=(1, 2), combine="sum")
    states = pooled(IDS, output_hidden_states=True).hidden_states
    through = torch.tanh(pooled.encoder.pooler((states[1] + states[2])[:, 0]))
    torch.testing.assert_close(pooled(IDS).logits, pooled.classifier(through))


def test_layers_side_by_side_do_not_fit_a_pooler() -> None:
    with pytest.raises(InputError, match="combine: makes 64 numbers of a token, and the pooler takes 32"):
        made("multiple_choice", layers=(1, 2), combine="concat")


@pytest.mark.parametrize("head", TASKS)
def test_a_head_that_reads_other_layers_is_made_anew(tmp_path: Path, head: Head) -> None:
    save(tmp_path, made(head, layers=(1, 2), combine="sum"), files={})
    task = TaskConfig(labels=("a", "b"), layers=(1, 3), combine="sum")
    _, report = load_with_report(tmp_path, head=head, task=task, allow_new_head=True)
    assert any("span_head" in name or "classifier" in name for name in report.newly_made)
    assert "the file's head reads other layers" in report.remarks
    same = replace(task, layers=(1, -2))
    _, report = load_with_report(tmp_path, head=head, task=same)
    assert report.newly_made == []


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        ({"layers": (-1,), "combine": "sum"}, {"layers": (3,), "combine": "concat"}),
        ({"layers": (-1,), "combine": "last"}, {}),
        ({}, {"layers": (1, 3), "combine": "last"}),
        ({"layers": (1, 2), "combine": "sum"}, {"layers": (-2, 1), "combine": "sum"}),
        ({"layers": (1, 2), "combine": "mean"}, {"layers": (2, 1), "combine": "mean"}),
    ],
)
def test_what_is_read_alike_is_the_same_head(tmp_path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    save(tmp_path, made("token_classification", **saved), files={})
    task = TaskConfig(labels=("a", "b"), **wanted)
    assert load_with_report(tmp_path, head="token_classification", task=task)[1].newly_made == []


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        ({}, {"layers": (2,)}),
        ({"layers": (1, 2), "combine": "sum"}, {"layers": (1, 2), "combine": "mean"}),
        (
            {"layers": (1, 2), "combine": "concat", "pooling": "cls"},
            {"layers": (2, 1), "combine": "concat", "pooling": "cls"},
        ),
        ({"layers": (1, 2), "combine": "weighted"}, {"layers": (2, 1), "combine": "weighted"}),
    ],
)
def test_what_is_read_otherwise_is_another_head(tmp_path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    save(tmp_path, made("sequence_classification", **saved), files={})
    task = TaskConfig(labels=("a", "b"), **wanted)
    with pytest.raises(InputError, match="the file's head reads other layers"):
        load(tmp_path, head="sequence_classification", task=task)


def test_a_new_mix_begins_as_the_mean(tmp_path: Path) -> None:
    save(tmp_path, made("token_classification"), files={})
    task = TaskConfig(labels=("a", "b"), layers=(1, 2), combine="weighted")
    model: Any = load(tmp_path, head="token_classification", task=task, allow_new_head=True)
    assert (model.mix.weights.tolist(), model.mix.gamma.tolist()) == ([0.0, 0.0], [1.0])


@pytest.mark.parametrize(
    "entry", [3, {"layers": [1]}, {"layers": "1", "combine": "sum"}, {"layers": [1.5], "combine": "sum"}]
)
def test_a_damaged_mix_in_a_configuration_is_refused(tmp_path: Path, entry: Any) -> None:
    save(tmp_path, made("token_classification", layers=(1, 2), combine="sum"), files={})
    values = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**values, "layer_mix": entry}), encoding="utf-8")
    with pytest.raises(InputError, match="layer_mix: is no mix of layers"):
        load(tmp_path, head="token_classification")


def test_a_pooling_that_is_none_in_a_configuration_is_refused(tmp_path: Path) -> None:
    save(tmp_path, made("sequence_classification"), files={})
    values = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**values, "classifier_pooling": "max"}), encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json: classifier_pooling: is not known\n  value: 'max'"):
        load(tmp_path, head="sequence_classification")


@pytest.mark.parametrize(
    ("head", "name", "pooling"),
    [
        ("multiple_choice", "MultipleChoice", "cls"),
        ("multiple_choice", "MultipleChoice", "mean"),
        ("sequence_classification", "SequenceClassification", "mean"),
    ],
)
def test_what_reads_past_the_pooler_is_refused_by_transformers_too(
    tmp_path: Path, head: Head, name: str, pooling: Pooling
) -> None:
    model = made(head, pooling=pooling)
    save(tmp_path, model, files={})
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["classifier_pooling"] == pooling
    again = load(tmp_path, head=head)
    assert again.task.pooling == pooling  # type: ignore[union-attr]
    assert torch.equal(again(inputs_for(head)).logits, model(inputs_for(head)).logits)
    with pytest.raises(ValueError, match="model type `bertkit`"):
        vars(transformers.models.auto.modeling_auto)[f"AutoModelFor{name}"].from_pretrained(tmp_path)


@pytest.mark.parametrize("head", ["sequence_classification", "multiple_choice"])
@pytest.mark.parametrize(("saved", "wanted"), [("cls", "mean"), ("mean", "pooler"), ("pooler", "cls")])
def test_a_head_that_reads_texts_otherwise_is_made_anew(
    tmp_path: Path, head: Head, saved: Pooling, wanted: Pooling
) -> None:
    save(tmp_path, made(head, pooling=saved), files={})
    task = TaskConfig(labels=("a", "b"), pooling=wanted)
    _, report = load_with_report(tmp_path, head=head, task=task, allow_new_head=True)
    assert f"the file's head reads {saved}, not {wanted}" in report.remarks
    assert "classifier.weight" in report.newly_made
    _, report = load_with_report(tmp_path, head=head, task=replace(task, pooling=saved))
    assert report.newly_made == []
