"""Real weights from packages: the numbers that transformers gave for them, kept in the shared data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from bertkit.files import cache_directory
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load, load_with_report, save
from bertkit.model.task_heads import SequenceClassificationModel

# Read here, because no test sees the environment that it was started in.
WEIGHTS = cache_directory() / "weights"
MINILM, REACTIONS, CLASSIFIER = (WEIGHTS / name for name in ("minilm", "rxnfp_pretrained", "rxnfp_classifier_50"))
REACTION_CLASS = 20  # of 50, that golden.json says of its reaction

pytestmark = [
    pytest.mark.weights,
    pytest.mark.shared_data,
    pytest.mark.skipif(
        not all((folder / "config.json").is_file() for folder in (MINILM, REACTIONS, CLASSIFIER)),
        reason=f"{WEIGHTS} does not hold every model; run `make weights`",
    ),
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


@pytest.fixture(scope="module")
def reactions() -> PretrainingModel:
    """A BERT of chemical reactions that has no model_type, no decoder.bias, and is a pickle older than zip."""
    model = load(REACTIONS, allow_pickle_weights=True)
    assert isinstance(model, PretrainingModel)
    return model


def test_the_reactions_load_whole_with_both_heads_and_what_is_odd_is_said() -> None:
    model, report = load_with_report(REACTIONS, allow_pickle_weights=True)
    assert (report.newly_made, report.ignored, report.resized) == ([], [], [])
    assert report.tied == ["cls.predictions.decoder.weight"]
    assert len(report.loaded) == 206
    assert report.unknown_config_keys == []
    assert "config.json has no model_type; its keys and its tensors are a BERT's" in report.remarks
    assert model.config.vocab_size == 591


@torch.no_grad()
def test_the_reactions_give_the_scores_of_both_heads_of_transformers(
    reactions: PretrainingModel, golden: dict[str, Any], shared_data: Path
) -> None:
    with np.load(shared_data / "golden" / "rxnfp_pretrained_logits.npz", allow_pickle=False) as arrays:
        ids, mlm, nsp = (
            torch.from_numpy(arrays[name]) for name in ("input_ids", "prediction_logits", "seq_relationship_logits")
        )
    assert ids[0].tolist() == golden["rxnfp_pretrained"]["input_ids"]
    for explicit in (False, True):
        output = reactions(ids, output_attentions=explicit)
        torch.testing.assert_close(output.mlm_logits, mlm, rtol=0, atol=5e-5)  # logits of up to 30
        torch.testing.assert_close(output.nsp_logits, nsp, rtol=0, atol=5e-5)


@torch.no_grad()
def test_the_reactions_guess_98_of_103_tokens_hidden_one_at_a_time(
    reactions: PretrainingModel, golden: dict[str, Any]
) -> None:
    expected = golden["rxnfp_pretrained"]["mask_one_at_a_time"]
    ids = torch.tensor(golden["rxnfp_pretrained"]["input_ids"])
    mask_id = (REACTIONS / "vocab.txt").read_text(encoding="utf-8").split("\n").index("[MASK]")
    positions = torch.arange(1, len(ids) - 1)
    hidden = ids.repeat(len(positions), 1)
    hidden[torch.arange(len(positions)), positions] = mask_id
    flat = torch.arange(len(positions)) * len(ids) + positions
    output = reactions(hidden, mlm_positions=flat, mlm_targets=ids[positions])
    assert output.mlm_logits is not None
    assert output.mlm_loss is not None
    right = (output.mlm_logits.argmax(-1) == ids[positions]).sum().item()
    assert (right, len(positions)) == (98, expected["positions"])
    assert right / len(positions) == pytest.approx(expected["top1_accuracy"])
    assert output.mlm_loss.item() == pytest.approx(expected["mean_nll"], abs=1e-5)


@torch.no_grad()
def test_the_classifier_of_reactions_gives_the_class_of_transformers(golden: dict[str, Any]) -> None:
    model, report = load_with_report(CLASSIFIER, head="sequence_classification", allow_pickle_weights=True)
    assert isinstance(model, SequenceClassificationModel)
    assert model.task.num_labels == 50  # config.json names two of them
    assert (report.newly_made, report.ignored) == ([], [])
    expected = golden["rxnfp_classifier_50"]
    logits = model(torch.tensor([golden["rxnfp_pretrained"]["input_ids"]])).logits[0]
    assert_near(logits[:10], expected["logits[:10]"])
    assert int(logits.argmax()) == expected["argmax"] == REACTION_CLASS
    assert float(logits.softmax(0).max()) == pytest.approx(expected["prob"], abs=1e-6)


@torch.no_grad()
def test_a_pickle_saved_as_safetensors_opens_in_transformers_with_the_same_scores(
    tmp_path: Path, reactions: PretrainingModel, golden: dict[str, Any]
) -> None:
    save(tmp_path, reactions, files={})
    theirs, info = transformers.AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    ids = torch.tensor([golden["rxnfp_pretrained"]["input_ids"]])
    found, expected = reactions(ids), theirs.eval()(ids)
    torch.testing.assert_close(found.mlm_logits, expected.prediction_logits, rtol=0, atol=5e-5)
    torch.testing.assert_close(found.nsp_logits, expected.seq_relationship_logits, rtol=0, atol=5e-5)


@torch.no_grad()
def test_a_small_checkpoint_of_another_library_gives_the_states_of_transformers(shared_data: Path) -> None:
    folder = shared_data / "tiny_bert_checkpoint"
    ours, report = load_with_report(folder, head=None, allow_pickle_weights=True)
    assert isinstance(ours, Encoder)
    assert report.newly_made == []
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    ids = torch.arange(2, 42).view(2, 20)
    assert_near(ours(ids).last_hidden_state, theirs(ids).last_hidden_state)
