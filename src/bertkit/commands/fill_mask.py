"""`bertkit fill-mask`: what stands behind [MASK], or what the model would put where tokens are hidden.

In: texts and a model folder.  Out: original, masked and filled text, and the best candidates.
Next: pipelines/fill_mask.py
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bertkit.console import result, result_json, table
from bertkit.errors import InputError
from bertkit.options import ALLOW_BIN, argument, option
from bertkit.text.given import GivenTexts, given_texts

if TYPE_CHECKING:
    from bertkit.pipelines import FilledText, FillMask

EXAMPLE = 'bertkit fill-mask --model DIR "明月几[MASK]有？"'


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
    joint: bool = option(False, help="also fill all masks of a text together, and show the best such fillings")
    targets: list[str] | None = option(None, help="score only these at each mask; one may be several tokens")
    score: bool = option(
        False, help="in place of filling: the pseudo-perplexity of each text, every token being hidden alone"
    )
    seed: int = option(12345, help="seed of the places hidden")
    json: bool = option(False, help="one JSON object a text instead of lines for people")
    allow_bin: bool = option(False, help=ALLOW_BIN)


def run(config: Config) -> None:
    """Print one answer a text, in order.

    Raises:
        InputError: no text, a model folder without a masked-LM head, or texts that cannot be masked: of a file all of
            them are named, before the first answer.
    """
    from bertkit.pipelines import FillMask

    if config.score and (config.masked is not None or config.joint or config.targets is not None):
        remedy = "leave --score away, or --masked, --joint and --targets"
        raise InputError("hides each token alone, and nothing else", field="--score", remedy=remedy)
    texts = given_texts(config.texts, config.input_file, example=EXAMPLE)
    fill = FillMask(config.model, allow_bin=config.allow_bin)
    if config.score:
        _score(fill, texts, json=config.json)
        return
    texts.refuse(fill.problems(texts, masked=config.masked, mlm_probability=config.mlm_probability, seed=config.seed))
    answers = fill.fill(
        texts,
        masked=config.masked,
        mlm_probability=config.mlm_probability,
        seed=config.seed,
        top_k=config.top_k,
        joint=config.joint,
        targets=config.targets,
    )
    for filled in answers:
        _show(filled, json=config.json)


def _show(filled: "FilledText", *, json: bool) -> None:
    if json:
        result_json({name: value for name, value in asdict(filled).items() if value is not None})
        return
    result(f"original: {filled.original}\nmasked:   {filled.masked}\nfilled:   {filled.filled}")
    for number, records in enumerate(filled.candidates, start=1):
        rows = [(record["token_str"], f"{record['score']:.4f}", record["sequence"]) for record in records]
        result(f"mask {number}:\n{table(rows)}")
    if filled.joint is not None:
        together = [
            (" ".join(record["token_strs"]), f"{record['score']:.4f}", record["sequence"]) for record in filled.joint
        ]
        result(f"all masks together:\n{table(together)}")
    result("")


def _score(fill: "FillMask", texts: GivenTexts, *, json: bool) -> None:
    texts.refuse(fill.score_problems(texts))
    for scored in fill.score(texts):
        if json:
            result_json(asdict(scored))
            continue
        unknown = f", {scored.unknown} unknown left out" if scored.unknown else ""
        worst = min(scored.tokens, key=lambda token: token["log_probability"])
        rows = [
            ("text", scored.text),
            ("pseudo-perplexity", f"{scored.pseudo_perplexity:.2f}"),
            ("tokens", f"{len(scored.tokens)}{unknown}"),
            ("least expected", f"{worst['token_str']} ({worst['log_probability']:.2f} nats)"),
        ]
        result(f"{table(rows)}\n")
