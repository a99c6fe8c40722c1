"""--dry_run, --overfit_one_batch and --verify_resume, as they are typed, and what they find."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import toy_config, write_model_config, write_store

from bertkit.cli import main
from bertkit.commands import pretrain as command
from bertkit.errors import InputError
from bertkit.model.costs import training_flops
from bertkit.tasks import rehearsals
from bertkit.tasks.pretraining_run import MeanStep
from bertkit.tasks.rehearsals import costs, in_bytes, in_time
from bertkit.train import loop, trial
from bertkit.train.feed import StepBatches
from bertkit.train.log import MetricsLog
from bertkit.train.state import TrainState, Window


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("rehearsals"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MEASURED_SECONDS", 0.1)
    monkeypatch.setattr(trial, "matrix_rate", lambda _: 1e9)


@pytest.fixture
def typed(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: object) -> tuple[int, str, str]:
        size = write_model_config(tmp_path / "size.json")
        given = ["--data_dir", store, "--output_dir", tmp_path / "runs" / "run", "--model_size", size]
        code = main(["pretrain", *map(str, [*given, "--max_seq_length", 32, "--batch_size", 8, *words])])
        captured = capsys.readouterr()
        assert not list((tmp_path / "runs").iterdir()), "a rehearsal leaves nothing behind"
        return code, captured.out, captured.err

    return run


def rows_of(text: str) -> dict[str, str]:
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in text.splitlines() if "  " in line.strip())


# --- --dry_run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [("--max_steps", "500"), ("--max_minutes", "1"), ("--num_train_epochs", "3")])
def test_a_dry_run_says_what_a_run_would_cost_and_trains_nothing(
    typed: Callable[..., tuple[int, str, str]], length: tuple[str, str]
) -> None:
    code, out, _ = typed("--dry_run", "true", *length)
    rows = rows_of(out)
    assert code == 0
    assert rows["parameters"] == "23,981"
    matrices = 2 * (3 * 32 + 32 + 2 * 64) * 32  # of both layers, of which Muon keeps one moment
    assert rows["weights, gradients and moments in memory"] == in_bytes(4 * (4 * 23_981 - matrices))
    assert rows["disk for checkpoints"] == in_bytes(4 * (3 * 23_981 - matrices) * 4)
    if length[0] == "--max_steps":
        assert rows["steps"] == "500 of 8 rows"
    if length[0] == "--num_train_epochs":
        assert rows["steps"] == "36 of 8 rows"  # about twelve an epoch


def test_a_dry_run_says_the_recipe_and_what_is_unusual(typed: Callable[..., tuple[int, str, str]]) -> None:
    _, _, err = typed("--dry_run", "true", "--max_steps", "5", "--learning_rate", "10")
    assert "recipe muon: muon, learning_rate 10" in err
    assert "warning: --learning_rate 10 is unusual for muon" in err


def test_muon_keeps_one_moment_and_what_is_frozen_none(store: Path, tmp_path: Path) -> None:
    def memory_and_disk(folder: str, **values: object) -> list[str]:
        config = toy_config(store, tmp_path / folder, max_steps=10, **values)
        rows = dict(costs(command.open_work(config), config.training, step=MeanStep(0.5, 1, 1)))
        return [rows["weights, gradients and moments in memory"], rows["disk for checkpoints"]]

    model = command.open_work(toy_config(store, tmp_path / "model", max_steps=1)).model
    numbers = {name: parameter.numel() for name, parameter in model.named_parameters()}
    matrices = sum(p.numel() for p in model.encoder.layers.parameters() if p.ndim == 2)
    lower = sum(number for name, number in numbers.items() if ".embeddings." in name or ".layers.0." in name)
    whole = sum(numbers.values())
    assert memory_and_disk("muon", optimizer="muon") == [
        in_bytes(4 * (4 * whole - matrices)),
        in_bytes(4 * (3 * whole - matrices) * 4),
    ]
    assert memory_and_disk("frozen", freeze_layers=1) == [
        in_bytes(4 * (whole + 3 * (whole - lower))),
        in_bytes(4 * (whole + 2 * (whole - lower)) * 4),
    ]


def test_every_row_of_the_costs_computed_again(store: Path, tmp_path: Path) -> None:
    config = toy_config(store, tmp_path / "run", max_steps=100, ema_decay=0.9, keep_every=10, save_total_limit=3)
    work = command.open_work(config)
    step = work.source.step(0)
    rows = dict(costs(work, config.training, step=MeanStep(0.5, step.tokens, step.flops)))
    flops = training_flops(
        work.model.config,
        tokens=step.tokens,
        squares=sum(b["input_ids"].shape[0] * b["input_ids"].shape[1] ** 2 for b in step.micro_batches),
        targets=step.counts["mlm"],
        pairs=8,
        read=step.counts["mlm"] + 8,
    )
    assert step.flops == flops
    numbers = 23_981
    assert rows["weights, gradients and moments in memory"] == in_bytes(numbers * 4 * 6)  # and two of the average
    assert rows["tokens a step (padding not counted)"] == f"{step.tokens:,}"
    assert rows["operations a step"] == f"{flops:.3g}"
    assert rows["tokens a second, measured"] == f"{2 * step.tokens:,}"
    assert rows["share of the machine's matrix rate"] == f"{100 * 2 * flops / 1e9:.0f} %"
    assert rows["time to finish, evaluation and saving not counted"] == "50 s"
    # Weights, two moments, the average and the raw weights; three, the best, the one being written, ten for good.
    assert rows["disk for checkpoints"] == in_bytes(numbers * 4 * 5 * 15)


def test_a_dry_run_refuses_what_memory_does_not_hold(
    typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise InputError("memory does not suffice", field="--micro_batch_tokens")

    monkeypatch.setattr(trial, "try_longest_batch", full)
    code, _, err = typed("--dry_run", "true", "--max_steps", 5)
    assert code == 2
    assert "--micro_batch_tokens: memory does not suffice" in err


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_500_000, "2.5 MB"), (3e12, "3 TB"), (5e15, "5e+03 TB")],
)
def test_bytes_as_people_read_them(number: float, text: str) -> None:
    assert in_bytes(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.0, "59 s"),
        (60, "1 min"),
        (3600, "1 h 0 min"),
        (86400, "1 day 0 h 0 min"),
        (176460, "2 days 1 h 1 min"),
    ],
)
def test_times_as_people_read_them(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


# --- --overfit_one_batch -------------------------------------------------------------------------------------------

QUIET = ("--hidden_dropout_prob", 0, "--attention_probs_dropout_prob", 0)


@pytest.mark.parametrize("length", [("--max_steps", 150), ("--num_train_epochs", 2), ("--max_minutes", 1)])
def test_a_model_that_can_learn_knows_one_batch_by_heart(
    typed: Callable[..., tuple[int, str, str]], length: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    update = loop.update

    def watched(job: loop.Job, state: TrainState, batches: Iterator[StepBatches]) -> Window | None:
        seen.add(str([batch["input_ids"].tolist() for batch in job.source.step(state.step).micro_batches]))
        return update(job, state, batches)

    monkeypatch.setattr(loop, "update", watched)
    code, out, _ = typed("--overfit_one_batch", "true", *QUIET, *length, "--learning_rate", "0.01")
    rows = rows_of(out)
    assert code == 0
    end = length[1] if length[0] == "--max_steps" else 200
    assert list(rows) == [f"loss after {step} steps" for step in (1, 20, 50, 100, end)]
    assert float(rows[f"loss after {end} steps"]) < 0.25 * float(rows["loss after 1 steps"])
    assert len(seen) == 1


def test_a_model_that_does_not_learn_is_an_error_with_its_losses(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = typed("--overfit_one_batch", "true", *QUIET, "--optimizer", "adamw", "--learning_rate", "1e-9")
    assert code == 2
    assert re.search(r"the loss of one batch only fell from 5\.\d+ to 5\.\d+ in 200 steps\n  expected: below 1\.", err)
    assert "raise --learning_rate (or --max_steps) if it fell evenly" in err


def test_a_loss_that_rose_is_not_called_a_fall(typed: Callable[..., tuple[int, str, str]]) -> None:
    words = ("--optimizer", "adamw", "--learning_rate", "50", "--max_steps", "20", "--initialization", "normal")
    code, _, err = typed("--overfit_one_batch", "true", *QUIET, *words)
    assert code == 2
    assert "the loss of one batch rose from" in err


def test_overfitting_speaks_to_no_tracker(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    begin = MetricsLog.__init__

    def watched(self: MetricsLog, folder: Path, **values: Any) -> None:
        asked.append(values["report_to"])
        begin(self, folder, **values)

    monkeypatch.setattr(MetricsLog, "__init__", watched)
    monkeypatch.setattr(rehearsals, "OVERFITTED", 9.0)
    config = toy_config(store, tmp_path / "run", report_to="tensorboard", overfit_one_batch=True)
    command._rehearsed(config)
    assert set(asked) == {"none"}


# --- --verify_resume -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [("--optimizer", "muon"), ("--ema_decay", "0.9"), ("--optimizer", "lamb")], ids=str)
def test_a_resume_is_verified_to_the_last_bit(
    typed: Callable[..., tuple[int, str, str]], kind: tuple[str, str]
) -> None:
    if "lamb" in kind:
        pytest.importorskip("pytorch_optimizer", reason="LAMB's package is not installed")
    code, out, _ = typed("--verify_resume", "true", *kind, "--max_minutes", 10)
    assert code == 0
    assert int(rows_of(out)["tensors compared, equal to the last bit"]) > 80


def test_a_resume_that_is_not_exact_is_found_with_what_differs(
    typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(10**6))

    def unseeded(seed: int, *, step: int, micro_batch: int) -> None:
        torch.manual_seed(next(numbers))  # dropout as of a generator that a resume does not put back

    monkeypatch.setattr(loop, "seed_dropout", unseeded)
    code, _, err = typed("--verify_resume", "true", "--hidden_dropout_prob", "0.1")
    assert code == 2
    assert re.search(
        r"a resumed run differs from one never stopped in \d+ of \d+ tensors, first in \['model.safet", err
    )
    assert "fix OMP_NUM_THREADS" in err


@pytest.mark.parametrize("flag", ["--verify_resume", "--overfit_one_batch"])
def test_a_rehearsal_that_is_asked_to_stop_says_so(
    typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    update = loop.update

    def update_and_stop(job: loop.Job, state: TrainState, batches: Iterator[StepBatches]) -> Window | None:
        if state.step == 3:
            job.runtime.stop.received = signal.SIGTERM
        return update(job, state, batches)

    monkeypatch.setattr(loop, "update", update_and_stop)
    code, _, err = typed(flag, "true")
    assert code == 128 + signal.SIGTERM
    assert "stopped; a rehearsal leaves nothing to go on from" in err


def test_rehearsals_go_one_by_one(typed: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for words in (("--dry_run", "true", "--verify_resume", "true"), ("--dry_run", "true", "--resume_from", "last")):
        code, _, err = typed(*words)
        assert code == 2
        assert "--dry_run, --verify_resume, --overfit_one_batch: go one by one" in err
