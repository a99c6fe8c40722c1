"""`bertkit inspect corpus`: the two-dimensional shape of every format, and the counts."""

import json
from pathlib import Path

import pytest

from bertkit.commands.inspect import Config, count_corpus, run
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings

POEMS = [["明月几时有？", "把酒问青天。"], ["十年生死两茫茫。", "不思量，自难忘。"]]
STORIES = [["The U.S. team won 3.5 million.", "It was late."], ["He left.", "Nobody spoke."]]


FORMATS = {
    "lines": lambda corpus: "".join(" ".join(sentences) + "\n" for sentences in corpus),
    "sentences": lambda corpus: "\n".join("".join(f"{sentence}\n" for sentence in s) for s in corpus),
    "paragraphs": lambda corpus: "\n".join("".join(f"{sentence}\n" for sentence in s) for s in corpus),
    "jsonl": lambda corpus: "".join(json.dumps({"text": " ".join(s)}) + "\n" for s in corpus),
    "wikitext": lambda corpus: "".join(f" = Title = \n {' '.join(s)} \n" for s in corpus),
}


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[list[str]], str]:
    shape, _, rest = capsys.readouterr().out.partition("\n]\n")
    return json.loads(shape + "]"), rest


@pytest.mark.parametrize("corpus", [POEMS, STORIES])
@pytest.mark.parametrize("format", list(FORMATS))
def test_every_format_shows_the_same_two_dimensional_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str, corpus: list[list[str]]
) -> None:
    path = tmp_path / "corpus"
    path.write_text(FORMATS[format](corpus), encoding="utf-8")
    run(Config(what="corpus", path=str(path), corpus=CorpusSettings(format=format)))
    assert printed(capsys)[0] == corpus


def test_a_users_function_shows_the_same_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bar_format.py").write_text(
        "from pathlib import Path\n"
        "def read(path):\n"
        "    return [line.split('|') for line in Path(path).read_text(encoding='utf-8').splitlines()]\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "corpus.bars"
    path.write_text("".join("|".join(s) + "\n" for s in POEMS + STORIES), encoding="utf-8")
    run(Config(what="corpus", path=str(path), corpus=CorpusSettings(format="bar_format:read"), show=4))
    assert printed(capsys)[0] == POEMS + STORIES


def test_the_plain_rule_for_ends_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("云破月来，花弄影。\n", encoding="utf-8")
    run(Config(what="corpus", path=str(path), corpus=CorpusSettings(format="lines", sentence_end="，。")))
    assert printed(capsys)[0] == [["云破月来，", "花弄影。"]]


def test_the_rest_of_the_documents_is_a_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。\n二。\n三。\n", encoding="utf-8")
    run(Config(what="corpus", path=str(path), corpus=CorpusSettings(format="lines"), show=2))
    assert capsys.readouterr().out.splitlines()[:5] == ["[", ' ["一。"],', ' ["二。"],', " ...", "]"]


def test_what_is_counted_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。二。三三。\n\n一。\n一。\nHe left. She stayed.\n", encoding="utf-8")
    settings = CorpusSettings(input_file=str(path), format="lines")
    counts = count_corpus(settings, show=0)
    assert (counts.documents, counts.sentences, counts.one_sentence, counts.duplicates) == (4, 7, 2, 1)
    assert (counts.characters, counts.most_sentences, counts.longest_sentence) == (7 + 2 + 2 + 20, 3, 11)
    assert counts.examples == []
    run(Config(what="corpus", corpus=settings, show=4))
    rest = printed(capsys)[1]
    assert "lines dropped: blank line" in rest
    assert "2 of 4 documents have one sentence: useless for next-sentence pairs of their own" in rest
    assert "1 documents (25.0%) are duplicates" in rest


def test_a_corpus_of_documents_of_one_sentence_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。\n\n二。\n\n三。\n", encoding="utf-8")
    run(Config(what="corpus", path=str(path), corpus=CorpusSettings(format="sentences")))
    assert "there are 0 positive pairs" in printed(capsys)[1]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(what="corpus"), "path: no text was named"),
        (Config(what="corpus", path="a", corpus=CorpusSettings(input_file="b")), "path: the text is named twice"),
        (Config(what="corpus", path="a", show=-1), "--show: is below 0"),
    ],
)
def test_a_call_that_cannot_be_is_refused(config: Config, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(config)


@pytest.mark.shared_data
def test_the_song_ci_have_their_known_counts(shared_data: Path) -> None:
    settings = CorpusSettings(input_file=str(shared_data / "songci" / "songci.txt"), format="lines")
    counts = count_corpus(settings, show=0)
    assert (counts.documents, counts.sentences, counts.one_sentence) == (20_021, 150_539, 442)
    assert (counts.characters, counts.duplicates) == (1_609_206, 0)
