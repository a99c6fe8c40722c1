"""AdamW, Muon and LAMB against references, the groups of parameters, and the state on its way to disk and back."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.train.muon import MUON_MOMENTUM, Muon, all_at_once, one_by_one, orthogonalise
from bertkit.train.optimizer import (
    PEAK_RATE,
    build_optimizers,
    load_optimizer_tensors,
    optimizer_tensors,
    rates_now,
    set_rates,
)
from bertkit.train.settings import TrainSettings

SHAPES = [(8, 8), (24, 8), (8, 24), (5, 3), (64, 16), (1, 9)]


class Net(nn.Module):
    """Layers of two shapes, a LayerNorm, an embedding, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 24), nn.Linear(24, 8)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)


def is_layer_matrix(name: str) -> bool:
    return name.startswith("layers.") and name.endswith("weight")


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def with_gradients(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def names_of(module: nn.Module, group: dict[str, Any]) -> set[str]:
    by_id = {id(parameter): name for name, parameter in module.named_parameters()}
    return {by_id[id(parameter)] for parameter in group["params"]}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_an_orthogonalised_matrix_has_singular_values_near_one(shape: tuple[int, int], scale: float) -> None:
    torch.manual_seed(0)
    left, values, right = torch.linalg.svd(torch.randn(6, *shape), full_matrices=False)
    values = torch.logspace(0, -2, values.size(1)).expand(6, -1)  # from the longest to a hundredth of it
    found = torch.linalg.svdvals(orthogonalise(scale * left @ torch.diag_embed(values) @ right))
    assert found.min() > 0.6
    assert found.max() < 1.3


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonalising_keeps_the_singular_vectors(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    [matrix] = given = torch.randn(1, *shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ orthogonalise(given)[0] @ right.T
    torch.testing.assert_close(inside, torch.diag(torch.diag(inside)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_orthogonalised_together_are_those_orthogonalised_alone(shape: tuple[int, int]) -> None:
    torch.manual_seed(2)
    together = torch.randn(5, *shape)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in together])
    torch.testing.assert_close(orthogonalise(together), alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [*((rows, columns) for rows, columns in SHAPES if rows <= columns), (128, 512)])
@pytest.mark.parametrize("rank", [1, 3, 10**6])
@pytest.mark.parametrize(("dtype", "difference"), [(torch.float32, 2e-3), (torch.float64, 1e-9)])
def test_steps_made_all_at_once_are_those_made_one_by_one(
    shape: tuple[int, int], rank: int, dtype: torch.dtype, difference: float
) -> None:
    """Of singular values from 1 to 1e-5, whose squares float32 cannot hold beside 1, or of a few, all others 0."""
    torch.manual_seed(3)
    left, values, right = torch.linalg.svd(torch.randn(4, *shape, dtype=torch.float64), full_matrices=False)
    values = torch.logspace(0, -5, values.size(1), dtype=torch.float64)
    values[rank:] = 0
    x = left * (values / values.norm()) @ right
    expected = one_by_one(x)
    assert float((all_at_once(x.to(dtype)) - expected).norm() / expected.norm()) < difference
    assert float((one_by_one(x.to(dtype)) - expected).norm() / expected.norm()) < difference


def test_the_steps_are_keller_jordans() -> None:
    torch.manual_seed(3)
    given = torch.randn(2, 4, 7, dtype=torch.float64)
    x = given / (given.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    torch.testing.assert_close(orthogonalise(given), x)


def test_a_gradient_of_zero_stays_zero() -> None:
    assert torch.equal(orthogonalise(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def muon_by_hand(weight: Tensor, gradients: list[Tensor], *, rate: float, decay: float) -> Tensor:
    """Muon for one matrix, in float64, as its paper has it."""
    weight, momentum = weight.double(), torch.zeros(weight.shape, dtype=torch.float64)
    for gradient in gradients:
        gradient = gradient.double()
        momentum = MUON_MOMENTUM * momentum + (1 - MUON_MOMENTUM) * gradient
        x = (1 - MUON_MOMENTUM) * gradient + MUON_MOMENTUM * momentum
        x = x / (x.pow(2).sum().sqrt() + 1e-7)
        for _ in range(5):
            gram = x @ x.T if x.shape[0] <= x.shape[1] else None
            if gram is not None:
                x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
            else:
                gram = x.T @ x
                x = 3.4445 * x + x @ (-4.775 * gram + 2.0315 * gram @ gram)
        step = rate * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
        weight = weight - rate * decay * weight - step * x
    return weight.float()


def test_muon_makes_the_steps_written_out_by_hand() -> None:
    module = net()
    matrices = {name: p for name, p in module.named_parameters() if is_layer_matrix(name)}
    before = {name: p.detach().clone() for name, p in matrices.items()}
    seen: dict[str, list[Tensor]] = {name: [] for name in matrices}
    muon = Muon(matrices.values(), lr=0.05, weight_decay=0.1)
    for seed in range(3):
        with_gradients(module, seed)
        for name, parameter in matrices.items():
            seen[name].append(parameter.grad.clone())
        muon.step()
    for name, parameter in matrices.items():
        expected = muon_by_hand(before[name], seen[name], rate=0.05, decay=0.1)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-5, rtol=0)


def test_muon_passes_over_a_matrix_without_a_gradient() -> None:
    first, second = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    muon = Muon([first, second], lr=0.1, weight_decay=0.5)
    first.grad = torch.eye(2)
    muon.step()
    assert torch.equal(second, torch.ones(2, 2))
    assert not torch.equal(first, torch.ones(2, 2))


def test_muon_has_the_matrices_of_the_layers_and_adamw_the_rest() -> None:
    module = net()
    adamw, muon = build_optimizers(module, TrainSettings(optimizer="muon"), is_layer_matrix=is_layer_matrix)
    assert names_of(module, muon.param_groups[0]) == {f"layers.{n}.weight" for n in range(4)}
    rest = names_of(module, adamw.param_groups[0]) | names_of(module, adamw.param_groups[1])
    assert rest == {name for name, _ in module.named_parameters()} - names_of(module, muon.param_groups[0])


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_biases_and_layer_norms_have_no_decay(kind: Any) -> None:
    module = net()
    optimizers = build_optimizers(
        module, TrainSettings(optimizer=kind, weight_decay=0.3), is_layer_matrix=is_layer_matrix
    )
    without = {"norm.weight", "norm.bias", "head.bias", *(f"layers.{n}.bias" for n in range(4))}
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        names = names_of(module, group)
        assert group["weight_decay"] == (0.0 if names & without else 0.3)
        assert names <= without or not names & without


def test_adamw_alone_makes_the_steps_of_torchs_adamw() -> None:
    ours, theirs = net(), net()
    settings = TrainSettings(learning_rate=0.01, weight_decay=0.2, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6)
    [adamw] = build_optimizers(ours, settings, is_layer_matrix=is_layer_matrix)
    reference = torch.optim.AdamW(
        [
            {"params": [p for p in theirs.parameters() if p.ndim > 1], "weight_decay": 0.2},
            {"params": [p for p in theirs.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=0.01,
        betas=(0.8, 0.95),
        eps=1e-6,
    )
    for seed in range(4):
        for module, optimizer in ((ours, adamw), (theirs, reference)):
            with_gradients(module, seed)
            optimizer.step()
    for mine, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, their, atol=1e-6, rtol=1e-6)


def depth_of(name: str) -> int:
    """Three layers above the embedding, one less for each layer; the norm and the head lie on top."""
    if name.startswith("embedding"):
        return 4
    return 3 - int(name.split(".")[1]) if name.startswith("layers.") else 0


@pytest.mark.parametrize("kind", ["adamw", "muon", "lamb"])
def test_the_rate_of_a_layer_is_a_share_of_that_of_the_layer_above(kind: Any) -> None:
    settings = TrainSettings(optimizer=kind, learning_rate=0.1, muon_learning_rate=0.2, layer_decay=0.5)
    module = net()
    optimizers = build_optimizers(module, settings, is_layer_matrix=is_layer_matrix, depth_of=depth_of)
    set_rates(optimizers, 0.5)
    found = {
        name: group["lr"]
        for optimizer in optimizers
        for group in optimizer.param_groups
        for name in names_of(module, group)
    }
    expected = {
        name: 0.5 * (0.2 if kind == "muon" and is_layer_matrix(name) else 0.1) * 0.5 ** depth_of(name)
        for name, _ in module.named_parameters()
    }
    assert found == expected
    assert expected["embedding.weight"] == 0.1 / 32
    assert rates_now(optimizers) == {"learning_rate": 0.05} | ({"muon_learning_rate": 0.1} if kind == "muon" else {})


def test_layers_of_one_rate_are_one_group_whose_matrices_go_together() -> None:
    module = net()

    def numbered(**values: Any) -> list[list[str]]:
        settings = TrainSettings(optimizer="muon", **values)
        made = build_optimizers(module, settings, is_layer_matrix=is_layer_matrix, depth_of=depth_of)
        ids = {id(parameter): name for name, parameter in module.named_parameters()}
        return [[ids[id(p)] for group in each.param_groups for p in group["params"]] for each in made]

    _, muon = build_optimizers(
        module, TrainSettings(optimizer="muon"), is_layer_matrix=is_layer_matrix, depth_of=depth_of
    )
    assert len(muon.param_groups) == 1
    # Checkpoints name parameters by their number: it is that of groups cut by depth.
    assert numbered() == numbered(layer_decay=0.5)


def lamb_by_hand(weight: Tensor, gradients: list[Tensor], *, rate: float, decay: float) -> Tensor:
    """LAMB for one tensor, in float64, as version 3 of its paper has it: no correction of the moments' bias."""
    weight, mean, square = weight.double(), torch.zeros_like(weight).double(), torch.zeros_like(weight).double()
    for gradient in gradients:
        gradient = gradient.double()
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.95 * square + 0.05 * gradient * gradient
        update = mean / (square.sqrt() + 1e-6) + decay * weight
        length, step = weight.norm().clamp(max=10.0), update.norm()
        ratio = length / (step + 1e-6) if length > 0 and step > 0 else torch.ones(())
        weight = weight - rate * ratio * update
    return weight.float()


def test_lamb_makes_the_steps_written_out_by_hand() -> None:
    pytest.importorskip("pytorch_optimizer", reason="LAMB's package is not installed")
    module = net()
    with torch.no_grad():
        module.head.bias.zero_()  # a length of 0 has the ratio 1
        module.layers[2].weight.mul_(20.0)  # one above 10 counts as 10
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    seen: dict[str, list[Tensor]] = {name: [] for name in before}
    settings = TrainSettings(optimizer="lamb", learning_rate=0.02, weight_decay=0.1, adam_beta2=0.95, adam_epsilon=1e-6)
    [lamb] = build_optimizers(module, settings, is_layer_matrix=is_layer_matrix)
    for seed in range(3):
        with_gradients(module, seed)
        for name, parameter in module.named_parameters():
            seen[name].append(parameter.grad.clone())
        lamb.step()
    for name, parameter in module.named_parameters():
        decay = 0.1 if parameter.ndim > 1 else 0.0
        expected = lamb_by_hand(before[name], seen[name], rate=0.02, decay=decay)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=1e-5)


def test_lamb_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(InputError, match=r"--optimizer: is not installed\n  value: 'lamb'\n.*bertkit\[lamb\]"):
        build_optimizers(net(), TrainSettings(optimizer="lamb"), is_layer_matrix=is_layer_matrix)


def test_lamb_is_refused_where_the_tensors_are_cut() -> None:
    with pytest.raises(InputError, match=r"--optimizer: needs the length of whole tensors, which --sharding fsdp cuts"):
        build_optimizers(net(), TrainSettings(optimizer="lamb", sharding="fsdp"), is_layer_matrix=is_layer_matrix)


def test_a_frozen_parameter_is_in_no_group() -> None:
    module = net()
    module.embedding.weight.requires_grad_(False)
    [adamw] = build_optimizers(module, TrainSettings(), is_layer_matrix=is_layer_matrix)
    assert "embedding.weight" not in set().union(*(names_of(module, group) for group in adamw.param_groups))


def test_the_schedule_multiplies_each_peak() -> None:
    settings = TrainSettings(optimizer="muon", learning_rate=0.004, muon_learning_rate=0.03)
    adamw, muon = optimizers = build_optimizers(net(), settings, is_layer_matrix=is_layer_matrix)
    for factor in (0.5, 1.0, 0.25):  # from the peak each time, not from the last rate
        set_rates(optimizers, factor)
        assert [group["lr"] for group in adamw.param_groups] == [0.004 * factor] * 2
        assert [group["lr"] for group in muon.param_groups] == [0.03 * factor]


def after_steps(kind: Any, steps: range, *, start: Callable[[Net, list[torch.optim.Optimizer]], None]) -> Any:
    module = net()
    optimizers = build_optimizers(module, TrainSettings(optimizer=kind), is_layer_matrix=is_layer_matrix)
    start(module, optimizers)
    for seed in steps:
        with_gradients(module, seed)
        for optimizer in optimizers:
            optimizer.step()
    return module, optimizers


@pytest.mark.parametrize("kind", ["adamw", "muon", "lamb"])
def test_moments_put_back_go_on_to_the_last_bit(kind: Any) -> None:
    module, optimizers = after_steps(kind, range(3), start=lambda *_: None)
    kept = [{name: t.clone() for name, t in optimizer_tensors(optimizer).items()} for optimizer in optimizers]
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert [set(tensors) for tensors in kept] == [set(optimizer_tensors(optimizer)) for optimizer in optimizers]

    def restored(module: Net, optimizers: list[torch.optim.Optimizer]) -> None:
        module.load_state_dict(weights)
        for optimizer, tensors in zip(optimizers, kept, strict=True):
            load_optimizer_tensors(optimizer, tensors)
            for name, tensor in optimizer_tensors(optimizer).items():
                assert tensor.dtype == tensors[name].dtype
                assert torch.equal(tensor, tensors[name])

    straight, _ = after_steps(kind, range(6), start=lambda *_: None)
    resumed, _ = after_steps(kind, range(3, 6), start=restored)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))


def test_the_rates_stay_those_of_the_running_optimizer() -> None:
    _, [old] = after_steps("adamw", range(1), start=lambda *_: None)
    [new] = build_optimizers(net(), TrainSettings(learning_rate=0.5), is_layer_matrix=is_layer_matrix)
    load_optimizer_tensors(new, optimizer_tensors(old))
    assert [group["lr"] for group in new.param_groups] == [0.5, 0.5]
    assert all(group[PEAK_RATE] == 0.5 for group in new.param_groups)


@pytest.mark.parametrize(
    ("kept", "now", "problem"),
    [
        ("adamw", "muon", "moments of more than 8 tensors|has the shape"),
        ("muon", "adamw", r"has the shape \(24,\), its weight|has the shape"),
        ("lamb", "adamw", "step is missing"),
    ],
)
def test_moments_of_another_optimizer_are_refused(kept: Any, now: Any, problem: str) -> None:
    _, [old, *_] = after_steps(kept, range(1), start=lambda *_: None)
    [new, *_] = build_optimizers(net(), TrainSettings(optimizer=now), is_layer_matrix=is_layer_matrix)
    with pytest.raises(ValueError, match=problem):
        load_optimizer_tensors(new, optimizer_tensors(old))


def test_muon_needs_its_momentum() -> None:
    _, [_, muon] = after_steps("muon", range(1), start=lambda *_: None)
    kept = {name.replace("momentum", "exp_avg"): tensor for name, tensor in optimizer_tensors(muon).items()}
    with pytest.raises(ValueError, match="momentum is missing"):
        load_optimizer_tensors(muon, kept)
