"""`bertkit next-sentence` through the front door: one answer a pair, one message where there is no pair."""

import json
from pathlib import Path

import pytest
import toy_model as toy

from bertkit.cli import main
from bertkit.pipelines import NextSentence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(toy.model_folder(tmp_path_factory.mktemp("model"), toy.random_model()))


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["next-sentence", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("error: ") == 1
    assert "Traceback" not in printed.err
    return printed.err


def file_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("pair", [(toy.RIVER, toy.DAY), (toy.GOLD, toy.LATE)])
def test_two_texts_give_is_next_and_its_probability(
    folder: str, capsys: pytest.CaptureFixture[str], pair: tuple[str, str]
) -> None:
    answer = NextSentence(folder)(*pair)
    assert main(["next-sentence", "--model", folder, *pair]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    verdict = str(answer["is_next"]).lower()
    assert rows == [["A", pair[0]], ["B", pair[1]], ["is_next", verdict], ["probability", f"{answer['score']:.4f}"]]


def test_a_file_of_pairs_is_answered_in_order_as_json(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(toy.TEXTS[i % 6], toy.TEXTS[(i * i + 1) % 6]) for i in range(40)]
    path = file_of(tmp_path, "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert main(["next-sentence", "--model", folder, "--json", "--input_file", path]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(answer["first"], answer["second"]) for answer in found] == pairs
    for answer, expected in zip(found, NextSentence(folder).judge(pairs), strict=True):
        assert answer.keys() == {"first", "second", "is_next", "score"}
        assert answer["is_next"] is expected["is_next"]
        assert answer["score"] == pytest.approx(expected["score"])


@pytest.mark.parametrize(
    ("line", "problem", "remedy"),
    [
        ("no tab here", "is no pair: it has no tab\n  value: 'no tab here'", "part the two texts by one tab"),
        ("君\t江\t0", "is no pair: it has 2 tabs", "part the two texts by one tab"),
        ("君\t ", "is half a pair", "give both texts"),
        ("\t江", "is half a pair", "give both texts"),
        ("", "is a blank line", "remove it"),
    ],
)
def test_a_line_that_is_no_pair_is_named_with_file_and_line(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, problem: str, remedy: str
) -> None:
    path = file_of(tmp_path, f"{toy.RIVER}\t{toy.DAY}\n{line}\n")
    message = refusal(capsys, "--model", folder, "--input_file", path)
    assert f"{path}:2: {problem}" in message
    assert f"what to do: {remedy}" in message


def test_all_lines_that_are_no_pairs_are_named_at_once(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path, f"one\n{toy.RIVER}\t{toy.DAY}\n\n")
    message = refusal(capsys, "--model", folder, "--input_file", path)
    assert f"{path}:1: is no pair" in message
    assert f"{path}:3: is a blank line" in message
    assert "2 of 2 problems shown" in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "texts: 0 texts were given"),
        (["君"], "texts: 1 text was given"),
        (["君", "江", "尾"], "texts: 3 texts were given"),
        (["君", "江", "--input_file", "pairs.tsv"], "texts: texts and --input_file were given"),
        (["君", ""], "pair 1, B: holds no token"),
        (["君" * 40, "江" * 40], "pair 1: has 83 tokens, special ones included, but the model has 64 positions"),
        (["--input_file", "nowhere.tsv"], "nowhere.tsv: does not exist"),
    ],
)
def test_what_cannot_be_judged_is_one_message(
    folder: str, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in refusal(capsys, "--model", folder, *words)


def test_a_folder_without_the_head_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headless = toy.model_folder(tmp_path, toy.random_model(head="masked_lm"))
    assert "has no next-sentence head" in refusal(capsys, "--model", str(headless), "君", "江")


def test_every_pair_that_cannot_be_judged_is_named_before_the_first_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = toy.model_folder(tmp_path / "model", toy.random_model())
    path = tmp_path / "pairs.txt"
    long = "君" * 40
    path.write_text(f"君\t君\n君\t\u200b\n君\t君\n{long}\t{long}\n", encoding="utf-8")
    assert main(["next-sentence", "--model", str(folder), "--input_file", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{path}:2: B: holds no token" in printed.err
    assert f"{path}:4: has 83 tokens" in printed.err
