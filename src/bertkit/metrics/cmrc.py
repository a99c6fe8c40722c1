"""Exact match and F1 of Chinese answers, by the rules of CMRC 2018: characters, and the longest common run.

In: gold texts and predicted texts by id.  Out: the two figures, in percent.  Next: commands
Source: Cui et al. 2019, and the evaluation script published with the set; its English words are cut by the rules of the
Penn Treebank's tokenizer (MacIntyre), which stand here in short.
"""

import re
from collections.abc import Mapping, Sequence

# Left out before comparing; ASCII marks such as , . ? ! are not among them.
_MARKS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE = re.compile("[\u4e00-\u9fa5]")
_TREEBANK: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'^"'), "`` "),
    (re.compile(r'([ (\[{<])"'), r"\1 `` "),
    (re.compile(r"\.\.\."), " ... "),
    (re.compile(r"[;@#$%&]"), r" \g<0> "),
    (re.compile(r"([^.])(\.)([\])}>\"']*)\s*$"), r"\1 \2\3 "),
    (re.compile(r"([:,])(?=\D|$)"), r" \1 "),
    (re.compile(r"[?!]"), r" \g<0> "),
    (re.compile(r"([^'])' "), r"\1 ' "),
    (re.compile(r"[\]\[(){}<>]"), r" \g<0> "),
    (re.compile(r"--"), " -- "),
    (re.compile(r'"'), " '' "),
    (re.compile(r"([^' ])('[sSmMdD]|'ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), r"\1 \2 "),
    (re.compile(r"(?i)\b(can)(not)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(gon|wan)(na)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(got)(ta)\b"), r" \1 \2 "),
    (re.compile(r"(?i)\b(gim|lem)(me)\b"), r" \1 \2 "),
)


def segments(text: str) -> list[str]:
    """Return the units that are compared: Chinese characters one by one, words between them; marks left out.

    >>> segments("他在WTO任职3.5年。")
    ['他', '在', 'wto', '任', '职', '3.5', '年']
    """
    units: list[str] = []
    word = ""
    for character in [*text.lower().strip(), ""]:
        if character and character in _MARKS:
            continue
        if character and not _CHINESE.match(character):
            word += character
            continue
        units += _words(word)
        word = ""
        if character:
            units.append(character)
    return units


def _words(text: str) -> list[str]:
    """The words of a text without Chinese characters."""
    if not text.strip():
        return []
    text = f"{text} "
    for pattern, replacement in _TREEBANK:
        text = pattern.sub(replacement, text)
    return text.split()


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 where both are the same but for case, marks and blanks at their ends; else 0."""
    return float(_without_marks(prediction) == _without_marks(gold))


def _without_marks(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _MARKS)


def run_f1(prediction: str, gold: str) -> float:
    """Return the F1 of the longest run of units that both have in common.

    >>> run_f1("北京大学", "北京")
    0.6666666666666666
    """
    found, wanted = segments(prediction), segments(gold)
    longest = _longest_run(found, wanted)
    if longest == 0:
        return 0.0
    precision, recall = longest / len(found), longest / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest stretch that stands in both, without gaps."""
    longest = 0
    before = [0] * (len(second) + 1)  # length of the run that ends at each place of `second`
    for unit in first:
        now = [0] * (len(second) + 1)
        for place, other in enumerate(second, start=1):
            if unit == other:
                now[place] = before[place - 1] + 1
                longest = max(longest, now[place])
        before = now
    return longest


def cmrc_scores(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return exact_match, f1, their average, in percent, total and skipped; a question without prediction scores 0."""
    exact = f1 = 0.0
    skipped = 0
    for id, texts in gold.items():
        if id not in predictions:
            skipped += 1
            continue
        exact += max((exact_match(predictions[id], text) for text in texts), default=0.0)
        f1 += max((run_f1(predictions[id], text) for text in texts), default=0.0)
    total = max(1, len(gold))
    figures = {"exact_match": 100 * exact / total, "f1": 100 * f1 / total}
    average = (figures["exact_match"] + figures["f1"]) / 2
    return {**figures, "average": average, "total": len(gold), "skipped": skipped}
