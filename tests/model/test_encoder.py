"""The encoder: shapes and sizes, inputs left out, inputs it refuses, and how it behaves in training."""

import dataclasses

import pytest
import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.config import BertConfig, config_of_size
from bertkit.model.encoder import Encoder, EncoderOutput

CONFIG = BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, pad_token_id=0
)
NO_DROPOUT = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
# [CLS] 窗 前 明 月 光 [SEP] and a shorter row, as ids below 60.
INPUT_IDS = torch.tensor([[2, 17, 9, 42, 33, 28, 3], [2, 11, 58, 3, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]])


def encoder(config: BertConfig = CONFIG, *, pooler: bool = True) -> Encoder:
    """A seeded encoder in eval mode."""
    torch.manual_seed(0)
    return Encoder(config, pooler=pooler).eval()


def num_parameters(config: BertConfig) -> float:
    """Millions of parameters of an encoder with its pooler, counted without storage."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Encoder(config).parameters()) / 1e6


def assert_same(one: EncoderOutput, other: EncoderOutput) -> None:
    torch.testing.assert_close(one.last_hidden_state, other.last_hidden_state, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.pooler_output, other.pooler_output, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "vocab_size", "millions"),
    [
        ("tiny", 30522, 4.4),
        ("mini", 30522, 11.2),
        ("small", 30522, 28.8),
        ("medium", 30522, 41.4),
        ("base", 30522, 109.5),
        ("base", 21128, 102.3),
        ("large", 30522, 335.1),
    ],
)
def test_a_size_has_as_many_parameters_as_google_says(size: str, vocab_size: int, millions: float) -> None:
    assert num_parameters(config_of_size(size, vocab_size=vocab_size)) == pytest.approx(millions, abs=0.05)


def test_a_base_encoder_gives_the_shapes_everybody_knows() -> None:
    with torch.device("meta"):
        model = Encoder(config_of_size("base", vocab_size=21128)).eval()
        output = model(torch.zeros(1, 7, dtype=torch.int64), output_hidden_states=True, output_attentions=True)
    assert output.last_hidden_state.shape == (1, 7, 768)
    assert output.pooler_output is not None
    assert output.pooler_output.shape == (1, 768)
    assert output.hidden_states is not None
    assert [tuple(state.shape) for state in output.hidden_states] == 13 * [(1, 7, 768)]
    assert output.attentions is not None
    assert [tuple(weights.shape) for weights in output.attentions] == 12 * [(1, 12, 7, 7)]


def test_hidden_states_begin_with_the_embeddings_and_end_with_the_last_layer() -> None:
    model = encoder()
    output = model(INPUT_IDS, attention_mask=MASK, output_hidden_states=True)
    assert output.hidden_states is not None
    assert output.hidden_states[-1] is output.last_hidden_state
    words = model.embeddings.word_embeddings(INPUT_IDS)
    embedded = model.embeddings(words, torch.zeros_like(INPUT_IDS), torch.arange(7)[None])
    torch.testing.assert_close(output.hidden_states[0], embedded, rtol=0, atol=0)


def test_states_and_attentions_come_only_on_request_and_change_nothing() -> None:
    model = encoder()
    plain = model(INPUT_IDS, attention_mask=MASK)
    full = model(INPUT_IDS, attention_mask=MASK, output_hidden_states=True, output_attentions=True)
    assert plain.hidden_states is None
    assert plain.attentions is None
    assert_same(plain, full)


def test_attentions_sum_to_one_and_are_exactly_zero_on_padding() -> None:
    attentions = encoder()(INPUT_IDS, attention_mask=MASK, output_attentions=True).attentions
    assert attentions is not None
    for weights in attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 7))
        assert bool((weights[1, :, :, 4:] == 0).all())


def test_an_encoder_without_pooler_gives_the_same_states_and_no_pooler_output() -> None:
    with_pooler, without = encoder(), encoder(pooler=False)
    without.load_state_dict({k: v for k, v in with_pooler.state_dict().items() if not k.startswith("pooler")})
    output = without(INPUT_IDS)
    assert output.pooler_output is None
    torch.testing.assert_close(output.last_hidden_state, with_pooler(INPUT_IDS).last_hidden_state, rtol=0, atol=0)


def test_inputs_left_out_are_the_defaults_given_explicitly() -> None:
    model = encoder()
    explicit = model(
        INPUT_IDS,
        attention_mask=torch.ones_like(INPUT_IDS).bool(),
        token_type_ids=torch.zeros_like(INPUT_IDS),
        position_ids=torch.arange(7).expand(2, 7),
    )
    assert_same(model(INPUT_IDS), explicit)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_a_mask_of_ones_is_a_mask_of_true(dtype: torch.dtype) -> None:
    model = encoder()
    assert_same(model(INPUT_IDS, attention_mask=MASK), model(INPUT_IDS, attention_mask=MASK.to(dtype)))


def test_embeddings_in_place_of_ids_give_the_same() -> None:
    model = encoder()
    embeds = model.embeddings.word_embeddings(INPUT_IDS)
    by_ids = model(INPUT_IDS, attention_mask=MASK, token_type_ids=SEGMENTS)
    assert_same(by_ids, model(inputs_embeds=embeds, attention_mask=MASK, token_type_ids=SEGMENTS))


def test_positions_and_segments_matter() -> None:
    model = encoder()
    plain = model(INPUT_IDS).last_hidden_state
    assert not torch.allclose(plain, model(INPUT_IDS, token_type_ids=SEGMENTS).last_hidden_state, atol=1e-3)
    backwards = torch.arange(6, -1, -1)[None]
    assert not torch.allclose(plain, model(INPUT_IDS, position_ids=backwards).last_hidden_state, atol=1e-3)


def test_a_row_does_not_depend_on_the_batch_it_stands_in() -> None:
    model = encoder()
    together = model(INPUT_IDS, attention_mask=MASK).last_hidden_state
    alone = model(INPUT_IDS[1:, :4]).last_hidden_state
    torch.testing.assert_close(together[1:, :4], alone, rtol=0, atol=1e-5)


def test_permuting_tokens_with_their_positions_permutes_the_states() -> None:
    model = encoder()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    positions = torch.arange(7)[None]
    states = model(INPUT_IDS, position_ids=positions).last_hidden_state
    permuted = model(INPUT_IDS[:, order], position_ids=positions[:, order]).last_hidden_state
    torch.testing.assert_close(permuted, states[:, order], rtol=0, atol=1e-5)


def test_a_row_of_padding_alone_stays_finite() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
    for attentions in (False, True):
        model = encoder().train()
        output = model(INPUT_IDS, attention_mask=mask, output_attentions=attentions)
        assert bool(output.last_hidden_state.isfinite().all())
        output.last_hidden_state.sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_bfloat16_stays_near_float32() -> None:
    model = encoder()
    exact = model(INPUT_IDS, attention_mask=MASK).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(INPUT_IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("name", "bad", "limit"),
    [("input_ids", 60, 60), ("input_ids", -1, 60), ("token_type_ids", 2, 2), ("position_ids", 512, 512)],
)
def test_an_id_outside_its_table_is_refused_with_row_column_and_limit(name: str, bad: int, limit: int) -> None:
    inputs = {"input_ids": INPUT_IDS.clone(), "token_type_ids": SEGMENTS.clone()}
    inputs["position_ids"] = torch.arange(7).repeat(2, 1)
    inputs[name][1, 3] = bad
    with pytest.raises(
        InputError, match=f"{name}: row 1, column 3 is {bad}, but the table has {limit} entries"
    ) as caught:
        encoder()(inputs.pop("input_ids"), **inputs)
    assert f"expected: 0 to {limit - 1}" in str(caught.value)
    assert "check that the tokenizer belongs to this model" in str(caught.value)


def test_a_row_longer_than_the_positions_is_refused_with_row_and_limit() -> None:
    ids = torch.full((2, 600), 7)
    mask = torch.ones(2, 600)
    mask[0, 300:] = 0
    with pytest.raises(InputError, match=r"600 tokens wide \(the longest is row 1\).*512 positions") as caught:
        encoder()(ids, attention_mask=mask)
    assert "windows of at most 512 tokens" in str(caught.value)
    with pytest.raises(InputError, match=r"600 tokens wide \(the longest is row 0\)"):
        encoder()(ids[:1])


def test_neither_or_both_of_ids_and_embeddings_are_refused() -> None:
    model = encoder()
    with pytest.raises(InputError, match="give input_ids or inputs_embeds, one of the two"):
        model()
    with pytest.raises(InputError, match="give input_ids or inputs_embeds, one of the two"):
        model(INPUT_IDS, inputs_embeds=torch.zeros(2, 7, 32))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("input_ids", INPUT_IDS[0], r"input_ids: has shape \(7,\)\n  expected: \(batch, seq\)"),
        ("input_ids", INPUT_IDS[:, :0], r"input_ids: has shape \(2, 0\)"),
        ("inputs_embeds", torch.zeros(7, 32), r"(?s)inputs_embeds: has shape \(7, 32\).*\(batch, seq, hidden\)"),
        ("attention_mask", torch.ones(2, 7, 7), r"attention_mask: has shape \(2, 7, 7\)\n  expected: \(2, 7\)"),
        ("attention_mask", MASK[:, :6], r"attention_mask: has shape \(2, 6\)"),
        ("token_type_ids", SEGMENTS[0], r"token_type_ids: has shape \(7,\)"),
        ("position_ids", torch.arange(7).expand(3, 7), r"position_ids: has shape \(3, 7\)"),
    ],
)
def test_an_input_of_another_shape_is_refused(name: str, tensor: Tensor, message: str) -> None:
    inputs = {name: tensor} if name in ("input_ids", "inputs_embeds") else {"input_ids": INPUT_IDS, name: tensor}
    with pytest.raises(InputError, match=message):
        encoder()(**inputs)


def test_a_new_encoder_is_drawn_as_the_configuration_says() -> None:
    model = encoder(dataclasses.replace(CONFIG, vocab_size=2000, initializer_range=0.05, pad_token_id=7))
    words = model.embeddings.word_embeddings.weight
    assert bool((words[7] == 0).all())
    assert words.std().item() == pytest.approx(0.05, rel=0.05)
    assert model.layers[0].attention.query_key_value.weight.std().item() == pytest.approx(0.05, rel=0.05)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert bool((parameter == 0).all()), name
        elif name.endswith("norm.weight"):
            assert bool((parameter == 1).all()), name
        else:
            assert bool((parameter != 0).any()), name


def test_the_same_seed_draws_the_same_encoder() -> None:
    for one, other in zip(encoder().parameters(), encoder().parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_callable_activation_is_used() -> None:
    model = encoder(CONFIG)
    by_callable = encoder(dataclasses.replace(CONFIG, hidden_act=torch.nn.functional.gelu))
    assert_same(model(INPUT_IDS), by_callable(INPUT_IDS))


def test_training_reaches_every_parameter_and_the_loss_falls() -> None:
    model = encoder().train()
    target = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        output = model(INPUT_IDS, token_type_ids=SEGMENTS)
        assert output.pooler_output is not None
        loss = (output.last_hidden_state - target).square().mean() + (output.pooler_output - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            untouched = [n for n, p in model.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
            assert untouched == []
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_changes_the_output_in_training_only(name: str) -> None:
    model = encoder(dataclasses.replace(NO_DROPOUT, **{name: 0.5}))
    assert_same(model(INPUT_IDS), model(INPUT_IDS))
    model.train()
    assert not torch.allclose(model(INPUT_IDS).last_hidden_state, model(INPUT_IDS).last_hidden_state, atol=1e-4)


def test_without_dropout_training_and_evaluation_give_the_same() -> None:
    model = encoder(NO_DROPOUT)
    evaluated = model(INPUT_IDS, attention_mask=MASK)
    assert_same(evaluated, model.train()(INPUT_IDS, attention_mask=MASK))


def test_the_padding_row_takes_no_gradient_from_being_looked_up() -> None:
    model = encoder(dataclasses.replace(CONFIG, pad_token_id=5))
    ids = torch.tensor([[2, 17, 5, 5], [2, 9, 3, 5]])
    model(ids).last_hidden_state.square().sum().backward()
    gradient = model.embeddings.word_embeddings.weight.grad
    assert gradient is not None
    assert bool((gradient[5] == 0).all())
    assert bool((gradient[17] != 0).any())


def test_a_batch_without_rows_goes_through_with_and_without_positions_to_read() -> None:
    """A process that has no rows left in a step still takes its turn."""
    encoder = Encoder(CONFIG).train()
    ids, nothing = torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    for read in (None, nothing):
        encoder.zero_grad()
        found = encoder(ids, read_positions=read)
        (found.last_hidden_state.sum() + found.pooler_output.sum()).backward()
        assert all(p.grad is not None and not p.grad.any() for p in encoder.parameters())
