"""`bertkit next-sentence`: does B follow A?

In: two texts, or a file of pairs, and a model folder.  Out: is_next and its probability.
Next: pipelines/next_sentence.py
"""

from dataclasses import dataclass

from bertkit.console import result, result_json, table
from bertkit.errors import InputError
from bertkit.options import ALLOW_BIN, argument, option
from bertkit.text.given import GivenTexts
from bertkit.text.readers import find_sources

EXAMPLE = 'bertkit next-sentence --model DIR "风住尘香花已尽，日晚倦梳头。" "物是人非事事休，欲语泪先流。"'


@dataclass(frozen=True)
class Config:
    """Which pairs, and which model."""

    model: str = option(help="model folder with a next-sentence head")
    texts: list[str] = argument([], help="two texts, A and B, each in quotes")
    input_file: str | None = option(None, help="file with one pair a line, A and B parted by a tab")
    json: bool = option(False, help="one JSON object a pair instead of lines for people")
    allow_bin: bool = option(False, help=ALLOW_BIN)


def run(config: Config) -> None:
    """Print one answer a pair, in order.

    Raises:
        InputError: not two texts, a line that is no pair, a model folder without a next-sentence head.
    """
    from bertkit.pipelines import NextSentence

    texts = _given(config)
    pairs = [_sides(text) for text in texts] if config.input_file else [(config.texts[0], config.texts[1])]
    judge = NextSentence(config.model, allow_bin=config.allow_bin)
    texts.refuse(judge.problems(pairs))
    for (first, second), answer in zip(pairs, judge.judge(pairs), strict=True):
        if config.json:
            result_json({"first": first, "second": second, **answer})
            continue
        verdict = "true" if answer["is_next"] else "false"
        rows = [("A", first), ("B", second), ("is_next", verdict), ("probability", f"{answer['score']:.4f}")]
        result(table(rows))


def _given(config: Config) -> GivenTexts:
    """The two texts, or the lines of the file; every line that is no pair is named."""
    if bool(config.texts) == bool(config.input_file) or (config.texts and len(config.texts) != 2):
        given = "1 text was" if len(config.texts) == 1 else f"{len(config.texts)} texts were"
        raise InputError(
            "texts and --input_file were given" if config.input_file else f"{given} given",
            field="texts",
            expected="two texts, or --input_file, not both",
            remedy=EXAMPLE,
        )
    if config.input_file is None:
        return GivenTexts(("\t".join(config.texts),), ())
    texts = GivenTexts((), tuple(find_sources(config.input_file)))
    problems = ((index, _line_problem(line)) for index, line in enumerate(texts))
    texts.refuse((index, problem) for index, problem in problems if problem is not None)
    return texts


def _sides(line: str) -> tuple[str, str]:
    first, second = line.split("\t")
    return first, second


def _line_problem(line: str) -> InputError | None:
    """What is wrong with a line, if it is no pair."""
    sides = line.split("\t")
    if len(sides) == 2 and all(side.strip() for side in sides):
        return None
    if not line.strip():
        problem, remedy = "is a blank line", "remove it"
    elif len(sides) == 2:
        problem, remedy = "is half a pair", "give both texts"
    else:
        problem = f"is no pair: it has {len(sides) - 1} tabs" if len(sides) > 2 else "is no pair: it has no tab"
        remedy = "part the two texts by one tab"
    return InputError(problem, value=line, expected="A, one tab, B", remedy=remedy)
