"""`bertkit fill-mask` through the front door: what is printed, and one message where it cannot answer."""

import json
from pathlib import Path

import pytest
import toy_model as toy

from bertkit.cli import main
from bertkit.pipelines import FillMask

TWO_MASKS = "我住长江头，[MASK]住长[MASK]尾。"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(toy.model_folder(tmp_path_factory.mktemp("model"), toy.random_model()))


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    assert main(["fill-mask", "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["fill-mask", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("error: ") == 1
    assert "Traceback" not in printed.err
    return printed.err


def test_two_lines_in_one_call_give_three_lines_each(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill-mask", "--model", folder, toy.RIVER, toy.DAY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("original: ") for line in lines if line.startswith("original: ")] == [toy.RIVER, toy.DAY]
    for name in ("masked:   ", "filled:   "):
        assert len([line for line in lines if line.startswith(name)]) == 2
    assert lines.count("mask 1:") == lines.count("mask 2:") == 2
    assert len([line for line in lines if line.startswith("  ")]) == 2 * 2 * 5


def test_json_holds_all_that_python_gives(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(capsys, "--model", folder, "--top_k", "3", TWO_MASKS, toy.GOLD)
    expected = list(FillMask(folder).fill([TWO_MASKS, toy.GOLD], top_k=3))
    assert [answer["original"] for answer in found] == [TWO_MASKS, toy.GOLD]
    for answer, filled in zip(found, expected, strict=True):
        assert filled.joint is None
        assert answer == {name: value for name, value in vars(filled).items() if name in answer}
        assert answer.keys() == {"original", "masked", "filled", "candidates"}
        assert all(r.keys() == {"score", "token", "token_str", "sequence"} for c in answer["candidates"] for r in c)


def test_flags_choose_the_places(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    def masked(*words: str) -> list[str]:
        return [answer["masked"] for answer in answers(capsys, "--model", folder, *words)]

    texts = [toy.RIVER, toy.DAY, toy.WHEN]
    assert masked("--seed", "7", *texts) == masked("--seed", "7", *texts)
    assert masked("--seed", "7", *texts) != masked("--seed", "8", *texts)
    [half] = masked("--mlm_probability", "0.5", toy.RIVER)
    assert half.count("[MASK]") == 6
    [more] = masked("--masked", "false", TWO_MASKS)
    assert more.count("[MASK]") == 2 + 2  # a share of 0.15 of the ten other tokens, half a token rounded up
    assert masked(TWO_MASKS) == masked("--masked", "true", TWO_MASKS) == [TWO_MASKS]


def test_a_file_gives_its_lines_in_order(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [toy.TEXTS[i % len(toy.TEXTS)] + "君" * (i % 5) for i in range(40)]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    assert [a["original"] for a in answers(capsys, "--model", folder, "--input_file", str(path))] == texts


def test_blank_lines_of_a_file_are_all_named(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(f"{toy.RIVER}\n\n{toy.DAY}\n \u3000\n", encoding="utf-8")
    message = refusal(capsys, "--model", folder, "--input_file", str(path))
    assert f"{path}:2: is a blank line" in message
    assert f"{path}:4: is a blank line" in message
    assert "what to do: remove it" in message


def test_every_line_that_cannot_be_filled_is_named_before_the_first_answer(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(f"{toy.RIVER}\n{'late ' * 63}\n{toy.DAY}\n\u200b\n", encoding="utf-8")
    message = refusal(capsys, "--model", folder, "--input_file", str(path))
    assert f"{path}:2: has 65 tokens" in message
    assert f"{path}:4: holds no token" in message
    assert "text 2" not in message
    message = refusal(capsys, "--model", folder, "--input_file", str(path), "--score")
    assert f"{path}:4: holds no token of the vocabulary" in message


def test_masks_are_filled_together_on_demand(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    [answer] = answers(capsys, "--model", folder, "--joint", "--top_k", "2", TWO_MASKS)
    [expected] = FillMask(folder).fill([TWO_MASKS], joint=True, top_k=2)
    assert answer["joint"] == expected.joint
    assert main(["fill-mask", "--model", folder, "--joint", "--top_k", "2", TWO_MASKS]) == 0
    assert "all masks together:\n" in capsys.readouterr().out


def test_targets_alone_are_scored_on_demand(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    [answer] = answers(capsys, "--model", folder, "--targets", "君,长江", TWO_MASKS)
    assert {record["token_str"] for record in answer["candidates"][0]} == {"君", "长江"}


def test_texts_are_scored_on_demand(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    [one, other] = answers(capsys, "--model", folder, "--score", toy.RIVER, toy.GOLD)
    assert one["text"] == toy.RIVER
    assert other["pseudo_perplexity"] == pytest.approx(next(FillMask(folder).score([toy.GOLD])).pseudo_perplexity)
    assert main(["fill-mask", "--model", folder, "--score", "君猫"]) == 0
    printed = capsys.readouterr().out
    assert "pseudo-perplexity" in printed
    assert "1, 1 unknown left out" in printed


@pytest.mark.parametrize("flag", [["--joint"], ["--targets", "君"], ["--masked", "false"]])
def test_scoring_takes_no_flag_of_filling(folder: str, capsys: pytest.CaptureFixture[str], flag: list[str]) -> None:
    message = refusal(capsys, "--model", folder, "--score", *flag, toy.RIVER)
    assert "--score: hides each token alone, and nothing else" in message


def test_without_texts_or_with_both_kinds_it_says_how(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], [toy.RIVER, "--input_file", "texts.txt"]):
        message = refusal(capsys, "--model", folder, *words)
        assert "texts: give texts on the command line or --input_file, one of the two" in message
        assert 'what to do: bertkit fill-mask --model DIR "' in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--masked", "true", toy.RIVER], "text 1: holds no [MASK]"),
        ([toy.RIVER, ""], "text 2: holds no token"),
        ([toy.RIVER, "late " * 63], "text 2: has 65 tokens, special ones included, but the model has 64 positions"),
        (["--top_k", "0", toy.RIVER], "--top_k: is no number of answers"),
        (["--mlm_probability", "2", toy.RIVER], "--mlm_probability: is not a share"),
        (["--input_file", "nowhere.txt"], "nowhere.txt: does not exist"),
    ],
)
def test_what_cannot_be_filled_is_one_message(
    folder: str, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in refusal(capsys, "--model", folder, *words)


def test_a_folder_that_cannot_answer_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere: does not exist" in refusal(capsys, "--model", str(tmp_path / "nowhere"), toy.RIVER)
    headless = toy.model_folder(tmp_path / "headless", toy.random_model(head="next_sentence"))
    assert "has no masked-LM head (MLM head)" in refusal(capsys, "--model", str(headless), toy.RIVER)
    small = toy.random_model(config=toy.toy_config(vocab_size=20))
    mixed = toy.model_folder(tmp_path / "mixed", small)
    assert "tokens, the model 20" in refusal(capsys, "--model", str(mixed), toy.RIVER)
    maskless = toy.model_folder(tmp_path / "maskless", toy.random_model())
    (maskless / "tokenizer.json").unlink()
    lines = (maskless / "vocab.txt").read_text(encoding="utf-8").replace("[MASK]", "[mask]")
    (maskless / "vocab.txt").write_text(lines, encoding="utf-8")
    assert "vocab.txt: has no [MASK]" in refusal(capsys, "--model", str(maskless), toy.RIVER)


def test_of_a_run_that_has_not_finished_the_checkpoint_to_ask_is_named(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("step-8", "step-12", "step-16.tmp"):
        (tmp_path / "run" / "checkpoints" / name).mkdir(parents=True)
    message = refusal(capsys, "--model", str(tmp_path / "run"), toy.RIVER)
    assert "run: is a run that has not finished" in message
    assert f"ask its last checkpoint, {tmp_path / 'run' / 'checkpoints' / 'step-12'}, or let it finish" in message
