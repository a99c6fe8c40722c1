"""The page of a fine-tuning run: what is in it, what is marked, and that no text of the data becomes markup."""

import json
from pathlib import Path

import pytest
from page_outline import PAYLOADS, outline_of
from sample_finetuning import predictions, write_finetuning_run
from toy_tasks import finetune_config, write_base, write_task

from bertkit.commands.finetune import finetune
from bertkit.errors import InputError
from bertkit.report.marked import Mark, marked_html
from bertkit.report.mistakes import mistakes_html
from bertkit.report.page import write_report
from bertkit.report.predictions import WORST_SHOWN, read_predictions
from bertkit.report.tables import confusion_html

pytest.importorskip("plotly", reason='the report needs the extra "report"')
TASKS = ("sequence-classification", "token-classification", "multiple-choice", "question-answering")


def html_of(folder: Path) -> str:
    path = write_report(folder)
    assert path is not None
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("task", TASKS)
def test_results_curves_errors_and_coverage_are_there(tmp_path: Path, task: str) -> None:
    text = outline_of(html_of(write_finetuning_run(tmp_path / "run", task))).text
    for part in (f"BERT fine-tuning, {task}: run", "Results", "Held-out figures", "Loss", "Learning rate"):
        assert part in text
    for part in ("Worst errors", "Coverage", "tokens cut off", "Settings of the run", "started from runs/base"):
        assert part in text
    assert ("Confusion" in text) == (task == "sequence-classification")
    assert ("By class" in text) == (task in TASKS[:2])
    assert ("CMRC 2018" in text) == (task == "question-answering")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_the_data_becomes_markup(tmp_path: Path, task: str, payload: str) -> None:
    plain = outline_of(html_of(write_finetuning_run(tmp_path / "plain", task)))
    outline = outline_of(html_of(write_finetuning_run(tmp_path / "hostile", task, text=payload)))
    assert {tag for tag, _ in outline.elements} == {tag for tag, _ in plain.elements}
    assert [tag for tag, _ in outline.elements] == [tag for tag, _ in plain.elements]
    assert not any(name.startswith("on") for _, attributes in outline.elements for name in attributes)
    assert all(not attributes.get("src") for _, attributes in outline.elements)


def test_a_run_that_goes_on_shows_its_last_evaluation(tmp_path: Path) -> None:
    text = outline_of(html_of(write_finetuning_run(tmp_path, TASKS[0], ended=False))).text
    assert "0.9000" in text
    assert "the run has not ended" in text
    assert "Worst errors" not in text


def test_a_run_of_the_command_has_its_page(tmp_path: Path) -> None:
    train = write_task(tmp_path, "single", number=12)
    config = finetune_config(
        write_base(tmp_path / "base"), train, tmp_path / "run", kind="single", max_steps=2, validation_split=0.5
    )
    results = finetune(config)
    text = outline_of((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).text
    assert f"{results['validation']['accuracy']:.4f}" in text
    assert f"{6 - round(6 * results['validation']['accuracy'])} of 6 answers are not right" in text


def test_the_worst_come_first_and_the_right_ones_not_at_all(tmp_path: Path) -> None:
    run = write_finetuning_run(tmp_path, TASKS[0])
    found = read_predictions(run)
    assert found is not None
    assert (found.part, found.total, found.wrong) == ("test", 3, 2)
    assert [record["error"] for record in found.worst] == [0.91, 0.6]
    (run / "predictions_test.jsonl").unlink()
    validation = read_predictions(run)
    assert validation is not None
    assert validation.part == "validation"


def test_of_many_errors_the_worst_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(number), "error": number % 50}) for number in range(100)]
    (tmp_path / "predictions_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = read_predictions(tmp_path)
    assert found is not None
    assert [record["error"] for record in found.worst] == [49 - place // 2 for place in range(WORST_SHOWN)]
    assert [record["id"] for record in found.worst[:2]] == ["49", "99"]
    assert "98 of 100 answers are not right; the worst 20 are shown" in mistakes_html(found, task=TASKS[0])


@pytest.mark.parametrize("line", ["{", '{"id": "1"}', "[1]", '{"error": true}', '"明'])
def test_a_damaged_prediction_is_an_error_with_its_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "predictions_test.jsonl").write_text('{"error": 0}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"predictions_test.jsonl:2: is not a prediction of the run"):
        read_predictions(tmp_path)


def worst_of(tmp_path: Path, task: str) -> str:
    found = read_predictions(write_finetuning_run(tmp_path, task, text="明月"))
    assert found is not None
    return mistakes_html(found, task=task)


def test_entities_are_coloured_by_who_has_them(tmp_path: Path) -> None:
    html = worst_of(tmp_path, "token-classification")
    assert "明月 in <mark class=missed>Paris<small>LOC</small></mark>" in html
    assert "<mark class=wrong>明月<small>明月</small></mark> in Paris" in html
    assert "<mark class=missed>in<small>P</small></mark>" in html  # of classes only the words that differ


def test_a_wrong_choice_stands_beside_the_right_one(tmp_path: Path) -> None:
    html = worst_of(tmp_path, "multiple-choice")
    assert "<mark class=wrong>明月</mark>" in html
    assert "<mark class=right>明月 no</mark>" in html


def test_answers_are_marked_in_their_context(tmp_path: Path) -> None:
    html = worst_of(tmp_path, "question-answering")
    assert "不知天上<mark class=wrong>宫阙</mark>，<mark class=right>今夕</mark>是何年" in html
    assert "<mark class=wrong>no answer</mark>" in html


def test_nothing_wrong_is_said(tmp_path: Path) -> None:
    right = [record for record in predictions(TASKS[0], "x") if record["error"] == 0]
    (tmp_path / "predictions_test.jsonl").write_text(json.dumps(right[0]), encoding="utf-8")
    found = read_predictions(tmp_path)
    assert found is not None
    assert mistakes_html(found, task=TASKS[0]) == "<p>test: nothing is wrong in 1 examples.</p>"


def test_marks_overlap_and_lie_outside_without_harm() -> None:
    marks = [Mark(0, 3, "right"), Mark(2, 5, "wrong", "X"), Mark(4, 99, "wrong")]
    html = "<mark class=right>ab</mark><mark class=right>c</mark><mark class=wrong>de<small>X</small></mark>f"
    assert marked_html("abcdef", marks) == html
    assert marked_html("a" * 50 + "b" + "a" * 50, [Mark(50, 51, "right")], around=2) == (
        "…aa<mark class=right>b</mark>aa…"
    )


def test_of_many_classes_those_with_errors_are_shown() -> None:
    labels = [f"c{number}" for number in range(40)]
    rows = [[3 if row == column else 0 for column in range(40)] for row in range(40)]
    rows[39][0] = 2
    html = confusion_html({"labels": labels, "rows": rows})
    assert "10 classes with fewer errors are left out" in html
    assert "<td class=bad-4>2</td>" in html
    assert ">c39</th>" in html
    assert ">c35</th>" not in html
