"""Exact match and F1 of answers, by the rules of SQuAD 1.1 and SQuAD 2.0.

In: gold texts and predicted texts by id.  Out: the figures the official scripts print, in percent.  Next: cmrc.py
Source: Rajpurkar et al. 2016 and 2018, and the evaluation scripts published with both sets.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from bertkit.errors import InputError

Gold = Mapping[str, Sequence[str]]  # id → the texts that are right; none: there is no answer
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text: str) -> str:
    """Return what is compared: lower case, no ASCII punctuation, no articles, single spaces.

    >>> normalized_answer("The  U.S. team's")
    'us teams'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 where both are the same, normalized; else 0."""
    return float(normalized_answer(prediction) == normalized_answer(gold))


def token_f1(prediction: str, gold: str, *, empty_is_an_answer: bool) -> float:
    """Return the F1 of the words of both, normalized, as bags of words.

    empty_is_an_answer: whether two texts without any word agree (SQuAD 2.0) or not (1.1).

    >>> token_f1("the cat sat", "a cat", empty_is_an_answer=False)
    0.6666666666666666
    """
    found, wanted = normalized_answer(prediction).split(), normalized_answer(gold).split()
    if empty_is_an_answer and not (found and wanted):
        return float(found == wanted)
    same = (Counter(found) & Counter(wanted)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def squad1_scores(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """Return {"exact_match", "f1", "total"}, in percent; a question without prediction scores 0, as in SQuAD 1.1."""
    exact = f1 = 0.0
    for id, texts in gold.items():
        if id not in predictions:
            continue
        exact += max((exact_match(predictions[id], text) for text in texts), default=0.0)
        f1 += max((token_f1(predictions[id], text, empty_is_an_answer=False) for text in texts), default=0.0)
    total = len(gold)
    return {"exact_match": 100 * exact / max(1, total), "f1": 100 * f1 / max(1, total), "total": total}


def question_scores(gold: Gold, predictions: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return id → (exact match, F1), each 0 to 1, by the rules of SQuAD 2.0.

    Raises:
        InputError: a question without prediction.
    """
    scores = {}
    for id, texts in gold.items():
        if id not in predictions:
            raise InputError("no answer to this question", field="predictions", value=id, expected="one for each id")
        # A gold text of articles and punctuation alone is none; a question without any has the empty answer.
        right = [text for text in texts if normalized_answer(text)] or [""]
        prediction = predictions[id]
        scores[id] = (
            max(exact_match(prediction, text) for text in right),
            max(token_f1(prediction, text, empty_is_an_answer=True) for text in right),
        )
    return scores


def squad2_scores(
    gold: Gold, predictions: Mapping[str, str], *, null_odds: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return SQuAD 2.0's figures, in percent: exact, f1, total; HasAns_…, NoAns_… where there are such questions.

    null_odds: id → the higher, the likelier no answer.  With it also best_exact, best_exact_thresh, best_f1,
        best_f1_thresh: the best figures that any threshold gives, predictions being what is answered below it.

    Raises:
        InputError: a question without prediction.
    """
    scores = question_scores(gold, predictions)
    figures = _figures("", list(scores), scores)
    has_answer = {id: bool(texts) for id, texts in gold.items()}
    for name, wanted in (("HasAns_", True), ("NoAns_", False)):
        ids = [id for id in scores if has_answer[id] is wanted]
        if ids:
            figures |= _figures(name, ids, scores)
    if null_odds is not None:
        for name, part in (("exact", 0), ("f1", 1)):
            singles = {id: both[part] for id, both in scores.items()}
            best, threshold = _best(predictions, singles, null_odds, has_answer)
            figures |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return figures


def _figures(prefix: str, ids: Sequence[str], scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    exact, f1 = (100 * sum(scores[id][part] for id in ids) / max(1, len(ids)) for part in (0, 1))
    return {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(ids)}


def _best(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """The best figure and its threshold, as the official script looks for them: one question more at a time."""
    current = best = float(sum(not answerable for answerable in has_answer.values()))
    threshold = 0.0
    for id in sorted(odds, key=lambda id: odds[id]):
        if id not in scores:
            continue
        if has_answer[id]:
            current += scores[id]
        elif predictions[id]:
            current -= 1
        if current > best:
            best, threshold = current, odds[id]
    return 100 * best / max(1, len(scores)), threshold
