"""`bertkit inspect WHAT PATH`: look at what a step of the walk has made.

In: a word for what it is, and its path.  Out: its shape, its counts and its first entries; with --json one line.
Each word has a file of its own beside this one.  Next: inspect_corpus.py, inspect_vocab.py
"""

from dataclasses import dataclass, replace
from typing import Literal

from bertkit.commands.inspect_corpus import show_corpus
from bertkit.commands.inspect_vocab import show_vocabulary
from bertkit.errors import InputError
from bertkit.options import argument, group, option
from bertkit.text.documents import CorpusSettings


@dataclass(frozen=True)
class Config:
    """Show what stands in a file: documents and sentences of a corpus; entries of a vocabulary and what they cover."""

    what: Literal["corpus", "vocab"] = argument(help="what the path holds: corpus or vocab")
    path: str | None = argument(
        None,
        help="corpus: paths, comma separated; globs; folders (or: --input_file). vocab: a folder, vocab.txt or "
        "tokenizer.json; --input_file is the corpus to cover",
    )
    corpus: CorpusSettings = group(CorpusSettings)
    show: int = option(3, help="corpus: documents printed. vocab: unknown characters, entries")
    do_lower_case: bool | None = option(
        None, help="vocab: whether text is made small letters without accents (none: what the tokenizer says)"
    )
    json: bool = option(False, help="print everything as one line of JSON")


def run(config: Config) -> None:
    """Print what stands there.

    Raises:
        InputError: no path, or two; a `--show` below 0; a flag of another word; what reading raises.
    """
    if config.show < 0:
        raise InputError("is below 0", field="--show", value=config.show, expected="0 or more", remedy="use 3")
    if config.what == "vocab":
        _vocab(config)
    else:
        _corpus(config)


def _corpus(config: Config) -> None:
    if (config.path is None) == (config.corpus.input_file is None):
        problem = "no text was named" if config.path is None else "the text is named twice"
        raise InputError(
            problem, field="path", value=config.path, expected="one path", remedy="bertkit inspect corpus poems.txt"
        )
    if config.do_lower_case is not None:
        raise InputError("has no effect on a corpus", field="--do_lower_case", remedy="leave it out")
    settings = replace(config.corpus, input_file=config.path or config.corpus.input_file)
    show_corpus(settings, show=config.show, as_json=config.json)


def _vocab(config: Config) -> None:
    if config.path is None:
        raise InputError(
            "no vocabulary was named",
            field="path",
            expected="a folder with vocab.txt or tokenizer.json, or one of these files",
            remedy="bertkit inspect vocab DIR --input_file poems.txt",
        )
    show_vocabulary(
        config.path,
        config.corpus if config.corpus.input_file else None,
        do_lower_case=config.do_lower_case,
        show=config.show,
        as_json=config.json,
    )
