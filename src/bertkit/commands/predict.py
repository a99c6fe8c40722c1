"""`bertkit predict`: a fine-tuned model answers a file, an answer for each example, in order.

In: a fine-tuned model, of bertkit or transformers, files without labels (or with: they are not looked at).
Out: JSONL or TSV, a line an answer; for questions predictions.json and its kin.  Next: ../tasks/predicting.py
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.console import Progress, result, say, table
from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError
from bertkit.files import file_written_atomically, write_atomically
from bertkit.options import ALLOW_BIN, group, option
from bertkit.tasks.task_settings import OF_LABELS, QUESTIONS, require_known
from bertkit.text.readers import require_no_input

FORMATS = (".jsonl", ".tsv", ".json")
NBEST, NULL_ODDS = "nbest_predictions.json", "null_odds.json"  # beside a .json of answers to questions


@dataclass(frozen=True)
class Config:
    """The model, the questions, and where the answers go."""

    model: str = option(help="fine-tuned model: a folder, or owner/name of the Hugging Face hub")
    input_file: str = option(help="examples: paths, comma separated; globs; folders")
    output_file: str = option(
        help="answers: .jsonl (everything, exact), .tsv (for people), or for questions .json (id → text; beside it "
        "nbest_predictions.json and null_odds.json)"
    )
    reading: ReadingSettings = group(ReadingSettings, without=OF_LABELS)
    allow_bin: bool = option(False, help=ALLOW_BIN)

    def __post_init__(self) -> None:
        suffix = Path(self.output_file).suffix
        if suffix not in FORMATS:
            raise InputError(
                "has no format", field="--output_file", value=self.output_file, expected=" | ".join(FORMATS)
            )
        if Path(self.output_file).name in (NBEST, NULL_ODDS):
            raise InputError(
                "is the name of a file that is written beside it",
                field="--output_file",
                value=self.output_file,
                remedy="name another file, such as predictions.json",
            )


def run(config: Config) -> None:
    """Answer the file and say what was not seen of it.

    Raises:
        InputError: no fine-tuned model, anything wrong with the data, an input that would be overwritten.
    """
    from bertkit.data.examples.reading import ExampleReport
    from bertkit.model.hub import model_directory
    from bertkit.tasks.example_files import read_examples
    from bertkit.tasks.task_file import task_of_model

    path = Path(config.output_file)
    beside = [path.with_name(name) for name in (NBEST, NULL_ODDS)] if path.suffix == ".json" else []
    require_no_input([path, *beside], config.input_file)
    folder, reading = model_directory(config.model, allow_pickle_weights=config.allow_bin), config.reading
    name = task_of_model(folder, allow_pickle_weights=config.allow_bin)
    if path.suffix == ".json" and name != QUESTIONS:
        raise InputError(
            "is the format of answers to questions",
            field="--output_file",
            value=config.output_file,
            remedy="use .jsonl",
        )
    require_known(name, reading)
    report = ExampleReport(reading.on_bad)
    examples = read_examples(name, config.input_file, reading, report, labelled=False, flag="--input_file")
    report.say()

    from bertkit.tasks.opening import open_predictor  # torch, which takes seconds

    predictor = open_predictor(folder, allow_bin=config.allow_bin)
    predictor.say_thresholds()
    with Progress("answering", total=len(examples), unit="examples") as progress:
        answers = predictor.answers(examples, progress=progress)
        if path.suffix == ".json":
            _write_squad(path, list(answers))
        else:
            records = (
                predictor.task.record(example, answer, task=predictor.config)
                for example, answer in zip(examples, answers, strict=True)
            )
            _write_lines(path, records)
    say(table(predictor.coverage.rows()))
    result(f"answers: {config.output_file}")


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write a record a line as it comes; the file appears when it is whole."""
    header = ""
    with file_written_atomically(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for record in records:
            if path.suffix == ".jsonl":
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                continue
            if not header:
                header = "\t".join(record)
                file.write(header + "\n")
            file.write("\t".join(map(_cell, record.values())) + "\n")


def _cell(value: Any) -> str:
    """A value as a cell of a table: lists of words with spaces between, anything deeper as JSON."""
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        text = " ".join(value)
    elif isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = "" if value is None else str(value)
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ")


def _write_squad(path: Path, answers: list[Any]) -> None:
    """Write id → text, and beside it the candidates and the odds of no answer."""
    from bertkit.data.answers import nbest_json, null_odds_json, predictions_json

    contents = {
        path.name: predictions_json(answers),
        NBEST: nbest_json(answers),
        NULL_ODDS: null_odds_json(answers),
    }
    for name, content in contents.items():
        write_atomically(path.with_name(name), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
