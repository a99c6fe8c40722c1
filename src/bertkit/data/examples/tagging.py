"""Files of tagged sentences → TaggedExamples, and the tags of all splits → IOB2 and one map.

In: paths and ReadingSettings: CoNLL columns, or jsonl, json, Parquet with lists of words and tags or with spans.
Out: TaggedExamples, a TagScheme, a LabelMap.  Next: choices.py
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bertkit.data.examples.columns import field_of, first_of, id_of
from bertkit.data.examples.conll import conll_examples, holds_plain_text
from bertkit.data.examples.example import TaggedExample
from bertkit.data.examples.json_records import Record, begins_json, type_problem
from bertkit.data.examples.labels import LabelMap, tag_map, warn_of_untrained
from bertkit.data.examples.reading import ExampleReport, ReadingSettings, SchemeName
from bertkit.data.examples.spans import holds_spans, tagged_by_spans
from bertkit.data.examples.table import read_table
from bertkit.data.examples.words import Offsets, joined_words, places_of, words_of
from bertkit.data.tags import TagScheme, faults_of, recognise_scheme, to_iob2
from bertkit.errors import InputError
from bertkit.text.readers import Source, find_sources, read_lines
from bertkit.text.records import checked_text

WORDS = ("tokens", "words", "word", "text", "sentence")
RECORDS = (".json", ".jsonl", ".ndjson", ".parquet", ".pq")  # endings of the names
TAGS = ("ner_tags", "tags", "ner", "labels", "label", "entities", "pos_tags", "pos")


def read_tagged_examples(
    paths: str | None, settings: ReadingSettings, report: ExampleReport, *, labelled: bool = True, flag: str
) -> list[TaggedExample]:
    """Return the sentences of all files that `paths` names, in order, their tags as they stand.

    labelled: whether tags are needed; otherwise they are not looked at, and a file may be plain text, a sentence a
        line.
    flag: what the errors call the paths.

    Raises:
        InputErrors: what is wrong, the first 20 problems and their total; with on_bad="skip" what cannot be skipped.
    """
    examples: list[TaggedExample] = []
    for source in find_sources(paths, encoding=settings.encoding, flag=flag):
        try:
            if _is_records(source) or (not labelled and _is_plain(source, settings)):
                examples += _of_records(source, settings, report, labelled=labelled)
            else:
                examples += conll_examples(source, settings, report, labelled=labelled)
        except InputError as problem:
            report.add_fatal(problem)
    report.finish(num_examples=len(examples), flag=flag)
    return examples


def _is_plain(source: Source, settings: ReadingSettings) -> bool:
    """Whether each line of the file is a text: as it is said, else as it looks."""
    if settings.names() == ["text"]:
        return True
    return settings.text_column is None and settings.column_names is None and holds_plain_text(source)


def _is_records(source: Source) -> bool:
    """Whether the file is one of records, by its name, else by its first line; everything else is CoNLL."""
    if source.plain_name.endswith(RECORDS):
        return True
    first = next((line for _, line in read_lines(source, changed=Counter()) if line.strip()), "")
    return begins_json(first) and first.strip() not in ("{", "[")  # a word may be a bracket


def _of_records(
    source: Source, settings: ReadingSettings, report: ExampleReport, *, labelled: bool
) -> list[TaggedExample]:
    table = read_table(source, settings, report, shape=lambda rows: None, plain=None if labelled else "text")
    words = settings.text_column or first_of(table.columns, WORDS)
    tags = settings.tag_column or settings.label_column or first_of(table.columns, TAGS)
    if words is None or (tags is None and labelled):
        raise InputError(
            "no field has a name of words" if words is None else "no field has a name of tags",
            file=source.path,
            value=list(table.columns),
            expected="tokens and ner_tags (words, tags, ner), or text and label with stretches of characters",
            remedy="name it: --text_column, --tag_column",
        )
    report.note(f"{table.name}; words = {words}, tags = {(labelled and tags) or 'none'}")
    examples = []
    for record in table.records:
        try:
            examples.append(_of_record(record, source, words, tags, labelled=labelled))
        except InputError as problem:
            report.add_problem(problem)
        else:
            report.keep()
    return examples


def _of_record(
    record: Record, source: Source, word_field: str, tag_field: str | None, *, labelled: bool
) -> TaggedExample:
    value = field_of(record, word_field, source, flag="--text_column")
    tagging = field_of(record, tag_field, source, flag="--tag_column") if labelled and tag_field is not None else None
    tags: tuple[str, ...] | None = None
    words: tuple[str, ...]
    if isinstance(value, str):
        text = checked_text(value, source, record.line, word_field)
        if holds_spans(tagging) and (tagging or not isinstance(tagging, list) or not text):
            words, offsets, tags = tagged_by_spans(text, tagging, record, source, tag_field or "")
        elif isinstance(tagging, list) and not tagging:
            words, offsets, tags = tagged_by_spans(text, [], record, source, tag_field or "")
        elif labelled or _is_a_tag_each(record.fields.get(tag_field or ""), text):
            words, offsets = tuple(text), tuple((place, place + 1) for place in range(len(text)))
        else:
            offsets = words_of(text)
            words = tuple(text[start:end] for start, end in offsets)
    else:
        words = _strings(value, record, source, word_field)
        text, offsets = _placed(words, record)
    if not words:
        raise InputError("no word", file=source.path, line=record.line, field=word_field, value=value)
    if labelled and tag_field is not None and tags is None:
        tags = _strings(tagging, record, source, tag_field)
        if len(tags) != len(words):
            raise InputError(
                f"{len(tags)} tags for {len(words)} words",
                file=source.path,
                line=record.line,
                field=tag_field,
                value=tagging,
                expected="a tag for each word",
            )
    place = str(source.path)
    return TaggedExample(id_of(record, source, column="id"), text, words, offsets, tags, 0, place, (record.line,))


def _is_a_tag_each(tagging: object, text: str) -> bool:
    """Whether these are the tags of a text's characters: then its words are the characters, whatever the tags say."""
    return isinstance(tagging, list) and len(tagging) == len(text) and not holds_spans(tagging)


def _placed(words: tuple[str, ...], record: Record) -> tuple[str, Offsets]:
    """The text in which the words stand: the record's own, if it holds one, else the words joined."""
    text = record.fields.get("text")
    if isinstance(text, str):
        offsets = places_of(words, text)
        if offsets is not None:
            return text, offsets
    return joined_words(words)


def _strings(value: object, record: Record, source: Source, field: str) -> tuple[str, ...]:
    """A list of strings; whole numbers (tags of a set exported without their names) are their digits."""
    if not isinstance(value, list):
        raise type_problem(value, record, source, field, expected="an array of strings")
    strings = []
    for entry in value:
        if isinstance(entry, int) and not isinstance(entry, bool):
            entry = str(entry)
        if not isinstance(entry, str):
            raise type_problem(entry, record, source, field, expected="an array of strings")
        strings.append(checked_text(entry, source, record.line, field))
    return tuple(strings)


def resolve_tags(
    splits: Mapping[str, Sequence[TaggedExample]],
    settings: ReadingSettings,
    report: ExampleReport,
    *,
    usual: SchemeName | None = None,
) -> tuple[TagScheme, dict[str, list[TaggedExample]], LabelMap]:
    """Return the scheme of all splits together, the examples with IOB2 tags (of plain classes as they are), the map.

    usual: the scheme where no other is asked for and all tags are sound in it; else it is read from the tags.

    Raises:
        InputErrors: tags that the scheme does not allow; with repair_tags they are repaired and counted, with
            on_bad="skip" their sentences left out.
    """
    every = [example.tags for examples in splits.values() for example in examples if example.tags is not None]
    scheme = recognise_scheme(every)
    if settings.scheme is not None:
        scheme = TagScheme(settings.scheme, f"{settings.scheme}, by --scheme")
    elif usual not in (None, scheme.name) and not any(faults_of(tags, usual) for tags in every):
        scheme = TagScheme(usual, f"{usual}, as in the training of the model")
    report.note(f"tags: {scheme.reason}" + ("" if scheme.name in ("IOB2", "classes") else "; written as IOB2"))
    resolved: dict[str, list[TaggedExample]] = {}
    for split, examples in splits.items():
        resolved[split] = []
        for example in examples:
            sound = _sound(example, scheme, settings, report)
            if sound is not None:
                resolved[split].append(sound)
    report.finish(num_examples=sum(map(len, resolved.values())), flag="tags")
    tags = tag_map([example for examples in resolved.values() for example in examples])
    if all(tag.isdigit() for tag in tags.names):
        report.warn("tags are numbers: answers will be numbers too; give the names of the tags to get names")
    counts = {split: Counter(tag for e in examples for tag in e.tags or ()) for split, examples in resolved.items()}
    warn_of_untrained(counts, report, what="tag")
    return scheme, resolved, tags


def _remedy(settings: ReadingSettings, *, may_be_repaired: bool) -> str:
    scheme = "name the --scheme" if may_be_repaired else "name the --scheme (classes: tags that mark nothing)"
    others = [scheme] if settings.scheme is None else []
    others += ["--repair_tags"] if may_be_repaired else []
    return "; or ".join(["mend the tag", *others])


def _sound(
    example: TaggedExample, scheme: TagScheme, settings: ReadingSettings, report: ExampleReport
) -> TaggedExample | None:
    """The example with IOB2 tags; None: it is broken, which the report knows."""
    if example.tags is None:
        return example
    faults = faults_of(example.tags, scheme.name)
    unknown = next((fault for fault in faults if fault.problem.startswith("the tag is none")), None)
    fault = unknown or next(iter(faults), None)
    if fault is not None and (unknown is not None or not settings.repair_tags):
        report.reject(
            InputError(
                f"{fault.problem} ({scheme.reason})",
                file=example.file,
                line=example.line_of(fault.word),
                field="tag",
                value=example.tags[fault.word],
                expected=fault.expected,
                remedy=_remedy(settings, may_be_repaired=unknown is None),
            )
        )
        return None
    if faults:
        report.changed["tag repaired"] += len(faults)
    return replace(example, tags=to_iob2(example.tags, scheme.name))
