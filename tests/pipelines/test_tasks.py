"""Fine-tuned models from Python: records with Hugging Face's keys, in order, alike alone and in company."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers
from toy_tasks import sentence, write_tuned

from bertkit import Chooser, QuestionAnswerer, Tagger, TextClassifier
from bertkit.errors import InputError

TOLERANCE = 1e-5
TAGS = ("B-PLACE", "I-PLACE", "O")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "single": write_tuned(folder / "single", "single", labels=("a", "b", "c")),
        "multi": write_tuned(
            folder / "multi", "multi", labels=("a", "b"), problem_type="multi_label_classification", threshold=0.5
        ),
        "regression": write_tuned(folder / "regression", "regression", labels=("score",), problem_type="regression"),
        "tags": write_tuned(folder / "tags", "tags", labels=TAGS),
        "choices": write_tuned(folder / "choices", "choices"),
        "questions": write_tuned(folder / "questions", "questions"),
        "questions2": write_tuned(folder / "questions2", "questions2", unanswerable=True, threshold=0.0),
    }


def texts(number: int) -> list[str]:
    generator = random.Random(5)
    parts = [[sentence(generator, english=bool(k % 2)) for k in range(1 + place % 4)] for place in range(number)]
    return [" ".join(part) for part in parts]


def numbers(value: Any) -> list[float]:
    """All numbers of a record, in order."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, list | tuple):
        return [number for each in value for number in numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize("kind", ["single", "multi", "regression"])
def test_a_text_is_classified_alike_alone_and_in_company(folders: dict[str, Path], kind: str) -> None:
    classifier = TextClassifier(folders[kind])
    asked = [*texts(20), ("明月", "the moon sees a hill"), {"text": "明月", "text_pair": "孤舟"}, ""]
    together = list(classifier.classify(asked))
    assert len(together) == len(asked)
    for text, records in zip(asked, together, strict=True):
        alone = classifier(text)
        assert [record["label"] for record in alone] == [record["label"] for record in records]
        assert numbers(alone) == pytest.approx(numbers(records), abs=TOLERANCE)


@pytest.mark.parametrize("kind", ["single", "multi", "regression"])
def test_classes_are_those_of_the_pipeline_of_transformers(folders: dict[str, Path], kind: str) -> None:
    theirs = transformers.pipeline("text-classification", model=str(folders[kind]), device="cpu")
    asked = [text for text in texts(8) if len(text.split()) < 12]  # theirs cut nothing
    mine = list(TextClassifier(folders[kind]).classify(asked))
    for text, records in zip(asked, mine, strict=True):
        expected = theirs(text, top_k=None)
        assert [set(record) for record in records] == [{"label", "score"}] * len(expected)
        assert [record["label"] for record in records] == [record["label"] for record in expected]
        assert numbers(records) == pytest.approx(numbers(expected), abs=TOLERANCE)


def test_the_best_come_first_and_top_k_cuts(folders: dict[str, Path]) -> None:
    classifier = TextClassifier(folders["single"])
    records = classifier("孤舟照西窗")
    assert [record["score"] for record in records] == sorted((r["score"] for r in records), reverse=True)
    assert sum(record["score"] for record in records) == pytest.approx(1)
    assert classifier("孤舟照西窗", top_k=2) == records[:2]
    with pytest.raises(InputError, match="top_k: is no number of answers"):
        classifier("孤舟", top_k=0)
    with pytest.raises(InputError, match=r"a pair \(A, B\)"):
        classifier(["孤舟", "西窗"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"top_k: is no number of answers\n  value: 1.5"):
        classifier("孤舟", top_k=1.5)  # type: ignore[arg-type]


def test_entities_stand_where_they_say(folders: dict[str, Path]) -> None:
    tagger = Tagger(folders["tags"])
    asked = [*texts(20), "  明月 the  moon", ""]
    found = list(tagger.tag(asked))
    assert sum(len(tagged.entities) for tagged in found) > 10
    for text, tagged in zip(asked, found, strict=True):
        assert tagged.text == text
        for record in [*tagged.words, *tagged.entities]:
            assert text[record["start"] : record["end"]] == record["word"]
        assert all(set(e) == {"entity_group", "score", "word", "start", "end"} for e in tagged.entities)
        assert "".join(record["word"] for record in tagged.words) == "".join(text.split())
        alone = tagger(text)
        assert numbers(alone) == pytest.approx(numbers(tagged.entities), abs=TOLERANCE)


def test_a_list_of_words_gets_a_tag_for_each(folders: dict[str, Path]) -> None:
    [tagged] = Tagger(folders["tags"]).tag([["明月", "the", "", "moon"]])
    assert [record["word"] for record in tagged.words] == ["明月", "the", "", "moon"]
    assert tagged.text == "明月 the moon"
    assert all(record["entity"] in TAGS for record in tagged.words)


def test_words_of_a_text_are_tagged_as_the_same_words_in_a_list(folders: dict[str, Path]) -> None:
    tagger = Tagger(folders["tags"])
    text = "the moon sees a green hill"
    given, listed = tagger.tag([text, text.split()])
    assert [w["entity"] for w in given.words] == [w["entity"] for w in listed.words]
    assert numbers(given.words) == pytest.approx(numbers(listed.words), abs=TOLERANCE)


def test_choices_are_alike_alone_and_in_company(folders: dict[str, Path]) -> None:
    chooser = Chooser(folders["choices"])
    lines = texts(30)
    asked = [(lines[place], lines[place + 1 : place + 3 + place % 3]) for place in range(20)]
    together = list(chooser.choose([*asked, {"context": lines[0], "choices": lines[1:3]}]))
    assert numbers(together[-1]) == pytest.approx(numbers(together[0]), abs=TOLERANCE)
    for (context, choices), record in zip(asked, together, strict=False):
        assert set(record) == {"label", "scores"}
        assert record["label"] == record["scores"].index(max(record["scores"]))
        assert len(record["scores"]) == len(choices)
        assert sum(record["scores"]) == pytest.approx(1)
        assert numbers(chooser(context, choices)) == pytest.approx(numbers(record), abs=TOLERANCE)


@pytest.mark.parametrize("kind", ["questions", "questions2"])
def test_answers_stand_where_they_say(folders: dict[str, Path], kind: str) -> None:
    answerer = QuestionAnswerer(folders[kind])
    asked = [{"question": "the english", "context": " ".join(texts(1 + place % 5))} for place in range(20)]
    together = list(answerer.answer(asked))
    for question, record in zip(asked, together, strict=True):
        assert set(record) == {"score", "start", "end", "answer"}
        assert question["context"][record["start"] : record["end"]] == record["answer"]
        alone = answerer(question["question"], question["context"])
        assert alone["answer"] == record["answer"]
        assert numbers(alone) == pytest.approx(numbers(record), abs=TOLERANCE)
    if kind == "questions":
        assert all(record["answer"] for record in together)
    best = next(answerer.candidates(asked[:1], top_k=3))
    assert len(best) == 3
    assert [record["score"] for record in best] == sorted((r["score"] for r in best), reverse=True)
    with pytest.raises(InputError, match="top_k: is no number of answers"):
        next(answerer.candidates(asked, top_k=0))


def test_answers_come_before_all_is_read(folders: dict[str, Path]) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "明月"

    answers = TextClassifier(folders["single"]).classify(endless())
    assert next(answers)
    assert read <= 1024


@pytest.mark.parametrize(
    ("kind", "item", "expected"),
    [
        ("single", 3, "a text, a pair"),
        ("single", ("a", "b", "c"), r"a text, a pair(.|\n)*several of them: classify\(\["),
        ("single", {"text_pair": "b"}, "a text, a pair"),
        ("tags", 3, "a text, or a list of words"),
        ("tags", ["a", 1], "a text, or a list of words"),
        ("choices", ("a", []), r"a pair \(context, choices\)"),
        ("choices", ("a", "bc"), r"a pair \(context, choices\)"),
        ("questions", {"question": "who"}, r'\{"question": …, "context": …\}'),
        ("questions", "who", r'\{"question": …, "context": …\}'),
    ],
)
def test_what_cannot_be_asked_is_named_by_its_place(
    folders: dict[str, Path], kind: str, item: Any, expected: str
) -> None:
    asks: dict[str, Any] = {
        "single": lambda: TextClassifier(folders[kind]).classify([item]),
        "tags": lambda: Tagger(folders[kind]).tag([item]),
        "choices": lambda: Chooser(folders[kind]).choose([item]),
        "questions": lambda: QuestionAnswerer(folders[kind]).answer([item]),
    }
    with pytest.raises(InputError, match=f"item 1: is nothing that can be asked(.|\n)*{expected}"):
        list(asks[kind]())


def test_a_model_of_another_task_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="was fine-tuned for token-classification"):
        TextClassifier(folders["tags"])
