"""A batch without padding: what is taken out comes back to its place, and so do the gradients."""

from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertkit.model import attention as attention_module
from bertkit.model import encoder as encoder_module
from bertkit.model.attention import attend, attend_packed
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.unpadding import Unpadding, unpadding_of

CPU = torch.device("cpu")


def unpadding_for(mask: Tensor, *, multiple: int = 1) -> Unpadding | None:
    return unpadding_of(mask, batch=mask.size(0), seq=mask.size(1), multiple=multiple, device=CPU)


@st.composite
def masks(draw: st.DrawFn) -> Tensor:
    """(batch, seq): rows of real tokens, then padding, or tokens with holes."""
    batch, seq = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    rows = st.lists(st.booleans(), min_size=seq, max_size=seq)
    return torch.tensor(draw(st.lists(rows, min_size=batch, max_size=batch)))


@given(masks(), st.sampled_from([1, 4, 32]))
def test_taking_out_and_putting_back_keeps_every_real_token(mask: Tensor, multiple: int) -> None:
    unpadding = unpadding_for(mask, multiple=multiple)
    if unpadding is None:
        return
    padded = torch.arange(1.0, mask.numel() + 1)[:, None]  # (batch · seq, 1)
    unpadded = unpadding.unpad(padded)
    assert len(unpadded) % multiple == 0
    assert torch.equal(unpadded[: unpadding.num_real], padded[mask.flatten()])
    assert torch.equal(unpadding.pad(unpadded)[mask.flatten()], padded[mask.flatten()])
    assert torch.equal(unpadding.rows()[: unpadding.num_real], mask.nonzero()[:, 0])


@given(masks(), st.sampled_from([1, 4, 32]))
def test_gradients_go_where_the_values_came_from(mask: Tensor, multiple: int) -> None:
    unpadding = unpadding_for(mask, multiple=multiple)
    if unpadding is None:
        return
    torch.manual_seed(0)
    padded = torch.randn(mask.numel(), 2, requires_grad=True)
    factors = torch.randn(unpadding.num_real, 2)
    (unpadding.unpad(padded)[: unpadding.num_real] * factors).sum().backward()
    expected = torch.zeros(mask.numel(), 2)
    expected[mask.flatten()] = factors
    torch.testing.assert_close(padded.grad, expected)

    unpadded = torch.randn(len(unpadding.positions), 2, requires_grad=True)
    weights = torch.randn(mask.numel(), 2)
    (unpadding.pad(unpadded)[mask.flatten()] * weights[mask.flatten()]).sum().backward()
    expected = torch.zeros_like(unpadded)
    expected[: unpadding.num_real] = weights[mask.flatten()]
    torch.testing.assert_close(unpadded.grad, expected)


@pytest.mark.parametrize(
    ("rows", "multiple"),
    [([[1, 1], [1, 1]], 1), ([[1, 1], [1, 1]], 4), ([[0, 0]], 1), ([[1, 1], [1, 0]], 1)],
)
def test_nothing_is_unpadded_where_nothing_is_gained(rows: list[list[int]], multiple: int) -> None:
    """No padding, no token at all, and padding so little that the token in its stead is as much."""
    assert unpadding_for(torch.tensor(rows, dtype=torch.bool), multiple=multiple) is None


def test_without_padding_only_the_round_number_is_made() -> None:
    unpadding = unpadding_of(None, batch=3, seq=3, multiple=4, device=CPU)
    assert unpadding is not None
    assert unpadding.positions.tolist() == [*range(9), 0, 0, 0]
    assert unpadding.places.tolist() == list(range(9))


CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=12,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


@given(masks(), st.sampled_from([1, 4, 32]))
def test_packed_rows_begin_where_the_row_changes(mask: Tensor, multiple: int) -> None:
    batch, seq = mask.shape
    unpadding = unpadding_of(mask, batch=batch, seq=seq, multiple=multiple, device=CPU, packed=True)
    if unpadding is None:
        return
    assert unpadding.bounds is not None
    assert unpadding.bounds.dtype == torch.int32
    lengths = torch.diff(unpadding.bounds).tolist()
    assert lengths == [*mask.sum(1).tolist(), len(unpadding.positions) - unpadding.num_real]


def test_each_packed_row_sees_itself_alone() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 2), torch.randn(6, 4, 2), torch.randn(6, 4, 2)
    starts, bounds = (torch.tensor(each, dtype=torch.int32) for each in ([0, 1, 1, 3], [0, 4, 4, 6]))
    found = attend_packed(query, key, value, query_bounds=starts, bounds=bounds, longest=4)
    for queries, tokens in ((slice(0, 1), slice(0, 4)), (slice(1, 3), slice(4, 6))):
        rows = (part.transpose(0, 1)[None] for part in (query[queries], key[tokens], value[tokens]))
        torch.testing.assert_close(found[queries], attend(*rows)[0][0].transpose(0, 1))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_losses_and_gradients_are_those_of_the_padded_batch(
    monkeypatch: pytest.MonkeyPatch, multiple: int, dtype: torch.dtype, packed: bool
) -> None:
    """All exact savings at once (unpadding, partial last layer, sparse head) against none of them, in training mode."""
    torch.manual_seed(0)
    model = PretrainingModel(CONFIG).to(dtype).train()
    kernel = Mock(wraps=attend_packed)
    monkeypatch.setattr(attention_module, "attend_packed", kernel)
    lengths = torch.tensor([11, 4, 7, 2])
    mask = torch.arange(11) < lengths[:, None]  # (4, 11)
    ids = torch.randint(5, 40, (4, 11)).where(mask, 0)
    types = (torch.arange(11) >= 2).long().expand(4, 11)
    positions = torch.tensor([1, 3, 12, 23, 24, 27, 34])
    factors = torch.randn(len(positions), 40, dtype=dtype), torch.randn(4, 2, dtype=dtype)

    def gradients(*, unpadded: bool) -> list[Tensor]:
        if unpadded:
            monkeypatch.setattr(encoder_module, "round_rows", lambda: multiple)
            model.encoder.packs_rows = packed
            logits = model.logits_where_read(ids, mlm_positions=positions, attention_mask=mask, token_type_ids=types)
        else:
            output = model(ids, attention_mask=mask, token_type_ids=types)
            logits = output.mlm_logits.flatten(0, 1)[positions], output.nsp_logits
        loss = sum((part.log_softmax(-1) * factor).sum() for part, factor in zip(logits, factors, strict=True))
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    plain, ours = gradients(unpadded=False), gradients(unpadded=True)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(ours[0], plain[0], rtol=1e-5, atol=0)
    norm = float(torch.stack([gradient.norm() for gradient in plain[1:]]).norm())
    for one, other in zip(ours[1:], plain[1:], strict=True):
        assert float((one - other).norm()) <= tolerance * norm
    assert kernel.call_count == (CONFIG.num_hidden_layers if packed else 0)


def test_one_mask_may_stand_for_all_rows() -> None:
    torch.manual_seed(0)
    encoder = Encoder(CONFIG).eval()
    ids, mask = torch.randint(5, 40, (3, 8)), torch.arange(8)[None] < 5  # (1, 8)
    whole = encoder(ids, attention_mask=mask.expand(3, 8)).last_hidden_state[:, :5]
    found = encoder(ids, attention_mask=mask, padding_is_read=False).last_hidden_state[:, :5]
    torch.testing.assert_close(found, whole)
    read = encoder(ids, attention_mask=mask, read_positions=torch.tensor([1, 9, 20])).last_hidden_state
    torch.testing.assert_close(read, whole[torch.arange(3), torch.tensor([1, 1, 4])])


def test_rows_are_packed_for_a_tagger_in_training_alone() -> None:
    """Where every token is read, and none at padding; evaluation, in float32, takes the rows as they are."""
    torch.manual_seed(0)
    encoder = Encoder(CONFIG)
    mask = torch.arange(8) < torch.tensor([[8], [3], [5]])
    ids = torch.randint(5, 40, (3, 8))
    plain = encoder(ids, attention_mask=mask, padding_is_read=False).last_hidden_state[mask]
    encoder.packs_rows = True
    for training in (True, False):
        found = encoder.train(training)(ids, attention_mask=mask, padding_is_read=False).last_hidden_state[mask]
        torch.testing.assert_close(found, plain)


def test_a_position_of_padding_may_be_read() -> None:
    """Nothing is left out then."""
    torch.manual_seed(0)
    model = PretrainingModel(CONFIG).eval()
    mask = torch.arange(6) < torch.tensor([[6], [2]])
    ids, positions = torch.randint(5, 40, (2, 6)), torch.tensor([9])
    whole = model.encoder(ids, attention_mask=mask).last_hidden_state.flatten(0, 1)[positions]
    read = model.encoder(ids, attention_mask=mask, read_positions=positions).last_hidden_state
    torch.testing.assert_close(read, whole, rtol=0, atol=1e-5)
