"""`bertkit inspect data STORE`: what training will see of a store: its report, finished rows, a page of both.

In: a store of `bertkit prepare` and the settings that training would have.  Out: tables, rows, one line of JSON, HTML.
Next: data/statistics.py, data/finished_rows.py, report/store_page.py
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertkit import console
from bertkit.data.finished_rows import FinishedRow, finished_rows
from bertkit.data.instances import read_phrases
from bertkit.data.mask_statistics import SAMPLE_ROWS
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.prepared import open_prepared
from bertkit.data.statistics import StoreStatistics, store_statistics
from bertkit.data.store import PARTS, Store
from bertkit.errors import InputError
from bertkit.options import argument, group, option, values_of
from bertkit.report.store_page import require_plotly, write_store_page
from bertkit.tasks.recipes import MASKING_OF_DEFAULT_RECIPE, TRAINING_OF_DEFAULT_RECIPE
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.settings import TrainSettings

ROWS_ON_A_PAGE = 3  # where --show says nothing
NO_SETTINGS = frozenset({"show", "html", "json"})  # they decide nothing of what is shown


@dataclass(frozen=True)
class Config:
    """Which part of which store, what to print, and the settings of training that decide pairs, masks and batches.

    These are by default those of `bertkit pretrain`.
    """

    store: str = argument(help="folder that `bertkit prepare` wrote")
    part: Literal["train", "validation", "test"] = option("train", help="part of the store")
    show: int | None = option(
        None, help="finished rows shown, before and after masking, token by token; null: none, 3 on the page"
    )
    html: str | None = option(None, help="file to write the same to, with histograms, as one page that opens offline")
    json: bool = option(False, help="print everything as one line of JSON")
    batch_size: int = option(TRAINING_OF_DEFAULT_RECIPE["batch_size"], help="rows a step, over all devices")
    micro_batch_tokens: int = option(
        TrainSettings().micro_batch_tokens, help="most tokens in one forward pass, padding counted"
    )
    seed: int = option(12345, help="seed of training: order, pairs and masks")
    pairs: PairSettings = group(PairSettings)
    masking: MaskingSettings = group(
        MaskingSettings,
        defaults=MASKING_OF_DEFAULT_RECIPE,
        without=("final_mlm_probability",),  # shown is one rate
    )

    def __post_init__(self) -> None:
        for name, value, smallest in (
            ("show", self.show or 0, 0),
            ("batch_size", self.batch_size, 1),
            ("micro_batch_tokens", self.micro_batch_tokens, 1),
            ("seed", self.seed, 0),
        ):
            if value < smallest:
                raise InputError("is too small", field=f"--{name}", value=value, expected=f"{smallest} or more")

    @property
    def num_rows(self) -> int:
        """Finished rows shown."""
        return (ROWS_ON_A_PAGE if self.html is not None else 0) if self.show is None else self.show


def run(config: Config) -> None:
    """Print the report of the part, and the rows asked for; write the page.

    Raises:
        InputError: no such store or part; another vocabulary than the store's; plotly is missing for --html.
    """
    if config.html is not None:
        require_plotly()
        _require_a_page(Path(config.html))
    store, tokenizer = _opened(config)
    phrases = read_phrases(config.masking, tokenizer)
    statistics = store_statistics(
        store,
        tokenizer.vocabulary,
        config.pairs,
        config.masking,
        seed=config.seed,
        batch_size=config.batch_size,
        micro_batch_tokens=config.micro_batch_tokens,
        phrases=phrases,
    )
    rows: list[FinishedRow] = []
    if statistics.pairs is not None:
        rows = finished_rows(
            store, tokenizer, config.pairs, config.masking, seed=config.seed, number=config.num_rows, phrases=phrases
        )
    if config.json:
        shown = [row.to_json() for row in rows]
        settings = values_of(config)
        console.result_json({"settings": settings, "statistics": statistics.to_json(), "rows": shown})
    else:
        _print(statistics, rows[: config.show or 0])
    if config.html is not None:
        _write_page(Path(config.html), config, statistics, rows)


def _opened(config: Config) -> tuple[Store, Tokenizer]:
    parts, tokenizer = open_prepared(config.store)
    if config.part not in parts:
        have = ", ".join(part for part in PARTS if part in parts)
        raise InputError("is empty", file=config.store, field="--part", value=config.part, expected=f"one of {have}")
    return parts[config.part], tokenizer


def _require_a_page(path: Path) -> None:
    """Refuse to write over a file that is no page."""
    if path.exists() and not (path.is_file() and path.read_bytes()[:15].lower() == b"<!doctype html>"):
        raise InputError("is no page, and would be replaced", file=path, field="--html", remedy="name another file")


def _print(statistics: StoreStatistics, rows: list[FinishedRow]) -> None:
    for heading, _, table in statistics.sections():
        console.result(f"{heading}:\n{console.table(table)}")
    for row in rows:
        console.result(row.shown())


def _write_page(path: Path, config: Config, statistics: StoreStatistics, rows: list[FinishedRow]) -> None:
    notes = [
        f"Pairs, masks and padding are those of the first epoch with seed {config.seed}; masks of at most "
        f"{SAMPLE_ROWS:,} rows drawn uniformly."
    ]
    settings = [(f"--{name}", str(value)) for name, value in values_of(config).items() if name not in NO_SETTINGS]
    write_store_page(
        path,
        title=f"BERT data: {Path(config.store).resolve().name}, {config.part}",
        sections=[*statistics.sections(), ("Settings", "设置", settings)],
        histograms=statistics.histograms(),
        rows=[row.to_json() for row in rows],
        notes=notes,
    )
    console.say(f"page: {path}")
