"""The page in a real browser: charts are drawn, nothing leaves, nothing from text runs."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from sample_run import write_sample_run

from bertkit.report.page import write_report

pytest.importorskip("plotly", reason='the report needs the extra "report"')
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000"),
    "--proxy-server=127.0.0.1:9",  # the discard port: whatever is asked for goes nowhere
]


@dataclass(frozen=True)
class Visit:
    """A page as the browser has it after its scripts ran, and the addresses that it asked for, blocked or not."""

    dom: str
    asked: list[str]


def visit(page: Path, folder: Path) -> Visit:
    assert BROWSER is not None
    log = folder / "net.json"
    words = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    answer = subprocess.run([*words, page.as_uri()], capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
    events = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    # What the browser asks for on its own account has no origin; what a page asks for has the page's.
    asked = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
    return Visit(answer.stdout.decode("utf-8"), sorted(set(asked)))


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
