"""Curves as plain data."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_run import write_sample_run

from bertkit.report.charts import POINTS_SHOWN, Chart, charts_of, thinned
from bertkit.report.record import Record, read_record


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return read_record(write_sample_run(tmp_path))


def names(chart: Chart) -> list[str]:
    return [trace["name"] for trace in chart.figure["data"]]


def test_a_full_run_has_four_charts_with_axes_and_legends(record: Record) -> None:
    charts = charts_of(record)
    assert [chart.key for chart in charts] == ["mlm_accuracy", "nsp_accuracy", "losses", "learning_rate"]
    for chart in charts:
        layout = chart.figure["layout"]
        assert layout["xaxis"]["title"]["text"] == "step"
        assert layout["yaxis"]["title"]["text"]
        assert all(names(chart))
        assert chart.title
        assert chart.title_zh


def test_the_curves_are_the_recorded_values(record: Record) -> None:
    training, held_out, _ = charts_of(record)[0].figure["data"]
    assert training["x"] == [row["step"] for row in record.train]
    assert training["y"] == [row["mlm_accuracy"] for row in record.train]
    assert held_out["y"] == [row["mlm_accuracy"] for row in record.validation]


def test_the_losses_are_apart_and_summed_with_the_unigram_baseline_dashed(record: Record) -> None:
    chart = charts_of(record)[2]
    assert names(chart) == [
        "masked tokens, training",
        "masked tokens, held-out",
        "next sentence, training",
        "next sentence, held-out",
        "sum, training",
        "sum, held-out",
        "unigram baseline (6.20)",
    ]
    baseline = chart.figure["data"][-1]
    assert (baseline["x"], baseline["y"], baseline["line"]["dash"]) == ([10, 400], [6.2, 6.2], "dash")


def test_a_run_without_next_sentence_shows_none_of_it(tmp_path: Path) -> None:
    charts = charts_of(read_record(write_sample_run(tmp_path, next_sentence=False)))
    assert [chart.key for chart in charts] == ["mlm_accuracy", "losses", "learning_rate"]
    assert names(charts[1]) == ["masked tokens, training", "masked tokens, held-out", "unigram baseline (6.20)"]


@pytest.mark.parametrize("baseline", [None, float("nan"), "6.2", True])
def test_without_a_baseline_none_is_drawn(record: Record, baseline: object) -> None:
    without = replace(record, run={"unigram_loss": baseline})
    assert not any("baseline" in name for name in names(charts_of(without)[2]))


def test_a_run_that_has_just_begun_has_no_charts() -> None:
    assert charts_of(Record("run", [], [], [], {"unigram_loss": 5.0}, {}, [])) == []


def test_values_that_are_not_finite_are_gaps() -> None:
    rows = [{"step": 1, "mlm_loss": 2.0}, {"step": 2, "mlm_loss": float("nan")}, {"step": 3, "mlm_loss": None}]
    (chart,) = charts_of(Record("run", rows, [], [], {}, {}, []))
    assert chart.figure["data"][0]["y"] == [2.0, None, None]


@given(count=st.integers(0, 3 * POINTS_SHOWN))
def test_thinning_keeps_order_and_the_last_row(count: int) -> None:
    rows = [{"step": step} for step in range(count)]
    kept = thinned(rows)
    steps = [row["step"] for row in kept]
    assert len(kept) == min(count, POINTS_SHOWN)
    assert steps == sorted(set(steps))
    assert kept[-1:] == rows[-1:]
