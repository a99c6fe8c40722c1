"""`bertkit report RUN`: write the HTML page of a run again.

In: the folder of a run, also of one that still goes on.  Out: RUN/report.html, its path printed.
Next: report/page.py
"""

from dataclasses import dataclass
from pathlib import Path

from bertkit import console
from bertkit.errors import InputError
from bertkit.options import argument
from bertkit.report.page import write_report


@dataclass(frozen=True)
class Config:
    """What `bertkit report` is told."""

    run: Path = argument(help="folder of a run: what --output_dir of pretrain, finetune or demo named")


def run(config: Config) -> None:
    """Write the page and print where it is.

    Raises:
        InputError: plotly is not installed; the folder is no run.
    """
    path = write_report(config.run)
    if path is None:
        remedy = 'pip install "bertkit[report]"'
        raise InputError("the report needs plotly, which is not installed", remedy=remedy)
    console.result(str(path))
