"""`bertkit inspect data`: the report of a store, finished rows, JSON and the page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toy_run import toy_documents, toy_tokenizer, write_store

from bertkit import cli
from bertkit.commands import pretrain
from bertkit.commands.inspect_data import Config, run
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.options import values_of
from bertkit.report import frame

PAIRS = PairSettings(max_seq_length=32)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data"))


def config_of(store: Path, **values: object) -> Config:
    return replace(Config(str(store), pairs=PAIRS), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["train", "validation"])
def test_the_report_is_of_the_part_that_was_named(store: Path, capsys: pytest.CaptureFixture[str], part: str) -> None:
    run(config_of(store, part=part, json=True))
    corpus = json.loads(capsys.readouterr().out)["statistics"]["corpus"]
    opened = open_parts(store)[part]
    assert (corpus["documents"], corpus["tokens"]) == (opened.num_documents, opened.num_tokens)
    assert corpus["unknown_tokens"] == opened.manifest["unknown_tokens"]


def test_every_table_is_printed_and_no_row_unless_asked_for(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config_of(store))
    printed = capsys.readouterr().out
    for heading in ("Corpus:", "Lengths:", "Most frequent tokens:", "Pairs of one epoch:", "Masks:", "Padding:"):
        assert f"{heading}\n" in printed
    assert "next_sentence_label" not in printed


def test_show_prints_finished_rows_behind_the_tables(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config_of(store, show=2))
    printed = capsys.readouterr().out
    assert printed.count("next_sentence_label") == 2
    assert printed.count("    position  token") == 2


def test_the_command_line_has_the_flags_of_pairs_and_masks(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pairing", "sop", "--masking", "whole_word", "--max_seq_length", "24", "--json", "--show", "1"]
    assert cli.main(["inspect", "data", str(store), *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["settings"]["pairing"], answer["settings"]["max_seq_length"]) == ("sop", 24)
    assert answer["statistics"]["masks"]["masking"] == "whole_word"
    assert answer["statistics"]["pairs"]["row_tokens"]["max"] <= 24
    assert len(answer["rows"]) == 1


def test_terms_are_read_for_masking_by_phrases(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    terms = tmp_path / "terms.txt"
    terms.write_text("明月\nthe moon\n", encoding="utf-8")
    masking = MaskingSettings(masking="phrases", phrases_file=str(terms))
    run(config_of(store, masking=masking, json=True))
    assert json.loads(capsys.readouterr().out)["statistics"]["masks"]["masking"] == "phrases"


def test_a_corpus_that_gives_no_pairs_is_reported_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_store(tmp_path, ["明月照江楼。", "The moon sees a yard."] * 3, validation_split=False)
    run(config_of(store, show=2))
    printed = capsys.readouterr().out
    assert ["documents", "that", "repeat", "an", "earlier", "one", "4", "66.67", "%"] in map(
        str.split, printed.split("\n")
    )
    assert "0 true pairs" in printed
    assert "--pairing none" in printed
    assert "position" not in printed


def test_the_page_has_three_rows_where_nothing_else_is_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly", reason='the page needs the extra "report"')
    page = tmp_path / "pages" / "data.html"
    run(config_of(store, html=str(page)))
    html = page.read_text(encoding="utf-8")
    assert html.count("<div class=instance>") == 3
    assert "--max_seq_length</th><td>32</td>" in html
    printed = capsys.readouterr()
    assert "position" not in printed.out
    assert f"page: {page}" in printed.err


def test_an_empty_part_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    store = write_store(tmp_path, toy_documents(number=9), validation_split=False)
    with pytest.raises(InputError, match=r"--part: is empty\n  value: 'test'\n  expected: one of train"):
        run(config_of(store, part="test"))


def test_a_folder_that_is_no_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no finished store"):
        run(config_of(tmp_path))


def test_another_vocabulary_in_the_store_is_an_error(tmp_path: Path) -> None:
    store = write_store(tmp_path)
    for name, content in toy_tokenizer(specials_first=False).files().items():
        (store / name).write_bytes(content)
    with pytest.raises(InputError, match=r"vocab\.txt: is not the vocabulary that the ids of the store are of"):
        run(config_of(store))


def test_without_plotly_nothing_is_counted_first(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="--html: the page needs plotly"):
        run(config_of(store, html="data.html"))


@pytest.mark.parametrize(("name", "value"), [("show", -1), ("batch_size", 0), ("micro_batch_tokens", 0), ("seed", -5)])
def test_a_number_that_is_too_small_is_named(store: Path, name: str, value: int) -> None:
    with pytest.raises(InputError, match=rf"--{name}: is too small\n  value: {value}\n  expected: \d or more"):
        config_of(store, **{name: value})


def test_what_is_shown_by_default_is_what_pretrain_does_by_default() -> None:
    shown = values_of(Config(store="store"))
    trained = values_of(pretrain.Config(data_dir="store", output_dir="run"))
    alike = shown.keys() & trained.keys()
    assert {"batch_size", "micro_batch_tokens", "seed", "mlm_probability", "pairing"} <= alike
    assert {name: shown[name] for name in alike} == {name: trained[name] for name in alike}
