"""Random numbers as a pure function of (seed, stream name, epoch, index, lane): no generator, no state, no order.

In: who asks for what.  Out: 64 random bits, a uniform number, an integer below n, or a permutation, for whole arrays.
Because nothing is shared, the numbers do not depend on workers, ranks, micro-batches or a resume.  Next: pairs.py
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# SplitMix64 (Steele, Lea, Flood 2014): its increment, and the two multipliers of its output function.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_FEISTEL_ROUNDS = 6


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function; a bijection on 64-bit words."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MULTIPLIER_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MULTIPLIER_2
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class Stream:
    """The random numbers of one purpose in one epoch.

    name: what they are for ("mask", "next_sentence" …); two names never share numbers.

    >>> stream = Stream(seed=1, name="example", epoch=0)
    >>> stream.below(100, index=[0, 1, 2]).tolist() == stream.below(100, index=[2, 1, 0])[::-1].tolist()
    True
    """

    seed: int
    name: str
    epoch: int

    @property
    def _key(self) -> NDArray[np.uint64]:
        """One hash of the three, (1,): array arithmetic wraps around without a warning."""
        text = f"{self.seed}/{self.name}/{self.epoch}".encode()
        return np.frombuffer(hashlib.sha256(text).digest()[:8], dtype="<u8").astype(np.uint64)

    def bits(self, *, index: object, lane: object = 0) -> NDArray[np.uint64]:
        """Return 64 random bits for each (index, lane), uint64, broadcast over both.

        index: which row of the data (int or array, ≥ 0); lane: which of its draws.
        The lanes of one index are a SplitMix64 sequence whose seed is a hash of key and index.
        """
        indices, lanes = np.asarray(index), np.asarray(lane)
        shape = np.broadcast_shapes(indices.shape, lanes.shape)
        indices, lanes = np.atleast_1d(indices.astype(np.uint64)), np.atleast_1d(lanes.astype(np.uint64))
        seeds = _mix(self._key + _GAMMA * (indices + np.uint64(1)))
        return _mix(seeds + _GAMMA * (lanes + np.uint64(1))).reshape(shape)

    def uniform(self, *, index: object, lane: object = 0) -> NDArray[np.float64]:
        """Return uniform float64 numbers, 0 ≤ u < 1, for each (index, lane)."""
        return (self.bits(index=index, lane=lane) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: object, *, index: object, lane: object = 0) -> NDArray[np.int64]:
        """Return int64 numbers, 0 ≤ number < limit, for each (index, lane); limit (int or array) is at least 1.

        The bias of scaling 53 bits is at most limit · 2⁻⁵³.
        """
        limits = np.asarray(limit)
        assert (limits >= 1).all(), "nothing lies below 0"
        numbers: NDArray[np.int64] = np.floor(self.uniform(index=index, lane=lane) * limits).astype(np.int64)
        return numbers

    def permuted(self, index: object, *, size: int) -> NDArray[np.int64]:
        """Return where each index (0 ≤ index < size) goes under one random permutation of `size` things.

        A Feistel network over the next even power of two, walked until it lands below `size`: any part of the
        permutation is had without making the whole of it.

        >>> sorted(Stream(seed=1, name="order", epoch=0).permuted(range(10), size=10).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        """
        numbers = np.atleast_1d(np.asarray(index)).astype(np.uint64)
        half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        outside = np.ones(numbers.shape, dtype=bool)
        while outside.any():
            numbers[outside] = self._feistel(numbers[outside], half)
            outside = numbers >= np.uint64(size)
        return numbers.astype(np.int64)

    def _feistel(self, numbers: NDArray[np.uint64], half: np.uint64) -> NDArray[np.uint64]:
        mask = (np.uint64(1) << half) - np.uint64(1)
        left, right = numbers >> half, numbers & mask
        for turn in range(_FEISTEL_ROUNDS):
            left, right = right, left ^ (self.bits(index=right, lane=turn) & mask)
        return (left << half) | right
