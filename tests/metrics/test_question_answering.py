"""SQuAD's and CMRC's figures, held to their rules as published, written down here a second time."""

import collections
import random
import re
import string
from collections.abc import Sequence

import pytest

from bertkit.errors import InputError
from bertkit.metrics import cmrc
from bertkit.metrics.question_answering import squad1_scores, squad2_scores

PIECES = (
    "The",
    "the",
    "a",
    "an",
    "cat",
    "Cat's",
    "U.S.",
    "3.5",
    "sat,",
    "--",
    "!",
    "",
    " ",
    "than",
    "北京",
    "é",
    "\u00a0",
)
MARKS = "，。：？！“”；’《》·、「」（）－～『』-:_*^/\\~`+="
CHINESE_PIECES = (
    *"北京大学的在人",
    "WTO",
    "3.5",
    "，",
    "。",
    "“",
    "-",
    " ",
    "don't",
    "Dr",
    "(a)",
    "10%",
    "…",
    "?",
    ".",
)


def make(generator: random.Random, pieces: Sequence[str], joint: str) -> str:
    return joint.join(generator.choice(pieces) for _ in range(generator.randint(0, 5)))


def cases(pieces: Sequence[str], joint: str, *, empty: bool) -> tuple[dict[str, list[str]], dict[str, str]]:
    """A thousand questions, some answers right, some nearly, some wrong; with `empty` some have no answer."""
    generator = random.Random(7)
    gold: dict[str, list[str]] = {}
    predictions: dict[str, str] = {}
    for number in range(1000):
        texts = [make(generator, pieces, joint) or "x" for _ in range(generator.randint(1, 3))]
        gold[str(number)] = [] if empty and generator.random() < 0.4 else texts
        choice = generator.random()
        predictions[str(number)] = (
            generator.choice(texts) + generator.choice(["", " .", "the "])
            if choice < 0.5
            else ""
            if choice < 0.6
            else make(generator, pieces, joint)
        )
    return gold, predictions


# ---- SQuAD


def plain(text: str) -> str:
    """Lower text and remove punctuation, articles and extra whitespace."""
    lower = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lower).split())


def bag_f1(a: str, b: str, *, second: bool) -> float:
    one, two = plain(a).split(), plain(b).split()
    common = collections.Counter(one) & collections.Counter(two)
    same = sum(common.values())
    if second and (len(one) == 0 or len(two) == 0):
        return int(one == two)
    if same == 0:
        return 0
    return 2 * (same / len(two)) * (same / len(one)) / (same / len(two) + same / len(one))


def test_squad_1_by_its_rules_on_a_thousand_cases() -> None:
    gold, predictions = cases(PIECES, " ", empty=False)
    del predictions["5"]  # unanswered: scores 0
    exact = sum(max(plain(predictions[i]) == plain(t) for t in gold[i]) for i in gold if i in predictions)
    f1 = sum(max(bag_f1(predictions[i], t, second=False) for t in gold[i]) for i in gold if i in predictions)
    ours = squad1_scores(gold, predictions)
    assert ours["exact_match"] == pytest.approx(100 * exact / 1000, abs=1e-9)
    assert ours["f1"] == pytest.approx(100 * f1 / 1000, abs=1e-9)
    assert ours["total"] == 1000
    assert 20 < ours["f1"] < ours["exact_match"] < 90  # two texts without words match, but their F1 is 0
    for id in gold:  # one by one
        if id in predictions:
            one = squad1_scores({id: gold[id]}, predictions)
            assert one["f1"] == pytest.approx(
                100 * max(bag_f1(predictions[id], t, second=False) for t in gold[id]), abs=1e-9
            )


def test_squad_2_by_its_rules_on_a_thousand_cases() -> None:  # public case 46
    gold, predictions = cases(PIECES, " ", empty=True)
    generator = random.Random(8)
    odds = {id: round(generator.gauss(0, 3), 1) for id in gold}
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    for id, texts in gold.items():
        right = [text for text in texts if plain(text)] or [""]
        exact[id] = max(float(plain(text) == plain(predictions[id])) for text in right)
        f1[id] = max(bag_f1(text, predictions[id], second=True) for text in right)
    has = {id: bool(texts) for id, texts in gold.items()}
    ours = squad2_scores(gold, predictions, null_odds=odds)
    for prefix, ids in (
        ("", list(gold)),
        ("HasAns_", [i for i in gold if has[i]]),
        ("NoAns_", [i for i in gold if not has[i]]),
    ):
        assert ours[f"{prefix}total"] == len(ids)
        assert ours[f"{prefix}exact"] == pytest.approx(100 * sum(exact[i] for i in ids) / len(ids), abs=1e-9)
        assert ours[f"{prefix}f1"] == pytest.approx(100 * sum(f1[i] for i in ids) / len(ids), abs=1e-9)
    for name, scores in (("exact", exact), ("f1", f1)):
        current = best = sum(not has[i] for i in gold)
        threshold = 0.0
        for id in sorted(odds, key=lambda i: odds[i]):
            current += scores[id] if has[id] else (-1 if predictions[id] else 0)
            if current > best:
                best, threshold = current, odds[id]
        assert ours[f"best_{name}"] == pytest.approx(100 * best / 1000, abs=1e-9)
        assert ours[f"best_{name}_thresh"] == threshold


def test_an_unanswered_question_is_refused_where_no_answer_is_an_answer() -> None:
    with pytest.raises(InputError, match="predictions: no answer to this question\n  value: '1'"):
        squad2_scores({"1": ["x"]}, {})


def test_nothing_asked_is_no_error() -> None:
    assert squad1_scores({}, {}) == {"exact_match": 0.0, "f1": 0.0, "total": 0}
    assert squad2_scores({}, {}, null_odds={})["best_f1"] == 0.0


# ---- CMRC


def cut(text: str) -> list[str]:
    """Characters one by one, words between them; of these only what the cases above can hold."""
    units: list[str] = []
    word = ""
    for c in text.lower().strip():
        if c in MARKS:
            continue
        if "\u4e00" <= c <= "\u9fa5":
            units += [*latin(word), c]
            word = ""
        else:
            word += c
    return [*units, *latin(word)]


def latin(word: str) -> list[str]:
    units: list[str] = []
    for part in word.split():
        part = re.sub(r"([()%?])", r" \1 ", part)
        units += part.split()
    if not units:
        return []
    whole = re.sub(r"(\w)(n't)(?= |$)", r"\1 \2", " ".join(units))
    if whole.endswith(".") and not whole.endswith("..") and len(whole) > 1 and whole[-2] != " ":
        whole = whole[:-1] + " ."
    return whole.split()


def longest(a: list[str], b: list[str]) -> int:
    return max(
        (
            n
            for n in range(1, len(a) + 1)
            for i in range(len(a) - n + 1)
            if any(a[i : i + n] == b[j : j + n] for j in range(len(b)))
        ),
        default=0,
    )


def run_f1(a: str, b: str) -> float:
    one, two = cut(a), cut(b)
    same = longest(one, two)
    return 2 * same / (len(one) + len(two)) if same else 0.0


SIMPLE = tuple(piece for piece in CHINESE_PIECES if piece not in {"don't", ".", "?"})


def test_cmrc_by_its_rules_on_a_thousand_cases() -> None:
    gold, predictions = cases(SIMPLE, "", empty=False)
    del predictions["5"]
    bare = lambda text: "".join(c for c in text.lower().strip() if c not in MARKS)  # noqa: E731
    exact = sum(max(bare(predictions[i]) == bare(t) for t in gold[i]) for i in gold if i in predictions)
    f1 = sum(max(run_f1(predictions[i], t) for t in gold[i]) for i in gold if i in predictions)
    ours = cmrc.cmrc_scores(gold, predictions)
    assert ours["exact_match"] == pytest.approx(100 * exact / 1000, abs=1e-9)
    assert ours["f1"] == pytest.approx(100 * f1 / 1000, abs=1e-9)
    assert ours["average"] == pytest.approx((ours["exact_match"] + ours["f1"]) / 2)
    assert (ours["total"], ours["skipped"]) == (1000, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“北京”，（中国）", ["北", "京", "中", "国"]),
        ("He doesn't go.", ["he", "does", "n't", "go", "."]),
        ("1,000 and 3.5%", ["1,000", "and", "3.5", "%"]),
        ("ends, here", ["ends", ",", "here"]),
        ("John's cannot", ["john", "'s", "can", "not"]),
        ('say "hi"', ["say", "``", "hi", "''"]),
        ("u.s. (a)", ["u.s.", "(", "a", ")"]),
        ("A-B/c", ["abc"]),
        ("第3章", ["第", "3", "章"]),
        ("", []),
        ("，。", []),
    ],
)
def test_cmrc_cuts_text_into_characters_and_words(text: str, expected: list[str]) -> None:
    assert cmrc.segments(text) == expected


def test_cmrc_counts_the_longest_run_and_not_the_bag() -> None:
    assert cmrc.run_f1("北大京", "北京") == pytest.approx(2 * 1 / 5)
    assert cmrc.run_f1("", "") == 0.0
    assert cmrc.exact_match("《北京》", "北京。") == 1.0
