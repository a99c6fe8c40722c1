"""`bertkit inspect attention` through the front door: the page's weights are the model's; what it refuses."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_model as toy

from bertkit.cli import main
from bertkit.model.pruning import prune_heads
from bertkit.pipelines.attention import attention_of
from bertkit.text.tokenizer import with_special_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(toy.model_folder(tmp_path_factory.mktemp("model"), toy.random_model()))


def test_the_page_has_the_weights_of_the_model(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "page.html"
    words = ["--model", folder, "--output_file", str(output), toy.RIVER, toy.DAY]
    assert main(["inspect", "attention", *words]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    [block] = re.findall(r'id="attention">(.*?)</script>', output.read_text(encoding="utf-8"))
    data = json.loads(block)
    found = np.frombuffer(base64.b64decode(data["weights"]), np.uint8).reshape(2, 4, 29, 29) / 255
    model, tokenizer = toy.random_model(), toy.toy_tokenizer()
    ids, types = with_special_tokens(
        tokenizer.encode(toy.RIVER).ids, tokenizer.encode(toy.DAY).ids, tokenizer.vocabulary
    )
    with torch.no_grad():
        output = model(
            torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None], output_attentions=True
        )
    expected = torch.stack([layer[0] for layer in output.attentions]).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.5 / 255 + 1e-5)


def test_a_pruned_model_shows_the_heads_it_has(tmp_path: Path) -> None:
    model = toy.random_model()
    prune_heads(model, {1: [0, 2]})
    found = attention_of(toy.model_folder(tmp_path, model), [toy.RIVER])
    assert found.heads == [(0, 1, 2, 3), (1, 3)]
    assert [layer.shape for layer in found.weights] == [(4, 14, 14), (2, 14, 14)]
    np.testing.assert_allclose(found.weights[1].sum(-1), 1, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "texts: 0 texts were given"),
        (["a", "b", "c"], "texts: 3 texts were given"),
        (["君", "\u200b"], "text 2: holds no token"),
        (["君" * 63], "the text: has 65 tokens"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    folder: str, capsys: pytest.CaptureFixture[str], texts: list[str], message: str
) -> None:
    assert main(["inspect", "attention", "--model", folder, *texts]) == 2
    assert message in capsys.readouterr().err


def test_a_page_that_would_be_too_large_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.pipelines.attention.MAX_WEIGHTS", 8 * 10**2)
    with pytest.raises(
        ValueError, match=r"has 14 tokens; with 8 heads that is more than a page can hold\n.*at most 10"
    ):
        attention_of(folder, [toy.RIVER])
