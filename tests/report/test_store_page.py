"""The page of a store: one file, nothing from outside, no text that becomes markup, the very numbers of the tables."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sample_run import HOSTILE
from toy_page import toy_rows, toy_statistics, write_toy_page

from bertkit.errors import InputError
from bertkit.report import frame
from bertkit.report.store_labels import LABELS_ZH
from bertkit.report.store_page import write_store_page

pytest.importorskip("plotly", reason='the report needs the extra "report"')


class Outline(HTMLParser):
    """Elements, texts and scripts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and data.strip():
            self.scripts.append(data)
        else:
            self.text += data


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toy_page(tmp_path_factory.mktemp("page") / "data.html")


def test_every_number_of_the_tables_stands_on_the_page(html: str) -> None:
    text = Outline(html).text
    for heading, heading_zh, rows in toy_statistics().sections():
        assert f"{heading} {heading_zh}" in text
        for row in rows:
            for cell in row:
                assert (f"{cell:,}" if isinstance(cell, int | float) else str(cell)) in text


def test_every_row_that_is_no_flag_has_its_label_in_chinese_too() -> None:
    named = {"Most frequent tokens", "Most repeated sentences"}
    sections = [rows for heading, _, rows in toy_statistics().sections() if heading not in named]
    labels = {str(row[0]) for rows in sections for row in rows if row[0] and not str(row[0]).startswith("--")}
    assert labels - LABELS_ZH.keys() == set()


def test_the_bars_are_the_counts_of_the_histograms(html: str) -> None:
    figures = json.loads(Outline(html).scripts[0])
    histograms = toy_statistics().histograms()
    assert figures.keys() == histograms.keys()
    for name, histogram in histograms.items():
        [bars] = figures[name]["data"]
        assert bars["y"] == histogram["counts"]
        assert bars["x"][0] - (histogram["width"] - 1) / 2 == histogram["start"]


def test_what_the_bars_leave_out_is_said(tmp_path: Path) -> None:
    histogram = {"start": 0, "width": 20, "counts": [3, 4], "beyond": 1234}
    write_store_page(tmp_path / "a.html", title="t", sections=[], histograms={"document_tokens": histogram}, rows=[])
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "1,234 beyond the last bar are not drawn" in page
    assert "Each bar counts documents of 20 neighbouring lengths." in page
    assert '"0 to 19"' in Outline(page).scripts[0]


def test_hidden_tokens_are_marked_before_and_after(html: str) -> None:
    rows = toy_rows()
    before = [one for row in rows for one in row["tokens"] if one["label"] is not None]
    marks = re.findall(r"<mark class=(\w+)>([^<]*)</mark>", html)[4:]  # behind the legend
    assert len(marks) == 2 * len(before)
    kinds = [kind for kind, _ in marks]
    assert kinds.count("hidden") == len(before)
    assert kinds.count("gap") == sum(one["token"] == "[MASK]" for one in before)
    assert kinds.count("right") == sum(one["id"] == one["label_id"] for one in before)
    assert {"hidden", "gap", "wrong", "right"} == set(kinds)


def test_every_token_of_a_shown_row_stands_in_its_table(html: str) -> None:
    rows = toy_rows()
    cells = re.findall(r"<tr(?: class=hidden)?><td>(\d+)</td><td>([^<]*)</td><td>(\d+)</td>", html)
    assert [token for _, token, _ in cells] == [one["token"] for row in rows for one in row["tokens"]]
    assert html.count("<tr class=hidden>") == sum(one["label"] is not None for row in rows for one in row["tokens"])


def test_without_rows_and_pairs_there_is_a_page_of_the_corpus(tmp_path: Path) -> None:
    page = write_toy_page(tmp_path / "a.html", rows=[])
    assert "Finished rows" not in page


def test_the_page_is_the_same_every_time(html: str, tmp_path: Path) -> None:
    assert write_toy_page(tmp_path / "again.html") == html


def test_nothing_is_fetched_and_only_the_scripts_of_the_page_may_run(html: str) -> None:
    outline = Outline(html)
    for tag, attributes in outline.elements:
        assert tag not in ("iframe", "object", "embed", "img", "base", "form"), tag
        assert not attributes.get("src"), (tag, attributes)
        assert attributes.get("href", "data:,") == "data:,"
    [policy] = [str(a["content"]) for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in outline.scripts[1:]]
    assert directives["script-src"] == " ".join(f"'sha256-{value}'" for value in hashes)


PAYLOADS = [
    HOSTILE,
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<!--<script>",
    "&lt;script&gt;",
    "\u2028<script>明月</script>",
    "</style></title></textarea><script>alert(1)</script>",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_store_becomes_markup(html: str, tmp_path: Path, payload: str) -> None:
    row: dict[str, Any] = toy_rows(1)[0]
    row |= {"relation": payload}
    row["tokens"] = [
        {**one, "token": payload, "label": payload, "text_before": payload, "text_after": f" {payload}"}
        for one in row["tokens"]
    ]
    statistics = toy_statistics()
    sections = [*statistics.sections(), (payload, payload, [("", payload), (payload, payload, 3)])]
    path = tmp_path / "hostile.html"
    write_store_page(
        path, title=payload, sections=sections, histograms=statistics.histograms(), rows=[row], notes=[payload]
    )
    outline, plain = Outline(path.read_text(encoding="utf-8")), Outline(html)
    assert {tag for tag, _ in outline.elements} == {tag for tag, _ in plain.elements}
    assert sum(tag == "script" for tag, _ in outline.elements) == 3
    assert not any(name.startswith("on") for _, attributes in outline.elements for name in attributes)
    assert outline.text.count(payload) > 10


def test_without_plotly_the_way_to_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--html: the page needs plotly(.|\n)*pip install \"bertkit\[report\]\""):
        write_toy_page(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
