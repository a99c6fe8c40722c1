"""Whether answers stand where they say, and where they may be meant to stand.

In: a QuestionExample as its file gives it.  Out: the same, with misplaced answers refused, moved, used or dropped, as
the settings say.  Next: splits.py
"""

from dataclasses import replace

from bertkit.data.examples.example import Answer, QuestionExample
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.errors import InputError

SHOWN_CHARACTERS = 40
MOVED = "misplaced answer moved to the nearest place of its text"
USED = "misplaced answer used as it is"
LOST = "misplaced answer dropped"
NO_ANSWER_LEFT = "question without an answer left"


def stands(answer: Answer, context: str) -> bool:
    """Return whether the answer's text stands at its place."""
    return answer.start >= 0 and context.startswith(answer.text, answer.start)


def nearest_place(answer: Answer, context: str) -> int | None:
    """Return where the answer's text stands nearest to its place; None: nowhere. Of two as near, the first.

    >>> nearest_place(Answer("ab", 3), "ab ab ab"), nearest_place(Answer("x", 0), "ab")
    (3, None)
    """
    best: int | None = None
    place = context.find(answer.text)
    while place >= 0:
        if best is None or abs(place - answer.start) < abs(best - answer.start):
            best = place
        if place > answer.start:
            break
        place = context.find(answer.text, place + 1)
    return best


def checked_answers(
    example: QuestionExample, settings: ReadingSettings, report: ExampleReport
) -> QuestionExample | None:
    """Return the example with sound answers; None: it is broken or has none left, which the report knows."""
    wrong = [answer for answer in example.answers if not stands(answer, example.context)]
    if not wrong:
        return example
    if settings.repair_offsets:
        moved = {answer: nearest_place(answer, example.context) for answer in wrong}
        report.changed[MOVED] += sum(place is not None for place in moved.values())
        answers = tuple(Answer(a.text, p) if (p := moved.get(a)) is not None else a for a in example.answers)
        example = replace(example, answers=tuple(dict.fromkeys(answers)))
        wrong = [answer for answer in wrong if moved[answer] is None]
        if not wrong:
            return example
    if settings.on_bad_answers == "use":
        report.changed[USED] += len(wrong)
        return example
    if settings.on_bad_answers == "drop":
        report.changed[LOST] += len(wrong)
        left = tuple(answer for answer in example.answers if answer not in wrong)
        if not left:
            report.drop(NO_ANSWER_LEFT)
            return None
        return replace(example, answers=left)
    report.add_problem(_misplaced(wrong[0], example))
    return None


def _misplaced(answer: Answer, example: QuestionExample) -> InputError:
    there = example.context[max(0, answer.start) : max(0, answer.start) + len(answer.text)]
    place = nearest_place(answer, example.context)
    if place is None:
        folded = example.context.casefold().find(answer.text.strip().casefold())
        near = f"the context does not hold it, but at {folded} in other case or blanks" if folded >= 0 else None
        expected = near or "a text of the context"
        remedy = "mend the answer; --on_bad_answers drop leaves such answers out and counts them, use keeps them"
    else:
        expected = f"answer_start {place}, where it stands nearest"
        in_bytes = len(example.context[:place].encode("utf-8")) == answer.start
        expected += " (the offset given counts bytes, not characters)" if in_bytes else ""
        remedy = "--repair_offsets moves such answers, and counts them"
    return InputError(
        f"the answer does not stand at {answer.start} of the context, where {there[:SHOWN_CHARACTERS]!r} stands",
        file=example.file,
        line=example.line,
        field=f"answers of {example.id}",
        value=answer.text,
        expected=expected,
        remedy=remedy,
    )
