"""What is asked of the readers of labelled files, and what they report.

In: settings as a user gives them.  Out: ReadingSettings, and an ExampleReport that accounts for every record.
Next: json_records.py
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from bertkit.console import say, warn
from bertkit.errors import SHOWN_PROBLEMS, InputError, InputErrors
from bertkit.options import option

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
SchemeName = Literal["IOB1", "IOB2", "BIOES", "BMES", "BILOU", "classes"]


@dataclass(frozen=True)
class ReadingSettings:
    """How labelled files are read; None leaves it to what the file shows, and what was found is said."""

    text_column: str | None = option(None, help="column of the text (the question, the words), by name or number")
    text_pair_column: str | None = option(None, help="column of the second text, by name or number")
    label_column: str | None = option(
        None, help="column of the label, by name or number; several 0/1 columns, comma separated, are a multi-label one"
    )
    column_names: str | None = option(None, help="names of the columns of a file without header, comma separated")
    separator: str | None = option(None, help='what stands between the fields of a line, such as "_!_"')
    pair_separator: str | None = option(None, help='what stands between the two texts of one field, such as " ||| "')
    tag_column: str | None = option(None, help="column of the tags (CoNLL: its number), by name or number")
    choice_columns: str | None = option(None, help="columns of the choices, comma separated")
    context: Literal["sent1", "startphrase"] = option(
        "sent1", help="of SWAG: A is sent1 and B is sent2 + ending, or A is the whole startphrase and B the ending"
    )
    scheme: SchemeName | None = option(None, help="how tags mark entities (none: read from the tags)")
    problem_type: ProblemType | None = option(None, help="kind of label (none: read from the labels)")
    on_bad: Literal["error", "skip"] = option("error", help="what becomes of a record that is broken: stop, or count")
    repair_offsets: bool = option(False, help="move a misplaced answer to the nearest place where its text stands")
    on_bad_answers: Literal["error", "use", "drop"] = option(
        "error", help="what becomes of an answer whose text does not stand at its place in the context"
    )
    repair_tags: bool = option(False, help="let an I- that continues nothing begin an entity, instead of an error")
    encoding: str = option("utf-8", help="of the text files, by any name Python knows")

    def __post_init__(self) -> None:
        """Check what stands in no relation to a file."""
        for name in ("separator", "pair_separator"):
            if getattr(self, name) == "":
                raise InputError("is empty", field=f"--{name}", expected="one character or more")
        if self.separator is not None and self.column_names is None and self.separator == self.pair_separator:
            raise InputError(
                "is the separator of fields too",
                field="--pair_separator",
                value=self.pair_separator,
                remedy="leave it out: three fields are read as text, second text, label",
            )

    def names(self) -> list[str] | None:
        """Return the column names that were given."""
        return None if self.column_names is None else [name.strip() for name in self.column_names.split(",")]


@dataclass
class ExampleReport:
    """What became of every record of the files read; `read == kept + sum(dropped) + num_problems`.

    With on_bad="error" no example is handed out unless num_problems is 0.
    """

    on_bad: Literal["error", "skip"] = "error"
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)  # what was passed on otherwise than it stood in the file
    notes: list[str] = field(default_factory=list)  # what was recognised, to be said
    warnings: list[str] = field(default_factory=list)  # what is likely not meant
    problems: list[InputError] = field(default_factory=list)  # the first 20
    num_problems: int = 0
    vector_widths: set[int | None] = field(default_factory=set)  # of lists of labels; None: lists of names
    _fatal: int = 0

    def drop(self, reason: str, count: int = 1) -> None:
        """Account for records that are no examples for a good reason."""
        self.read += count
        self.dropped[reason] += count

    def keep(self, count: int = 1) -> None:
        """Account for records that became examples."""
        self.read += count
        self.kept += count

    def add_problem(self, problem: InputError) -> None:
        """Account for a record that is broken."""
        self.read += 1
        self.num_problems += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(problem)

    def reject(self, problem: InputError) -> None:
        """Account for a record that was kept and then was found to be broken."""
        self.read -= 1
        self.kept -= 1
        self.add_problem(problem)

    def add_fatal(self, problem: InputError) -> None:
        """Note what no skipping of records can mend: a file that cannot be read on, columns that are not there."""
        self.add_problem(problem)
        self._fatal += 1

    def note(self, text: str) -> None:
        """Keep a note once, however many files give rise to it."""
        if text not in self.notes:
            self.notes.append(text)

    def warn(self, text: str) -> None:
        """Keep a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def finish(self, *, num_examples: int, flag: str) -> None:
        """Raise what was found; with on_bad="skip" only what cannot be skipped, and that nothing is left.

        num_examples: of the files of this flag.

        Raises:
            InputErrors: the first 20 problems and their total.
        """
        if self.num_problems and (self.on_bad == "error" or self._fatal):
            raise InputErrors(self.problems, total=self.num_problems)
        if num_examples == 0:
            rows = ", ".join(f"{what}: {count:,}" for what, count in self.rows())
            nothing = InputError("no example is left", field=flag, value=rows, remedy="mend the files")
            raise InputErrors([*self.problems, nothing], total=self.num_problems + 1)

    def say(self) -> None:
        """Say what was recognised, changed, dropped and skipped."""
        for note in self.notes:
            say(note)
        for text in self.warnings:
            warn(text)
        for what, count in self.rows():
            say(f"  {what}: {count:,}")

    def rows(self) -> list[tuple[str, int]]:
        """Return what was read, kept, dropped, skipped and changed as rows of a table."""
        rows = [("records read", self.read), ("records kept", self.kept)]
        rows += [(f"records dropped: {reason}", count) for reason, count in self.dropped.items()]
        rows += [("records skipped as broken", self.num_problems)] if self.num_problems else []
        return rows + [(f"changed: {what}", count) for what, count in self.changed.items()]
