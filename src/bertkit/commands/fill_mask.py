"""`bertkit fill-mask`: what stands behind [MASK], or what the model would put where tokens are hidden.

In: texts and a model folder.  Out: original, masked and filled text, and the best candidates.  Next: pipelines.py
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bertkit.console import result, result_json, table
from bertkit.errors import InputError, InputErrors
from bertkit.options import argument, option


@dataclass(frozen=True)
class Config:
    """Which texts, which model, and how they are masked."""

    model: str = option(help="model folder with a masked-LM head")
    texts: list[str] = argument([], help="the texts, each in quotes")
    input_file: str | None = option(None, help="file with one text a line, in place of texts on the command line")
    masked: bool | None = option(
        None, help="true: fill the [MASK]s given; false: hide tokens first; null: by whether a text holds a [MASK]"
    )
    mlm_probability: float = option(0.15, help="share of the tokens hidden, at least one (when hiding)")
    top_k: int = option(5, help="candidates shown for each mask")
    seed: int = option(12345, help="seed of the places hidden")
    allow_bin: bool = option(False, help="open pytorch_model.bin, a pickle, where there is no safetensors file")
    json: bool = option(False, help="one JSON object a text instead of lines for people")


def run(config: Config) -> None:
    """Print one answer a text, in order.

    Raises:
        InputError: no text, a model folder without a masked-LM head, or a text that cannot be masked.
    """
    from bertkit.pipelines import FillMask

    texts = texts_given(config.texts, config.input_file)
    fill = FillMask(config.model, allow_bin=config.allow_bin)
    for filled in fill.fill(
        texts, masked=config.masked, mlm_probability=config.mlm_probability, seed=config.seed, top_k=config.top_k
    ):
        if config.json:
            result_json(asdict(filled))
            continue
        result(f"original: {filled.original}\nmasked:   {filled.masked}\nfilled:   {filled.filled}")
        for number, records in enumerate(filled.candidates, start=1):
            rows = [(record["token_str"], f"{record['score']:.4f}", record["sequence"]) for record in records]
            result(f"mask {number}:\n{table(rows)}")
        result("")


def texts_given(texts: list[str], input_file: str | None) -> Iterator[str]:
    """Return the texts of the command line, or the lines of the file.

    Raises:
        InputError: neither or both were given; a file that cannot be read as text; blank lines, all of them named.
    """
    from bertkit.text.readers import find_sources, read_lines

    if bool(texts) == bool(input_file):
        raise InputError(
            "give texts on the command line or --input_file, one of the two",
            field="texts",
            remedy='bertkit fill-mask --model DIR "明月几[MASK]有？"',
        )
    if input_file is None:
        return iter(texts)
    lines, problems = list[str](), list[InputError]()
    for source in find_sources(input_file):
        for number, line in read_lines(source, changed=Counter()):
            lines.append(line)
            if not line.strip():
                problems.append(
                    InputError("is a blank line", file=source.path, line=number, expected="a text", remedy="remove it")
                )
    if problems:
        raise InputErrors(problems)
    return iter(lines)
