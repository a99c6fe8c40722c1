"""`bertkit prepare`: raw text to a store of token ids, and on demand to finished instances for other trainers.

In: --input_file and a tokenizer.  Out: STORE/{train,validation,test}, a corpus report, files of instances.
Next: data/preparation.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertkit.console import result, say, table, warn
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.errors import InputError
from bertkit.options import group, option, values_of, write_settings
from bertkit.text.documents import CorpusSettings

if TYPE_CHECKING:
    from bertkit.text.tokenizer import Tokenizer

SEED = 12345
GOOGLE_PREDICTIONS = 20  # create_pretraining_data.py's default


@dataclass(frozen=True)
class Config:
    """What to read, how to cut it into ids, where to write, and what to export."""

    tokenizer: str = option(help="folder with tokenizer.json or vocab.txt, or one of these files")
    output_dir: str = option(help="folder of the store; an older store there is replaced")
    corpus: CorpusSettings = group(CorpusSettings)
    do_lower_case: bool | None = option(None, help="lower-case the text; null: as the tokenizer's files say")
    preparation: PreparationSettings = group(PreparationSettings)
    export: Literal["none", "jsonl", "parquet"] = option(
        "none", help="also write finished instances (pairs made, tokens hidden) in Hugging Face's column names"
    )
    dupe_factor: int = option(
        1, help="epochs exported, each with pairs and masks of its own; create_pretraining_data.py takes 10"
    )
    pad_to: int | None = option(None, help="tokens every exported row is filled up to with [PAD]; null: none")
    compat: Literal["none", "google"] = option(
        "none",
        help="google: in place of a store, the very instances of create_pretraining_data.py for this seed, in memory",
    )
    seed: int = option(SEED, help="seed of exported pairs and masks")
    pairs: PairSettings = group(PairSettings)
    masking: MaskingSettings = group(MaskingSettings)

    def __post_init__(self) -> None:
        if self.compat == "google":
            self._refuse_what_google_lacks()
        if self.dupe_factor < 1:
            raise InputError("makes no instance", field="--dupe_factor", value=self.dupe_factor, expected="1 or more")
        if self.pad_to is not None and self.pad_to < self.pairs.max_seq_length:
            raise InputError(
                f"is shorter than --max_seq_length {self.pairs.max_seq_length}", field="--pad_to", value=self.pad_to
            )
        if self.masking.final_mlm_probability is not None:
            raise InputError("belongs to training, where the rate changes by step", field="--final_mlm_probability")
        if self.export == "none":
            self._refuse_what_only_exports_use()
        if self.compat == "google" and self.export == "none":
            raise InputError("makes instances only", field="--compat google", remedy="add --export jsonl or parquet")
        if self.compat == "google" and self.masking.masking not in ("token", "whole_word"):
            raise InputError(
                "is no scheme of Google's builder",
                field="--masking",
                value=self.masking.masking,
                expected="token | whole_word",
            )

    def _refuse_what_google_lacks(self) -> None:
        pairs = PairSettings(max_seq_length=self.pairs.max_seq_length, short_seq_prob=self.pairs.short_seq_prob)
        masking = replace(
            MaskingSettings(),
            masking=self.masking.masking,
            mlm_probability=self.masking.mlm_probability,
            max_predictions_per_seq=self.masking.max_predictions_per_seq,
        )
        given = {**values_of(self.pairs), **values_of(self.masking)}
        known = {**values_of(pairs), **values_of(masking)}
        if different := [f"--{name}" for name in given if given[name] != known[name]]:
            raise InputError(
                "has no effect with --compat google: its builder has no such setting",
                field=", ".join(different),
                remedy="leave it out",
            )

    def _refuse_what_only_exports_use(self) -> None:
        """A store holds neither pairs nor masks: a setting of them here is a misunderstanding."""
        given = {**values_of(self.pairs), **values_of(self.masking), "dupe_factor": self.dupe_factor}
        defaults = {**values_of(PairSettings()), **values_of(MaskingSettings()), "dupe_factor": 1}
        given |= {"pad_to": self.pad_to, "seed": self.seed}
        defaults |= {"pad_to": None, "seed": SEED}
        if different := [f"--{name}" for name in given if given[name] != defaults[name]]:
            raise InputError(
                "has no effect here: a store holds no pairs and no masks, they are drawn in training",
                field=", ".join(different),
                remedy="give it to `bertkit pretrain`, or add --export jsonl or parquet",
            )


def run(config: Config) -> None:
    """Write the store, print the corpus report, and export what was asked for.

    Raises:
        InputError: what reading, the tokenizer, the output folder or the pairs raise.
    """
    from bertkit.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(config.tokenizer, do_lower_case=config.do_lower_case)
    output = Path(config.output_dir)
    if config.compat == "google":
        _export_google(config, tokenizer, output)
        return
    report = prepare_store(config.corpus, tokenizer, output, config.preparation)
    write_settings(config, output)
    result(report.text())
    if config.export != "none":
        _export_store(config, tokenizer, output)
    result(f"store: {output}")
    if report.parts["train"]["documents"]:
        result(f"next: bertkit pretrain --data_dir {output} --output_dir RUN")
    else:
        warn("no document fell to the training part; prepare again with --validation_split false, or give more text")


def _export_store(config: Config, tokenizer: "Tokenizer", output: Path) -> None:
    from bertkit.data.export import store_instances, write_instances
    from bertkit.data.instances import read_phrases
    from bertkit.data.prepared import open_prepared

    phrases = read_phrases(config.masking, tokenizer)
    for part, store in open_prepared(output)[0].items():
        instances = store_instances(
            store,
            config.pairs,
            config.masking,
            tokenizer.vocabulary,
            seed=config.seed,
            epochs=config.dupe_factor,
            phrases=phrases,
        )
        path = output / "instances" / f"{part}.{config.export}"
        try:
            number = write_instances(
                instances,
                path,
                format=_format(config),
                pad_to=config.pad_to,
                pad_id=tokenizer.vocabulary.pad_id,
            )
        except InputError as problem:
            if part == "train":
                raise
            say(f"no instances of the {part} part: {problem.problem}")
            continue
        result(f"{number:,} instances: {path}")


def _export_google(config: Config, tokenizer: "Tokenizer", output: Path) -> None:
    from bertkit.data.export import write_instances
    from bertkit.data.google import GoogleReport, GoogleSettings, google_instances

    settings = GoogleSettings(
        max_seq_length=config.pairs.max_seq_length,
        max_predictions_per_seq=config.masking.max_predictions_per_seq or GOOGLE_PREDICTIONS,
        masked_lm_prob=config.masking.mlm_probability,
        dupe_factor=config.dupe_factor,
        short_seq_prob=config.pairs.short_seq_prob,
        do_whole_word_mask=config.masking.masking == "whole_word",
        seed=config.seed,
    )
    report = GoogleReport()
    instances = google_instances(_sentences(config), tokenizer, settings, report)
    path = output / f"instances.{config.export}"
    number = write_instances(
        instances,
        path,
        format=_format(config),
        with_positions=True,
        pad_to=config.pad_to,
        pad_id=tokenizer.vocabulary.pad_id,
    )
    write_settings(config, output)
    result(table(report.rows()))
    result(f"{number:,} instances: {path}")


def _format(config: Config) -> Literal["jsonl", "parquet"]:
    assert config.export != "none"
    return config.export


def _sentences(config: Config) -> Iterator[list[str]]:
    from bertkit.text.corpus import CorpusReport, open_corpus
    from bertkit.text.sentences import sentence_splitter, sentences_of

    corpus, cleaning, report = config.corpus, config.preparation.cleaning, CorpusReport()
    split = sentence_splitter(corpus.sentence_end, language=corpus.language)
    with open_corpus(corpus, cleaning, report) as documents:
        for document in documents:
            yield sentences_of(document, split)
    say(table(report.rows(cleaning)))
