"""Repeated texts are counted exactly, whether the hashes fit into memory or not."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit.data import repeats
from bertkit.data.repeats import RepeatCounter


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.sampled_from(["月", "明月", "moon", "the moon", "酒"])), held=st.integers(1, 8))
def test_the_count_is_that_of_a_plain_counter_however_many_are_held(
    tmp_path: Path, texts: list[str], held: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, RepeatCounter(tmp_path) as counter:
        patch.setattr(repeats, "HELD", held)
        for text in texts:
            counter.add(np.array([hash(text)]).view(np.uint64))
        assert counter.count() == sum(Counter(texts).values()) - len(Counter(texts))
    assert list(tmp_path.iterdir()) == []


def test_hashes_of_every_size_meet_their_equals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "HELD", 100)
    with RepeatCounter(tmp_path) as counter:
        for number in [*range(0, 2**64, 2**55), *range(0, 2**64, 2**56)]:
            counter.add(np.array([number], dtype=np.uint64))
        assert counter.count() == 2**8
