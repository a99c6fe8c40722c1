"""docs/walk.md: its code runs as it stands there, and its drawings show what the code printed."""

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "walk.md"
LONGEST = 270  # lines


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_code_of_the_walk_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks("python")), {}, "walk.md", str(PAGE), 0)
    assert len(test.examples) > 50
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert report == []


def test_the_drawings_show_the_numbers_that_were_printed() -> None:
    printed = "\n".join(blocks("python"))
    pair, head = blocks("text")
    for name in ("input_ids", "token_type_ids", "masked ids"):
        [line] = re.findall(rf"^ ({name} .*)$", pair, flags=re.MULTILINE)
        assert f"\n{line}\n" in printed
    for name in ("mlm_positions", "mlm_targets"):
        [numbers] = re.findall(rf"{name}((?: +\d+)+)", head)
        assert f"[{', '.join(numbers.split())}]" in printed


def test_the_drawn_labels_are_the_ids_of_what_was_hidden() -> None:
    [pair, _] = blocks("text")
    rows = {name: re.findall(rf"^ {name} +(.*)$", pair, flags=re.MULTILINE)[0].split() for name in _ROWS}
    assert len({len(cells) for cells in rows.values()}) == 1
    hidden = [column for column, label in enumerate(rows["mlm_labels"]) if label != "·"]
    assert hidden == [9, 16, 18, 24]
    for column, (before, after) in enumerate(zip(rows["input_ids"], rows["masked ids"], strict=True)):
        assert rows["mlm_labels"][column] == (before if column in hidden else "·")
        assert column in hidden or before == after
    ids = dict(zip(rows["tokens"], rows["input_ids"], strict=True))
    assert [ids[token] for token in rows["seen as"] if token in ids and token not in "M相"] == [
        id for id, token in zip(rows["masked ids"], rows["seen as"], strict=True) if token not in "M相"
    ]


_ROWS = ("tokens", "input_ids", "masked ids", "seen as", "mlm_labels")


def test_the_files_named_on_the_page_are_there() -> None:
    source = PAGE.parents[1] / "src" / "bertkit"
    named = set(re.findall(r"`((?!tests)[a-z_]+/[a-z_]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) >= 15
    assert [name for name in named if not (source / name).is_file()] == []


def test_the_page_is_short_enough_to_be_read() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(lines) < LONGEST
    assert max(map(len, lines)) <= 120
