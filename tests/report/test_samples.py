"""What was filled into masked places, marked and escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.report.samples import MASK, SENTENCES_SHOWN, STEPS_SHOWN, places, samples_html


def row(step: int, masked: str, original: str, filled: str) -> dict[str, object]:
    return {"step": step, "samples": [{"masked": masked, "original": original, "filled": filled}]}


@pytest.mark.parametrize(
    ("masked", "text", "found"),
    [
        ("明月几[MASK]有？", "明月几时有？", ["时"]),
        ("[MASK]月几时[MASK]", "明月几时有", ["明", "有"]),
        ("天上[MASK][MASK]，今夕", "天上宫阙，今夕", ["宫阙"]),
        ("In the [MASK] God [MASK] it.", "In the beginning God created it.", ["beginning", "created"]),
        ("[MASK]", "月", ["月"]),
        ("a[MASK]a[MASK]", "aaab", ["a", "b"]),
    ],
)
def test_masked_places_are_found(masked: str, text: str, found: list[str]) -> None:
    spans = places(masked, text)
    assert spans is not None
    assert [text[start:end] for start, end in spans] == found


@pytest.mark.parametrize(
    ("masked", "text"),
    [("明月", "明月"), ("a[MASK]b", "x1b"), ("a[MASK]b", "a1c"), ("a[MASK]b[MASK]c", "a1x2c"), ("a[MASK]b", "ab")],
)
def test_texts_that_do_not_match_have_no_places(masked: str, text: str) -> None:
    assert places(masked, text) is None


@given(parts=st.lists(st.text("ab月", min_size=1), min_size=2, max_size=6), fills=st.lists(st.text("XY水", min_size=1)))
def test_fills_of_other_characters_are_found_exactly(parts: list[str], fills: list[str]) -> None:
    fills = (fills + ["X"] * len(parts))[: len(parts) - 1]
    text = parts[0] + "".join(fill + part for fill, part in zip(fills, parts[1:], strict=True))
    spans = places(MASK.join(parts), text)
    assert spans is not None
    assert [text[start:end] for start, end in spans] == fills


def test_right_and_wrong_fills_are_marked() -> None:
    html = samples_html([row(100, "明[MASK]几[MASK]有", "明月几时有", "明月几不有")])
    assert "明<mark class=right>月</mark>几<mark class=wrong>不</mark>有" in html
    assert "明<mark class=gap>[MASK]</mark>几<mark class=gap>[MASK]</mark>有" in html
    assert '<td lang="zh">' in html
    assert "step 100" in html


def test_english_is_compared_without_case() -> None:
    html = samples_html([row(1, "the [MASK] came", "the King came", "the king came")])
    assert "<mark class=right>king</mark>" in html
    assert '<td lang="en">' in html


def test_one_sentence_over_time_is_one_table_in_the_order_of_steps() -> None:
    rows = [row(step, "明[MASK]", "明月", "明日") for step in (10, 20, 30)]
    html = samples_html(rows)
    assert html.count("<table") == 1
    assert html.index("step 10") < html.index("step 20") < html.index("step 30")


def test_what_is_left_out_is_counted() -> None:
    many_steps = [row(step, "明[MASK]", "明月", "明日") for step in range(1, 31)]
    html = samples_html(many_steps)
    assert html.count("step ") == STEPS_SHOWN
    assert "20 steps between are left out." in html
    assert "step 1<" in html
    assert "step 30<" in html
    many_sentences = [row(1, f"{n}[MASK]", f"{n}月", f"{n}日") for n in range(20)]
    assert f"{SENTENCES_SHOWN} of 20 sentences are shown." in samples_html(many_sentences)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_becomes_markup(text: str) -> None:
    html = samples_html([row(1, text + "<b>[MASK]", text + "<b>x", text + "<b><i>")])
    assert "<b>" not in html
    assert "<i>" not in html
