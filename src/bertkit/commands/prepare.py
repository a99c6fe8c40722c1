"""`bertkit prepare`: raw text to a store of token ids, split into training, validation and test.

In: --input_file and a tokenizer.  Out: STORE/{train,validation,test} and a corpus report.  Next: data/preparation.py
"""

from dataclasses import dataclass
from pathlib import Path

from bertkit.console import result, table
from bertkit.options import group, option, write_settings
from bertkit.text.documents import CorpusSettings


@dataclass(frozen=True)
class Config:
    """What to read, how to cut it into ids, and where to write."""

    tokenizer: str = option(help="folder with tokenizer.json or vocab.txt, or one of these files")
    output_dir: str = option(help="folder of the store; an older store there is replaced")
    corpus: CorpusSettings = group(CorpusSettings)
    do_lower_case: bool | None = option(None, help="lower-case the text; null: as the tokenizer's files say")
    validation_split: bool = option(
        True, help="keep a tenth of the documents each for validation and test, by the hash of their text"
    )


def run(config: Config) -> None:
    """Write the store and print the corpus report.

    Raises:
        InputError: what reading, the tokenizer or the output folder raise.
    """
    from bertkit.data.preparation import prepare_store
    from bertkit.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(config.tokenizer, do_lower_case=config.do_lower_case)
    output = Path(config.output_dir)
    report = prepare_store(config.corpus, tokenizer, output, validation_split=config.validation_split)
    write_settings(config, output)
    result(table(report.rows()))
    result(f"store: {output}")
    result(f"next: bertkit pretrain --data_dir {output} --output_dir RUN")
