"""Preparation: what becomes of every document is counted, the folder is whole or absent, the key covers everything."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from toy_data import TOY, documents_of, flat, toy_ids

from bertkit.data import chunks, preparation
from bertkit.data.preparation import PreparationReport, PreparationSettings, prepare_store, store_key
from bertkit.data.store import MANIFEST, PARTS, Store, open_parts, open_store, read_manifest
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings, part_of
from bertkit.text.parts import parts_of
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
CI = ["明月几时有，把酒问青天。", "不知天上宫阙，今夕是何年。", "明月几时有。把酒问青天。"]
GENESIS = ["In the beginning God created heaven. The heaven, the earth.", "God created the heaven and earth."]
MANY = [f"{a}{b}有。{b}{a}问。" for a in "明月几时把酒" for b in "青天不知上宫"]
DROPPED = "\u200b"  # the tokenizer makes no token of it


def corpus_of(folder: Path, *documents: str, name: str = "poems.txt", format: str = "lines") -> CorpusSettings:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(documents) + "\n", encoding="utf-8")
    return CorpusSettings(input_file=str(folder / name), format=format)


def prepared(corpus: CorpusSettings, output: Path, *, validation_split: bool = False) -> PreparationReport:
    return prepare_store(corpus, TOKENIZER, output, PreparationSettings(validation_split=validation_split))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def ids_of(store: Store) -> list[str]:
    import pyarrow as pa

    paths = sorted(store.directory.glob("*.arrow"))
    return [id for path in paths for id in pa.ipc.open_file(str(path)).read_all().column("id").to_pylist()]


# ---- what is written ----


def test_documents_become_sentences_of_ids(tmp_path: Path) -> None:
    prepared(corpus_of(tmp_path, CI[2], GENESIS[0]), tmp_path / "store")
    store = open_parts(tmp_path / "store")["train"]
    assert documents_of(store) == [
        [toy_ids("明月几时有。"), toy_ids("把酒问青天。")],
        [toy_ids("in the beginning god created heaven ."), toy_ids("the heaven , the earth .")],
    ]
    assert ids_of(store) == ["poems.txt:1", "poems.txt:2"]


def test_the_folder_holds_three_parts_the_tokenizer_and_a_manifest(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, *MANY)
    report = prepared(corpus, tmp_path / "store", validation_split=True)
    files = {"vocab.txt", "tokenizer.json", "tokenizer_config.json", MANIFEST}
    parts = {f"{part}/{name}" for part in PARTS for name in ("shard-00000.arrow", MANIFEST)}
    assert set(contents(tmp_path / "store")) == files | parts
    assert load_tokenizer(tmp_path / "store").vocabulary.tokens == TOY.tokens
    manifest = read_manifest(tmp_path / "store")
    assert manifest["key"] == store_key(corpus, TOKENIZER, PreparationSettings())
    assert manifest["parts"] == report.parts
    assert manifest["settings"]["format"] == "lines"
    assert manifest["settings"]["validation_split"] is True
    assert (
        manifest["vocabulary_sha256"]
        == TOY.hash
        == open_store(tmp_path / "store" / "train").manifest["vocabulary_sha256"]
    )


def test_every_document_is_in_the_part_of_its_text(tmp_path: Path) -> None:
    prepared(corpus_of(tmp_path, *MANY), tmp_path / "store", validation_split=True)
    for part, store in open_parts(tmp_path / "store").items():
        lines = [
            f"poems.txt:{n}" for n, text in enumerate(MANY, start=1) if part_of(text, validation_split=True) == part
        ]
        assert ids_of(store) == lines
        assert lines


def test_without_a_split_all_documents_are_for_training(tmp_path: Path) -> None:
    report = prepared(corpus_of(tmp_path, *MANY), tmp_path / "store")
    assert [report.parts[part]["documents"] for part in PARTS] == [len(MANY), 0, 0]
    assert list(open_parts(tmp_path / "store")) == ["train"]


def test_copies_of_a_text_are_never_in_two_parts(tmp_path: Path) -> None:
    prepared(corpus_of(tmp_path, *MANY, *MANY), tmp_path / "store", validation_split=True)
    texts = [{str(document) for document in documents_of(s)} for s in open_parts(tmp_path / "store").values()]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]


def test_a_literal_mask_in_a_text_stays_text(tmp_path: Path) -> None:
    prepared(corpus_of(tmp_path, "明月[MASK]时有。[SEP]", GENESIS[1] + " [CLS]"), tmp_path / "store")
    ids = flat(documents_of(open_parts(tmp_path / "store")["train"]))
    assert not {TOY.mask_id, TOY.sep_id, TOY.cls_id, TOY.pad_id} & set(ids)
    assert ids.count(TOY.unk_id) == 9  # of [ MASK ], [ SEP ] and [ CLS ], which the toy vocabulary lacks


def test_documents_are_tokenized_in_chunks_and_written_as_if_they_were_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(tmp_path, *MANY, DROPPED, *CI)
    prepared(corpus, tmp_path / "one", validation_split=True)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    prepared(corpus, tmp_path / "two", validation_split=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


# ---- what is counted ----


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    corpus = corpus_of(
        *(tmp_path, "明月几时有。", DROPPED, "把酒问青天。", "", DROPPED, "", "God created heaven.", "", "明月龘。"),
        format="sentences",
    )
    report = prepared(corpus, tmp_path / "store")
    assert report.parts["train"] == {"documents": 3, "sentences": 4, "tokens": 6 + 6 + 4 + 4, "unknown_tokens": 1}
    assert report.sentences_without_tokens == 2
    assert report.documents_without_tokens == 1
    assert report.documents_of_one_sentence == 2
    assert report.repeated_documents == 0
    assert report.corpus.reading.documents == 4 == report.parts["train"]["documents"] + report.documents_without_tokens
    rows = dict(report.rows())
    assert rows["lines read"] == 9 == rows["lines kept"] + rows["lines dropped: blank line"]
    assert rows["sentences dropped: no token in them"] == 2
    assert rows["documents dropped: no token in them"] == 1
    assert rows["documents of one sentence (only ever a random B)"] == 2
    assert rows["[UNK] among the tokens"] == "5.00 %"
    assert rows["sentences in a document, mean"] == "1.3"
    assert rows["tokens in a sentence, mean"] == "5.0"
    assert [rows[f"documents for {part}"] for part in PARTS] == [3, 0, 0]


def test_every_row_of_the_report_has_a_name_of_its_own(tmp_path: Path) -> None:
    report = prepared(corpus_of(tmp_path, *MANY, "", *CI), tmp_path / "store", validation_split=True)
    names = [name for name, _ in report.rows()]
    assert len(set(names)) == len(names)
    assert read_manifest(tmp_path / "store")["report"] == dict(report.rows())


def test_one_sentence_documents_are_kept_and_counted(tmp_path: Path) -> None:
    report = prepared(corpus_of(tmp_path, "明月几时有。", *CI, GENESIS[1]), tmp_path / "store")
    assert report.documents_of_one_sentence == 4
    assert report.parts["train"]["documents"] == 5


def test_nine_hundred_copies_of_a_thousand_documents_are_reported(tmp_path: Path) -> None:
    others = [f"{a}{b}{c}。{c}{a}。" for a in "明月几时有" for b in "把酒问青天" for c in "不知上宫"]
    assert len(set(others)) == 100
    report = prepared(corpus_of(tmp_path, *[CI[2]] * 900, *others), tmp_path / "store")
    assert report.repeated_documents == 899
    assert dict(report.rows())["documents that repeat an earlier one"] == 899


# ---- whole or not at all ----


def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(tmp_path / "text", *MANY)
    before = contents(tmp_path)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    monkeypatch.setattr(chunks, "parts_of", failing_after(2))
    with pytest.raises(OSError, match="disk full"):
        prepared(corpus, tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.tmp", "text"]  # to be gone on with
    with pytest.raises(InputError, match="no format"):
        prepared(replace(corpus, format="nosuch"), tmp_path / "store")
    monkeypatch.undo()
    prepared(corpus, tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "text"]
    assert before.items() <= contents(tmp_path).items()


def test_an_error_in_the_middle_leaves_an_older_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(corpus_of(tmp_path / "text", *CI), tmp_path / "store")
    before = contents(tmp_path / "store")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    monkeypatch.setattr(chunks, "parts_of", failing_after(2))
    with pytest.raises(OSError, match="disk full"):
        prepared(corpus_of(tmp_path / "text", *MANY), tmp_path / "store")
    assert contents(tmp_path / "store") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "store.tmp", "text"]


def failing_after(number: int) -> object:
    calls = iter(range(number))

    def parts(digests: NDArray[np.uint8], *, validation_split: bool) -> NDArray[np.int64]:
        if next(calls, None) is None:
            raise OSError("disk full")
        return parts_of(digests, validation_split=False)

    return parts


def test_problems_of_the_text_leave_nothing_and_are_named(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, '{"text": "明月几时有。"}', '{"text": 7}', name="poems.jsonl", format="jsonl")
    with pytest.raises(InputError, match=r"poems.jsonl:2: text: the field holds a number"):
        prepared(corpus, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_an_older_store_is_replaced(tmp_path: Path) -> None:
    prepared(corpus_of(tmp_path, *CI), tmp_path / "store")
    prepared(corpus_of(tmp_path, *GENESIS), tmp_path / "store")
    assert open_parts(tmp_path / "store")["train"].num_documents == 2


def test_an_empty_folder_may_stand_there(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    prepared(corpus_of(tmp_path, *CI), tmp_path / "store")
    assert open_parts(tmp_path / "store")


@pytest.mark.parametrize("name", ["notes.txt", MANIFEST, "train/manifest.json"])
def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, name: str) -> None:
    """A checkpoint has a manifest.json too."""
    other = tmp_path / "step-100"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text('{"format_version": 1}', encoding="utf-8")
    with pytest.raises(InputError, match=r"step-100: --output_dir: is a folder with other files in it\n.*older store"):
        prepared(corpus_of(tmp_path, *CI), other)
    assert list(contents(other)) == [name]


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("明月", encoding="utf-8")
    with pytest.raises(InputError, match="store: --output_dir: is no folder"):
        prepared(corpus_of(tmp_path, *CI), tmp_path / "store")
    assert (tmp_path / "store").read_text(encoding="utf-8") == "明月"


def test_a_text_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"poems.txt: holds no document with a token in it\n.*inspect corpus"):
        prepared(corpus_of(tmp_path, DROPPED), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_corpus_too_small_for_its_split_is_named_when_it_is_opened(tmp_path: Path) -> None:
    [text] = [text for text in MANY if part_of(text, validation_split=True) == "test"][:1]
    prepared(corpus_of(tmp_path, text), tmp_path / "store", validation_split=True)
    with pytest.raises(InputError, match="has an empty training part"):
        open_parts(tmp_path / "store")


# ---- the same again ----


def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, *MANY, *CI, *GENESIS)
    for name in ("one", "two"):
        prepared(corpus, tmp_path / name, validation_split=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.slow
def test_the_same_bytes_come_from_other_processes_whatever_the_hash_seed(tmp_path: Path) -> None:
    corpus_of(tmp_path, *MANY, *CI, *GENESIS)
    (tmp_path / "vocab.txt").write_bytes(TOY.to_bytes())
    for hash_seed in ("0", "4711"):
        command = [sys.executable, "-m", "bertkit", "prepare", "--input_file", str(tmp_path / "poems.txt")]
        command += ["--tokenizer", str(tmp_path / "vocab.txt"), "--output_dir", f"store-{hash_seed}"]
        source = str(Path(preparation.__file__).parents[2])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    one, two = contents(tmp_path / "store-0"), contents(tmp_path / "store-4711")
    assert one.pop("settings.yaml") != two.pop("settings.yaml")  # it names the folder
    assert one == two


# ---- the key ----

READER = "from pathlib import Path\ndef read(path):\n    return Path(path).read_text(encoding='utf-8').split({!r})\n"


@pytest.fixture
def own_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a user's own reader, `own_reader:read`."""
    module = tmp_path / "code" / "own_reader.py"
    module.parent.mkdir()
    module.write_text(READER.format("|"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(module.parent))
    sys.modules.pop("own_reader", None)  # of another test's folder
    yield module
    sys.modules.pop("own_reader", None)


def key_of(corpus: CorpusSettings, *, tokenizer: Tokenizer = TOKENIZER, validation_split: bool = True) -> str:
    return store_key(corpus, tokenizer, PreparationSettings(validation_split=validation_split))


def test_the_key_does_not_depend_on_where_the_files_stand(tmp_path: Path) -> None:
    assert key_of(corpus_of(tmp_path / "here", *CI)) == key_of(corpus_of(tmp_path / "there" / "deep", *CI))
    assert len(bytes.fromhex(key_of(corpus_of(tmp_path / "here", *CI)))) == hashlib.sha256().digest_size


def test_the_key_changes_with_content_name_settings_tokenizer_and_split(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "a", *CI)
    longer = make_tokenizer(replace(TOY, tokens=(*TOY.tokens, "龘")), do_lower_case=True)
    keys = [
        key_of(corpus),
        key_of(corpus_of(tmp_path / "b", *CI[:2])),
        key_of(corpus_of(tmp_path / "c", *CI, name="ci.txt")),
        key_of(replace(corpus, format="paragraphs")),
        key_of(replace(corpus, sentence_end="，。")),
        key_of(replace(corpus, text_column="content")),
        key_of(replace(corpus, wikitext_unit="line")),
        key_of(corpus, validation_split=False),
        key_of(corpus, tokenizer=longer),
        key_of(corpus, tokenizer=make_tokenizer(TOY, do_lower_case=False)),
        key_of(corpus, tokenizer=replace(TOKENIZER, strip_accents=False)),
        key_of(corpus, tokenizer=replace(TOKENIZER, tokenize_chinese_chars=False)),
    ]
    assert len(set(keys)) == len(keys)


def test_the_key_changes_with_the_order_of_the_files_as_the_store_does(tmp_path: Path) -> None:
    corpus_of(tmp_path, *CI, name="one.txt")
    corpus_of(tmp_path, *GENESIS, name="two.txt")
    orders = [
        ",".join(str(tmp_path / name) for name in names) for names in (("one.txt", "two.txt"), ("two.txt", "one.txt"))
    ]
    corpora = [CorpusSettings(input_file=order, format="lines") for order in orders]
    stores = []
    for corpus in corpora:
        prepared(corpus, tmp_path / "store")
        stores.append(documents_of(open_parts(tmp_path / "store")["train"]))
    assert stores[0] != stores[1]
    assert key_of(corpora[0]) != key_of(corpora[1])


def test_the_key_changes_with_the_code_of_a_users_reader(tmp_path: Path, own_reader: Path) -> None:
    corpus = replace(corpus_of(tmp_path / "text", "明月。|把酒。"), format="own_reader:read")
    before = key_of(corpus)
    assert key_of(corpus) == before
    own_reader.write_text(READER.format("。"), encoding="utf-8")
    assert key_of(corpus) != before
    assert key_of(replace(corpus, format="lines")) != before


def test_a_reader_of_a_module_without_a_file_has_a_key_too(tmp_path: Path) -> None:
    assert key_of(replace(corpus_of(tmp_path, *CI), format="time:ctime"))


def test_a_users_reader_prepares_a_store(tmp_path: Path, own_reader: Path) -> None:
    corpus = replace(corpus_of(tmp_path / "text", "明月。把酒。|In the beginning."), format="own_reader:read")
    report = prepared(corpus, tmp_path / "store")
    assert report.parts["train"]["documents"] == 2
    assert json.loads((tmp_path / "store" / MANIFEST).read_text(encoding="utf-8"))["key"] == key_of(
        corpus, validation_split=False
    )
