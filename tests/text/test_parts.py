"""To which part a text belongs: the same for one text and for many at once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bertkit.text.parts import digests_of, part_of, parts_of

TEXTS = st.lists(st.text(st.characters(codec="utf-8")))


@given(TEXTS)
def test_many_texts_are_in_the_parts_of_each(texts: list[str]) -> None:
    for split in (True, False):
        parts = parts_of(digests_of(texts), validation_split=split)
        names = [("train", "validation", "test")[part] for part in parts]
        assert names == [part_of(text, validation_split=split) for text in texts]


@given(TEXTS)
def test_texts_have_equal_digests_where_they_are_equal(texts: list[str]) -> None:
    digests = digests_of(texts)
    assert digests.shape == (len(texts), 20)
    assert len({digest.tobytes() for digest in digests}) == len({*texts})


def test_a_tenth_is_for_validation_and_a_tenth_for_test() -> None:
    parts = Counter(parts_of(digests_of([f"第{n}首" for n in range(2000)]), validation_split=True).tolist())
    assert 150 < parts[1] < 250
    assert 150 < parts[2] < 250
