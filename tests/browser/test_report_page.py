"""The page in a real browser: charts are drawn, nothing leaves, nothing from text runs."""

import re
from pathlib import Path

import pytest
from browser_visit import BROWSER, Visit, visit
from sample_run import write_sample_run

from bertkit.report.page import write_report

pytest.importorskip("plotly", reason='the report needs the extra "report"')
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    folder = tmp_path_factory.mktemp("browser")
    path = write_report(write_sample_run(folder / "宋词"))
    assert path is not None
    return visit(path, folder)


@pytest.mark.parametrize(
    ("chart", "curves", "titles"),
    [
        ("mlm_accuracy", 3, ["step", "accuracy (%)"]),
        ("nsp_accuracy", 2, ["step", "accuracy (%)"]),
        ("losses", 7, ["step", "loss (nats)", "unigram baseline (6.20)", "sum, held-out"]),
        ("learning_rate", 1, ["step", "learning rate"]),
    ],
)
def test_every_chart_is_drawn_with_its_curves_and_titles(
    visited: Visit, chart: str, curves: int, titles: list[str]
) -> None:
    start = visited.dom.index(f'id="chart-{chart}"')
    drawing = visited.dom[start : visited.dom.index("</section>", start)]
    lines = re.findall(r'<path class="js-line"[^>]* d="M([^"]+)"', drawing)
    assert len([line for line in lines if line != "5,0h30"]) == curves  # without the strokes of the legend
    for title in titles:
        assert f">{title}</text>" in drawing


def test_nothing_from_text_runs(visited: Visit) -> None:
    assert "<title>BERT pre-training: 宋词</title>" in visited.dom
    assert "onerror=alert" in visited.dom  # it is shown, as text
    assert not re.search(r"<img[^>]*onerror", visited.dom)


def test_no_request_leaves_the_page(visited: Visit) -> None:
    assert visited.asked == []


def test_a_request_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "open.html").write_text("<!doctype html><img src=http://report.example/a.png>", encoding="utf-8")
    assert visit(tmp_path / "open.html", tmp_path).asked == ["http://report.example/a.png"]


def test_the_policy_of_the_page_stops_foreign_scripts_and_requests(tmp_path: Path) -> None:
    path = write_report(write_sample_run(tmp_path / "run"))
    assert path is not None
    foreign = "<main><img src=http://report.example/a.png><script>document.title='hit'</script>"
    page = path.read_text(encoding="utf-8").replace("<main>", foreign)
    path.write_text(page, encoding="utf-8")
    visited = visit(path, tmp_path)
    assert visited.asked == []
    assert "<title>BERT pre-training: run</title>" in visited.dom
