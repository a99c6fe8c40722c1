"""The heads of fine-tuning: losses by hand, masks that change nothing, labels that are refused, and training."""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import EncoderOutput
from bertkit.model.heads import IGNORE_INDEX
from bertkit.model.losses import cross_entropy, mean
from bertkit.model.task_config import Pooling, TaskConfig, default_labels, same_labels, task_from_json
from bertkit.model.task_heads import (
    MultipleChoiceModel,
    QuestionAnsweringModel,
    SequenceClassificationModel,
    TokenClassificationModel,
)

CONFIG = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
INPUT_IDS = torch.tensor([[2, 17, 4, 42, 33, 28, 3], [2, 4, 58, 3, 0, 0, 0], [2, 4, 4, 12, 13, 3, 0]])
MASK = INPUT_IDS != 0
THREE = TaskConfig(labels=("喜", "怒", "哀"))
CHOICES = torch.stack([INPUT_IDS, INPUT_IDS.roll(1, 0)], dim=1)  # (3, 2, 7)
CHOICE_MASK = torch.tensor([[1, 1], [1, 0], [0, 1]])


def seeded(make: Callable[[], Any]) -> Any:
    """A model in float64 and eval mode whose answers differ from token to token."""
    torch.manual_seed(0)
    model = make().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def text_model(config: BertConfig = CONFIG, **task: Any) -> SequenceClassificationModel:
    return seeded(lambda: SequenceClassificationModel(config, task=dataclasses.replace(THREE, **task)))


def token_model(task: TaskConfig = THREE) -> TokenClassificationModel:
    return seeded(lambda: TokenClassificationModel(CONFIG, task=task))


def choice_model(config: BertConfig = CONFIG) -> MultipleChoiceModel:
    return seeded(lambda: MultipleChoiceModel(config, task=TaskConfig()))


def answer_model(config: BertConfig = CONFIG) -> QuestionAnsweringModel:
    return seeded(lambda: QuestionAnsweringModel(config))


def assert_equal(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def read_by(pooling: str, encoded: EncoderOutput, mask: Tensor) -> Tensor | None:
    """What a head reads of each row, (batch, hidden), row by row."""
    states = encoded.last_hidden_state
    means = [row[real].mean(0) for row, real in zip(states, mask, strict=True)]
    return {"pooler": encoded.pooler_output, "cls": states[:, 0], "mean": torch.stack(means)}[pooling]


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_a_text_is_scored_by_a_linear_layer_over_what_stands_for_it(pooling: str) -> None:
    model = text_model(pooling=pooling)
    encoded = model.encoder(INPUT_IDS, attention_mask=MASK)
    read = read_by(pooling, encoded, MASK)
    assert_equal(model(INPUT_IDS, attention_mask=MASK).logits, model.classifier(read))
    assert_equal(model(INPUT_IDS[:1]).logits, model(INPUT_IDS[:1], attention_mask=MASK[:1]).logits)
    assert (encoded.pooler_output is None) == (pooling != "pooler")


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("shape", [(3, 1), (1, 1), (1, 7)])
def test_a_mask_of_one_row_or_column_stands_for_all(pooling: str, shape: tuple[int, int]) -> None:
    model, ones = text_model(pooling=pooling), torch.ones(shape)
    assert_equal(model(INPUT_IDS, attention_mask=ones).logits, model(INPUT_IDS).logits)


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_a_choice_is_scored_as_a_text(pooling: str) -> None:
    model = seeded(lambda: MultipleChoiceModel(CONFIG, task=TaskConfig(pooling=pooling)))  # type: ignore[arg-type]
    rows, mask = CHOICES.flatten(0, 1), CHOICES.flatten(0, 1) != 0
    read = read_by(pooling, model.encoder(rows, attention_mask=mask), mask)
    assert_equal(model(CHOICES, attention_mask=CHOICES != 0).logits, model.classifier(read).view(3, 2))


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_a_row_of_padding_alone_which_is_no_choice_spoils_no_gradient(pooling: str) -> None:
    model = seeded(lambda: MultipleChoiceModel(CONFIG, task=TaskConfig(pooling=pooling)))  # type: ignore[arg-type]
    mask = (CHOICES != 0) & (CHOICE_MASK[..., None] == 1)
    output = model.train()(CHOICES, attention_mask=mask, choice_mask=CHOICE_MASK, labels=torch.tensor([1, 0, 1]))
    output.loss.backward()
    assert output.loss.isfinite()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_the_mean_of_a_text_is_taken_in_float32() -> None:
    """600 tokens are more than bfloat16 counts to."""
    model = text_model(dataclasses.replace(CONFIG, max_position_embeddings=600), pooling="mean").bfloat16()
    ids = torch.randint(4, 60, (1, 600))
    expected = model.encoder(ids).last_hidden_state.float().mean(1).bfloat16()
    assert torch.equal(model(ids).logits, model.classifier(expected))
    assert torch.equal(model(ids, attention_mask=torch.ones_like(ids)).logits, model.classifier(expected))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 3.0, 0.5])])
def test_single_label_loss_is_torchs_cross_entropy_with_weights_and_smoothing(
    smoothing: float, weights: Tensor | None
) -> None:
    labels = torch.tensor([0, IGNORE_INDEX, 2])
    model = text_model()
    output = model(INPUT_IDS, attention_mask=MASK, labels=labels, class_weights=weights, label_smoothing=smoothing)
    expected = F.cross_entropy(
        output.logits, labels, weight=None if weights is None else weights.double(), label_smoothing=smoothing
    )
    assert_equal(output.loss, expected)


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 3.0, 0.5])])
def test_multi_label_loss_is_binary_cross_entropy_a_label(weights: Tensor | None) -> None:
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    output = text_model(problem_type="multi_label_classification")(INPUT_IDS, labels=labels, class_weights=weights)
    yes, no = output.logits.sigmoid().log(), (-output.logits).sigmoid().log()
    factor = torch.ones(3) if weights is None else weights
    assert_equal(output.loss, -(labels * factor * yes + (1 - labels) * no).mean())


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_a_regression_of_one_number_takes_its_targets_flat_or_as_a_column(shape: tuple[int, ...]) -> None:
    targets = torch.tensor([0.5, 3.0, 5.0]).view(shape)
    output = text_model(labels=("score",), problem_type="regression")(INPUT_IDS, labels=targets)
    assert_equal(output.loss, (output.logits[:, 0] - targets.flatten()).pow(2).mean())


def test_a_regression_of_several_numbers_is_the_mean_over_all() -> None:
    targets = torch.rand(3, 3)
    output = text_model(problem_type="regression")(INPUT_IDS, labels=targets)
    assert_equal(output.loss, (output.logits - targets).pow(2).mean())


def test_token_labels_that_are_none_stay_outside_the_loss() -> None:
    labels = torch.where(MASK, INPUT_IDS % 3, IGNORE_INDEX)
    labels[:, 0] = IGNORE_INDEX
    model, weights = token_model(), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    output = model(INPUT_IDS, attention_mask=MASK, labels=labels, class_weights=weights, label_smoothing=0.1)
    flat = labels.flatten()
    expected = F.cross_entropy(output.logits.flatten(0, 1), flat, weight=weights, label_smoothing=0.1)
    assert_equal(output.loss, expected)
    assert output.logits.shape == (3, 7, 3)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (text_model, {"labels": torch.full((3,), IGNORE_INDEX)}),
        (token_model, {"labels": torch.full((3, 7), IGNORE_INDEX)}),
        (answer_model, {"start_positions": torch.full((3,), 99), "end_positions": torch.full((3,), -1)}),
    ],
)
def test_without_a_single_label_the_loss_is_0_with_a_valid_backward(model: Any, inputs: dict[str, Tensor]) -> None:
    built = model()
    loss = built(INPUT_IDS, **inputs).loss
    loss.backward()
    assert loss.item() == 0
    assert all(parameter.grad is None or bool((parameter.grad == 0).all()) for parameter in built.parameters())


def test_each_choice_is_scored_alone() -> None:
    model = choice_model()
    together = model(CHOICES, attention_mask=CHOICES != 0).logits
    for choice in range(2):
        alone = model(CHOICES[:, choice : choice + 1], attention_mask=CHOICES[:, choice : choice + 1] != 0).logits
        assert_equal(together[:, choice : choice + 1], alone)


def test_what_is_no_choice_has_probability_0_and_gets_no_gradient() -> None:
    model, labels = choice_model(), torch.tensor([1, 0, 1])
    output = model(CHOICES, attention_mask=CHOICES != 0, choice_mask=CHOICE_MASK, labels=labels)
    assert torch.equal(output.logits.isneginf(), CHOICE_MASK == 0)
    assert torch.equal(output.logits.softmax(1)[1:], torch.tensor([[1, 0], [0, 1]], dtype=torch.float64))
    plain = model(CHOICES, attention_mask=CHOICES != 0).logits
    first = plain[0].log_softmax(0)[1]
    assert_equal(output.loss, -first / 3)  # the other rows have one choice: their loss is 0
    output.loss.backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_the_loss_of_an_answer_is_the_mean_of_start_and_end_and_leaves_out_what_is_outside() -> None:
    start, end = torch.tensor([1, 99, 2]), torch.tensor([3, 4, IGNORE_INDEX])
    output = answer_model()(INPUT_IDS, attention_mask=MASK, start_positions=start, end_positions=end)
    first = F.cross_entropy(output.start_logits[[0, 2]], start[[0, 2]])
    last = F.cross_entropy(output.end_logits[[0, 1]], end[[0, 1]])
    assert_equal(output.loss, (first + last) / 2)
    assert output.logits.shape == (3, 7, 2)


def test_states_and_attentions_come_on_request_for_every_head() -> None:
    for model, ids in (
        (text_model(), INPUT_IDS),
        (token_model(), INPUT_IDS),
        (choice_model(), CHOICES),
        (answer_model(), INPUT_IDS),
    ):
        plain, whole = model(ids), model(ids, output_hidden_states=True, output_attentions=True)
        assert plain.hidden_states is plain.attentions is plain.loss is None
        assert len(whole.hidden_states) == 3
        assert len(whole.attentions) == 2
        assert_equal(plain.logits, whole.logits)


@pytest.mark.parametrize("dropout", [None, 0.5])
def test_dropout_before_the_head_is_its_own_or_the_models(dropout: float | None) -> None:
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3)
    task = dataclasses.replace(THREE, classifier_dropout=dropout)
    for model in (
        SequenceClassificationModel(config, task=task),
        TokenClassificationModel(config, task=task),
        MultipleChoiceModel(config, task=task),
    ):
        assert model.dropout.p == (0.3 if dropout is None else dropout)
        ids = CHOICES if isinstance(model, MultipleChoiceModel) else INPUT_IDS
        assert not torch.equal(model.train()(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("make", "ids", "labels"),
    [
        (lambda: SequenceClassificationModel(CONFIG, task=THREE), INPUT_IDS, {"labels": torch.tensor([0, 1, 2])}),
        (
            lambda: SequenceClassificationModel(CONFIG, task=dataclasses.replace(THREE, pooling="cls")),
            INPUT_IDS,
            {"labels": torch.tensor([0, 1, 2])},
        ),
        (lambda: TokenClassificationModel(CONFIG, task=THREE), INPUT_IDS, {"labels": INPUT_IDS % 3}),
        (lambda: MultipleChoiceModel(CONFIG, task=TaskConfig()), CHOICES, {"labels": torch.tensor([0, 1, 0])}),
        (
            lambda: QuestionAnsweringModel(CONFIG),
            INPUT_IDS,
            {"start_positions": torch.tensor([1, 1, 3]), "end_positions": torch.tensor([4, 2, 5])},
        ),
    ],
)
def test_training_lowers_the_loss_and_reaches_every_parameter(
    make: Callable[[], Any], ids: Tensor, labels: dict[str, Tensor]
) -> None:
    torch.manual_seed(0)
    model = make().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(25):
        loss = model(ids, attention_mask=ids != 0, **labels).loss
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_the_loss_is_computed_in_float32_where_the_model_is_narrower() -> None:
    for problem, labels in (
        ("single_label_classification", torch.tensor([0, 1, 2])),
        ("multi_label_classification", torch.eye(3)),
        ("regression", torch.eye(3)),
    ):
        model = text_model(problem_type=problem).to(torch.bfloat16)
        output = model(INPUT_IDS, labels=labels)
        assert output.logits.dtype == torch.bfloat16
        assert output.loss.dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: text_model()(INPUT_IDS, labels=torch.tensor([0, 3, 1])), r"labels: row 1 is 3, but there are 3 cl"),
        (lambda: text_model()(INPUT_IDS, labels=torch.tensor([[0, 1, 1]])), r"labels: has shape \(1, 3\)"),
        (
            lambda: text_model(problem_type="multi_label_classification")(INPUT_IDS, labels=torch.tensor([0, 1, 1])),
            r"labels: has shape \(3,\)\n  expected: \(3, 3\)",
        ),
        (
            lambda: text_model()(INPUT_IDS, labels=torch.tensor([0, 1, 1]), class_weights=torch.ones(2)),
            r"class_weights: has shape \(2,\)\n  expected: \(3,\), a weight for each class",
        ),
        *(
            (
                lambda shape=shape: text_model(problem_type="multi_label_classification")(
                    INPUT_IDS, labels=torch.eye(3), class_weights=torch.ones(shape)
                ),
                rf"class_weights: has shape {re.escape(str(shape))}\n  expected: \(3,\), a weight for each class",
            )
            for shape in ((1,), (2,), (3, 1), (3, 3))
        ),
        (
            lambda: text_model()(INPUT_IDS, labels=torch.tensor([0, 1, 1]), label_smoothing=1.0),
            r"label_smoothing: is no share\n  value: 1.0",
        ),
        (
            lambda: text_model(problem_type="regression")(INPUT_IDS, labels=torch.eye(3), label_smoothing=0.1),
            "label_smoothing: has no meaning for a regression",
        ),
        (
            lambda: text_model(problem_type="regression")(INPUT_IDS, labels=torch.eye(3), class_weights=torch.ones(3)),
            "class_weights: has no meaning for a regression",
        ),
        (
            lambda: token_model()(INPUT_IDS, labels=torch.full((3, 7), 5)),
            "labels: row 0, column 0 is 5, but there are 3 classes",
        ),
        (lambda: token_model()(INPUT_IDS, labels=torch.zeros(3, 6, dtype=int)), r"labels: has shape \(3, 6\)"),
        (lambda: choice_model()(INPUT_IDS), r"input_ids: has shape \(3, 7\)\n  expected: \(batch, choices, seq\)"),
        (
            lambda: choice_model()(CHOICES, choice_mask=torch.ones(3, 3)),
            r"choice_mask: has shape \(3, 3\)\n  expected: \(3, 2\)",
        ),
        (
            lambda: choice_model()(CHOICES, choice_mask=torch.tensor([[1, 1], [0, 0], [1, 1]])),
            "choice_mask: row 1 has no choice",
        ),
        (
            lambda: choice_model()(CHOICES, choice_mask=CHOICE_MASK, labels=torch.tensor([0, 1, 1])),
            "labels: row 1 is 1, which choice_mask says is no choice",
        ),
        (
            lambda: answer_model()(INPUT_IDS, start_positions=torch.tensor([0, 1, 2])),
            "start_positions: give start_positions and end_positions, or neither",
        ),
        (
            lambda: answer_model()(INPUT_IDS, start_positions=torch.tensor([0]), end_positions=torch.tensor([0, 1, 2])),
            r"start_positions: has shape \(1,\)",
        ),
    ],
)
def test_labels_that_make_no_sense_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_sums_and_weights_of_parts_give_the_loss_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    labels, weights = torch.arange(10) % 4, torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=torch.float64)
    whole = cross_entropy("labels", logits, labels, class_weights=weights, label_smoothing=0.1)
    parts = [
        cross_entropy("labels", logits[rows], labels[rows], class_weights=weights, label_smoothing=0.1)
        for rows in (slice(0, 3), slice(3, 10))
    ]
    total, weight = (sum(values) for values in zip(*parts, strict=True))
    assert_equal(mean((total, weight)), mean(whole))
    assert_equal(mean(whole), F.cross_entropy(logits, labels, weight=weights, label_smoothing=0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ()}, "labels: has no label"),
        ({"labels": default_labels(100_001)}, "labels: has too many labels"),
        ({"labels": ("a", "b", "a")}, "labels: names two labels alike\n  value: 'a'"),
        ({"labels": (1, 2)}, "labels: holds a label that is no text"),
        ({"problem_type": "ranking"}, "problem_type: is not known\n  value: 'ranking'\n  expected: single_label"),
        ({"pooling": "max"}, r"pooling: is not known\n  value: 'max'\n  expected: pooler \| cls \| mean"),
        ({"classifier_dropout": 1.0}, "classifier_dropout: is not a probability"),
        ({"classifier_dropout": math.nan}, "classifier_dropout: is not a probability"),
    ],
)
def test_a_head_that_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TaskConfig(**arguments)


@pytest.mark.parametrize(
    ("values", "rows", "expected"),
    [
        ({}, None, TaskConfig()),
        ({}, 3, TaskConfig(labels=default_labels(3))),
        ({"num_labels": 4}, None, TaskConfig(labels=default_labels(4))),
        ({"id2label": {"1": "b", "0": "a"}}, None, TaskConfig(labels=("a", "b"))),
        ({"label2id": {"b": 1, "a": 0}}, None, TaskConfig(labels=("a", "b"))),
        ({"id2label": {"0": "a", "1": "b"}}, 3, TaskConfig(labels=default_labels(3))),  # rxnfp: the rows decide
        ({"id2label": {"0": "score"}}, None, TaskConfig(labels=("score",), problem_type="regression")),
        (
            {"problem_type": "multi_label_classification", "classifier_dropout": 0.2, "classifier_pooling": "cls"},
            None,
            TaskConfig(problem_type="multi_label_classification", classifier_dropout=0.2, pooling="cls"),
        ),
        ({"id2label": {"0": 5, "1": True}}, None, TaskConfig(labels=("5", "True"))),
    ],
)
def test_a_head_is_read_from_config_json(values: dict[str, Any], rows: int | None, expected: TaskConfig) -> None:
    assert task_from_json(values, num_labels=rows, file="config.json") == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id2label": ["a", "b"]}, "config.json: id2label: does not number the labels from 0 on"),
        ({"id2label": {"1": "a", "2": "b"}}, "config.json: id2label: does not number the labels from 0 on"),
        ({"num_labels": 10**12}, "config.json: num_labels: is no number of labels\n  value: 1000000000000"),
        ({"num_labels": "2"}, "config.json: num_labels: is no number of labels"),
        ({"problem_type": ["x"]}, "config.json: problem_type: is not known"),
    ],
)
def test_entries_of_a_head_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        task_from_json(values, num_labels=None, file="config.json")


def test_labels_are_the_same_by_name_or_where_one_side_has_none() -> None:
    assert same_labels(("a", "b"), ("a", "b"))
    assert same_labels(("a", "b"), default_labels(2))
    assert not same_labels(("a", "b"), ("b", "a"))
    assert not same_labels(("a", "b"), default_labels(3))
