"""Layers combined: what comes out by hand, its width, what is learned, and what is refused."""

import pytest
import torch

from bertkit.errors import InputError
from bertkit.model.layer_mix import LayerMix, checked_layers
from bertkit.model.task_config import Combine

STATES = tuple(float(10**layer) * torch.ones(2, 5, 3) for layer in range(5))  # 1, 10, 100, 1,000, 10,000


def mix(*layers: int, combine: Combine) -> LayerMix:
    return LayerMix(layers, combine=combine, num_hidden_layers=4, hidden_size=3)


@pytest.mark.parametrize(
    ("combine", "expected"),
    [("last", 10_000.0), ("sum", 10_101.0), ("mean", 3367.0), ("weighted", 3367.0)],
)
def test_layers_are_combined_to_one(combine: Combine, expected: float) -> None:
    module = mix(-1, 0, 2, combine=combine)
    torch.testing.assert_close(module(STATES), torch.full((2, 5, 3), expected))
    assert module.output_size == 3


def test_layers_stand_side_by_side_in_the_order_given() -> None:
    module = mix(-1, 0, 2, combine="concat")
    assert module.output_size == 9
    assert module(STATES)[1, 4].tolist() == [10_000.0] * 3 + [1.0] * 3 + [100.0] * 3


def test_the_weighted_sum_is_softmax_times_gamma_and_learns() -> None:
    module = mix(0, 1, combine="weighted")
    with torch.no_grad():
        module.weights.copy_(torch.log(torch.tensor([3.0, 1.0])))
        module.gamma.fill_(2.0)
    torch.testing.assert_close(module(STATES), torch.full((2, 5, 3), 2 * (0.75 * 1 + 0.25 * 10)))
    module(STATES).sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in module.parameters())


@pytest.mark.parametrize("combine", ["last", "concat", "sum", "mean"])
def test_only_the_weighted_sum_has_parameters(combine: Combine) -> None:
    assert list(mix(0, 1, combine=combine).parameters()) == []


@pytest.mark.parametrize(
    ("layers", "message"),
    [([], "names no layer"), ([5], "is no layer of the model\n  value: 5"), ([-6], "value: -6"), ([4, -1], "twice")],
)
def test_layers_that_are_not_there_are_refused(layers: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked_layers(layers, num_hidden_layers=4)


def test_an_unknown_way_to_combine_is_refused() -> None:
    with pytest.raises(InputError, match="combine: is no way to combine layers\n  value: 'max'"):
        mix(1, combine="max")  # type: ignore[arg-type]
