"""Examples → rows: every token in a row or counted, every word decided once, gold answers where they stand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.examples.example import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from bertkit.data.examples.labels import LabelMap
from bertkit.data.examples.words import joined_words
from bertkit.data.features import (
    IGNORE_INDEX,
    CoverageReport,
    deciding_windows,
    require_room,
    trimmed_lengths,
    window_starts,
    word_windows,
)
from bertkit.data.question_features import QuestionFeatures, WindowSettings, build_question_features
from bertkit.data.tag_features import TagFeatures, build_tag_features
from bertkit.data.text_features import build_choice_features, build_text_features
from bertkit.errors import InputError, InputErrors
from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

CHARACTERS = "明月几时有把酒问青天苏轼字子瞻这是一句话，。？"
WORDS = [
    "su",
    "shi",
    "was",
    "born",
    "in",
    "1037",
    "##7",
    "10",
    "##3",
    "he",
    "she",
    "waits",
    "goes",
    "un",
    "##aff",
    "##able",
]
VOCABULARY = Vocabulary((PAD, UNK, CLS, SEP, MASK, *CHARACTERS, *WORDS, *".,?"))
TOKENIZER = make_tokenizer(VOCABULARY, do_lower_case=True)
TAGS = LabelMap(("B-PER", "I-PER", "O"))


def text(a: str, b: str | None = None, label: str | None = None) -> TextExample:
    return TextExample("1", a, b, label, None, None, "x.csv", 2)


def tagged(words: list[str], tags: list[str] | None) -> TaggedExample:
    joined, offsets = joined_words(words)
    return TaggedExample("1", joined, tuple(words), offsets, None if tags is None else tuple(tags), 0, "x.conll", (1,))


def question(asked: str, context: str, *answers: Answer, is_impossible: bool = False) -> QuestionExample:
    return QuestionExample("1", "", asked, context, answers, is_impossible, "a", "x.json", 1)


def tokens(ids: np.ndarray) -> list[str]:
    return [VOCABULARY.tokens[id] for id in ids]


# ---- arithmetic


def test_the_ignored_label_is_that_of_the_models() -> None:
    from bertkit.model import heads

    assert IGNORE_INDEX == heads.IGNORE_INDEX


@given(first=st.integers(0, 40), second=st.integers(0, 40), room=st.integers(2, 30))
def test_trimming_is_googles_loop_in_one_step(first: int, second: int, room: int) -> None:
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    assert trimmed_lengths(first, second, room=room) == (a, b)
    assert a > 0 or first == 0  # public case 8, textbook fault 3
    assert b > 0 or second == 0


@given(length=st.integers(0, 60), room=st.integers(1, 20), stride=st.integers(1, 25))
def test_windows_cover_every_token_or_are_refused(length: int, room: int, stride: int) -> None:  # public case 44
    if stride > room:
        with pytest.raises(InputError, match=f"a window holds {room} tokens, so windows {stride} apart") as caught:
            window_starts(length, room=room, stride=stride, flag="--stride")
        assert (caught.value.field, caught.value.remedy) == ("--stride", "lower --stride or raise --max_seq_length")
        return
    starts = window_starts(length, room=room, stride=stride)
    covered = {token for start in starts for token in range(start, min(start + room, length))}
    assert covered == set(range(length))
    assert all(start + room < length for start in starts[:-1])  # none more than needed


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=40), room=st.integers(4, 12), stride=st.integers(1, 12))
def test_word_windows_hold_every_word_whole(counts: list[int], room: int, stride: int) -> None:
    windows = word_windows(counts, room=room, stride=stride)
    assert {word for first, end in windows for word in range(first, end)} == set(range(len(counts)))
    assert all(sum(counts[first:end]) <= room for first, end in windows)
    chosen = deciding_windows(counts, windows)
    for word, number in enumerate(chosen):
        first, end = windows[number]
        sides = [min(sum(counts[f:word]), sum(counts[word + 1 : e])) for f, e in windows if f <= word < e]
        assert first <= word < end
        assert min(sum(counts[first:word]), sum(counts[word + 1 : end])) == max(sides)


def test_a_length_without_room_is_refused() -> None:
    with pytest.raises(InputError, match=r"--max_seq_length: leaves no room[\s\S]*value: 4[\s\S]*5 or more"):
        require_room(4, special=3, texts=2)


# ---- classification


def test_a_text_and_a_pair_by_hand() -> None:
    coverage = CoverageReport()
    labels = LabelMap(("no", "yes"))
    rows = build_text_features(
        [text("明月", None, "yes"), text("he waits.", "she goes", "no"), text("几时有")],
        TOKENIZER,
        max_seq_length=8,
        labels=labels,
        coverage=coverage,
    )
    assert tokens(rows[0].input_ids) == [CLS, "明", "月", SEP]
    assert tokens(rows[1].input_ids) == [CLS, "he", "waits", ".", SEP, "she", "goes", SEP]
    assert rows[1].token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert [row.label for row in rows] == [1, 0, IGNORE_INDEX]
    assert dict(coverage.rows()) == {"examples": 3, "windows": 3, "tokens": 10}


def test_long_texts_are_cut_and_counted_exactly() -> None:
    coverage = CoverageReport()
    examples = [text("明月几时有"), text("明月几时有把酒", "青天"), text(""), text("明")]
    rows = build_text_features(examples, TOKENIZER, max_seq_length=6, labels=LabelMap(()), coverage=coverage)
    assert tokens(rows[0].input_ids) == [CLS, "明", "月", "几", "时", SEP]
    assert tokens(rows[1].input_ids) == [CLS, "明", "月", SEP, "青", SEP]  # as long after cutting: the second loses
    assert tokens(rows[2].input_ids) == [CLS, SEP]
    assert (coverage.num_tokens, coverage.num_cut_tokens, coverage.num_cut_examples) == (15, 7, 2)
    assert coverage.num_empty_examples == 1
    kept = sum(len(row.input_ids) for row in rows) - 2 * 3 - 3
    assert kept == coverage.num_tokens - coverage.num_cut_tokens


def test_windows_of_a_long_text_lose_nothing() -> None:
    coverage = CoverageReport()
    long = text("明月几时有把酒问青天", None, "yes")
    rows = build_text_features(
        [text("明", None, "yes"), long],
        TOKENIZER,
        max_seq_length=6,
        labels=LabelMap(("yes",)),
        coverage=coverage,
        long_texts="windows",
        stride=3,
    )
    assert [row.example for row in rows] == [0, 1, 1, 1]
    assert ["".join(tokens(row.input_ids[1:-1])) for row in rows[1:]] == ["明月几时", "时有把酒", "酒问青天"]
    assert all(row.label == 0 for row in rows)
    assert coverage.num_cut_tokens == 0
    with pytest.raises(InputError, match="windows are made of single texts only"):
        build_text_features(
            [text("明", "月")],
            TOKENIZER,
            max_seq_length=6,
            labels=LabelMap(()),
            coverage=coverage,
            long_texts="windows",
        )


def test_several_classes_are_a_vector_and_scores_stay_numbers() -> None:
    several = TextExample("1", "明", None, None, ("b", "c"), None, "x.csv", 2)
    score = TextExample("1", "明", None, None, None, 2.5, "x.csv", 2)
    labels = LabelMap(("a", "b", "c"))
    [row] = build_text_features([several], TOKENIZER, max_seq_length=8, labels=labels, coverage=CoverageReport())
    assert row.labels is not None
    assert (row.labels.tolist(), row.labels.dtype, row.label) == ([0, 1, 1], np.float32, IGNORE_INDEX)
    [row] = build_text_features([score], TOKENIZER, max_seq_length=8, labels=LabelMap(()), coverage=CoverageReport())
    assert (row.score, row.labels) == (2.5, None)


def test_a_label_the_map_lacks_is_named_before_anything_is_built() -> None:
    with pytest.raises(InputErrors, match=r"x.csv:2: label: the label is not one of the model's"):
        build_text_features(
            [text("明", None, "maybe")],
            TOKENIZER,
            max_seq_length=8,
            labels=LabelMap(("no",)),
            coverage=CoverageReport(),
        )


# ---- multiple choice


def test_a_choice_is_as_many_pairs_as_it_has_choices() -> None:  # public case 42
    examples = [
        ChoiceExample("1", "he waits.", ("she goes", "she waits"), 1, "x.csv", 2),
        ChoiceExample("2", "明月", ("几", "时", "有", "把", "酒"), None, "x.csv", 3),
    ]
    coverage = CoverageReport()
    rows = build_choice_features(examples, TOKENIZER, max_seq_length=8, coverage=coverage)
    assert [len(row.input_ids) for row in rows] == [2, 5]
    assert tokens(rows[0].input_ids[0]) == [CLS, "he", "waits", ".", SEP, "she", "goes", SEP]
    assert rows[0].token_type_ids[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert [row.label for row in rows] == [1, IGNORE_INDEX]
    assert coverage.num_windows == 7
    coverage = CoverageReport()
    build_choice_features(examples, TOKENIZER, max_seq_length=7, coverage=coverage)
    assert (coverage.num_cut_tokens, coverage.num_cut_examples) == (2, 1)  # of two rows of one example


# ---- tags


def tag_rows(
    examples: list[TaggedExample], *, max_seq_length: int = 64, stride: int | None = None
) -> tuple[list[TagFeatures], CoverageReport]:
    coverage = CoverageReport()
    rows = build_tag_features(
        examples, TOKENIZER, max_seq_length=max_seq_length, labels=TAGS, coverage=coverage, stride=stride
    )
    return rows, coverage


def test_the_first_sub_token_carries_the_label() -> None:  # public case 38
    [row], coverage = tag_rows([tagged(["苏", "unaffable", "轼"], ["B-PER", "O", "I-PER"])])
    assert tokens(row.input_ids) == [CLS, "苏", "un", "##aff", "##able", "轼", SEP]
    skip = IGNORE_INDEX
    assert row.labels.tolist() == [skip, 0, 2, skip, skip, 1, skip]
    assert (row.words.tolist(), row.positions.tolist()) == ([0, 1, 2], [1, 2, 5])
    assert coverage.num_labels == 3


@pytest.mark.parametrize("blank", [" ", "", "\t", "\n", "\u200b", "\u00ad", "\u0000", "\ufffd", "\u3000"])
def test_a_word_without_a_token_shifts_nobody(blank: str) -> None:  # public cases 17 and 18
    words = [*"这是", blank, *"一句话", blank]
    tags = ["O", "O", "B-PER", "B-PER", "I-PER", "O", "O"]
    [row], coverage = tag_rows([tagged(words, tags)])
    [plain], _ = tag_rows(
        [tagged([w for w in words if w != blank], [t for w, t in zip(words, tags, strict=True) if w != blank])]
    )
    assert row.input_ids.tolist() == plain.input_ids.tolist()
    assert row.labels.tolist() == plain.labels.tolist()
    assert row.words.tolist() == [0, 1, 3, 4, 5]
    assert (coverage.num_words, coverage.num_words_without_token, coverage.num_lost_labels) == (7, 2, 1)


def test_an_unknown_word_is_one_token_with_its_label() -> None:
    [row], _ = tag_rows([tagged(["月", "zzz", "明"], ["O", "B-PER", "O"])])
    assert tokens(row.input_ids) == [CLS, "月", UNK, "明", SEP]
    assert row.labels[2] == 0


@given(
    counts=st.lists(st.sampled_from(["月", "unaffable", " ", "1037"]), max_size=60),
    length=st.integers(5, 16),
    stride=st.integers(1, 8) | st.none(),
)
def test_every_word_with_a_token_is_decided_exactly_once(counts: list[str], length: int, stride: int | None) -> None:
    rows, coverage = tag_rows([tagged(counts, ["O"] * len(counts))], max_seq_length=length, stride=stride)
    decided = Counter(word for row in rows for word in row.words.tolist())
    assert decided == Counter(word for word, text in enumerate(counts) if text.strip())
    assert sum((row.labels != IGNORE_INDEX).sum() for row in rows) == len(decided)
    assert all(len(row.input_ids) <= length for row in rows)
    for row in rows:
        first = [TOKENIZER.encode(counts[word]).tokens[0] for word in row.words.tolist()]
        assert tokens(row.input_ids[row.positions]) == first
    assert coverage.num_cut_tokens == 0 or length < 5


def test_three_hundred_words_at_length_64_are_tagged_once_each() -> None:  # public case 37
    tags = ["O"] * 292 + ["B-PER", "I-PER"] + ["O"] * 6
    rows, coverage = tag_rows([tagged(["月"] * 300, tags)])
    assert sorted(word for row in rows for word in row.words.tolist()) == list(range(300))
    found = {word: int(row.labels[p]) for row in rows for word, p in zip(row.words, row.positions, strict=True)}
    assert [TAGS.names[found[word]] for word in range(300)] == tags
    inner = rows[1:-1]
    assert all(row.positions.min() >= 15 and row.positions.max() <= 48 for row in inner)  # context on both sides
    assert (coverage.num_cut_tokens, coverage.num_windows) == (0, len(rows))


def test_a_word_longer_than_a_window_keeps_its_beginning_and_is_counted() -> None:
    rows, coverage = tag_rows([tagged(["unaffable", "月"], ["B-PER", "O"])], max_seq_length=4)
    assert [tokens(row.input_ids) for row in rows] == [[CLS, "un", "##aff", SEP], [CLS, "月", SEP]]
    assert (coverage.num_cut_tokens, coverage.num_cut_examples) == (1, 1)


def test_a_sentence_of_blanks_is_a_row_that_decides_nothing() -> None:
    [row], coverage = tag_rows([tagged([" ", ""], ["O", "O"])])
    assert tokens(row.input_ids) == [CLS, SEP]
    assert (len(row.words), coverage.num_empty_examples) == (0, 1)


def test_a_tag_the_map_lacks_is_named() -> None:
    with pytest.raises(InputErrors, match=r"x.conll:1: tag: the tag is not one of the model's\n  value: 'B-LOC'"):
        tag_rows([tagged(["月"], ["B-LOC"])])


# ---- questions


def question_rows(
    examples: list[QuestionExample], *, unanswerable: bool = False, length: int = 12, stride: int = 3, query: int = 64
) -> tuple[list[QuestionFeatures], CoverageReport]:
    coverage = CoverageReport()
    settings = WindowSettings(max_seq_length=length, doc_stride=stride, max_query_length=query)
    rows = build_question_features(examples, TOKENIZER, settings=settings, unanswerable=unanswerable, coverage=coverage)
    return rows, coverage


CONTEXT = "苏轼，字子瞻。   Su Shi\n\n\nwas born in 1037."


def test_windows_hold_the_question_and_every_token_of_the_context() -> None:
    answer = Answer("1037", CONTEXT.index("1037"))
    rows, coverage = question_rows([question("几时?", CONTEXT, answer)])
    whole = TOKENIZER.encode(CONTEXT)
    seen: set[tuple[int, int]] = set()
    for row in rows:
        assert tokens(row.input_ids[:5]) == [CLS, "几", "时", "?", SEP]
        inside = row.offsets[:, 0] >= 0
        assert row.token_type_ids[inside].min() == 1
        assert len(row.input_ids) <= 12
        seen |= {tuple(offset) for offset in row.offsets[inside].tolist()}
    assert seen == set(whole.offsets)
    assert coverage.num_lost_answers == 0
    holding = [row for row in rows if row.start_position != IGNORE_INDEX]
    assert holding
    for row in holding:
        start, end = row.offsets[row.start_position, 0], row.offsets[row.end_position, 1]
        assert CONTEXT[start:end] == "1037"


def test_an_answer_outside_a_window_is_ignored_or_no_answer() -> None:
    answer = Answer("苏轼", 0)
    rows, _ = question_rows([question("几时?", CONTEXT, answer)])
    assert (rows[0].start_position, rows[0].end_position) == (5, 6)
    assert {(row.start_position, row.end_position) for row in rows[1:]} == {(IGNORE_INDEX, IGNORE_INDEX)}
    rows, _ = question_rows(
        [question("几时?", CONTEXT, answer), question("酒?", CONTEXT, is_impossible=True)], unanswerable=True
    )
    assert rows[0].start_position == 5
    assert {(row.start_position, row.end_position) for row in rows[1:]} == {(0, 0)}


@pytest.mark.parametrize("spaces", ["", "        ", "\n" * 8])
def test_answers_stand_where_they_say_whatever_stands_before(spaces: str) -> None:  # public case 48, textbook fault 11
    context = f"子瞻{spaces}born in 1037, 1037"
    for start in (context.index("1037"), context.rindex("1037")):  # a repeated answer: the place decides, not the text
        rows, _ = question_rows([question("几?", context, Answer("1037", start))], length=32, stride=4)
        [row] = rows
        found = row.offsets[row.start_position, 0], row.offsets[row.end_position, 1]
        assert found == (start, start + 4)


def test_an_answer_at_the_very_end_of_the_context_does_not_run_off() -> None:  # textbook fault 11
    context = "born in 1037"
    rows, coverage = question_rows([question("几?", context, Answer("in 1037 .", 5))], length=32, stride=4)
    assert rows[0].offsets[rows[0].end_position, 1] == len(context)
    assert coverage.num_widened_answers == 1


def test_an_answer_inside_a_token_is_widened_and_counted() -> None:
    rows, coverage = question_rows([question("几?", "born in 1037", Answer("03", 9))], length=32, stride=4)
    [row] = rows
    assert row.offsets[row.start_position].tolist() == [8, 12]
    assert coverage.num_widened_answers == 1


def test_an_answer_that_no_window_holds_is_counted() -> None:
    context = "月" * 20
    _, coverage = question_rows([question("几?", context, Answer("月" * 9, 3))])
    assert (coverage.num_answers, coverage.num_lost_answers) == (1, 1)
    _, coverage = question_rows([question("几?", "月 \u200b", Answer("\u200b", 2))])
    assert coverage.num_lost_answers == 1


def test_a_context_without_a_token_is_one_row() -> None:  # public case 45
    for context in ("", " \n\t", "\u200b"):
        [row], coverage = question_rows([question("几?", context, is_impossible=True)], unanswerable=True)
        assert tokens(row.input_ids) == [CLS, "几", "?", SEP, SEP]
        assert (row.start_position, coverage.num_empty_examples) == (0, 1)
        assert (row.offsets == -1).all()


def test_long_questions_are_cut_and_counted() -> None:
    rows, coverage = question_rows([question("几" * 9, CONTEXT)], query=3)
    assert tokens(rows[0].input_ids[:5]) == [CLS, "几", "几", "几", SEP]
    assert (coverage.num_cut_questions, coverage.num_cut_tokens) == (1, 6)


def test_strides_that_leave_tokens_out_are_refused_before_anything_is_built() -> None:  # public case 44
    examples = [question("几?", "月" * 90), question("几" * 10, "月" * 90)]
    with pytest.raises(InputError, match=r"--doc_stride: a window holds 27 tokens [\s\S]*60[\s\S]*not their overlap"):
        question_rows(examples, length=40, stride=60)
    with pytest.raises(
        InputError, match="--max_seq_length: leaves no room for the context beside a question of 10 tokens"
    ):
        question_rows(examples, length=13, stride=1)
    rows, _ = question_rows(examples[:1], length=40, stride=35)
    covered = {start for row in rows for start, _ in row.offsets.tolist() if start >= 0}
    assert covered == set(range(90))
