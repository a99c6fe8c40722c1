"""`bertkit demo`: the whole way on small texts, what it prints, and what it leaves behind when it stops."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.text import corpora
from bertkit.text.corpora import CorpusReport
from bertkit.text.documents import UnitCount, part_of

NAMES, VERBS, PLACES = (
    ("江月", "东风", "落花", "孤舟", "明朝"),
    ("照", "过", "入", "别", "忆"),
    ("楼台", "天涯", "平湖"),
)
WHO, DOES, WHERE = ("the king", "a girl", "my brother", "the old man"), ("sees", "loves", "left"), ("the sea", "a tree")
STEPS = ("--max_steps", "3")


def chinese(number: int, *, sentences: int = 3) -> list[str]:
    """So many ci of a small grammar, all different."""
    draw = random.Random(1)
    lines = ["".join(f"{draw.choice(NAMES)}{draw.choice(VERBS)}{draw.choice(PLACES)}。" for _ in range(sentences))]
    while len(lines) < number:
        lines.append(
            "".join(f"{draw.choice(NAMES)}{draw.choice(VERBS)}{draw.choice(PLACES)}。" for _ in range(sentences))
        )
        lines = list(dict.fromkeys(lines))
    return lines


def english(number: int) -> list[str]:
    draw = random.Random(2)
    lines: dict[str, None] = {}
    while len(lines) < number:
        said = [f"{draw.choice(WHO)} {draw.choice(DOES)} {draw.choice(WHERE)}." for _ in range(3)]
        lines[" ".join(sentence[0].upper() + sentence[1:] for sentence in said)] = None
    return list(lines)


def without_test_part(lines: list[str]) -> list[str]:
    return [line for line in lines if part_of(line, validation_split=True) != "test"]


def text_file(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def demo(tmp_path: Path, *words: str, vocab_size: int = 400, positions: int = 128) -> tuple[int, Path]:
    """The exit code of a demo with a model of one narrow layer, and its folder."""
    config = tmp_path / "size.json"
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    # Wider than the vocabulary that is learnt, as real models often are.
    shape |= {"vocab_size": vocab_size, "max_position_embeddings": positions}
    config.write_text(json.dumps(shape), encoding="utf-8")
    run = tmp_path / "run"
    return main(["demo", "--output_dir", str(run), "--model_size", str(config), *words]), run


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def half_written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith((".tmp", ".old"))]


@pytest.mark.parametrize("lines", [chinese(60), english(60)], ids=["Chinese", "English"])
def test_the_whole_way_ends_with_answers_and_what_to_try_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str]
) -> None:
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, lines)), *STEPS)
    out, err = capsys.readouterr()
    assert code == 0
    assert [line for line in err.splitlines() if line.startswith("— ")] == [
        f"— 1 of 6: the text is {tmp_path / 'corpus.txt'}",
        "— 2 of 6: a vocabulary is learnt from the training part",
        "— 3 of 6: text becomes token ids; a tenth each is kept for validation and test",
        "— 4 of 6: pre-training",
        "— 5 of 6: held-out results of the best model",
        "— 6 of 6: the model is asked about lines that were held out",
    ]
    assert "masked_lm_accuracy" in out
    [accuracy] = re.findall(r"next_sentence_accuracy +(\S+)", out)
    assert f"of all held-out pairs {100 * float(accuracy):.0f} % are judged right" in err
    test_lines = [line for line in lines if part_of(line, validation_split=True) == "test"]
    originals = re.findall(r"^original: (.*)$", out, flags=re.MULTILINE)
    assert len(originals) == 2
    assert all(any(line.startswith(original.strip()) for line in test_lines) for original in originals)
    assert len(re.findall(r"^masked:   .*\[MASK\]", out, flags=re.MULTILINE)) == 2
    assert len(re.findall(r"^filled:   (?!.*\[MASK\])", out, flags=re.MULTILINE)) == 2
    answers = [line for line in out.splitlines() if re.search(r" (true|false) +[01]\.\d\d$", line)]
    assert Counter(re.search("follows|random", line)[0] for line in answers) == {"follows": 4, "random": 4}
    assert f"model:  {run}" in out
    assert f'bertkit fill-mask --model {run} "' in out
    assert f"bertkit pretrain --data_dir {run}/store" in out
    assert {"config.json", "model.safetensors", "vocab.txt", "metrics.jsonl", "run.json", "store"} <= left(run)
    assert ("report.html" in left(run)) == (f"report: {run / 'report.html'}" in out)
    assert half_written(run) == []


def test_without_a_text_the_ci_are_fetched_and_the_famous_lines_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*chinese(30), "十年生死两茫茫。不思量。自难忘。", "我住长江头，君住长江尾。"]

    def fetch(name: str, *, output_file: Path) -> CorpusReport:
        assert name == "songci"
        output_file.parent.mkdir(parents=True, exist_ok=True)
        output_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return CorpusReport(output_file, "ci", UnitCount(read=32, kept=32))

    monkeypatch.setattr(corpora, "fetch_corpus", fetch)
    code, run = demo(tmp_path, *STEPS)
    out, err = capsys.readouterr()
    assert code == 0
    assert "— 1 of 6: the ci of the Song dynasty are fetched" in err
    assert (run / "songci.txt").is_file()
    originals = re.findall(r"^original: (.*)$", out, flags=re.MULTILINE)
    assert originals[-2:] == ["十年生死两茫茫。不思量。自难忘。", "我住长江头，君住长江尾。"]


def test_a_folder_that_holds_a_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run" / "checkpoints" / "step-5").mkdir(parents=True)
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, chinese(5))), *STEPS)
    assert code == 2
    message = capsys.readouterr().err
    assert f"error: {run}: --output_dir: holds a run already" in message
    assert f"bertkit pretrain --output_dir {run} --resume_from last" in message
    assert left(run) == {"checkpoints"}


def test_a_folder_that_holds_a_finished_model_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"weights")
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, chinese(5))), *STEPS)
    assert code == 2
    assert f"error: {run}: --output_dir: holds a model" in capsys.readouterr().err
    assert left(run) == {"model.safetensors"}


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, chinese(5))), *STEPS)
    assert code == 2
    assert f"{run}: --output_dir: is not a folder" in capsys.readouterr().err
    assert run.read_text(encoding="utf-8") == "mine"


TRAINING_LINE = next(line for line in chinese(9) if part_of(line, validation_split=True) == "train")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([TRAINING_LINE], "next-sentence pairs are impossible here: 1 document: a random B must come from another one"),
        (chinese(15, sentences=1), r"(\d+) of \1 documents have one sentence: 0 true pairs"),
    ],
    ids=["one document", "documents of one sentence"],
)
def test_a_text_without_pairs_stops_before_training_and_names_the_ways_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], problem: str
) -> None:
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, lines)), *STEPS)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert re.search(problem, err)
    assert "4 of 6" not in err
    assert "--format or --sentence_end" in err
    assert f"bertkit pretrain --data_dir {run}/store --output_dir {run} --pairing none" in err
    assert left(run) == {"store"}  # whole, and named as the way on
    assert (run / "store" / "manifest.json").is_file()


def test_the_way_on_that_is_named_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, "--input_file", str(text_file(tmp_path, [TRAINING_LINE])), *STEPS)
    [command] = re.findall(r"bertkit (pretrain .* --pairing none)", capsys.readouterr().err)
    size = ["--model_size", str(tmp_path / "size.json")]
    assert main([*command.split(), *size, *STEPS]) == 0
    assert {"model.safetensors", "store"} <= left(tmp_path / "run")


def test_a_text_that_cannot_be_read_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("十年生死\n".encode("gb18030"))
    code, run = demo(tmp_path, "--input_file", str(path), *STEPS)
    assert code == 2
    assert f"{path}:1" in capsys.readouterr().err
    assert left(run) == set()


def test_an_error_at_training_leaves_the_whole_store_and_no_half_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = str(text_file(tmp_path, chinese(20)))
    code, run = demo(tmp_path, "--input_file", corpus, *STEPS, vocab_size=7)
    assert code == 2
    assert "tokens in its vocabulary, the model 7" in capsys.readouterr().err
    assert left(run) == {"store"}
    assert half_written(run) == []
    code, run = demo(tmp_path, "--input_file", corpus, *STEPS)  # and the same folder can be used again
    assert code == 0


def test_a_text_without_a_test_part_still_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, run = demo(tmp_path, "--input_file", str(text_file(tmp_path, without_test_part(chinese(12)))), *STEPS)
    out, err = capsys.readouterr()
    assert code == 0
    assert "the text is too small: no document of the test part opens with a sentence to ask about" in err
    assert "original:" not in out
    assert f"model:  {run}" in out


def test_held_out_sentences_that_cannot_be_asked_about_do_not_end_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = next(text for i in range(99) if _is_test(text := f"囍{'龘' * i}！江月照楼台。"))  # all [UNK]
    long = next(text for i in range(64, 200) if _is_test(text := f"{'江月' * i}。东风入天涯。"))
    lines = [unknown, long, *chinese(60)]
    code, _ = demo(tmp_path, "--input_file", str(text_file(tmp_path, lines)), "--sentence_end", "。！", *STEPS)
    out, _ = capsys.readouterr()
    assert code == 0
    originals = re.findall(r"^original: (.*)$", out, flags=re.MULTILINE)
    assert len(originals) == 2
    assert {unknown.split("！")[0] + "！", long.split("。")[0] + "。"}.isdisjoint(originals)


def _is_test(text: str) -> bool:
    return part_of(text, validation_split=True) == "test"
