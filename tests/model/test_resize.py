"""A model with another vocabulary: what was kept gives the same numbers to the bit, in every part that has the size."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_model import model_folder, random_model, toy_config

from bertkit.errors import InputError
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import build, load, save
from bertkit.model.resize import load_to_resize, resize_vocabulary, resized_files

SIZE = toy_config().vocab_size
IDS = torch.arange(SIZE).view(2, -1)  # every id is in the batch
KEPT = list(range(SIZE))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(*, tied: bool = True, head: str = "pretraining") -> PretrainingModel:
    return random_model(head=head, config=toy_config(tie_word_embeddings=tied))


def matrices(model: PretrainingModel) -> list[torch.Tensor]:
    found = [model.encoder.embeddings.word_embeddings.weight, model.mlm_head.bias]
    return [*found, *([] if model.mlm_head.decoder is None else [model.mlm_head.decoder])]


# ---- what grows ----


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_embeddings_decoder_bias_and_config_grow_together(tied: bool, head: str) -> None:
    model = resize_vocabulary(model_of(tied=tied, head=head), rows=[*KEPT, (), (7,), (8, 9)], generator=generator())
    assert isinstance(model, PretrainingModel)
    assert {len(matrix) for matrix in matrices(model)} == {SIZE + 3}
    assert model.config.vocab_size == SIZE + 3
    assert (model.mlm_head.decoder is None) == tied
    assert not model.training


@pytest.mark.parametrize("tied", [True, False])
def test_old_rows_hidden_states_and_scores_are_the_same_to_the_bit(tied: bool) -> None:
    old = model_of(tied=tied)
    new = resize_vocabulary(old, rows=[*KEPT, (), (7,), (8, 9)], generator=generator())
    for before, after in zip(matrices(old), matrices(new), strict=True):
        assert torch.equal(after[:SIZE], before)
    with torch.no_grad():
        before, after = old(IDS), new(IDS)
        assert torch.equal(after.last_hidden_state, before.last_hidden_state)
        assert torch.equal(after.nsp_logits, before.nsp_logits)
        # A product of another width may be rounded otherwise; the same product gives the same bits.
        torch.testing.assert_close(after.mlm_logits[..., :SIZE], before.mlm_logits, rtol=0, atol=1e-6)
        again = resize_vocabulary(new, rows=KEPT, generator=generator())(IDS)
        assert torch.equal(again.mlm_logits, before.mlm_logits)


@pytest.mark.parametrize("tied", [True, False])
def test_the_score_of_a_new_word_is_the_mean_of_the_scores_of_its_pieces(tied: bool) -> None:
    new = resize_vocabulary(model_of(tied=tied), rows=[*KEPT, (8, 9, 12)], generator=generator())
    with torch.no_grad():
        scores = new(IDS).mlm_logits
    torch.testing.assert_close(scores[..., -1], scores[..., [8, 9, 12]].mean(-1), rtol=0, atol=1e-5)


def test_a_word_in_the_place_of_an_unused_entry_moves_no_other() -> None:
    old = model_of()
    new = resize_vocabulary(old, rows=[0, (8, 9), *KEPT[2:]], generator=generator())
    for before, after in zip(matrices(old), matrices(new), strict=True):
        assert torch.equal(after[2:], before[2:])
        assert torch.equal(after[0], before[0])
        torch.testing.assert_close(after[1], before[[8, 9]].mean(0))
    assert new.config.vocab_size == SIZE


def test_dropped_rows_leave_the_others_as_they_were() -> None:
    old, rows = model_of(tied=False), [id for id in KEPT if id % 3 != 1]
    new = resize_vocabulary(old, rows=rows, generator=generator())
    for before, after in zip(matrices(old), matrices(new), strict=True):
        assert torch.equal(after, before[rows])
    ids = torch.tensor([[rows.index(3), rows.index(5)]])
    with torch.no_grad():
        assert torch.equal(new(ids).last_hidden_state, old(torch.tensor([[3, 5]])).last_hidden_state)


def test_the_id_that_pads_moves_with_its_row() -> None:
    model = resize_vocabulary(model_of(), rows=[5, 3, 0], generator=generator())
    assert model.config.pad_token_id == 2
    assert model.encoder.embeddings.word_embeddings.padding_idx == 2


def test_rows_drawn_have_the_spread_of_a_new_model_and_no_bias() -> None:
    old = model_of(tied=False)
    new = resize_vocabulary(old, rows=[*KEPT, *[()] * 500], generator=generator())
    for matrix in (new.encoder.embeddings.word_embeddings.weight, new.mlm_head.decoder):
        assert abs(float(matrix[SIZE:].detach().std()) - old.config.initializer_range) < 0.0005
    assert not new.mlm_head.bias[SIZE:].any()


def test_the_draws_are_those_of_the_generator() -> None:
    rows = [*KEPT, (), ()]
    weights = [
        resize_vocabulary(model_of(), rows=rows, generator=generator(seed)).encoder.embeddings.word_embeddings.weight
        for seed in (1, 1, 2)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_given_model_is_untouched_and_shares_nothing() -> None:
    old = model_of()
    before = {name: tensor.clone() for name, tensor in old.state_dict().items()}
    new = resize_vocabulary(old, rows=KEPT, generator=generator())
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.fill_(3.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in old.state_dict().items())


@pytest.mark.parametrize("pooler", [True, False])
def test_an_encoder_alone_is_resized(pooler: bool) -> None:
    torch.manual_seed(0)
    old = Encoder(toy_config(), pooler=pooler).eval()
    new = resize_vocabulary(old, rows=[*KEPT, (7,)], generator=generator())
    with torch.no_grad():
        assert torch.equal(new(IDS).last_hidden_state, old(IDS).last_hidden_state)
        assert torch.equal(new(torch.tensor([[SIZE]])).last_hidden_state, old(torch.tensor([[7]])).last_hidden_state)


def test_a_resized_model_learns() -> None:
    torch.manual_seed(0)
    model = resize_vocabulary(model_of(), rows=[*KEPT, (), (8, 9)], generator=generator()).train()
    labels = torch.full((2, SIZE // 2), SIZE)
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        loss = model(IDS, mlm_labels=labels, next_sentence_label=torch.tensor([0, 1])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


# ---- what is refused ----


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows: a vocabulary needs at least one entry"),
        ([0, SIZE], rf"(?s)rows: is no id of the model.*value: {SIZE}.*expected: 0 to {SIZE - 1}"),
        ([0, (3, -1)], r"(?s)is no id of the model.*value: -1"),
        ([1, 2, (0,)], r"(?s)pad_token_id: the row that pads is not kept.*value: 0"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resize_vocabulary(model_of(), rows=rows, generator=generator())


# ---- folders ----


@pytest.mark.parametrize("head", ["pretraining", "masked_lm", "next_sentence", None])
def test_a_folder_is_loaded_with_the_heads_it_has(tmp_path: Path, head: str | None) -> None:
    torch.manual_seed(0)
    old = build(toy_config(), head=head).eval()
    save(tmp_path, old, files={})
    model, report = load_to_resize(tmp_path)
    assert model.state_dict().keys() == old.state_dict().keys()
    assert (report.newly_made, report.ignored) == ([], [])
    for name, content in resized_files(model, rows=[*KEPT, ()], seed=1, made_from="old", wish="one added").items():
        (tmp_path / name).write_bytes(content)
    assert load(tmp_path, head=head).config.vocab_size == SIZE + 1


def test_the_card_says_what_was_done(tmp_path: Path) -> None:
    files = resized_files(model_of(), rows=[*KEPT, (7,)], seed=1, made_from="runs/songci", wish="1 words added")
    card = files["README.md"].decode("utf-8")
    assert f"vocabulary of {SIZE + 1}" in card
    assert "| made from | runs/songci |" in card
    assert "| change | 1 words added |" in card
    assert json.loads(files["config.json"])["vocab_size"] == SIZE + 1


def test_position_ids_of_old_files_are_no_loss(tmp_path: Path) -> None:
    model_folder(tmp_path, model_of())
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"bert.embeddings.position_ids": torch.arange(64)}, tmp_path / "model.safetensors")
    load_to_resize(tmp_path)


def test_a_model_with_tensors_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path, model_of())
    tensors = load_file(tmp_path / "model.safetensors")
    many = {f"classifier.{n}.weight": torch.ones(1) for n in range(7)}
    save_file(tensors | many, tmp_path / "model.safetensors")
    with pytest.raises(
        InputError, match=r"(?s)would be lost: classifier\.0\.weight.* and 2 more.*fine-tune the result"
    ):
        load_to_resize(tmp_path)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    model_folder(tmp_path, model_of())
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(InputError, match="is damaged or no safetensors file"):
        load_to_resize(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path, model_of())
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: does not exist"):
        load_to_resize(tmp_path)
