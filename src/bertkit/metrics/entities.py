"""How well entities and words are found: by whole spans, as CoNLL and seqeval count, and tag by tag.

In: spans or tags, gold and predicted, a sentence at a time.  Out: Scores, over all and for each type.
Next: classification.py
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bertkit.metrics.scores import Scores, scores_of

Spans = Sequence[tuple[str, int, int]]  # (type, first word, behind the last word) of one sentence


@dataclass(frozen=True, slots=True)
class EntityScores:
    """Scores of entities; one counts as right if type, begin and end are."""

    overall: Scores  # over all entities (micro average)
    by_type: dict[str, Scores]  # sorted by type
    macro_f1: float  # mean over the types


def entity_scores(gold: Sequence[Spans], predicted: Sequence[Spans]) -> EntityScores:
    """Return the scores of predicted entities; both have a list for each sentence.

    Strict or lenient is how the spans were read from tags: `spans_of(tags, strict=…)`.

    >>> entity_scores([[("PER", 0, 2), ("LOC", 3, 4)]], [[("PER", 0, 2), ("LOC", 3, 5)]]).overall.f1
    0.5
    """
    right: Counter[str] = Counter()
    num_gold: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    for wanted, found in zip(gold, predicted, strict=True):
        wanted_here, found_here = set(wanted), set(found)
        num_gold.update(span[0] for span in wanted_here)
        num_predicted.update(span[0] for span in found_here)
        right.update(span[0] for span in wanted_here & found_here)
    types = sorted(num_gold.keys() | num_predicted.keys())
    by_type = {t: scores_of(right[t], num_predicted=num_predicted[t], num_gold=num_gold[t]) for t in types}
    overall = scores_of(right.total(), num_predicted=num_predicted.total(), num_gold=num_gold.total())
    macro = sum(scores.f1 for scores in by_type.values()) / len(types) if types else 0.0
    return EntityScores(overall, by_type, macro)


def word_scores(gold: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]]) -> Scores:
    """Return the scores of a segmentation into words, given the lengths of the words of each sentence, in characters.

    A word counts as right if it begins and ends where a gold one does.

    >>> word_scores([[2, 1, 1]], [[2, 2]])
    Scores(precision=0.5, recall=0.3333333333333333, f1=0.4, support=3)
    """
    return entity_scores([_places(lengths) for lengths in gold], [_places(lengths) for lengths in predicted]).overall


def _places(lengths: Sequence[int]) -> Spans:
    places, start = [], 0
    for length in lengths:
        places.append(("", start, start + length))
        start += length
    return places


@dataclass(frozen=True, slots=True)
class TagScores:
    """Scores of single tags."""

    accuracy: float  # of all words, O included: a floor, not a result, where most words are O
    accuracy_without_outside: float  # of the words whose gold tag is not O
    by_tag: dict[str, Scores]  # sorted


def tag_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TagScores:
    """Return the scores of single tags (parts of speech, say); both have a tag for each word of each sentence."""
    pairs = [
        pair
        for wanted, found in zip(gold, predicted, strict=True)
        for pair in zip(wanted, found, strict=True)  # a missing word would move all behind it
    ]
    right: Counter[Hashable] = Counter(wanted for wanted, found in pairs if wanted == found)
    num_gold, num_predicted = Counter(wanted for wanted, _ in pairs), Counter(found for _, found in pairs)
    by_tag = {
        tag: scores_of(right[tag], num_predicted=num_predicted[tag], num_gold=num_gold[tag])
        for tag in sorted(num_gold.keys() | num_predicted.keys())
    }
    inside = len(pairs) - num_gold["O"]
    return TagScores(
        right.total() / len(pairs) if pairs else 0.0, (right.total() - right["O"]) / inside if inside else 0.0, by_tag
    )
