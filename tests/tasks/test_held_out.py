"""Held-out metrics, each computed again the long way, and what they do not depend on."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_run import toy_config, toy_documents, toy_tokenizer, write_store

from bertkit.commands.pretrain import pretrain
from bertkit.data.masking import MaskingSettings, mask_tokens
from bertkit.data.pairs import PairSettings
from bertkit.data.store import Store, open_parts
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load
from bertkit.tasks import held_out
from bertkit.tasks.held_out import (
    EVALUATION_SEED,
    GOOGLE_NAMES,
    Evaluation,
    evaluate,
    held_out_pairs,
    in_words,
    sample_texts,
    unigram_loss,
)

TOKENIZER = toy_tokenizer()
VOCABULARY = TOKENIZER.vocabulary
PAIRS = PairSettings(max_seq_length=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held_out")
    write_store(folder, toy_documents(number=150))
    return folder


@pytest.fixture(scope="module")
def parts(folder: Path) -> dict[str, Store]:
    return open_parts(folder / "store")


@pytest.fixture(scope="module")
def model(folder: Path) -> PretrainingModel:
    """A model that has learnt a little, so that some answers are right and some are wrong."""
    pretrain(toy_config(folder / "store", folder / "run", max_steps=60, eval_every=60, learning_rate=1e-2))
    model = load(folder / "run")
    assert isinstance(model, PretrainingModel)
    assert model.nsp_head is not None
    logits: list[torch.Tensor] = []
    handle = model.nsp_head.register_forward_hook(lambda *arguments: logits.append(arguments[2]))
    for part in ("validation", "test"):
        evaluate(model, open_parts(folder / "store")[part], vocabulary=VOCABULARY, pairs=PAIRS)
    handle.remove()
    with torch.no_grad():  # the next-sentence head has learnt nothing yet: it is tilted to answer both ways
        model.nsp_head.bias -= torch.cat(logits).mean(0)
    return model


def measured(model: PretrainingModel, store: Store, pairs: PairSettings = PAIRS, **values: Any) -> Evaluation:
    return evaluate(model, store, vocabulary=VOCABULARY, pairs=pairs, **values)


@torch.no_grad()
def plainly(model: PretrainingModel, store: Store, pairs: PairSettings, rows: list[int]) -> dict[str, float]:
    """The metrics, one row at a time by the model's own dense labels."""
    model.eval()
    table = held_out_pairs(store, pairs)
    mlm_loss, nsp_loss, hits, plain_hits, plain, answers, targets = 0.0, 0.0, 0, 0, 0, 0, 0
    for row in rows:
        spans = [(table.start_a[row], table.end_a[row]), (table.start_b[row], table.end_b[row])]
        a, b = (store.tokens(np.array([start]), np.array([end])).tolist() for start, end in spans)
        ids = [VOCABULARY.cls_id, *a, VOCABULARY.sep_id] + ([*b, VOCABULARY.sep_id] if b else [])
        types = [0] * (len(a) + 2) + ([1] * (len(b) + 1) if b else [])
        hidden = mask_tokens(
            np.array([ids]),
            index=np.array([row]),
            ordinary=VOCABULARY.ordinary,
            mask_id=VOCABULARY.mask_id,
            settings=MaskingSettings(mlm_probability=0.15),
            seed=EVALUATION_SEED,
            epoch=0,
        )
        label = None if pairs.pairing == "none" else torch.tensor([table.next_sentence_label[row]])
        output = model(
            torch.from_numpy(hidden.input_ids),
            token_type_ids=torch.tensor([types]),
            mlm_labels=torch.from_numpy(np.where(hidden.selected, np.array([ids]), -100)),
            next_sentence_label=label,
        )
        wanted = torch.tensor(ids)[torch.from_numpy(hidden.selected[0])]
        assert output.mlm_loss is not None
        assert output.mlm_logits is not None
        mlm_loss += output.mlm_loss.item() * len(wanted)
        right = (output.mlm_logits.argmax(-1) == wanted).tolist()
        word = [VOCABULARY.tokens[token] not in (".", "。") for token in wanted.tolist()]
        targets, hits, plain = targets + len(wanted), hits + sum(right), plain + sum(word)
        plain_hits += sum(r and w for r, w in zip(right, word, strict=True))
        if label is not None:
            assert output.nsp_loss is not None
            assert output.nsp_logits is not None
            nsp_loss += output.nsp_loss.item()
            answers += int(output.nsp_logits.argmax() == label)
    found = {
        "mlm_loss": mlm_loss / targets,
        "mlm_accuracy": hits / targets,
        "mlm_accuracy_without_punctuation": plain_hits / plain,
    }
    if pairs.pairing != "none":
        found |= {"nsp_loss": nsp_loss / len(rows), "nsp_accuracy": answers / len(rows)}
    return {**found, "loss": found["mlm_loss"] + found.get("nsp_loss", 0.0)}


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_every_metric_is_the_one_computed_row_by_row(
    parts: dict[str, Store], model: PretrainingModel, pairing: Any
) -> None:
    pairs = dataclasses.replace(PAIRS, pairing=pairing)
    found = measured(model, parts["test"], pairs)
    table = held_out_pairs(parts["test"], pairs)
    assert sorted(found.rows.tolist()) == list(range(len(table)))
    assert found.metrics == pytest.approx(plainly(model, parts["test"], pairs, list(range(len(table)))), rel=1e-5)
    assert found.counts["mlm"] > found.counts["mlm_without_punctuation"] > 0
    assert 0 < found.metrics["mlm_accuracy_without_punctuation"] < found.metrics["mlm_accuracy"] < 1
    assert found.counts["nsp"] == (0 if pairing == "none" else len(table))
    assert set(found.metrics) <= set(GOOGLE_NAMES)


def test_the_answers_stand_in_the_order_of_the_rows(parts: dict[str, Store], model: PretrainingModel) -> None:
    found = measured(model, parts["test"], micro_batch_tokens=100)
    truth = held_out_pairs(parts["test"], PAIRS).next_sentence_label[found.rows] == 0
    assert (found.is_next == truth).mean() == pytest.approx(found.metrics["nsp_accuracy"])
    assert 0 < found.is_next.mean() < 1
    none = measured(model, parts["test"], dataclasses.replace(PAIRS, pairing="none"))
    assert none.is_next.shape == (0,)


def test_every_call_gives_the_same_to_the_last_bit(parts: dict[str, Store], model: PretrainingModel) -> None:
    model.train()  # as in the middle of a run
    torch.manual_seed(1)
    first = measured(model, parts["validation"])
    model.train()
    torch.manual_seed(2)
    assert measured(model, parts["validation"]).metrics == first.metrics


def test_evaluating_draws_no_random_number(parts: dict[str, Store], model: PretrainingModel) -> None:
    before = torch.get_rng_state()
    measured(model, parts["validation"])
    assert torch.equal(torch.get_rng_state(), before)


def test_micro_batches_change_nothing_but_rounding(
    parts: dict[str, Store], model: PretrainingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = measured(model, parts["test"], micro_batch_tokens=10**6)
    for tokens in (1, 100, 1000):
        found = measured(model, parts["test"], micro_batch_tokens=tokens)
        assert found.metrics == pytest.approx(expected.metrics, abs=1e-5)
        assert found.is_next.tolist() == expected.is_next.tolist()
    monkeypatch.setattr(held_out, "EVALUATION_ROWS", 7)
    assert measured(model, parts["test"]).metrics == pytest.approx(expected.metrics, abs=1e-5)


def test_neither_a_seed_nor_the_runs_masking_can_be_given() -> None:
    assert set(inspect.signature(evaluate).parameters) == {
        *("model", "store", "vocabulary", "pairs", "mlm_probability", "max_rows", "micro_batch_tokens", "runtime")
    }
    assert inspect.signature(evaluate).parameters["mlm_probability"].default == 0.15


def test_some_rows_are_a_sample_of_all(parts: dict[str, Store], model: PretrainingModel) -> None:
    every = measured(model, parts["test"]).rows
    some = measured(model, parts["test"], max_rows=5)
    assert some.rows.tolist() == every[:5].tolist()
    assert some.counts["nsp"] == 5
    assert some.metrics == pytest.approx(plainly(model, parts["test"], PAIRS, every[:5].tolist()), rel=1e-5)
    assert measured(model, parts["test"], max_rows=10**6).rows.tolist() == every.tolist()
    assert every.tolist() != sorted(every.tolist())  # not the first documents


def test_next_sentences_can_be_asked_on_plain_text(parts: dict[str, Store], model: PretrainingModel) -> None:
    found = measured(model, parts["test"], mlm_probability=0.0)
    assert found.counts["mlm"] == 0
    assert (found.metrics["mlm_loss"], found.metrics["mlm_accuracy"]) == (0.0, 0.0)
    assert len(found.is_next) == len(found.rows)


def test_metrics_in_words() -> None:
    values = {"mlm_loss": 5.7604, "mlm_accuracy": 0.1812, "loss": 6.36, "nsp_loss": 0.6, "nsp_accuracy": 0.7057}
    assert in_words(values) == "MLM loss 5.760, accuracy 18.1 %; NSP loss 0.600, accuracy 70.6 %"


# --- the baseline --------------------------------------------------------------------------------------------------


def test_the_unigram_loss_by_hand(tmp_path: Path) -> None:
    train = open_parts(write_store(tmp_path / "a", ["明月。春。", "the moon."], validation_split=False))["train"]
    test = open_parts(write_store(tmp_path / "b", ["明。", "moon 雪 river."], validation_split=False))["train"]
    # Training: 明 月 。 春 。 the moon . = 8 tokens, and each ordinary token once more.
    # 雪 and river are unknown: no target.
    ordinary = int(VOCABULARY.ordinary.sum())
    total = 8 + ordinary
    shares = {"明": 2 / total, "。": 3 / total, "moon": 2 / total, ".": 2 / total}
    expected = -sum(np.log(shares[token]) for token in ("明", "。", "moon", ".")) / 4
    assert unigram_loss(train, test, VOCABULARY) == pytest.approx(expected)


def test_a_token_never_seen_in_training_has_a_share(tmp_path: Path) -> None:
    train = open_parts(write_store(tmp_path / "a", ["明月。"], validation_split=False))["train"]
    test = open_parts(write_store(tmp_path / "b", ["春风"], validation_split=False))["train"]
    assert unigram_loss(train, test, VOCABULARY) == pytest.approx(np.log(3 + int(VOCABULARY.ordinary.sum())))


# --- sample texts --------------------------------------------------------------------------------------------------


def texts_of(folder: Path, documents: list[str], **values: Any) -> list[str]:
    store = open_parts(write_store(folder, documents, validation_split=False))["train"]
    return sample_texts(store, TOKENIZER, **{"max_tokens": 96, **values})


def test_samples_are_the_beginnings_of_documents_evenly_spaced(tmp_path: Path) -> None:
    documents = [f"明月照{a}{b}。" for a in "江青西南长" for b in "楼山"]
    assert texts_of(tmp_path, documents) == [documents[place] for place in (0, 3, 6, 9)]
    assert texts_of(tmp_path, documents, number=2) == [documents[0], documents[9]]


def test_few_documents_give_few_samples(tmp_path: Path) -> None:
    documents = ["明月照江楼。", "the moon sees the tower."]
    assert texts_of(tmp_path, documents) == documents


def test_a_sample_ends_with_the_sentence_that_reaches_48_tokens(tmp_path: Path) -> None:
    assert texts_of(tmp_path, ["明月照江楼。" * 20]) == ["明月照江楼。" * 8]
    assert texts_of(tmp_path, ["明月照江楼。" * 7 + "明月照江楼" * 30]) == [
        "明月照江楼。" * 7 + "明月照江楼" * 10 + "明月照江"
    ]


def test_a_sample_fits_into_the_model(tmp_path: Path) -> None:
    assert texts_of(tmp_path, ["明月照江楼。" * 20], max_tokens=10) == ["明月照江楼。明月照江"]


def test_unknown_tokens_stay_and_a_beginning_of_nothing_else_is_left_out(tmp_path: Path) -> None:
    documents = ["😀😁。".replace("。", "!"), "明月雪。", "Ωmega ωnly!"]
    assert texts_of(tmp_path, documents) == ["明月[UNK]。"]
