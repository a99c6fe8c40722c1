"""Files of tagged sentences → TaggedExamples: every layout, no word lost, each fault named with its line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.labels import LabelMap
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.tagging import read_tagged_examples, resolve_tags
from bertkit.data.examples.words import joined_words, places_of, words_of
from bertkit.data.tags import Span, spans_of
from bertkit.errors import InputErrors


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode("utf-8"))
    return path


def read(path: Path, *, labelled: bool = True, **settings: object) -> tuple[list[TaggedExample], ExampleReport]:
    asked = ReadingSettings(**settings)  # type: ignore[arg-type]
    report = ExampleReport(asked.on_bad)
    examples = read_tagged_examples(str(path), asked, report, labelled=labelled, flag="--train_file")
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems
    for example in examples:
        assert [example.text[start:end] for start, end in example.offsets] == list(example.words)
    return examples, report


def resolved(*paths: Path, **settings: object) -> tuple[dict[str, list[TaggedExample]], LabelMap, ExampleReport]:
    asked = ReadingSettings(**settings)  # type: ignore[arg-type]
    report = ExampleReport(asked.on_bad)
    names = ("train", "validation", "test")
    splits = {
        name: read_tagged_examples(str(path), asked, report, flag=f"--{name}_file")
        for name, path in zip(names, paths, strict=False)
    }
    _, examples, labels = resolve_tags(splits, asked, report)
    assert report.read == report.kept + sum(report.dropped.values()) + report.num_problems
    assert report.kept == sum(map(len, examples.values()))
    return examples, labels, report


# ---- plain text, where no tags are needed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Angela Merkel lives in Berlin\n", ["Angela", "Merkel", "lives", "in", "Berlin"]),
        ("She left.\n\n# 1 is a number\n", ["She", "left", ".", "#", "1", "is", "a", "number"]),
        ("明月几时有把酒问青天\n", list("明月几时有把酒问青天")),
        (
            "two words\nthree words here\nfour of them here\n",
            ["two", "words", "three", "words", "here", "four", "of", "them", "here"],
        ),
        ("the cat sat\nthe dog ran\nthe end is\n", ["the", "cat", "sat", "the", "dog", "ran", "the", "end", "is"]),
        ("Vitamin B\n", ["Vitamin", "B"]),
        ("I live in Paris\nHe met Henry I\n", ["I", "live", "in", "Paris", "He", "met", "Henry", "I"]),
        ("Yes sir\nNo sir\nYes sir\nOh sir\n", ["Yes", "sir", "No", "sir", "Yes", "sir", "Oh", "sir"]),
        ("江雪\n\n千山鸟飞\n", list("江雪千山鸟飞")),
        ("東京タワー\n", list("東京タワー")),
        ("[Paris] is nice\n", ["[", "Paris", "]", "is", "nice"]),
    ],
)
def test_plain_text_is_read_a_sentence_a_line(tmp_path: Path, content: str, words: list[str]) -> None:
    examples, report = read(write(tmp_path / "x.txt", content), labelled=False)
    assert [word for example in examples for word in example.words] == words
    assert [example.text for example in examples] == [line for line in content.split("\n") if line]
    assert report.notes == ["x.txt: lines, a text on each; words = text, tags = none"]


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("苏\n轼\n", [("苏", "轼")]),
        ("Berlin\n\nParis\n", [("Berlin",), ("Paris",)]),
        ("Angela B-PER\nMerkel I-PER\n", [("Angela", "Merkel")]),
        ("Angela\tx\nMerkel\ty\n", [("Angela", "Merkel")]),
        ("the DT\ncat NN\n\na DT\ndog NN\n", [("the", "cat"), ("a", "dog")]),
        ("Mary NNP\nsees VBZ\nPeter NNP\n. .\n", [("Mary", "sees", "Peter", ".")]),
        ("-DOCSTART- O\n\nHe left\n", [("He",)]),
        ("苏 B\n轼 E\n在 S\n此 S\n", [("苏", "轼", "在", "此")]),
    ],
)
def test_words_on_lines_of_their_own_stay_words(tmp_path: Path, content: str, sentences: list[tuple[str]]) -> None:
    examples, _ = read(write(tmp_path / "x.txt", content), labelled=False)
    assert [example.words for example in examples] == sentences


def test_lines_may_be_said_to_be_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "北京\n上海\n1\tI like it\n")
    examples, _ = read(path, labelled=False, column_names="text")
    assert [example.text for example in examples] == ["北京", "上海", "1\tI like it"]
    _, report = read(write(tmp_path / "y.txt", "北京\n上海\n"), labelled=False)
    assert "no tags; where each line is a text: --column_names text" in report.notes[0]


@pytest.mark.parametrize("content", ["1\tI like it\n2\tI hate it\n", "sentence1\tsentence2\nA man.\tA plane flies.\n"])
def test_a_table_of_texts_is_not_taken_for_words(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputErrors, match="--column_names text"):
        read(write(tmp_path / "x.tsv", content), labelled=False)


def test_columns_may_be_asked_for_by_number(tmp_path: Path) -> None:
    [example], _ = read(write(tmp_path / "x.txt", "He left\n"), labelled=False, text_column="1")
    assert example.words == ("He",)


# ---- CoNLL


def test_columns_by_space_with_document_marks(tmp_path: Path) -> None:  # public case 38
    text = (
        "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nin IN I-PP O\n\n-DOCSTART- -X- -X- O\n\nPeking NNP I-NP I-LOC\n"
    )
    examples, report = read(write(tmp_path / "x.txt", text))
    assert [(e.words, e.tags, e.document, e.lines) for e in examples] == [
        (("U.N.", "in"), ("I-ORG", "O"), 1, (3, 4)),
        (("Peking",), ("I-LOC",), 2, (8,)),
    ]
    assert report.dropped["-DOCSTART- line"] == 2
    assert "4 columns by space; word = column 1, tag = column 4" in report.notes[0]


def test_columns_of_conllu_with_comments_and_a_given_text(tmp_path: Path) -> None:
    text = (
        "# newdoc id = a\n# text = 在  北京 we're\n1\t在\tO\t-\t-\n2\t北京\tB-LOC\t-\t-\n3-4\twe're\t_\t-\t-\n"
        "3\twe\tO\t-\t-\n4\t're\tO\t-\t-\n\n# newdoc id = b\n1\t#好\tO\t-\tx\n\n"
    )
    [first, second], report = read(write(tmp_path / "x.iob2", text))
    assert first.words == ("在", "北京", "we", "'re")
    assert first.text == "在  北京 we're"
    assert first.offsets == ((0, 1), (3, 5), (6, 8), (8, 11))
    assert (first.document, second.document) == (1, 2)
    assert second.words == ("#好",)
    assert report.dropped == {"comment line": 3, "CoNLL-U line that is no word": 1}


def test_hashes_and_numbers_may_be_words(tmp_path: Path) -> None:
    by_tab, _ = read(write(tmp_path / "x.conll", "#\tO\n#tag\tO\n2-1\tO\n1.5\tB-X\n"))
    assert by_tab[0].words == ("#", "#tag", "2-1", "1.5")
    by_space, _ = read(write(tmp_path / "y.conll", "# O\n#tag O\n[ B-X\n"))
    assert by_space[0].words == ("#", "#tag", "[")


def test_blank_words_keep_their_place(tmp_path: Path) -> None:  # public case 18
    [example], _ = read(write(tmp_path / "x.conll", "a\tB-X\n \tO\n\tO\n\u3000\tO\n\u200b\tO\nb\tB-Y\n"))
    assert example.words == ("a", " ", "", "\u3000", "\u200b", "b")
    assert example.tags == ("B-X", "O", "O", "O", "O", "B-Y")
    [spaced], _ = read(write(tmp_path / "y.conll", "a B-X\n O\nb B-Y\n"))
    assert spaced.words == ("a", " ", "b")


def test_columns_are_named_by_number_or_by_column_names(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conll", "B-X\tword\tB-Y\n")
    assert read(path, text_column="2", tag_column="1")[0][0].tags == ("B-X",)
    [example], _ = read(path, column_names="first,form,second", text_column="form", tag_column="second")
    assert (example.words, example.tags) == (("word",), ("B-Y",))


def test_words_alone_are_read_where_no_tags_are_needed(tmp_path: Path) -> None:
    [example], report = read(write(tmp_path / "x.txt", "苏\n轼\n"), labelled=False)
    assert (example.words, example.tags) == (("苏", "轼"), None)
    assert "no tags" in report.notes[0]


@pytest.mark.parametrize(
    ("name", "content", "line", "said"),
    [
        ("x.conll", "a\tO\nb\tO\tX\n", 2, "the line has 3 columns"),
        ("x.conll", "a\tO\nb\n", 2, "the line has 1 columns"),
        ("x.conll", "a\tO\nb\t \n", 2, "tag: the tag is empty"),
        ("x.conll", "a\nb\n", 1, "has one column"),
        ("x.conll", "\n\n", None, "holds no sentence"),
        (
            "x.jsonl",
            '{"tokens": ["a"], "ner_tags": ["O"]}\n{"tokens": ["a"], "ner_tags": []}\n',
            2,
            "0 tags for 1 words",
        ),
        ("x.jsonl", '{"tokens": ["a"], "ner_tags": ["O"]}\n{"tokens": [], "ner_tags": []}\n', 2, "no word"),
        ("x.jsonl", '{"tokens": ["a", null], "ner_tags": ["O", "O"]}\n', 1, "the field holds null"),
        ("x.jsonl", '{"tokens": 5, "ner_tags": ["O"]}\n', 1, "the field holds a number"),
        ("x.jsonl", '{"body": "a"}\n', None, "no field has a name of words"),
        ("x.jsonl", '{"tokens": ["a"]}\n', None, "no field has a name of tags"),
        ("x.jsonl", '{"text": "ab", "label": [[0, 3, "X"]]}\n', 1, "the entity is outside the text or empty"),
        ("x.jsonl", '{"text": "a b", "label": [[1, 2, "X"]]}\n', 1, "the entity is outside the text or empty"),
        ("x.jsonl", '{"text": "abc", "label": [[0, 2, "X"], [1, 3, "Y"]]}\n', 1, "two entities overlap"),
        ("x.jsonl", '{"text": "abc", "label": [["0", 2]]}\n', 1, "no entity of a known layout"),
        ("x.jsonl", '{"text": "abc", "label": {"X": {"b": [[0, 0]]}}}\n', 1, "'b' does not stand at its place"),
        ("x.jsonl", '{"text": "abc", "label": {"X": [0, 1]}}\n', 1, "no entity of a known layout"),
    ],
)
def test_a_broken_sentence_is_named(tmp_path: Path, name: str, content: str, line: int | None, said: str) -> None:
    with pytest.raises(InputErrors, match=said) as caught:
        read(write(tmp_path / name, content))
    assert caught.value.problems[0].line == line


def test_broken_sentences_can_be_skipped_and_counted(tmp_path: Path) -> None:
    examples, report = read(write(tmp_path / "x.conll", "a\tO\n\nb\n\nc\tO\n"), on_bad="skip")
    assert [example.words for example in examples] == [("a",), ("c",)]
    assert report.num_problems == 1


# ---- records


def test_lists_of_words_and_tags_are_read_under_every_usual_name(tmp_path: Path) -> None:
    for words, tags in (("tokens", "ner_tags"), ("words", "ner"), ("tokens", "tags"), ("words", "labels")):
        path = write(tmp_path / "x.jsonl", json.dumps({words: ["a", "北", "京"], tags: ["O", "B-X", "I-X"], "id": "7"}))
        [example], _ = read(path)
        assert (example.words, example.tags, example.id) == (("a", "北", "京"), ("O", "B-X", "I-X"), "7")
        assert example.text == "a 北京"


def test_a_text_with_a_tag_for_each_character_is_read(tmp_path: Path) -> None:
    [example], _ = read(write(tmp_path / "x.jsonl", '{"text": "苏 轼", "tags": ["B-PER", "O", "I-PER"]}\n'))
    assert example.words == ("苏", " ", "轼")


def test_entities_as_characters_of_cluener_and_doccano_are_the_same(tmp_path: Path) -> None:
    text = "浙商银行的叶老桂 said WTO"
    layouts: list[object] = [
        {"company": {"浙商银行": [[0, 3]]}, "name": {"叶老桂": [[5, 7]]}, "organization": {"WTO": [[14, 16]]}},
        [[0, 4, "company"], [5, 8, "name"], [14, 17, "organization"]],
        [
            {"id": 1, "start_offset": 0, "end_offset": 4, "label": "company"},
            {"id": 2, "start_offset": 5, "end_offset": 8, "label": "name"},
            {"id": 3, "start_offset": 14, "end_offset": 17, "label": "organization"},
        ],
    ]
    found = [read(write(tmp_path / "x.jsonl", json.dumps({"text": text, "label": it})))[0][0] for it in layouts]
    assert found[0] == found[1] == found[2]
    assert found[0].tags is not None
    spans = [
        (found[0].text[found[0].offsets[s.start][0] : found[0].offsets[s.end - 1][1]], s.type)
        for s in spans_of(found[0].tags)
    ]
    assert spans == [("浙商银行", "company"), ("叶老桂", "name"), ("WTO", "organization")]


def test_a_text_without_entities_is_all_outside(tmp_path: Path) -> None:
    for label in ("{}", "[]"):
        [example], _ = read(write(tmp_path / "x.jsonl", f'{{"text": "没有 a1", "label": {label}}}\n'))
        assert (example.words, example.tags) == (("没", "有", "a1"), ("O",) * 3)


# ---- words and texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cafe\u0301 king", ["cafe\u0301", "king"]),  # é as two code points
        ("हिन्दी में।", ["हिन्दी", "में", "।"]),
        ("か\u3099く", ["か\u3099", "く"]),  # が as two code points; kana stand one by one
        ("在WTO, \u0301a", ["在", "WTO", ",", "\u0301", "a"]),  # a mark on nothing
    ],
)
def test_a_mark_stands_with_what_it_is_written_on(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in words_of(text)] == words


@given(words=st.lists(st.text("ab月。, \u200b", max_size=3), min_size=1, max_size=6))
def test_joined_words_stand_where_they_are_said_to(words: list[str]) -> None:
    text, offsets = joined_words(words)
    assert [text[start:end] for start, end in offsets] == words


@given(text=st.text("ab月京。, \n3é", max_size=12), cuts=st.lists(st.integers(0, 12), max_size=3))
def test_words_of_a_text_are_everything_but_its_blanks(text: str, cuts: list[int]) -> None:
    offsets = words_of(text, cuts=cuts)
    assert "".join(text[start:end] for start, end in offsets) == "".join(text.split())
    assert not any(start < cut < end for start, end in offsets for cut in cuts)
    assert places_of([text[start:end] for start, end in offsets], text) == offsets


# ---- all splits together


def test_the_scheme_is_read_from_all_splits_and_the_map_made_from_all(tmp_path: Path) -> None:  # public case 39
    train = write(tmp_path / "a.conll", "x\tI-PER\ny\tI-PER\nz\tB-PER\n")
    test = write(tmp_path / "b.conll", "x\tI-LOC\ny\tO\n")
    examples, labels, report = resolved(train, test)
    assert examples["train"][0].tags == ("B-PER", "I-PER", "B-PER")
    assert examples["validation"][0].tags == ("B-LOC", "O")
    assert labels.names == ("B-LOC", "B-PER", "I-PER", "O")
    assert "IOB1" in report.notes[-1]
    assert "written as IOB2" in report.notes[-1]
    assert report.warnings == ["2 tags of validation never stand in train and cannot be learnt: B-LOC, O"]


def test_a_tag_out_of_its_scheme_is_named_repaired_or_skipped(tmp_path: Path) -> None:  # public case 41
    path = write(tmp_path / "x.conll", "a\tB-PER\nb\tO\n\nc\tO\nd\tI-PER\n")
    with pytest.raises(InputErrors, match="tag: an inside tag that continues nothing") as caught:
        resolved(path)
    [problem] = caught.value.problems
    assert (problem.line, problem.value) == (5, "I-PER")
    assert problem.remedy == "mend the tag; or name the --scheme; or --repair_tags"
    repaired, _, report = resolved(path, repair_tags=True)
    assert repaired["train"][1].tags == ("O", "B-PER")
    assert report.changed["tag repaired"] == 1
    skipped, _, report = resolved(path, on_bad="skip")
    assert (len(skipped["train"]), report.num_problems) == (1, 1)


def test_a_tag_without_prefix_among_prefixed_ones_is_named_even_when_repairing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conll", "a\tB-PER\nb\tPER\n")
    with pytest.raises(InputErrors, match="the tag is none of IOB2") as caught:
        resolved(path, repair_tags=True)
    [problem] = caught.value.problems
    assert (problem.line, problem.value) == (2, "PER")
    assert problem.remedy == "mend the tag; or name the --scheme (classes: tags that mark nothing)"  # not --repair_tags


def test_untyped_tags_and_a_scheme_of_ones_own(tmp_path: Path) -> None:  # public case 41
    path = write(tmp_path / "x.conll", "a\tB\nb\tI\nc\tO\n")
    examples, labels, _ = resolved(path)
    assert labels.names == ("B", "I", "O")
    assert spans_of(examples["train"][0].tags or ()) == [Span("", 0, 2)]
    examples, labels, report = resolved(path, scheme="classes")
    assert "classes, by --scheme" in report.notes[-1]


def test_tags_that_are_numbers_are_classes_and_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"tokens": ["a", "b"], "ner_tags": [0, 3]}\n')
    _, labels, report = resolved(path)
    assert labels.names == ("0", "3")
    assert "tags are numbers" in report.warnings[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("the moon is bright\tgood\nno wind at all\tbad\n", "holds texts where words should be"),
        (
            "明月几时有把酒问青天不知天上\tgood\n我住长江头君住长江尾日日思君\tbad\n",
            "holds texts where words should be",
        ),
        ("text\tlabel\nmoon\tgood\nwind\tbad\n", "its first line is the header of a table of texts"),
        ("label\tsentence\n1\tfine\n0\tmoon\n", "its first line is the header of a table of texts"),
    ],
)
def test_a_table_of_texts_is_no_sentence_of_long_words(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputErrors, match=rf"x\.tsv:1: {said}\n  value: .*\n  expected: a word and its tag[\s\S]*seq"):
        read_tagged_examples(str(path), ReadingSettings(), ExampleReport(), flag="--train_file")


def test_words_with_a_blank_are_words_where_most_have_none(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\tO\nNew York\tB-LOC\nlabel\tO\nis\tO\n", encoding="utf-8")
    [example] = read_tagged_examples(str(path), ReadingSettings(), ExampleReport(), flag="--train_file")
    assert example.words == ("text", "New York", "label", "is")
