"""`bertkit vocab`: learn a vocabulary from a corpus, add words to one, or trim one to a corpus, with its model.

In: raw text or words, and a tokenizer to edit.  Out: vocab.txt, tokenizer.json and tokenizer_config.json in one folder,
with the resized model if one was named, and what became of every entry.  Next: text/learning.py, text/editing.py
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertkit import console
from bertkit.errors import InputError
from bertkit.files import require_folder_or_nothing, write_atomically
from bertkit.options import group, option, write_settings
from bertkit.text.clean import CleaningSettings
from bertkit.text.coverage import Coverage, batches_of_words, coverage_of, texts_of, word_counter
from bertkit.text.documents import CorpusSettings, ReadingReport, part_of
from bertkit.text.editing import Enlarged, Needs, Trimmed, add_words, read_words
from bertkit.text.learning import (
    MAX_WORD_LENGTH,
    MAX_WORDS,
    WordCounter,
    learn_from_words,
    require_frequency,
    require_learnable,
)
from bertkit.text.tokenizer import Tokenizer, load_tokenizer, make_tokenizer
from bertkit.text.vocabulary import CONTINUATION, SPECIAL_TOKENS, UNK

SHOWN_UNKNOWN = 10  # unknown characters named in the report
VOCAB_SIZE, MIN_FREQUENCY = 30_000, 2  # when learning


@dataclass(frozen=True)
class Config:
    """Learn a vocabulary from a corpus; or, by --add_words or --trim_to_corpus, make one larger or smaller."""

    output_dir: Path = option(help="folder for the three files of a tokenizer; with --model, for a whole model")
    corpus: CorpusSettings = group(CorpusSettings)
    vocab_size: int | None = option(
        None, help="learning: entries at most; fewer where nothing more occurs --min_frequency times (none: 30000)"
    )
    min_frequency: int | None = option(
        None,
        help="times a character, a pair of pieces or, trimming, an entry must occur (none: 2 to learn; 1 to trim, so "
        "that every text of the corpus is cut as before)",
    )
    do_lower_case: bool | None = option(
        None, help="small letters without accents only (none: true to learn, else what --tokenizer says)"
    )
    validation_split: bool = option(
        True, help="learning: from the training part only; false: from every document, as trimming always does"
    )
    cleaning: CleaningSettings = group(CleaningSettings)
    add_words: str | None = option(
        None, help="words to add to --tokenizer: a file with one a line, or separated by commas"
    )
    trim_to_corpus: bool = option(False, help="keep those entries of --tokenizer that --input_file needs")
    tokenizer: Path | None = option(
        None, help="what to add to or to trim: a folder, vocab.txt or tokenizer.json (none: that of --model)"
    )
    model: Path | None = option(None, help="folder of a model to resize together with its vocabulary")
    use_unused: bool = option(
        False, help="added words take the places of [unusedN], so that the size stays; false: they are appended"
    )
    init: Literal["mean", "random"] = option(
        "mean",
        help="weights of an added word: the mean of the pieces it was cut in before, or random; a word that was [UNK] "
        "gets random ones in either case",
    )
    seed: int = option(12345, help="of random weights")


@dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary was learnt from and what it leaves unknown."""

    reading: ReadingReport
    num_documents: int  # learnt from
    num_held_out: int  # of the validation and test parts
    num_characters: int  # learnt from
    num_forgotten: int  # occurrences of the rarest words of either part, not counted to bound the memory
    training: Coverage
    held_out: Coverage | None  # None where nothing was held out
    tokens: tuple[str, ...]  # the entries
    vocab_size: int  # entries allowed
    min_frequency: int

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        size, num_special = len(self.tokens), len(SPECIAL_TOKENS)
        pieces = sum(len(token.removeprefix(CONTINUATION)) > 1 for token in self.tokens[num_special:])
        rows = [
            *self.reading.rows(),
            ("documents learnt from", self.num_documents),
            ("documents held out (validation, test)", self.num_held_out),
            ("characters learnt from", self.num_characters),
            ("entries", size),
            ("of them special tokens", num_special),
            ("of them single characters", size - num_special - pieces),
            ("of them pieces of several characters", pieces),
        ]
        if self.training.num_long:
            rows.append((f"words over {MAX_WORD_LENGTH} characters, which become {UNK}", self.training.num_long))
        if self.num_forgotten:
            rows.append((f"rare words not counted, as over {MAX_WORDS:,} differ", self.num_forgotten))
        lines = [console.table(rows)]
        if size < self.vocab_size:
            lines.append(
                f"{size:,} entries instead of {self.vocab_size:,}: no other character or pair of pieces occurs "
                f"{self.min_frequency} times in the text"
            )
        coverage, where = (self.held_out, "held-out part") if self.held_out else (self.training, "text learnt from")
        lines.append(
            f"{UNK} in the {where}: {coverage.num_unknown:,} of {coverage.num_tokens:,} tokens "
            f"({coverage.unknown_share:.3%})"
        )
        if coverage.characters:
            ranked = coverage.unknown_characters
            shown = "  ".join(f"{character} {count:,}" for character, count in ranked[:SHOWN_UNKNOWN])
            lines.append(f"unknown characters ({len(ranked):,} different), the most frequent: {shown}")
        return lines


def run(config: Config) -> None:
    """Learn, add or trim; write the files, and print what became of words and entries.

    Raises:
        InputError: flags that do not go together; what reading, learning, adding, trimming and resizing raise.
    """
    _require_one_wish(config)
    if config.add_words is not None or config.trim_to_corpus:
        files = _edited_files(config)
    else:
        tokenizer, learnt = learn_vocabulary(
            config.corpus,
            vocab_size=VOCAB_SIZE if config.vocab_size is None else config.vocab_size,
            min_frequency=MIN_FREQUENCY if config.min_frequency is None else config.min_frequency,
            do_lower_case=config.do_lower_case is not False,
            validation_split=config.validation_split,
            cleaning=config.cleaning,
        )
        for line in learnt.lines():
            console.result(line)
        files = tokenizer.files()
    for name, content in files.items():
        write_atomically(config.output_dir / name, content)
        console.result(f"written: {config.output_dir / name}")
    write_settings(config, config.output_dir)


def _require_one_wish(config: Config) -> None:
    """Refuse the flags of one wish beside another: a flag without effect is a misunderstanding."""
    adds, trims = config.add_words is not None, config.trim_to_corpus
    if adds and trims:
        raise InputError(
            "was given together with --trim_to_corpus",
            field="--add_words",
            expected="one of the two",
            remedy="trim first, then add words to the result",
        )
    for flag, given, has_use, wish in (
        ("--tokenizer", config.tokenizer is not None, adds or trims, "--add_words or --trim_to_corpus"),
        ("--model", config.model is not None, adds or trims, "--add_words or --trim_to_corpus"),
        ("--use_unused", config.use_unused, adds, "--add_words"),
        ("--init", config.init == "random", adds and config.model is not None, "--add_words and --model"),
        ("--input_file", config.corpus.input_file is not None, not adds, "learning and with --trim_to_corpus"),
        ("--min_frequency", config.min_frequency is not None, not adds, "learning and with --trim_to_corpus"),
        ("--vocab_size", config.vocab_size is not None, not adds and not trims, "learning"),
    ):
        if given and not has_use:
            raise InputError("has no effect here", field=flag, expected=f"only with {wish}", remedy="leave it out")
    require_folder_or_nothing(config.output_dir, flag="--output_dir")
    for name in ("model.safetensors", "manifest.json", "checkpoints"):
        if (config.output_dir / name).exists():
            raise InputError(
                f"holds a {name}: its ids belong to the vocabulary that stands there",
                file=config.output_dir,
                field="--output_dir",
                remedy="name another folder",
            )
    sources = [path for path in (config.tokenizer, config.model) if path is not None]
    if (adds or trims) and not sources:
        raise InputError("is missing", field="--tokenizer", expected="the tokenizer to edit", remedy="name its folder")
    for path in sources:
        if config.output_dir.resolve() in (path.resolve(), path.resolve().parent if path.is_file() else None):
            raise InputError(
                "is the folder that is edited",
                field="--output_dir",
                value=str(config.output_dir),
                expected="another folder, so that the old files stay",
                remedy="name a new one",
            )


def _edited_files(config: Config) -> dict[str, bytes]:
    """The files of the tokenizer with words added or entries dropped, and of the model resized with it."""
    source = config.tokenizer or config.model
    assert source is not None
    tokenizer = load_tokenizer(source, do_lower_case=config.do_lower_case)
    if config.model is not None:
        from bertkit.model.resize import load_to_resize, resized_files  # brings torch

        model, loaded = load_to_resize(config.model)  # before the hours of reading
        num_ids = model.config.vocab_size
        if num_ids < tokenizer.vocabulary.size:
            raise InputError(
                f"has {num_ids} entries, but the tokenizer {tokenizer.vocabulary.size}",
                file=config.model,
                field="vocab_size",
                expected="a model and its own tokenizer",
                remedy="name the tokenizer of this model, or leave --tokenizer out",
            )
        console.say(f"{config.model}: {loaded.summary()}")
    edit = _enlarged(config, tokenizer) if config.add_words is not None else _trimmed(config, tokenizer)
    if config.model is None:
        return edit.tokenizer.files()
    if num_ids > tokenizer.vocabulary.size:
        surplus = num_ids - tokenizer.vocabulary.size
        console.result(f"rows of the model beyond the vocabulary, dropped: {surplus:,}")
    rows = edit.rows if config.init == "mean" else tuple(() if isinstance(row, tuple) else row for row in edit.rows)
    if drawn := rows.count(()):
        console.result(f"added words with random weights: {drawn:,}")
    files = resized_files(model, rows=rows, seed=config.seed, made_from=str(config.model), wish=edit.title())
    return edit.tokenizer.files(model_max_length=model.config.max_position_embeddings) | files


def _enlarged(config: Config, tokenizer: Tokenizer) -> Enlarged:
    assert config.add_words is not None
    enlarged = add_words(tokenizer, read_words(config.add_words), use_unused=config.use_unused)
    for line in enlarged.lines():
        console.result(line)
    return enlarged


def _trimmed(config: Config, tokenizer: Tokenizer) -> Trimmed:
    min_frequency = 1 if config.min_frequency is None else config.min_frequency
    require_frequency(min_frequency)  # before the hours of reading
    needs, counter, reading = Needs(tokenizer), word_counter(tokenizer), ReadingReport()
    for words in batches_of_words(texts_of(config.corpus, reading, cleaning=config.cleaning), counter):
        needs.add(words)
    trimmed = needs.trimmed(min_frequency=min_frequency)
    console.result(console.table([*reading.rows(), *trimmed.counts()]))
    return trimmed


def build_vocabulary(
    corpus: CorpusSettings,
    *,
    vocab_size: int = 30_000,
    min_frequency: int = 2,
    do_lower_case: bool = True,
    validation_split: bool = True,
) -> Tokenizer:
    """Return the tokenizer learnt from the training part of a corpus; the report of it is said.

    Raises:
        InputError: what `learn_vocabulary` raises.
    """
    tokenizer, report = learn_vocabulary(
        corpus,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        do_lower_case=do_lower_case,
        validation_split=validation_split,
    )
    for line in report.lines():
        console.say(line)
    return tokenizer


def learn_vocabulary(
    corpus: CorpusSettings,
    *,
    vocab_size: int,
    min_frequency: int,
    do_lower_case: bool,
    validation_split: bool,
    cleaning: CleaningSettings | None = None,
) -> tuple[Tokenizer, VocabularyReport]:
    """Return the tokenizer learnt from the training part of a corpus, and what was met on the way.

    Raises:
        InputError: the corpus cannot be read; the training part is empty; a setting cannot be.
    """
    require_learnable(vocab_size=vocab_size, min_frequency=min_frequency)  # before the hours of reading
    reading = ReadingReport()
    learnt, kept_back = (WordCounter(do_lower_case=do_lower_case) for _ in range(2))
    num_documents = num_characters = 0
    for text in texts_of(corpus, reading, cleaning=cleaning):
        if part_of(text, validation_split=validation_split) == "train":
            learnt.add(text)
            num_documents += 1
            num_characters += len(text)
        else:
            kept_back.add(text)
    if not num_documents:
        raise InputError(
            f"every one of the {reading.documents} documents belongs to the validation or test part",
            file=corpus.input_file,
            expected="documents to learn from",
            remedy="give more text, or --validation_split false to learn from all of it",
        )
    words, held_out = learnt.counts(), kept_back.counts()
    vocabulary = learn_from_words(words, vocab_size=vocab_size, min_frequency=min_frequency)
    tokenizer = make_tokenizer(vocabulary, do_lower_case=do_lower_case)
    return tokenizer, VocabularyReport(
        reading=reading,
        num_documents=num_documents,
        num_held_out=reading.documents - num_documents,
        num_characters=num_characters,
        num_forgotten=learnt.num_forgotten + kept_back.num_forgotten,
        training=coverage_of(words, tokenizer),
        held_out=coverage_of(held_out, tokenizer) if held_out else None,
        tokens=vocabulary.tokens,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
    )
