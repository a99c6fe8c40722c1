"""The report of a reading: every record accounted for, and said."""

import pytest

from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputError, InputErrors
from bertkit.options import config_from, options_of


def test_the_report_says_what_was_recognised_changed_dropped_and_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    report = ExampleReport("skip")
    report.note("x.csv: csv")
    report.note("x.csv: csv")
    report.warn("labels that differ in case")
    report.keep(3)
    report.drop("header row")
    report.add_problem(InputError("is broken"))
    report.changed["CRLF line end made LF"] += 5
    report.reject(InputError("is broken too"))
    report.finish(num_examples=2, flag="--train_file")
    report.say()
    assert capsys.readouterr().err.splitlines() == [
        "x.csv: csv",
        "warning: labels that differ in case",
        "  records read: 5",
        "  records kept: 2",
        "  records dropped: header row: 1",
        "  records skipped as broken: 2",
        "  changed: CRLF line end made LF: 5",
    ]
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems


def test_problems_are_raised_together_unless_they_may_be_skipped() -> None:
    for on_bad in ("error", "skip"):
        report = ExampleReport(on_bad)
        report.finish(num_examples=1, flag="--train_file")
        report.add_problem(InputError("one"))
        report.add_fatal(InputError("two"))
        with pytest.raises(InputErrors, match="2 of 2 problems shown"):
            report.finish(num_examples=1, flag="--train_file")


def test_files_of_which_nothing_is_left_are_refused() -> None:
    report = ExampleReport("skip")
    report.add_problem(InputError("one"))
    with pytest.raises(InputErrors, match=r"one\n--train_file: no example is left\n  value: 'records read: 1"):
        report.finish(num_examples=0, flag="--train_file")


def test_every_setting_is_a_flag_with_a_help_text() -> None:
    options = {option.name: option for option in options_of(ReadingSettings)}
    assert {"text_column", "separator", "choice_columns", "scheme", "on_bad", "repair_offsets"} <= options.keys()
    assert all(option.help for option in options.values())
    assert config_from(ReadingSettings, {"context": "startphrase"}).context == "startphrase"
