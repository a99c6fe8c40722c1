"""The attention page in a real browser: it draws every head, asks for nothing, and runs nothing from text."""

import re
from pathlib import Path

import numpy as np
import pytest
from browser_visit import BROWSER, Visit, visit
from page_outline import Outline, outline_of
from payloads import PAYLOADS, RAN
from sample_run import HOSTILE

from bertkit.report.attention import attention_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
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
    found = opened(html, folder, place="#1-1")
    return found.dom, found.asked


def opened(html: str, folder: Path, *, place: str = "") -> Visit:
    page = folder / "attention.html"
    page.write_text(html, encoding="utf-8")
    return visit(page, folder, place=place)


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


def page_of(tokens: list[str], texts: tuple[str, str], model: str) -> str:
    weights = np.eye(len(tokens), dtype=np.float32)[None]  # few lines are drawn quickly
    types = [place % 2 for place in range(len(tokens))]
    return attention_html(tokens, token_type_ids=types, weights=[weights], heads=[(0,)], texts=texts, model=model)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """A page of as many tokens, of which none is a payload."""
    tokens = [f"t{place}" for place in range(len(PAYLOADS))]
    return opened(page_of(tokens, ("a", "b"), "m"), tmp_path_factory.mktemp("plain"))


def shape_of(outline: Outline) -> list[tuple[str, list[str]]]:
    """Elements with the names of their attributes; the language of a text and of what is special aside."""
    return [(tag, sorted(attributes.keys() - {"lang", "class"})) for tag, attributes in outline.elements]


@pytest.mark.parametrize("policy", ["with its policy", "without a policy"])
def test_every_payload_is_drawn_as_text(policy: str, plain: Visit, tmp_path: Path) -> None:
    texts = (" 明月 ".join(PAYLOADS[::2]), " moon ".join(PAYLOADS[1::2]))
    html = page_of(PAYLOADS, texts, " ".join(PAYLOADS))
    if policy == "without a policy":  # so that nothing but the escaping is between a text and the browser
        html, replaced = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "<meta>", html)
        assert replaced == 1
    found = opened(html, tmp_path)
    outline = outline_of(found.dom)
    expected = shape_of(outline_of(plain.dom))
    if policy == "without a policy":
        expected = [("meta", []) if entry == ("meta", ["content", "http-equiv"]) else entry for entry in expected]
    assert shape_of(outline) == expected
    assert re.findall(r"<title>(.*?)</title>", found.dom) == ["Attention"] != [RAN]
    assert found.asked == []
    for side in ("from", "to"):
        [items] = re.findall(rf'<ol class="side {side}[^>]*>(.*?)</ol>', found.dom, flags=re.S)
        shown = [outline_of(item).text for item in re.findall(r"<bdi>(.*?)</bdi>", items, flags=re.S)]
        assert shown == PAYLOADS
    for text in texts:
        # HTML has no NUL: a browser leaves it out.
        assert text.replace("\x00", "") in outline.text.replace("\ufffd", "")


def test_a_payload_that_runs_would_be_seen(tmp_path: Path) -> None:
    body = "".join(payload for payload in PAYLOADS[:20] if "refresh" not in payload)  # which would leave the page
    found = opened(f"<!doctype html><title>Attention</title><body>{body}", tmp_path)
    assert f"<title>{RAN}</title>" in found.dom
    assert any("ran.invalid" in url for url in found.asked)
