"""The attention page: one file, nothing from outside, no text that becomes markup, the very weights of the model."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from page_outline import outline_of
from payloads import PAYLOADS
from sample_run import HOSTILE

from bertkit.report.attention import attention_html
from bertkit.report.frame import hash_source

TOKENS = ["[CLS]", "明", HOSTILE, "\u202e月", "[SEP]"]


def weights(*, layers: int = 2, heads: int = 3, seq: int = len(TOKENS)) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.dirichlet(np.ones(seq), (heads, seq)).astype(np.float32) for _ in range(layers)]


def page(*, tokens: list[str] = TOKENS, texts: tuple[str, ...] = ("明月", HOSTILE), model: str = "宋词") -> str:
    return attention_html(
        tokens,
        token_type_ids=[0, 0, 1, 1, 1],
        weights=weights(),
        heads=[(0, 1, 2), (0, 2, 3)],
        texts=texts,
        model=model,
    )


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def data_of(html: str) -> dict:
    [block] = re.findall(r'<script type="application/json" id="attention">(.*?)</script>', html)
    return json.loads(block)


def test_the_page_holds_the_weights_of_every_head() -> None:
    data = data_of(page())
    found = np.frombuffer(base64.b64decode(data["weights"]), np.uint8) / 255
    expected = np.concatenate([layer.reshape(-1) for layer in weights()])
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.5 / 255 + 1e-6)
    assert data["tokens"] == TOKENS
    assert data["segments"] == [0, 0, 1, 1, 1]
    assert data["heads"] == [[0, 1, 2], [0, 2, 3]]


def test_the_policy_lets_in_nothing_but_the_pages_own_script_and_style() -> None:
    html = page()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.S)
    [style] = re.findall(r"<style>(.*?)</style>", html, flags=re.S)
    assert len(scripts) == 1
    assert policy == (
        f"default-src 'none'; script-src {hash_source(scripts[0])}; img-src data:; style-src {hash_source(style)}"
    )
    assert "http" not in re.sub(r"http-equiv", "", html)
    assert not any(name in ("src", "style") for _, attributes in Elements(html).found for name in attributes)


PLAIN = Elements(page(tokens=list("abcde"), texts=("a", "b"), model="m")).found


def test_there_are_two_hundred_payloads() -> None:
    assert len(PAYLOADS) == len(set(PAYLOADS)) >= 200


@pytest.mark.parametrize("place", range(len(PAYLOADS)))
def test_no_text_becomes_markup(place: int) -> None:
    payload = PAYLOADS[place]
    tokens = ["[CLS]", payload, f"##{payload}", payload * 2, "[SEP]"]
    hostile = page(tokens=tokens, texts=(payload, f"明月{payload}"), model=payload)
    found = Elements(hostile).found
    # No element more or less, no attribute but the language of a text and what marks the page's own policy.
    assert [(tag, sorted(attributes.keys() - {"lang"})) for tag, attributes in found] == [
        (tag, sorted(attributes.keys() - {"lang"})) for tag, attributes in PLAIN
    ]
    assert data_of(hostile)["tokens"] == tokens
    text = outline_of(hostile).text
    for shown in (payload, f"明月{payload}", f"model {payload}"):
        assert shown in text


def test_only_a_pair_can_be_parted() -> None:
    assert 'id="part"' in page()
    assert 'id="part"' not in page(texts=("明月",))
