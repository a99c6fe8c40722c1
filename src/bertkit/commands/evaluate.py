"""`bertkit evaluate`: how well a fine-tuned model does on labelled files.

In: a fine-tuned model, of bertkit or transformers, labelled files.  Out: figures, printed and as JSON.
Next: ../tasks/predicting.py
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.console import Progress, result, result_json, say, table, warn
from bertkit.data.examples.reading import ReadingSettings
from bertkit.files import write_atomically
from bertkit.options import ALLOW_BIN, group, option
from bertkit.tasks.task_settings import require_known
from bertkit.text.readers import require_no_input

SHOWN_LABELS = 12  # of a confusion that is printed: more do not fit a line


@dataclass(frozen=True)
class Config:
    """The model and the data."""

    model: str = option(help="fine-tuned model: a folder, or owner/name of the Hugging Face hub")
    input_file: str = option(help="labelled examples: paths, comma separated; globs; folders")
    output_file: str | None = option(None, help="JSON file for the figures and tables")
    json: bool = option(False, help="print everything as one line of JSON")
    reading: ReadingSettings = group(ReadingSettings)
    allow_bin: bool = option(False, help=ALLOW_BIN)


def run(config: Config) -> None:
    """Print the figures.

    Raises:
        InputError: --output_file is one of the inputs; what `evaluate` raises.
    """
    if config.output_file is not None:
        require_no_input([Path(config.output_file)], config.input_file)
    figures, tables, coverage = evaluate(config)
    everything = {**figures, **tables, "coverage": coverage}
    if config.output_file is not None:
        write_atomically(Path(config.output_file), json.dumps(everything, indent=2, ensure_ascii=False) + "\n")
    if config.json:
        result_json(everything)
        return
    say(table(coverage.items()))
    result(table([(name, f"{value:.4f}") for name, value in figures.items()]))
    for title, rows in tables.items():
        if title == "warning":
            warn(rows)
        else:
            result(f"{title}:\n{_shown(title, rows)}")


def evaluate(config: Config) -> tuple[dict[str, float], dict[str, Any], dict[str, int]]:
    """Return figures, tables, and the counts of what the model did not get to see.

    Raises:
        InputError: no fine-tuned model, anything wrong with the data, labels that the model does not have.
    """
    from bertkit.data.examples.reading import ExampleReport
    from bertkit.model.hub import model_directory
    from bertkit.tasks.example_files import read_examples
    from bertkit.tasks.task_file import task_of_model

    folder, reading = model_directory(config.model, allow_pickle_weights=config.allow_bin), config.reading
    name = task_of_model(folder, allow_pickle_weights=config.allow_bin)
    require_known(name, reading)
    report = ExampleReport(reading.on_bad)
    examples = read_examples(name, config.input_file, reading, report, labelled=True, flag="--input_file")

    from bertkit.tasks.opening import open_predictor  # torch, which takes seconds

    predictor = open_predictor(folder, allow_bin=config.allow_bin)
    predictor.say_thresholds()
    examples = predictor.fitting(examples, reading, report)
    with Progress("answering", total=len(examples), unit="examples") as progress:
        answers = list(predictor.answers(examples, progress=progress))
    figures, tables = predictor.metrics(examples, answers)
    return figures, tables, dict(predictor.coverage.rows())


def _shown(title: str, rows: Any) -> str:
    if not isinstance(rows, dict) or not rows:
        return f"  {rows}"
    if title == "confusion":
        return _confusion(rows["labels"], rows["rows"])
    first = next(iter(rows.values()))
    if isinstance(first, dict):
        head = ("", *first)
        return table([head, *((name, *map(_number, row.values())) for name, row in rows.items())])
    return table([(name, _number(value)) for name, value in rows.items()])


def _confusion(labels: list[str], rows: list[list[int]]) -> str:
    """A row for each right label, a column for each that was given; a large one is left to the file."""
    if len(labels) > SHOWN_LABELS:
        return f"  {len(labels)} × {len(labels)} labels: see --output_file or --json"
    return table([("right ↓ given →", *labels), *((name, *row) for name, row in zip(labels, rows, strict=True))])


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
