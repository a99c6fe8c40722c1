"""Inside an encoder: each head's share, masks of heads and layers, a last layer finished only where it is read."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.attention import SelfAttention, read_rows
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel

CONFIG = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
# [CLS] 窗 前 明 月 光 [SEP], and shorter rows, as ids below 60.
INPUT_IDS = torch.tensor([[2, 17, 9, 42, 33, 28, 3], [2, 11, 58, 3, 0, 0, 0], [2, 11, 17, 9, 3, 0, 0]])
BATCH = {
    "input_ids": INPUT_IDS,
    "attention_mask": INPUT_IDS != 0,
    "token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0]]),
}
POSITIONS = torch.tensor([3, 1, 5, 9, 15, 16, 17])  # two of row 0 out of order, one of row 1, three of row 2
TARGETS = torch.tensor([42, 17, 28, 58, 11, 17, 9])
NEXT = torch.tensor([0, 1, 0])


def encoder(*, pooler: bool = True, dtype: torch.dtype = torch.float64, config: BertConfig = CONFIG) -> Encoder:
    """A seeded encoder in eval mode whose biases are not 0."""
    torch.manual_seed(0)
    model = Encoder(config, pooler=pooler).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def test_the_shares_of_the_heads_and_the_bias_are_the_output_of_the_attention() -> None:
    model, seen = encoder(), []
    for layer in model.layers:
        layer.attention.register_forward_hook(lambda _module, _given, output: seen.append(output[0]))
    shares = model(**BATCH, output_head_outputs=True).head_outputs
    assert [tuple(share.shape) for share in shares] == 3 * [(3, 4, 7, 32)]
    for layer, share, attended in zip(model.layers, shares, seen, strict=True):
        torch.testing.assert_close(share.sum(1) + layer.attention.output.bias, attended, rtol=0, atol=1e-12)


def test_what_is_asked_for_changes_nothing_and_comes_only_then() -> None:
    model = encoder()
    plain = model(**BATCH)
    full = model(**BATCH, output_hidden_states=True, output_attentions=True, output_head_outputs=True)
    assert plain.head_outputs is None
    torch.testing.assert_close(full.last_hidden_state, plain.last_hidden_state, rtol=0, atol=1e-12)
    torch.testing.assert_close(full.pooler_output, plain.pooler_output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("explicit", [False, True])
def test_masks_of_ones_change_nothing_fused_or_written_out(explicit: bool) -> None:
    model = encoder()
    plain = model(**BATCH).last_hidden_state
    for heads, layers in ((torch.ones(3, 4), torch.ones(3)), (torch.ones(3, 3, 4), torch.ones(3, 3))):
        ones = {"head_mask": heads.double(), "layer_mask": layers.double()}
        masked = model(**BATCH, **ones, output_attentions=explicit).last_hidden_state
        torch.testing.assert_close(masked, plain, rtol=0, atol=1e-12)


def test_a_head_mask_scales_the_share_of_its_head_alone() -> None:
    model = encoder()
    mask = torch.ones(3, 4, dtype=torch.float64)
    mask[0, 1], mask[0, 3] = 0.0, 0.5
    plain, masked = (model(**BATCH, head_mask=m, output_head_outputs=True).head_outputs[0] for m in (None, mask))
    torch.testing.assert_close(masked, plain * mask[0][None, :, None, None], rtol=0, atol=1e-12)


@pytest.mark.parametrize("explicit", [False, True])
def test_a_head_mask_is_a_factor_of_the_heads_attention(explicit: bool) -> None:
    """The law of Michel et al.: the gradient at the mask is what the finite difference says."""
    model = encoder()
    mask = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)

    def total(mask: Tensor) -> Tensor:
        return model(**BATCH, head_mask=mask, output_attentions=explicit).pooler_output.pow(2).sum()

    [gradient] = torch.autograd.grad(total(mask), mask)
    step = torch.zeros_like(mask)
    for layer, head in ((0, 0), (1, 2), (2, 3)):
        step.zero_()[layer, head] = 1e-5
        with torch.no_grad():
            difference = (total(mask + step) - total(mask - step)) / 2e-5
        assert float(gradient[layer, head]) == pytest.approx(float(difference), rel=1e-6)


def test_a_mask_of_each_row_is_that_of_the_row_alone() -> None:
    model = encoder()
    heads = torch.rand(3, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layers = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    together = model(**BATCH, head_mask=heads, layer_mask=layers).last_hidden_state
    for row in range(3):
        one = {name: tensor[row : row + 1] for name, tensor in BATCH.items()}
        alone = model(**one, head_mask=heads[row], layer_mask=layers[row]).last_hidden_state
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-12)


def test_a_layer_mask_of_zero_passes_the_layers_input_on() -> None:
    model = encoder()
    mask = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    states = model(**BATCH, layer_mask=mask, output_hidden_states=True).hidden_states
    assert torch.equal(states[2], states[1])
    assert not torch.allclose(states[3], states[2])


# ---- a last layer finished only where it is read ---------------------------------------------------------------------


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_states_read_are_those_of_the_whole(pooler: bool, padded: bool) -> None:
    model = encoder(pooler=pooler)
    batch = BATCH if padded else {name: BATCH[name] for name in ("input_ids", "token_type_ids")}
    whole, read = model(**batch), model(**batch, read_positions=POSITIONS)
    expected = whole.last_hidden_state.flatten(0, 1)[POSITIONS]
    torch.testing.assert_close(read.last_hidden_state, expected, rtol=0, atol=1e-12)
    assert (read.pooler_output is None) is not pooler
    if pooler:
        torch.testing.assert_close(read.pooler_output, whole.pooler_output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", [[], [20], [6, 6], list(range(21)), list(range(7))])
def test_any_positions_may_be_read(positions: list[int]) -> None:
    wanted = torch.tensor(positions, dtype=torch.int64)
    for pooler in (True, False):
        model = encoder(pooler=pooler)
        expected = model(**BATCH).last_hidden_state.flatten(0, 1)[wanted]
        read = model(**BATCH, read_positions=wanted).last_hidden_state
        torch.testing.assert_close(read, expected, rtol=0, atol=1e-12)


def losses(model: PretrainingModel, *, read: bool, masks: dict[str, Tensor]) -> Tensor:
    """The two losses of pre-training, the masked-LM head at labelled positions only."""
    encoded = model.encoder(**BATCH, read_positions=POSITIONS if read else None, **masks)
    hidden = encoded.last_hidden_state
    hidden = hidden if read else hidden.flatten(0, 1)[POSITIONS]
    logits = model.mlm_head(hidden, model.encoder.embeddings.word_embeddings.weight)
    return F.cross_entropy(logits, TARGETS) + F.cross_entropy(model.nsp_head(encoded.pooler_output), NEXT)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_gradients_are_those_of_the_whole(layers: int, masked: bool) -> None:
    """With padding, the next-sentence head, the sparse masked-LM head, and masks of heads and layers."""
    torch.manual_seed(0)
    model = PretrainingModel(dataclasses.replace(CONFIG, num_hidden_layers=layers)).double()
    model.encoder.load_state_dict(encoder(config=model.config).state_dict())
    masks = {}
    if masked:
        masks = {"head_mask": torch.rand(3, layers, 4).double(), "layer_mask": torch.rand(3, layers).double()}
    whole = torch.autograd.grad(losses(model, read=False, masks=masks), list(model.parameters()))
    read = torch.autograd.grad(losses(model, read=True, masks=masks), list(model.parameters()))
    norm = torch.stack([gradient.norm() for gradient in whole]).norm()
    for one, other in zip(whole, read, strict=True):
        assert float((one - other).norm()) <= 1e-12 * float(norm)


def test_a_matrix_that_was_replaced_is_asked_for_all_rows() -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Linear) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, hidden: Tensor) -> Tensor:
            return self.inner(hidden)

    model = encoder()
    plain = model(**BATCH, read_positions=POSITIONS).last_hidden_state
    model.layers[2].attention.query_key_value = Wrapped(model.layers[2].attention.query_key_value)
    wrapped = model(**BATCH, read_positions=POSITIONS).last_hidden_state
    torch.testing.assert_close(wrapped, plain, rtol=0, atol=1e-12)


def test_dropout_works_where_only_some_rows_are_read() -> None:
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = encoder(config=config).train()
    first, second = (model(**BATCH, read_positions=POSITIONS).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)
    assert bool(first.isfinite().all())


def test_bfloat16_works_where_only_some_rows_are_read() -> None:
    model = encoder(dtype=torch.float32)
    exact = model(**BATCH, read_positions=POSITIONS).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(**BATCH, read_positions=POSITIONS).last_hidden_state
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.15)


def test_a_row_of_padding_alone_stays_finite_where_it_is_read() -> None:
    batch = BATCH | {"attention_mask": BATCH["attention_mask"] & torch.tensor([[True], [False], [True]])}
    output = encoder()(**batch, read_positions=POSITIONS)
    assert bool(output.last_hidden_state.isfinite().all())


def test_queries_are_moved_together_row_by_row() -> None:
    read = read_rows(POSITIONS, batch=4, seq=7)
    assert read.width == 3
    assert read.rows.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert read.query_places.tolist() == [0, 1, 2, 3, 6, 7, 8]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"head_mask": torch.ones(2, 4)}, r"head_mask: has shape \(2, 4\)\n.*\(3, 4\), or \(3, 3, 4\)"),
        ({"layer_mask": torch.ones(4)}, r"layer_mask: has shape \(4,\)"),
        ({"read_positions": torch.tensor([[1]])}, r"read_positions: has shape \(1, 1\)"),
        ({"read_positions": torch.tensor([0, 21])}, r"read_positions: is no position of the batch\n  value: 21"),
        ({"read_positions": torch.tensor([-1])}, "read_positions: is no position of the batch\n  value: -1"),
        ({"read_positions": POSITIONS, "output_attentions": True}, "leave the last layer unfinished"),
        ({"read_positions": POSITIONS, "output_hidden_states": True}, "leave read_positions away"),
    ],
)
def test_what_does_not_fit_is_refused(inputs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder()(**BATCH, **inputs)


def test_a_module_says_which_heads_it_has() -> None:
    assert [layer.attention.kept_heads for layer in encoder().layers] == 3 * [(0, 1, 2, 3)]
    assert SelfAttention(CONFIG, kept_heads=(1, 3)).query_key_value.weight.shape == (3 * 16, 32)
