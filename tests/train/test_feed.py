"""Batches made ahead by other processes: an error of theirs comes out as itself."""

import multiprocessing

import pytest
from toy_job import BrokenBatches

from bertkit.errors import InputError
from bertkit.train.feed import feed


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_source_comes_out_as_its_own_message(workers: int) -> None:
    batches = feed(BrokenBatches(), start=0, end=9, workers=workers, pin_memory=False)
    next(batches)
    next(batches)
    with pytest.raises(InputError) as caught:
        next(batches)
    assert str(caught.value) == "shard-00007.arrow: is damaged\n  what to do: prepare the store again"
    assert multiprocessing.active_children() == []
