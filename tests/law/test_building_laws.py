"""The same bytes from any number of processes, chunks and hash seeds, on a cluster too; and memory that stays flat."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_data import TOY, documents_of, flat

from bertkit.data import chunks, helpers, preparation
from bertkit.data.preparation import PreparationReport, PreparationSettings, prepare_store
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.text.documents import CorpusSettings, Document
from bertkit.text.tokenizer import load_tokenizer, make_tokenizer

TOKENIZER = make_tokenizer(TOY, do_lower_case=True)
SOURCE = Path(preparation.__file__).parents[2]
WORDS = [
    "明月",
    "几时",
    "有",
    "把酒",
    "问",
    "青天",
    "，",
    "in",
    "the",
    "beginnings",
    "God",
    "created",
    "heaven",
    "龘",
    "“",
]
# Prints the report; arguments: text, vocabulary, store, workers, bytes of a chunk, "dask" or "".
BUILD = """
import sys
from pathlib import Path
from bertkit.data import chunks, helpers, preparation
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer

text, vocabulary, store, workers, chunk_bytes, cluster = sys.argv[1:]
chunks.CHUNK_BYTES = int(chunk_bytes)
offer = helpers.Processes.offer

def offer_when_started(self, documents):
    self._started.result()
    return offer(self, documents)

helpers.Processes.offer = offer_when_started

def build(dask):
    settings = preparation.PreparationSettings(
        word_segmenter="spaces", workers=int(workers), dask=dask, shard_tokens=500
    )
    corpus = CorpusSettings(input_file=text, format="lines")
    tokenizer = load_tokenizer(vocabulary, do_lower_case=True)
    print(preparation.prepare_store(corpus, tokenizer, Path(store), settings).text())

if cluster:
    from distributed import LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers_of_dask:
        build(workers_of_dask.scheduler_address)
else:
    build(None)
"""
PEAK = """
import sys
from pathlib import Path
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer

text, vocabulary, store = sys.argv[1:]
corpus = CorpusSettings(input_file=text, format="lines")
prepare_store(corpus, load_tokenizer(vocabulary, do_lower_case=True), Path(store), PreparationSettings())
# Not getrusage: its peak is inherited from the process that started this one.
status = Path("/proc/self/status").read_text(encoding="utf-8")
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))  # KiB
"""


def write_corpus(path: Path, *, documents: int, seed: int = 0) -> CorpusSettings:
    """Lines of one to eight sentences of Chinese and English words, some without a token, some twice."""
    generator = random.Random(seed)
    lines = []
    for _ in range(documents):
        sentences = [
            " ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(generator.randint(1, 8))
        ]
        lines.append(generator.choice(["。", ". "]).join(sentences))
        lines += [generator.choice(["\u200b", "", lines[0]])] * (generator.random() < 0.1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CorpusSettings(input_file=str(path), format="lines")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def prepared(corpus: CorpusSettings, output: Path, **values: object) -> PreparationReport:
    settings = PreparationSettings(word_segmenter="spaces", shard_tokens=500)
    return prepare_store(corpus, TOKENIZER, output, replace(settings, **values))  # type: ignore[arg-type]


def run(script: str, *arguments: object, hash_seed: int = 0) -> str:
    """What a script prints in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def note_what_is_done_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have this process wait until the others have started; returns for every chunk whether one of them gets it."""
    offer, done_elsewhere = helpers.Processes.offer, list[bool]()

    def noted(self: helpers.Processes, documents: list[Document]) -> helpers.Encoding | None:
        self._started.result()
        encoding = offer(self, documents)
        done_elsewhere.append(encoding is not None)
        return encoding

    monkeypatch.setattr(helpers.Processes, "offer", noted)
    return done_elsewhere


# ---- A1: the same bytes ----


def test_two_processes_and_small_chunks_give_the_bytes_and_the_report_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "text.txt", documents=100)
    one = prepared(corpus, tmp_path / "one")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 700)
    done_elsewhere = note_what_is_done_elsewhere(monkeypatch)
    two = prepared(corpus, tmp_path / "two", workers=2)
    assert {*done_elsewhere} == {True, False}
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(list((tmp_path / "one" / "train").glob("*.arrow"))) > 3
    assert one.text() == two.text()
    assert set(one.unknown_characters) == {"龘", "“"}


def test_an_error_in_a_process_is_the_same_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_words.py").write_text("def halves(sentence):\n    return [sentence[1:]]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{SOURCE}")
    corpus = write_corpus(tmp_path / "text.txt", documents=20)
    messages = []
    for workers in (1, 2):
        with pytest.raises(InputError, match="--word_segmenter: the words of the segmenter do not join") as caught:
            prepared(corpus, tmp_path / "store", workers=workers, word_segmenter="half_words:halves")
        messages.append(str(caught.value))
        assert not list(tmp_path.glob("store*"))
    assert messages[0] == messages[1]
    sys.modules.pop("half_words")


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["", "dask"])
def test_workers_chunks_hash_seeds_and_a_cluster_give_the_same_bytes(tmp_path: Path, cluster: str) -> None:
    """Promise A1: {1, 2, 4 workers, a cluster of two} × {small, usual chunks} × three hash seeds: 24 of 24."""
    if cluster:
        pytest.importorskip("distributed", reason="needs the extra bertkit[cluster]")
    corpus = write_corpus(tmp_path / "text.txt", documents=300)
    (tmp_path / "vocab.txt").write_bytes(TOY.to_bytes())
    wanted_report = prepared(corpus, tmp_path / "wanted").text()
    wanted = contents(tmp_path / "wanted")
    number = 0
    for workers in [1] if cluster else [1, 2, 4]:
        for chunk_bytes in (2000, chunks.CHUNK_BYTES):
            for hash_seed in (0, 1, 4711):
                store = tmp_path / f"store-{number}"
                report = run(
                    *(BUILD, tmp_path / "text.txt", tmp_path / "vocab.txt", store, workers, chunk_bytes, cluster),
                    hash_seed=hash_seed,
                )
                assert contents(store) == wanted
                assert report == wanted_report + "\n"
                number += 1
    assert number == (6 if cluster else 18)


@pytest.mark.slow
def test_no_more_chunks_wait_than_a_cluster_can_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text waits in its file, not in memory: twice the workers and one."""
    distributed = pytest.importorskip("distributed", reason="needs the extra bertkit[cluster]")
    corpus = write_corpus(tmp_path / "text.txt", documents=200)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 500)
    asked = []
    in_order = preparation.encoded_in_order

    def noted(chunks: Any, settings: Any, cluster: Any) -> object:
        asked.append(cluster.most_waiting)
        return in_order(chunks, settings, cluster)

    monkeypatch.setattr(preparation, "encoded_in_order", noted)
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        prepared(corpus, tmp_path / "store", dask=cluster.scheduler_address)
    assert asked == [7]


# ---- A3: nothing is lost ----


@pytest.mark.parametrize("seed", range(3))
def test_every_line_sentence_and_token_is_in_the_store_or_counted(tmp_path: Path, seed: int) -> None:
    corpus = write_corpus(tmp_path / "text.txt", documents=120, seed=seed)
    report = prepared(corpus, tmp_path / "store")
    lines = Path(corpus.input_file or "").read_text(encoding="utf-8").split("\n")[:-1]
    rows = dict(report.rows())
    assert rows["lines read"] == len(lines)
    assert rows["lines read"] == rows["lines kept"] + rows.get("lines dropped: blank line", 0)
    parts = open_parts(tmp_path / "store")
    assert sum(store.num_documents for store in parts.values()) + report.documents_without_tokens == rows["lines kept"]
    written = sorted(str(flat([document])) for store in parts.values() for document in documents_of(store))
    wanted = sorted(str(ids.tolist()) for ids in TOKENIZER.encode_plain([line for line in lines if line]) if len(ids))
    assert written == wanted
    assert len({*report.unknown_characters} - {"龘", "“"}) == 0
    assert sum(report.unknown_characters.values()) == "".join(lines).count("龘") + "".join(lines).count("“")


# ---- A5: memory ----


@pytest.mark.slow
@pytest.mark.shared_data
def test_ten_times_the_text_takes_no_more_memory(shared_data: Path, tmp_path: Path) -> None:
    """Promise A5, up to 100 MB: the peak of one process within a tenth, and below 500 MB."""
    vocabulary = shared_data / "vocabs" / "bert-base-chinese-vocab.txt"
    generator = random.Random(3)
    entries = vocabulary.read_text(encoding="utf-8").split("\n")
    characters = [entry for entry in entries[2000:8000] if len(entry) == 1]
    words = ["".join(generator.choices("etaoinshrdlu", k=generator.randint(2, 9))) for _ in range(20_000)]
    blocks = []
    for _ in range(2000):
        chinese = "".join("".join(generator.choices(characters, k=12)) + "。" for _ in range(8))
        english = " ".join(" ".join(generator.choices(words, k=12)).capitalize() + "." for _ in range(5))
        blocks.append(f"{chinese}\n{english}\n")
    peaks = {}
    for megabytes in (10, 100):
        size = 0
        with open(tmp_path / f"{megabytes}.txt", "w", encoding="utf-8") as file:
            while size < megabytes * 1_000_000:
                block = generator.choice(blocks)
                file.write(block)
                size += len(block.encode())
        peaks[megabytes] = int(run(PEAK, tmp_path / f"{megabytes}.txt", vocabulary, tmp_path / f"store-{megabytes}"))
    assert abs(peaks[100] / peaks[10] - 1) <= 0.1, json.dumps(peaks)
    assert max(peaks.values()) < 500 * 1024


def test_the_toy_tokenizer_is_what_a_process_reads_from_its_file(tmp_path: Path) -> None:
    """What the slow tests build in other processes is comparable with what they build here."""
    (tmp_path / "vocab.txt").write_bytes(TOY.to_bytes())
    assert load_tokenizer(tmp_path / "vocab.txt", do_lower_case=True).files() == TOKENIZER.files()
