"""Files of multiple choice → ChoiceExamples: every public layout, labels by place, letter or key."""

import json
from pathlib import Path

import pytest

from bertkit.data.examples.choices import place_of, read_choice_examples
from bertkit.data.examples.example import ChoiceExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputErrors

SWAG = "sent1,sent2,startphrase,ending0,ending1,ending2,ending3,label\n"
ROW = 'She waits.,She,She waits. She,goes.,"stays, and waits.",sings.,sleeps.,2\n'


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content) + "\n", encoding="utf-8")
    return path


def read(path: Path, *, labelled: bool = True, **settings: object) -> tuple[list[ChoiceExample], ExampleReport]:
    asked = ReadingSettings(**settings)  # type: ignore[arg-type]
    report = ExampleReport(asked.on_bad)
    examples = read_choice_examples(str(path), asked, report, labelled=labelled, flag="--train_file")
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems
    return examples, report


def one(path: Path, **settings: object) -> tuple[str, tuple[str, ...], int | None]:
    [example], _ = read(path, **settings)
    return example.context, example.choices, example.label


def test_swag_is_sentence_and_sentence_begun_with_each_ending(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", SWAG + ROW)
    expected = ("She goes.", "She stays, and waits.", "She sings.", "She sleeps.")
    assert one(path) == ("She waits.", expected, 2)
    endings = ("goes.", "stays, and waits.", "sings.", "sleeps.")
    assert one(path, context="startphrase") == ("She waits. She", endings, 2)


def test_codah_is_known_without_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "o\tA driver. He\tfound.\tran.\tstuck.\tasked.\t1\n\tA. He\ta.\tb.\tc.\td.\t3\n")
    examples, report = read(path)
    assert examples[0].choices == ("found.", "ran.", "stuck.", "asked.")
    assert [(e.context, e.label) for e in examples] == [("A driver. He", 1), ("A. He", 3)]
    assert "the layout of CODAH" in report.notes[0]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"question": "q?", "choices": ["a", "b", "c"], "label": 2}, ("q?", ("a", "b", "c"), 2)),
        ({"context": "c.", "question": "q?", "choices": ["a", "b"], "label": "B"}, ("c.", ("q? a", "q? b"), 1)),
        ({"article": "他", "question": "问", "options": ["甲", "乙"], "answer": "A"}, ("他", ("问甲", "问乙"), 0)),
        ({"question": "q?", "A": "x", "B": "y", "answer": "B"}, ("q?", ("x", "y"), 1)),
        ({"context": "c.", "ending0": "a", "ending1": "b", "label": "1"}, ("c.", ("a", "b"), 1)),
        (
            {"question": "q?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
            ("q?", ("a", "b"), 1),
        ),
        (
            {
                "question": {"stem": "q?", "choices": [{"label": "A", "text": "a"}, {"label": "B", "text": "b"}]},
                "answerKey": "B",
            },
            ("q?", ("a", "b"), 1),
        ),
        (
            {"premise": "It fell.", "question": "cause", "choice1": "a", "choice2": "b", "label": 0},
            ("It fell. What was the cause of this?", ("a", "b"), 0),
        ),
        (
            {"premise": "他走了。", "question": "effect", "choice1": "a", "choice2": "b", "label": 1},
            ("他走了。结果发生了什么？", ("a", "b"), 1),
        ),
    ],
)
def test_every_public_layout_is_known(
    tmp_path: Path, record: dict[str, object], expected: tuple[str, tuple[str, ...], int]
) -> None:
    assert one(write(tmp_path / "x.jsonl", record)) == expected


def test_columns_are_named_by_name_or_number(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "body,x,y,right\nb.,one,two,1\n")
    named = {"text_column": "body", "choice_columns": "x,y", "label_column": "right"}
    assert one(path, **named) == ("b.", ("one", "two"), 1)
    numbered = {"column_names": "body,x,y,right", "text_column": "1", "choice_columns": "2,3", "label_column": "4"}
    assert one(write(tmp_path / "y.csv", "b.,one,two,1\n"), **numbered) == ("b.", ("one", "two"), 1)


def test_questions_may_have_different_numbers_of_choices(tmp_path: Path) -> None:  # public case 42
    records = [{"question": "q", "choices": list("abcde"[:n]), "label": n - 1} for n in (2, 4, 5)]
    path = write(tmp_path / "x.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert [(len(e.choices), e.label) for e in read(path)[0]] == [(2, 1), (4, 3), (5, 4)]


def test_numbered_choices_may_be_fewer_in_some_records_but_have_no_gap(tmp_path: Path) -> None:
    records = [
        {"goal": "g", "sol1": "a", "sol2": "b", "label": 1},
        {"goal": "g", "sol1": "a", "sol2": "b", "sol3": "c", "label": 2},
    ]
    path = write(tmp_path / "x.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert [e.choices for e in read(path)[0]] == [("a", "b"), ("a", "b", "c")]
    records[1].pop("sol2")
    path = write(tmp_path / "x.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(InputErrors, match="sol2: the field is missing") as caught:
        read(path)
    assert caught.value.problems[0].line == 2


@pytest.mark.parametrize(
    ("label", "keys", "number", "place"),
    [
        ("C", [], 3, 2),
        ("D", [], 3, None),
        (3, [], 3, None),
        (2, [], 3, 2),
        ("2", [], 3, 2),
        ("3", ["1", "2", "3"], 3, 2),
        (3, ["1", "2", "3"], 3, 2),
        ("0", ["1", "2", "3"], 3, None),
        (-1, [], 3, None),
        (True, [], 3, None),
        (1.0, [], 3, None),
        ("c", [], 3, None),
        (None, [], 3, None),
    ],
)
def test_the_right_choice_is_named_by_key_place_or_letter(
    label: object, keys: list[str], number: int, place: int | None
) -> None:  # public case 43
    assert place_of(label, keys, number) == place


@pytest.mark.parametrize(
    ("content", "line", "field", "said"),
    [
        (SWAG + ROW + ROW.replace(",2\n", ",4\n"), 3, "label", "the label names none of the 4 choices"),
        (SWAG + ROW.replace("sings.", ""), 2, "ending2", "the text is empty"),
        (SWAG + ROW.replace("She waits.,", ",", 1), 2, "sent1", "the text is empty"),
        (SWAG + ROW.replace(",2\n", ",\n"), 2, "label", "the label names none"),
        (SWAG + ROW.replace("goes.,", ""), 2, None, "the row has 7 columns"),
        ("context,ending0,label\na,b,0\n", 2, "ending0", "the field holds a string"),
        ("text,body\na,b\n", None, None, "no columns have names of a choice"),
        ("context,ending0,ending1\na,b,c\n", None, None, "no column has a name of labels"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, content: str, line: int | None, field: str | None, said: str) -> None:
    with pytest.raises(InputErrors, match=said) as caught:
        read(write(tmp_path / "x.csv", content))
    problem = caught.value.problems[0]
    assert (problem.line, problem.field) == (line, field)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (["a"], "there is 1 choice"),
        (["a", " "], "a choice is empty"),
        (["a", 5], "the field holds a number"),
        ("ab", "the field holds a string"),
        ([{"text": "a", "label": "A"}, {"text": None, "label": "B"}], "the field holds null"),
    ],
)
def test_choices_that_are_no_texts_are_named(tmp_path: Path, choices: object, said: str) -> None:
    with pytest.raises(InputErrors, match=said) as caught:
        read(write(tmp_path / "x.jsonl", {"question": "q", "choices": choices, "label": 0}))
    assert (caught.value.problems[0].line, caught.value.problems[0].field) == (1, "choices")


def test_labels_are_not_needed_to_predict(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", SWAG.replace(",label", "") + ROW.replace(",2\n", "\n"))
    [example], report = read(path, labelled=False)
    assert example.label is None
    assert "label = none" in report.notes[0]
