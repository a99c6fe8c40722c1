"""Real weights from packages: the numbers that transformers gave for them, kept in the shared data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit.files import cache_directory
from bertkit.model.encoder import Encoder
from bertkit.model.pretrained import load, load_with_report

# Read here, because no test sees the environment that it was started in.
MINILM = cache_directory() / "weights" / "minilm"

pytestmark = [
    pytest.mark.weights,
    pytest.mark.shared_data,
    pytest.mark.skipif(not (MINILM / "model.safetensors").is_file(), reason=f"{MINILM} is absent; run `make weights`"),
]
ATOL = 1e-5


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    model = load(MINILM, head=None)
    assert isinstance(model, Encoder)
    return model


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, Any]:
    """What transformers answered: lists of numbers by model."""
    values: dict[str, Any] = json.loads((shared_data / "golden" / "golden.json").read_text(encoding="utf-8"))
    return values


def assert_near(found: Tensor, expected: Any) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=ATOL)


@torch.no_grad()
def test_minilm_gives_the_hidden_states_of_transformers(
    minilm: Encoder, golden: dict[str, Any], shared_data: Path
) -> None:
    with np.load(shared_data / "golden" / "minilm_hidden.npz", allow_pickle=False) as arrays:
        ids, mask, states, pooled = (
            torch.from_numpy(arrays[name])
            for name in ("input_ids", "attention_mask", "last_hidden_state", "pooler_output")
        )
    assert ids.tolist() == golden["minilm"]["input_ids"]
    output = minilm(ids, attention_mask=mask)
    real = mask.bool()
    assert_near(output.last_hidden_state[real], states[real])
    assert output.pooler_output is not None
    assert_near(output.pooler_output, pooled)
    assert_near(output.last_hidden_state[:, 0, :8], golden["minilm"]["last_hidden_state[:, 0, :8]"])


@torch.no_grad()
def test_minilm_embeds_sentences_as_transformers_does(minilm: Encoder, golden: dict[str, Any]) -> None:
    expected = golden["minilm"]
    ids, mask = torch.tensor(expected["input_ids"]), torch.tensor(expected["attention_mask"])
    output = minilm(ids, attention_mask=mask, token_type_ids=torch.tensor(expected["token_type_ids"]))
    sums = (output.last_hidden_state * mask[..., None]).sum(1)  # (batch, hidden)
    embeddings = torch.nn.functional.normalize(sums / mask.sum(1, keepdim=True))  # (batch, hidden)
    assert_near(embeddings[:, :8], expected["mean_pooled_normalised[:, :8]"])
    assert_near(embeddings @ embeddings.T, expected["cosine"])


@torch.no_grad()
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "explicit"])
def test_minilm_reads_a_pair_as_transformers_does(minilm: Encoder, golden: dict[str, Any], fused: bool) -> None:
    pair = golden["minilm_pair"]
    output = minilm(
        torch.tensor(pair["input_ids"]),
        token_type_ids=torch.tensor(pair["token_type_ids"]),
        output_attentions=not fused,
    )
    assert_near(output.last_hidden_state[0, :, :4], pair["last_hidden_state[0, :, :4]"])
    assert output.pooler_output is not None
    assert_near(output.pooler_output[0, :8], pair["pooler_output[0, :8]"])


def test_minilm_loads_whole_and_with_new_heads_that_are_said() -> None:
    encoder, report = load_with_report(MINILM, head=None)
    assert (report.newly_made, report.ignored) == ([], ["embeddings.position_ids"])
    torch.manual_seed(0)
    model, report = load_with_report(MINILM, allow_new_head=True)
    assert report.newly_made == sorted(name for name, _ in model.named_parameters() if "_head." in name)
    assert "newly made: mlm_head.bias" in report.summary()
    words = model.state_dict()["encoder.embeddings.word_embeddings.weight"]
    assert torch.equal(words, encoder.state_dict()["embeddings.word_embeddings.weight"])
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
