"""One map for all splits, one kind of problem, and everything that looks unintended said."""

from collections.abc import Sequence

import pytest

from bertkit.data.examples.example import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from bertkit.data.examples.labels import (
    LabelMap,
    class_weights,
    label_map,
    only_known,
    require_known_labels,
    resolve_labels,
)
from bertkit.data.examples.reading import ExampleReport, ProblemType
from bertkit.data.examples.splits import split_validation, warn_of_leaks, warn_of_repeats
from bertkit.errors import InputError, InputErrors


def texts(labels: Sequence[str], *, start: int = 0) -> list[TextExample]:
    return [
        TextExample(str(n), f"text {n + start}", None, label, None, None, "x.csv", n + 2)
        for n, label in enumerate(labels)
    ]


def resolved(
    *, problem_type: ProblemType | None = None, **labels: Sequence[str]
) -> tuple[ProblemType, LabelMap, ExampleReport, dict[str, list[TextExample]]]:
    report = ExampleReport()
    splits = {name: texts(given, start=100 * place) for place, (name, given) in enumerate(labels.items())}
    kind, examples, names = resolve_labels(splits, problem_type=problem_type, report=report)
    return kind, names, report, examples


# ---- maps


def test_the_map_is_the_same_whatever_split_or_order_labels_come_in() -> None:  # public case 33
    maps = {
        resolved(train=train, validation=validation)[1].names
        for train, validation in (("ba", "abc"), ("ab", "cba"), ("cab", "a"), ("a", "bc"))
    }
    assert maps == {("a", "b", "c")}


def test_a_map_and_its_inverse_agree() -> None:
    names = label_map(["10", "9", "0", "9"])
    assert names.id2label == {0: "0", 1: "9", 2: "10"}
    assert {names.label2id[name]: name for name in names.names} == names.id2label
    assert len(names) == 3


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["0", "1", "1"], "single_label_classification"),
        (["5.0", "1.0"], "single_label_classification"),
        (["5.0", "1.5"], "regression"),
        (["-0.9000", "2"], "regression"),
        (["1.5", "x"], "single_label_classification"),
        (["1.5", "nan"], "single_label_classification"),
        (["1_0.5", "2"], "single_label_classification"),
    ],
)
def test_numbers_of_which_one_is_not_whole_are_scores(labels: list[str], kind: ProblemType) -> None:
    assert resolved(train=labels)[0] == kind


def test_whole_numbers_are_a_regression_when_asked_for() -> None:  # public case 34
    kind, names, _, examples = resolved(problem_type="regression", train=["0", "1"])
    assert (kind, len(names)) == ("regression", 0)
    assert [(e.score, e.label) for e in examples["train"]] == [(0.0, None), (1.0, None)]
    assert all(isinstance(example.score, float) for example in examples["train"])


def test_scores_may_be_kept_as_names() -> None:
    assert resolved(problem_type="single_label_classification", train=["1.5", "2.5"])[1].names == ("1.5", "2.5")


def test_a_label_that_does_not_fit_the_problem_is_named() -> None:
    with pytest.raises(InputErrors, match=r"x.csv:3: label: the label is no number to train on\n  value: 'good'"):
        resolved(problem_type="regression", train=["1", "good"])
    several = TextExample("1", "a", None, None, ("x", "y"), None, "x.csv", 2)
    with pytest.raises(InputErrors, match=r"x\.csv:2: label: the label is no list, but others are"):
        resolve_labels({"train": [*texts(["x"]), several]}, problem_type=None, report=ExampleReport())
    with pytest.raises(InputErrors, match="the label is a list"):
        resolve_labels({"train": [several]}, problem_type="single_label_classification", report=ExampleReport())


@pytest.mark.parametrize("wrong", ["n/a", "", "nan", "3,5"])
def test_a_few_labels_that_are_no_numbers_leave_a_regression_one(wrong: str) -> None:
    labels = [*["0.5", "1", "2.25"] * 6, wrong]
    with pytest.raises(InputErrors, match=r"x.csv:20: label: the label is no number to train on[\s\S]*--problem_type"):
        resolve_labels({"train": texts(labels)}, problem_type=None, report=ExampleReport())
    report = ExampleReport("skip")
    kind, found, _ = resolve_labels({"train": texts(labels)}, problem_type=None, report=report)
    assert (kind, len(found["train"]), report.num_problems) == ("regression", 18, 1)
    asked = {"problem_type": "single_label_classification", "report": ExampleReport()}
    assert len(resolve_labels({"train": texts(labels)}, **asked)[2]) == 4


def test_names_of_which_some_are_numbers_are_names() -> None:
    for labels in (["1.5", "2.0", "beta"], ["1", "2", "3"] * 9 + ["many"], ["a", "b", "0.5"]):
        assert resolved(train=labels)[0] == "single_label_classification"


def test_scores_of_which_more_than_a_tenth_are_none_are_names_with_a_warning() -> None:
    report = ExampleReport()
    labels = ["0.5", "1", "2.25", "3.5", "nan"]
    assert (
        resolve_labels({"train": texts(labels)}, problem_type=None, report=report)[0] == "single_label_classification"
    )
    assert report.warnings[0].startswith("4 of 5 labels are numbers, not all of them whole, and others are not")
    quiet = ExampleReport()
    resolve_labels({"train": texts(["1", "2", "beta"])}, problem_type=None, report=quiet)
    assert not any("are numbers" in warning for warning in quiet.warnings)


@pytest.mark.parametrize("wrong", ["1e300", "-1.1e18", "inf"])
def test_a_score_that_no_model_can_hold_is_no_finite_number(wrong: str) -> None:
    with pytest.raises(InputErrors, match=r"x.csv:20: label: the label is no number to train on"):
        resolve_labels({"train": texts([*["0.5", "1", "2.25"] * 6, wrong])}, problem_type=None, report=ExampleReport())


def test_one_list_among_labels_makes_no_multi_label_problem() -> None:
    several = TextExample("9", "a", None, None, ("y", "x"), None, "x.csv", 9)
    report = ExampleReport("skip")
    kind, found, _ = resolve_labels({"train": [*texts(["a", "b"] * 3), several]}, problem_type=None, report=report)
    assert (kind, len(found["train"]), report.num_problems) == ("single_label_classification", 6, 1)
    assert "labels are 3 classes" in report.notes[0]


def test_several_labels_make_a_multi_label_problem() -> None:
    report = ExampleReport()
    example = TextExample("1", "a", None, None, ("y", "x"), None, "x.csv", 2)
    kind, _, names = resolve_labels({"train": [example]}, problem_type=None, report=report)
    assert (kind, names.names) == ("multi_label_classification", ("x", "y"))
    assert "several labels" in report.notes[0]


# ---- warnings


def test_names_that_differ_in_case_are_kept_apart_and_said() -> None:
    _, names, report, _ = resolved(train=["good", "Good", "bad "])
    assert names.names == ("Good", "bad ", "good")
    assert report.warnings == ["labels that differ in case or blanks only: 'Good', 'good'; they stay apart"]


def test_one_class_only_and_a_class_never_trained_on_are_said() -> None:
    report = resolved(train=["a", "a"], validation=["a", "b"])[2]
    assert "all 2 labels of train are 'a'" in report.warnings[0]
    assert report.warnings[1] == "1 labels of validation never stand in train and cannot be learnt: b"


def test_a_label_that_a_model_does_not_have_is_named() -> None:
    with pytest.raises(
        InputErrors, match=r"x.csv:3: label: the label is not one of the model's[\s\S]*did you mean good"
    ):
        require_known_labels(texts(["good", "goood"]), LabelMap(("bad", "good")))


def test_examples_whose_labels_a_model_does_not_have_are_counted_where_they_are_skipped() -> None:
    report, names = ExampleReport("skip", read=3, kept=3), LabelMap(("bad", "good"))
    assert [e.label for e in only_known(texts(["good", "worse", "bad"]), names, report)] == ["good", "bad"]
    assert dict(report.rows())["records skipped as broken"] == 1
    with pytest.raises(InputErrors, match=r"labels: no example is left[\s\S]*mend the files"):
        only_known(texts(["worse"]), names, report)
    with pytest.raises(InputErrors, match=r"mend the file, fine-tune a model on such labels, or .*--on_bad skip"):
        only_known(texts(["worse"]), names, ExampleReport())


def test_labels_that_do_not_fit_are_skipped_where_asked() -> None:
    report = ExampleReport("skip")
    kind, found, _ = resolve_labels({"train": texts(["1.5", "much", "2"])}, problem_type="regression", report=report)
    assert kind == "regression"
    assert [example.score for example in found["train"]] == [1.5, 2.0]
    assert report.num_problems == 1


def test_class_weights_make_all_classes_count_alike() -> None:  # public case 36
    counts = [95, 5, 0]
    weights = class_weights(counts)
    assert weights[0] * 95 == pytest.approx(weights[1] * 5) == pytest.approx(50)
    assert weights[2] == 0


# ---- splitting


def question(number: int, article: str) -> QuestionExample:
    return QuestionExample(
        str(number), article, "q?", f"context {number}", (Answer("c", 0),), False, article, "q.json", 1
    )


def sentence(number: int, document: int) -> TaggedExample:
    return TaggedExample(
        str(number), f"w{number}", (f"w{number}",), ((0, 2),), ("O",), document, "x.conll", (number + 1,)
    )


def test_a_split_is_a_pure_function_of_the_seed_and_loses_nothing() -> None:
    examples = texts(["a"] * 100)
    rest, part = split_validation(examples, fraction=0.2, seed=1)
    assert (rest, part) == split_validation(list(examples), fraction=0.2, seed=1)
    assert len(part) == 20
    assert sorted(map(id, [*rest, *part])) == sorted(map(id, examples))
    assert [e.line for e in part] == sorted(e.line for e in part)
    assert split_validation(examples, fraction=0.2, seed=2)[1] != part


def test_equal_texts_articles_and_documents_are_never_torn_apart() -> None:  # textbook fault 14
    same = texts(["a"] * 10) + texts(["b"] * 10)
    rest, part = split_validation(same, fraction=0.3, seed=3)
    assert {e.text for e in rest}.isdisjoint({e.text for e in part})
    questions = [question(n, f"article {n // 5}") for n in range(40)]
    rest_q, part_q = split_validation(questions, fraction=0.2, seed=3)
    assert {q.article for q in rest_q}.isdisjoint({q.article for q in part_q})
    assert len(part_q) == 10
    sentences = [sentence(n, n // 4) for n in range(40)]
    rest_s, part_s = split_validation(sentences, fraction=0.2, seed=3)
    assert {s.document for s in rest_s}.isdisjoint({s.document for s in part_s})


def test_sentences_without_documents_are_split_one_by_one() -> None:
    rest, part = split_validation([sentence(n, 0) for n in range(10)], fraction=0.3, seed=1)
    assert (len(rest), len(part)) == (7, 3)


def test_a_split_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="--validation_split: is out of range"):
        split_validation(texts(["a"]), fraction=1.0, seed=1)
    with pytest.raises(InputError, match="all 3 examples belong together"):
        split_validation([question(n, "one") for n in range(3)], fraction=0.5, seed=1)


def test_texts_that_two_splits_share_are_counted() -> None:  # textbook fault 14
    train, test = texts(["a"] * 5), texts(["b"] * 3, start=3)
    report = ExampleReport()
    assert warn_of_leaks({"train": train, "test": test}, report) == {("train", "test"): 2}
    assert report.warnings == ["2 of 3 examples of test stand in train too, first x.csv:2, x.csv:3"]
    questions = [question(1, "a")]
    other = [QuestionExample("2", "b", "other?", "context 1", (), False, "b", "q.json", 1)]
    assert warn_of_leaks({"train": questions, "test": other}, report) == {("train", "test"): 0}
    assert report.warnings[-1] == "1 questions of test are on contexts that stand in train too"
    warn_of_leaks({"train": questions, "test": questions}, report)
    assert report.warnings[-1] == "1 of 1 examples of test stand in train too, first q.json, question 1"


def test_repeats_within_a_split_are_counted() -> None:
    choice = ChoiceExample("1", "a", ("b", "c"), 0, "x.csv", 2)
    report = ExampleReport()
    assert warn_of_repeats({"train": [choice, choice]}, report) == {"train": 1}
    assert report.warnings == ["1 of 2 examples of train have the text of an earlier one"]
