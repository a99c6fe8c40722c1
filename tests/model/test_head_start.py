"""A head start: the output knows frequencies, words are like their neighbours, the first layer's heads look at them."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.model.config import BertConfig, config_of_size
from bertkit.model.encoder import Encoder
from bertkit.model.head_start import GAIN, POSITIONS, SHARPNESS, WORDS, give_head_start, look_at_neighbours
from bertkit.model.heads import PretrainingModel

VOCAB = 200
TINY = config_of_size("tiny", vocab_size=VOCAB)
SEEN = [-1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6]  # by the number of a head


def started(config: BertConfig, *, counts: Tensor | None = None, seed: int = 0) -> PretrainingModel:
    """A model with a head start from any vectors."""
    torch.manual_seed(seed)
    model = PretrainingModel(config).eval()
    vectors = F.normalize(torch.randn(VOCAB, config.hidden_size), dim=1)
    vectors[:5] = 0
    give_head_start(
        model, token_counts=torch.ones(VOCAB, dtype=torch.int64) if counts is None else counts, vectors=vectors
    )
    return model


def looking(config: BertConfig, *, seed: int = 0) -> Encoder:
    return started(config, seed=seed).encoder


def first_layer_weights(encoder: Encoder, *, seq: int) -> Tensor:
    """The attention of the first layer, (heads, seq, seq), mean over eight rows of any tokens."""
    ids = torch.randint(5, VOCAB, (8, seq), generator=torch.Generator().manual_seed(1))
    attentions = encoder(ids, output_attentions=True).attentions
    assert attentions is not None
    weights: Tensor = attentions[0].detach().mean(dim=0)
    return weights


def share_on(weights: Tensor, offset: int) -> float:
    """How much of the attention (seq, seq) lies on the token `offset` places away, mean over those that have one."""
    return weights.diagonal(offset).mean().item()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("size", "heads"), [("tiny", 2), ("mini", 4), ("base", 12)])
def test_each_head_of_the_first_layer_looks_at_its_neighbour(size: str, heads: int, seed: int) -> None:
    config = dataclasses.replace(config_of_size(size, vocab_size=VOCAB), num_hidden_layers=1)
    weights = first_layer_weights(looking(config, seed=seed), seq=128)
    assert len(weights) == heads
    for head, offset in zip(weights, SEEN, strict=False):
        assert share_on(head, offset) > 0.8
        assert all(share_on(head, other) < 0.05 for other in SEEN if other != offset)


def test_it_is_still_the_neighbour_at_the_end_of_the_longest_row() -> None:
    weights = first_layer_weights(looking(TINY), seq=512)
    assert share_on(weights[0], -1) > 0.7
    assert share_on(weights[1], 1) > 0.7


def test_the_other_layers_stay_as_they_were_drawn() -> None:
    torch.manual_seed(0)
    drawn = Encoder(TINY).state_dict()
    torch.manual_seed(0)
    encoder = Encoder(TINY)
    look_at_neighbours(encoder)
    changed = {name for name, tensor in encoder.state_dict().items() if not torch.equal(tensor, drawn[name])}
    assert changed == {
        "embeddings.position_embeddings.weight",
        "layers.0.attention.query_key_value.weight",
        "layers.0.attention.output.weight",
    }


def test_the_same_seed_is_the_same_model() -> None:
    one, same, other = (looking(TINY, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(*(each["embeddings.position_embeddings.weight"] for each in (one, other)))


@pytest.mark.parametrize("size", ["tiny", "base", "large"])
def test_vectors_are_as_long_in_every_width(size: str) -> None:
    """Tokens without a vector stay as they were drawn."""
    config = dataclasses.replace(config_of_size(size, vocab_size=VOCAB), num_hidden_layers=1)
    embeddings = looking(config).embeddings
    words, positions = (
        table.weight.norm(dim=1) for table in (embeddings.word_embeddings, embeddings.position_embeddings)
    )
    torch.testing.assert_close(positions, torch.full((512,), POSITIONS))
    torch.testing.assert_close(words[5:], torch.full((VOCAB - 5,), WORDS))
    assert words[0] == 0
    torch.testing.assert_close(words[1:5], torch.full((4,), 0.02 * config.hidden_size**0.5), rtol=0.25, atol=0)


@pytest.mark.parametrize("initializer_range", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("size", ["tiny", "large"])
def test_the_score_of_the_neighbour_is_what_it_is_said_to_be(size: str, initializer_range: float) -> None:
    config = dataclasses.replace(
        config_of_size(size, vocab_size=VOCAB), num_hidden_layers=1, initializer_range=initializer_range
    )
    encoder = looking(config)
    ids = torch.randint(5, VOCAB, (4, 64), generator=torch.Generator().manual_seed(1))
    states = encoder(ids, output_hidden_states=True).hidden_states
    assert states is not None
    query, key, _ = encoder.layers[0].attention.query_key_value(states[0]).view(4, 64, 3, -1, config.head_dim).unbind(2)
    scores = torch.einsum("rqhd,rkhd->hqk", query, key) / 4 / config.head_dim**0.5
    for head, place in enumerate(SEEN[: config.num_attention_heads]):
        over_others = scores[head] - scores[head].mean(dim=-1, keepdim=True)
        assert abs(over_others.diagonal(place).mean().item() - SHARPNESS) < 2


def test_values_pass_through_the_heads_without_being_weighed() -> None:
    attention = looking(TINY).layers[0].attention
    value = attention.query_key_value.weight.view(3, 128, 128)[2]
    for matrix in (value, attention.output.weight):
        torch.testing.assert_close(torch.linalg.svdvals(matrix), torch.full((128,), GAIN))


def test_heads_that_were_pruned_leave_the_others_where_they_look() -> None:
    config = dataclasses.replace(config_of_size("mini", vocab_size=VOCAB), pruned_heads={0: (0, 2)})
    weights = first_layer_weights(looking(config), seq=64)
    assert [share_on(head, offset) > 0.8 for head, offset in zip(weights, (1, 2), strict=True)] == [True, True]


@pytest.mark.parametrize("hidden_size", [4, 12])
def test_heads_too_narrow_to_look_are_no_error(hidden_size: int) -> None:
    """One number a head holds no wave; three hold one, and a number of their own."""
    config = dataclasses.replace(TINY, hidden_size=hidden_size, num_attention_heads=4)
    assert all(tensor.isfinite().all() for tensor in looking(config).state_dict().values())


def test_the_first_guess_is_the_frequency_of_each_token() -> None:
    counts = torch.zeros(VOCAB, dtype=torch.int64)
    counts[5:8] = torch.tensor([97, 2, 0])
    model = started(TINY, counts=counts)
    assert model.mlm_head is not None
    share = model.mlm_head.bias.softmax(dim=0).detach()
    torch.testing.assert_close(share[5:9] * (99 + VOCAB), torch.tensor([98.0, 3.0, 1.0, 1.0]))


def test_rows_beyond_the_vocabulary_are_as_rare_as_can_be() -> None:
    config = dataclasses.replace(TINY, vocab_size=VOCAB + 3)
    model = started(config)
    assert model.mlm_head is not None
    assert model.mlm_head.bias.unique().numel() == 2
    assert (model.mlm_head.bias[VOCAB:] < model.mlm_head.bias[0]).all()


@pytest.mark.parametrize("size", ["tiny", "base", "large"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_begins_near_the_loss_of_the_frequencies(size: str, tied: bool) -> None:
    """Scores of tied vectors of which nothing is learnt spread by WORDS, which costs half its square."""
    generator = torch.Generator().manual_seed(5)
    counts = (1e6 / torch.arange(1, VOCAB + 1) ** 1.5).long()  # as Zipf found them, and steeper
    share = (counts + 1.0) / (counts + 1.0).sum()
    targets = torch.multinomial(share, 2000, replacement=True, generator=generator)
    config = dataclasses.replace(config_of_size(size, vocab_size=VOCAB), num_hidden_layers=1, tie_word_embeddings=tied)
    model = started(config, counts=counts)
    ids = torch.randint(5, VOCAB, (20, 100), generator=generator)
    output = model(ids, mlm_positions=torch.arange(2000), mlm_targets=targets)
    unigram = -share.log()[targets].mean().item()
    assert unigram < math.log(VOCAB) - 2
    assert output.mlm_loss is not None
    assert abs(output.mlm_loss.item() - unigram) < (WORDS**2 / 2 if tied else 0.0) + 0.2
