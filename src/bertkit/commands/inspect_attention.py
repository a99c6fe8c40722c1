"""`bertkit inspect attention`: what every head of a model looks at in a text, as a page.

In: one text or a pair, and a model folder.  Out: an HTML page that opens offline.  Next: pipelines/attention.py
"""

from dataclasses import dataclass
from pathlib import Path

from bertkit.console import result
from bertkit.errors import InputError
from bertkit.files import write_atomically
from bertkit.options import ALLOW_BIN, argument, option


@dataclass(frozen=True)
class Config:
    """Which text, which model, and where the page goes."""

    model: str = option(help="model folder, whatever head it has")
    texts: list[str] = argument([], help="a text, or two texts A and B, each in quotes")
    output_file: Path = option(Path("attention.html"), help="the page")
    allow_bin: bool = option(False, help=ALLOW_BIN)


def run(config: Config) -> None:
    """Write the page and print where it is.

    Raises:
        InputError: no text or more than two; a text too long; a folder without a model.
    """
    from bertkit.pipelines.attention import attention_of
    from bertkit.report.attention import attention_html

    if len(config.texts) not in (1, 2):
        raise InputError(
            f"{len(config.texts)} texts were given",
            field="texts",
            expected="one text, or two as a pair",
            remedy='bertkit inspect attention --model DIR "明月几时有？" "把酒问青天。"',
        )
    weights = attention_of(config.model, config.texts, allow_bin=config.allow_bin)
    name = Path(config.model).name or str(config.model)
    page = attention_html(
        weights.tokens,
        token_type_ids=weights.token_type_ids,
        weights=weights.weights,
        heads=weights.heads,
        texts=config.texts,
        model=name,
    )
    write_atomically(config.output_file, page)
    result(str(config.output_file))
