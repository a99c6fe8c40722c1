"""The model card."""

import pytest
import yaml

from bertkit.model.card import model_card, task_card
from bertkit.model.config import BertConfig

TRAINING = {"steps": 1250, "optimizer": "muon", "learning rate": 3e-3, "corpus": "宋词 | songs"}
RESULTS = {"masked_lm_loss": 5.98765, "masked_lm_accuracy": 0.162}


def card(*, results: dict[str, float] = RESULTS, next_sentence: bool = True) -> str:
    return model_card(
        BertConfig(vocab_size=5095, hidden_size=128, num_hidden_layers=2, num_attention_heads=2),
        training=TRAINING,
        results=results,
        parameters=1_100_000,
        next_sentence=next_sentence,
    )


def test_it_begins_with_the_metadata_hugging_face_reads() -> None:
    _, front, _ = card().split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "bertkit"],
    }


def test_shape_settings_and_results_stand_in_it() -> None:
    text = card()
    assert "2 layers × 128, 2 heads, 1,100,000 parameters, vocabulary of 5,095, at most 512 tokens." in text
    for row in (
        "| steps | 1250 |",
        "| learning rate | 0.0030 |",
        "| masked_lm_loss | 5.9877 |",
        "| optimizer | muon |",
    ):
        assert row in text


def test_a_bar_in_a_value_does_not_break_the_table() -> None:
    assert "| corpus | 宋词 / songs |" in card()


def test_a_model_without_results_says_so() -> None:
    assert "Not evaluated yet." in card(results={})


def test_the_ways_to_use_it_fit_its_heads() -> None:
    both, only = card(), card(next_sentence=False)
    assert "AutoModelForPreTraining.from_pretrained" in both
    assert "Next-sentence label 0 means that B follows A" in both
    assert "bertkit next-sentence" in both
    assert "AutoModelForMaskedLM.from_pretrained" in only
    assert "no next-sentence head" in only
    assert "bertkit next-sentence" not in only
    assert "AutoModelForPreTraining" not in only


@pytest.mark.parametrize(
    ("architecture", "expected", "library"),
    [
        ("BertForTokenClassification", "AutoModelForTokenClassification.from_pretrained", "transformers"),
        (None, "which refuses to open it", "bertkit"),
    ],
)
def test_the_card_of_a_task_says_what_opens_the_model(architecture: str | None, expected: str, library: str) -> None:
    text = task_card(
        "sequence-classification",
        BertConfig(vocab_size=5095, hidden_size=128, num_hidden_layers=2, num_attention_heads=2),
        labels=("a", "b"),
        architecture=architecture,
        training={"steps": 3},
        results={"accuracy": 0.5},
    )
    assert expected in text
    assert ("AutoModelFor" in text) == (architecture is not None)
    assert yaml.safe_load(text.split("---")[1])["library_name"] == library
    assert "Labels: a, b." in text
    assert "| accuracy | 0.5000 |" in text
