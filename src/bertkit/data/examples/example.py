"""What a labelled file holds, one record at a time, whatever the layout it came in.

In: nothing.  Out: the typed examples of the four kinds of fine-tuning, each with its place in a file.
Next: reading.py (what is asked of the readers, and what they report)
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts with what is to be said of it; at most one of label, labels and score is set."""

    id: str
    text: str
    text_pair: str | None  # None: a single text
    label: str | None  # the name of its class
    labels: tuple[str, ...] | None  # the names of its classes, where a text may have any number of them
    score: float | None  # regression
    file: str
    line: int  # of the file, from 1; of Parquet the row


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence as words with a tag each."""

    id: str
    text: str  # as the file gives it, else the words joined
    words: tuple[str, ...]  # any string, also a blank or an empty one
    offsets: tuple[tuple[int, int], ...]  # (start, end) of each word in `text`, end exclusive
    tags: tuple[str, ...] | None  # None: not labelled
    document: int  # sentences between two -DOCSTART- lines share it
    file: str
    lines: tuple[int, ...]  # of each word, or the one line of them all

    def line_of(self, word: int) -> int:
        """Return the line on which this word stands."""
        return self.lines[word if len(self.lines) > 1 else 0]

    @property
    def line(self) -> int:
        """The line on which the sentence begins."""
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A beginning and the ways in which it may go on, one of them right."""

    id: str
    context: str  # A of every pair
    choices: tuple[str, ...]  # B of each pair
    label: int | None  # place of the right one, from 0; None: not labelled
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of the context that answers the question."""

    text: str
    start: int  # in characters of the context


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question on a text, and the stretches of the text that answer it."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # none: it cannot be answered from the context, or it is not labelled
    is_impossible: bool  # True: labelled as having no answer
    article: str  # questions of one article share it
    file: str
    line: int


Example = TextExample | TaggedExample | ChoiceExample | QuestionExample
