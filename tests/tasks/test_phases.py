"""A run in phases: what is read from the flag, where each begins, and what its steps hold."""

from pathlib import Path
from typing import Any

import pytest
from toy_run import metrics_of, stopped_before, toy_config, toy_tokenizer, write_store

from bertkit.cli import main
from bertkit.commands.pretrain import pretrain
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.tasks.phases import Phase, first_steps, phases_from
from bertkit.tasks.pretraining import PretrainingSource

SHORT_THEN_LONG = phases_from("16:0.75,32:0.25")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("phases"))


def source_of(store: Path, *, phases: tuple[Phase, ...] = SHORT_THEN_LONG, max_steps: int = 40) -> PretrainingSource:
    return PretrainingSource(
        open_parts(store)["train"],
        toy_tokenizer().vocabulary,
        PairSettings(max_seq_length=32),
        MaskingSettings(),
        seed=1,
        batch_size=8,
        micro_batch_tokens=10**6,
        max_steps=max_steps,
        phases=phases,
    )


def width_of(source: PretrainingSource, step: int) -> int:
    return max(batch["input_ids"].shape[1] for batch in source.step(step).micro_batches)


@pytest.mark.parametrize("text", ["", "128", "128:", ":1", "a:1", "128:b", "128:0.5,", "12.5:1"])
def test_what_is_no_phase_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"--phases: is no phase\n  value: .*\n  expected: LENGTH:SHARE, as in 128:0.9"
    ):
        phases_from(text)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("128:0.5", "0.5"),
        ("128:0.9,512:0.2", "1.1"),
        ("128:1.5,512:-0.5", "1"),
        ("128:0,512:1", "1"),
        ("64:nan", "nan"),
    ],
)
def test_shares_must_add_up_to_one(text: str, total: str) -> None:
    with pytest.raises(InputError, match=rf"--phases: has shares that add up to {total}\n"):
        phases_from(text)


def test_thirds_add_up() -> None:
    assert first_steps(phases_from("32:0.3333333,64:0.3333333,128:0.3333334"), 9) == [0, 3, 6]


def test_each_phase_begins_at_the_sum_of_the_shares_before_it() -> None:
    assert first_steps(phases_from("32:0.25,64:0.25,128:0.5"), 10) == [0, 2, 5]
    assert first_steps(phases_from("32:0.01,64:0.99"), 10) == [0, 0]  # too short for a step


def test_the_rows_of_a_step_have_at_most_the_length_of_its_phase(store: Path) -> None:
    source = source_of(store)
    widths = [width_of(source, step) for step in range(40)]
    assert max(widths[:30]) <= 16 < min(widths[30:])
    assert max(widths[30:]) <= 32


def test_a_phase_without_a_step_is_passed_over(store: Path) -> None:
    source = source_of(store, phases=phases_from("16:0.001,32:0.999"))
    assert width_of(source, 0) > 16


def test_a_step_is_a_function_of_its_number_only(store: Path) -> None:
    forwards, backwards = source_of(store), source_of(store)
    there = [forwards.step(step) for step in range(40)]
    back = [backwards.step(step) for step in reversed(range(40))][::-1]
    for one, other in zip(there, back, strict=True):
        assert one.counts == other.counts
        for mine, theirs in zip(one.micro_batches, other.micro_batches, strict=True):
            assert all((mine[name] == theirs[name]).all() for name in mine)


def test_phases_share_no_draws(store: Path) -> None:
    """Two phases of one length have other pairs, masks and order, as two epochs have."""
    source = source_of(store, phases=phases_from("32:0.5,32:0.5"))
    first, second = source.step(0), source.step(20)
    assert source.epoch_of(0) == source.epoch_of(20) == 0
    assert [batch["input_ids"].tolist() for batch in first.micro_batches] != [
        batch["input_ids"].tolist() for batch in second.micro_batches
    ]
    assert source.table(0, phase=0).start_b.tolist() != source.table(0, phase=1).start_b.tolist()


def test_each_phase_counts_its_own_epochs(store: Path) -> None:
    source = source_of(store)
    for phase, steps in enumerate([range(30), range(30, 40)]):
        epochs = [source.epoch_of(step) for step in steps]
        assert epochs[0] == 0
        rows = [row for step in steps if source.epoch_of(step) == 0 for row in source._place(step)[2].tolist()]
        assert len(set(rows)) == len(rows)
        if 1 in epochs:
            assert sorted(rows) == list(range(len(source.table(0, phase=phase))))
    assert source.epoch_of(29) > 0


def test_epochs_do_not_measure_a_run_in_phases(store: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"--phases: need a run whose steps are known, .*\n.*give --max_steps or --max"
    ):
        source_of(store).steps_of_epochs(2)
    words = ["--data_dir", store, "--output_dir", tmp_path / "run", "--phases", "16:0.5,32:0.5"]
    assert main(["pretrain", *map(str, words), "--num_train_epochs", "2"]) == 2


def test_a_length_besides_phases_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data_dir", "store", "--output_dir", str(tmp_path / "run"), "--phases", "16:0.5,32:0.5"]
    assert main(["pretrain", *words, "--max_seq_length", "24"]) == 2
    assert "--max_seq_length: is said by --phases already\n  value: 24" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [7, 9], ids=["in the first phase", "where the second begins"])
def test_a_run_in_phases_that_is_stopped_equals_one_that_is_not(store: Path, tmp_path: Path, stop: int) -> None:
    values: dict[str, Any] = {"phases": "16:0.75,32:0.25", "max_seq_length": 32, "save_every": 1}
    pretrain(toy_config(store, tmp_path / "straight", **values))
    with stopped_before(stop):
        pretrain(toy_config(store, tmp_path / "run", **values))
    pretrain(toy_config(store, tmp_path / "run", resume_from="last", **values))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "straight")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "straight")]
    assert weights[0] == weights[1]
