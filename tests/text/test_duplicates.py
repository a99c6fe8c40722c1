"""What came before: exactly, with any memory and any batches; and nearly, by the threshold that was given."""

import errno
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import InputError
from bertkit.text import duplicates
from bertkit.text.duplicates import SeenHashes, hashes_of, near_finder, shingles

ZH = "明月几时有？把酒问青天。不知天上宫阙，今夕是何年。我欲乘风归去，又恐琼楼玉宇，高处不胜寒。"
EN = "The rain had ceased, and the settlement awoke to a morning of gold. Nobody spoke of the night before."


@given(
    numbers=st.lists(st.integers(0, 40), max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=6),
    in_memory=st.integers(1, 30),
    at_once=st.integers(1, 8),
)
def test_first_times_do_not_depend_on_batches_or_memory(
    numbers: list[int], cuts: list[int], in_memory: int, at_once: int
) -> None:
    expected = [number not in numbers[:place] for place, number in enumerate(numbers)]
    seen, found = SeenHashes(), list[bool]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "HASHES_IN_MEMORY", in_memory)
        patch.setattr(duplicates, "HASHES_AT_ONCE", at_once)
        for start, end in pairwise(sorted({0, len(numbers), *cuts})):
            found += seen.first_times(hashes_of(map(str, numbers[start:end]))).tolist()
    seen.close()
    assert found == expected


def test_hashes_are_of_the_text_alone() -> None:
    assert hashes_of(["明月", "moon"]).tolist() == [*hashes_of(["明月"]).tolist(), *hashes_of(["moon"]).tolist()]
    assert hashes_of(["明月"]).tobytes().hex() == "220317393da734d1"  # b2sum -l 64
    assert len(np.unique(hashes_of(map(str, range(100_000))))) == 100_000


def test_a_full_temporary_folder_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(duplicates, "HASHES_IN_MEMORY", 1)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(InputError, match=r"No space left on device\n(.|\n)*TMPDIR=FOLDER"):
        SeenHashes().first_times(hashes_of(["a", "b"]))


@pytest.mark.parametrize("text", [ZH, EN])
def test_a_text_with_one_changed_character_is_nearly_the_same(text: str) -> None:
    pytest.importorskip("datasketch")
    earlier = near_finder(0.6)
    assert earlier("something else, of about the same length as the others are") is None
    assert earlier(text) is None
    assert earlier(text) == 1
    assert earlier(f"  {text.upper()}\n") == 1
    assert earlier(text[:-3] + "!") == 1
    assert earlier(text[: len(text) // 3]) is None


@pytest.mark.parametrize("threshold", [0.01, 0.3, 0.5, 0.9, 1.0])
def test_the_estimate_and_the_share_of_common_runs_agree(threshold: float) -> None:
    pytest.importorskip("datasketch")
    words = ["the", "of", "and", "rain", "gold", "settlement", "morning", "night", "silence", "before", "river", "moon"]
    for seed in range(12):
        text = " ".join(np.random.default_rng(seed).choice(words, 60))
        other = " ".join(text.split()[: 60 - 5 * seed] + [f"{seed}{n}" for n in range(seed)])
        common = set(shingles(text)) & set(shingles(other))
        share = len(common) / len(set(shingles(text)) | set(shingles(other)))
        earlier = near_finder(threshold)
        earlier(text)
        found = earlier(other) is not None
        if abs(share - threshold) > 0.15 or share == 1:
            assert found == (share >= threshold), (share, threshold)


def test_a_short_or_blank_text_has_one_run() -> None:
    assert shingles("月") == ["月".encode()]
    assert shingles(" \n") == [b""]


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match=r'near: needs the package datasketch\n.*pip install "bertkit\[clean\]"'):
        near_finder(0.8)
