"""The one error users meet."""

import copy
from pathlib import Path

import pytest

from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors


def test_a_message_says_where_what_was_found_what_was_expected_and_what_to_do() -> None:
    error = InputError(
        "is not a label",
        file=Path("数据.csv"),
        line=4,
        field="label",
        value="好",
        expected="one of 正面, 负面",
        remedy="mend the row",
    )
    assert str(error) == (
        "数据.csv:4: label: is not a label\n  value: '好'\n  expected: one of 正面, 负面\n  what to do: mend the row"
    )
    assert (error.file, error.line, error.field, error.value) == (Path("数据.csv"), 4, "label", "好")


def test_parts_that_are_not_given_are_not_shown() -> None:
    assert str(InputError("is empty")) == "is empty"
    assert str(InputError("is wrong", field="--seed", value=0)) == "--seed: is wrong\n  value: 0"


def test_an_input_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"poems.txt: is empty"):
        raise InputError("is empty", file="poems.txt")


def test_a_long_value_is_shortened_and_its_length_said() -> None:
    message = str(InputError("is too long", value="诗" * 10_000))
    assert len(message) < 400
    assert "(10002 characters)" in message


def test_many_problems_are_shown_up_to_a_limit_with_the_total() -> None:
    lines = str(InputErrors(InputError("is blank", line=n, file="a") for n in range(1, 31))).splitlines()
    assert lines[0] == "a:1: is blank"
    assert len(lines) == SHOWN_PROBLEMS + 1
    assert lines[-1] == "20 of 30 problems shown"


def test_what_to_do_about_a_kind_of_problems_is_said_once() -> None:
    one, other = (InputError("is no number", line=n, file="a", value="x" * n, remedy="mend it") for n in (1, 2))
    third = InputError("is no number", line=3, file="a", value="y", remedy="leave it out")
    assert str(InputErrors([one, other, third])) == (
        "a:1: is no number\n  value: 'x'\n  what to do: mend it\na:2: is no number: 'xx'\n"
        "a:3: is no number\n  value: 'y'\n  what to do: leave it out\n3 of 3 problems shown"
    )


def test_one_problem_of_several_reads_like_one() -> None:
    one = InputError("is blank", file="a", line=1)
    assert str(InputErrors([one])) == str(one)
    assert InputErrors([one]).problems == [one]


def test_an_error_without_a_problem_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        InputErrors([])


def test_errors_reach_another_process_as_they_are() -> None:
    one = InputError("is empty", file="poems.txt", line=3, field="text", value="", expected="a ci", remedy="remove it")
    for problem in (one, InputErrors([one, one], total=9)):
        again = copy.copy(problem)  # by the same calls as pickling, which this repository does without
        assert type(again) is type(problem)
        assert str(again) == str(problem)
        assert vars(again).keys() == vars(problem).keys()
