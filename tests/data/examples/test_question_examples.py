"""Files of questions → QuestionExamples: nested and flat, every gold answer checked where it is said to stand."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.examples.example import Answer, QuestionExample
from bertkit.data.examples.gold_answers import nearest_place, stands
from bertkit.data.examples.questions import has_unanswerable, read_question_examples, without_answers
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputErrors

CONTEXT = "苏轼，字子瞻。  Su Shi was born in 1037\n\n\nin Meishan."


def answer(text: str, start: int | None = None) -> dict[str, Any]:
    return {"text": text, "answer_start": CONTEXT.index(text) if start is None else start}


def question(id: str, *answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": id, "question": f"question {id}?", "answers": list(answers), **more}


def squad(*questions: dict[str, Any], title: str = "Su Shi", context: str = CONTEXT) -> dict[str, Any]:
    return {"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}


def write(path: Path, value: object, *, indent: int | None = 1, ascii: bool = True) -> Path:
    text = value if isinstance(value, str) else json.dumps(value, indent=indent, ensure_ascii=ascii)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, *, labelled: bool = True, **settings: object) -> tuple[list[QuestionExample], ExampleReport]:
    asked = ReadingSettings(**settings)  # type: ignore[arg-type]
    report = ExampleReport(asked.on_bad)
    examples = read_question_examples(str(path), asked, report, labelled=labelled, flag="--train_file")
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems
    assert report.kept == len(examples)
    return examples, report


ONE = squad(question("1", answer("1037")), question("2", answer("子瞻"), answer("字子瞻")))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii", [True, False])
def test_nested_layouts_give_the_same_questions(tmp_path: Path, indent: int | None, ascii: bool) -> None:
    wholes = [{"version": "1.1", "data": [ONE]}, [ONE], {"data": [ONE], "version": "v2.0"}]
    found = [read(write(tmp_path / "x.json", whole, indent=indent, ascii=ascii))[0] for whole in wholes]
    first = found[0]
    assert all(
        [(e.id, e.answers, e.context) for e in other] == [(e.id, e.answers, e.context) for e in first]
        for other in found
    )
    assert first[0].answers == (Answer("1037", CONTEXT.index("1037")),)
    assert first[1].answers[1].text == "字子瞻"
    assert all(e.context[a.start :].startswith(a.text) for e in first for a in e.answers)  # public case 48
    assert {e.article for e in first} == {"Su Shi"}


def test_flat_rows_give_the_same_questions(tmp_path: Path) -> None:
    place = CONTEXT.index("1037")
    flat = {"id": "1", "title": "Su Shi", "context": CONTEXT, "question": "question 1?"}
    wholes = [
        {**flat, "answers": {"text": ["1037"], "answer_start": [place]}},
        {**flat, "answers": [{"text": "1037", "answer_start": place}]},
    ]
    for name, value in (
        ("x.jsonl", wholes[0]),
        ("x.json", {"version": 2.0, "data": [wholes[0]]}),
        ("y.json", [wholes[1]]),
    ):
        [example], _ = read(write(tmp_path / name, value, indent=None if "jsonl" in name else 1))
        assert (example.id, example.answers, example.article) == ("1", (Answer("1037", place),), "Su Shi")
    cell = json.dumps(wholes[0]["answers"]).replace('"', '""')
    [example], _ = read(write(tmp_path / "x.csv", f'id,question,context,answers\n1,q?,"{CONTEXT}","{cell}"\n'))
    assert example.answers == (Answer("1037", place),)


def test_every_question_knows_its_line(tmp_path: Path) -> None:
    lines = [
        '{"data": [',
        '{"title": "a \\"id\\": \\"2\\"", "id": "0", "paragraphs": [',
        ' {"context": "x y", "qas": [',
        '  {"question": "q", "id": "1", "answers": []},',
        '  {"question": "q",',
        '   "id": "2", "answers": []}]}]},',
        '{"paragraphs": [{"qas": [{"id": 3, "question": "q", "answers": []}], "context": "z"}]}]}',
    ]
    examples, _ = read(write(tmp_path / "x.json", "\n".join(lines)))
    assert [(e.id, e.line) for e in examples] == [("1", 4), ("2", 6), ("3", 7)]
    assert [e.article for e in examples][-1] == "data[1]"


def test_answerable_and_unanswerable_questions_are_told_apart(tmp_path: Path) -> None:  # public case 46
    impossible = question("3", is_impossible=True, plausible_answers=[answer("1037")])
    del impossible["answers"]
    whole = squad(question("1", answer("1037"), is_impossible=False), question("2"), impossible)
    examples, _ = read(write(tmp_path / "x.json", [whole]))
    assert [e.is_impossible for e in examples] == [False, True, True]
    assert has_unanswerable(examples)
    assert not has_unanswerable([without_answers(e) for e in examples])


def test_an_empty_context_is_read(tmp_path: Path) -> None:  # public case 45
    examples, _ = read(
        write(tmp_path / "x.json", [squad(question("1"), context=""), squad(question("2"), context=" \n• ")])
    )
    assert [(e.context, e.is_impossible) for e in examples] == [("", True), (" \n• ", True)]


def test_equal_answers_of_several_annotators_count_once(tmp_path: Path) -> None:
    [example], _ = read(write(tmp_path / "x.json", [squad(question("1", answer("1037"), answer("1037")))]))
    assert len(example.answers) == 1


# ---- answers that do not stand where they say: public case 47


PLACE = CONTEXT.index("1037")
WRONG = squad(
    question("near", answer("1037", PLACE - 2)),
    question("bytes", answer("1037", len(CONTEXT[:PLACE].encode("utf-8")))),
    question("absent", answer("1101", 3)),
    question("case", answer("su shi", 3)),
    question("good", answer("子瞻"), answer("1037", PLACE + 1)),
)


def test_misplaced_answers_are_listed_with_the_nearest_place(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match="5 of 5 problems shown") as caught:
        read(write(tmp_path / "x.json", [WRONG]))
    problems = caught.value.problems
    assert [problem.field for problem in problems] == [
        f"answers of {id}" for id in ("near", "bytes", "absent", "case", "good")
    ]
    assert problems[0].expected == f"answer_start {PLACE}, where it stands nearest"
    assert "counts bytes" in str(problems[1])
    assert "a text of the context" in str(problems[2])
    assert "in other case" in str(problems[3])
    assert len({problem.line for problem in problems}) == 5


def test_misplaced_answers_are_moved_only_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", [WRONG])
    examples, report = read(path, repair_offsets=True, on_bad="skip")
    assert [e.id for e in examples] == ["near", "bytes", "good"]
    assert all(stands(a, e.context) for e in examples for a in e.answers)
    assert report.changed["misplaced answer moved to the nearest place of its text"] == 3
    assert report.num_problems == 2


def test_misplaced_answers_are_used_or_dropped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", [WRONG])
    used, report = read(path, on_bad_answers="use")
    assert len(used) == 5
    assert report.changed["misplaced answer used as it is"] == 5
    left, report = read(path, on_bad_answers="drop")
    assert [(e.id, len(e.answers)) for e in left] == [("good", 1)]
    assert report.dropped["question without an answer left"] == 4
    assert report.changed["misplaced answer dropped"] == 5


@given(context=st.text("ab ", max_size=12), text=st.text("ab", min_size=1, max_size=2), start=st.integers(-2, 14))
def test_the_nearest_place_is_the_nearest_of_all(context: str, text: str, start: int) -> None:
    places = [place for place in range(len(context)) if context.startswith(text, place)]
    expected = min(places, key=lambda place: (abs(place - start), place), default=None)
    assert nearest_place(Answer(text, start), context) == expected


# ---- what is wrong is named


@pytest.mark.parametrize(
    ("value", "line", "field", "said"),
    [
        ([squad(question("1", answer("1037")), question("1"))], None, "id", "the id stands twice"),
        ([squad({"question": "q", "answers": []})], None, "id", "the field is missing"),
        ([squad(question("1", answer("1037"), is_impossible=True))], None, None, "is impossible, and has an answer"),
        ([squad(question("1", {"text": "1037"}))], None, None, "the answer has no text or no place"),
        ([squad(question("1", {"text": "", "answer_start": 0}))], None, None, "the answer has no text or no place"),
        ([squad({"id": "1", "question": "q"})], None, "answers", "the field is missing"),
        ([squad({"id": "1", "question": "q", "answers": 5})], None, None, "the field holds a number"),
        ([squad({"id": "1", "question": "q", "answers": [], "is_impossible": "no"})], None, None, "holds a string"),
        ([squad({"id": "1", "question": 5, "answers": []})], None, "question", "the field holds a number"),
        ([squad({"id": [], "question": "q", "answers": []})], None, None, "the field holds an array"),
        ([{"title": "t", "paragraphs": 5}], 2, "data[0].paragraphs", "the field holds a number"),
        ([{"paragraphs": [{"qas": []}]}], 2, "data[0].paragraphs[0]", "the paragraph has no context"),
        ([{"paragraphs": [{"context": "c", "qas": [5]}]}], 2, "data[0].paragraphs[0].qas[0]", "holds a number"),
    ],
)
def test_a_broken_question_is_named(
    tmp_path: Path, value: object, line: int | None, field: str | None, said: str
) -> None:
    with pytest.raises(InputErrors, match=said) as caught:
        read(write(tmp_path / "x.json", value))
    problem = caught.value.problems[0]
    assert problem.line is not None
    assert line is None or problem.line == line
    assert field is None or problem.field == field


def test_answers_in_a_table_that_are_no_json_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "id,question,context,answers\n1,q,c,nothing\n")
    with pytest.raises(InputErrors, match=r"x\.csv:2: answers: the answers are no JSON"):
        read(path)


def test_questions_without_answers_may_be_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"id": 7, "question": "", "context": "c"}\n')
    [example], report = read(path, labelled=False)
    assert (example.id, example.answers, example.is_impossible) == ("7", (), False)
    assert "1 questions are empty" in report.warnings[0]
