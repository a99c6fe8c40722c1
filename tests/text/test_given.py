"""The texts a command is given: read twice, and each problem with its file and line."""

from pathlib import Path

import pytest

from bertkit.errors import InputError
from bertkit.text.given import GivenTexts, given_texts


def two_files(folder: Path) -> str:
    (folder / "a.txt").write_text("一\n二\n", encoding="utf-8")
    (folder / "b.txt").write_text("three\r\nfour", encoding="utf-8")
    return f"{folder / 'a.txt'},{folder / 'b.txt'}"


def test_lines_of_files_come_in_order_as_often_as_asked(tmp_path: Path) -> None:
    given = given_texts([], two_files(tmp_path), example="")
    assert list(given) == list(given) == ["一", "二", "three", "four"]


def test_texts_of_the_command_line_are_kept_as_typed() -> None:
    assert list(given_texts([" 一 ", ""], None, example="")) == [" 一 ", ""]


def test_problems_have_the_file_and_line_and_keep_the_part(tmp_path: Path) -> None:
    given = given_texts([], two_files(tmp_path), example="")
    problems = [(1, InputError("is bad", field="text 2")), (3, InputError("is worse", field="pair 4, B", value="four"))]
    with pytest.raises(InputError) as caught:
        given.refuse(iter(problems))
    assert str(caught.value) == (
        f"{tmp_path / 'a.txt'}:2: is bad\n{tmp_path / 'b.txt'}:2: B: is worse\n  value: 'four'\n2 of 2 problems shown"
    )


def test_without_a_file_the_number_of_the_text_stays() -> None:
    with pytest.raises(InputError, match=r"^text 2: is bad$"):
        GivenTexts(("a", "b"), ()).refuse([(1, InputError("is bad", field="text 2"))])


def test_no_problem_is_no_error() -> None:
    GivenTexts(("a",), ()).refuse([])


def test_many_problems_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("\n".join("abc" if number % 2 else " " for number in range(100)), encoding="utf-8")
    with pytest.raises(InputError, match="20 of 50 problems shown"):
        given_texts([], str(path), example="")
