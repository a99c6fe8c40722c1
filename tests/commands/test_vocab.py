"""`bertkit vocab`: the files, what they are learnt from, and the report."""

import re
from pathlib import Path

import pytest

from bertkit.commands.vocab import Config, build_vocabulary, learn_vocabulary, run
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings, part_of
from bertkit.text.tokenizer import load_tokenizer

CHINESE = [f"明月几时有？把酒问青天。第{n}首。" for n in range(40)]
ENGLISH = [f"The trees were seen by the sea, and the seeing was easy {n} times." for n in range(40)]
ALL = {"vocab_size": 30_000, "min_frequency": 2, "do_lower_case": True}


def corpus_of(folder: Path, lines: list[str]) -> CorpusSettings:
    path = folder / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return CorpusSettings(input_file=str(path), format="lines")


@pytest.mark.parametrize("lines", [CHINESE, ENGLISH])
def test_the_files_written_are_the_tokenizer_that_was_learnt(tmp_path: Path, lines: list[str]) -> None:
    config = Config(output_dir=tmp_path / "tokenizer", corpus=corpus_of(tmp_path, lines), vocab_size=60)
    run(config)
    assert load_tokenizer(config.output_dir) == learn_vocabulary(
        config.corpus, vocab_size=60, min_frequency=2, do_lower_case=True, validation_split=True
    )[0]  # fmt: skip
    names = {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "settings.yaml"}
    assert {path.name for path in config.output_dir.iterdir()} == names


def test_a_second_run_writes_the_same_bytes(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, CHINESE + ENGLISH)
    contents = []
    for _ in range(2):
        run(Config(output_dir=tmp_path / "tokenizer", corpus=corpus))
        contents.append({path.name: path.read_bytes() for path in (tmp_path / "tokenizer").iterdir()})
    assert contents[0] == contents[1]


def test_nothing_is_learnt_from_the_validation_and_test_parts(tmp_path: Path) -> None:
    lines = [line + "稀稀" * (part_of(line + "稀稀", validation_split=True) != "train") for line in CHINESE]
    corpus = corpus_of(tmp_path, lines)
    assert "稀" not in build_vocabulary(corpus).vocabulary.ids
    assert "稀" in build_vocabulary(corpus, validation_split=False).vocabulary.ids


def test_the_report_adds_up_and_names_unknown_characters_by_count(tmp_path: Path) -> None:
    held_out = [f"{n}明稀稀珍" for n in range(200) if part_of(f"{n}明稀稀珍", validation_split=True) != "train"][:3]
    learnt = [line for line in CHINESE if part_of(line, validation_split=True) == "train"]
    tokenizer, report = learn_vocabulary(corpus_of(tmp_path, learnt + held_out), validation_split=True, **ALL)
    assert (report.num_documents, report.num_held_out) == (len(learnt), 3)
    assert report.num_characters == sum(map(len, learnt))
    assert report.held_out is not None
    ids = [id for line in held_out for id in tokenizer.encode(line).ids]
    assert report.held_out.num_tokens == len(ids)
    assert report.held_out.num_unknown == ids.count(1)
    assert report.held_out.characters["稀"] == 6
    assert report.held_out.characters["珍"] == 3
    text = "\n".join(report.lines())
    assert re.search(r"unknown characters \(\d+ different\), the most frequent: 稀 6  珍 3", text)
    assert f"[UNK] in the held-out part: {ids.count(1)} of {len(ids)} tokens" in text


def test_a_vocabulary_smaller_than_asked_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Config(output_dir=tmp_path / "tokenizer", corpus=corpus_of(tmp_path, CHINESE)))
    size = load_tokenizer(tmp_path / "tokenizer").vocabulary.size
    assert f"{size} entries instead of 30,000: no other character" in capsys.readouterr().out


def test_words_too_long_to_cut_are_counted(tmp_path: Path) -> None:
    _, report = learn_vocabulary(corpus_of(tmp_path, ["a" * 101, "b b"]), validation_split=False, **ALL)
    assert report.num_long == 1
    assert "words over 100 characters, which become [UNK]" in report.lines()[0]


def test_without_a_held_out_part_the_text_itself_is_measured(tmp_path: Path) -> None:
    _, report = learn_vocabulary(corpus_of(tmp_path, ["明明稀"]), validation_split=False, **ALL)
    assert report.held_out is None
    assert "[UNK] in the text learnt from: 1 of 3 tokens (33.333%)" in report.lines()


def test_a_corpus_without_training_part_is_refused(tmp_path: Path) -> None:
    line = next(line for line in CHINESE if part_of(line, validation_split=True) == "test")
    with pytest.raises(InputError, match=r"(?s)every one of the 1 documents.*--validation_split false"):
        build_vocabulary(corpus_of(tmp_path, [line]))


def test_a_setting_that_cannot_be_is_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--vocab_size: leaves no room"):
        build_vocabulary(CorpusSettings(input_file=str(tmp_path / "nowhere.txt")), vocab_size=5)


@pytest.mark.shared_data
def test_the_song_ci_have_4927_entries(shared_data: Path) -> None:
    corpus = CorpusSettings(input_file=str(shared_data / "songci" / "songci.txt"), format="lines")
    tokenizer, report = learn_vocabulary(corpus, validation_split=True, **ALL)
    assert tokenizer.vocabulary.size == 4_927
    assert report.num_documents + report.num_held_out == 20_021
    assert report.held_out is not None
    assert report.held_out.unknown_share < 0.002
