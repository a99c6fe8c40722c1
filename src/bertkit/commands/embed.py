"""`bertkit embed`: texts as vectors, one a text or one a token.

In: texts and a model folder.  Out: a file of vectors, in the order of the texts.  Next: pipelines/embedding.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertkit.console import Progress, result, say
from bertkit.errors import InputError
from bertkit.options import ALLOW_BIN, argument, option
from bertkit.text.given import GivenTexts, given_texts
from bertkit.text.readers import require_no_input

EXAMPLE = "bertkit embed --model DIR --input_file texts.txt --output_file vectors.npz"


@dataclass(frozen=True)
class Config:
    """Which texts, which model, and which vectors."""

    model: str = option(help="model folder, whatever head it has")
    output_file: Path = option(help="what is written: .npz, .jsonl or .parquet")
    texts: list[str] = argument([], help="the texts, each in quotes")
    input_file: str | None = option(None, help="file with one text a line, in place of texts on the command line")
    layers: list[int] = option([-1], help="layers whose states are taken: 0 the embeddings, -1 the last")
    combine: Literal["last", "concat", "sum", "mean", "weighted"] | None = option(
        None,
        help="how several layers become one vector; last: the deepest of them; null: --pooling none into .jsonl has "
        "each by itself, as Google's extract_features.py does",
    )
    layer_weights: list[float] | None = option(
        None, help="for --combine weighted: one positive number a layer, their sum made 1; null: all equal"
    )
    pooling: Literal["cls", "pooler", "mean", "max", "none"] = option(
        "mean", help="how the vectors of a text's tokens become one; none: a vector for every token"
    )
    max_seq_length: int | None = option(
        None, help="tokens of a row, special ones included; null: the positions of the model"
    )
    long_texts: Literal["cut", "windows"] = option(
        "cut", help="cut: a text that is longer loses its end, and is counted; windows: it is read in overlapping parts"
    )
    pair_separator: str | None = option(None, help='what parts A and B in a line, such as " ||| "; null: no pairs')
    allow_bin: bool = option(False, help=ALLOW_BIN)


def run(config: Config) -> None:
    """Write the vectors, print the file's path, say how many texts were cut.

    Raises:
        InputError: no text, a folder without a model, layers it does not have; texts without a token, all of them named
            before the first is embedded.
    """
    from bertkit.pipelines.embedding import Embedder, EmbeddingSettings
    from bertkit.pipelines.vector_files import vector_file

    apart = config.combine is None and len(config.layers) > 1
    tokens = config.pooling == "none"
    if apart and not (tokens and config.output_file.suffix == ".jsonl"):
        raise InputError(
            f"is needed to make one vector of {len(config.layers)} layers",
            field="--combine",
            expected="concat, sum, mean, weighted or last",
            remedy="or --pooling none and a .jsonl file, where each layer stands by itself",
        )
    texts = given_texts(config.texts, config.input_file, example=EXAMPLE)
    if config.input_file is not None:
        require_no_input([config.output_file], config.input_file)
    settings = EmbeddingSettings(
        layers=tuple(config.layers),
        combine=config.combine or ("concat" if apart else "last"),
        pooling=config.pooling,
        layer_weights=None if config.layer_weights is None else tuple(config.layer_weights),
        max_seq_length=config.max_seq_length,
        long_texts=config.long_texts,
    )
    embedder = Embedder(config.model, settings=settings, allow_bin=config.allow_bin)
    texts.refuse(embedder.problems(_pairs(texts, config.pair_separator)))
    names: list[int | str] = list(config.layers) if apart or len(config.layers) == 1 else [settings.combine]
    vocabulary = embedder.tokenizer.vocabulary
    written = cut = 0
    with (
        vector_file(
            config.output_file, width=embedder.width, tokens=tokens, layers=names, vocabulary=vocabulary
        ) as write,
        Progress("embedding", total=None, unit="texts") as progress,
    ):
        for embedding in embedder.embed(_pairs(texts, config.pair_separator)):
            write(embedding)
            progress.advance()
            written, cut = written + 1, cut + embedding.cut
    length = config.max_seq_length or embedder.encoder.config.max_position_embeddings
    if cut:
        say(f"{cut:,} of {written:,} texts were longer than {length} tokens and lost their end (--long_texts windows)")
    result(str(config.output_file))


def _pairs(texts: GivenTexts, separator: str | None) -> Iterator[str | tuple[str, str]]:
    for text in texts:
        first, found, second = text.partition(separator) if separator else (text, "", "")
        yield (first, second) if found else text
