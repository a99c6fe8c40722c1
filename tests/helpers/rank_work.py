"""What tests let several processes do; started by on_ranks.py as `rank_work.py FUNCTION FOLDER ARGUMENTS`."""

import json
import math
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from resume_cells import Cell, differences, stopped_run, straight_run
from safetensors.torch import save_file
from toy_job import Poisoned, state_of, toy_job
from toy_run import toy_config, toy_model_config, toy_tokenizer
from toy_tasks import finetune_config

from bertkit.commands import pretrain as command
from bertkit.commands import running
from bertkit.commands.finetune import finetune
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.tasks.held_out import evaluate
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.train import loop, runtime, trial
from bertkit.train.loop import train
from bertkit.train.parallel import ParallelModule
from bertkit.train.settings import TrainSettings
from bertkit.train.shards import whole
from bertkit.train.state import TrainState


def resume_cells(folder: Path, store: str, cells: list[list[Any]]) -> dict[str, list[str]]:
    """Make every cell's run and say by its name what differs from a run never stopped."""
    num_ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    found = {}
    for cell in (Cell(*values) for values in cells):
        straight = straight_run(
            Path(store), folder, num_ranks=num_ranks, micro_batches=cell.micro_batches, optimizer=cell.optimizer
        )
        run = stopped_run(Path(store), folder, cell, num_ranks=num_ranks, is_last_rank=rank == num_ranks - 1)
        found[str(cell)] = differences(straight, run) if rank == 0 else []
    return found


def runs(folder: Path, store: str, configs: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Make runs by name, with the values of toy_config; return the steps that each has."""
    steps, with_length = {}, command._with_length

    def noted(*arguments: Any, **values: Any) -> command.Config:
        found = with_length(*arguments, **values)
        steps[name] = found.training.max_steps or 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "matrix_rate", lambda _: 1e9)
        patch.setattr(trial, "MEASURED_SECONDS", 0.1)
        patch.setattr(running, "write_report", lambda _: None)
        patch.setattr(command, "_with_length", noted)
        for name, values in configs.items():
            config = toy_config(Path(store), folder / name, hang_timeout=60.0, **values)
            command.pretrain(config)
    return steps


def held_out(folder: Path, store: str, rows: int) -> dict[str, Any]:
    """Evaluate a new model on so many rows, together."""
    started = runtime.start(TrainSettings())
    found = evaluate(
        PretrainingModel(toy_model_config()),
        open_parts(Path(store))["train"],
        vocabulary=toy_tokenizer().vocabulary,
        pairs=PairSettings(max_seq_length=32),
        max_rows=rows,
        micro_batch_tokens=128,
        runtime=started,
    )
    return {
        "metrics": found.metrics,
        "counts": found.counts,
        "is_next": found.is_next.tolist(),
        "rows": found.rows.tolist(),
    }


def gradients(folder: Path, store: str, steps: list[int], micro_batch_tokens: int, sharding: Any) -> list[list[float]]:
    """Write the gradients of steps, made together, into gradients-STEP.safetensors; return length and loss of each."""
    settings = TrainSettings(sharding=sharding, micro_batch_tokens=micro_batch_tokens, batch_size=32)
    started = runtime.start(settings)
    model = PretrainingModel(toy_model_config(dropout=0.0))
    module = ParallelModule(PretrainingLoss(model), started, units=list(model.encoder.layers), ema_decay=None)
    source = PretrainingSource(
        open_parts(Path(store))["train"],
        toy_tokenizer().vocabulary,
        PairSettings(max_seq_length=32),
        MaskingSettings(),
        seed=1,
        batch_size=32,
        micro_batch_tokens=micro_batch_tokens,
        rank=started.rank,
        num_ranks=started.num_ranks,
    )
    made = toy_job(folder / f"gradients-{started.rank}")
    job = replace(made.job, module=module, source=source, runtime=started, settings=settings)
    found = []
    for step in steps:
        batches = source.step(step)
        sums = loop._forward_and_backward(job, TrainState(step=step), batches)
        assert sums is not None
        tensors = {name: whole(p.grad).clone() for name, p in module.module.named_parameters() if p.grad is not None}
        if started.is_first:
            save_file(tensors, folder / f"gradients-{step}.safetensors")
        found.append([module.gradient_norm().item(), sum(v / batches.counts[k] for k, v in sums[0].losses.items())])
        module.module.zero_grad(set_to_none=True)
    return found


def one_bad_process(folder: Path, on_non_finite: str, optimizer: str, bad_rank: int, kind: str) -> dict[str, Any]:
    """Train while one process's share of step 5 is not finite; return what it said, and whether anything changed."""
    rank = int(os.environ["RANK"])
    values: dict[str, Any] = {"on_non_finite": on_non_finite, "optimizer": optimizer, "ema_decay": 0.5}
    made = toy_job(folder / f"toy-{rank}", rows=2, **values)
    if rank == bad_rank and kind == "loss":
        made = replace(made, job=replace(made.job, source=Poisoned(2, steps={4})))
    train(made.job, TrainState(), until=4)
    if rank == bad_rank and kind == "gradient":

        def spoil(gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (math.nan if state.step == 4 else 1.0)

        made.scores.linear.weight.register_hook(spoil)
    state, message = TrainState(step=4), ""
    before = _all_of(made)
    try:
        train(made.job, state, until=5)
    except InputError as problem:
        message = str(problem)
    after = _all_of(made)
    unchanged = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    if on_non_finite == "skip":
        train(made.job, state, until=7)
    weights = [p.detach().flatten().tolist() for p in made.scores.parameters()]
    return {
        "message": message,
        "unchanged": unchanged,
        "skipped": state.skipped_steps,
        "step": state.step,
        "weights": weights,
    }


def _all_of(made: Any) -> list[torch.Tensor]:
    return [*state_of(made), *(tensor.clone() for tensor in made.job.module.average.tensors.values())]


def resumed(folder: Path, store: str, values: dict[str, Any], step: int) -> list[str]:
    """Make a run of 12 steps, and its end again from the checkpoint of a step; say what differs between the two."""
    started, names = runtime.start(TrainSettings()), ("straight", "resumed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "matrix_rate", lambda _: 1e9)
        patch.setattr(running, "write_report", lambda _: None)
        for name in names:
            again = {"resume_from": f"{folder / name}/checkpoints/step-{step}"} if name == "resumed" else {}
            command.pretrain(toy_config(Path(store), folder / name, hang_timeout=60.0, **values, **again))
            started.wait_for_all()
            if started.is_first and name == "straight":
                shutil.copytree(folder / "straight", folder / "resumed")
                shutil.rmtree(folder / "resumed" / "checkpoints" / "step-12")
            started.wait_for_all()
    ends = [folder / name / "checkpoints" / "step-12" for name in names]
    files = [sorted(path.relative_to(end) for path in end.rglob("*.safetensors")) for end in ends]
    assert files[0] == files[1]
    return [str(name) for name in files[0] if (ends[0] / name).read_bytes() != (ends[1] / name).read_bytes()]


def rehearsals(folder: Path, store: str) -> dict[str, list[list[str]]]:
    """Rehearse together, in each way there is."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "matrix_rate", lambda _: 1e9)
        patch.setattr(trial, "MEASURED_SECONDS", 0.1)
        for name in ("dry_run", "verify_resume", "overfit_one_batch"):
            values = {name: True, "learning_rate": 0.02, "warmup_ratio": 0.0, "hang_timeout": 60.0, "max_steps": 100}
            found[name] = command._rehearsed(toy_config(Path(store), folder / "run", **values))
    runtime.start(TrainSettings()).wait_for_all()
    found["left"] = [[path.name] for path in folder.iterdir() if path.is_dir()]
    return found


def finetunings(folder: Path, base: str, files: dict[str, list[str]], values: dict[str, Any]) -> None:
    """Fine-tune on each kind's training and validation file, with the values of finetune_config."""
    for kind, (training, validation) in files.items():
        config = finetune_config(
            Path(base), Path(training), folder / kind, kind=kind, **{"validation_file": validation, **values}
        )
        finetune(config)


def taken_from_first(folder: Path) -> list[float]:
    """Take two tensors, one of them a parameter, from the first process; return their numbers."""
    own = runtime.start(TrainSettings())
    tensors = [torch.full((2,), own.rank + 0.5), torch.nn.Parameter(torch.full((1, 1), own.rank + 0.25))]
    own.take_from_first(tensors)
    return [number for tensor in tensors for number in tensor.flatten().tolist()]


def several(folder: Path, calls: list[list[Any]]) -> dict[str, Any]:
    """Do one thing after the other, [name, function, arguments] each, in one start of the processes."""
    found = {}
    for name, function, arguments in calls:
        (folder / name).mkdir(parents=True, exist_ok=True)
        found[name] = WORK[function](folder / name, **arguments)
    return found


WORK: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        resume_cells,
        runs,
        held_out,
        gradients,
        one_bad_process,
        resumed,
        rehearsals,
        taken_from_first,
        several,
        finetunings,
    )
}


def main() -> None:
    name, folder, arguments = sys.argv[1:]
    multiprocessing.set_forkserver_preload(["bertkit.tasks.pretraining"])  # so that data workers start in no time
    Path(folder).mkdir(parents=True, exist_ok=True)
    found = WORK[name](Path(folder), **json.loads(arguments))
    path = Path(folder) / f"{name}-{os.environ['RANK']}.json"
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
