"""The page of a toy store: poems and English sentences, and rows into which any text may be put."""

from pathlib import Path
from typing import Any

from toy_data import TOY, memory_store, toy_ids

from bertkit.data.finished_rows import finished_rows
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.statistics import StoreStatistics, store_statistics
from bertkit.report.store_page import write_store_page
from bertkit.text.tokenizer import make_tokenizer

PAIRS, MASKING = PairSettings(max_seq_length=32), MaskingSettings(mlm_probability=0.4, mask_replace_prob=0.4)


def toy_statistics() -> StoreStatistics:
    """The numbers of the toy store."""
    return store_statistics(_store(), TOY, PAIRS, MASKING, seed=1, batch_size=8, micro_batch_tokens=128)


def toy_rows(number: int = 4) -> list[dict[str, Any]]:
    """Finished rows of the toy store, as JSON."""
    tokenizer = make_tokenizer(TOY, do_lower_case=True)
    return [row.to_json() for row in finished_rows(_store(), tokenizer, PAIRS, MASKING, seed=1, number=number)]


def write_toy_page(
    path: Path, *, rows: list[dict[str, Any]] | None = None, title: str = "BERT data: 宋词, train"
) -> str:
    """Write the page and return it."""
    statistics = toy_statistics()
    write_store_page(
        path,
        title=title,
        sections=statistics.sections(),
        histograms=statistics.histograms(),
        rows=toy_rows() if rows is None else rows,
        notes=["seed 1"],
    )
    return path.read_text(encoding="utf-8")


def _store() -> Any:
    chinese = [toy_ids("明月几时有，把酒问青天。"), toy_ids("不知天上宫阙，今夕是何年。"), toy_ids("青天明月。")]
    english = [
        toy_ids("in the beginning god created the heaven and the earth ."),
        toy_ids("god s ##ning , the earth .".replace(" s ", " ##s ")),
    ]
    return memory_store([[*chinese, *english][: 2 + place % 4] for place in range(60)])
