"""Files of labelled texts → TextExamples: every layout gives the same, and nothing in a field changes."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bertkit.data.examples.classification import read_text_examples
from bertkit.data.examples.example import TextExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputError, InputErrors

ROWS = [("明月几时有？", "词"), ("The rain had ceased.", "prose"), ('He said "NA".', "prose")]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def read(path: Path, *, labelled: bool = True, **settings: object) -> tuple[list[TextExample], ExampleReport]:
    asked = ReadingSettings(**settings)  # type: ignore[arg-type]
    report = ExampleReport(asked.on_bad)
    examples = read_text_examples(str(path), asked, report, labelled=labelled, flag="--train_file")
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems
    assert report.kept == len(examples)
    return examples, report


def pairs(examples: Sequence[TextExample]) -> list[tuple[str, str | None]]:
    return [(example.text, example.label) for example in examples]


def fails(path: Path, **settings: object) -> InputError:
    with pytest.raises(InputErrors) as caught:
        read(path, **settings)
    return caught.value.problems[0]


# ---- every layout, the same examples


def as_csv(rows: Sequence[Sequence[str]], header: Sequence[str] | None) -> str:
    content = io.StringIO()
    csv.writer(content).writerows([*([header] if header else []), *rows])
    return content.getvalue()


def as_jsonl(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    return "".join(json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize("layout", ["csv", "tsv", "jsonl", "json", "data.json", "parquet", "separator"])
def test_every_layout_gives_the_same_examples(tmp_path: Path, layout: str) -> None:
    header, path, settings = ("text", "label"), tmp_path / f"x.{layout}", {}
    if layout == "csv":
        write(path, as_csv(ROWS, header))
    elif layout == "tsv":
        write(path, "\n".join("\t".join(row) for row in [header, *ROWS]))
    elif layout == "jsonl":
        write(path, as_jsonl(ROWS, header))
    elif layout.endswith("json"):
        records = [dict(zip(header, row, strict=True)) for row in ROWS]
        whole = {"version": 1, "data": records} if layout == "data.json" else records
        write(path, json.dumps(whole, ensure_ascii=False, indent=1))
    elif layout == "parquet":
        parquet.write_table(pa.table({"text": [row[0] for row in ROWS], "label": [row[1] for row in ROWS]}), path)
    else:
        path = write(tmp_path / "x.txt", "\n".join("_!_".join(row) for row in ROWS))
        settings = {"separator": "_!_"}
    examples, report = read(path, **settings)
    assert pairs(examples) == ROWS
    assert len(report.notes) == 1


@given(
    rows=st.lists(
        st.tuples(st.text('ab月", \n\u2028', min_size=1, max_size=6), st.sampled_from(["NA", "null", "007", "x"])),
        min_size=1,
        max_size=6,
    )
)
def test_what_pythons_csv_writes_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = write(tmp_path_factory.mktemp("law") / "x.csv", as_csv(rows, ("text", "label")))
    blank = [number for number, (text, _) in enumerate(rows) if not text.strip()]
    if blank:
        assert fails(path).problem == "the text is empty"
    else:
        assert pairs(read(path)[0]) == rows


def test_a_lone_quote_in_a_tsv_is_text_and_every_line_a_row(tmp_path: Path) -> None:
    lines = ["text\tlabel", '"quoted start\t1', "plain\t0", 'end"\t1', 'a "b" c\t0', "NA\tnull"]
    path = write(tmp_path / "x.tsv", "\n".join(lines))
    assert pairs(read(path)[0]) == [tuple(line.split("\t")) for line in lines[1:]]


def test_places_in_json_of_many_lines_are_those_of_the_records(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", '[\n {"text": "a",\n  "label": "1"},\n\n {"text": "b", "label": "2"}\n]')
    assert [example.line for example in read(path)[0]] == [2, 5]


def test_a_field_called_data_in_a_record_does_not_mislead(tmp_path: Path) -> None:
    text = '{"note": {"data": [1]}, "data":\n [{"text": "\\"data\\": [", "label": NaN},\n {"text": "b", "label": "2"}]}'
    examples, report = read(write(tmp_path / "x.json", text), on_bad="skip")
    assert [(e.text, e.line) for e in examples] == [("b", 3)]
    assert report.problems[0].problem == "the label is a number"
    assert report.problems[0].line == 2


# ---- columns


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("sentence1\tsentence2\tlabel", "a\tb\t1", ("a", "b", "1")),
        ("id\tpremise\thypothesis\tgold_label\tlabel1", "7\ta\tb\tneutral\tentailment", ("a", "b", "neutral")),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t2\t3\ta\tb", ("a", "b", "1")),
        ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\ta\tb\t0", ("a", "b", "0")),
        ("index\tquestion\tsentence\tlabel", "0\ta\tb\tentailment", ("a", "b", "entailment")),
        ("text_a\ttext_b\tlabel", "a\tb\t1", ("a", "b", "1")),
        ("Sentence\tLabel", "a\t1", ("a", None, "1")),
        ("index\tgenre\tfilename\tsentence1\tsentence2\tscore", "0\tg\tf\ta\tb\t2.5", ("a", "b", "2.5")),
    ],
)
def test_the_columns_of_public_sets_are_known(
    tmp_path: Path, header: str, row: str, expected: tuple[str, str | None, str]
) -> None:
    [example], _ = read(write(tmp_path / "x.tsv", f"{header}\n{row}\n"))
    assert (example.text, example.text_pair, example.label) == expected


def test_columns_are_named_by_name_or_number(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "n,body,other,tag\n1,hello,there,yes\n")
    for columns in (("body", "other", "tag"), ("2", "3", "4")):
        names = dict(zip(("text_column", "text_pair_column", "label_column"), columns, strict=True))
        if columns[0] == "2":
            names["column_names"] = "n,body,other,tag"
            path = write(tmp_path / "y.csv", "1,hello,there,yes\n")
        [example], _ = read(path, **names)
        assert (example.text, example.text_pair, example.label) == ("hello", "there", "yes")


@pytest.mark.parametrize(
    ("names", "flags"),
    [
        ({"text_pair_column": "label"}, "--text_pair_column and --label_column"),
        ({"text_column": "label"}, "--text_column and --label_column"),
        ({"label_column": "text"}, "--text_column and --label_column"),
        ({"text_pair_column": "text"}, "--text_column and --text_pair_column"),
    ],
)
@pytest.mark.parametrize("name", ["x.tsv", "x.jsonl"])
def test_a_column_has_one_role(tmp_path: Path, name: str, names: dict[str, str], flags: str) -> None:
    """A label that is read as a text, too, would be all that is learnt."""
    content = {"x.tsv": "text\tlabel\nab\tx\n", "x.jsonl": '{"text": "ab", "label": "x"}\n'}[name]
    with pytest.raises(InputErrors, match=f"{flags}: is one column in two roles"):
        read(write(tmp_path / name, content), **names)


def test_a_pair_in_one_field_is_parted_by_its_separator(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,label\na ||| b,1\nno separator,0\n")
    examples, report = read(path, pair_separator=" ||| ", on_bad="skip")
    assert [(e.text, e.text_pair) for e in examples] == [("a", "b")]
    assert "stands 0 times" in str(report.problems[0])
    assert report.problems[0].line == 3


def test_three_fields_by_separator_are_a_pair_and_its_label(tmp_path: Path) -> None:
    [example], _ = read(write(tmp_path / "x.txt", "a_!_b_!_1\n"), separator="_!_")
    assert (example.text, example.text_pair, example.label) == ("a", "b", "1")


def test_a_line_without_its_separator_is_named(tmp_path: Path) -> None:
    problem = fails(write(tmp_path / "x.txt", "a_!_1\nb_!_0\n\nc 1\nd_!_1\n\n"), separator="_!_")
    assert problem.line == 4
    assert problem.problem == "the row has 1 columns"


def test_files_without_header_are_recognised_and_said(tmp_path: Path) -> None:
    cola = write(tmp_path / "cola.tsv", "gj04\t1\t\tThey know.\ngj04\t0\t*\tThem know.\n")
    examples, report = read(cola)
    assert pairs(examples) == [("They know.", "1"), ("Them know.", "0")]
    assert "no header row; the layout of CoLA" in report.notes[0]
    stsb = write(tmp_path / "sts.csv", '"A b, c.",D e.,5.0\nF.,G.,2.4\n')
    [first, _], report = read(stsb)
    assert (first.text, first.text_pair, first.label, first.line) == ("A b, c.", "D e.", "5.0", 1)
    assert "no header row; taken as sentence1, sentence2, label" in report.notes[0]


def test_dashes_of_mnli_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = [("a", "b", "neutral"), ("c", "d", "-")]
    path = write(tmp_path / "x.jsonl", as_jsonl(rows, ("sentence1", "sentence2", "gold_label")))
    examples, report = read(path)
    assert len(examples) == 1
    assert report.dropped["gold_label is -: the annotators do not agree"] == 1


def test_labels_are_names_whatever_they_were(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.jsonl", "".join(f'{{"text": "a", "label": {x}}}\n' for x in ("1", "true", '"01"', "2.5"))
    )
    assert [example.label for example in read(path)[0]] == ["1", "true", "01", "2.5"]


def test_several_labels_are_names_vectors_or_columns(tmp_path: Path) -> None:
    names = write(tmp_path / "n.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n')
    assert [e.labels for e in read(names)[0]] == [("x", "y"), ()]
    vectors = write(tmp_path / "v.jsonl", '{"text": "a", "labels": [0, 1, 1]}\n{"text": "b", "labels": [0, 0, 0]}\n')
    assert [e.labels for e in read(vectors)[0]] == [("1", "2"), ()]
    cells = write(tmp_path / "c.csv", 'text,labels\na,"[""x"", ""y""]"\nb,[]\n')
    assert [e.labels for e in read(cells)[0]] == [("x", "y"), ()]
    columns = write(tmp_path / "t.csv", "text,toxic,rude\na,1,0\nb,0,0\nc,1,2\n")
    examples, report = read(columns, label_column="toxic,rude", on_bad="skip")
    assert [e.labels for e in examples] == [("toxic",), ()]
    assert (report.problems[0].line, report.problems[0].field) == (4, "rude")


def test_lists_of_two_kinds_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"text": "a", "labels": [0, 1]}\n{"text": "b", "labels": [2]}\n')
    write(tmp_path / "b.jsonl", '{"text": "a", "labels": [0, 1]}\n{"text": "b", "labels": [1, 0]}\n')
    said = (
        r"b.jsonl: labels: labels are 0/1 vectors of 2 and lists of names, in this file[\s\S]*lists of names everywhere"
    )
    with pytest.raises(InputErrors, match=said):
        read(tmp_path)
    _, report = read(tmp_path / "b.jsonl")
    assert "labels are 0/1 vectors of length 2: the names of the labels are 0 to 1" in report.notes


def test_texts_to_predict_need_no_labels_and_may_be_empty(tmp_path: Path) -> None:
    examples, report = read(write(tmp_path / "x.csv", "id,text\n7,a\n8,  \n"), labelled=False)
    assert [(e.id, e.text, e.label) for e in examples] == [("7", "a", None), ("8", "  ", None)]
    assert "no labels" in report.notes[0]


def test_texts_to_predict_may_be_plain_lines(tmp_path: Path) -> None:
    examples, report = read(write(tmp_path / "x.txt", "text\n\n 一 ||| 二\n"), labelled=False)
    assert [(e.id, e.text, e.line) for e in examples] == [("x.txt:1", "text", 1), ("x.txt:3", " 一 ||| 二", 3)]
    assert report.notes == ["x.txt: lines, a text on each; text = text, no labels"]
    assert report.dropped == {"blank line": 1}
    [pair], _ = read(write(tmp_path / "y.txt", "一 ||| 二\n"), labelled=False, pair_separator=" ||| ")
    assert (pair.text, pair.text_pair) == ("一", "二")
    [tabbed], _ = read(write(tmp_path / "t.txt", "a\tb {\n"), labelled=False, column_names="text")
    assert tabbed.text == "a\tb {"
    with pytest.raises(InputErrors, match="neither the name nor the first line says how fields"):
        read(tmp_path / "x.txt")
    with pytest.raises(InputErrors, match=r"holds no text[\s\S]*a text on each line"):
        read(write(tmp_path / "z.txt", " \n\n"), labelled=False)


# ---- what is wrong is named


@pytest.mark.parametrize(
    ("name", "content", "line", "field", "said"),
    [
        ("x.csv", "text,label\na,1\nb\n", 3, None, "the row has 1 columns"),
        ("x.csv", "text,label\na,1\nb,2,3\n", 3, None, "the row has 3 columns"),
        ("x.csv", 'text,label\na,1\n"b,2\n', 3, None, "the quote that opens here does not close"),
        ("x.csv", "text,label\na,1\n ,2\n", 3, "text", "the text is empty"),
        ("x.csv", "text,label\na,1\nb,\n", 3, "label", "the label is empty"),
        ("x.csv", "text,label,text\na,1,b\n", 1, "text", "2 columns have this name"),
        ("x.csv", "foo,bar\nbaz,qux\n", 1, None, "the first row may be names of columns or data"),
        ("x.csv", "今天天气真好。,1\n", None, None, None),
        ("x.csv", "text;label\na;1\n", 1, None, "the first row is one column, with ';' in it"),
        ("x.tsv", "text,label\na,1\n", 1, None, "the first row is one column, with ',' in it"),
        ("x.csv", "text,number\na,1\n", None, None, "no column has a name of labels"),
        ("x.csv", "body,label\na,1\n", None, None, "no column has a name of texts"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b"}\n', 2, "label", "the field is missing"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b", "lable": "1"}\n', 2, "label", "did you mean lable"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": 5, "label": "1"}\n', 2, "text", "the field holds a number"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b", "label": {}}\n', 2, "label", "the label is an object"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b", "label": NaN}\n', 2, "label", "the label is a number"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b", \n', 2, None, "broken JSON"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n["b", "1"]\n', 2, None, "the line is an array"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "b", "text": "c", "label": "1"}\n', 2, None, "stands twice"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n{"text": "\\ud83d", "label": "1"}\n', 2, "text", "surrogate pair"),
        ("x.jsonl", '{"text": "a", "label": "1"}\n' + "[" * 100_000 + "\n", 2, None, "cannot be read as JSON"),
        ("x.json", '[{"text": "a", "label": "1"},\n 5]', 2, "[1]", "the record is a number"),
        ("x.json", '{"data": 5}', None, "data", "is a number"),
        ("x.json", "[]", None, None, "holds no record"),
        ("x.json", '[{"text": "a"', 1, None, "broken JSON"),
        ("x.txt", "just a line\n", None, None, "neither the name nor the first line says"),
        ("x.csv", "\n \n", None, None, "holds no record"),
        ("x.csv", "text,label\n", None, None, "holds a header and no record"),
        ("x.csv", b"text,label\na,1\nb\xff,2\n", 3, None, "byte 2 of the line is not UTF-8"),
        ("x.csv", "text,label\na,1\nb\0,2\n", 3, None, "byte 2 of the line is NUL"),
        ("x.csv", "text,label\na,1\n".encode("utf-16"), None, None, "is UTF-16"),
        ("x.csv", "text,label\n月亮,好\n".encode("gb18030"), 2, None, "not UTF-8"),
        ("x.csv", b"PK\x03\x04rest", None, None, "is no text"),
        ("x.parquet", b"PAR1 cut short", None, None, "cannot be read as Parquet"),
        ("x.csv.gz", b"\x1f\x8b\x08\x00cut", 1, None, "cannot be read to its end"),
    ],
)
def test_a_broken_file_is_named_with_line_and_field(
    tmp_path: Path, name: str, content: str | bytes, line: int | None, field: str | None, said: str | None
) -> None:
    path = write(tmp_path / name, content)
    if said is None:
        assert len(read(path)[0]) == 1
        return
    problem = fails(path)
    assert (problem.line, problem.field) == (line, field)
    assert said in str(problem)
    assert str(problem).startswith(str(path))


def test_columns_of_the_wrong_type_in_parquet_are_named_by_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"text": ["a", None], "label": [1, 2]}), path)
    problem = fails(path)
    assert (problem.line, problem.field, problem.problem) == (2, "text", "the field holds null")
    parquet.write_table(pa.table({"text": [1, 2], "label": [1, None]}), path)
    problem = fails(path)
    assert problem.problem == "the field holds a number"
    assert problem.remedy == (
        "write a string, or name the field of the text: --text_column; --on_bad skip leaves such records out"
    )
    parquet.write_table(pa.table({"text": ["a", "b"], "label": [["x"], ["x", "y"]]}), path)
    assert [example.labels for example in read(path)[0]] == [("x",), ("x", "y")]


def test_a_first_record_without_a_label_is_named(tmp_path: Path) -> None:
    problem = fails(write(tmp_path / "x.jsonl", '{"text": "a"}\n{"text": "b", "label": "1"}\n'))
    assert (problem.line, problem.field, problem.problem) == (1, "label", "the field is missing")


def test_line_ends_of_all_kinds_and_a_mark_are_counted_and_others_are_text(tmp_path: Path) -> None:
    content = "\ufefftext,label\r\na\u0085b\u2028c,1\rd,2\r\ne,3"
    examples, report = read(write(tmp_path / "x.csv", content))
    assert pairs(examples) == [("a\u0085b\u2028c", "1"), ("d", "2"), ("e", "3")]
    assert report.changed == {
        "byte order mark taken off": 1,
        "CRLF line end made LF": 2,
        "lone CR taken as a line end": 1,
    }


def test_other_encodings_are_read_when_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,label\n月亮,好\n".encode("gb18030"))
    assert pairs(read(path, encoding="gb18030")[0]) == [("月亮", "好")]


def test_a_header_in_spite_of_column_names_is_refused(tmp_path: Path) -> None:
    problem = fails(write(tmp_path / "x.csv", "text,label\na,1\n"), column_names="text,label")
    assert "the first row is a header" in str(problem)


def test_all_problems_are_counted_and_the_first_twenty_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,label\n" + "a,1\n,2\n" * 30)
    with pytest.raises(InputErrors, match="20 of 30 problems shown"):
        read(path)
    examples, report = read(path, on_bad="skip")
    assert (len(examples), report.num_problems, len(report.problems)) == (30, 30, 20)
    assert ("records skipped as broken", 30) in report.rows()


def test_a_file_that_cannot_be_read_on_is_never_skipped(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match="does not close"):
        read(write(tmp_path / "x.csv", 'text,label\na,1\n"b,2\n'), on_bad="skip")


def test_what_is_no_file_is_refused_by_its_flag(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match="is a folder without files"):
        read(tmp_path)
    with pytest.raises(InputErrors, match="check --train_file"):
        read(tmp_path / "absent.csv")
    with pytest.raises(InputErrors, match="is empty"):
        read(write(tmp_path / "empty.csv", ""))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"separator": ""}, "--separator: is empty"),
        ({"separator": "|", "pair_separator": "|"}, "--pair_separator: is the separator of fields too"),
        ({"label_column": "lable"}, "did you mean label"),
        ({"text_column": "9"}, "there is no such column"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(tmp_path: Path, settings: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(write(tmp_path / "x.csv", "text,label\na,1\n"), **settings)
