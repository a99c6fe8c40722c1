"""The pre-training model: two ways to name targets, two losses, one head or both, and training."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit import products
from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.heads import IGNORE_INDEX, PretrainingModel
from bertkit.model.losses import linear_cross_entropy, summed_cross_entropy

CONFIG = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
INPUT_IDS = torch.tensor([[2, 17, 4, 42, 33, 28, 3], [2, 4, 58, 3, 0, 0, 0], [2, 4, 4, 12, 13, 3, 0]])
MASK = INPUT_IDS != 0
LABELS = torch.full_like(INPUT_IDS, IGNORE_INDEX)
LABELS[0, 2], LABELS[1, 1], LABELS[2, 1], LABELS[2, 2] = 9, 11, 10, 59
POSITIONS = torch.tensor([2, 8, 15, 16])  # row x 7 + column
TARGETS = torch.tensor([9, 11, 10, 59])
NEXT = torch.tensor([0, 1, 0])
NO_LABELS = torch.full_like(INPUT_IDS, IGNORE_INDEX)


def model_of(config: BertConfig = CONFIG, *, mlm: bool = True, nsp: bool = True) -> PretrainingModel:
    """A seeded model in train mode, without dropout unless the configuration has it."""
    torch.manual_seed(0)
    return PretrainingModel(config, mlm=mlm, nsp=nsp)


def gradients(model: PretrainingModel, loss: Tensor) -> Tensor:
    """The whole gradient as one vector, zeros where a parameter has none."""
    model.zero_grad()
    loss.backward()
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


@pytest.mark.parametrize("tied", [True, False])
def test_targets_by_position_and_by_dense_labels_give_the_same_loss_and_gradient(tied: bool) -> None:
    model = model_of(dataclasses.replace(CONFIG, tie_word_embeddings=tied)).double()
    sparse = model(INPUT_IDS, attention_mask=MASK, mlm_positions=POSITIONS, mlm_targets=TARGETS)
    dense = model(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS)
    assert torch.equal(sparse.loss, dense.loss)
    assert torch.equal(gradients(model, sparse.loss), gradients(model, dense.loss))


def test_logits_at_positions_are_the_dense_logits_gathered() -> None:
    model = model_of().double()
    everywhere = model(INPUT_IDS, attention_mask=MASK)
    there = model(INPUT_IDS, attention_mask=MASK, mlm_positions=POSITIONS)
    assert everywhere.mlm_logits.shape == (3, 7, 60)
    assert there.mlm_logits.shape == (4, 60)
    torch.testing.assert_close(there.mlm_logits, everywhere.mlm_logits.flatten(0, 1)[POSITIONS], rtol=0, atol=1e-12)
    expected = F.cross_entropy(everywhere.mlm_logits.flatten(0, 1), LABELS.flatten())
    loss = model(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS).mlm_loss
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)


def test_positions_need_no_order_and_targets_may_be_ignored() -> None:
    model = model_of().double()
    order = torch.tensor([3, 1, 0, 2])
    plain = model(INPUT_IDS, mlm_positions=POSITIONS, mlm_targets=TARGETS).loss
    shuffled = model(INPUT_IDS, mlm_positions=POSITIONS[order], mlm_targets=TARGETS[order]).loss
    padded = model(
        INPUT_IDS,
        mlm_positions=torch.cat([POSITIONS, torch.tensor([0, 0])]),
        mlm_targets=torch.cat([TARGETS, torch.tensor([IGNORE_INDEX, IGNORE_INDEX])]),
    ).loss
    torch.testing.assert_close(shuffled, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(padded, plain, rtol=0, atol=1e-12)


def test_the_loss_is_the_sum_of_the_losses_whose_labels_are_given() -> None:
    model = model_of()
    both = model(INPUT_IDS, mlm_labels=LABELS, next_sentence_label=NEXT)
    mlm = model(INPUT_IDS, mlm_labels=LABELS)
    nsp = model(INPUT_IDS, next_sentence_label=NEXT)
    neither = model(INPUT_IDS)
    assert both.loss == both.mlm_loss + both.nsp_loss
    assert (mlm.nsp_loss, nsp.mlm_loss, neither.loss) == (None, None, None)
    assert mlm.loss == mlm.mlm_loss == both.mlm_loss
    assert nsp.loss == nsp.nsp_loss == both.nsp_loss
    assert neither.nsp_logits.shape == (3, 2)


@pytest.mark.parametrize(
    "labels",
    [
        {"mlm_labels": NO_LABELS},
        {"mlm_positions": torch.zeros(0, dtype=torch.int64), "mlm_targets": torch.zeros(0, dtype=torch.int64)},
        {"next_sentence_label": torch.tensor([IGNORE_INDEX] * 3)},
    ],
    ids=["dense", "positions", "next sentence"],
)
def test_a_batch_without_a_target_has_a_finite_zero_loss_and_a_valid_backward(labels: dict[str, Tensor]) -> None:
    model = model_of()
    output = model(INPUT_IDS, attention_mask=MASK, **labels)
    assert output.loss.item() == 0.0
    assert bool((gradients(model, output.loss) == 0).all())


def test_both_next_sentence_classes_count() -> None:
    model = model_of()
    losses = []
    for label in (0, 1):
        output = model(INPUT_IDS, next_sentence_label=torch.full((3,), label))
        losses.append(output.nsp_loss)
        expected = -output.nsp_logits.log_softmax(-1)[:, label].mean()
        torch.testing.assert_close(output.nsp_loss, expected)
        assert output.nsp_loss.item() > 0.1
        assert bool((gradients(model, output.nsp_loss) != 0).any())
    assert losses[0] != losses[1]


def test_a_new_model_guesses_about_as_well_as_chance() -> None:
    output = model_of()(INPUT_IDS, mlm_labels=LABELS, next_sentence_label=NEXT)
    assert output.mlm_loss.item() == pytest.approx(math.log(60), abs=0.3)
    assert output.nsp_loss.item() == pytest.approx(math.log(2), abs=0.1)


def test_a_masked_lm_model_has_neither_pooler_nor_next_sentence_head() -> None:
    model = model_of(nsp=False)
    assert not [name for name, _ in model.named_parameters() if "pooler" in name or "nsp" in name]
    output = model(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS)
    assert (output.nsp_logits, output.nsp_loss, output.pooler_output) == (None, None, None)
    assert output.loss == output.mlm_loss
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_next_sentence_model_has_no_masked_lm_head() -> None:
    model = model_of(mlm=False)
    output = model(INPUT_IDS, attention_mask=MASK, next_sentence_label=NEXT)
    assert (output.mlm_logits, output.mlm_loss) == (None, None)
    assert output.loss == output.nsp_loss
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_model_gives_the_states_of_its_encoder() -> None:
    model = model_of()
    options = {"attention_mask": MASK, "output_hidden_states": True, "output_attentions": True}
    output, encoded = model(INPUT_IDS, **options), model.encoder(INPUT_IDS, **options)
    for name in ("last_hidden_state", "pooler_output", "hidden_states", "attentions"):
        torch.testing.assert_close(getattr(output, name), getattr(encoded, name), rtol=0, atol=0)


def test_embeddings_in_place_of_ids_give_the_same_loss() -> None:
    model = model_of()
    embeds = model.encoder.embeddings.word_embeddings(INPUT_IDS)
    by_ids = model(INPUT_IDS, token_type_ids=torch.zeros_like(INPUT_IDS), mlm_labels=LABELS).loss
    by_embeds = model(inputs_embeds=embeds, position_ids=torch.arange(7)[None], mlm_labels=LABELS).loss
    torch.testing.assert_close(by_ids, by_embeds)


def test_a_tied_decoder_is_the_embedding_matrix_and_an_untied_one_is_its_own() -> None:
    tied, untied = model_of(), model_of(dataclasses.replace(CONFIG, tie_word_embeddings=False))
    size = 60 * 32
    assert sum(p.numel() for p in untied.parameters()) == sum(p.numel() for p in tied.parameters()) + size
    assert untied.mlm_head.decoder.std().item() == pytest.approx(0.02, rel=0.1)  # type: ignore[union-attr]
    for model, moves in ((tied, True), (untied, False)):
        embeds = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(0))
        before = model(inputs_embeds=embeds).mlm_logits
        with torch.no_grad():
            model.encoder.embeddings.word_embeddings.weight[17] += 1.0
        changed = (model(inputs_embeds=embeds).mlm_logits != before).any(dim=1)[0]
        assert changed.nonzero().flatten().tolist() == ([17] if moves else [])


def test_the_loss_of_a_bfloat16_model_is_computed_in_float32_and_a_float64_one_stays_so() -> None:
    model = model_of()
    exact = model(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS).loss
    assert model.double()(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS).loss.dtype == torch.float64
    rough = model.bfloat16()(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS).loss
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("tied", [True, False])
def test_training_reaches_every_parameter_and_both_losses_fall(tied: bool) -> None:
    model = model_of(
        BertConfig(**{**dataclasses.asdict(CONFIG), "tie_word_embeddings": tied, "hidden_dropout_prob": 0.1})
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = None
    for _ in range(15):
        output = model(INPUT_IDS, attention_mask=MASK, mlm_labels=LABELS, next_sentence_label=NEXT)
        optimizer.zero_grad()
        output.loss.backward()
        if first is None:
            first = output
            assert [n for n, p in model.named_parameters() if p.grad is None or not bool((p.grad != 0).any())] == []
        optimizer.step()
    assert first is not None
    assert output.mlm_loss.item() < 0.5 * first.mlm_loss.item()
    assert output.nsp_loss.item() < 0.5 * first.nsp_loss.item()


def test_dropout_changes_the_loss_in_training_only() -> None:
    model = model_of(dataclasses.replace(CONFIG, hidden_dropout_prob=0.2))
    trained = [model(INPUT_IDS, mlm_labels=LABELS).loss.item() for _ in range(2)]
    model.eval()
    evaluated = [model(INPUT_IDS, mlm_labels=LABELS).loss.item() for _ in range(2)]
    assert trained[0] != trained[1]
    assert evaluated[0] == evaluated[1]


def test_a_model_without_any_head_is_refused() -> None:
    with pytest.raises(InputError, match="a pre-training model needs at least one head"):
        PretrainingModel(CONFIG, mlm=False, nsp=False)


def test_labels_for_a_head_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(InputError, match=r"(?s)this model has no masked-LM head.*mlm=True"):
        model_of(mlm=False)(INPUT_IDS, mlm_labels=LABELS)
    with pytest.raises(InputError, match="this model has no masked-LM head"):
        model_of(mlm=False)(INPUT_IDS, mlm_positions=POSITIONS, mlm_targets=TARGETS)
    with pytest.raises(InputError, match=r"(?s)this model has no next-sentence head.*nsp=True"):
        model_of(nsp=False)(INPUT_IDS, next_sentence_label=NEXT)


def test_targets_named_twice_or_without_positions_are_refused() -> None:
    with pytest.raises(InputError, match="give mlm_labels, or mlm_positions with mlm_targets"):
        model_of()(INPUT_IDS, mlm_labels=LABELS, mlm_positions=POSITIONS)
    with pytest.raises(InputError, match="mlm_targets need mlm_positions"):
        model_of()(INPUT_IDS, mlm_targets=TARGETS)


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("mlm_labels", LABELS[:, :6], r"mlm_labels: has shape \(3, 6\)\n  expected: \(3, 7\)"),
        ("mlm_targets", TARGETS[:3], r"mlm_targets: has shape \(3,\)\n  expected: \(4,\)"),
        ("next_sentence_label", NEXT[:, None], r"next_sentence_label: has shape \(3, 1\)\n  expected: \(3,\)"),
        ("mlm_labels", LABELS.where(LABELS != 59, 60), "mlm_labels: row 2, column 2 is 60, but there are 60 classes"),
        ("mlm_labels", LABELS.where(LABELS != 11, -1), "mlm_labels: row 1, column 1 is -1"),
        ("mlm_targets", TARGETS + 1, "(?s)mlm_targets: row 3 is 60, .*0 to 59, or -100 for none"),
        ("next_sentence_label", NEXT + 1, "(?s)next_sentence_label: row 1 is 2, but there are 2 classes.*0 to 1"),
    ],
)
def test_labels_of_another_shape_or_outside_their_range_are_refused(name: str, labels: Tensor, message: str) -> None:
    inputs = {name: labels} | ({"mlm_positions": POSITIONS} if name == "mlm_targets" else {})
    with pytest.raises(InputError, match=message):
        model_of()(INPUT_IDS, **inputs)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (
            POSITIONS - POSITIONS.max() + 21,
            r"mlm_positions: is no position of the batch\n  value: 21\n  expected: 0 to 20",
        ),
        (POSITIONS - POSITIONS.min() - 1, r"mlm_positions: is no position of the batch\n  value: -1"),
        (POSITIONS[:, None], r"mlm_positions: has shape \(4, 1\)\n  expected: \(n,\)"),
    ],
)
def test_positions_outside_the_batch_are_refused(positions: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model_of()(INPUT_IDS, mlm_positions=positions, mlm_targets=TARGETS)


# ---- the sum of pre-training -----------------------------------------------------------------------------------------


def labelled_scores(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(9, 31) scores far apart, and labels: some have the highest score, two are none."""
    torch.manual_seed(0)
    logits = (20 * torch.randn(9, 31)).to(dtype)
    labels = logits.argmax(-1).where(torch.arange(9) < 4, torch.randint(31, (9,)))
    labels[[2, 7]] = IGNORE_INDEX
    return logits, labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_summed_loss_its_hits_and_gradient_are_torchs(dtype: torch.dtype) -> None:
    logits, labels = labelled_scores(dtype)
    logits.requires_grad_()
    total, hits = summed_cross_entropy(logits, labels)
    assert total.dtype == torch.promote_types(dtype, torch.float32)
    [ours] = torch.autograd.grad(3 * total, [logits])
    expected = F.cross_entropy(logits.to(total.dtype), labels, ignore_index=IGNORE_INDEX, reduction="sum")
    [theirs] = torch.autograd.grad(3 * expected, [logits])
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(ours, theirs)
    assert int(hits) == int((logits.argmax(-1) == labels).sum())


@pytest.mark.parametrize("slow_mkl", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_loss_of_a_linear_layer_its_hits_and_gradients_are_torchs(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, slow_mkl: bool
) -> None:
    """Scores that nobody else reads: also by oneDNN, and in a format that is widened for its loss."""
    monkeypatch.setattr(products, "has_slow_mkl", lambda: slow_mkl)
    scores, labels = labelled_scores(dtype)
    hidden, weight, bias = torch.eye(9, dtype=dtype), scores.t().contiguous(), torch.randn(31).to(dtype)
    given = [part.requires_grad_() for part in (hidden, weight, bias)]
    total, hits = linear_cross_entropy(hidden, weight, bias, labels)
    logits = F.linear(hidden, weight, bias).to(total.dtype)
    expected = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    torch.testing.assert_close(total, expected)
    assert int(hits) == int((logits.argmax(-1) == labels).sum())
    ours, theirs = (torch.autograd.grad(3 * loss, given) for loss in (total, expected))
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype]  # of sums of scores up to 60
    torch.testing.assert_close(ours, theirs, rtol=tolerance / 10, atol=tolerance)


def test_the_loss_of_a_linear_layer_leaves_what_is_frozen_alone() -> None:
    hidden, weight = torch.randn(2, 3, requires_grad=True), torch.randn(5, 3)
    linear_cross_entropy(hidden, weight, torch.zeros(5), torch.tensor([0, 4]))[0].backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_the_loss_of_a_linear_layer_is_made_in_the_format_of_autocast() -> None:
    hidden, weight = torch.randn(2, 3), torch.randn(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = linear_cross_entropy(hidden, weight, torch.zeros(5), torch.tensor([0, 4]))
        expected = F.cross_entropy(F.linear(hidden, weight).float(), torch.tensor([0, 4]), reduction="sum")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("slow_mkl", [False, True])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
def test_the_losses_of_training_have_the_gradients_of_the_plain_pass(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tolerance: float, tied: bool, slow_mkl: bool
) -> None:
    """Every exact saving at once, against none of them."""
    monkeypatch.setattr(products, "has_slow_mkl", lambda: slow_mkl)
    model = model_of(dataclasses.replace(CONFIG, tie_word_embeddings=tied)).to(dtype)
    targets = TARGETS.clone()
    targets[1] = IGNORE_INDEX
    given = {"mlm_positions": POSITIONS, "mlm_targets": targets, "next_sentence_label": NEXT, "attention_mask": MASK}
    plain = model(INPUT_IDS, **given)
    found = model.losses_where_read(INPUT_IDS, **given)
    torch.testing.assert_close(found["mlm"][0], 3 * plain.mlm_loss)  # three of the four targets are labels
    torch.testing.assert_close(found["nsp"][0], 3 * plain.nsp_loss)
    assert int(found["mlm"][1]) == int((plain.mlm_logits.argmax(-1) == targets).sum())
    assert int(found["nsp"][1]) == int((plain.nsp_logits.argmax(-1) == NEXT).sum())
    expected = gradients(model, plain.mlm_loss + plain.nsp_loss)
    ours = gradients(model, (found["mlm"][0] + found["nsp"][0]) / 3)
    assert float((ours - expected).norm()) <= tolerance * float(expected.norm())


def test_the_summed_loss_of_a_score_far_ahead_is_exact() -> None:
    logits = torch.tensor([[1000.0, 0.0, -1000.0]] * 3)
    total, _ = summed_cross_entropy(logits, torch.tensor([0, 1, 2]))
    assert float(total) == 3000.0


def test_a_small_loss_of_large_scores_is_not_lost() -> None:
    total, _ = summed_cross_entropy(torch.tensor([[10000.0, 9992.0]]), torch.tensor([0]))
    assert float(total) == pytest.approx(math.log1p(math.exp(-8)), rel=1e-4)


def test_the_gradient_of_the_summed_loss_is_made_once() -> None:
    """In the memory of the exponentials: a second backward pass is refused, not wrong."""
    total, _ = summed_cross_entropy(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]))
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


@pytest.mark.parametrize(
    ("heads", "targets", "message"),
    [
        ({}, TARGETS[:3], r"mlm_targets: has shape \(3,\)"),
        ({"mlm": False}, TARGETS, "this model has no masked-LM head"),
        ({"nsp": False}, TARGETS, "this model has no next-sentence head"),
    ],
)
def test_labels_that_do_not_fit_the_positions_or_heads_are_refused_in_training(
    heads: dict[str, bool], targets: Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model_of(**heads).losses_where_read(
            INPUT_IDS, mlm_positions=POSITIONS, mlm_targets=targets, next_sentence_label=NEXT
        )


def test_logits_without_their_head_are_refused() -> None:
    with pytest.raises(InputError, match="this model has no masked-LM head"):
        model_of(mlm=False).logits_where_read(INPUT_IDS, mlm_positions=POSITIONS)


def test_the_loss_of_a_linear_layer_without_labels_is_zero() -> None:
    hidden, weight = torch.zeros(0, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    total, hits = linear_cross_entropy(hidden, weight, torch.zeros(5), torch.zeros(0, dtype=torch.int64))
    total.backward()
    assert (float(total.detach()), int(hits)) == (0.0, 0)
    assert not weight.grad.any()


def test_the_summed_loss_without_labels_is_zero() -> None:
    logits = torch.zeros(0, 5, requires_grad=True)
    total, hits = summed_cross_entropy(logits, torch.zeros(0, dtype=torch.int64))
    total.backward()
    assert (float(total.detach()), int(hits)) == (0.0, 0)
