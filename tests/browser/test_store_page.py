"""The page of a store in a real browser: histograms are drawn, nothing leaves, nothing from text runs."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from sample_run import HOSTILE
from toy_page import toy_rows, toy_statistics, write_toy_page

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


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    folder = tmp_path_factory.mktemp("browser")
    [first, *others] = toy_rows()
    first["tokens"][1] |= {"token": HOSTILE, "text_before": HOSTILE, "text_after": HOSTILE, "label": HOSTILE}
    write_toy_page(folder / "data.html", rows=[first, *others])
    assert BROWSER is not None
    log = folder / "net.json"
    words = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    page = (folder / "data.html").as_uri()
    answer = subprocess.run([*words, page], capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
    events = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    # What the browser asks for on its own account has no origin; what a page asks for has the page's.
    asked = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
    return Visit(answer.stdout.decode("utf-8"), sorted(set(asked)))


@pytest.mark.parametrize(
    ("chart", "titles"),
    [
        ("document_sentences", ["documents", "sentences"]),
        ("document_tokens", ["documents", "tokens"]),
        ("sentence_tokens", ["sentences", "tokens"]),
        ("row_tokens", ["rows", "tokens, special tokens included"]),
        ("row_targets", ["rows", "hidden tokens"]),
    ],
)
def test_every_histogram_is_drawn_with_its_bars_and_titles(visited: Visit, chart: str, titles: list[str]) -> None:
    start = visited.dom.index(f'id="chart-{chart}"')
    drawing = visited.dom[start : visited.dom.index("</section>", start)]
    bars = re.findall(r'<g class="point"><path[^>]* d="M[\d.]+,([\d.]+)V([\d.]+)H', drawing)
    heights = [float(base) - float(top) for base, top in bars]
    counts = toy_statistics().histograms()[chart]["counts"]
    scale = max(heights) / max(counts)
    assert heights == pytest.approx([scale * count for count in counts], abs=0.1)
    for title in titles:
        assert f">{title}</text>" in drawing


def test_the_rows_and_their_marks_are_there(visited: Visit) -> None:
    assert "训练样本" in visited.dom
    assert '<mark class="gap">[MASK]</mark>' in visited.dom
    assert visited.dom.count('<div class="instance">') == 4


def test_nothing_from_text_runs(visited: Visit) -> None:
    assert "<title>BERT data: 宋词, train</title>" in visited.dom
    assert "onerror=alert" in visited.dom  # it is shown, as text
    assert not re.search(r"<img[^>]*onerror", visited.dom)


def test_no_request_leaves_the_page(visited: Visit) -> None:
    assert visited.asked == []
