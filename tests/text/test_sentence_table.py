"""The splitter against the table of cases written without it: the law holds for all, the cuts for nearly all."""

import pytest
from sentence_table import CASES

from bertkit.text.sentences import split_sentences

WRONG_AT_MOST = 0.02  # of all cases; a case is wrong if any of its pieces differs


def test_the_table_holds_enough_of_each_language_and_no_case_twice() -> None:
    languages = [language for _, language, _ in CASES]
    assert languages.count("zh") >= 80
    assert languages.count("en") >= 70
    assert languages.count("mixed") >= 30
    assert len({(name, language) for name, language, _ in CASES}) == len(CASES)
    assert len({"".join(pieces) for _, _, pieces in CASES}) == len(CASES)


@pytest.mark.parametrize("language", ["zh", "en", "mixed"])
def test_joined_sentences_of_the_table_are_its_texts(language: str) -> None:
    texts = ["".join(pieces) for _, case_language, pieces in CASES if case_language == language]
    assert ["".join(split_sentences(text)) for text in texts] == texts


def test_nearly_all_cases_of_the_table_are_cut_as_an_editor_cuts_them() -> None:
    wrong = []
    for name, language, pieces in CASES:
        found = split_sentences("".join(pieces))
        if found != pieces:
            wrong.append(f"{language}, {name}: wanted {'|'.join(pieces)!r}, found {'|'.join(found)!r}")
    assert len(wrong) <= WRONG_AT_MOST * len(CASES), f"{len(wrong)} of {len(CASES)} wrong:\n" + "\n".join(wrong)
