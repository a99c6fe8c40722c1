"""`bertkit demo`: the whole way in one command, from raw text to answers.

In: nothing (the Song ci are fetched), or --input_file.  Out: RUN with a model, its report, and what to try next.
Next: commands/pretrain.py
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.commands import pretrain as pretraining
from bertkit.commands.running import has_checkpoint, require_no_model
from bertkit.commands.vocab import build_vocabulary
from bertkit.console import result, say, table
from bertkit.errors import InputError
from bertkit.options import group, option
from bertkit.tasks.recipes import TRAINING_OF_DEFAULT_RECIPE
from bertkit.text.documents import CorpusSettings, ReadingReport, part_of, read_documents
from bertkit.train.settings import TrainSettings

if TYPE_CHECKING:
    from bertkit.text.tokenizer import Tokenizer

CORPUS = "songci"
# Su Shi, Li Zhiyi: asked where the demo's own corpus is used, of which they may be a trained part.
FAMOUS_LINES = ["十年生死两茫茫。不思量。自难忘。", "我住长江头，君住长江尾。"]
FAMOUS_MASKS = "我住长江头，[MASK]住长[MASK]尾。"
PAIRS_ASKED = 4
SHOWN_OF_A_SENTENCE = 40  # characters in the table of pairs


@dataclass(frozen=True)
class Config:
    """Which text, how long, where."""

    output_dir: str = option("runs/demo", help="folder of the run; the finished model stands in it")
    corpus: CorpusSettings = group(CorpusSettings)
    max_minutes: float | None = option(None, help="minutes of training; null with no max_steps: 4")
    max_steps: int | None = option(None, help="optimizer updates, in place of minutes")
    vocab_size: int = option(8000, help="entries of the vocabulary learnt from the text, at most")
    do_lower_case: bool = option(True, help="small letters without accents only")
    model_size: str = option("tiny", help="tiny, mini, small, medium, base, large, or a config.json")
    seed: int = option(12345, help="seed of everything random")


def run(config: Config) -> None:
    """Go the whole way.

    Raises:
        InputError: what the steps on the way raise; a run that stands in the folder already; a text of which no
            next-sentence pair can be made.
    """
    directory = Path(config.output_dir)
    if directory.exists() and not directory.is_dir():
        raise InputError("is not a folder", file=directory, field="--output_dir", remedy="name another folder")
    if has_checkpoint(directory):
        raise InputError(
            "holds a run already",
            file=directory,
            field="--output_dir",
            remedy="name another folder; or go on with that run: bertkit pretrain --output_dir "
            f"{directory} --resume_from last",
        )
    require_no_model(directory)
    corpus = _corpus(config, directory)
    _step(2, "a vocabulary is learnt from the training part")
    tokenizer = build_vocabulary(corpus, vocab_size=config.vocab_size, do_lower_case=config.do_lower_case)
    store = _store(corpus, directory, tokenizer)
    _require_pairs(store, directory)
    _step(4, "pre-training")
    results = pretraining.pretrain(_pretraining(config, directory, store))
    _step(5, "held-out results of the best model")
    result(table([(name, f"{value:.4f}" if isinstance(value, float) else value) for name, value in results.items()]))
    _ask(directory, corpus, famous=config.corpus.input_file is None, accuracy=results["next_sentence_accuracy"])
    _say_what_next(directory, example=FAMOUS_MASKS if config.corpus.input_file is None else "… [MASK] …")


def _step(number: int, what: str) -> None:
    say(f"\n— {number} of 6: {what}")


def _corpus(config: Config, directory: Path) -> CorpusSettings:
    if config.corpus.input_file is not None:
        _step(1, f"the text is {config.corpus.input_file}")
        return config.corpus
    from bertkit.text.corpora import fetch_corpus

    _step(1, "the ci of the Song dynasty are fetched")
    path = directory / f"{CORPUS}.txt"
    say(table(fetch_corpus(CORPUS, output_file=path).rows()))
    return replace(config.corpus, input_file=str(path), format="lines")


def _store(corpus: CorpusSettings, directory: Path, tokenizer: "Tokenizer") -> Path:
    from bertkit.data.preparation import PreparationSettings, prepare_store

    _step(3, "text becomes token ids; a tenth each is kept for validation and test")
    report = prepare_store(corpus, tokenizer, directory / "store", PreparationSettings())
    say(report.text())
    return directory / "store"


def _require_pairs(store: Path, directory: Path) -> None:
    """Stop where the text gives no pairs; the ways on are commands, as `demo` itself has no --pairing."""
    from bertkit.data.pairs import PairSettings, require_pairs
    from bertkit.data.store import open_parts

    try:
        require_pairs(open_parts(store)["train"], PairSettings())
    except InputError as problem:
        raise InputError(
            problem.problem,
            file=problem.file,
            expected=problem.expected,
            remedy="give more text; or give documents their boundaries by --format or --sentence_end (see `bertkit "
            f"inspect corpus`); or train on masks alone: bertkit pretrain --data_dir {store} --output_dir {directory} "
            "--pairing none",
        ) from None


def _pretraining(config: Config, directory: Path, store: Path) -> pretraining.Config:
    minutes = 4.0 if config.max_minutes is None and config.max_steps is None else config.max_minutes
    training = TrainSettings(
        **TRAINING_OF_DEFAULT_RECIPE, max_minutes=minutes, max_steps=config.max_steps, seed=config.seed
    )
    return pretraining.Config(
        output_dir=str(directory),
        data_dir=str(store),
        model_size=config.model_size,
        training=training,
    )


def _ask(directory: Path, corpus: CorpusSettings, *, famous: bool, accuracy: float) -> None:
    """Fill masks in held-out lines and judge held-out neighbours; accuracy: what share of them is judged right."""
    from bertkit.pipelines import FillMask, NextSentence

    _step(6, "the model is asked about lines that were held out")
    fill = FillMask(directory)
    longest = fill.model.config.max_position_embeddings // 2 - 2  # tokens: two sentences and [CLS] [SEP] [SEP] fit
    openings = (_askable(sentences, fill.tokenizer, longest=longest) for sentences in _held_out(corpus))
    documents = list(islice(filter(None, openings), 2 * PAIRS_ASKED))
    if not documents:
        say("the text is too small: no document of the test part opens with a sentence to ask about")
    texts = [sentences[0] for sentences in documents[:2]]
    for line in FAMOUS_LINES if famous else []:
        texts += _askable([line], fill.tokenizer, longest=longest)
    for filled in fill.fill(texts, masked=False):
        result(f"original: {filled.original}\nmasked:   {filled.masked}\nfilled:   {filled.filled}\n")
    with_next = [sentences for sentences in documents if len(sentences) > 1][:PAIRS_ASKED]
    if not with_next:
        return
    pairs = [(first, second) for first, second, *_ in with_next]
    firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    asked = [(pair, "follows") for pair in pairs]
    asked += [(pair, "random") for pair in zip(firsts, seconds[1:] + seconds[:1], strict=True) if len(pairs) > 1]
    rows: list[tuple[str, ...]] = [("A", "B", "truth", "is_next", "probability")]
    for (pair, truth), answer in zip(asked, NextSentence(directory).judge(pair for pair, _ in asked), strict=True):
        verdict = "true" if answer["is_next"] else "false"
        rows.append(
            (
                *(textwrap.shorten(text, SHOWN_OF_A_SENTENCE, placeholder="…") for text in pair),
                truth,
                verdict,
                f"{answer['score']:.2f}",
            )
        )
    result(table(rows))
    say(f"of all held-out pairs {100 * accuracy:.0f} % are judged right (chance: 50 %); more steps help")


def _held_out(corpus: CorpusSettings) -> Iterator[list[str]]:
    """The sentences of each document of the test part, in the order of the text."""
    from bertkit.text.sentences import sentence_splitter, sentences_of

    split = sentence_splitter(corpus.sentence_end, language=corpus.language)
    for document in read_documents(corpus, ReadingReport()):
        if part_of(document.text, validation_split=True) == "test":
            yield sentences_of(document, split)


def _askable(sentences: list[str], tokenizer: "Tokenizer", *, longest: int) -> list[str]:
    """The sentences before the first one that has no ordinary token or over `longest` tokens: all are neighbours."""
    ordinary = tokenizer.vocabulary.ordinary
    askable = [len(ids) <= longest and bool(ordinary[ids].any()) for ids in tokenizer.encode_plain(sentences)]
    return sentences[: [*askable, False].index(False)]


def _say_what_next(directory: Path, *, example: str) -> None:
    result(f"\nmodel:  {directory}")
    report = directory / "report.html"
    if report.exists():
        result(f"report: {report} (open it in a browser)")
    result(
        f"""try next:
  bertkit fill-mask --model {directory} "{example}"
  bertkit next-sentence --model {directory} "A" "B"
  bertkit demo --input_file YOUR_TEXT --output_dir runs/mine
  bertkit pretrain --data_dir {directory}/store --output_dir runs/longer --max_minutes 20"""
    )
