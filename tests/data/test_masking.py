"""Masking: the exact count, who may be hidden or drawn, and independence of batch, padding and order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_data import TOY, toy_ids, vocabulary_of

from bertkit.data.masking import MaskedRows, MaskingSettings, mask_tokens, num_targets
from bertkit.errors import InputError
from bertkit.text.vocabulary import Vocabulary

LARGE = vocabulary_of(1000)
NEVER = [TOY.pad_id, TOY.unk_id, TOY.cls_id, TOY.sep_id, TOY.mask_id, *(TOY.ids[f"[unused{n}]"] for n in (1, 2, 99))]


def masked(
    rows: NDArray[np.int64],
    *,
    vocabulary: Vocabulary = TOY,
    settings: MaskingSettings | None = None,
    index: NDArray[np.int64] | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> MaskedRows:
    return mask_tokens(
        rows,
        index=np.arange(len(rows)) if index is None else index,
        ordinary=vocabulary.ordinary,
        mask_id=vocabulary.mask_id,
        settings=settings or MaskingSettings(),
        seed=seed,
        epoch=epoch,
    )


def padded(*rows: list[int], width: int = 0) -> NDArray[np.int64]:
    width = max(width, *map(len, rows))
    return np.array([row + [TOY.pad_id] * (width - len(row)) for row in rows])


MOON = [TOY.cls_id, *toy_ids("明月几时有，把酒问青天。"), TOY.sep_id]
HEAVEN = [TOY.cls_id, *toy_ids("god created heaven and earth ."), TOY.sep_id, *toy_ids("in the"), TOY.sep_id]
SHARES = st.floats(0, 1)
ROWS = st.lists(st.integers(0, TOY.size - 1), min_size=1, max_size=60)


# ---- the exact count ----


@given(st.lists(ROWS, min_size=1, max_size=4), SHARES, st.none() | st.integers(1, 20))
def test_every_row_has_exactly_the_count_of_the_law(rows: list[list[int]], share: float, cap: int | None) -> None:
    ids = padded(*rows)
    found = masked(ids, settings=MaskingSettings(mlm_probability=share, max_predictions_per_seq=cap))
    for row, selected in zip(ids, found.selected, strict=True):
        eligible = int(TOY.ordinary[row].sum())
        wanted = min(eligible, max(1, int(np.floor(share * eligible + 0.5)))) if share else 0
        assert selected.sum() == min(wanted, wanted if cap is None else cap)


@pytest.mark.parametrize(
    ("eligible", "share", "cap", "wanted"),
    [
        *[(0, 0.15, None, 0), (1, 0.15, None, 1), (3, 0.15, None, 1), (10, 0.15, None, 2), (20, 0.15, None, 3)],
        *[(23, 0.15, None, 3), (24, 0.15, None, 4), (200, 0.15, 20, 20), (5, 1.0, None, 5), (5, 0.0, None, 0)],
    ],
)
def test_known_counts(eligible: int, share: float, cap: int | None, wanted: int) -> None:
    settings = MaskingSettings(mlm_probability=share, max_predictions_per_seq=cap)
    assert num_targets(np.array([eligible]), settings).tolist() == [wanted]
    assert num_targets(np.array([eligible]), settings).dtype == np.int64


def test_a_row_of_three_tokens_always_has_a_target() -> None:
    rows = np.array([[TOY.cls_id, *toy_ids("明月几"), TOY.sep_id]] * 200)
    for epoch in range(3):
        assert (masked(rows, epoch=epoch).selected.sum(axis=1) == 1).all()


def test_a_row_without_an_ordinary_token_has_no_target() -> None:
    rows = padded([TOY.cls_id, TOY.unk_id, TOY.unk_id, TOY.sep_id, TOY.ids["[unused1]"], TOY.mask_id], MOON)
    found = masked(rows, settings=MaskingSettings(mlm_probability=1.0))
    assert not found.selected[0].any()
    assert found.input_ids[0].tolist() == rows[0].tolist()
    assert found.selected[1].sum() == len(MOON) - 2


# ---- who may be hidden, who may be drawn ----


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 100))
def test_special_unknown_unused_tokens_and_padding_are_never_touched(rows: list[list[int]], seed: int) -> None:
    ids = padded(*rows, width=64)
    found = masked(ids, settings=MaskingSettings(mlm_probability=1.0), seed=seed)
    never = np.isin(ids, NEVER)
    assert not found.selected[never].any()
    assert found.selected[~never].all()
    assert (found.input_ids[never] == ids[never]).all()


def test_only_ordinary_tokens_are_drawn_and_every_one_is() -> None:
    rows = np.tile(np.array(MOON), (400, 1))
    everything_random = MaskingSettings(mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=1.0)
    found = masked(rows, settings=everything_random)
    drawn = found.input_ids[found.selected]
    assert set(drawn.tolist()) == set(np.flatnonzero(TOY.ordinary).tolist())
    assert not set(drawn.tolist()) & set(NEVER)


def test_what_is_not_selected_stays_as_it_is() -> None:
    rows = padded(MOON, HEAVEN, MOON)
    before = rows.copy()
    found = masked(rows, settings=MaskingSettings(mlm_probability=0.5))
    assert (rows == before).all()  # the given array is not written to
    assert (found.input_ids[~found.selected] == rows[~found.selected]).all()


@pytest.mark.parametrize(
    ("mask", "random", "kept"), [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.5, 0.2, 0.3)]
)
def test_other_shares_of_replacement_are_honoured(mask: float, random: float, kept: float) -> None:
    rows = np.random.default_rng(0).integers(20, 1000, (400, 50))
    settings = MaskingSettings(mlm_probability=1.0, mask_replace_prob=mask, random_replace_prob=random)
    output = masked(rows, vocabulary=LARGE, settings=settings).input_ids
    assert abs((output == LARGE.mask_id).mean() - mask) < 0.02
    assert abs((output == rows).mean() - kept) < 0.02


# ---- a function of (seed, epoch, index) ----


@given(st.permutations(range(6)), st.integers(0, 40), st.integers(0, 3))
def test_a_rows_mask_does_not_depend_on_its_batch_its_place_or_its_padding(
    order: list[int], more: int, epoch: int
) -> None:
    rows = [MOON, HEAVEN, MOON[:5], HEAVEN + MOON, MOON, HEAVEN[:4]]
    index = np.array([7, 0, 3, 10**6, 8, 2])
    settings = MaskingSettings(mlm_probability=0.4)
    together = masked(
        padded(*(rows[row] for row in order), width=40 + more), index=index[order], epoch=epoch, settings=settings
    )
    for place, row in enumerate(order):
        alone = masked(np.array([rows[row]]), index=index[[row]], epoch=epoch, settings=settings)
        width = len(rows[row])
        assert together.input_ids[place, :width].tolist() == alone.input_ids[0].tolist()
        assert together.selected[place, :width].tolist() == alone.selected[0].tolist()
        assert not together.selected[place, width:].any()


def test_the_mask_does_not_depend_on_padding_even_where_draws_nearly_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The low bits of a draw make room for the position: as many of them in a narrow row as in a wide one."""

    def nearly_equal(self: object, *, index: object, lane: object = 0) -> NDArray[np.uint64]:
        return np.uint64(1 << 40) - np.uint64(32) * (lane + 0 * np.asarray(index)).astype(np.uint64)

    monkeypatch.setattr("bertkit.data.random.Stream.bits", nearly_equal)
    narrow, wide = masked(padded(MOON)), masked(padded(MOON, width=500))
    assert narrow.selected[0].tolist() == wide.selected[0, : len(MOON)].tolist()


def test_the_same_token_hidden_in_one_row_is_seen_in_another() -> None:
    found = masked(np.array([MOON] * 50))  # 2 of 12 tokens: 66 ways
    assert len({tuple(row) for row in found.selected.tolist()}) > 25


def test_masks_come_again_with_the_seed_and_change_with_epoch_and_seed() -> None:
    rows = np.array([MOON] * 20)
    first, again, epoch, seed = masked(rows), masked(rows), masked(rows, epoch=1), masked(rows, seed=1)
    assert first.input_ids.tolist() == again.input_ids.tolist()
    assert first.selected.tolist() == again.selected.tolist()
    for other in (epoch, seed):
        assert (first.selected != other.selected).any(axis=1).sum() > 15


def test_a_higher_rate_hides_the_same_tokens_and_more() -> None:
    rows = padded(MOON, HEAVEN)
    few, many = (masked(rows, settings=MaskingSettings(mlm_probability=p)).selected for p in (0.15, 0.5))
    assert (many | ~few).all()
    assert many.sum() > few.sum()


# ---- by hand ----


def test_everything_hidden_by_hand() -> None:
    rows = padded([*MOON[:3], TOY.unk_id, TOY.sep_id], [TOY.cls_id, *toy_ids("酒"), TOY.sep_id])
    settings = MaskingSettings(mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0)
    found = masked(rows, settings=settings)
    hidden = TOY.mask_id
    assert found.input_ids.tolist() == [
        [TOY.cls_id, hidden, hidden, TOY.unk_id, TOY.sep_id],
        [TOY.cls_id, hidden, TOY.sep_id, TOY.pad_id, TOY.pad_id],
    ]
    assert found.selected.tolist() == [[False, True, True, False, False], [False, True, False, False, False]]


# ---- settings ----


@pytest.mark.parametrize("field", ["mlm_probability", "mask_replace_prob", "random_replace_prob"])
@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan")])
def test_a_share_out_of_range_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"--{field}: is not a share\n  value: {value}\n  expected: 0 to 1"):
        MaskingSettings(**{field: value})


def test_more_replaced_than_hidden_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"0\.8 \+ 0\.3 is more than all hidden tokens\n  expected: a sum of at most 1"
    ):
        MaskingSettings(random_replace_prob=0.3)


def test_a_cap_that_hides_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"--max_predictions_per_seq: is out of range\n  value: 0\n"):
        MaskingSettings(max_predictions_per_seq=0)


@pytest.mark.parametrize(("mask", "random"), [(0.9, 0.1), (0.7, 0.3), (1.0, 0.0), (1 / 3, 2 / 3)])
def test_shares_that_make_one_are_accepted(mask: float, random: float) -> None:
    assert MaskingSettings(mask_replace_prob=mask, random_replace_prob=random)
