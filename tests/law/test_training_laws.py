"""Laws of training: the cut into micro-batches changes nothing, the seed decides all, a stop leaves no trace."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from toy_run import (
    metrics_of,
    stopped_before,
    toy_config,
    toy_model_config,
    toy_tokenizer,
    write_store,
)

from bertkit.cli import main
from bertkit.commands.pretrain import pretrain
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.model.heads import PretrainingModel
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.train import loop, trial

EPOCH = 12  # steps of 8 rows in the first epoch of the toy store
RUN = {"max_steps": 26, "eval_every": 13, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("laws"))


@pytest.fixture(scope="module")
def straight(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs never stopped, by optimizer; a line every three steps."""
    folder = tmp_path_factory.mktemp("straight")
    for optimizer in ("adamw", "muon"):
        pretrain(toy_config(store, folder / optimizer, optimizer=optimizer, log_every=3, save_every=4, **RUN))
    return {optimizer: folder / optimizer for optimizer in ("adamw", "muon")}


def source_of(store: Path, **settings: Any) -> PretrainingSource:
    values = {"seed": 1, "batch_size": 32, "micro_batch_tokens": 10**6, **settings}
    pairs = values.pop("pairs", PairSettings(max_seq_length=32))
    masking = MaskingSettings(max_predictions_per_seq=values.pop("max_predictions_per_seq", None))
    return PretrainingSource(open_parts(store)["train"], toy_tokenizer().vocabulary, pairs, masking, **values)


def gradients(module: PretrainingLoss, batches: loop.StepBatches) -> tuple[dict[str, Tensor], float]:
    """The gradient of a step as the loop makes it, and its loss."""
    module.zero_grad(set_to_none=True)
    value = 0.0
    for batch in batches.micro_batches:
        sums = module(batch)
        loss = torch.stack([total / batches.counts[name] for name, total in sums.sums.items()]).sum()
        loss.backward()
        value += loss.item()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}, value


@pytest.mark.parametrize("pairing", ["segment", "none"])
@pytest.mark.parametrize(("batch_size", "step"), [(32, 0), (32, 2), (10, 9)], ids=["full", "short last", "case 29"])
def test_a_step_has_the_same_gradient_however_it_is_cut(store: Path, pairing: Any, batch_size: int, step: int) -> None:
    torch.manual_seed(0)
    config = toy_model_config(dropout=0.0)
    module = PretrainingLoss(PretrainingModel(config, nsp=pairing != "none"))
    pairs = PairSettings(pairing=pairing, max_seq_length=32)
    whole = source_of(store, batch_size=batch_size, pairs=pairs).step(step)
    expected, expected_loss = gradients(module, whole)
    norm = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    cuts = set()
    for micro_batch_tokens in (1, 60, 150, 300):  # each row alone … about a third of the batch
        batches = source_of(store, batch_size=batch_size, pairs=pairs, micro_batch_tokens=micro_batch_tokens).step(step)
        assert (batches.counts, batches.tokens) == (whole.counts, whole.tokens)
        found, loss = gradients(module, batches)
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        for name, gradient in expected.items():
            assert (found[name] - gradient).norm() <= 1e-6 * norm, name
        cuts.add(len(batches.micro_batches))
    assert len(whole.micro_batches) == 1
    assert len(cuts) >= 3


def test_rows_with_very_different_numbers_of_targets_weigh_by_their_targets(store: Path) -> None:
    """Case 29: the loss of a step is one fraction, not the mean of the micro-batches' means."""
    torch.manual_seed(0)
    module = PretrainingLoss(PretrainingModel(toy_model_config(dropout=0.0)))
    alone = source_of(store, batch_size=8, micro_batch_tokens=1).step(0)
    targets = [len(batch["mlm_targets"]) for batch in alone.micro_batches]
    assert len(set(targets)) > 1
    with torch.no_grad():
        sums = [module(batch).sums["mlm"].item() for batch in alone.micro_batches]
        [whole] = source_of(store, batch_size=8).step(0).micro_batches
        total = module(whole)
    assert sum(sums) / sum(targets) == pytest.approx(total.sums["mlm"].item() / sum(targets), rel=1e-6)
    means = sum(s / t for s, t in zip(sums, targets, strict=True)) / len(targets)
    assert means != pytest.approx(sum(sums) / sum(targets), rel=1e-4)


def test_two_runs_with_one_seed_are_the_same_to_the_last_bit(store: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        pretrain(toy_config(store, tmp_path / name))
    assert metrics_of(tmp_path / "first") == metrics_of(tmp_path / "second")
    assert weights(tmp_path / "first") == weights(tmp_path / "second")


def test_another_seed_is_another_run(store: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        pretrain(toy_config(store, tmp_path / f"{seed}", seed=seed))
    first, second = (metrics_of(tmp_path / f"{seed}", kind="train") for seed in (1, 2))
    assert all(a["mlm_loss"] != b["mlm_loss"] for a, b in zip(first, second, strict=True))


def test_micro_batches_change_a_run_by_rounding_only(store: Path, tmp_path: Path) -> None:
    for tokens in (64, 10**6):
        pretrain(toy_config(store, tmp_path / f"{tokens}", micro_batch_tokens=tokens, hidden_dropout_prob=0.0,
                            attention_probs_dropout_prob=0.0))  # fmt: skip
    few, many = (metrics_of(tmp_path / f"{tokens}", kind="train") for tokens in (64, 10**6))
    for a, b in zip(few, many, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert (a["tokens"], a["learning_rate"]) == (b["tokens"], b["learning_rate"])


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def everything(run: Path, step: int) -> dict[str, Any]:
    """The last checkpoint: weights, moments and generators as bytes, counters without times."""
    folder = run / "checkpoints" / f"step-{step}"
    state = json.loads((folder / "training" / "state.json").read_text(encoding="utf-8"))
    del state["training_seconds"], state["window"]["seconds"]
    tensors = {path.name: path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}
    return {**tensors, "state": state, "metrics": metrics_of(run), "best": weights(run)}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "stops",
    [[5], [7], [EPOCH], [13], [25], [6, 18]],
    ids=["mid-epoch", "between two lines", "epoch end", "after an evaluation", "before the last step", "two stops"],
)
def test_a_resumed_run_equals_one_never_stopped(
    store: Path, straight: dict[str, Path], tmp_path: Path, optimizer: str, stops: list[int]
) -> None:
    resume_from = None
    for stop in stops:
        with stopped_before(stop):
            pretrain(
                toy_config(
                    store,
                    tmp_path / "run",
                    optimizer=optimizer,
                    log_every=3,
                    save_every=4,
                    resume_from=resume_from,
                    **RUN,
                )
            )
        resume_from = "last"
    pretrain(
        toy_config(store, tmp_path / "run", optimizer=optimizer, log_every=3, save_every=4, resume_from="last", **RUN)
    )
    assert everything(tmp_path / "run", 26) == everything(straight[optimizer], 26)


def test_the_toy_store_has_the_epoch_these_tests_stop_at(store: Path) -> None:
    assert source_of(store, batch_size=8, seed=12345).steps_of_epochs(1) == EPOCH


def test_a_resume_from_the_best_goes_the_same_way(store: Path, straight: dict[str, Path], tmp_path: Path) -> None:
    settings = {"optimizer": "adamw", "log_every": 3, "save_every": 4, **RUN}
    pretrain(toy_config(store, tmp_path / "run", **settings))
    pretrain(toy_config(store, tmp_path / "run", resume_from="best", **settings))
    assert everything(tmp_path / "run", 26) == everything(straight["adamw"], 26)


def test_every_step_stands_once_in_the_metrics_of_a_resumed_run(store: Path, tmp_path: Path) -> None:
    with stopped_before(8):
        pretrain(toy_config(store, tmp_path / "run", save_every=5))
    pretrain(toy_config(store, tmp_path / "run", save_every=5, resume_from="last"))
    assert [row["step"] for row in metrics_of(tmp_path / "run", kind="train")] == list(range(1, 13))
    assert [row["step"] for row in metrics_of(tmp_path / "run", kind="validation")] == [0, 6, 12]
    assert [row["step"] for row in metrics_of(tmp_path / "run", kind="samples")] == [0, 6, 12]


@pytest.fixture
def one_second_a_step(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock by which every update takes one second; the list grows by one with each update."""
    ticks, updates, update = count(), [], loop.update

    def counted(job: loop.Job, state: Any, batches: Any) -> Any:
        updates.append(state.step)
        return update(job, state, batches)

    for module in (loop, trial):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
        monkeypatch.setattr(module, "update", counted)
    return updates


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_minutes_become_steps_and_leave_no_other_trace(
    store: Path, tmp_path: Path, one_second_a_step: list[int], capsys: pytest.CaptureFixture[str], optimizer: str
) -> None:
    pretrain(
        toy_config(store, tmp_path / "minutes", optimizer=optimizer, max_minutes=0.25, max_steps=None, eval_every=None)
    )
    assert "0.25 minutes of training are 15 steps here" in capsys.readouterr().err
    assert one_second_a_step == [*range(20), *range(15)]  # 20 measured on a copy, then the run
    written = yaml.safe_load((tmp_path / "minutes" / "settings.yaml").read_text(encoding="utf-8"))
    assert (written["max_steps"], written["max_minutes"], written["eval_every"]) == (15, None, 2)
    pretrain(toy_config(store, tmp_path / "steps", optimizer=optimizer, max_steps=15, eval_every=None))
    assert metrics_of(tmp_path / "minutes") == metrics_of(tmp_path / "steps")
    assert weights(tmp_path / "minutes") == weights(tmp_path / "steps")


def test_a_resumed_run_measures_nothing(
    store: Path,
    tmp_path: Path,
    one_second_a_step: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"max_minutes": 0.25, "max_steps": None, "save_every": 5, "eval_every": None}
    with stopped_before(8):
        pretrain(toy_config(store, tmp_path / "run", **settings))
    monkeypatch.setattr(trial, "seconds_a_step", None)
    pretrain(toy_config(store, tmp_path / "run", resume_from="last", **settings))
    assert "resuming a run of 15 steps in all, as fixed when it began" in capsys.readouterr().err
    pretrain(toy_config(store, tmp_path / "steps", max_steps=15, save_every=5, eval_every=None))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "steps")


def repeat(run: Path, output: Path) -> None:
    assert main(["pretrain", "--config_file", str(run / "settings.yaml"), "--output_dir", str(output)]) == 0


def test_the_settings_file_of_a_run_repeats_it_to_the_last_bit(store: Path, tmp_path: Path) -> None:
    pretrain(toy_config(store, tmp_path / "run", hidden_dropout_prob=0.2, optimizer="muon"))
    repeat(tmp_path / "run", tmp_path / "again")
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "again")
    assert weights(tmp_path / "run") == weights(tmp_path / "again")


def test_a_run_is_resumed_by_its_folder_alone(store: Path, tmp_path: Path) -> None:
    values = {"hidden_dropout_prob": 0.2, "save_every": 5, "learning_rate": 2e-3, "optimizer": "muon"}
    pretrain(toy_config(store, tmp_path / "straight", **values))
    with stopped_before(8):
        pretrain(toy_config(store, tmp_path / "run", **values))
    assert not (tmp_path / "run" / "eval_results.json").exists()
    assert main(["pretrain", "--output_dir", str(tmp_path / "run"), "--resume_from", "last"]) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "straight")
    assert weights(tmp_path / "run") == weights(tmp_path / "straight")


def test_the_settings_file_of_a_resumed_run_repeats_it_too(store: Path, tmp_path: Path) -> None:
    with stopped_before(8):
        pretrain(toy_config(store, tmp_path / "run", hidden_dropout_prob=0.2, save_every=5))
    pretrain(toy_config(store, tmp_path / "run", resume_from="last"))
    repeat(tmp_path / "run", tmp_path / "again")
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "again")
    assert weights(tmp_path / "run") == weights(tmp_path / "again")
