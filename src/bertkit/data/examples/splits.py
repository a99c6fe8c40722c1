"""Parts of the data that must not share texts: splitting one off, and counting what two of them share.

In: examples.  Out: the same in two parts, a pure function of the seed; counts of shared texts.
Next: data/features
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np

from bertkit.data.examples.example import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from bertkit.data.examples.reading import ExampleReport
from bertkit.data.random import Stream
from bertkit.errors import InputError

E = TypeVar("E", TextExample, TaggedExample, ChoiceExample, QuestionExample)


def split_validation(examples: Sequence[E], *, fraction: float, seed: int) -> tuple[list[E], list[E]]:
    """Return (the rest, a validation part), both in the order given; a pure function of the examples' order and seed.

    What belongs together stays together: texts that are equal, questions on one article, sentences of one
    -DOCSTART- document where there are several.  So the part may be a little larger than asked for.

    fraction: of the examples, between 0 and 1.

    Raises:
        InputError: the fraction is out of range, or all examples belong together.
    """
    if not 0 < fraction < 1:
        raise InputError("is out of range", field="--validation_split", value=fraction, expected="between 0 and 1")
    documents = _has_documents(examples)
    groups: dict[Hashable, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(_group(example, documents=documents), []).append(place)
    if len(groups) < 2:
        raise InputError(
            f"all {len(examples)} examples belong together, so none can be split off",
            field="--validation_split",
            value=fraction,
            expected="examples of different texts (articles, documents)",
            remedy="give a validation file of its own",
        )
    members = list(groups.values())
    order = np.argsort(Stream(seed, "validation split", 0).bits(index=np.arange(len(members))), kind="stable")
    wanted = max(1, round(fraction * len(examples)))
    chosen: set[int] = set()
    for group in order[:-1].tolist():  # at least one group stays
        if len(chosen) >= wanted:
            break
        chosen.update(members[group])
    rest = [example for place, example in enumerate(examples) if place not in chosen]
    return rest, [example for place, example in enumerate(examples) if place in chosen]


def _has_documents(examples: Sequence[Example]) -> bool:
    """Whether the sentences are of several documents, so that the file tells where each begins."""
    return len({(e.file, e.document) for e in examples if isinstance(e, TaggedExample)}) > 1


def _group(example: Example, *, documents: bool) -> Hashable:
    """What examples have in common that belong together."""
    match example:
        case QuestionExample():
            return example.article
        case TaggedExample() if documents:
            return example.file, example.document
        case _:
            return text_key(example)


def text_key(example: Example) -> Hashable:
    """Return what makes an example the same for a model: all its texts."""
    match example:
        case TextExample():
            return example.text, example.text_pair
        case TaggedExample():
            return example.words
        case ChoiceExample():
            return example.context, example.choices
        case QuestionExample():
            return example.question, example.context


def warn_of_leaks(splits: Mapping[str, Sequence[Example]], report: ExampleReport) -> dict[tuple[str, str], int]:
    """Return for each pair of splits how many examples of the second stand in the first, warned of in the report.

    Texts are compared, not ids; for questions also their contexts, whatever is asked.
    """
    keys = {name: {text_key(example) for example in examples} for name, examples in splits.items()}
    shared: dict[tuple[str, str], int] = {}
    for first, second in combinations(splits, 2):
        inside = [example for example in splits[second] if text_key(example) in keys[first]]
        shared[first, second] = len(inside)
        if inside:
            at = ", ".join(map(_place, inside[:3]))
            report.warn(
                f"{len(inside):,} of {len(splits[second]):,} examples of {second} stand in {first} too, first {at}"
            )
            continue
        contexts = {example.context for example in splits[first] if isinstance(example, QuestionExample)}
        same = [e for e in splits[second] if isinstance(e, QuestionExample) and e.context in contexts]
        if same:
            report.warn(f"{len(same):,} questions of {second} are on contexts that stand in {first} too")
    return shared


def _place(example: Example) -> str:
    """Where the example stands; of a question its id, since a whole file may be one line."""
    if isinstance(example, QuestionExample):
        return f"{example.file}, question {example.id}"
    return f"{example.file}:{example.line}"


def warn_of_repeats(splits: Mapping[str, Sequence[Example]], report: ExampleReport) -> dict[str, int]:
    """Return for each split how many examples have the text of an earlier one, warned of in the report."""
    repeats = {}
    for name, examples in splits.items():
        repeats[name] = len(examples) - len({text_key(example) for example in examples})
        if repeats[name]:
            report.warn(f"{repeats[name]:,} of {len(examples):,} examples of {name} have the text of an earlier one")
    return repeats
