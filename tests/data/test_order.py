"""Order: each row once an epoch, the cut changes nothing, and every rank has its share."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertkit.data.order import MicroBatch, global_batch, micro_batches, steps_in_epoch

LENGTHS = st.lists(st.integers(3, 128), max_size=60)


def epoch_of(num_rows: int, batch_size: int, *, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [
        global_batch(seed=seed, epoch=epoch, step=step, num_rows=num_rows, batch_size=batch_size).tolist()
        for step in range(steps_in_epoch(num_rows, batch_size))
    ]


@settings(max_examples=50)
@given(st.integers(1, 300), st.integers(1, 70), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_has_every_row_once_and_only_its_last_batch_is_short(
    num_rows: int, batch_size: int, seed: int, epoch: int
) -> None:
    batches = epoch_of(num_rows, batch_size, seed=seed, epoch=epoch)
    assert sorted(chain(*batches)) == list(range(num_rows))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches[-1]) == num_rows - batch_size * (len(batches) - 1) > 0


def test_the_order_of_rows_does_not_depend_on_the_batch_size() -> None:
    assert [*chain(*epoch_of(100, 7))] == [*chain(*epoch_of(100, 32))] == epoch_of(100, 100)[0]


def test_the_order_is_another_in_every_epoch_and_with_every_seed() -> None:
    orders = {tuple(epoch_of(100, 100, seed=s, epoch=e)[0]) for s in range(3) for e in range(3)}
    assert len(orders) == 9


def test_a_step_is_had_without_the_steps_before_it() -> None:
    assert epoch_of(1000, 32)[17] == global_batch(seed=0, epoch=0, step=17, num_rows=1000, batch_size=32).tolist()
    assert len(global_batch(seed=0, epoch=0, step=32, num_rows=1000, batch_size=32)) == 0  # behind the end


def cuts_of(ranks: list[list[MicroBatch]]) -> list[NDArray[np.int64]]:
    return [cut.rows for rank in ranks for cut in rank]


@given(LENGTHS, st.integers(1, 1000), st.integers(1, 5))
def test_every_row_is_dealt_once_within_the_budget_and_ranks_get_the_same_number(
    lengths: list[int], micro_batch_tokens: int, num_ranks: int
) -> None:
    ranks = micro_batches(np.array(lengths, int), micro_batch_tokens=micro_batch_tokens, num_ranks=num_ranks)
    assert len(ranks) == num_ranks
    assert len({len(rank) for rank in ranks}) == 1
    cuts = [rows.tolist() for rows in cuts_of(ranks)]
    assert sorted(chain(*cuts)) == list(range(len(lengths)))
    for cut in cuts:
        own = [lengths[row] for row in cut]
        assert own == sorted(own, reverse=True)
        assert len(own) <= 1 or len(own) * own[0] <= micro_batch_tokens  # padding counted
    assert sum(not cut for cut in cuts) < num_ranks  # no more empty ones than are needed


@given(LENGTHS, st.integers(1, 1000), st.integers(1, 5))
def test_the_cuts_are_the_same_for_any_number_of_ranks(
    lengths: list[int], micro_batch_tokens: int, num_ranks: int
) -> None:
    one = micro_batches(np.array(lengths, int), micro_batch_tokens=micro_batch_tokens)
    many = micro_batches(np.array(lengths, int), micro_batch_tokens=micro_batch_tokens, num_ranks=num_ranks)
    assert sorted(rows.tolist() for rows in cuts_of(many) if len(rows)) == sorted(
        rows.tolist() for rows in cuts_of(one)
    )


def test_the_longest_come_first_and_are_dealt_in_snake_order() -> None:
    lengths = np.array([10, 80, 30, 70, 20, 60, 50, 40])  # a row a micro-batch
    ranks = micro_batches(lengths, micro_batch_tokens=1, num_ranks=3)
    assert [[int(lengths[cut.rows[0]]) if len(cut.rows) else 0 for cut in rank] for rank in ranks] == [
        [80, 30, 20],
        [70, 40, 10],
        [60, 50, 0],
    ]


def test_micro_batches_by_hand() -> None:
    [cuts] = micro_batches(np.array([5, 9, 5, 20, 5, 4]), micro_batch_tokens=18)
    assert [cut.rows.tolist() for cut in cuts] == [[3], [1, 0], [2, 4, 5]]


def test_rows_of_one_length_keep_their_order() -> None:
    [cuts] = micro_batches(np.full(7, 8), micro_batch_tokens=24)
    assert [cut.rows.tolist() for cut in cuts] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("num_ranks", [1, 2, 7])
def test_no_rows_are_no_micro_batches(num_ranks: int) -> None:
    assert micro_batches(np.zeros(0, int), micro_batch_tokens=10, num_ranks=num_ranks) == [[]] * num_ranks


@pytest.mark.parametrize(("rows", "batch_size", "steps"), [(64, 32, 2), (65, 32, 3), (1, 32, 1), (0, 32, 0)])
def test_steps_are_counted_with_the_short_one(rows: int, batch_size: int, steps: int) -> None:
    assert steps_in_epoch(rows, batch_size) == steps
