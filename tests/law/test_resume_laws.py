"""Promise B1: a run that is stopped and goes on is to the last bit one that never stopped, wherever it is stopped.

A few cells of the matrix here, and on two processes in test_rank_laws.py; `make test-full` makes all 56 of each
optimizer.
"""

import json
import multiprocessing
from pathlib import Path

import pytest
from on_ranks import on_ranks
from resume_cells import EPOCH, OPTIMIZERS, Cell, all_cells, differences, stopped_run, straight_run
from toy_run import write_store

QUICK = [
    Cell("step 1", 0, 1, "ema"),
    Cell("mid-accumulation", 0, 4, "muon"),
    Cell("just after evaluation", 0, 1, "adamw"),
    Cell("last step", 0, 4, "ema"),
    Cell("mid-accumulation", 2, 4, "adamw"),
]
SECONDS_A_CELL = 60.0  # on a busy machine


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("resume"))


@pytest.fixture(scope="module", autouse=True)
def quick_start() -> None:
    """The server that forks data workers has torch loaded, unless it was started by a test before."""
    multiprocessing.set_forkserver_preload(["bertkit.tasks.pretraining"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_a_stop_leaves_no_trace(store: Path, folder: Path, cell: Cell) -> None:
    straight = straight_run(store, folder, num_ranks=1, micro_batches=cell.micro_batches, optimizer=cell.optimizer)
    assert differences(straight, stopped_run(store, folder, cell, num_ranks=1)) == []


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_all_56_ways_to_be_stopped_leave_no_trace(store: Path, tmp_path: Path, optimizer: str) -> None:
    cells = [[cell.stop, cell.workers, cell.micro_batches, cell.optimizer] for cell in all_cells(optimizer)]
    found = {}
    for num_ranks in (1, 2):
        [each, *_] = on_ranks(
            num_ranks,
            "resume_cells",
            tmp_path / str(num_ranks),
            store=str(store),
            cells=cells,
            timeout=len(cells) * SECONDS_A_CELL,
        )
        found |= {f"{num_ranks} processes, {name}": different for name, different in each.items()}
    different = {name: names for name, names in found.items() if names}
    print(f"{optimizer}: {len(found) - len(different)} of {len(found)} cells equal")  # noqa: T201
    assert len(found) == 56
    assert different == {}


def test_the_first_epoch_of_the_toy_store_ends_where_a_cell_stops(store: Path, folder: Path) -> None:
    straight_run(store, folder, num_ranks=1, micro_batches=1, optimizer="adamw")
    state = folder / "straight-adamw-1" / "checkpoints" / "step-26" / "training" / "state.json"
    assert json.loads(state.read_text(encoding="utf-8"))["source"]["epoch_starts"][0][:2] == [0, EPOCH]
