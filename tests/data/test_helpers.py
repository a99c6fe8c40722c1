"""Chunks come back in order, whoever encodes them, and no more are read ahead than may wait."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from toy_data import TOY

from bertkit.data import helpers
from bertkit.data.chunks import Chunk
from bertkit.data.encoding import EncodedDocuments, EncodingSettings, encode_documents
from bertkit.data.helpers import QUEUED, Cluster, Encoding, Processes, encoded_in_order, open_helpers
from bertkit.errors import InputError
from bertkit.text.documents import Document
from bertkit.text.tokenizer import make_tokenizer

PLAIN = EncodingSettings(make_tokenizer(TOY, do_lower_case=True), None, None, "none")
LINES = ["明月几时有。", "把酒问青天。", "in the beginning", "God created heaven."] * 5


class Lazy:
    """An executor that does nothing until it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self.calls.append((future, function, arguments))
        return future

    def work(self, place: int) -> None:
        future, function, arguments = self.calls.pop(place)
        future.set_result(function(*arguments))


def chunks(read: list[str] | None = None) -> Iterator[Chunk]:
    for number, line in enumerate(LINES):
        if read is not None:
            read.append(line)
        yield Chunk([Document(f"{number}", line)], [1, 1, 1], len(line))


def test_a_cluster_gets_all_chunks_and_no_more_are_read_than_may_wait() -> None:
    executor, read = Lazy(), list[str]()
    cluster = Cluster(cast(Any, executor), PLAIN, num_workers=2)
    found = []
    encoded = encoded_in_order(chunks(read), PLAIN, cluster)
    waited = Future.result

    def work_and_wait(future: "Future[Any]", timeout: float | None = None) -> Any:
        while not future.done():
            executor.work(-1)  # the last chunk is done first
        return waited(future, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Future, "result", work_and_wait)
        for _, documents in encoded:
            found += documents.ids
            assert len(read) - len(found) < cluster.most_waiting
    assert found == [f"{number}" for number in range(len(LINES))]
    assert cluster.most_waiting == 5


def test_processes_get_none_before_they_have_started_and_then_what_they_can_take(tmp_path: Path) -> None:
    executor = Lazy()
    processes = Processes(cast(Any, executor), tmp_path, 2)
    documents = [Document("0", LINES[0])]
    assert processes.offer(documents) is None
    executor.work(0)
    given = [processes.offer(documents) for _ in range(2 * QUEUED + 3)]
    assert [encoding is not None for encoding in given] == [True] * 2 * QUEUED + [False] * 3
    executor.calls[3][0].set_result(None)
    assert processes.offer(documents) is not None
    assert processes.offer(documents) is None
    assert len({file.name for file in tmp_path.iterdir()}) == 2 * QUEUED + 1


def test_a_fault_of_a_chunk_is_raised_behind_all_chunks_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: Encoding = Future()

    class Slow:
        most_waiting = 64

        def offer(self, documents: list[Document]) -> Encoding | None:
            return elsewhere if documents[0].id == "0" else None

    def failing(documents: list[Document], settings: EncodingSettings) -> EncodedDocuments:
        if documents[0].id == "2":
            elsewhere.set_result(encode_documents(documents, settings))
        raise InputError("is at fault", value=documents[0].id)

    monkeypatch.setattr(helpers, "encode_documents", failing)
    encoded = encoded_in_order(chunks(), PLAIN, cast(Any, Slow()))
    assert next(encoded)[1].ids == ["0"]
    with pytest.raises(InputError, match=r"is at fault\n  value: '1'"):
        next(encoded)


def test_one_worker_has_no_helpers(tmp_path: Path) -> None:
    with open_helpers(PLAIN, tmp_path, workers=1, dask=None) as nobody:
        assert nobody is None
