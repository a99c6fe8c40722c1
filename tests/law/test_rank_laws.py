"""Laws of many processes: order, sums, steps and metrics are those of one (promises B2–B5, case 31).

Two processes are started once and do everything that is checked here, one thing after the other.
"""

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from on_ranks import on_ranks
from rank_work import held_out
from resume_cells import Cell
from safetensors.torch import load_file
from toy_run import metrics_of, toy_config, toy_model_config, toy_tokenizer, write_store

from bertkit.commands.pretrain import pretrain
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.train import runtime
from bertkit.train.feed import StepBatches, feed
from bertkit.train.settings import TrainSettings

TOKENS = 200  # of a micro-batch: 32 rows are about five of them
# Runs on two processes, each of which is one of a single process in all but its processes.
RUNS: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw", "save_every": 6},
    "muon": {"optimizer": "muon"},
    "ema": {"ema_decay": 0.5},
    "mlm only": {"pairing": "none", "max_steps": 3},
    "empty micro-batches": {"batch_size": 3, "max_steps": 4, "micro_batch_tokens": 1},
    "frozen": {"freeze_layers": 1, "max_steps": 3},
    "computed again": {"gradient_checkpointing": True, "max_steps": 3},
}
SHARDED = {f"fsdp {name}": {"sharding": "fsdp", **values} for name, values in RUNS.items()}
SHARDED |= {f"fsdp {name}": {"sharding": "fsdp", "optimizer": "muon", **RUNS[name]} for name in ("ema", "frozen")}
COMMON = {"micro_batch_tokens": 64, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CUT = {"sharding": "fsdp", "optimizer": "muon", "ema_decay": 0.5, "save_every": 6, **COMMON}
CELLS = [Cell("mid-accumulation", 0, 4, "muon"), Cell("two stops", 0, 1, "ema")]
BAD = {
    "loss": {"on_non_finite": "stop", "optimizer": "adamw", "bad_rank": 1, "kind": "loss"},
    "gradient": {"on_non_finite": "stop", "optimizer": "muon", "bad_rank": 1, "kind": "gradient"},
    "skip": {"on_non_finite": "skip", "optimizer": "muon", "bad_rank": 0, "kind": "loss"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def pair(store: Path, folder: Path) -> list[Any]:
    """What two processes gave."""
    data, configs = {"store": str(store)}, {n: {**COMMON, **values} for n, values in (RUNS | SHARDED).items()}
    calls = [
        ["runs", "runs", {**data, "configs": configs}],
        ["minutes", "runs", {**data, "configs": {"minutes": {"max_steps": None, "max_minutes": 0.0005}}}],
        ["held out", "held_out", {**data, "rows": 11}],
        *([f"bad {name}", "one_bad_process", values] for name, values in BAD.items()),
        *(
            [sharding, "gradients", {**data, "steps": [0, 2], "micro_batch_tokens": TOKENS, "sharding": sharding}]
            for sharding in ("none", "fsdp")
        ),
        ["rehearsals", "rehearsals", data],
        ["taken", "taken_from_first", {}],
        ["resumed", "resumed", {**data, "values": CUT, "step": 6}],
        ["cells", "resume_cells", {**data, "cells": [list(vars(cell).values()) for cell in CELLS]}],
    ]
    return on_ranks(2, "several", folder, timeout=300.0, calls=calls)


def test_every_process_has_the_numbers_of_the_first(pair: list[Any]) -> None:
    """As a head start is counted by the first alone."""
    assert [found["taken"] for found in pair] == [[0.5, 0.5, 0.25], [0.5, 0.5, 0.25]]


# --- the order of data (B2) ----------------------------------------------------------------------------------------


def source_of(store: Path, *, rank: int = 0, num_ranks: int = 1, micro_batch_tokens: int = TOKENS) -> PretrainingSource:
    return PretrainingSource(
        open_parts(store)["train"],
        toy_tokenizer().vocabulary,
        PairSettings(max_seq_length=32),
        MaskingSettings(),
        seed=1,
        batch_size=32,
        micro_batch_tokens=micro_batch_tokens,
        rank=rank,
        num_ranks=num_ranks,
    )


def rows_in(batches: StepBatches) -> list[tuple[int, ...]]:
    """The rows of a step, its hidden tokens in place, without padding."""
    found = []
    for batch in batches.micro_batches:
        words = batch["input_ids"].clone().flatten()
        hidden = torch.zeros_like(words)
        hidden[batch["mlm_positions"]] = batch["mlm_targets"] + 1
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
        for row in range(len(mask)):
            kept = mask[row]
            both = torch.stack([words.view(mask.shape)[row][kept], hidden.view(mask.shape)[row][kept]])
            found.append(tuple(both.flatten().tolist()))
    return found


@pytest.mark.parametrize(("workers", "cases"), [(0, [1, 2, 4]), (2, [2])], ids=["here", "two data workers"])
def test_a_step_has_the_same_rows_for_any_processes_workers_and_micro_batches(
    store: Path, workers: int, cases: list[int]
) -> None:
    steps = source_of(store).steps_of_epochs(1) + 1
    expected = [sorted(rows_in(source_of(store).step(step))) for step in range(steps)]
    assert all(len(rows) == 32 for rows in expected[:-2])
    for num_ranks, tokens in product(cases, (1, TOKENS, 10**6) if workers == 0 else (TOKENS,)):
        shares = [
            list(
                feed(
                    source_of(store, rank=rank, num_ranks=num_ranks, micro_batch_tokens=tokens),
                    start=0,
                    end=steps,
                    workers=workers if rank == num_ranks - 1 else 0,
                    pin_memory=False,
                )
            )
            for rank in range(num_ranks)
        ]
        for step in range(steps):
            parts = [share[step] for share in shares]
            assert sorted(row for part in parts for row in rows_in(part)) == expected[step]
            assert len({len(part.micro_batches) for part in parts}) == 1  # no collective waits
            assert len({(part.tokens, part.slots, part.flops, *part.counts.values()) for part in parts}) == 1


def test_each_row_comes_once_an_epoch(store: Path) -> None:
    source = source_of(store)
    rows = [row for step in range(source.steps_of_epochs(1)) for row in source._place(step)[2].tolist()]
    assert sorted(rows) == list(range(len(source.table(0))))


# --- the sums of a step (B3) ---------------------------------------------------------------------------------------


def gradients_of_one(store: Path, step: int, *, micro_batch_tokens: int) -> tuple[dict[str, torch.Tensor], float]:
    runtime.start(TrainSettings())  # which seeds the weights
    module = PretrainingLoss(PretrainingModel(toy_model_config(dropout=0.0)))
    batches, value = source_of(store, micro_batch_tokens=micro_batch_tokens).step(step), 0.0
    for batch in batches.micro_batches:
        sums = module(batch).sums
        loss = torch.stack([total / batches.counts[name] for name, total in sums.items()]).sum()
        loss.backward()
        value += loss.item()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}, value


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("step", [0, 2], ids=["a full step", "the short last step"])
def test_two_processes_sum_to_the_gradient_of_one(
    store: Path, folder: Path, pair: list[Any], sharding: str, step: int
) -> None:
    assert source_of(store).step(2).counts["nsp"] < 32
    assert source_of(store).steps_of_epochs(1) == 3
    found = load_file(folder / sharding / f"gradients-{step}.safetensors")
    for tokens in (10**6, TOKENS):  # 1 × 32, and several micro-batches
        expected, loss = gradients_of_one(store, step, micro_batch_tokens=tokens)
        norm = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            assert (found[name] - gradient).norm() <= 1e-6 * norm, name
        for given in pair:
            length, their_loss = given[sharding][step // 2]
            assert length == pytest.approx(norm.item(), rel=1e-5)
            assert their_loss == pytest.approx(loss, rel=1e-6)


# --- runs on two processes are those of one ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def single(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runs on one process, made when first looked at."""
    made, parent = {}, tmp_path_factory.mktemp("single")

    class Runs(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            values = {key: value for key, value in (RUNS | SHARDED)[name].items() if key != "sharding"}
            pretrain(toy_config(store, parent / name, **{**COMMON, **values}))
            made[name] = self[name] = parent / name
            return self[name]

    return Runs()


def losses_of(run: Path, kind: str) -> list[float]:
    return [row["loss"] for row in metrics_of(run, kind=kind)]


@pytest.mark.parametrize("name", [*RUNS, *SHARDED])
def test_a_run_on_two_processes_has_the_losses_of_one(
    folder: Path, pair: list[Any], single: dict[str, Path], name: str
) -> None:
    run = folder / "runs" / name
    one = single[name if name in ("fsdp ema", "fsdp frozen") else name.removeprefix("fsdp ")]
    for kind in ("train", "validation"):
        assert losses_of(run, kind) == pytest.approx(losses_of(one, kind), rel=1e-5)
    steps = [row["tokens"] for row in metrics_of(one, kind="train")]
    assert [row["tokens"] for row in metrics_of(run, kind="train")] == steps
    mine, theirs = (load_file(each / "model.safetensors") for each in (run, one))
    assert mine.keys() == theirs.keys()
    for tensor_name, tensor in theirs.items():
        torch.testing.assert_close(mine[tensor_name], tensor, atol=1e-3, rtol=1e-3)
    assert isinstance(load(run, head="masked_lm" if name.endswith("mlm only") else "pretraining"), PretrainingModel)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_stop_leaves_no_trace_on_two_processes(pair: list[Any], cell: Cell) -> None:
    assert pair[0]["cells"][str(cell)] == []


def test_a_cut_model_goes_on_as_if_never_stopped(pair: list[Any]) -> None:
    assert pair[0]["resumed"] == []


def test_minutes_are_the_same_number_of_steps_on_all_processes(pair: list[Any]) -> None:
    first, second = (given["minutes"]["minutes"] for given in pair)
    assert first == second >= 1


def test_two_processes_rehearse_together_and_leave_nothing(pair: list[Any]) -> None:
    first, second = (given["rehearsals"] for given in pair)
    assert first["verify_resume"] == second["verify_resume"]
    assert first["verify_resume"][0][0] == "tensors compared, equal to the last bit"
    assert first["overfit_one_batch"] == second["overfit_one_batch"]
    assert dict(first["dry_run"])["parameters"] == "23,981"
    assert first["left"] == second["left"] == []


# --- another number of processes, or another machine (B3, B4) -------------------------------------------------------


def cut_back(run: Path, folder: Path, step: int) -> Path:
    """A copy of a run as it was after a step."""
    shutil.copytree(run, folder)
    for checkpoint in (folder / "checkpoints").iterdir():
        if checkpoint.is_dir() and checkpoint.name != f"step-{step}":
            shutil.rmtree(checkpoint)
    return folder


def test_a_run_of_two_processes_goes_on_with_one_where_that_is_allowed(
    store: Path, folder: Path, pair: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = cut_back(folder / "runs" / "adamw", tmp_path / "adamw", 6)
    values = {**COMMON, **RUNS["adamw"], "resume_from": "last", "hang_timeout": 60.0}
    with pytest.raises(InputError, match=r"was written by a run that differs: processes: 2 then, 1 now"):
        pretrain(toy_config(store, run, **values))
    pretrain(toy_config(store, run, allow_inexact=True, **values))
    assert "this resume is not exact (--allow_inexact): processes: 2 then, 1 now" in capsys.readouterr().err
    for kind in ("train", "validation"):
        assert losses_of(run, kind) == pytest.approx(losses_of(folder / "runs" / "adamw", kind), rel=1e-5)


@pytest.mark.slow
def test_a_model_cut_over_four_processes_goes_on_as_if_never_stopped(
    store: Path, tmp_path: Path, single: dict[str, Path]
) -> None:
    """Some tensors have fewer rows than there are processes."""
    [different, *_] = on_ranks(4, "resumed", tmp_path, store=str(store), values=CUT, step=6, timeout=300.0)
    assert different == []
    losses = (losses_of(run, "train") for run in (tmp_path / "resumed", single["fsdp ema"]))
    assert next(losses) == pytest.approx(next(losses), rel=1e-5)


@pytest.mark.slow
def test_fifty_steps_have_the_same_losses_on_one_two_and_four_processes(store: Path, tmp_path: Path) -> None:
    values = {**COMMON, "max_steps": 60, "eval_every": 30, "save_every": 10, "save_total_limit": 9}
    on_ranks(2, "runs", tmp_path / "two", store=str(store), configs={"run": values})
    more = {**values, "resume_from": "last", "allow_inexact": True}
    cut_back(tmp_path / "two" / "run", tmp_path / "four" / "run", 10)
    on_ranks(4, "runs", tmp_path / "four", store=str(store), configs={"run": more})
    one = cut_back(tmp_path / "two" / "run", tmp_path / "one", 10)
    pretrain(toy_config(store, one, **more))
    expected = losses_of(tmp_path / "two" / "run", "train")
    for run in (tmp_path / "four" / "run", one):
        found = losses_of(run, "train")
        assert len(found) == 60
        assert found == pytest.approx(expected, rel=1e-5)
        print(max(abs(a - b) / b for a, b in zip(found, expected, strict=True)))  # noqa: T201


@pytest.mark.slow
def test_a_process_that_gets_no_row_of_a_step_trains_along(store: Path, tmp_path: Path) -> None:
    values = {**COMMON, "max_steps": 3, "micro_batch_tokens": 10**6}  # one micro-batch a step
    on_ranks(2, "runs", tmp_path / "two", store=str(store), configs={"run": values})
    pretrain(toy_config(store, tmp_path / "one", **values))
    found = losses_of(tmp_path / "two" / "run", "train")
    assert len(found) == 3
    assert found == pytest.approx(losses_of(tmp_path / "one", "train"), rel=1e-5)


# --- what is not finite (B5) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_finite_on_one_process_changes_nothing_on_any(pair: list[Any], name: str) -> None:
    given = [each[f"bad {name}"] for each in pair]
    assert all(each["unchanged"] and each["skipped"] == 1 for each in given)
    assert given[0]["weights"] == given[1]["weights"]
    if name == "skip":
        assert [each["step"] for each in given] == [7, 7]
        return
    assert given[0]["message"] == given[1]["message"]
    assert f"the {name} of step 5 is nan; this step was not made (rows of step 4" in given[0]["message"]
    assert ("on process 1 of 2" in given[0]["message"]) == (name == "loss")


# --- held-out rows (case 31) ---------------------------------------------------------------------------------------


def test_eleven_held_out_rows_are_counted_once_by_two_processes(store: Path, pair: list[Any], tmp_path: Path) -> None:
    expected = held_out(tmp_path, store=str(store), rows=11)
    assert len(expected["is_next"]) == expected["counts"]["nsp"] == 11
    for given in (each["held out"] for each in pair):
        assert {name: given[name] for name in ("counts", "is_next", "rows")} == {
            name: expected[name] for name in ("counts", "is_next", "rows")
        }
        assert given["metrics"] == pytest.approx(expected["metrics"], rel=1e-12)
        assert json.dumps(given) == json.dumps(pair[0]["held out"])
