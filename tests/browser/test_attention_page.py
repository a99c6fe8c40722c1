"""The attention page in a real browser: it draws every head, asks for nothing, and runs nothing from text."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sample_run import HOSTILE

from bertkit.report.attention import attention_html

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=3000"),
    "--proxy-server=127.0.0.1:9",  # the discard port: whatever is asked for goes nowhere
]
TOKENS = ["[CLS]", "明", "月", HOSTILE, "[SEP]", "把", "酒", "[SEP]"]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """The page as the browser has it after its script ran, and the addresses that it asked for."""
    folder = tmp_path_factory.mktemp("browser")
    weights = np.random.default_rng(0).dirichlet(np.ones(8), (4, 8)).astype(np.float32)
    weights[1] = np.eye(8, k=1, dtype=np.float32)
    html = attention_html(
        TOKENS,
        token_type_ids=[0, 0, 0, 0, 0, 1, 1, 1],
        weights=[weights, weights[:2]],
        heads=[(0, 1, 2, 3), (1, 3)],
        texts=(HOSTILE, "把酒"),
        model=HOSTILE,
    )
    page = folder / "attention.html"
    page.write_text(html, encoding="utf-8")
    assert BROWSER is not None
    log = folder / "net.json"
    words = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    answer = subprocess.run(
        [*words, f"{page.as_uri()}#1-1"], capture_output=True, timeout=120, stdin=subprocess.DEVNULL
    )
    events = [event.get("params", {}) for event in json.loads(Path(log).read_text(encoding="utf-8"))["events"]]
    asked = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
    return answer.stdout.decode("utf-8"), asked


def test_every_head_has_its_square_and_a_pruned_one_has_none(visited: tuple[str, list[str]]) -> None:
    dom, _ = visited
    squares = re.findall(r'aria-label="(layer \d, head \d)"', dom)
    assert squares == [f"layer 0, head {head}" for head in range(4)] + ["layer 1, head 1", "layer 1, head 3"]
    assert dom.count('title="pruned"') == 2
    assert re.findall(r'<button[^>]*aria-label="([^"]*)"[^>]*aria-pressed="true"', dom) == ["layer 1, head 3"]


def test_the_tokens_stand_on_both_sides(visited: tuple[str, list[str]]) -> None:
    dom, _ = visited
    for side in ("from", "to"):
        [items] = re.findall(rf'<ol class="side {side}"[^>]*>(.*?)</ol>', dom, flags=re.S)
        assert len(re.findall("<li", items)) == len(TOKENS)
        assert "明" in items


def test_the_weight_of_the_darkest_line_is_said(visited: tuple[str, list[str]]) -> None:
    assert '<output id="strongest">100 %</output>' in visited[0]


def test_no_script_of_text_ran_and_no_request_left(visited: tuple[str, list[str]]) -> None:
    dom, asked = visited
    assert "<title>Attention</title>" in dom
    assert not re.search(r"<img[^>]*onerror", dom)
    assert asked == []
