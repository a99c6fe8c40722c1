"""What holds for every task of fine-tuning: batches add up, everything learns, scores do not depend on company."""

from pathlib import Path

import numpy as np
import pytest
import torch
from task_parts import Parts, parts_of

from bertkit.tasks.finetuning import no_gradient_scores
from bertkit.train.loop import LossSums

KINDS = ("single", "pair", "multi", "regression", "tags", "choices", "questions", "questions2")


@pytest.fixture(scope="module", params=KINDS)
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts_of(request.param, tmp_path_factory.mktemp(request.param))


def losses(parts: Parts, features: list) -> LossSums:
    return parts.task.losses(parts.model, parts.batch(features), class_weights=None, label_smoothing=0.0)


def test_sums_and_weights_of_parts_add_up_to_those_of_the_whole(parts: Parts) -> None:
    whole, [(name, weight)] = losses(parts, parts.features), parts.task.weights(parts.features, None).items()
    cuts = [parts.features[:1], parts.features[1:6], parts.features[6:]]
    sums = [losses(parts, cut).sums[name].item() for cut in cuts]
    assert sum(sums) == pytest.approx(whole.sums[name].item(), rel=1e-5)
    assert sum(parts.task.weights(cut, None)[name] for cut in cuts) == weight > 0
    for hits in whole.correct.values():
        assert 0 <= hits.item() <= weight


def test_no_features_are_a_batch_that_counts_for_nothing(parts: Parts) -> None:
    empty = {name: tensor[:0] for name, tensor in parts.batch(parts.features[:1]).items()}
    found = parts.task.losses(parts.model, empty, class_weights=None, label_smoothing=0.0)
    [total] = found.sums.values()
    total.backward()
    assert total.item() == 0
    assert set(parts.task.weights([], None).values()) == {0.0}


def test_every_parameter_gets_a_gradient(parts: Parts) -> None:
    parts.model.zero_grad()
    [total] = losses(parts, parts.features).sums.values()
    total.backward()
    without = [name for name, p in parts.model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A bias that all choices of a row share moves none of their probabilities: its gradient is 0, or rounding.
    assert without in ([], ["classifier.bias"] if parts.task.name == "multiple-choice" else [])


def test_the_loss_falls(parts: Parts, tmp_path: Path) -> None:
    model = parts.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    seen = []
    for _ in range(12):
        [total] = losses(parts, parts.features).sums.values()
        seen.append(total.item())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    model.load_state_dict(before)
    assert seen[-1] < 0.8 * seen[0]


def test_scores_do_not_depend_on_what_stands_beside(parts: Parts) -> None:
    def scores(tokens: int, features: list) -> list[np.ndarray]:
        found: dict[int, np.ndarray] = {}
        for places, outputs in no_gradient_scores(
            parts.task,
            parts.model,
            features,
            pad_id=0,
            config=parts.config,
            micro_batch_tokens=tokens,
            device=torch.device("cpu"),
        ):
            found |= zip(places, outputs, strict=True)
        return [found[place] for place in range(len(features))]

    alone, together = scores(1, parts.features), scores(10**6, parts.features)
    turned = scores(200, parts.features[::-1])[::-1]
    for one, other, third in zip(alone, together, turned, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 1e-5
        assert np.abs(one - third).max() <= 1e-5


def test_answers_come_in_order_with_their_ids(parts: Parts) -> None:
    batch = parts.batch()
    with torch.inference_mode():
        outputs = parts.task.scores(parts.model, batch, parts.features)
    answers = parts.answers(outputs)
    records = [parts.task.record(e, a, task=parts.config) for e, a in zip(parts.examples, answers, strict=True)]
    assert [record["id"] for record in records] == [example.id for example in parts.examples]
    figures, _ = parts.task.metrics(parts.examples, answers, task=parts.config, knowledge=parts.knowledge)
    assert parts.task.best_by(parts.config)[0] in figures
    assert all(np.isfinite(value) for value in figures.values())
    assert all(parts.task.text(example) for example in parts.examples)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_on_in_training_and_off_in_answers(tmp_path: Path, kind: str) -> None:
    parts = parts_of(kind, tmp_path, number=3, dropout=0.5)
    parts.model.train()
    torch.manual_seed(1)
    [one], [other] = (losses(parts, parts.features).sums.values() for _ in range(2))
    assert one.item() != other.item()
    config = {"pad_id": 0, "config": parts.config, "micro_batch_tokens": 10**6, "device": torch.device("cpu")}
    first, second = (
        [
            output
            for _, found in no_gradient_scores(parts.task, parts.model, parts.features, **config)
            for output in found
        ]
        for _ in range(2)
    )
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
