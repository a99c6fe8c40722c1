"""Raw text → documents: nothing is lost, nothing is guessed without a word, every fault has its place."""

import contextlib
import gzip
import io
import json
import lzma
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import InputError, InputErrors
from bertkit.text.documents import CorpusSettings, Document, ReadingReport, part_of, read_documents
from bertkit.text.encodings import decoded_lines

ZH = "明月几时有？把酒问青天。"
EN = "The rain had ceased. The settlement awoke."


def settings_for(path: Path | str, format: str = "auto", **values: str) -> CorpusSettings:
    return CorpusSettings(input_file=str(path), format=format, **values)


def read(path: Path | str, format: str = "auto", **values: str) -> tuple[list[Document], ReadingReport]:
    report = ReadingReport()
    documents = list(read_documents(settings_for(path, format, **values), report))
    for counts in (report.lines, report.records):
        assert counts.read == counts.kept + sum(counts.dropped.values())
    assert report.documents == len(documents)
    return documents, report


def texts(path: Path | str, format: str = "auto", **values: str) -> list[str]:
    return [document.text for document in read(path, format, **values)[0]]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


# ---- laws


@given(
    lines=st.lists(
        st.sampled_from(["", "  ", "\u3000", ZH, EN, " x ", "a\u2028b", "= T =", "，", "\ufeff"]), min_size=1
    ),
    format=st.sampled_from(["lines", "sentences", "paragraphs", "wikitext"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    last=st.booleans(),
)
def test_every_line_is_kept_or_dropped_for_a_reason(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], format: str, end: str, last: bool
) -> None:
    path = write(tmp_path_factory.mktemp("law") / "x.txt", end.join(lines) + (end if last else "") or "\n")
    report = ReadingReport()
    try:
        documents = list(read_documents(settings_for(path, format), report))
        assert documents
    except InputError as problem:
        assert "holds no document" in str(problem)  # noqa: PT017
    assert report.lines.read == report.lines.kept + sum(report.lines.dropped.values())
    assert report.lines.dropped["blank line"] == sum(
        not line.strip("\ufeff" if i == 0 else "").strip() for i, line in enumerate(_lines_of(path))
    )


def _lines_of(path: Path) -> list[str]:
    """The lines as Python's universal line ends see them."""
    with open(path, encoding="utf-8-sig", newline=None) as file:
        return file.read().removesuffix("\n").split("\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_do_not_change_the_documents(tmp_path: Path, end: str, mark: str) -> None:
    path = write(tmp_path / "x.txt", mark + end.join([ZH, EN, ""]))
    documents, report = read(path, "lines")
    assert [(d.id, d.text) for d in documents] == [("x.txt:1", ZH), ("x.txt:2", EN)]
    assert report.changed == {
        **({"byte order mark taken off": 1} if mark else {}),
        **({"\n": {}, "\r\n": {"CRLF line end made LF": 2}, "\r": {"lone CR taken as a line end": 2}}[end]),
    }


@pytest.mark.parametrize("inner", ["\u0085", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\u200b"])
def test_only_cr_and_lf_end_a_line(tmp_path: Path, inner: str) -> None:
    assert texts(write(tmp_path / "x.txt", f"明月{inner}几时有\n"), "lines") == [f"明月{inner}几时有"]


@pytest.mark.parametrize("compression", ["gz", "xz", "zst"])
def test_a_compressed_file_gives_the_same_documents(tmp_path: Path, compression: str) -> None:
    content = f"{ZH}\n{EN}\n".encode()
    if compression == "zst":
        zstandard = pytest.importorskip("zstandard")  # only to write; reading needs nothing more
        packed = zstandard.compress(content[:20]) + zstandard.compress(content[20:])
    else:
        packed = gzip.compress(content) if compression == "gz" else lzma.compress(content)
    assert texts(write(tmp_path / f"x.txt.{compression}", packed)) == [ZH, EN]


def test_a_missing_last_line_end_loses_nothing(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "x.txt", f"{ZH}\n{EN}")) == [ZH, EN]


def test_white_space_around_a_text_is_taken_off_and_counted(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "x.txt", f"\u3000\u3000{ZH}\n{EN} \n"), "lines")
    assert [d.text for d in documents] == [ZH, EN]
    assert report.changed == {"white space around a text taken off": 2}


def test_the_reading_is_a_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"one\n" * 300_000 + b"\xff\n")
    documents = read_documents(settings_for(path, "lines"), ReadingReport())
    assert next(documents).text == "one"  # the bad byte at the end has not been met yet
    with pytest.raises(InputError, match=r"x\.txt:300001: byte 1 of the line is not UTF-8"):
        list(documents)


# ---- formats


def test_sentences_give_the_boundaries_of_the_file(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "x.txt", "\n春早。\n柳丝无力。\n\n\nGold, surely!\n"), "sentences")
    assert documents == [
        Document("x.txt:2", "春早。\n柳丝无力。", ("春早。", "柳丝无力。")),
        Document("x.txt:6", "Gold, surely!", ("Gold, surely!",)),
    ]
    assert report.rows() == [("lines read", 6), ("lines kept", 3), ("lines dropped: blank line", 3), ("documents", 2)]


def test_paragraphs_join_lines_with_a_space_only_where_it_is_written(tmp_path: Path) -> None:
    content = (
        "And to rule\nover the day,\n\n人生自是有情痴，\n“此恨”\n不关风与月。\n\n서울은\n수도이다\n\n我用\nPython\n"
    )
    assert texts(write(tmp_path / "x.txt", content), "paragraphs") == [
        "And to rule over the day,",
        "人生自是有情痴，“此恨”不关风与月。",
        "서울은 수도이다",
        "我用 Python",
    ]


WIKI = """
 = 杜甫 =

 He wrote 1 @,@ 400 poems , 2 @.@ 5 a day , in well @-@ known <unk> .
 律诗 [UNK] 。

 = = Early life = =

 He was born in 712 .
"""


def test_wikitext_headings_end_a_document_and_marks_are_undone(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "wikitext-2.train.tokens", WIKI))
    assert [d.text for d in documents] == [
        "He wrote 1,400 poems , 2.5 a day , in well-known [UNK] . 律诗 [UNK] 。",
        "He was born in 712 .",
    ]
    assert report.lines.dropped == {"blank line": 4, "heading": 2}
    assert report.changed["<unk> made [UNK]"] == report.changed["@-@ made -"] == 1


def test_wikitext_lines_are_documents_on_demand(tmp_path: Path) -> None:
    path = write(tmp_path / "wiki.train.tokens", WIKI)
    assert [d.id for d in read(path, wikitext_unit="line")[0]] == [f"wiki.train.tokens:{n}" for n in (4, 5, 9)]


def test_chinese_poetry_joins_the_paragraphs_of_a_record(tmp_path: Path) -> None:
    poems = [{"author": "苏轼", "paragraphs": ["明月几时有，", "把酒问青天。"]}, {"paragraphs": []}]
    documents, report = read(write(tmp_path / "ci.json", json.dumps(poems, ensure_ascii=False, indent=1)))
    assert documents == [Document("ci.json:0", "明月几时有，把酒问青天。")]
    assert report.records.dropped == {"empty text": 1}


def test_jsonl_takes_text_else_the_first_string_field_else_the_named_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"id": 7, "n": 1, "text": "{ZH}"}}\n\n{{"title": "x", "text": "{EN}"}}\n')
    assert read(path)[0] == [Document("7", ZH), Document("a.jsonl:3", EN)]
    path = write(tmp_path / "b.jsonl", f'{{"id": "b1", "n": 1, "body": "{ZH}", "more": "x"}}\n')
    assert read(path)[0] == [Document("b1", ZH)]
    assert texts(path, text_column="more") == ["x"]


def test_a_blank_line_and_an_empty_text_in_jsonl_are_counted(tmp_path: Path) -> None:
    _, report = read(write(tmp_path / "a.jsonl", '{"text": "x"}\n\n{"text": " "}\n'))
    assert report.rows() == [
        ("records read", 3),
        ("records kept", 1),
        ("records dropped: blank line", 1),
        ("records dropped: empty text", 1),
        ("documents", 1),
    ]


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the user's, which is the current folder."""
    code = (
        "from pathlib import Path\n"
        "from bertkit.text.documents import Document\n"
        "def documents(path): yield Document('own', Path(path).read_text(encoding='utf-8'))\n"
        "def texts(path): return ['春早。', '  ']\n"
        "def sentences(path): yield ['春早。', ' ', 'Gold, surely!']\n"
        "def numbers(path): return [1]\n"
        "def one(path): return 'a string'\n"
        "def surrogate(path): return ['\\ud800', 'sound']\n"
        "number = 1\n"
    )
    write(tmp_path / "own_reader.py", code)
    write(tmp_path / "own_broken.py", "import no_such_module_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_reader", raising=False)
    return write(tmp_path / "x.txt", ZH)


def test_a_users_function_may_give_documents_texts_or_sentences(own_module: Path) -> None:
    assert read(own_module, "own_reader:documents")[0] == [Document("own", ZH)]
    documents, report = read(own_module, "own_reader:texts")
    assert documents == [Document("x.txt:0", "春早。")]
    assert report.records.dropped == {"empty text": 1}
    documents, report = read(own_module, "own_reader:sentences")
    assert documents == [Document("x.txt:0", "春早。\nGold, surely!", ("春早。", "Gold, surely!"))]
    assert report.changed == {"blank sentence left out": 1}


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("own_absent:f", "cannot import own_absent: ModuleNotFoundError"),
        ("own_broken:f", "cannot import own_broken: .*no_such_module_at_all"),
        (":f", "cannot import : ValueError"),
        ("own_reader:absent", "own_reader has no function 'absent'(.|\n)*documents, numbers, one"),
        ("own_reader:number", "own_reader has no function 'number'"),
        ("own_reader:numbers", "item 0 of own_reader:numbers is int"),
        ("own_reader:one", "own_reader:one returned str"),
        ("own_reader:surrogate", "item 0 of own_reader:surrogate: character 1 is half of a surrogate pair"),
    ],
)
def test_a_users_function_that_does_not_fit_is_explained(own_module: Path, format: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(own_module, format)


# ---- the guess


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (f"{ZH}\n{EN}\n", "lines"),
        (f"\n{ZH}\n{EN}\n\n\n", "lines"),
        ("春早。\n柳丝无力。\n\n日暖。\n", "sentences"),
        ("It rained.\nIt stopped.\n\nGold, surely!\n", "sentences"),
        (f"{ZH}\n{ZH}\n\n{ZH}\n", "paragraphs"),
        ("In the beginning\nwas the Word,\n\nand the Word\nwas there.\n", "paragraphs"),
    ],
)
def test_the_format_of_a_txt_is_guessed_by_blank_lines_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, format: str
) -> None:
    path = write(tmp_path / "x.txt", content)
    assert read(path)[0] == read(path, format)[0]
    said = capsys.readouterr().err
    assert f"x.txt: read as {format} (" in said
    assert "--format lines|sentences|paragraphs" in said


def test_a_given_format_is_not_commented_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(write(tmp_path / "x.txt", ZH), "lines")
    assert capsys.readouterr().err == ""


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "format", "documents", "lines"),
    [
        ("songci/songci.txt", "lines", 20_021, 20_021),
        ("zhwiki_paragraphs/zhwiki_paragraphs.txt", "lines", 1_104, 1_104),
        ("kjv_bible/kjv.txt", "paragraphs", 1_189, 31_102),
        ("us_speeches/us_speeches.txt", "paragraphs", 124, 7_910),
        ("bert_sample_text/sample_text.txt", "sentences", 3, 31),
    ],
)
def test_real_corpora_are_read_whole_in_their_format(
    shared_data: Path, capsys: pytest.CaptureFixture[str], name: str, format: str, documents: int, lines: int
) -> None:
    _, report = read(shared_data / name)
    assert f"read as {format} (" in capsys.readouterr().err
    assert (report.documents, report.lines.kept) == (documents, lines)


# ---- which files


def test_folders_globs_and_commas_name_files_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/.hidden", "b/.git/x.txt", "b/deep/3.txt", "a1.txt", "a0.txt"):
        write(tmp_path / name, name)
    assert texts(f"{tmp_path}/a?.txt, {tmp_path}/b", "lines") == [
        "a0.txt",
        "a1.txt",
        "b/1.txt",
        "b/2.txt",
        "b/deep/3.txt",
    ]
    assert texts(f"{tmp_path}/b*", "lines") == ["b/1.txt", "b/2.txt", "b/deep/3.txt"]


def test_a_comma_in_the_name_of_a_file_is_no_separator(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a, b.txt", ZH)) == [ZH]


def test_files_of_one_name_have_ids_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "zh/x.txt", ZH)
    write(tmp_path / "en/x.txt", EN)
    assert [d.id for d in read(tmp_path)[0]] == ["en/x.txt:1", "zh/x.txt:1"]


def test_a_file_named_twice_is_read_once_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.txt", ZH)
    assert texts(f"{path},{tmp_path}") == [ZH]
    assert "names 1 files more than once" in capsys.readouterr().err


@pytest.mark.parametrize("value", [None, "", " "])
def test_no_path_is_an_error(value: str | None) -> None:
    with pytest.raises(InputError, match="--input_file: no text was given"):
        read_documents(CorpusSettings(input_file=value), ReadingReport())


def test_paths_without_text_are_all_named_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "empty.txt", "")
    parts = [tmp_path / "absent.txt", tmp_path / "*.csv", tmp_path / "folder", tmp_path / "empty.txt"]
    with pytest.raises(InputErrors) as caught:
        read_documents(settings_for(",".join(map(str, parts))), ReadingReport())
    message = str(caught.value)
    for part in ("absent.txt: does not exist", "no file has a name like this", "folder: is a folder without files"):
        assert part in message
    assert "empty.txt: is empty" in message
    assert "4 of 4 problems shown" in message


def test_a_pipe_is_an_error_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is a pipe"):
        read(tmp_path / "pipe")
    with pytest.raises(InputError, match="null: is not a regular file"):
        read("/dev/null")


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    with pytest.raises(InputError, match=r"loop\.txt: cannot be read: Too many levels of symbolic links"):
        read(tmp_path / "loop.txt")


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "x.txt", ZH)
    monkeypatch.setattr("builtins.open", refuse)  # root may open everything, so the refusal is played
    with pytest.raises(InputError, match=r"x\.txt: cannot be opened: Permission denied"):
        read(path)


# ---- what is no text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            f"{ZH}\n".encode() + "春早\n".encode("gb18030"),
            r"x\.txt:2: byte 1 .*not UTF-8\n  value: '0xB4'(.|\n)*iconv -f GB18030",
        ),
        (b"caf\xe9 au lait\n", r"x\.txt:1: byte 4 .*\n  value: '0xE9'(.|\n)*Latin-1(.|\n)*iconv -f CP1252"),
        (
            "明月几时".encode() + b"\xff" + "有\n".encode(),
            r"byte 13 of the line(.|\n)*0xFF(.|\n)*mend or remove this byte",
        ),
        (ZH.encode("utf-16"), r"is UTF-16(.|\n)*iconv -f UTF-16"),
        (EN.encode("utf-16-le"), r"x\.txt:1: byte 2 of the line is NUL: likely UTF-16"),
        (b"x\na long line with one \0 in it\n", r"x\.txt:2: byte 22 of the line is NUL: a binary file\?"),
        (gzip.compress(b"x"), r"is no text: it is gzip-compressed\n.*ends in \.gz"),
        (b"PK\x03\x04xxx", "is a zip archive|it is a zip archive"),
        (b"PAR1xxx", "it is a Parquet file"),
        (b"\n \n\n", r"x\.txt: holds no document: only blank lines"),
    ],
)
def test_what_is_no_utf8_text_is_named_with_its_place_and_a_remedy(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "x.txt", content), "lines")


@pytest.mark.parametrize("compression", ["gz", "xz", "zst"])
@pytest.mark.parametrize("fault", ["cut short", "other content"])
def test_a_damaged_archive_is_an_error_and_not_a_shorter_text(tmp_path: Path, compression: str, fault: str) -> None:
    content = b"".join(b"%d\n" % (n * n % 9973) for n in range(20_000))
    if compression == "zst":
        packed = pytest.importorskip("zstandard").compress(content)
    else:
        packed = gzip.compress(content) if compression == "gz" else lzma.compress(content)
    path = write(
        tmp_path / f"x.txt.{compression}", packed[: len(packed) // 2] if fault == "cut short" else b"plain text\n"
    )
    with pytest.raises(InputError, match=rf"x\.txt\.{compression}:\d+: cannot be read to its end"):
        read(path, "lines")


def test_a_line_without_end_is_an_error_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.text.encodings.LINE_LIMIT", 2**20)
    bomb = write(tmp_path / "bomb.txt.gz", gzip.compress(b"x" * 2**21))
    with pytest.raises(InputError, match=r"bomb\.txt\.gz:1: a line of more than 1 MiB"):
        read(bomb, "lines")


# ---- encodings


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "encoding", ["gb18030", "GBK", "utf-16", "UTF-16-LE", "utf-16-be", "utf-32", "utf-7", "hz", "utf-8-sig", "utf8"]
)
def test_a_named_encoding_gives_the_same_documents(tmp_path: Path, encoding: str, end: str) -> None:
    content = end.join([ZH, EN, "", ZH[:3], ""]).encode(encoding)
    documents, report = read(write(tmp_path / "x.txt", content), "lines", encoding=encoding)
    assert [(d.id, d.text) for d in documents] == [("x.txt:1", ZH), ("x.txt:2", EN), ("x.txt:4", ZH[:3])]
    assert report.lines.dropped == {"blank line": 1}
    assert report.changed["byte order mark taken off"] == (encoding in ("utf-16", "utf-32", "utf-8-sig"))
    assert texts(write(tmp_path / "x.txt.gz", gzip.compress(content)), "lines", encoding=encoding) == [ZH, EN, ZH[:3]]


@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff\ufffe"), max_size=400),
    encoding=st.sampled_from(["utf-8", "gb18030", "utf-16", "utf-16-le", "utf-32-be"]),
    piece=st.integers(4, 11),
)
def test_lines_of_any_encoding_are_the_lines_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, encoding: str, piece: int
) -> None:
    from bertkit.text import encodings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "PIECE", piece)
        patch.setattr(encodings, "BLOCK", piece)
        stream = io.BytesIO(text.encode(encoding))
        lines = [line for _, line in decoded_lines(stream, Path("x"), encoding=encoding, changed=Counter())]
    assert lines == text.removesuffix("\n").split("\n") if text else lines in ([], [""])


ENDS = st.sampled_from(["\r", "\n", "\r\n", "明", "a", " ", "\u2028", "\x85", "\0", "\udcff"])


@settings(deadline=None)
@given(pieces=st.lists(ENDS, max_size=16), block=st.integers(1, 20))
def test_blocks_of_any_size_give_the_lines_the_counts_and_the_fault_of_one_line_at_a_time(
    pieces: list[str], block: int
) -> None:
    from bertkit.text import encodings

    content = "".join(pieces).encode("utf-8", errors="surrogateescape")  # \udcff: a byte that is no UTF-8
    wanted: list[str] = []
    counts, fault = Counter[str](), None
    for raw in re.findall(rb"[^\n]*\n|[^\n]+", content):
        if b"\0" in raw or b"\xff" in raw:
            fault = f"x:{len(wanted) + 1}: byte "
            break
        text = raw.decode().removesuffix("\n")
        if raw.endswith(b"\r\n"):
            text = text[:-1]
            counts["CRLF line end made LF"] += 1
        if "\r" in text:
            counts["lone CR taken as a line end"] += text.count("\r")
        wanted += text.removesuffix("\r").split("\r")
    found: list[str] = []
    changed = Counter[str]()
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as expected:
        patch.setattr(encodings, "BLOCK", block)
        if fault:
            expected.enter_context(pytest.raises(InputError, match=fault))
        for number, line in decoded_lines(io.BytesIO(content), Path("x"), encoding="utf-8", changed=changed):
            assert number == len(found) + 1
            found.append(line)
    assert found == wanted
    assert fault or changed == counts


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "gb18030"])
def test_the_mark_of_an_encoding_vanishes_and_is_counted(tmp_path: Path, encoding: str) -> None:
    documents, report = read(write(tmp_path / "x.txt", ("\ufeff" + ZH).encode(encoding)), "lines", encoding=encoding)
    assert documents[0].text == ZH
    assert report.changed == {"byte order mark taken off": 1}


def test_latin_1_keeps_every_byte(tmp_path: Path) -> None:
    letters = "".join(chr(code) for code in range(0xA1, 0x100))
    assert texts(write(tmp_path / "x.txt", f"café {letters}\n".encode("latin-1")), encoding="latin-1") == [
        f"café {letters}"
    ]


def test_the_guess_and_the_records_heed_the_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "春早。\n柳丝无力。\n\n日暖。\n".encode("gb18030"))
    assert [d.sentences for d in read(path, encoding="gb18030")[0]] == [("春早。", "柳丝无力。"), ("日暖。",)]
    path = write(tmp_path / "x.jsonl", f'{{"text": "{ZH}"}}\n'.encode("utf-16"))
    assert texts(path, encoding="utf-16") == [ZH]
    path = write(tmp_path / "x.csv", f"text\n{ZH}\n".encode("utf-16"))
    assert texts(path, encoding="utf-16") == [ZH]


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"sound\n\xb4\xba\xd4\xe7\xff\n", "gb18030", r"x\.txt:2: byte 5 .*not GB18030\n  value: '0xFF'"),
        (f"a\n{ZH[:5]}\n".encode(), "gb18030", "the line is UTF-8: leave --encoding out"),
        (b"a\xff\n", "ascii", "byte 2 of the line is not ASCII(.|\n)*name the encoding of the file"),
        (b"a\0b\0\n\0\x00\xd8c\0", "utf-16-le", r"x\.txt:2: byte 7 of the file is not UTF-16-LE"),
        (b"a\0b\0\n\0c", "utf-16-le", r"x\.txt:2: byte 7 of the file is not UTF-16-LE"),
        (b"a\0b\0\n\0x\0\0\0", "utf-16-le", r"x\.txt:2: character 2 of the line is NUL"),
        (b"a\0b\0", "utf-16", r"x\.txt: has no byte order mark(.|\n)*--encoding utf-16-le"),
        (b"\xff\xfea\0", "utf-16-be", "begins with the byte order mark of the other order"),
        (b"\xff\xfea\0", "latin-1", "is UTF-16(.|\n)*--encoding utf-16"),
        (b"\xef\xbb\xbfa", "gb18030", "is UTF-8 .*mark(.|\n)*leave --encoding out"),
        (b"PK\x03\x04", "utf-16-le", "it is a zip archive"),
        (b"a\n", "gb18031", "--encoding: is no encoding of text\n  value: 'gb18031'(.|\n)*did you mean gb18030"),
        (b"a\n", "base64", "--encoding: is no encoding of text"),
        (b"a\n", "idna", "--encoding: is no encoding of text"),
        (b"a\n", "a\0b", "--encoding: is no encoding of text"),
    ],
)
def test_what_is_not_of_the_named_encoding_is_an_error_with_its_place(
    tmp_path: Path, content: bytes, encoding: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "x.txt", content), "lines", encoding=encoding)


def test_a_line_without_end_is_an_error_in_wide_encodings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.text.encodings.LINE_LIMIT", 2**20)
    bomb = write(tmp_path / "bomb.txt.gz", gzip.compress(b"x\0" * 2**21))
    with pytest.raises(InputError, match=r"bomb\.txt\.gz:1: a line of more than 1 MiB"):
        read(bomb, "lines", encoding="utf-16-le")


def test_curly_quotes_ellipses_and_invisible_characters_pass_unchanged(tmp_path: Path) -> None:
    lines = ["他说“好”……", "这是\ufffd一句\u200b话", "soft\u00adhyphen", "NA", "null", "007"]
    assert texts(write(tmp_path / "x.txt", "\n".join(lines)), "lines") == lines


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--format: is no format\n  value: 'parket'(.|\n)*did you mean parquet"):
        read(write(tmp_path / "x.txt", ZH), "parket")


# ---- broken records


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', r"a\.jsonl:2: broken JSON, column \d+"),
        ('["x"]', r"a\.jsonl:2: the line is an array(.|\n)*a JSON object a line"),
        (
            '{"body": "x"}',
            r"a\.jsonl:2: text: the field is missing(.|\n)*fields that stand here: body(.|\n)*--text_column",
        ),
        ('{"txet": "x"}', r"a\.jsonl:2: text: the field is missing(.|\n)*did you mean txet"),
        ('{"text": 3}', r"a\.jsonl:2: text: the field holds a number"),
        ('{"text": null}', "the field holds null"),
        ('{"text": "\\ud800"}', r"a\.jsonl:2: text: character 1 is half of a surrogate pair"),
        ('{"text": "x", "text": "y"}', "the field 'text' stands twice"),
        ('{"text": ' + "[" * 100_000, r"a\.jsonl:2: cannot be read as JSON: .*recursion"),
    ],
)
def test_a_broken_record_is_named_by_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "a.jsonl", f'{{"text": "{ZH}"}}\n{line}\n'))


def test_a_record_without_any_string_asks_for_the_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no field holds a text(.|\n)*--text_column"):
        read(write(tmp_path / "a.jsonl", '{"n": 1}\n'))


def test_problems_are_collected_over_all_files_and_the_sound_records_still_come(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"text": "x"}\n' + "broken\n" * 30)
    write(tmp_path / "b.txt", b"\xff\n")
    write(tmp_path / "c.jsonl", f'{{"text": "{EN}"}}\n')
    report, seen = ReadingReport(), []
    with pytest.raises(InputError, match=r"b\.txt:1: byte 1"):
        read_documents(settings_for(tmp_path), report)  # the guess looks into b.txt
    (tmp_path / "b.txt").unlink()
    report = ReadingReport()
    with pytest.raises(InputErrors, match="20 of 30 problems shown"):
        seen.extend(read_documents(settings_for(tmp_path), report))
    assert report.records.read == 32 == report.records.kept + report.records.dropped["in error"]
    assert len(report.problems) == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"paragraphs": ["x"]}', "the file is an object"),
        ('[{"text": "x"}]', r"\[0\]\.paragraphs: no list of strings"),
        ('[{"paragraphs": ["\\udc00"]}]', r"\[0\]\.paragraphs: character 1 is half"),
        ('[{"paragraphs":\n ["x"]]', r"p\.json:2: broken JSON"),
        ('{"text": 1}\n{"text": 2}', r"p\.json:2: broken JSON(.|\n)*--format jsonl"),
        (" \n", "holds no document"),
    ],
)
def test_a_broken_poetry_file_is_explained(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "p.json", content))


# ---- the split


def test_the_part_is_a_function_of_the_text_alone() -> None:
    parts = [part_of(f"第{n}首", validation_split=True) for n in range(2000)]
    assert {part: round(parts.count(part) / 200) for part in set(parts)} == {"train": 8, "validation": 1, "test": 1}
    assert part_of("雨恨云愁。", validation_split=True) == "validation"
    assert part_of("Gold, surely!", validation_split=True) == "test"
    assert {part_of(f"第{n}首", validation_split=False) for n in range(100)} == {"train"}


@pytest.mark.shared_data
@pytest.mark.parametrize(("file", "part"), [("test", "test"), ("dev", "validation"), ("train", "train")])
def test_no_test_text_of_the_songci_tasks_is_in_the_training_part(shared_data: Path, file: str, part: str) -> None:
    with open(shared_data / f"songci_tasks/cipai10_{file}.tsv", encoding="utf-8") as rows:
        assert {part_of(row.split("\t")[0], validation_split=True) for row in list(rows)[1:]} == {part}
