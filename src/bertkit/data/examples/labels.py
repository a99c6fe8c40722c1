"""Labels of all splits → one map of names, one kind of problem, and what looks unintended about them.

In: the TextExamples of every split.  Out: the same with their labels as the problem wants them; a LabelMap.
Next: splits.py
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TypeVar

from bertkit.data.examples.example import Example, TaggedExample, TextExample
from bertkit.data.examples.reading import ExampleReport, ProblemType
from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors

LARGEST = 1e18  # of a number: float32, in which a model computes, holds its square
MOSTLY = 0.9  # share of numbers among labels from which the others are taken for mistakes
E = TypeVar("E", TextExample, TaggedExample)
Splits = Mapping[str, Sequence[TextExample]]  # "train", "validation", "test" → its examples


@dataclass(frozen=True)
class LabelMap:
    """Names of classes, their ids being their places; what `id2label` and `label2id` of a config.json say."""

    names: tuple[str, ...]

    @cached_property
    def label2id(self) -> dict[str, int]:
        """The id of each name."""
        return {name: id for id, name in enumerate(self.names)}

    @property
    def id2label(self) -> dict[int, str]:
        """The name of each id."""
        return dict(enumerate(self.names))

    def __len__(self) -> int:
        return len(self.names)


def label_map(names: Iterable[str]) -> LabelMap:
    """Return the map of all different names, sorted: whole numbers by size, everything else by code point.

    >>> label_map(["b", "a", "b"]).names, label_map(["10", "9", "0"]).names
    (('a', 'b'), ('0', '9', '10'))
    """
    different = set(names)
    numeric = all(name.isascii() and name.removeprefix("-").isdigit() for name in different)
    return LabelMap(tuple(sorted(different, key=lambda name: (int(name) if numeric else 0, name))))


def tag_map(examples: Iterable[TaggedExample]) -> LabelMap:
    """Return the map of all tags that occur."""
    return label_map(tag for example in examples for tag in example.tags or ())


def resolve_labels(
    splits: Splits, *, problem_type: ProblemType | None, report: ExampleReport
) -> tuple[ProblemType, dict[str, list[TextExample]], LabelMap]:
    """Return the kind of problem, the examples with label, labels or score set as it wants, and the map of all splits.

    problem_type: None reads it from the labels: lists are several labels; numbers of which at least one is not whole
        are scores, even if a few labels are no numbers, which are broken records then; everything else is names.  What
        was read is noted in the report.
    The map is empty for a regression.

    Raises:
        InputErrors: a label that is no number in a regression, one label where others have lists; with on_bad="skip"
            these records are left out.
    """
    labelled = [example for examples in splits.values() for example in examples if _has_label(example)]
    kind = problem_type or _kind_of(labelled, report)
    resolved: dict[str, list[TextExample]] = {}
    for split, examples in splits.items():
        problems = [_misfit(example, kind) if _has_label(example) else None for example in examples]
        resolved[split] = [_as_kind(e, kind) for e in _without(examples, problems, report)]
    _finish(resolved, report)
    if kind == "regression":
        return kind, resolved, LabelMap(())
    names = label_map(name for examples in resolved.values() for example in examples for name in names_of(example))
    _warn_of_names(resolved, names, report, single=kind == "single_label_classification")
    return kind, resolved, names


def _without(examples: Sequence[E], problems: Sequence[InputError | None], report: ExampleReport) -> list[E]:
    """The examples without a problem; those with one are broken records of the report."""
    for problem in problems:
        if problem is not None:
            report.reject(problem)
    return [example for example, problem in zip(examples, problems, strict=True) if problem is None]


def _finish(resolved: Mapping[str, Sequence[Example]], report: ExampleReport) -> None:
    if report.num_problems:
        report.finish(num_examples=sum(map(len, resolved.values())), flag="labels")


def names_of(example: TextExample) -> tuple[str, ...]:
    """Return the names of the example's classes, none or one or several."""
    if example.labels is not None:
        return example.labels
    return () if example.label is None else (example.label,)


def only_known(examples: Sequence[E], labels: LabelMap, report: ExampleReport) -> list[E]:
    """Return the examples whose labels or tags stand in the map of a model; the others are broken records.

    Raises:
        InputErrors: each of them with file and line; with on_bad="skip", that no example is left.
    """
    known = _without(examples, [_unknown(example, labels) for example in examples], report)
    _finish({"data": known}, report)
    return known


def require_known_labels(examples: Sequence[E], labels: LabelMap) -> None:
    """Refuse examples with a label or tag that the map does not have.

    Raises:
        InputErrors: each of them with file and line.
    """
    problems = [problem for example in examples if (problem := _unknown(example, labels)) is not None]
    if problems:
        raise InputErrors(problems[:SHOWN_PROBLEMS], total=len(problems))


def _unknown(example: TextExample | TaggedExample, labels: LabelMap) -> InputError | None:
    """What is wrong with the first label or tag of the example that the map does not have."""
    tagged = example if isinstance(example, TaggedExample) else None
    names = names_of(example) if isinstance(example, TextExample) else example.tags or ()
    place = next((place for place, name in enumerate(names) if name not in labels.label2id), None)
    if place is None:
        return None
    near = get_close_matches(names[place], labels.names, n=1)
    mean = f"did you mean {near[0]}? else " if near else ""
    what = "label" if tagged is None else "tag"
    return InputError(
        f"the {what} is not one of the model's",
        file=example.file,
        line=example.line if tagged is None else tagged.line_of(place),
        field=what,
        value=names[place],
        expected=f"one of {', '.join(labels.names[:SHOWN_PROBLEMS])}" + (", …" if len(labels) > SHOWN_PROBLEMS else ""),
        remedy=f"{mean}mend the file, fine-tune a model on such {what}s, or leave these records out: --on_bad skip",
    )


def class_weights(label_counts: Sequence[int]) -> list[float]:
    """Return for each class the weight that makes all classes count alike: total / (classes × count), 0 for none.

    >>> class_weights([95, 5])
    [0.5263157894736842, 10.0]
    """
    present = sum(1 for count in label_counts if count)
    return [sum(label_counts) / (present * count) if count else 0.0 for count in label_counts]


def _has_label(example: TextExample) -> bool:
    return example.label is not None or example.labels is not None


def _number(text: str) -> float | None:
    """The number that a label spells; None: it is none, or too large to train on."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in text else None


def _kind_of(labelled: Sequence[TextExample], report: ExampleReport) -> ProblemType:
    num_lists = sum(example.labels is not None for example in labelled)
    if num_lists and num_lists >= len(labelled) - num_lists:
        report.note("labels are lists: several labels for each text (problem_type multi_label_classification)")
        return "multi_label_classification"
    numbers = [number for example in labelled if (number := _number(example.label or "")) is not None]
    whole = all(map(float.is_integer, numbers))
    if whole or len(numbers) < MOSTLY * len(labelled):
        if not whole and 2 * len(numbers) > len(labelled):
            report.warn(
                f"{len(numbers):,} of {len(labelled):,} labels are numbers, not all of them whole, and others are not: "
                "all are taken for names; --problem_type regression lists those that are no numbers"
            )
        report.note(f"labels are {len({example.label for example in labelled}):,} classes")
        return "single_label_classification"
    report.note("labels are numbers and not all of them whole: a regression (--problem_type says otherwise)")
    return "regression"


def _misfit(example: TextExample, kind: ProblemType) -> InputError | None:
    """What is wrong with the label of this example for this kind of problem."""
    if kind == "regression" and (example.label is None or _number(example.label) is None):
        problem, expected, value = (
            "the label is no number to train on",
            f"a number such as 3.5, at most {LARGEST:g}",
            names_of(example),
        )
    elif kind == "single_label_classification" and example.label is None:
        problem, expected, value = "the label is a list", "one name", names_of(example)
    elif kind == "multi_label_classification" and example.labels is None:
        problem, expected, value = "the label is no list, but others are", "a list of names", names_of(example)
    else:
        return None
    shown: object = value[0] if len(value) == 1 and example.labels is None else list(value)
    return InputError(
        problem,
        file=example.file,
        line=example.line,
        field="label",
        value=shown,
        expected=expected,
        remedy="mend the record, choose --problem_type, or leave such records out: --on_bad skip",
    )


def _as_kind(example: TextExample, kind: ProblemType) -> TextExample:
    if kind != "regression" or example.label is None:
        return example
    return replace(example, label=None, score=_number(example.label))


def _warn_of_names(splits: Splits, names: LabelMap, report: ExampleReport, *, single: bool) -> None:
    """Warn of what is likely not meant: names that differ in case only, one class only, classes never trained on."""
    alike: dict[str, list[str]] = {}
    for name in names.names:
        alike.setdefault(name.strip().casefold(), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            report.warn(f"labels that differ in case or blanks only: {', '.join(map(repr, group))}; they stay apart")
    counts = {split: Counter(name for e in examples for name in names_of(e)) for split, examples in splits.items()}
    trained = counts.get("train")
    if single and trained is not None and len(trained) == 1:
        report.warn(f"all {trained.total():,} labels of train are {next(iter(trained))!r}: there is nothing to learn")
    warn_of_untrained(counts, report, what="label")


def warn_of_untrained(counts: Mapping[str, Counter[str]], report: ExampleReport, *, what: str) -> None:
    """Warn of labels that stand in another split but not in train."""
    trained = counts.get("train")
    if not trained:
        return
    for split, found in counts.items():
        missing = sorted(found.keys() - trained.keys())
        if missing:
            total = sum(found[name] for name in missing)
            shown = ", ".join(missing[:SHOWN_PROBLEMS])
            report.warn(f"{total:,} {what}s of {split} never stand in train and cannot be learnt: {shown}")
