"""The state of a run taken as a snapshot and put back, and a resume that could not be exact refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from toy_checkpoint import FINGERPRINT, SavedRun

from bertkit.errors import InputError
from bertkit.train.optimizer import build_optimizers, optimizer_tensors
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState, Window, read_state, restore


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    return SavedRun(tmp_path)


def test_the_counters_come_back_as_they_were(run: SavedRun) -> None:
    found = read_state(run.save(4, best=2), fingerprint=FINGERPRINT)
    assert found == TrainState(
        step=4,
        tokens=40,
        best_step=2,
        best_score=0.5,
        source={"epoch_starts": [[0, 7]]},
        window=Window({"mlm": 0.1 + 0.2}, {"mlm": 1.0}, {"mlm": 3}),
    )


def test_moments_come_back_to_the_last_bit(run: SavedRun) -> None:
    folder = run.save(4)
    expected = [{n: t.clone() for n, t in optimizer_tensors(optimizer).items()} for optimizer in run.optimizers]
    run.save(5)  # the network goes on
    restore(folder, run.module, run.optimizers)
    for optimizer, tensors in zip(run.optimizers, expected, strict=True):
        found = optimizer_tensors(optimizer)
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


# --- a resume that could not be exact ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({"seed": 2}, "seed: 1 then, 2 now"),
        ({"batch_size": 64}, "batch_size: 32 then, 64 now"),
        ({"store": "xyz"}, "store: 'abc' then, 'xyz' now"),
        ({"threads": 1}, "threads: 2 then, 1 now"),
        (
            {"versions": {"torch": "2.14.0", "numpy": "2.1"}},
            "versions: {'torch': '2.13.0', 'numpy': '2.1'} then, {'torch': '2.14.0', 'numpy': '2.1'} now",
        ),
        ({"new_setting": 5}, "new_setting: None then, 5 now"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_differs_is_refused_with_the_differences(run: SavedRun, change: dict[str, Any], listed: str) -> None:
    folder = run.save(4)
    with pytest.raises(InputError, match="was written by a run that differs") as caught:
        read_state(folder, fingerprint={**FINGERPRINT, **change})
    assert listed in str(caught.value)
    assert f"--model_name_or_path {folder}" in str(caught.value)


def test_all_differences_are_listed_at_once(run: SavedRun) -> None:
    with pytest.raises(InputError, match=r"batch_size: 32 then, 8 now; seed: 1 then, 3 now"):
        read_state(run.save(4), fingerprint={**FINGERPRINT, "seed": 3, "batch_size": 8})


def test_a_checkpoint_of_another_optimizer_is_refused_by_its_file(run: SavedRun) -> None:
    folder = run.save(4)
    [adamw] = build_optimizers(run.module.module, TrainSettings(), is_layer_matrix=lambda _: False)
    with pytest.raises(
        InputError, match=r"optimizer-0.safetensors: --optimizer, --freeze_layers: was written with anot"
    ):
        restore(folder, run.module, [adamw])
    (folder / "training" / "optimizer-1.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"optimizer-1.safetensors: --optimizer: is missing: the checkpoint was written"
    ):
        restore(folder, run.module, run.optimizers)
