"""A tag for each word: losses and weights by hand, tags that the scheme allows, entity figures as seqeval has them."""

import json
from pathlib import Path

import numpy as np
import pytest
import seqeval.metrics
import torch
from task_parts import Parts, parts_of
from torch.nn import functional as F
from toy_run import toy_tokenizer

from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings, SchemeName
from bertkit.data.features import IGNORE_INDEX, CoverageReport
from bertkit.data.tag_features import TagFeatures
from bertkit.errors import InputError, InputErrors
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.task_settings import Knowledge, TaskSettings
from bertkit.tasks.token_classification import TokenClassification

ENTITIES = TaskConfig(labels=("B-X", "I-X", "O"))
CLASSES = TaskConfig(labels=("NN", "VB"))
WORDS = TaskConfig(labels=("B", "I"))
TASK = TokenClassification()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts_of("tags", tmp_path_factory.mktemp("tags"))


@torch.no_grad()
@pytest.mark.parametrize("weights", [None, [0.5, 3.0]])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_cross_entropy_over_the_words(parts: Parts, weights: list[float] | None, smoothing: float) -> None:
    batch = parts.batch()
    tensor = None if weights is None else torch.tensor(weights)
    logits = parts.model(**{name: tensor for name, tensor in batch.items() if name != "labels"}).logits
    expected = F.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), weight=tensor, label_smoothing=smoothing
    ).item()
    found = TASK.losses(parts.model, batch, class_weights=tensor, label_smoothing=smoothing)
    weight = TASK.weights(parts.features, None if weights is None else np.array(weights, np.float32))["tag"]
    assert found.sums["tag"].item() / weight == pytest.approx(expected, rel=1e-5)
    hits = (logits.argmax(-1) == batch["labels"])[batch["labels"] != IGNORE_INDEX]
    factors = torch.ones_like(hits, dtype=torch.float32)
    if tensor is not None:
        factors = tensor[batch["labels"][batch["labels"] != IGNORE_INDEX]]
    assert found.correct["tag"].item() == pytest.approx((hits * factors).sum().item(), rel=1e-5)


def feature(ids: list[int], positions: list[int], labels: list[int], *, words: list[int] | None = None) -> TagFeatures:
    targets = np.full(len(ids), IGNORE_INDEX, np.int64)
    targets[positions] = labels
    chosen = np.arange(len(positions)) if words is None else np.array(words)
    return TagFeatures(np.array(ids), np.zeros(len(ids), np.int64), 0, chosen, np.array(positions), targets)


def test_labels_are_padded_with_none() -> None:
    rows = [feature([2, 7, 8, 9, 3], [1, 3], [0, 1]), feature([2, 7, 3], [1], [2])]
    batch = TASK.collate(rows, pad_id=0, task=ENTITIES)
    none = IGNORE_INDEX
    assert batch["labels"].tolist() == [[none, 0, none, 1, none], [none, 2, none, none, none]]
    assert batch["attention_mask"].tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert TASK.weights(rows, None) == {"tag": 3.0}
    assert TASK.weights(rows, np.array([1, 2, 4], np.float32)) == {"tag": 7.0}


def sentence(words: str, tags: str | None = None) -> TaggedExample:
    parts = words.split()
    starts = np.cumsum([0, *(len(word) + 1 for word in parts)])
    offsets = tuple((int(start), int(start) + len(word)) for start, word in zip(starts, parts, strict=False))
    return TaggedExample("1", words, tuple(parts), offsets, tuple(tags.split()) if tags else None, 0, "f", (1,))


def answer(words: str, logits: list[list[float]], task: TaskConfig, *, constrained: bool = True) -> tuple[str, ...]:
    example = sentence(words)
    places = list(range(1, len(example.words) + 1))
    row = feature([2, *[7] * len(places), 3], places, [0] * len(places))
    scores = np.array([[0.0] * len(logits[0]), *logits, [0.0] * len(logits[0])], np.float32)
    [found] = TASK.answers(
        [example],
        [row],
        [scores],
        settings=TaskSettings(constrained_decoding=constrained),
        task=task,
        knowledge=Knowledge(),
    )
    return found.tags


def test_tags_are_the_best_that_the_scheme_allows() -> None:
    logits = [[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]  # O I-X is not allowed: B-X I-X has 4, O O has 3
    assert answer("a b", logits, ENTITIES) == ("B-X", "I-X")
    assert answer("a b", logits, ENTITIES, constrained=False) == ("O", "I-X")
    assert answer("a b", [[0.0, 1.0], [1.0, 0.0]], CLASSES) == ("VB", "NN")


def figures(gold: list[str], said: list[str], task: TaskConfig) -> tuple[dict[str, float], dict]:
    examples = [sentence(" ".join("w" * len(tags.split())), tags) for tags in gold]
    from bertkit.data.tag_decoding import TaggedAnswer

    answers = [TaggedAnswer(tuple(tags.split()), (1.0,) * len(tags.split()), ()) for tags in said]
    return TASK.metrics(examples, answers, task=task, knowledge=Knowledge())


def test_entities_are_counted_as_seqeval_does() -> None:
    gold, said = ["B-X I-X O B-X", "O B-X O"], ["B-X I-X O O", "O B-X I-X"]
    found, tables = figures(gold, said, ENTITIES)
    pairs = [tags.split() for tags in gold], [tags.split() for tags in said]
    assert found["f1"] == pytest.approx(seqeval.metrics.f1_score(*pairs))
    assert found["precision"] == pytest.approx(seqeval.metrics.precision_score(*pairs))
    assert found["recall"] == pytest.approx(seqeval.metrics.recall_score(*pairs))
    assert found["accuracy"] == pytest.approx(seqeval.metrics.accuracy_score(*pairs))
    assert found["accuracy_without_outside"] == pytest.approx(3 / 4)
    assert set(tables["by_class"]) == {"X"}
    assert TASK.best_by(ENTITIES) == ("f1", True)


def test_classes_are_counted_one_by_one() -> None:
    found, tables = figures(["NN VB", "NN"], ["NN NN", "NN"], CLASSES)
    assert found == {"accuracy": pytest.approx(2 / 3)}
    assert set(tables["by_class"]) == {"NN", "VB"}
    assert TASK.best_by(CLASSES) == ("accuracy", True)


def test_words_of_a_text_without_spaces_are_counted_whole() -> None:
    found, _ = figures(["B I B", "B B"], ["B I B", "B I"], WORDS)  # 2 of 3 words given are right, of 4
    assert (found["precision"], found["recall"]) == (pytest.approx(2 / 3), pytest.approx(2 / 4))
    assert TASK.best_by(WORDS) == ("f1", True)


def test_a_segmented_text_loses_no_character() -> None:
    from bertkit.data.tag_decoding import TaggedAnswer

    for words, tags, segmented in (
        (("明", "月", "照"), ("B", "I", "B"), "明月 照"),
        (("明", "\u200b", "月", "照"), ("B", "O", "B", "I"), "明 \u200b 月照"),
        (("明", " ", "月"), ("B", "O", "B"), "明 月"),
        (("\u200b", "明"), ("O", "B"), "\u200b 明"),
    ):
        example = TaggedExample("1", "".join(words), words, ((0, 1),) * len(words), None, 0, "f", (1,))
        record = TASK.record(example, TaggedAnswer(tags, (0.5,) * len(tags), ()), task=WORDS)
        assert record["segmented"] == segmented
        assert (record["tokens"], record["tags"]) == (list(words), list(tags))


def resolved(folder: Path, *files: str) -> tuple[dict[str, list[TaggedExample]], TaskConfig, Knowledge, ExampleReport]:
    reading, report = ReadingSettings(), ExampleReport()
    splits = {}
    for name, content in zip(("train", "validation"), files, strict=False):
        path = folder / f"{name}.conll"
        path.write_text(content, encoding="utf-8")
        splits[name] = read_examples(TASK.name, str(path), reading, report, labelled=True, flag=f"--{name}_file")
    return *TASK.resolve(splits, reading, report), report


def test_a_tag_of_the_validation_part_alone_is_one_of_the_labels(tmp_path: Path) -> None:
    # Case 39.
    _, config, knowledge, report = resolved(tmp_path, "a B-X\nb O\n", "c B-Y\nd O\n")
    assert config.labels == ("B-X", "B-Y", "O")
    assert knowledge.scheme == "IOB2"
    assert "1 tags of validation never stand in train and cannot be learnt: B-Y" in report.warnings


def test_other_schemes_become_iob2(tmp_path: Path) -> None:
    splits, config, knowledge, _ = resolved(tmp_path, "a B-X\nb E-X\nc S-X\n")
    assert splits["train"][0].tags == ("B-X", "I-X", "B-X")
    assert (config.labels, knowledge.scheme) == (("B-X", "I-X"), "BIOES")


def test_other_data_is_read_by_the_scheme_of_the_training_where_its_tags_allow_it() -> None:
    chunks, task = sentence("a b c", "NN B-NP B-NP"), TaskConfig(labels=("B-NP", "NN", "O"))
    with pytest.raises(InputErrors, match="the tag is none of IOB2"):
        TASK.check([chunks], task, ReadingSettings(), ExampleReport(), knowledge=Knowledge())
    report = ExampleReport()
    [found] = TASK.check([chunks], task, ReadingSettings(), report, knowledge=Knowledge(scheme="classes"))
    assert found.tags == ("NN", "B-NP", "B-NP")
    assert "tags: classes, as in the training of the model" in report.notes
    # IOB1 is not IOB2, whatever was trained on; and what is asked for goes before both.
    inside = sentence("a b", "I-X I-X")
    for knowledge in (Knowledge(scheme="IOB2"), Knowledge(scheme="BIOES"), Knowledge()):
        [found] = TASK.check([inside], ENTITIES, ReadingSettings(), ExampleReport(), knowledge=knowledge)
        assert found.tags == ("B-X", "I-X")
    with pytest.raises(InputErrors, match="IOB2, by --scheme"):
        TASK.check(
            [inside], ENTITIES, ReadingSettings(scheme="IOB2"), ExampleReport(), knowledge=Knowledge(scheme="IOB1")
        )


@pytest.mark.parametrize(("scheme", "entities"), [("classes", 0), (None, 2)])  # None: a model from elsewhere
def test_plain_classes_mark_no_entities_whatever_their_names(scheme: SchemeName | None, entities: int) -> None:
    task = TaskConfig(labels=("B-verb", "C-adj", "I-verb"))
    scores = np.zeros((5, 3), np.float32)
    scores[[1, 2, 3], [2, 1, 2]] = 9  # the third class stands where IOB2 would not have it
    [answer] = TASK.answers(
        [sentence("a b c", "B-verb B-verb B-verb")],
        [feature([2, 5, 6, 7, 3], [1, 2, 3], [0, 0, 0])],
        [scores],
        settings=TaskSettings(),
        task=task,
        knowledge=Knowledge(scheme=scheme),
    )
    assert (answer.tags, len(answer.entities)) == (("I-verb", "C-adj", "I-verb"), entities)


def test_tags_named_as_entities_are_no_plain_classes() -> None:
    reading, report = ReadingSettings(scheme="classes"), ExampleReport()
    with pytest.raises(InputError, match=r"--scheme: does not fit the names of the tags, which mark entities"):
        TASK.resolve({"train": [sentence("a b", "B-X O")]}, reading, report)
    with pytest.raises(InputError, match=r"--scheme: does not fit the names of the tags, which mark words"):
        TASK.check([sentence("a b", "B I")], WORDS, reading, report, knowledge=Knowledge())


def test_the_tags_of_other_data_must_be_the_models() -> None:
    report = ExampleReport()
    with pytest.raises(InputErrors, match=r"f:1: tag: the tag is not one of the model's\n  value: 'B-Z'"):
        TASK.check([sentence("a b", "B-Z O")], ENTITIES, ReadingSettings(), report, knowledge=Knowledge())
    assert TASK.check([sentence("a b", "B-X O")], ENTITIES, ReadingSettings(), ExampleReport(), knowledge=Knowledge())[
        0
    ].tags == ("B-X", "O")


def tags_of(example: TaggedExample, *, length: int = 64) -> list[str]:
    """The tags that perfect scores give: every word's own."""
    config = TaskConfig(labels=("B-X", "I-X", "O"))
    features = TASK.features(
        [example],
        toy_tokenizer(),
        settings=TaskSettings(max_seq_length=length),
        task=config,
        knowledge=Knowledge(),
        coverage=CoverageReport(),
    )
    outputs = [np.eye(3, dtype=np.float32)[np.maximum(row.labels, 0)] * 9 for row in features]
    [found] = TASK.answers([example], features, outputs, settings=TaskSettings(), task=config, knowledge=Knowledge())
    return list(found.tags)


def test_three_hundred_words_get_three_hundred_tags() -> None:
    # Case 37: the only entity is in the last ten words.
    tags = ["O"] * 293 + ["B-X", "I-X"] + ["O"] * 5
    assert tags_of(sentence(" ".join(["tower"] * 300), " ".join(tags))) == tags


@pytest.mark.parametrize("odd", ["\ufffd", "\u200b", "\u0000", "\u00ad", " ", "", "\t", "\n"])
def test_a_character_without_a_token_moves_no_tag(tmp_path: Path, odd: str) -> None:
    # Cases 17 and 18.
    words, tags = ["明", odd, "月", "照"], ["O", "O", "B-X", "I-X"]
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"tokens": words, "tags": tags}) + "\n", encoding="utf-8")
    [example] = read_examples(
        TASK.name, str(path), ReadingSettings(), ExampleReport(), labelled=True, flag="--train_file"
    )
    assert tags_of(example) == tags


def test_what_is_right_and_what_is_read_of_a_sentence() -> None:
    assert TASK.gold(sentence("a b", "B-X O")) == ["B-X", "O"]
    assert TASK.gold(sentence("a b")) == []
    assert TASK.text(sentence("a b")) == "a b"
    assert TASK.tuned([], [], Knowledge(scheme="IOB2")) == Knowledge(scheme="IOB2")
