"""Random numbers: known answers, purity, uniformity, permutations."""

import hashlib
import math
from collections.abc import Iterator
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertkit.data.random import Stream

WORD = 2**64
SMALLEST_P = 1e-5
# What Stream(seed=12345, name="mask", epoch=3) gives: a run resumed under a newer version draws the same.
FROZEN_BITS = [4352683053667863761, 5320287493399915158, 2299583389763913698]
FROZEN_BELOW = [235, 125, 456, 815, 854, 518, 294, 410]
FROZEN_PERMUTATION = [5, 1, 6, 7, 0, 3, 9, 4, 8, 2]


def splitmix64(seed: int) -> Iterator[int]:
    """The published generator, one number at a time."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) % WORD
        bits = state
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % WORD
        yield bits ^ (bits >> 31)


def nth(seed: int, place: int) -> int:
    return next(islice(splitmix64(seed), place, None))


def test_the_reference_gives_the_published_numbers() -> None:
    assert list(islice(splitmix64(0), 3)) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(islice(splitmix64(1234567), 2)) == [6457827717110365317, 3203168211198807973]


@given(st.integers(0, 2**32), st.text(max_size=12), st.integers(0, 1000), st.integers(0, 300), st.integers(0, 200))
def test_bits_are_a_splitmix64_sequence_seeded_by_another(
    seed: int, name: str, epoch: int, index: int, lane: int
) -> None:
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}/{epoch}".encode()).digest()[:8], "little")
    assert int(Stream(seed, name, epoch).bits(index=index, lane=lane)) == nth(nth(key, index), lane)


def test_the_numbers_never_change_between_versions() -> None:
    stream = Stream(seed=12345, name="mask", epoch=3)
    assert stream.bits(index=[0, 1, 2**40], lane=[0, 7, 2**21]).tolist() == FROZEN_BITS
    assert stream.below(1000, index=np.arange(8)).tolist() == FROZEN_BELOW
    assert stream.permuted(range(10), size=10).tolist() == FROZEN_PERMUTATION


# ---- purity ----


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.data())
def test_a_number_depends_on_its_address_and_on_nothing_else(indices: list[int], data: st.DataObject) -> None:
    stream = Stream(7, "pairs", 0)
    order = data.draw(st.permutations(range(len(indices))))
    together = stream.bits(index=np.array(indices)[order], lane=5)
    assert together.tolist() == [int(stream.bits(index=indices[place], lane=5)) for place in order]


def test_index_and_lane_are_broadcast() -> None:
    stream = Stream(7, "mask", 0)
    table = stream.uniform(index=np.arange(3)[:, None], lane=np.arange(4)[None, :])
    assert table.shape == (3, 4)
    assert table[2, 3] == stream.uniform(index=2, lane=3)
    assert stream.uniform(index=2, lane=3).shape == ()
    assert stream.uniform(index=np.zeros((0, 4), int)).shape == (0, 4)
    assert stream.below([5, 6], index=[1, 2]).tolist() == [int(stream.below(5, index=1)), int(stream.below(6, index=2))]


def test_streams_of_another_seed_name_or_epoch_share_nothing() -> None:
    streams = [Stream(s, n, e) for s in (0, 1) for n in ("pairs", "mask", "order") for e in (0, 1)]
    numbers = [number for stream in streams for number in stream.bits(index=np.arange(1000)).tolist()]
    assert len(set(numbers)) == len(streams) * 1000


def test_the_draws_of_different_rows_and_lanes_share_nothing() -> None:
    bits = Stream(0, "mask", 0).bits(index=np.arange(200)[:, None], lane=np.arange(200)[None, :])
    assert len(np.unique(bits)) == 200 * 200


# ---- uniformity ----


@pytest.mark.parametrize("axis", ["index", "lane"])
def test_uniform_numbers_fill_zero_to_one_evenly(axis: str) -> None:
    many = np.arange(200_000)
    stream = Stream(3, "pairs", 1)
    numbers = stream.uniform(index=many) if axis == "index" else stream.uniform(index=0, lane=many)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert chisquare(np.histogram(numbers, bins=100, range=(0, 1))[0]).pvalue > SMALLEST_P
    neighbours = np.histogram2d(numbers[:-1:2], numbers[1::2], bins=20, range=[[0, 1], [0, 1]])[0]
    assert chisquare(neighbours.ravel()).pvalue > SMALLEST_P


def test_every_bit_is_set_half_of_the_time() -> None:
    bits = Stream(3, "trim", 1).bits(index=np.arange(100_000))
    shares = [int((bits >> np.uint64(place) & np.uint64(1)).sum()) / 100_000 for place in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 5 * 0.5 / math.sqrt(100_000)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10])
def test_integers_below_a_limit_come_equally_often(limit: int) -> None:
    numbers = Stream(9, "other", 0).below(limit, index=np.arange(50_000))
    assert chisquare(np.bincount(numbers, minlength=limit)).pvalue > SMALLEST_P or limit == 1
    assert set(numbers.tolist()) == set(range(limit))


@given(st.integers(1, 2**53 - 1))
def test_even_the_largest_uniform_number_stays_below_the_limit(limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "uniform", lambda self, *, index, lane=0: np.array([0.0, 1 - 2.0**-53]))
        assert Stream(0, "x", 0).below(limit, index=0).tolist() == [0, limit - 1]


def test_a_limit_below_one_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="nothing lies below 0"):
        Stream(0, "x", 0).below([3, 0], index=[0, 1])


# ---- permutations ----

SIZES = (1, 2, 3, 4, 5, 17, 64, 65, 1000, 4096, 4097)


@pytest.mark.parametrize("size", SIZES)
def test_a_permutation_gives_every_place_once(size: int) -> None:
    assert np.sort(Stream(1, "order", 0).permuted(np.arange(size), size=size)).tolist() == list(range(size))


@pytest.mark.parametrize("size", SIZES)
def test_a_part_of_a_permutation_is_that_part_of_the_whole(size: int) -> None:
    stream = Stream(2, "order", 5)
    whole = stream.permuted(np.arange(size), size=size)
    some = np.random.default_rng(0).integers(0, size, min(size, 30))
    assert stream.permuted(some, size=size).tolist() == whole[some].tolist()
    assert stream.permuted(np.arange(0), size=size).tolist() == []


def test_permutations_of_other_epochs_and_seeds_differ() -> None:
    orders = [tuple(Stream(s, "order", e).permuted(range(100), size=100)) for s in range(4) for e in range(4)]
    assert len(set(orders)) == 16


def test_all_permutations_of_three_things_come_equally_often() -> None:
    counts = dict.fromkeys(permutations(range(3)), 0)
    for epoch in range(3000):
        counts[tuple(Stream(0, "order", epoch).permuted(range(3), size=3).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > SMALLEST_P


def test_neighbours_do_not_stay_neighbours() -> None:
    places = Stream(0, "order", 0).permuted(np.arange(10_000), size=10_000)
    assert (np.abs(np.diff(places)) == 1).sum() < 15  # 2 are expected
    assert abs(np.corrcoef(places, np.arange(10_000))[0, 1]) < 0.05
