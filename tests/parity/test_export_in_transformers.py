"""What is exported goes into transformers' BertForPreTraining as it stands, and gives the loss that training gives."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
import torch
import transformers
from toy_data import TOY, memory_store, toy_ids

from bertkit.data.export import store_instances, write_instances
from bertkit.data.google import GoogleReport, GoogleSettings, google_instances
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.store import Store
from bertkit.model.config import BertConfig
from bertkit.model.heads import PretrainingModel
from bertkit.model.huggingface import from_hugging_face
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.text.tokenizer import make_tokenizer

PAIRS, MASKING = PairSettings(pairing="sentence", max_seq_length=24), MaskingSettings()
CONFIG = BertConfig(
    vocab_size=TOY.size,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=64,
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers' progress bars and remarks, switched off for one test."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


def toy_store() -> Store:
    return memory_store(
        [
            [toy_ids("明月几时有，"), toy_ids("把酒问青天。"), toy_ids("不知天上宫阙，"), toy_ids("今夕是何年。")],
            [toy_ids("in the beginning"), toy_ids("god created the heaven"), toy_ids("and the earth .")],
            [toy_ids("青天有月"), toy_ids("今月何年")],
        ]
    )


def their_model() -> Any:
    """A tiny BertForPreTraining in eval mode, every tensor at random."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**dataclasses.asdict(CONFIG), attn_implementation="eager")
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


@torch.no_grad()
def loss_of_training(store: Store, theirs: Any) -> float:
    """The loss of the first epoch, as one step of our own training, with the weights of theirs."""
    model = PretrainingModel(CONFIG).eval()
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    model.load_state_dict(from_hugging_face(theirs.state_dict(), wanted=wanted, num_hidden_layers=2).tensors)
    source = PretrainingSource(store, TOY, PAIRS, MASKING, seed=5, batch_size=1000, micro_batch_tokens=10**6)
    [batch] = source.step(0).micro_batches
    found = PretrainingLoss(model)(batch)
    labels = {"mlm": "mlm_targets", "nsp": "next_sentence_label"}
    return sum(float(found.sums[name]) / len(batch[key]) for name, key in labels.items())


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of an exported file, as `datasets` gives them."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_transformers_finds_the_loss_of_training_in_the_exported_rows(
    format: Literal["jsonl", "parquet"], tmp_path: Path
) -> None:
    store, path = toy_store(), tmp_path / f"train.{format}"
    instances = store_instances(store, PAIRS, MASKING, TOY, seed=5, epochs=1)
    write_instances(instances, path, format=format, pad_to=PAIRS.max_seq_length, pad_id=TOY.pad_id)
    batch = transformers.default_data_collator(rows_of(path))
    assert len(batch["input_ids"]) == 6  # 3 + 2 + 1 pairs of neighbours
    theirs = their_model()
    with torch.no_grad():
        output = theirs(**batch)  # the columns' names are its parameters' names
    assert output.prediction_logits.shape == (*batch["input_ids"].shape, TOY.size)
    assert float(output.loss) == pytest.approx(loss_of_training(store, theirs), abs=1e-5)


def test_unpadded_rows_are_padded_by_transformers_own_collator(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    store = toy_store()
    write_instances(store_instances(store, PAIRS, MASKING, TOY, seed=5, epochs=1), path, format="jsonl")
    for name, content in make_tokenizer(TOY, do_lower_case=True).files().items():
        (tmp_path / name).write_bytes(content)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    batch = transformers.DataCollatorForTokenClassification(tokenizer)(rows_of(path))
    theirs = their_model()
    with torch.no_grad():
        loss = float(theirs(**batch).loss)
    assert loss == pytest.approx(loss_of_training(store, theirs), abs=1e-5)


def test_googles_instances_train_transformers_model(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    documents = [["明月几时有", "把酒问青天"], ["In the beginning", "god created the heavens"]]
    settings = GoogleSettings(max_seq_length=24)
    instances = google_instances(documents, make_tokenizer(TOY, do_lower_case=True), settings, GoogleReport())
    write_instances(instances, path, format="jsonl", pad_to=24, pad_id=TOY.pad_id)
    batch = transformers.default_data_collator(rows_of(path))
    model = their_model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for _ in range(5):
        loss = model(**batch).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
