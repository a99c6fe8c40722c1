"""What a new model begins with: random numbers alone, or what counting the training part tells."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from toy_run import toy_config, toy_model_config, toy_tokenizer, write_model_config, write_store
from toy_tasks import write_base

from bertkit.commands.pretrain import Config, pretrain
from bertkit.data.pairs import PairSettings
from bertkit.data.prepared import open_prepared
from bertkit.errors import InputError
from bertkit.model.head_start import WORDS
from bertkit.model.heads import PretrainingModel
from bertkit.options import config_from
from bertkit.tasks.held_out import evaluate, unigram_loss
from bertkit.tasks.pretraining_model import ModelChoice, choose_model, count_head_start

PAIRS = PairSettings(max_seq_length=32)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("chosen"))


def chosen(store: Path, size: str, *, head_start: bool) -> PretrainingModel:
    parts, tokenizer = open_prepared(store)
    torch.manual_seed(0)
    model, is_new = choose_model(ModelChoice(size, None, 0.0, 0.0), None, tokenizer, PAIRS)
    assert is_new
    if head_start:
        count_head_start(model, parts["train"], tokenizer.vocabulary)
    return model


@pytest.fixture
def size(tmp_path: Path) -> str:
    return str(write_model_config(tmp_path / "size.json"))


def test_normal_is_the_model_as_it_is_built(store: Path, size: str) -> None:
    torch.manual_seed(0)
    built = PretrainingModel(toy_model_config(dropout=0.0))
    for name, tensor in chosen(store, size, head_start=False).state_dict().items():
        assert torch.equal(tensor, built.state_dict()[name]), name


def test_neighbours_begins_with_the_frequencies_of_the_training_part(store: Path, size: str) -> None:
    parts, tokenizer = open_prepared(store)
    head = chosen(store, size, head_start=True).mlm_head
    assert head is not None
    counts = parts["train"].token_counts(tokenizer.vocabulary.size) * tokenizer.vocabulary.ordinary + 1
    np.testing.assert_allclose(head.bias.detach().exp(), counts / counts.sum(), rtol=1e-5)
    assert head.bias[tokenizer.vocabulary.mask_id] == head.bias.min()


def test_tokens_that_were_seen_have_a_vector_and_the_others_keep_theirs(store: Path, size: str) -> None:
    parts, tokenizer = open_prepared(store)
    words = chosen(store, size, head_start=True).encoder.embeddings.word_embeddings.weight.detach()
    drawn = chosen(store, size, head_start=False).encoder.embeddings.word_embeddings.weight.detach()
    seen = parts["train"].token_counts(len(words)) * tokenizer.vocabulary.ordinary > 0
    torch.testing.assert_close(words[seen].norm(dim=1), torch.full((seen.sum(),), WORDS))
    assert torch.equal(words[~seen], drawn[~seen])


@pytest.mark.parametrize("width", [128, 768])
def test_it_is_about_as_good_as_frequencies_before_the_first_step(store: Path, tmp_path: Path, width: int) -> None:
    parts, tokenizer = open_prepared(store)
    config = dataclasses.replace(toy_model_config(), hidden_size=width, num_attention_heads=width // 64)
    model = chosen(store, str(write_model_config(tmp_path / "size.json", config)), head_start=True)
    found = evaluate(model, parts["test"], vocabulary=tokenizer.vocabulary, pairs=PAIRS)
    unigram = unigram_loss(parts["train"], parts["test"], tokenizer.vocabulary)
    assert abs(found.metrics["mlm_loss"] - unigram) < WORDS**2 / 2 + 0.2


def test_a_model_to_go_on_from_keeps_its_weights(store: Path, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    pretrain(toy_config(store, tmp_path / "run", max_steps=1, learning_rate=1e-12, model_name_or_path=str(base)))
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "run"))
    for name, tensor in theirs.items():
        torch.testing.assert_close(tensor, ours[name], msg=name)


def test_with_a_head_start_a_model_learns_sooner(store: Path, tmp_path: Path) -> None:
    losses = {}
    for name in ("normal", "neighbours"):
        values = {"max_steps": 30, "max_seq_length": 64, "initialization": name, "learning_rate": 3e-3}
        losses[name] = pretrain(toy_config(store, tmp_path / name, **values))["masked_lm_loss"]
    assert losses["neighbours"] < losses["normal"] - 0.1


def test_the_recipe_says_what_a_new_model_begins_with(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(toy_config(store, tmp_path / "new", max_steps=1))
    told = capsys.readouterr().err
    assert "initialization neighbours" in told
    assert "head start: frequencies" in told
    assert "| head start by counting | yes |" in (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    pretrain(toy_config(store, tmp_path / "plain", max_steps=1, initialization="normal"))
    told = capsys.readouterr().err
    assert "initialization normal" in told
    assert "head start" not in told
    assert "| head start by counting | no |" in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    pretrain(toy_config(store, tmp_path / "on", max_steps=1, model_name_or_path=str(tmp_path / "new")))
    assert "initialization" not in capsys.readouterr().err


def test_an_initialization_beside_a_model_to_go_on_from_is_refused() -> None:
    values = {"output_dir": "run", "data_dir": "store", "model_name_or_path": "m"}
    config_from(Config, {**values, "recipe": "bert"})  # which has another one, and none has an effect
    Config(**values, recipe="bert")  # as Python calls it
    with pytest.raises(InputError, match="--initialization: has no effect with --model_name_or_path"):
        config_from(Config, {**values, "initialization": "normal"})


def test_a_vocabulary_smaller_than_the_model_leaves_the_rows_beyond_it(store: Path, tmp_path: Path) -> None:
    rows = toy_tokenizer().vocabulary.size
    size = write_model_config(tmp_path / "size.json", toy_model_config(dropout=0.0, vocab_size=rows + 7))
    model = chosen(store, str(size), head_start=True)
    assert model.mlm_head is not None
    assert (model.mlm_head.bias[rows:] == model.mlm_head.bias.min()).all()
    assert model.encoder.embeddings.word_embeddings.weight[rows:].std() < 0.03
