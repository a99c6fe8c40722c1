"""`bertkit vocab`: learning, adding words and trimming; the files, and the reports."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_model import model_folder, random_model, toy_config, toy_tokenizer

from bertkit.cli import main
from bertkit.commands.vocab import Config, build_vocabulary, learn_vocabulary, run
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.model.pretrained import load
from bertkit.text.documents import CorpusSettings, part_of
from bertkit.text.tokenizer import load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

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
    assert report.training.num_long == 1
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


# ---- the same bytes every time ----


def vocabulary_bytes(folder: Path, corpus: Path, *, hash_seed: int, threads: int, vocab_size: int) -> bytes:
    """The bytes of the three files that a process of its own writes."""
    environment = {
        "PYTHONHASHSEED": str(hash_seed),
        "RAYON_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "PYTHONPATH": ":".join(sys.path),
    }
    flags = ["--input_file", str(corpus), "--format", "lines", "--vocab_size", str(vocab_size)]
    command = [sys.executable, "-m", "bertkit", "vocab", *flags, "--output_dir", str(folder)]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return b"".join((folder / name).read_bytes() for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"))


def test_learning_gives_the_same_bytes_in_two_runs(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    characters = "".join(chr(0x4E00 + n) * 2 for n in range(1_500))  # a trainer that keeps 1,000 would show
    corpus.write_text("\n".join([*CHINESE, *ENGLISH, characters, *CHINESE]) + "\n", encoding="utf-8")
    contents = {
        vocabulary_bytes(tmp_path / str(run), corpus, hash_seed=run, threads=1 + run, vocab_size=2_000)
        for run in range(2)
    }
    assert len(contents) == 1
    assert load_tokenizer(tmp_path / "0").vocabulary.size > 1_505


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["songci/songci.txt", "us_speeches/us_speeches.txt"])
def test_learning_from_real_text_gives_the_same_bytes_in_ten_runs(shared_data: Path, tmp_path: Path, name: str) -> None:
    contents = {
        vocabulary_bytes(tmp_path / str(run), shared_data / name, hash_seed=run, threads=1 + run % 2, vocab_size=8_000)
        for run in range(10)
    }
    assert len(contents) == 1


# ---- adding and trimming ----

TOY = ["我住长江头，君住长江尾。", "The team won gold."]


def edited(tmp_path: Path, **settings: object) -> Config:
    """A call that edits the toy tokenizer."""
    for name, content in toy_tokenizer().files().items():
        write_atomically(tmp_path / "old" / name, content)
    return Config(output_dir=tmp_path / "new", **{"tokenizer": tmp_path / "old", **settings})


@pytest.mark.parametrize("use_unused", [True, False])
def test_words_are_added_to_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str], use_unused: bool) -> None:
    run(edited(tmp_path, add_words="covid,苓,Tree", use_unused=use_unused))
    names = {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "settings.yaml"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    assert load_tokenizer(tmp_path / "new").encode("covid 苓").tokens == ["covid", "苓"]
    printed = capsys.readouterr().out
    assert "refused: Tree: has capital letters, but the tokenizer makes them small: tree" in printed
    assert re.search(r"added +2\n", printed)


def test_a_tokenizer_is_trimmed_to_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(edited(tmp_path, trim_to_corpus=True, corpus=corpus_of(tmp_path, TOY)))
    old, new = load_tokenizer(tmp_path / "old"), load_tokenizer(tmp_path / "new")
    english = ("the", "team", "won", "gold", ".", "##a")  # ##a: a character of team
    assert new.vocabulary.tokens == (*SPECIAL_TOKENS, *english, *sorted("我住长江头，君尾。"))
    for text in TOY:
        assert new.encode(text).tokens == old.encode(text).tokens
    assert re.search(rf"entries now +{new.vocabulary.size}\n", capsys.readouterr().out)


def test_trimming_reads_every_document_whatever_its_part(tmp_path: Path) -> None:
    lines = [f"长江{n}" for n in range(20)]
    assert {part_of(line, validation_split=True) for line in lines} > {"train"}
    files = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, *map(str, range(30)), "长")), do_lower_case=True).files()
    write_atomically(tmp_path / "vocab.txt", files["vocab.txt"])
    config = edited(tmp_path, tokenizer=tmp_path / "vocab.txt", trim_to_corpus=True, corpus=corpus_of(tmp_path, lines))
    run(config)
    assert load_tokenizer(tmp_path / "new").vocabulary.size == 5 + 20 + 1


def test_a_call_is_repeated_from_its_settings_file(tmp_path: Path) -> None:
    run(edited(tmp_path, add_words="covid"))
    first = (tmp_path / "new" / "tokenizer.json").read_bytes()
    assert main(["vocab", "--config_file", str(tmp_path / "new" / "settings.yaml")]) == 0
    assert (tmp_path / "new" / "tokenizer.json").read_bytes() == first


def test_a_models_own_tokenizer_is_edited_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = model_folder(tmp_path / "old", random_model())
    run(Config(output_dir=tmp_path / "new", model=old, add_words="unseens,鸟"))
    size = toy_config().vocab_size
    model = load(tmp_path / "new")
    assert model.config.vocab_size == load_tokenizer(tmp_path / "new").vocabulary.size == size + 2
    names = {"config.json", "model.safetensors", "README.md", "settings.yaml"}
    names |= {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    settings = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["model_max_length"] == 64
    assert "added words with random weights: 1\n" in capsys.readouterr().out  # 鸟 was [UNK]
    pieces = [toy_tokenizer().vocabulary.ids[token] for token in ("un", "##seen", "##s")]
    with torch.no_grad():
        scores = model(torch.arange(size).view(1, -1)[:, :64]).mlm_logits
    torch.testing.assert_close(scores[..., size], scores[..., pieces].mean(-1), rtol=0, atol=1e-5)


def test_random_weights_are_those_of_the_seed(tmp_path: Path) -> None:
    old = model_folder(tmp_path / "old", random_model())
    rows = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(Config(output_dir=tmp_path / name, model=old, add_words="unseens", init="random", seed=seed))
        rows.append(load(tmp_path / name).encoder.embeddings.word_embeddings.weight[-1].detach())
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
    assert float(rows[0].abs().max()) < 0.1  # N(0, 0.02), not the 0.3 of its pieces


def test_rows_of_a_padded_model_are_dropped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = toy_config().vocab_size
    old = model_folder(tmp_path / "old", random_model(config=toy_config(vocab_size=size + 6)))
    run(Config(output_dir=tmp_path / "new", model=old, add_words="covid"))
    assert load(tmp_path / "new").config.vocab_size == size + 1
    assert "rows of the model beyond the vocabulary, dropped: 6\n" in capsys.readouterr().out


def test_a_model_smaller_than_the_tokenizer_is_refused(tmp_path: Path) -> None:
    size = toy_config().vocab_size
    old = model_folder(tmp_path / "old", random_model(config=toy_config(vocab_size=size - 1)))
    with pytest.raises(InputError, match=f"has {size - 1} entries, but the tokenizer {size}"):
        run(Config(output_dir=tmp_path / "new", model=old, add_words="covid"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"add_words": "a", "trim_to_corpus": True}, "--add_words: was given together with --trim_to_corpus"),
        ({"tokenizer": Path("x")}, "(?s)--tokenizer: has no effect.*--add_words or --trim_to_corpus"),
        ({"model": Path("x")}, "--model: has no effect"),
        ({"use_unused": True}, "(?s)--use_unused: has no effect.*only with --add_words"),
        ({"init": "random", "add_words": "a", "tokenizer": Path("x")}, "--init: has no effect"),
        ({"corpus": CorpusSettings(input_file="a"), "add_words": "a"}, "(?s)--input_file: has no effect.*learning"),
        ({"min_frequency": 2, "add_words": "a"}, "--min_frequency: has no effect"),
        ({"vocab_size": 9, "trim_to_corpus": True}, "(?s)--vocab_size: has no effect.*only with learning"),
        ({"add_words": "a"}, "(?s)--tokenizer: is missing.*the tokenizer to edit"),
        ({"trim_to_corpus": True}, "--tokenizer: is missing"),
        ({"add_words": "a", "model": Path("out")}, "(?s)--output_dir: is the folder that is edited.*value: 'out'"),
    ],
)
def test_flags_that_do_not_go_together_are_named(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(Config(output_dir=Path("out"), **settings))


def test_the_folder_of_a_vocabulary_file_is_not_written_over(tmp_path: Path) -> None:
    config = edited(tmp_path, tokenizer=tmp_path / "new" / "vocab.txt", add_words="covid")
    write_atomically(tmp_path / "new" / "vocab.txt", toy_tokenizer().files()["vocab.txt"])
    with pytest.raises(InputError, match="is the folder that is edited"):
        run(config)


def test_a_frequency_below_one_is_refused_before_reading(tmp_path: Path) -> None:
    config = edited(tmp_path, trim_to_corpus=True, min_frequency=0)
    with pytest.raises(InputError, match="--min_frequency: is below 1"):
        run(config)


@pytest.mark.shared_data
def test_the_song_ci_have_4927_entries(shared_data: Path) -> None:
    corpus = CorpusSettings(input_file=str(shared_data / "songci" / "songci.txt"), format="lines")
    tokenizer, report = learn_vocabulary(corpus, validation_split=True, **ALL)
    assert tokenizer.vocabulary.size == 4_927
    assert report.num_documents + report.num_held_out == 20_021
    assert report.held_out is not None
    assert report.held_out.unknown_share < 0.002


@pytest.mark.parametrize("place", ["file", "file/deeper/still"])
def test_a_file_in_the_place_of_the_folder_is_refused_before_anything_is_read(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    corpus = CorpusSettings(input_file=str(tmp_path / "not there"))
    with pytest.raises(InputError, match=r"(?s)file: --output_dir: is no folder.*name another folder"):
        run(Config(output_dir=tmp_path / place, corpus=corpus))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
