"""Files of questions on texts → QuestionExamples: SQuAD 1.1 and 2.0, CMRC 2018, DRCD, and flat rows.

In: paths and ReadingSettings.  Out: QuestionExamples whose answers stand where they say.  Next: gold_answers.py
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bertkit.data.examples.columns import field_of, text_of
from bertkit.data.examples.example import Answer, QuestionExample
from bertkit.data.examples.gold_answers import checked_answers
from bertkit.data.examples.json_records import Record, type_problem
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.examples.table import Table, read_tables
from bertkit.errors import InputError
from bertkit.text.readers import Source
from bertkit.text.records import checked_text

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')
_LAYOUT = '{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", …'


def read_question_examples(
    paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool = True, flag: str
) -> list[QuestionExample]:
    """Return the questions of all files that `paths` names, in order; ids are different over all of them.

    labelled: whether a question needs `answers`; otherwise they are not looked at.
    flag: what the errors call the paths.

    Raises:
        InputErrors: what is wrong, misplaced answers included (see on_bad_answers), the first 20 problems and their
            total; with on_bad="skip" what cannot be skipped.
    """
    examples: list[QuestionExample] = []
    first_places: dict[str, QuestionExample] = {}
    for table in read_tables(paths, settings, report, shape=lambda rows: None, flag=flag):
        nested = any("paragraphs" in record.fields for record in table.records)
        said = "articles of paragraphs (SQuAD)" if nested else "a question in each record"
        report.note(f"{table.name}; {said}")
        source = table.source
        for item in _nested(table, labelled) if nested else _flat(table, settings, labelled):
            if isinstance(item, InputError):
                report.add_problem(item)
                continue
            twin = first_places.setdefault(item.id, item)
            if twin is not item:
                report.add_problem(_repeated(item, twin, source))
                continue
            checked = checked_answers(item, settings, report)
            if checked is not None:
                examples.append(checked)
                report.keep()
    empty = [example for example in examples if not example.question.strip()]
    if empty:  # CMRC 2018 has some
        report.warn(f"{len(empty):,} questions are empty, first in {empty[0].file}:{empty[0].line}")
    report.finish(num_examples=len(examples), flag=flag)
    return examples


def has_unanswerable(examples: list[QuestionExample]) -> bool:
    """Return whether some question is labelled as having no answer (SQuAD 2.0)."""
    return any(example.is_impossible for example in examples)


def _repeated(item: QuestionExample, twin: QuestionExample, source: Source) -> InputError:
    return InputError(
        "the id stands twice",
        file=source.path,
        line=item.line,
        field="id",
        value=item.id,
        expected=f"an id of its own: it stands in {twin.file}:{twin.line} too",
        remedy="answers are written by id: give each question one",
    )


Item = QuestionExample | InputError


def _nested(table: Table, labelled: bool) -> Iterator[Item]:
    """The questions of articles, paragraph by paragraph."""
    for number, record in enumerate(table.records):
        lines = _lines_of_ids(record)
        source, title = table.source, record.fields.get("title")
        title = title if isinstance(title, str) else ""
        path = f"data[{number}]"
        paragraphs = record.fields.get("paragraphs")
        if not isinstance(paragraphs, list):
            yield type_problem(paragraphs, record, source, f"{path}.paragraphs", expected=_LAYOUT)
            continue
        line = record.line
        for place, paragraph in enumerate(paragraphs):
            here = f"{path}.paragraphs[{place}]"
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(questions, list) or not isinstance(paragraph.get("context"), str):
                yield _missing(source, line, here, paragraph)
                continue
            for index, question in enumerate(questions):
                where = f"{here}.qas[{index}]"
                if not isinstance(question, dict):
                    yield type_problem(question, Record(line, {}), source, where, expected=_LAYOUT)
                    continue
                line = _line_of(question.get("id"), lines, line)
                fields = {**question, "context": paragraph["context"], "title": title}
                yield _question(Record(line, fields), source, where, title or path, labelled)


def _missing(source: Source, line: int, where: str, paragraph: object) -> InputError:
    return InputError(
        "the paragraph has no context or no list of questions",
        file=source.path,
        line=line,
        field=where,
        value=list(paragraph) if isinstance(paragraph, dict) else paragraph,
        expected='{"context": "…", "qas": […]}',
    )


def _lines_of_ids(record: Record) -> Iterator[tuple[str, int]]:
    """Every `"id": …` of an article's JSON text, in order, with its line: the parser does not tell places."""
    newlines = [match.start() for match in re.finditer("\n", record.raw)]
    for match in _ID.finditer(record.raw):
        yield str(json.loads(match[1])), record.line + bisect_right(newlines, match.start())


def _line_of(id: object, lines: Iterator[tuple[str, int]], before: int) -> int:
    """The line of the next id that is this one; the one before, if there is none."""
    if not isinstance(id, str | int):
        return before
    return next((line for found, line in lines if found == str(id)), before)


def _flat(table: Table, settings: ReadingSettings, labelled: bool) -> Iterator[Item]:
    """The questions of rows id, title, context, question, answers."""
    for record in table.records:
        fields = dict(record.fields)
        if settings.text_column is not None and settings.text_column in fields:
            fields["question"] = fields[settings.text_column]
        if settings.text_pair_column is not None and settings.text_pair_column in fields:
            fields["context"] = fields[settings.text_pair_column]
        answers = fields.get("answers")
        if isinstance(answers, str) and labelled:  # of a table
            try:
                fields["answers"] = json.loads(answers)
            except (ValueError, RecursionError):
                yield InputError(
                    "the answers are no JSON",
                    file=table.source.path,
                    line=record.line,
                    field="answers",
                    value=answers,
                    expected='{"text": ["…"], "answer_start": [0]}',
                )
                continue
        title = fields.get("title")
        fields.setdefault("id", f"{table.source.name}:{record.line}")
        article = title if isinstance(title, str) and title else str(fields.get("context"))
        yield _question(Record(record.line, fields), table.source, "", article, labelled)


def _question(record: Record, source: Source, where: str, article: str, labelled: bool) -> Item:
    """One question, its answers as they stand."""
    prefix = f"{where}." if where else ""
    fields = record.fields
    try:
        id = field_of(record, "id", source, flag="id")
        if not isinstance(id, str | int) or isinstance(id, bool) or id == "":
            raise type_problem(id, record, source, f"{prefix}id", expected="a string or a number")
        question = text_of(record, "question", source, flag="--text_column", may_be_empty=True)
        context = text_of(record, "context", source, flag="--text_pair_column", may_be_empty=True)
        given = fields.get("answers") if labelled else None
        if given is None and labelled and not fields.get("is_impossible"):
            field_of(record, "answers", source, flag="answers")
            expected = "an array: [] says that there is no answer"
            raise type_problem(None, record, source, f"{prefix}answers", expected=expected)
        impossible = fields.get("is_impossible", False) if labelled else False
        if not isinstance(impossible, bool):
            expected = "true or false"
            raise type_problem(impossible, record, source, f"{prefix}is_impossible", expected=expected)
        answers = () if given is None else _answers(given, record, source, f"{prefix}answers")
        if impossible and answers:
            raise InputError(
                "the question is impossible, and has an answer",
                file=source.path,
                line=record.line,
                field=f"{prefix}answers",
                value=answers[0].text,
                expected="is_impossible false, or no answers",
            )
    except InputError as problem:
        return problem
    title = fields.get("title")
    no_answer = impossible or (labelled and "answers" in fields and not answers)
    return QuestionExample(
        id=str(id),
        title=title if isinstance(title, str) else "",
        question=question,
        context=context,
        answers=answers,
        is_impossible=no_answer,
        article=article,
        file=str(source.path),
        line=record.line,
    )


def _answers(given: Any, record: Record, source: Source, where: str) -> tuple[Answer, ...]:
    """The answers of either layout: a list of objects, or an object of two lists."""
    entries: list[Any]
    match given:
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            entries = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        case list(entries):
            pass
        case _:
            raise type_problem(given, record, source, where, expected='[{"text": "…", "answer_start": 0}]')
    answers = []
    for place, entry in enumerate(entries):
        match entry:
            case {"text": str(text), "answer_start": int(start)} if text and not isinstance(start, bool):
                answers.append(Answer(checked_text(text, source, record.line, f"{where}[{place}].text"), start))
            case _:
                raise InputError(
                    "the answer has no text or no place",
                    file=source.path,
                    line=record.line,
                    field=f"{where}[{place}]",
                    value=entry,
                    expected='{"text": "…", "answer_start": 0}',
                )
    return tuple(dict.fromkeys(answers))


def without_answers(example: QuestionExample) -> QuestionExample:
    """Return the question as someone asks it who does not know the answer."""
    return replace(example, answers=(), is_impossible=False)
