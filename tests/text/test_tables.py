"""csv, tsv and Parquet → documents: fields are text and nothing else, and no row is lost or made up."""

import csv
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings, Document, ReadingReport, read_documents

ZH = "明月几时有？把酒问青天。"
EN = "The rain had ceased. The settlement awoke."
ALPHABET = 'ab月"",\n\t ;1'


def read(path: Path, **values: str) -> tuple[list[Document], ReadingReport]:
    report = ReadingReport()
    documents = list(read_documents(CorpusSettings(input_file=str(path), **values), report))
    assert report.records.read == report.records.kept + sum(report.records.dropped.values())
    assert report.records.kept == report.documents == len(documents)
    return documents, report


def texts(path: Path, **values: str) -> list[str]:
    return [document.text for document in read(path, **values)[0]]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def write_parquet(path: Path, columns: dict[str, object]) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


# ---- laws


@given(
    rows=st.lists(st.tuples(st.text(ALPHABET, max_size=8), st.text(ALPHABET, max_size=8)), min_size=1, max_size=8),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_pythons_csv_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], quoting: int, end: str
) -> None:
    content = io.StringIO()
    writer = csv.writer(content, quoting=quoting, lineterminator=end)
    writer.writerows([("n", "text"), *rows])
    path = write(tmp_path_factory.mktemp("law") / "x.csv", content.getvalue())
    report = ReadingReport()
    expected = [text.strip() for _, text in rows if text.strip()]
    try:
        assert [d.text for d in read_documents(CorpusSettings(input_file=str(path)), report)] == expected
    except InputError as problem:
        assert not expected
        assert "holds no document" in str(problem)  # noqa: PT017
    assert report.records.read == len(rows) + 1 == len(expected) + sum(report.records.dropped.values())


@given(
    rows=st.lists(
        st.tuples(st.text('ab月", ', max_size=6), st.text('ab月", ', max_size=6)).map("\t".join), min_size=1, max_size=8
    )
)
def test_every_line_of_a_tsv_is_a_row(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("law") / "x.tsv", "\n".join(["text\tn", *rows]))
    report = ReadingReport()
    try:
        list(read_documents(CorpusSettings(input_file=str(path)), report))
    except InputError as problem:
        assert "holds no document" in str(problem)  # noqa: PT017
    assert report.records.read == len(rows) + 1
    assert report.records.dropped["header row"] == 1


@given(table=st.lists(st.text('ab",\t\n月', max_size=5), min_size=1, max_size=12), kind=st.sampled_from(["csv", "tsv"]))
def test_any_table_is_read_or_explained(tmp_path_factory: pytest.TempPathFactory, table: list[str], kind: str) -> None:
    path = write(tmp_path_factory.mktemp("law") / f"x.{kind}", "\n".join(table) + "\n")
    report = ReadingReport()
    try:
        list(read_documents(CorpusSettings(input_file=str(path), text_column="1"), report))
    except InputError as problem:
        assert f"x.{kind}" in str(problem)  # noqa: PT017
    assert report.records.read == report.records.kept + sum(report.records.dropped.values())


# ---- fields


def test_quotes_hold_commas_line_ends_and_doubled_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", f'id,text\r\n7,"he said ""hi"",\r\n{ZH}"\r\n\r\n,{EN}\r\n')
    documents, report = read(path)
    assert documents == [Document("7", f'he said "hi",\n{ZH}'), Document("x.csv:5", EN)]
    assert report.records.dropped == {"header row": 1, "blank line": 1}
    assert report.changed == {"CRLF line end made LF": 5}


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_field_is_text_whatever_it_looks_like(tmp_path: Path, kind: str) -> None:
    fields = ["NA", "null", "007", "1e5", "True", "2024-01-01", "nan", '5" disk', "他说“好”……", "a\u2028b"]
    assert texts(write(tmp_path / f"x.{kind}", "text\n" + "\n".join(fields))) == fields


def test_a_lone_quote_that_begins_a_tsv_field_is_kept(tmp_path: Path) -> None:
    lines = ["text\tlabel", '"It rained\t1', '他说"好"\t0', '"Gold, surely!"\t1', '""\t1', 'say ""x""\t0']
    documents, report = read(write(tmp_path / "x.tsv", "\n".join(lines)))
    assert [d.text for d in documents] == ['"It rained', '他说"好"', '"Gold, surely!"', 'say ""x""']
    assert report.records.dropped == {"header row": 1, "empty text": 1}


def test_quotes_of_a_tsv_that_a_program_wrote_are_undone_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'n\ttext\n1\t"He said ""hi"""\n2\t"a\ttab"\n3\t"Gold!"\n')
    documents, report = read(path)
    assert [d.text for d in documents] == ['He said "hi"', "a\ttab", '"Gold!"']
    assert report.changed == {"quotes around a field undone": 1, "row of quoted fields undone": 1}
    assert texts(write(tmp_path / "y.tsv", f'"n"\t"text"\n"1"\t"{ZH}"\n2\t"{EN}"\n')) == [ZH, EN]


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_field_of_any_length_is_read_whole(tmp_path: Path, kind: str) -> None:
    assert texts(write(tmp_path / f"x.{kind}", f"text\n{'月' * 300_000}\n")) == ["月" * 300_000]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "x.csv", f"\ufefftext,n\n{ZH},1\n"))
    assert documents[0].text == ZH
    assert report.changed == {"byte order mark taken off": 1}


def test_a_compressed_table_is_read_as_a_table(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "x.csv.gz", gzip.compress(f"text\n{ZH}\n".encode()))) == [ZH]


def test_ids_may_repeat_and_an_empty_one_is_made(tmp_path: Path) -> None:
    documents, _ = read(write(tmp_path / "x.csv", "id,text\na,x\na,y\n,z\n"))
    assert [d.id for d in documents] == ["a", "a", "x.csv:4"]


# ---- which column


@pytest.mark.parametrize(
    ("header", "row", "values", "expected"),
    [
        ("title,text", "t,x", {}, "x"),
        ("n,body,more", "1,x,y", {}, "x"),
        ("id,n,body", "a,,x", {}, "x"),
        ("title,text", "t,x", {"text_column": "title"}, "t"),
        ("title,text", "t,x", {"text_column": "1"}, "t"),
        ("2,text", "t,x", {"text_column": "2"}, "t"),
        ("a,x", "b,y", {"column_names": "id,text"}, "x"),
        ("a,x", "b,y", {"column_names": "n, body", "text_column": "body"}, "x"),
        ("1,x", "2,y", {"column_names": "n,body"}, "x"),
        ("Is it data?,x", "b,y", {"text_column": "2"}, "y"),
    ],
)
def test_the_column_of_the_text(tmp_path: Path, header: str, row: str, values: dict[str, str], expected: str) -> None:
    for kind, separator in (("csv", ","), ("tsv", "\t")):
        content = f"{header}\n{row}\n".replace(",", separator)
        assert texts(write(tmp_path / f"x.{kind}", content), **values)[0] == expected


def test_a_column_that_was_not_named_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts(write(tmp_path / "x.csv", "n,body\n1,x\n"), format="csv")
    write_parquet(tmp_path / "x.parquet", {"n": [1], "body": ["x"]})
    texts(tmp_path / "x.parquet", format="parquet")
    texts(write(tmp_path / "x.jsonl", '{"n": 1, "body": "x"}\n'), format="jsonl")
    said = capsys.readouterr().err
    assert "x.csv: the text is in the column body" in said
    assert "x.parquet: the text is in the column body" in said
    assert "x.jsonl: the text is in the field body" in said


@pytest.mark.parametrize(
    ("content", "values", "message"),
    [
        ("txet,n\nx,1\n", {"text_column": "text"}, r"x\.csv:1: --text_column: there is no such column(.|\n)*mean txet"),
        ("a,b\nx,1\n", {"text_column": "3"}, r"value: '3'(.|\n)*one of a, b, or a number from 1 to 2"),
        ("a,b\nx,1\n", {"text_column": "zz"}, r"--column_names id,text"),
        ("x,1\n", {"column_names": "a,b", "text_column": "c"}, r"x\.csv: --text_column: there is no such column"),
        ("text,text\nx,y\n", {}, r"x\.csv:1: text: 2 columns have this name(.|\n)*--text_column 1"),
        ("n,m\n1,2\n", {}, r"x\.csv:2: no column holds a text(.|\n)*one of n, m"),
        (f"{ZH},1\n{EN},2\n", {}, r"x\.csv:1: the first row looks like data(.|\n)*--column_names"),
        ("id;text\na;b\n", {}, r"x\.csv:1: the first row is one column, with ';' in it(.|\n)*save it with commas"),
        ("id\ttext\na\tb\n", {}, r"with '\\t' in it(.|\n)*--format tsv"),
        ("id,text\na,b\n", {"format": "tsv"}, r"with ',' in it(.|\n)*--format csv"),
    ],
)
def test_a_column_that_cannot_be_found_is_explained(
    tmp_path: Path, content: str, values: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "x.csv", content), **values)


# ---- faults


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,n\nx,1\ny,2,3\n", r"x\.csv:3: the row has 3 columns\n.*'3'(.|\n)*2 columns, as in line 1: text, n"),
        ('text,n\n"a\nb",1\ny\n', r"x\.csv:4: the row has 1 columns"),
        ('text,n\nx,1\n"a,2\nb,3\n', r"x\.csv:3: the quote that opens here does not close\n.*'a,2\\nb,3"),
        ('text,n\n"x","1\n', r"x\.csv:2: the quote that opens here does not close"),
        ('text,n\n"a,2\n"b",3\n', r"x\.csv:3: text follows a closing quote, opened in line 2"),
        ("text\n", "holds no document: only blank lines or empty texts, or a header alone"),
        ("\n\n", "holds no document"),
        ("", "is empty"),
        ("text\nx\0y and more\n", r"x\.csv:2: byte 2 of the line is NUL"),
        ("text\nx\n".encode("utf-16"), "is UTF-16"),
        ("text\n月\n".encode("gb18030"), r"x\.csv:2: byte 1 of the line is not UTF-8"),
        (b"PAR1", "a Parquet file(.|\n)*--format parquet"),
    ],
)
def test_a_broken_csv_is_named_by_file_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "x.csv", content))


def test_sound_rows_come_although_others_are_ragged(tmp_path: Path) -> None:
    report, seen = ReadingReport(), []
    path = write(tmp_path / "x.tsv", f"text\tn\n{ZH}\t1\nshort\n{EN}\t2\t3\n{EN}\t2\n")
    with pytest.raises(InputError, match=r"x\.tsv:3: the row has 1 columns(.|\n)*x\.tsv:4: the row has 3 columns"):
        seen.extend(document.text for document in read_documents(CorpusSettings(input_file=str(path)), report))
    assert report.records.read == 5 == report.records.kept + sum(report.records.dropped.values())
    assert report.records.dropped["in error"] == 2


def test_a_quote_that_never_closes_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.text.delimited.LINE_LIMIT", 1000)
    with pytest.raises(InputError, match=r"x\.csv:2: the quote that opens here does not close"):
        read(write(tmp_path / "x.csv", 'text\n"' + "春早。\n" * 1000))


# ---- Parquet


def test_parquet_rows_are_documents(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"id": ["a", None, ""], "text": [ZH, f" {EN}", None]})
    documents, report = read(path)
    assert documents == [Document("a", ZH), Document("x.parquet:1", EN)]
    assert report.records.dropped == {"empty text": 1}
    assert report.changed == {"white space around a text taken off": 1}


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_kind_of_parquet_string_is_text(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(["NA", "007", ZH]).cast(kind)
    assert texts(write_parquet(tmp_path / "x.parquet", {"n": [1, 2, 3], "body": column})) == ["NA", "007", ZH]


def test_parquet_rows_come_in_their_order_over_batches_and_groups(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(3000)), "text": [f"第{n}首" for n in range(3000)]})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    documents, _ = read(tmp_path / "x.parquet")
    assert documents == [Document(str(n), f"第{n}首") for n in range(3000)]


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ({"text": [1, 2]}, {}, r"text: the column holds int64(.|\n)*here stand text \(int64\)"),
        ({"text": [["a"]]}, {}, "text: the column holds list"),
        ({"n": [1]}, {}, "no column holds text"),
        ({"body": ["x"]}, {"text_column": "bodi"}, "no such column(.|\n)*did you mean body"),
        ({"text": pa.array([], pa.string())}, {}, "holds no document"),
        (
            {"text": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xb4"], pa.binary()).buffers())},
            {},
            r"x\.parquet: row 0: text: is not UTF-8",
        ),
    ],
)
def test_a_parquet_file_without_text_is_explained(
    tmp_path: Path, columns: dict[str, object], values: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(write_parquet(tmp_path / "x.parquet", columns), **values)


@pytest.mark.parametrize("fault", ["cut short", "another file", "compressed", "damaged"])
def test_a_damaged_parquet_file_is_explained(tmp_path: Path, fault: str) -> None:
    content = write_parquet(tmp_path / "x.parquet", {"text": [f"{ZH}{n * n}" for n in range(5000)]}).read_bytes()
    faulty = {
        "cut short": content[: len(content) // 2],
        "another file": b"text\nx\n",
        "compressed": gzip.compress(content),
        "damaged": content[:100] + bytes(1000) + content[1100:],
    }
    with pytest.raises(InputError, match=r"x\.parquet: cannot be read as Parquet: .+"):
        read(write(tmp_path / "x.parquet", faulty[fault]))


@pytest.mark.shared_data
def test_the_tables_of_real_data_are_read_whole(shared_data: Path) -> None:
    _, report = read(shared_data / "songci_tasks/cipai10_test.tsv")
    assert report.records.kept == 542
