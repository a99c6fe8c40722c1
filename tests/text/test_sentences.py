"""Sentences: the law of joining, a table of cases by hand, real text, and time that grows with the text only."""

import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import InputError
from bertkit.text import sentences
from bertkit.text.documents import Document
from bertkit.text.sentences import LANGUAGES, sentence_splitter, sentences_of, split_sentences
from bertkit.text.stops import BLANKS, BREAKS

CHINESE = [  # the bar shows where a sentence ends
    "明月几时有？|把酒问青天。",
    "他来了！|她走了。|天黑了",
    "他问：“你去吗？”|她没有回答。",
    "他说：“我不去。”|说完就走了。",
    "「春眠不覺曉。」|『處處聞啼鳥。』|夜來風雨聲。",
    "花自飘零水自流；|一种相思，两处闲愁。",
    "本馆周一闭馆（节假日除外；详见公告），敬请留意。|欢迎光临。",
    "他想了很久……|最后还是走了。",
    "也许…没有人知道。",
    "我……我不知道。|你问他吧。",
    "桃、李、杏……等都开了花。|真好看。",
    "……他没有说完。|灯灭了。",
    "什么？！|你再说一遍！！！|好吧。",
    "“你来了？”他问。|“来了。”她低声答道。|门关上了。",
    "“快跑！”小明大声喊道。|大家都跑了。",
    "她唱了《明天会更好！》这首歌。|大家鼓掌。",
    "《加油！好男儿》是一个节目。|他看过。",
    "他居然（！）赢了。|没人相信。",
    "（这是旁注。）|正文从这里开始。",
    "【通知：明天放假。】|请互相转告。",
    "一首叫“你是谁？”的歌很流行。|我也喜欢。",
    "圆周率约为3.14。|这是常识。",
    "全长24.44公里，宽3.5米。|造价1.2亿元。",
    "说明1.由于下雨，活动取消。|2.由于停电，提前闭馆。",
    "第一行没有句号\n|第二行也没有\n|第三行。",
    "他走了!|她来了?|是的.|我知道.",
    '他说:"好。"|她走了。',
    "“真的吗？”，这句话他说了三遍。|我不信。",
    "实验基地。。|新的一句。",
    "先交作业；|再写日记；|最后睡觉。",
    "你好　。|再见",
    "请访问example.com了解详情。|谢谢。",
    "爱丽丝：“好！” |鲍勃：“不好！”",
    "〔此句为后人所加。〕|原文到此。",
    "小明问：“为什么天是蓝色的？”|妈妈笑了。",
    "“是吗？！”她惊讶道。|“我不知道。”",
    "他说了一句“再见。”就走了。|就在这时，灯灭了。",
    "只要有爱，都是你的家",
    "这是第3.5版。|下一版明年发布。",
]
ENGLISH = [
    "The U.S. team won 3.5 million. |It was a surprise.",
    "Mr. Brown met Dr. Green at 5 p.m. on Monday. |They talked.",
    "We left at 9 p.m. |The train was late.",
    "She lives in the U.S. |He lives in the U.K. |They write letters.",
    "The U.S. Congress met in Washington, D.C. yesterday.",
    "J. R. R. Tolkien wrote it. |George W. Smith read it.",
    "Take fruit, e.g. apples, i.e. something sweet. |Then rest.",
    "See No. 5 and Fig. 3, pp. 12 and vol. II for more. |The answer was no. |Nobody knew why.",
    "It is France vs. Spain tonight. |Who wins?",
    "He was born on Jan. 5, 1900. |He died in Dec. |Snow fell.",
    "He works for Acme Inc. in Boston. |She works for Foo Ltd. |They met there.",
    '"Where are you?" she asked. |"Here!" he said. |Nobody spoke.',
    '"Where are you?" Mary asked. |Tom hid.',
    "“I am here.” |“So am I.” |The door closed.",
    'He said, "I will go." |Then he left.',
    'He left. |"Why?" |Nobody knew.',
    "(It was late.) |We went home. |(All of us did.)",
    "It was cold (very cold!) and dark. |We slept.",
    "Well... I don't know. |He waited... |Then he ran.",
    "It was... strange. |Was it?",
    "He waited . . . |Then we see . . . that nothing came. . |It ended ... |They slept.",
    "1. Open the box. |2. Take the book. |3. Close it.",
    "a. first item\n|b. second item\n|iii. third item",
    "What?! |No way!!! |Yes.",
    "I use Yahoo! every day. |You don't.",
    "He paid $3.50. |She paid .75 more. |Good.",
    "One clause; another clause. |Done.",
    "Apples, pears, etc. were sold. |We bought plums, nuts, etc. |Prices rose.",
    "We eat vitamin C. |It helps. |World War I. |So did I. |Mary laughed.",
    "Martin King Jr. spoke first. |John Doe Sr. |He listened.",
    'He said : " I see . " |She left . |" No . " |" Yes . "',
    "It is 5 ft. 3 in. tall. |Mt. Everest is higher. |He said 'No.' |Then he left.",
    "He has a Ph.D. |He taught Rev. Lee, Jr. and Sen. John F. Low.",
    "No terminator here\n|and a second line",
    "We must carry on.|Our leader never looked back.",
    "Visit www.example.com today. |Write to a.b@example.org. |Thanks.",
    "It grew.[3] |It shrank.[12] |Then it stopped.",
    "i went home. |then i slept. |it was late.",
    "Prof. Ada Lovelace et al. wrote it. |Smith et al. (1990) agreed.",
    "The Ph.D. student of St. Mary's arrived on Main St. |She was tired.",
    "In 1990. |In 2000 B.C. the wall stood. |5 people came.",
    "iPhones sold well. |iPads did not.",
    "She has a B.A. and an M.D. degree. |He has none.",
]
MIXED = [
    "He left. |他走了。|She stayed.",
    "我喜欢Python。|It is simple. |你呢？",
    "I like it.|我也喜欢。|So do we!|是的。",
    "他是Dr. 王的学生。|Really? |真的。",
    "请看No.1产品。|谢谢。",
    "“Hello!” he said. |她笑了。",
    "他说“OK.”然后走了。",
    "U.S. 军队撤离了。|The end.",
    "版本为3.5。|Version 4.0 is next. |明年见！",
    "What is 人工智能? |It is AI. |对。",
]


@pytest.mark.parametrize("case", CHINESE + ENGLISH + MIXED)
def test_a_case_by_hand_is_cut_at_its_bars(case: str) -> None:
    assert split_sentences(case.replace("|", "")) == case.split("|")


TEXT = st.text() | st.text(alphabet="ab AB.!?。！？；…\"'“”（）()《》\n\t 1他说的等,，")


@given(TEXT)
def test_joined_sentences_are_the_text(text: str) -> None:
    assert "".join(split_sentences(text)) == text


@given(TEXT, st.sampled_from(["。", "。！？", ".", "\n", " .", "”"]))
def test_joined_sentences_of_the_plain_rule_are_the_text(text: str, sentence_end: str) -> None:
    assert "".join(sentence_splitter(sentence_end)(text)) == text


@given(TEXT)
def test_no_sentence_is_blank_or_begins_with_a_blank_but_the_first(text: str) -> None:
    sentences = split_sentences(text)
    assert all(sentence.strip() for sentence in sentences) or not text.strip()
    assert not any(sentence[0].isspace() for sentence in sentences[1:])


@given(st.lists(TEXT.filter(str.strip), min_size=1, max_size=5))
def test_a_line_break_always_ends_a_sentence(texts: list[str]) -> None:
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    expected = [piece.strip() for line in lines for piece in split_sentences(line)]
    assert [piece.strip() for piece in split_sentences("\n".join(lines))] == expected


PLAIN = st.text(alphabet="天地玄黄春。。！？；｡，、：％%&=/a9") | st.text(alphabet="天。，！")
NEARLY_PLAIN = st.text(alphabet="天地。！？；，、：…—“”「」（）《》\n 　.a")


@given(PLAIN | NEARLY_PLAIN)
def test_a_plain_text_is_cut_as_if_every_stop_were_judged(text: str) -> None:
    assert split_sentences(text) == sentences._judged(text)


WORDS = st.sampled_from(
    ["The", "cat", "sat", "etc", "vi", "ill", "Mr", "no", "x", "e.g", "U.S", "很好", "(see", "it)", '"So"', "a-b", "B",
     "sat.", "cat.", "etc.", "Dr.", "no.", "p.m.", "J.", "2.", "vi.", "好。", "（好。", "”。", "天。天", "——",
     "\n", "\t"]
)  # fmt: skip


@given(st.lists(WORDS).map(" ".join) | st.lists(WORDS).map("".join) | TEXT | NEARLY_PLAIN)
def test_a_stop_that_is_plain_at_sight_is_one_that_would_be_judged_so(text: str) -> None:
    quick = sentences._judged(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "plain_end", lambda text, start, at, end: 0)
        assert quick == sentences._judged(text)


def test_blanks_and_breaks_together_are_the_white_space_of_python() -> None:
    assert {*BLANKS, *BREAKS} == {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    assert "".join(BREAKS) == "".join(c for c in BREAKS if len(f"a{c}b".splitlines()) == 2)


def test_a_text_of_blanks_is_one_piece_and_an_empty_one_none() -> None:
    assert split_sentences(" \n ") == [" \n "]
    assert split_sentences("") == []


def test_the_plain_rule_ends_a_sentence_only_after_the_characters_given() -> None:
    split = sentence_splitter("。，")
    assert split("云破月来，花弄影。重重帘幕？") == ["云破月来，", "花弄影。", "重重帘幕？"]
    assert sentence_splitter(".")('Mr. Brown said "No." He left.') == ["Mr. ", 'Brown said "No." ', "He left."]
    assert sentence_splitter("。")("他说“好。”她走了。") == ["他说“好。”", "她走了。"]
    assert sentence_splitter(None) is split_sentences


def test_a_plain_rule_without_characters_is_refused() -> None:
    with pytest.raises(InputError, match="--sentence_end: names no character"):
        sentence_splitter("")


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", ["Das ist z. B. gut.  ", "Er kam am 3. Mai.\n\n", "Neu."]),
        ("es", ["¿Qué? ", "El Sr. López salió. ", "Fin."]),
        ("fr", ["Où est-il ? ", "Il dort, dit-elle."]),
        ("hi", ["यह घर है। ", "वह नदी है।"]),
        ("ja", ["今日は晴れ。", "散歩に行く？\n", "はい。"]),
        ("ru", ["Он ушёл. ", "Она осталась."]),
    ],
)
def test_another_language_is_cut_by_its_own_rules(language: str, expected: list[str]) -> None:
    assert sentence_splitter(None, language=language)("".join(expected)) == expected


@given(TEXT | st.text(alphabet="aé A.!?¿।。「」“”()\r\n\x1c\u2028 1"), st.sampled_from(LANGUAGES.split()))
def test_joined_sentences_of_another_language_are_the_text(text: str, language: str) -> None:
    found = sentence_splitter(None, language=language)(text)
    assert "".join(found) == text
    assert all(piece.strip() for piece in found) or not text.strip()
    assert not any(piece[0].isspace() for piece in found[1:])


def test_a_piece_that_is_not_in_the_text_cuts_nothing() -> None:
    assert sentences._placed("Eins. Zwei. Drei.", ["Eins.", "zwei.", " ", "Drei."]) == ["Eins. Zwei. ", "Drei."]


def test_chinese_and_english_by_name_are_the_built_in_rules() -> None:
    assert sentence_splitter(None, language="zh") is sentence_splitter(None, language="en") is split_sentences


def test_an_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"(?s)--language: is no language .*value: 'deu'.*one of zh en am ar .* uk"):
        sentence_splitter(None, language="deu")


def test_a_language_and_sentence_ends_together_are_refused() -> None:
    with pytest.raises(InputError, match="--language: has its own sentence ends, and --sentence_end names others"):
        sentence_splitter("。", language="ja")


def test_a_language_without_its_package_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(InputError, match=r'(?s)sentencex, which is not installed.*pip install "bertkit\[languages\]"'):
        sentence_splitter(None, language="de")


def test_boundaries_that_the_format_gives_are_kept_as_they_are() -> None:
    given_ones = ("Mr. Brown. He left.", "他来了。她走了。")
    assert sentences_of(Document("a:1", "\n".join(given_ones), given_ones), split_sentences) == list(given_ones)
    assert sentences_of(Document("a:1", "他来了。她走了。"), split_sentences) == ["他来了。", "她走了。"]


def test_a_given_sentence_of_blanks_is_no_sentence_of_its_own() -> None:
    assert sentences_of(Document("a:1", "", (" ", "他来了。", "", "\t", "再见。", " ")), split_sentences) == [
        " 他来了。\t",
        "再见。 ",
    ]
    assert sentences_of(Document("a:1", " \n"), split_sentences) == []


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "." * 1_000_000,
        '."' * 500_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "Mr. " * 80_000,
        "A.B" * 100_000,
        "“！" * 500_000,
        "（；" * 300_000,
        "J. " * 80_000,
        "a. " * 80_000,
        "word... " * 100_000,
        "x…\u00a0y" * 100_000,
        "天（天！）" * 100_000,
        "——天！" * 100_000,
        "天．" * 200_000,
        "“天！”他说，" * 60_000,
        "天" * 3_400_000,  # 10 MB without a stop
        "天地玄黄。" * 680_000,
        "“天地玄黄。" * 560_000,
        "The cat sat. " * 770_000,
    ],
    ids=lambda text: repr(text[:4]),
)
def test_time_grows_with_the_text_only(text: str) -> None:
    began = time.process_time()  # which others on the machine do not lengthen
    assert "".join(split_sentences(text)) == text
    assert time.process_time() - began < 30  # it takes a second or two; a quadratic scan takes minutes


@pytest.mark.shared_data
def test_joined_sentences_of_a_chinese_treebank_are_found_again(shared_data: Path) -> None:
    found = wanted = common = 0
    for file in sorted((shared_data / "uner_zh_gsdsimp").glob("*.iob2")):
        documents: list[list[str]] = []
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("# newdoc"):
                documents.append([])
            elif line.startswith("# text = "):
                documents[-1].append(line.removeprefix("# text = "))
        for gold in documents:
            ends, gold_ends = _ends(split_sentences("".join(gold))), _ends(gold)
            found, wanted, common = found + len(ends), wanted + len(gold_ends), common + len(ends & gold_ends)
    assert wanted == 4829
    assert 2 * common / (found + wanted) >= 0.97


def _ends(sentences: list[str]) -> set[int]:
    ends, position = set(), 0
    for sentence in sentences[:-1]:
        position += len(sentence)
        ends.add(position)
    return ends


@pytest.mark.shared_data
def test_a_ci_has_one_sentence_for_every_full_stop(shared_data: Path) -> None:
    for line in (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()[:500]:
        assert len(split_sentences(line)) == line.count("。") + line.count("？") + line.count("！")
