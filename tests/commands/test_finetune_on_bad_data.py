"""What is wrong with labelled files, as `bertkit finetune` says it: the file, the line, the field; nothing is made.

There is no model at all, so that a message about the data shows that the data is looked at first.
"""

import gzip
import io
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bertkit.cli import main

TASK = {
    "single": "sequence-classification",
    "pair": "sequence-classification",
    "tags": "token-classification",
    "choices": "multiple-choice",
    "questions": "question-answering",
}
GOOD: dict[str, list[dict[str, Any]]] = {
    "single": [{"text": "the moon", "label": "a"}, {"text": "the sand", "label": "b"}, {"text": "月", "label": "a"}],
    "pair": [
        {"sentence1": "the moon", "sentence2": "a", "label": "a"},
        {"sentence1": "the sand", "sentence2": "b", "label": "b"},
        {"sentence1": "月", "sentence2": "c", "label": "a"},
    ],
    "tags": [
        {"tokens": ["the", "moon"], "tags": ["O", "B-X"]},
        {"tokens": ["a", "wind"], "tags": ["O", "O"]},
        {"tokens": ["月"], "tags": ["B-X"]},
    ],
    "choices": [
        {"question": "the moon", "choices": ["a", "b"], "label": 0},
        {"question": "the sand", "choices": ["a", "b", "c"], "label": 2},
        {"question": "月", "choices": ["c", "d"], "label": 1},
    ],
    "questions": [
        {"id": "1", "question": "what", "context": "the moon", "answers": {"text": ["moon"], "answer_start": [4]}},
        {"id": "2", "question": "what", "context": "the sand", "answers": {"text": ["sand"], "answer_start": [4]}},
        {"id": "3", "question": "谁", "context": "月照", "answers": {"text": ["月"], "answer_start": [0]}},
    ],
}
TEXT = {"single": "text", "pair": "sentence1", "tags": "tokens", "choices": "question", "questions": "context"}
LABEL = {"single": "label", "pair": "label", "tags": "tags", "choices": "label", "questions": "answers"}
KINDS = tuple(GOOD)


def finetune(kind: str, file: object, folder: Path, *flags: object) -> int:
    words = [TASK[kind], "--model_name_or_path", folder / "no model", "--output_dir", folder / "run", *flags]
    return main(["finetune", "--train_file", str(file), *map(str, words)])


def lines_of(kind: str) -> list[str]:
    return [json.dumps(record, ensure_ascii=False) for record in GOOD[kind]]


def text_of(kind: str) -> str:
    return "".join(f"{line}\n" for line in lines_of(kind))


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Hold that the command ends with 2 and names this place, and that nothing was written; return what it says."""

    def check(kind: str, file: Path, *flags: object, line: int | None = None, field: str | None = None) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert finetune(kind, file, tmp_path, *flags) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "Traceback" not in said.err
        message = said.err[said.err.index("error: ") :]
        if line is not None:
            assert f"{file}:{line}: " in message
        if field is not None:
            places = [each for each in message.splitlines() if f"{file}{'' if line is None else f':{line}'}: " in each]
            assert f"{field}: " in places[0]
        assert sorted(tmp_path.rglob("*")) == before
        return message

    return check


def test_the_good_files_get_as_far_as_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        path = tmp_path / f"{kind}.jsonl"
        path.write_text(text_of(kind), encoding="utf-8")
        assert finetune(kind, path, tmp_path) == 2
        assert "no model" in capsys.readouterr().err


# --- files that cannot be read at all ------------------------------------------------------------------------------


def truncated_gzip(content: bytes) -> bytes:
    return gzip.compress(content * 500)[:-20]


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("x.jsonl", content)
    return packed.getvalue()


FILES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "empty": ("x.jsonl", lambda good: b"", "empty"),
    "blank lines": ("x.jsonl", lambda good: b"\n \n\t\n", "holds no record|no sentence"),
    "only a mark": ("x.jsonl", lambda good: b"\xef\xbb\xbf", "holds no record|empty"),
    "utf-16": ("x.jsonl", lambda good: good.decode().encode("utf-16"), "UTF-16|utf-8"),
    "gb18030": ("x.jsonl", lambda good: good.decode().encode("gb18030"), "utf-8|UTF-8"),
    "latin-1": ("x.jsonl", lambda good: good.replace("月".encode(), b"na\xefve"), "utf-8|UTF-8"),
    "binary": ("x.jsonl", lambda good: bytes(range(256)) * 9, ""),
    "a truncated gz": ("x.jsonl.gz", truncated_gzip, "cut short|gz|ended"),
    "no gz": ("x.jsonl.gz", lambda good: good, "gz"),
    "a zip": ("x.jsonl", zipped, ""),
    "no parquet": ("x.parquet", lambda good: good, "cannot be read as Parquet"),
    "an empty parquet": ("x.parquet", lambda good: b"", "empty|Parquet"),
    "an array of texts": ("x.json", lambda good: b'["a", "b"]', "the record is (a string|text)"),
    "a text": ("x.json", lambda good: b'"a"', "is (a string|text)"),
    "an empty array": ("x.json", lambda good: b"[]", "holds no record"),
    "half an array": ("x.json", lambda good: b"[" + good.replace(b"\n", b",\n"), "JSON"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FILES)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, refused: Callable[..., str], kind: str, fault: str
) -> None:
    name, make, said = FILES[fault]
    path = tmp_path / name
    path.write_bytes(make(text_of(kind).encode()))
    message = refused(kind, path)
    assert str(path) in message
    assert re.search(said, message), message


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.mkdir()


def truncated_parquet(path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist([{"text": "a", "label": "b"}] * 99), path)
    path.write_bytes(path.read_bytes()[:-30])


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "make"),
    [("x.jsonl", fifo), ("x.jsonl", loop), ("x", folder), ("x.parquet", truncated_parquet), ("x.jsonl", nothing)],
    ids=["fifo", "loop", "empty folder", "truncated parquet", "missing"],
)
def test_what_is_no_file_is_named(
    tmp_path: Path, refused: Callable[..., str], kind: str, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    assert str(tmp_path / name) in refused(kind, tmp_path / name)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text_of("single"), encoding="utf-8")
    path.chmod(0)
    try:
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
        assert str(path) in refused("single", path)
    finally:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


# --- one broken record ----------------------------------------------------------------------------------------------


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def broken_second(kind: str) -> Iterator[tuple[str, str, str | None]]:
    """Second lines that are no good, with the field that is named."""
    good, text, label = GOOD[kind][1], TEXT[kind], LABEL[kind]
    whole = json.dumps(good)
    yield "half", whole[:-3], None
    yield "twice", whole[:-1] + f', "{text}": 1}}', None
    yield "NaN", json.dumps({**good, label: float("nan")}), label
    yield "deep", whole[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}", None
    yield "a list", json.dumps([good]), None
    yield "a number", "7", None
    yield "null", "null", None
    yield "two on a line", whole + " " + whole, None
    yield "no text", json.dumps(without(good, text)), text
    yield "text of a wrong type", json.dumps({**good, text: 3}), text
    yield "text is null", json.dumps({**good, text: None}), text
    yield "half a surrogate pair", whole.replace("the ", "\\ud83d ").replace('"wind"', '"\\ud83d"'), text
    yield "no label", json.dumps(without(good, label)), label
    yield "label of a wrong type", json.dumps({**good, label: {"a": {"b": "c"}}}), label
    yield "label is null", json.dumps({**good, label: None}), label


CASES = [(kind, *case) for kind in KINDS for case in broken_second(kind)]


@pytest.mark.parametrize(("kind", "fault", "line", "field"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_broken_line_is_named_with_its_field(
    tmp_path: Path, refused: Callable[..., str], kind: str, fault: str, line: str, field: str | None
) -> None:
    first, _, third = lines_of(kind)
    path = tmp_path / "x.jsonl"
    path.write_text(f"{first}\n{line}\n{third}\n", encoding="utf-8")
    refused(kind, path, line=2, field=field)


# --- what only one kind of file may have ----------------------------------------------------------------------------


OWN: list[tuple[str, str, str, int | None, str | None, str]] = [
    ("single", "x.csv", "text,label\na,1\nb\n", 3, None, "the row has 1 columns"),
    ("single", "x.csv", "text,label\na,1\nb,2,3\n", 3, None, "the row has 3 columns"),
    ("single", "x.tsv", "text\tlabel\na\t1\tx\n", 2, None, "the row has 3 columns"),
    ("single", "x.csv", 'text,label\na,1\n"b,2\nc,3\n', 3, None, "quote"),
    ("single", "x.csv", "good day,1,2,3\nbad day,0,2,3\n", 1, None, "is data, not names of columns"),
    ("single", "x.csv", "foo,bar\na,1\n", 1, None, "none of them is a name that is known"),
    ("single", "x.csv", "text,label\n", None, None, "a header and no record"),
    ("single", "x.csv", "text,text,label\na,b,1\n", 1, "text", "2 columns have this name"),
    ("single", "x.csv", "text;label\na;1\n", 1, None, "is that the separator"),
    ("single", "x.csv", "text,label\na,1\n  ,2\n", 3, "text", "the text is empty"),
    ("single", "x.csv", "text,label\na,1\nb,\n", 3, "label", "the label is empty"),
    ("single", "x.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "label": "y"}\n', 2, "label", "no list"),
    ("single", "x.jsonl", '{"text": "a", "label": ["x", "x"]}\n', 1, "label", "a name twice"),
    ("single", "x.txt", "a text without any label\n", None, None, "how fields are told apart"),
    ("pair", "x.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\na\tb\n", 3, None, "the row has 2 columns"),
    ("tags", "x.conll", "a\tO\nb\tO\tX\n", 2, None, "the line has 3 columns"),
    ("tags", "x.conll", "a\tO\nb\n", 2, None, "the line has 1 columns"),
    ("tags", "x.conll", "a\nb\n", 1, None, "has one column"),
    ("tags", "x.conll", "a B-X\nb O\nc I-X\n", 3, "tag", "I-"),
    ("tags", "x.conll", "a B-X\nb PER\n", 2, "tag", "the tag is none of IOB2"),
    ("tags", "x.conll", "a B-X\nb M-X\n", 2, "tag", "does not end"),
    ("tags", "x.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', 1, "tags", "1 tags for 2 words"),
    ("tags", "x.jsonl", '{"tokens": [], "tags": []}\n', 1, "tokens", "no word"),
    ("tags", "x.jsonl", '{"text": "ab", "label": [[0, 9, "X"]]}\n', 1, "label", "outside the text"),
    ("tags", "x.jsonl", '{"text": "ab", "label": [[0, 2, "X"], [1, 2, "Y"]]}\n', 1, "label", "overlap"),
    ("tags", "x.jsonl", '{"text": "ab", "label": {"X": {"b": [[0, 0]]}}}\n', 1, "label", "does not stand"),
    ("choices", "x.jsonl", '{"question": "q", "choices": ["a", "b", "c"], "label": 3}\n', 1, "label", "none of the 3"),
    ("choices", "x.jsonl", '{"question": "q", "choices": ["a", "b"], "label": "C"}\n', 1, "label", "none of the 2"),
    ("choices", "x.jsonl", '{"question": "q", "choices": ["a", "b"], "label": -1}\n', 1, "label", "none of the 2"),
    ("choices", "x.jsonl", '{"question": "q", "choices": ["a"], "label": 0}\n', 1, "choices", "there is 1 choice"),
    ("choices", "x.jsonl", '{"question": "q", "choices": ["a", " "], "label": 0}\n', 1, "choices", "a choice is empty"),
    ("choices", "x.jsonl", '{"question": "q", "choices": "a, b", "label": 0}\n', 1, "choices", "the field holds"),
    ("choices", "x.jsonl", '{"foo": "q", "bar": ["a", "b"], "label": 0}\n', None, None, "no columns have names"),
]
ROW = '{{"id": "{0}", "question": "q", "context": {1}, "answers": {{"text": [{2}], "answer_start": [{3}]}}}}\n'
OWN += [
    ("questions", "x.jsonl", ROW.format(1, '"the moon"', '"sun"', 4), 1, "answers of 1", "does not stand at 4"),
    ("questions", "x.jsonl", ROW.format(1, '"the moon"', '"moon"', 3), 1, "answers of 1", "answer_start 4"),
    ("questions", "x.jsonl", ROW.format(1, '"明月 moon"', '"moon"', 7), 1, "answers of 1", "counts bytes"),
    ("questions", "x.jsonl", ROW.format(1, '""', '"moon"', 0), 1, "answers of 1", "does not stand at 0"),
    ("questions", "x.jsonl", ROW.format(1, '"moon"', '""', 0), 1, "answers[0]", "no text or no place"),
    ("questions", "x.jsonl", ROW.format(1, '"moon"', '"moon"', '"0"'), 1, "answers[0]", "no text or no place"),
    ("questions", "x.jsonl", ROW.format(1, '"moon"', '"moon"', 0) * 2, 2, "id", "the id stands twice"),
    ("questions", "x.jsonl", ROW.format(1, '"moon"', '"moon", "sun"', 0), 1, "answers", "the field holds"),
    ("questions", "x.json", '{"data": [{"title": "t"}]}', None, None, ""),
    ("questions", "x.json", '{"data": [{"paragraphs": [{"qas": []}]}]}', 1, "data[0].paragraphs[0]", "no context"),
    ("questions", "x.json", '{"data": 3}', None, "data", "is a number"),
]


@pytest.mark.parametrize(("kind", "name", "content", "line", "field", "said"), OWN)
def test_what_is_wrong_with_its_own_kind_is_named(
    tmp_path: Path,
    refused: Callable[..., str],
    kind: str,
    name: str,
    content: str,
    line: int | None,
    field: str | None,
    said: str,
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert said in refused(kind, path, line=line, field=field)


@pytest.mark.parametrize("kind", KINDS)
def test_the_validation_file_is_looked_at_before_anything_is_made_too(
    tmp_path: Path, refused: Callable[..., str], kind: str
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(text_of(kind), encoding="utf-8")
    bad.write_text(text_of(kind) + "{\n", encoding="utf-8")
    for flag in ("--validation_file", "--test_file"):
        assert f"{bad}:4: " in refused(kind, good, flag, bad)


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_problems_are_shown_and_all_are_counted(tmp_path: Path, refused: Callable[..., str], kind: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text_of(kind) + "{\n" * 30, encoding="utf-8")
    message = refused(kind, path)
    assert f"{path}:23: " in message
    assert f"{path}:24: " not in message
    assert message.rstrip().endswith("20 of 30 problems shown")
    path.write_text("{\n" * 3, encoding="utf-8")
    refused(kind, path, "--on_bad", "skip", line=3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_with_all_files_is_said_at_once(tmp_path: Path, refused: Callable[..., str], kind: str) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text(text_of(kind) + "{\n", encoding="utf-8")
    second.write_text("{\n" + text_of(kind) + "{\n", encoding="utf-8")
    missing = tmp_path / "missing.jsonl"
    message = refused(kind, first, "--validation_file", missing, "--test_file", second)
    assert all(f"{file}:{line}: " in message for file, line in ((first, 4), (second, 1), (second, 5)))
    assert f"{missing}: " in message
    assert message.rstrip().endswith("4 of 4 problems shown")


def test_what_is_wrong_with_a_file_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    bad = tmp_path / "x.jsonl"
    bad.write_text("{\n", encoding="utf-8")
    words = [TASK["single"], "--train_file", bad, "--output_dir", tmp_path / "run", "--model_name_or_path", "none"]
    code = "import sys; from bertkit.cli import main; sys.exit(main(sys.argv[1:]) + ('torch' in sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code, "finetune", *map(str, words)], check=False, capture_output=True, text=True
    )
    assert (ended.returncode, f"{bad}:1: " in ended.stderr) == (2, True), ended.stderr
