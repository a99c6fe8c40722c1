"""Chunks of a corpus → their ids: by this process and by others that are given some, in the order of the corpus.

In: Chunks.  Out: the same Chunks, each with EncodedDocuments.  Next: exchange.py, encoding.py
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bertkit.allocator import keep_freed_memory
from bertkit.data.chunks import Chunk
from bertkit.data.encoding import EncodedDocuments, EncodingSettings, columns_of, encode_columns, encode_documents
from bertkit.data.exchange import SentIds, encode_sent, remember, send, take
from bertkit.data.executors import open_executor
from bertkit.text.documents import Document

QUEUED = 4  # chunks given to a process of our own at a time: it never waits while this one writes a shard
MOST_WAITING = 64  # chunks that wait for an earlier one to be written, while our own processes encode

Encoding = Future[EncodedDocuments | SentIds]


class Cluster:
    """The workers of a cluster: they get every chunk, and the settings with it."""

    def __init__(self, executor: Executor, settings: EncodingSettings, num_workers: int) -> None:
        self._executor, self._settings = executor, settings
        self.most_waiting = 2 * num_workers + 1  # the text waits in its file, not in memory

    def offer(self, documents: list[Document]) -> Encoding | None:
        """Give them the documents."""
        return self._executor.submit(encode_columns, columns_of(documents), self._settings)


class Processes:
    """Processes of our own on this machine: they get what they can take, and this process does the rest."""

    most_waiting = MOST_WAITING

    def __init__(self, executor: Executor, exchange: Path, num_processes: int) -> None:
        self._executor, self._exchange, self._num_processes = executor, exchange, num_processes
        self._started = executor.submit(int)  # done as soon as there is a process that works
        self._given: list[Encoding] = []
        self._num_files = 0
        self._free: list[Path] = []  # files that were read; written again they cost no new pages

    def offer(self, documents: list[Document]) -> Encoding | None:
        """Give them the documents, or return None: they have enough to do, or have not started yet."""
        self._given = [encoding for encoding in self._given if not encoding.done()]
        if not self._started.done() or len(self._given) >= QUEUED * self._num_processes:
            return None
        encoding: Encoding = self._executor.submit(encode_sent, send(documents, self._file()))
        self._given.append(encoding)
        return encoding

    def read(self, sent: SentIds) -> EncodedDocuments:
        """Return what a process has sent, whose file is free again."""
        encoded = take(sent)
        self._free.append(sent.path)
        return encoded

    def _file(self) -> Path:
        if self._free:
            return self._free.pop()
        path = self._exchange / f"{self._num_files}"
        path.touch()
        self._num_files += 1
        return path


@contextmanager
def open_helpers(
    settings: EncodingSettings, tokenizer_folder: Path, *, workers: int, dask: str | None
) -> Iterator[Cluster | Processes | None]:
    """Yield those that encode beside this process, or None for nobody.

    tokenizer_folder: holds the files of the tokenizer; workers: processes, this one among them.

    Raises:
        InputError: no Dask installed, or no scheduler at the address.
    """
    keep_freed_memory()  # of this process; those of a pool do so in `remember`, Dask's workers are not ours
    at_start = partial(remember, tokenizer_folder, settings.sentence_end, settings.language, settings.word_segmenter)
    are_ours = workers > 1 and dask is None
    with (
        TemporaryDirectory(prefix="bertkit-") if are_ours else nullcontext("") as exchange,
        open_executor(workers=workers, dask=dask, at_start=at_start) as (executor, num_workers),
    ):
        if executor is None:
            yield None
        elif are_ours:
            yield Processes(executor, Path(exchange), num_workers - 1)
        else:
            yield Cluster(executor, settings, num_workers)


def encoded_in_order(
    chunks: Iterable[Chunk], settings: EncodingSettings, helpers: Cluster | Processes | None
) -> Iterator[tuple[Chunk, EncodedDocuments]]:
    """Yield the chunks with their ids; what went wrong with one, wherever, is raised in its turn.

    Raises:
        InputError: what the word segmenter raises, and what reading the chunks raises.
        BrokenExecutor: a process was ended from outside.
    """
    waiting: deque[tuple[Chunk, Encoding]] = deque()
    for chunk in chunks:
        encoding = helpers.offer(chunk.documents) if helpers else None
        waiting.append((chunk, encoding or _done_here(chunk.documents, settings)))
        while waiting and (waiting[0][1].done() or (helpers and len(waiting) >= helpers.most_waiting)):
            yield _next(waiting, helpers)
    while waiting:
        yield _next(waiting, helpers)


def _done_here(documents: list[Document], settings: EncodingSettings) -> Encoding:
    encoding: Encoding = Future()
    try:
        encoding.set_result(encode_documents(documents, settings))
    except Exception as problem:  # its turn to be raised comes when the earlier chunks have been written
        encoding.set_exception(problem)
    return encoding


def _next(
    waiting: deque[tuple[Chunk, Encoding]], helpers: Cluster | Processes | None
) -> tuple[Chunk, EncodedDocuments]:
    chunk, encoding = waiting.popleft()
    ids = [document.id for document in chunk.documents]
    result = encoding.result()
    if isinstance(result, SentIds):
        assert isinstance(helpers, Processes)
        result = helpers.read(result)
    return chunk, result.called(ids)
