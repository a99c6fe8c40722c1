"""`bertkit inspect`: a corpus's shape and counts in every format; a vocabulary's entries and what they cover."""

import json
import re
from pathlib import Path

import pytest
from tokenizers import AddedToken
from toy_model import toy_tokenizer

from bertkit.commands import inspect_corpus, inspect_vocab
from bertkit.commands.inspect_corpus import count_corpus
from bertkit.commands.inspect_vocab import entries_of
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

POEMS = [["明月几时有？", "把酒问青天。"], ["十年生死两茫茫。", "不思量，自难忘。"]]
STORIES = [["The U.S. team won 3.5 million.", "It was late."], ["He left.", "Nobody spoke."]]


FORMATS = {
    "lines": lambda corpus: "".join(" ".join(sentences) + "\n" for sentences in corpus),
    "sentences": lambda corpus: "\n".join("".join(f"{sentence}\n" for sentence in s) for s in corpus),
    "paragraphs": lambda corpus: "\n".join("".join(f"{sentence}\n" for sentence in s) for s in corpus),
    "jsonl": lambda corpus: "".join(json.dumps({"text": " ".join(s)}) + "\n" for s in corpus),
    "wikitext": lambda corpus: "".join(f" = Title = \n {' '.join(s)} \n" for s in corpus),
}


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[list[str]], str]:
    shape, _, rest = capsys.readouterr().out.partition("\n]\n")
    return json.loads(shape + "]"), rest


@pytest.mark.parametrize("corpus", [POEMS, STORIES])
@pytest.mark.parametrize("format", list(FORMATS))
def test_every_format_shows_the_same_two_dimensional_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str, corpus: list[list[str]]
) -> None:
    path = tmp_path / "corpus"
    path.write_text(FORMATS[format](corpus), encoding="utf-8")
    inspect_corpus.run(inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format=format)))
    assert printed(capsys)[0] == corpus


def test_a_users_function_shows_the_same_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bar_format.py").write_text(
        "from pathlib import Path\n"
        "def read(path):\n"
        "    return [line.split('|') for line in Path(path).read_text(encoding='utf-8').splitlines()]\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "corpus.bars"
    path.write_text("".join("|".join(s) + "\n" for s in POEMS + STORIES), encoding="utf-8")
    inspect_corpus.run(inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format="bar_format:read"), show=4))
    assert printed(capsys)[0] == POEMS + STORIES


def test_the_plain_rule_for_ends_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("云破月来，花弄影。\n", encoding="utf-8")
    inspect_corpus.run(
        inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format="lines", sentence_end="，。"))
    )
    assert printed(capsys)[0] == [["云破月来，", "花弄影。"]]


def test_the_rest_of_the_documents_is_a_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。\n二。\n三。\n", encoding="utf-8")
    inspect_corpus.run(inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format="lines"), show=2))
    assert capsys.readouterr().out.splitlines()[:5] == ["[", ' ["一。"],', ' ["二。"],', " ...", "]"]


def test_what_is_counted_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。二。三三。\n\n一。\n一。\nHe left. She stayed.\n", encoding="utf-8")
    settings = CorpusSettings(input_file=str(path), format="lines")
    counts = count_corpus(settings, show=0)
    assert (counts.documents, counts.sentences, counts.one_sentence, counts.duplicates) == (4, 7, 2, 1)
    assert (counts.characters, counts.most_sentences, counts.longest_sentence) == (7 + 2 + 2 + 20, 3, 11)
    assert counts.examples == []
    inspect_corpus.run(inspect_corpus.Config(corpus=settings, show=4))
    rest = printed(capsys)[1]
    assert "lines dropped: blank line" in rest
    assert "2 of 4 documents have one sentence: useless for next-sentence pairs of their own" in rest
    assert "1 documents (25.0%) are duplicates" in rest


def test_a_corpus_of_documents_of_one_sentence_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。\n\n二。\n\n三。\n", encoding="utf-8")
    inspect_corpus.run(inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format="sentences")))
    assert "there are 0 positive pairs" in printed(capsys)[1]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (inspect_corpus.Config(), "path: no text was named"),
        (inspect_corpus.Config(path="a", corpus=CorpusSettings(input_file="b")), "path: the text is named twice"),
        (inspect_corpus.Config(path="a", show=-1), "--show: is below 0"),
    ],
)
def test_a_call_that_cannot_be_is_refused(config: inspect_corpus.Config, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inspect_corpus.run(config)


def test_fewer_than_no_entries_cannot_be_shown() -> None:
    with pytest.raises(InputError, match="--show: is below 0"):
        inspect_vocab.run(inspect_vocab.Config(path="a", show=-1))


@pytest.mark.shared_data
def test_the_song_ci_have_their_known_counts(shared_data: Path) -> None:
    settings = CorpusSettings(input_file=str(shared_data / "songci" / "songci.txt"), format="lines")
    counts = count_corpus(settings, show=0)
    assert (counts.documents, counts.sentences, counts.one_sentence) == (20_021, 150_539, 442)
    assert (counts.characters, counts.duplicates) == (1_609_206, 0)


def test_a_corpus_is_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poems.txt"
    path.write_text("一。二。\n三。\n", encoding="utf-8")
    inspect_corpus.run(inspect_corpus.Config(path=str(path), corpus=CorpusSettings(format="lines"), json=True))
    answer = json.loads(capsys.readouterr().out)
    assert answer["documents"] == [["一。", "二。"], ["三。"]]
    assert answer["counts"]["sentences"] == 3
    assert answer["remarks"][0].startswith("1 of 2 documents have one sentence")


# ---- vocab ----


def folder_of(path: Path, tokenizer: Tokenizer) -> str:
    for name, content in tokenizer.files().items():
        write_atomically(path / name, content)
    return str(path)


def covered(tmp_path: Path, tokenizer: Tokenizer, text: str, **settings: object) -> inspect_vocab.Config:
    """The call that shows how a tokenizer covers a text."""
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    corpus = CorpusSettings(input_file=str(tmp_path / "text.txt"), format="lines")
    return inspect_vocab.Config(path=folder_of(tmp_path / "tokenizer", tokenizer), corpus=corpus, **settings)


def test_the_entries_of_a_vocabulary_are_counted_by_kind() -> None:
    tokens = (*SPECIAL_TOKENS, "[unused0]", "<e>", "tree", "##s", "##ing", "树", "##树", "Tree", "a-b", "。")
    entries = entries_of(Tokenizer(Vocabulary(tokens), True, added_tokens=(AddedToken("<e>"),)))
    assert entries.special == {token: id for id, token in enumerate(SPECIAL_TOKENS)}
    assert entries.added == {"<e>": 6}
    assert (entries.size, entries.num_ordinary, entries.num_unused) == (15, 8, 1)
    assert (entries.num_characters, entries.num_continuations, entries.num_chinese) == (4, 3, 1)
    assert entries.num_capital == 1
    assert sum(entries.never_made.values()) == 3  # ##树, Tree, a-b
    assert entries.longest[:2] == ["tree", "Tree"]


def test_a_vocabulary_alone_shows_its_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspect_vocab.run(inspect_vocab.Config(path=folder_of(tmp_path, toy_tokenizer())))
    printed = capsys.readouterr().out
    for line in (r"entries +66", r"id of \[MASK\] +5", r"\[unused…\] +2", "do_lower_case +true"):
        assert re.search(rf"^  {line}$", printed, re.MULTILINE), line
    assert "on the corpus" not in printed


def test_coverage_names_what_is_unknown_and_what_is_never_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "我住长江头，鸟鸟。\n\nThe team “won” unseen gold [UNK]\n"
    inspect_vocab.run(covered(tmp_path, toy_tokenizer(), text, show=2))
    printed = capsys.readouterr().out
    for line in (
        "lines dropped: blank line +1",
        "words +16",
        "tokens +17",
        r"of them \[UNK\] +4",
        r"share of \[UNK\] +23.5294%",
        "tokens per word +1.062",
        "words kept whole +68.75%",
        r"literal \[UNK\] in the text, not counted above +1",
        "different Chinese characters +6",
        "of them with an entry +5",
        "share of the Chinese text they make +71.4286%",
        "鸟  U\\+9E1F CJK UNIFIED IDEOGRAPH-9E1F +2",
        "“  U\\+201C LEFT DOUBLE QUOTATION MARK +1",
    ):
        assert re.search(rf"^  {line}$", printed, re.MULTILINE), line
    assert "(3 different)" in printed
    assert "U+201D" not in printed  # --show 2
    assert re.search(r"entries never used \(\d+\), the first: u  s\n", printed)


def test_the_same_is_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = make_tokenizer(Vocabulary((*toy_tokenizer().vocabulary.tokens, "##江")), do_lower_case=True)
    inspect_vocab.run(covered(tmp_path, tokenizer, "我鸟鸟 gold\n", json=True))
    answer = json.loads(capsys.readouterr().out)
    assert answer["vocabulary"]["size"] == 67
    assert answer["vocabulary"]["never_made"] == {"every Chinese character is a word of its own": 1}
    assert answer["vocabulary"]["special"]["[MASK]"] == 5
    assert answer["corpus"]["unknown_share"] == 0.5
    assert answer["corpus"]["unknown_characters"] == [
        {"character": "鸟", "description": "鸟  U+9E1F CJK UNIFIED IDEOGRAPH-9E1F", "count": 2}
    ]
    assert "gold" not in answer["corpus"]["never_used"]
    assert answer["remarks"] == []
    inspect_vocab.run(inspect_vocab.Config(path=str(tmp_path / "tokenizer"), json=True))
    assert json.loads(capsys.readouterr().out)["corpus"] is None


def test_an_uncased_vocabulary_on_text_with_capitals_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect_vocab.run(covered(tmp_path, toy_tokenizer(do_lower_case=False), "The Team won Gold\n"))
    printed = capsys.readouterr().out
    assert "case mismatch: 3 words of the text have a capital letter and no entry has one" in printed
    assert "3 of them became [UNK]" in printed
    inspect_vocab.run(covered(tmp_path, toy_tokenizer(do_lower_case=False), "The Team won Gold\n", do_lower_case=True))
    assert "case mismatch" not in capsys.readouterr().out


def test_a_cased_vocabulary_on_lower_cased_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = (*SPECIAL_TOKENS, "<S>", "Tree", "树")
    inspect_vocab.run(covered(tmp_path, make_tokenizer(Vocabulary(tokens), do_lower_case=True), "Tree 树\n"))
    printed = capsys.readouterr().out
    assert "case mismatch: 1 entries have a capital letter, but do_lower_case is true" in printed
    assert re.search("can never occur: has capital letters, but the tokenizer makes them small +2", printed)


@pytest.mark.shared_data
def test_the_public_chinese_vocabulary_covers_the_song_ci_but_for_1403_characters(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_data / "vocabs" / "bert-base-chinese-vocab.txt"
    corpus = CorpusSettings(input_file=str(shared_data / "songci" / "songci.txt"), format="lines")
    inspect_vocab.run(inspect_vocab.Config(path=str(path), corpus=corpus, json=True))
    found = json.loads(capsys.readouterr().out)["corpus"]
    assert (found["num_tokens"], found["num_unknown"]) == (1_609_206, 12_989)
    assert (found["num_chinese"], found["num_chinese_known"], len(found["unknown_characters"])) == (5_916, 4_513, 1_403)
    lines = (shared_data / "songci" / "songci.txt").read_text(encoding="utf-8").splitlines()
    tokenizer = load_tokenizer(path)
    assert sum(int((ids == 100).sum()) for ids in tokenizer.encode_plain(lines)) == 12_989
