"""The model against transformers' on random weights: values, losses, gradients, and the folder in both directions."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import IGNORE_INDEX, PretrainingModel
from bertkit.model.huggingface import from_hugging_face
from bertkit.model.pretrained import Head, build, load, load_with_report, save

SMALL = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
UNTIED = dataclasses.replace(SMALL, tie_word_embeddings=False)
CONFIGS = {
    "gelu": SMALL,
    "untied": UNTIED,
    "gelu_new, three narrow heads": dataclasses.replace(
        SMALL, hidden_act="gelu_new", hidden_size=24, num_attention_heads=3, intermediate_size=40
    ),
    "relu, one layer, one head": dataclasses.replace(
        SMALL, hidden_act="relu", num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=9
    ),
    "silu, three layers, untied": dataclasses.replace(UNTIED, hidden_act="silu", num_hidden_layers=3),
    "tanh, wide epsilon, four segments": dataclasses.replace(
        SMALL, hidden_act="tanh", layer_norm_eps=1e-3, type_vocab_size=4, pad_token_id=5
    ),
}
CLASSES: dict[Head | None, Any] = {
    "pretraining": transformers.BertForPreTraining,
    "masked_lm": transformers.BertForMaskedLM,
    "next_sentence": transformers.BertForNextSentencePrediction,
    None: transformers.BertModel,
}
OPENERS: dict[Head | None, Any] = {
    "pretraining": transformers.AutoModelForPreTraining,
    "masked_lm": transformers.AutoModelForMaskedLM,
    "next_sentence": transformers.AutoModelForNextSentencePrediction,
    None: transformers.AutoModel,
}
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 3 + [0] * 6, [1] * 8 + [0]])
ATOL = 1e-5


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers' progress bars and remarks, switched off for one test."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


def their_model(config: BertConfig, *, head: Head | None = "pretraining", dropout: float = 0.1) -> Any:
    """transformers' model of this shape in eval mode, every tensor at random, biases and LayerNorms too."""
    torch.manual_seed(0)
    values = {**dataclasses.asdict(config), "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = CLASSES[head](transformers.BertConfig(**values, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


def our_model(theirs: Any, config: BertConfig) -> PretrainingModel:
    """Our pre-training model with the weights of theirs, in eval mode."""
    model = PretrainingModel(config).eval()
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    found = from_hugging_face(theirs.state_dict(), wanted=wanted, num_hidden_layers=config.num_hidden_layers)
    assert found.missing == []
    model.load_state_dict(found.tensors)
    return model


def batch_of(config: BertConfig) -> dict[str, Tensor]:
    """A ragged batch (4, 9) with segments."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(6, config.vocab_size, MASK.shape, generator=generator)
    return {
        "input_ids": ids.where(MASK.bool(), config.pad_token_id),
        "attention_mask": MASK,
        "token_type_ids": torch.randint(0, config.type_vocab_size, MASK.shape, generator=generator),
    }


def labels_of(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Dense labels at about a third of the real tokens, and a next-sentence label a row."""
    chosen = (torch.rand(MASK.shape, generator=torch.Generator().manual_seed(2)) < 0.35) & MASK.bool()
    assert bool(chosen.any())
    return batch["input_ids"].where(chosen, IGNORE_INDEX), torch.tensor([0, 1, 1, 0])


def their_labels(mlm_labels: Tensor, next_sentence_label: Tensor) -> dict[str, Tensor]:
    return {"labels": mlm_labels, "next_sentence_label": next_sentence_label}


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_logits_states_attentions_and_losses_are_those_of_transformers(config: BertConfig) -> None:
    theirs = their_model(config)
    ours, batch, real = our_model(theirs, config), batch_of(config), MASK.bool()
    mlm_labels, next_sentence_label = labels_of(batch)
    expected = theirs(
        **batch, **their_labels(mlm_labels, next_sentence_label), output_hidden_states=True, output_attentions=True
    )
    found = ours(**batch, output_hidden_states=True, output_attentions=True)
    assert_near(found.mlm_logits[real], expected.prediction_logits[real])
    assert_near(found.nsp_logits, expected.seq_relationship_logits)
    assert len(found.hidden_states) == len(expected.hidden_states) == config.num_hidden_layers + 1
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert_near(one[real], other[real])
    assert len(found.attentions) == len(expected.attentions) == config.num_hidden_layers
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        assert_near(one.transpose(1, 2)[real], other.transpose(1, 2)[real])
    labelled = ours(**batch, mlm_labels=mlm_labels, next_sentence_label=next_sentence_label)
    assert_near(labelled.loss, expected.loss)
    assert_near(labelled.mlm_logits, expected.prediction_logits[mlm_labels != IGNORE_INDEX])


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_encoder_alone_is_theirs_with_and_without_its_attentions(implementation: str) -> None:
    theirs = their_model(SMALL)
    theirs.set_attn_implementation(implementation)
    ours, batch, real = our_model(theirs, SMALL).encoder, batch_of(SMALL), MASK.bool()
    expected = theirs.bert(**batch)
    for attentions in (False, True):
        found = ours(**batch, output_attentions=attentions)
        assert_near(found.last_hidden_state[real], expected.last_hidden_state[real])
        assert_near(found.pooler_output, expected.pooler_output)


@torch.no_grad()
def test_in_training_the_explicit_way_drops_what_transformers_drops() -> None:
    theirs = their_model(SMALL, dropout=0.3).train()
    ours = our_model(theirs, dataclasses.replace(SMALL, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3))
    batch, real = batch_of(SMALL), MASK.bool()
    torch.manual_seed(4)
    expected = theirs(**batch, output_hidden_states=True)
    torch.manual_seed(4)
    found = ours.train()(**batch, output_hidden_states=True, output_attentions=True)
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert_near(one[real], other[real])
    assert_near(found.mlm_logits[real], expected.prediction_logits[real])
    assert_near(found.nsp_logits, expected.seq_relationship_logits)


@torch.no_grad()
def test_inputs_left_out_and_embeddings_given_mean_what_they_mean_to_transformers() -> None:
    theirs = their_model(SMALL)
    ours, batch = our_model(theirs, SMALL).encoder, batch_of(SMALL)
    ids, positions = batch["input_ids"], torch.randperm(9, generator=torch.Generator().manual_seed(3))[None]
    embeds = theirs.bert.embeddings.word_embeddings(ids)
    for inputs in (
        {"input_ids": ids},
        {"input_ids": ids, "position_ids": positions},
        {"inputs_embeds": embeds, "token_type_ids": batch["token_type_ids"]},
    ):
        assert_near(ours(**inputs).last_hidden_state, theirs.bert(**inputs).last_hidden_state)


@torch.no_grad()
@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["tied", "untied"])
def test_each_loss_alone_is_that_of_transformers_dense_or_by_position(config: BertConfig) -> None:
    masked_lm = their_model(config, head="masked_lm")
    next_sentence = their_model(config, head="next_sentence")
    batch = batch_of(config)
    mlm_labels, next_sentence_label = labels_of(batch)
    positions = (mlm_labels.flatten() != IGNORE_INDEX).nonzero().flatten()
    for theirs, head, label, ways in (
        (
            masked_lm,
            "masked_lm",
            mlm_labels,
            (
                {"mlm_labels": mlm_labels},
                {"mlm_positions": positions, "mlm_targets": mlm_labels.flatten()[positions]},
            ),
        ),
        (next_sentence, "next_sentence", next_sentence_label, ({"next_sentence_label": next_sentence_label},)),
    ):
        ours = PretrainingModel(config, mlm=head == "masked_lm", nsp=head == "next_sentence").eval()
        wanted = {name: tensor.shape for name, tensor in ours.state_dict().items()}
        found = from_hugging_face(theirs.state_dict(), wanted=wanted, num_hidden_layers=config.num_hidden_layers)
        ours.load_state_dict(found.tensors)
        for labels in ways:
            assert_near(ours(**batch, **labels).loss, theirs(**batch, labels=label).loss)


@pytest.mark.parametrize("label", [0, 1])
@torch.no_grad()
def test_next_sentence_labels_of_one_class_only_give_the_loss_of_transformers(label: int) -> None:
    theirs = their_model(SMALL)
    batch, labels = batch_of(SMALL), torch.full((4,), label)
    mlm_labels, _ = labels_of(batch)
    expected = (
        theirs(**batch, **their_labels(mlm_labels, labels)).loss
        - theirs(**batch, **their_labels(mlm_labels, 1 - labels)).loss
    )
    ours = our_model(theirs, SMALL)
    found = ours(**batch, next_sentence_label=labels).loss - ours(**batch, next_sentence_label=1 - labels).loss
    assert_near(found, expected)
    assert abs(found.item()) > 0.01


@pytest.mark.parametrize("config", [SMALL, UNTIED, CONFIGS["gelu_new, three narrow heads"]])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
@pytest.mark.parametrize("attentions", [False, True], ids=["fused", "explicit"])
def test_the_gradient_is_that_of_transformers(
    config: BertConfig, dtype: torch.dtype, tolerance: float, attentions: bool
) -> None:
    config = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    theirs = their_model(config, dropout=0.0).to(dtype).train()
    ours, batch = our_model(theirs, config).to(dtype).train(), batch_of(config)
    mlm_labels, next_sentence_label = labels_of(batch)
    theirs(**batch, **their_labels(mlm_labels, next_sentence_label)).loss.backward()
    ours(
        **batch, mlm_labels=mlm_labels, next_sentence_label=next_sentence_label, output_attentions=attentions
    ).loss.backward()
    expected = from_hugging_face(
        {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None},
        wanted={name: parameter.shape for name, parameter in ours.named_parameters()},
        num_hidden_layers=config.num_hidden_layers,
    )
    assert (expected.missing, expected.ignored) == ([], [])
    # Some gradients are 0 in exact arithmetic (the key bias), so the measure is the norm of the whole.
    whole = torch.cat([gradient.flatten() for gradient in expected.tensors.values()]).norm()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad - expected.tensors[name]).norm() <= tolerance * whole, name


@torch.no_grad()
@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("head", CLASSES, ids=str)
def test_a_folder_of_ours_opens_in_transformers(tmp_path: Path, head: Head | None, config: BertConfig) -> None:
    torch.manual_seed(0)
    ours = build(config, head=head).eval()
    for parameter in ours.parameters():
        parameter.normal_(std=0.2)
    save(tmp_path / "ours", ours, files={})
    theirs, info = OPENERS[head].from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(theirs) is CLASSES[head]
    assert not any(info.values()), info
    assert_same_answers(ours, theirs.eval(), config)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_files(tmp_path / "ours", tmp_path / "theirs")


@torch.no_grad()
@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("head", CLASSES, ids=str)
def test_a_folder_of_transformers_opens_here(tmp_path: Path, head: Head | None, config: BertConfig) -> None:
    theirs = their_model(config, head=head)
    if not config.tie_word_embeddings and head in ("pretraining", "masked_lm"):
        # transformers keeps a second bias that it never reads; two equal ones are what it would train from.
        theirs.cls.predictions.bias.copy_(theirs.cls.predictions.decoder.bias)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, report = load_with_report(tmp_path / "theirs", head=head)
    assert report.newly_made == report.ignored == report.unknown_config_keys == []
    assert dataclasses.asdict(ours.config) == dataclasses.asdict(config)
    assert_same_answers(ours, theirs, config)
    save(tmp_path / "ours", ours, files={})
    assert_same_files(tmp_path / "ours", tmp_path / "theirs")


@torch.no_grad()
def test_the_bias_that_transformers_never_reads_is_said_and_not_used(tmp_path: Path) -> None:
    theirs = their_model(UNTIED)
    theirs.save_pretrained(tmp_path)
    ours, report = load_with_report(tmp_path)
    assert report.ignored == ["cls.predictions.bias"]
    assert_same_answers(ours, theirs, UNTIED)


@torch.no_grad()
def test_a_pretraining_folder_opens_as_the_encoder_of_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save(tmp_path, build(SMALL, head="pretraining"), files={})
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ours = load(tmp_path, head=None)
    assert_same_answers(ours, theirs, SMALL)


@torch.no_grad()
def test_a_half_precision_folder_of_transformers_is_loaded_as_float32(tmp_path: Path) -> None:
    theirs = their_model(SMALL).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_same_answers(ours, theirs.float(), SMALL)


def assert_same_answers(ours: Encoder | PretrainingModel, theirs: Any, config: BertConfig) -> None:
    """Every output that the two models have in common is equal on the real tokens of a ragged batch."""
    batch, real = batch_of(config), MASK.bool()
    found, expected = ours(**batch), theirs(**batch)
    if isinstance(ours, Encoder):
        assert_near(found.last_hidden_state[real], expected.last_hidden_state[real])
        assert_near(found.pooler_output, expected.pooler_output)
        return
    both = ours.mlm_head is not None and ours.nsp_head is not None
    if ours.mlm_head is not None:
        assert_near(found.mlm_logits[real], (expected.prediction_logits if both else expected.logits)[real])
    if ours.nsp_head is not None:
        assert_near(found.nsp_logits, expected.seq_relationship_logits if both else expected.logits)


def assert_same_files(ours: Path, theirs: Path) -> None:
    """The two folders hold the same tensors under the same names, bit by bit."""
    one, other = load_file(ours / "model.safetensors"), load_file(theirs / "model.safetensors")
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
