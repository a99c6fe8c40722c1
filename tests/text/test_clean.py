"""Documents → cleaner documents: only what was asked for is changed, every document is counted, the first stays."""

import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import InputError
from bertkit.text import clean
from bertkit.text.clean import CleaningReport, CleaningSettings, clean_documents, remove_control_characters
from bertkit.text.documents import CorpusSettings, Document, ReadingReport, read_documents
from bertkit.text.rejects import RejectWriter, rejects_written

ZH = "明月几时有？把酒问青天。"
EN = "The rain had ceased. The settlement awoke."
NAMES = ["a", "月", "Ａ", "　", "\u200b", "①", "漢", "。", " "]


def numbered(texts: Iterable[str]) -> list[Document]:
    return [Document(f"x:{number}", text) for number, text in enumerate(texts)]


def cleaned(
    documents: Iterable[Document], *, rejects: RejectWriter | None = None, **values: object
) -> tuple[list[Document], CleaningReport]:
    report = CleaningReport()
    kept = list(clean_documents(documents, CleaningSettings(**values), report, rejects=rejects))
    assert report.documents.read == report.documents.kept + sum(report.documents.dropped.values())
    assert report.lines.read == report.lines.kept + sum(report.lines.dropped.values())
    assert report.documents.kept == len(kept)
    return kept, report


def texts(given: Iterable[str], **values: object) -> list[str]:
    return [document.text for document in cleaned(numbered(given), **values)[0]]


# ---- laws


@given(
    lines=st.lists(st.lists(st.sampled_from(NAMES), max_size=4).map("".join), min_size=1, max_size=20),
    blank=st.booleans(),
    duplicates=st.sampled_from(["none", "documents", "lines"]),
    normalize=st.sampled_from(["none", "nfkc"]),
    controls=st.booleans(),
    shortest=st.sampled_from([None, 2]),
    format=st.sampled_from(["lines", "sentences", "csv"]),
)
def test_what_is_read_is_kept_or_dropped_for_a_reason_over_reader_and_cleaner(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    blank: bool,
    duplicates: str,
    normalize: str,
    controls: bool,
    shortest: int | None,
    format: str,
) -> None:
    folder = tmp_path_factory.mktemp("law")
    path = folder / "x.txt"
    path.write_text(("\n\n" if blank else "\n").join(["text", *lines]), encoding="utf-8")
    reading = ReadingReport()
    documents = read_documents(CorpusSettings(input_file=str(path), format=format), reading)
    try:
        with rejects_written(folder / "rejects.jsonl") as rejects:
            kept, report = cleaned(
                documents,
                rejects=rejects,
                drop_duplicates=duplicates,
                normalize=normalize,
                remove_control_characters=controls,
                min_characters=shortest,
            )
    except InputError as problem:
        assert "holds no document" in str(problem)  # noqa: PT017
        return
    counts = reading.records if format == "csv" else reading.lines
    assert counts.read == counts.kept + sum(counts.dropped.values())
    assert reading.documents == report.documents.read == len(kept) + sum(report.documents.dropped.values())
    if format != "sentences":
        assert counts.read == len(kept) + sum(counts.dropped.values()) + sum(report.documents.dropped.values())
    rows = [json.loads(row) for row in (folder / "rejects.jsonl").read_text(encoding="utf-8").splitlines()]
    removed = {reason: [row["reason"] for row in rows].count(reason) for reason in {row["reason"] for row in rows}}
    assert removed == {**report.documents.dropped, **report.lines.dropped}


@given(st.lists(st.text(st.sampled_from("ab月。 "), min_size=1, max_size=2).filter(str.strip), max_size=60), st.data())
def test_duplicates_do_not_depend_on_what_is_in_memory_together(given: list[str], data: st.DataObject) -> None:
    once = list(dict.fromkeys(text.strip() for text in given))
    lines = numbered("\n".join(given[n : n + 3]) for n in range(0, len(given), 3))
    expected = cleaned(lines, drop_duplicates="lines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clean, "DOCUMENTS_AT_ONCE", data.draw(st.integers(1, 5)))
        patch.setattr(clean, "CHARACTERS_AT_ONCE", data.draw(st.integers(1, 9)))
        patch.setattr("bertkit.text.duplicates.HASHES_IN_MEMORY", data.draw(st.integers(1, 5)))
        assert texts((text.strip() for text in given), drop_duplicates="documents") == once
        assert cleaned(lines, drop_duplicates="lines") == expected
    assert [line.strip() for document in expected[0] for line in document.text.split("\n")] == once


@given(st.text(), st.booleans(), st.booleans(), st.sampled_from(["none", "nfkc"]))
def test_cleaning_what_is_clean_changes_nothing(text: str, controls: bool, width: bool, form: str) -> None:
    settings = {"remove_control_characters": controls, "full_width_to_half_width": width, "normalize": form}
    once = texts([text.encode("utf-8", "replace").decode()], **settings)
    assert texts(once, **settings) == once


def test_nothing_is_changed_by_default() -> None:
    documents = numbered([ZH, EN, ZH, "ＡＢ\u200b①", " a "])
    kept, report = cleaned(iter(documents))
    assert kept == documents
    assert not CleaningSettings().active
    assert report.rows() == [("documents read", 5), ("documents kept", 5)]


# ---- steps


def test_full_width_letters_digits_and_signs_become_ascii_and_chinese_punctuation_stays() -> None:
    kept, report = cleaned(
        numbered(["Ｈｅｌｌｏ　２０２４，好！（１＋１＝２）；３．１４％～：？。、“”…", ZH]),
        full_width_to_half_width=True,
    )
    assert [d.text for d in kept] == ["Hello　2024，好！（1+1=2）；3.14%～：？。、“”…", ZH]
    assert report.changed == {"full-width made half-width": 1}


def test_every_full_width_form_is_either_ascii_or_kept() -> None:
    forms = [chr(code) for code in range(0xFF01, 0xFF5F)]
    for form in forms:
        expected = form if form in "！（），：；？～" else unicodedata.normalize("NFKC", form)
        assert clean.to_half_width(form) == expected


def test_nfkc_is_unicodes() -> None:
    assert texts(["ﬁne ①，ｶﾞ e\u0301"], normalize="nfkc") == ["fine 1,ガ é"]


def test_control_and_invisible_characters_are_taken_off_and_joiners_stay() -> None:
    given = "这\0是\u200b一\u00ad句\ufeff话\u2028。\t\x1b[0m \u202eabc 👨\u200d👩 می\u200cخواهم \ufffd"
    assert texts([given], remove_control_characters=True) == [
        "这是一句话\u2028。\t[0m abc 👨\u200d👩 می\u200cخواهم \ufffd"
    ]


def test_no_control_character_is_left_but_tab_and_line_ends() -> None:
    everything = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    left = {c for c in remove_control_characters(everything) if unicodedata.category(c) == "Cc"}
    assert left == {"\t", "\n", "\r"}


def test_traditional_becomes_simplified_by_words() -> None:
    pytest.importorskip("opencc")
    kept, report = cleaned(numbered(["頭髮發現，乾燥乾坤。\0", ZH, EN]), traditional_to_simplified=True)
    assert [d.text for d in kept] == ["头发发现，干燥乾坤。\0", ZH, EN]
    assert report.changed == {"traditional made simplified": 1}


def test_mojibake_is_mended_line_by_line_and_sound_text_stays() -> None:
    pytest.importorskip("ftfy")
    broken = ZH.encode().decode("latin-1")
    sound = "“Curly” ﬁne Ａ … café\r"
    assert texts([f"{broken}\n{ZH}", sound + "x", "Iâ€™ll"], fix_mojibake=True) == [f"{ZH}\n{ZH}", sound + "x", "I’ll"]


def test_mojibake_is_mended_before_its_control_characters_are_taken_off() -> None:
    pytest.importorskip("ftfy")
    broken = ZH.encode().decode("latin-1")
    assert texts([broken], fix_mojibake=True, remove_control_characters=True, normalize="nfkc") == [
        unicodedata.normalize("NFKC", ZH)
    ]


def test_given_sentences_are_cleaned_each_and_stay_sentences() -> None:
    document = Document("p", "Ａ。\n\u200b\n月。", ("Ａ。", "\u200b", "月。"))
    kept, report = cleaned([document], full_width_to_half_width=True, remove_control_characters=True)
    assert kept == [Document("p", "A。\n月。", ("A。", "月。"))]
    assert ("sentences dropped: empty after cleaning", 1) in report.rows()


def test_what_is_empty_after_cleaning_and_of_another_length_is_dropped() -> None:
    kept, report = cleaned(
        numbered(["\u200b", "ab", "abc", "abcd", "abcde", "abcde\u200b"]),
        remove_control_characters=True,
        min_characters=3,
        max_characters=4,
    )
    assert [d.text for d in kept] == ["abc", "abcd"]
    assert report.documents.dropped == {
        "empty after cleaning": 1,
        "fewer than 3 characters": 1,
        "more than 4 characters": 2,
    }


# ---- duplicates


def test_900_copies_of_1000_lines_are_dropped_and_counted() -> None:
    kept, report = cleaned(numbered([EN] * 900 + [f"第{n}首" for n in range(100)]), drop_duplicates="documents")
    assert len(kept) == 101
    assert kept[0].id == "x:0"
    assert report.rows() == [
        ("documents read", 1000),
        ("documents kept", 101),
        ("documents dropped: duplicate document", 899),
    ]


def test_duplicates_are_compared_after_cleaning() -> None:
    assert texts(["ＡＢ月", "AB月"], drop_duplicates="documents", full_width_to_half_width=True) == ["AB月"]


def test_a_line_stays_where_it_stands_first() -> None:
    documents = [
        Document("a", f"{ZH}\n\n Share this \n{EN}"),
        Document("b", f"Share this\n\n{EN}"),
        Document("c", f"Share this\nnew\n\n{ZH}"),
        Document("d", "春早。\n春早。", ("春早。", "春早。")),
    ]
    kept, report = cleaned(documents, drop_duplicates="lines")
    assert kept == [documents[0], Document("c", "new"), Document("d", "春早。", ("春早。",))]
    assert report.documents.dropped == {"only duplicate lines": 1}
    assert (report.lines.read, report.lines.dropped) == (10, {"duplicate line": 5})
    assert report.changed == {"duplicate lines dropped": 2}
    assert ("lines of documents kept", 5) in report.rows()


def test_near_duplicates_name_the_document_they_are_like(tmp_path: Path) -> None:
    pytest.importorskip("datasketch")
    long_zh, long_en = ZH * 3 + "不知天上宫阙，今夕是何年。", EN * 3 + " Nobody spoke of the night before."
    given = numbered([long_zh, long_en, long_zh[:-1] + "！", long_en.upper(), "something else"])
    with rejects_written(tmp_path / "r.jsonl") as rejects:
        kept, report = cleaned(given, rejects=rejects, drop_duplicates="near", near_duplicate_threshold=0.7)
    assert [d.id for d in kept] == ["x:0", "x:1", "x:4"]
    assert report.documents.dropped == {"near duplicate document": 2}
    rows = [json.loads(row) for row in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {"id": "x:2", "text": given[2].text, "reason": "near duplicate document of x:0"}


def test_the_cleaning_is_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "DOCUMENTS_AT_ONCE", 3)

    def endless() -> Iterable[Document]:
        number = 0
        while True:
            yield Document("x", str(number := number + 1))

    for kind in ("none", "documents", "lines"):
        settings = CleaningSettings(drop_duplicates=kind)
        documents = clean_documents(endless(), settings, CleaningReport(), rejects=None)
        assert [next(documents).text for _ in range(10)] == [str(n) for n in range(1, 11)]


# ---- settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"near_duplicate_threshold": 0.0}, "--near_duplicate_threshold: is out of range\n  value: 0.0"),
        ({"near_duplicate_threshold": 1.5}, "above 0 and at most 1"),
        ({"min_characters": 0}, "--min_characters: is out of range"),
        ({"max_characters": -1}, "--max_characters: is out of range"),
        ({"min_characters": 5, "max_characters": 4}, "--min_characters(.|\n)*at most --max_characters, 4"),
    ],
)
def test_a_setting_out_of_range_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CleaningSettings(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"fix_mojibake": True},
        {"remove_control_characters": True},
        {"normalize": "nfkc"},
        {"full_width_to_half_width": True},
        {"traditional_to_simplified": True},
        {"drop_duplicates": "lines"},
        {"min_characters": 1},
        {"max_characters": 9},
    ],
)
def test_settings_that_do_something_are_active(values: dict[str, object]) -> None:
    assert CleaningSettings(**values).active


@pytest.mark.parametrize(("package", "flag"), [("ftfy", "fix_mojibake"), ("opencc", "traditional_to_simplified")])
def test_a_missing_package_is_named_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, package: str, flag: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf'--{flag}: needs the package {package}\n.*pip install "bertkit\[clean\]"'):
        clean_documents(numbered([ZH]), CleaningSettings(**{flag: True}), CleaningReport(), rejects=None)


# ---- rejects


def test_rejects_are_written_whole_with_the_text_as_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rejects.jsonl"
    with rejects_written(path) as rejects:
        cleaned(
            numbered(["Ａ", "\u200b", "A", f"{ZH}\u2028x", f"{ZH}\u2028x"]),
            rejects=rejects,
            full_width_to_half_width=True,
            remove_control_characters=True,
            drop_duplicates="documents",
        )
        assert not path.exists()
    assert [json.loads(row) for row in path.read_text(encoding="utf-8").split("\n")[:-1]] == [
        {"id": "x:1", "text": "\u200b", "reason": "empty after cleaning"},
        {"id": "x:2", "text": "A", "reason": "duplicate document"},
        {"id": "x:4", "text": f"{ZH}\u2028x", "reason": "duplicate document"},
    ]
    with rejects_written(path):
        pass
    assert path.read_bytes() == b""  # an older file of rejects is replaced
    assert sorted(file.name for file in path.parent.iterdir()) == ["rejects.jsonl"]


def test_a_run_that_fails_leaves_the_older_rejects(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    old = '{"id": "old", "text": "x", "reason": "y"}\n'
    path.write_text(old, encoding="utf-8")

    def fail() -> None:
        with rejects_written(path) as rejects:
            assert rejects is not None
            rejects.write("x", "y", "z")
            raise KeyError("z")

    with pytest.raises(KeyError):
        fail()
    assert path.read_text(encoding="utf-8") == old
    assert [file.name for file in tmp_path.iterdir()] == ["rejects.jsonl"]


def test_no_path_writes_no_rejects() -> None:
    with rejects_written(None) as rejects:
        assert rejects is None


@pytest.mark.parametrize("content", [ZH, '{"id": 1, "text": "x"}\n', "7\n", "[" * 100_000, "\n"])
def test_a_file_that_is_no_rejects_file_is_not_written_over(tmp_path: Path, content: str) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(content, encoding="utf-8")
    message = r"corpus\.jsonl: --rejects_file: is another file, and would be lost"
    with pytest.raises(InputError, match=message), rejects_written(corpus):
        pass
    assert corpus.read_text(encoding="utf-8") == content


def test_a_rejects_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--rejects_file: is a folder"), rejects_written(tmp_path):
        pass
    message = r"rejects\.jsonl: --rejects_file: cannot be written: "
    with pytest.raises(InputError, match=message), rejects_written(tmp_path / "file" / "rejects.jsonl"):
        pass
