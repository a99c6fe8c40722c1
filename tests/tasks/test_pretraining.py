"""The pre-training task: its losses, its batches by step number, and that a small model learns by it."""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from toy_run import metrics_of, toy_config, toy_model_config, toy_tokenizer, write_store

from bertkit.commands.pretrain import pretrain
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.selection import Phrases
from bertkit.data.store import open_parts
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load
from bertkit.tasks.layers import is_layer_matrix
from bertkit.tasks.phases import phases_from
from bertkit.tasks.pretraining import PretrainingLoss, PretrainingSource
from bertkit.train import runtime
from bertkit.train.feed import StepBatches
from bertkit.train.log import MetricsLog
from bertkit.train.loop import Job, train
from bertkit.train.optimizer import build_optimizers
from bertkit.train.parallel import ParallelModule
from bertkit.train.settings import TrainSettings
from bertkit.train.state import TrainState

VOCABULARY = toy_tokenizer().vocabulary


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("task"))


def source_of(
    store: Path,
    *,
    pairing: Any = "segment",
    batch_size: int = 8,
    masking: MaskingSettings | None = None,
    static: bool = False,
    max_steps: int | None = None,
    phrases: Phrases | None = None,
) -> PretrainingSource:
    return PretrainingSource(
        open_parts(store)["train"],
        VOCABULARY,
        PairSettings(pairing=pairing, max_seq_length=32, static=static),
        masking or MaskingSettings(),
        seed=1,
        batch_size=batch_size,
        micro_batch_tokens=200,
        phrases=phrases,
        max_steps=max_steps,
    )


def loss_of(*, pairing: str = "segment", dropout: float = 0.1) -> PretrainingLoss:
    torch.manual_seed(0)
    return PretrainingLoss(PretrainingModel(toy_model_config(dropout=dropout), nsp=pairing != "none"))


LABELS = {"mlm": "mlm_targets", "nsp": "next_sentence_label"}  # of each loss, in a batch


# --- the losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_the_sums_are_the_models_own_losses_times_their_labels(store: Path, pairing: Any) -> None:
    module = loss_of(pairing=pairing).eval()
    for batch in source_of(store, pairing=pairing).step(0).micro_batches:
        found = module(batch)
        known = {name: tensor for name, tensor in batch.items() if name != "input_ids"}
        output = module.model(batch["input_ids"], **known)
        means = {"mlm": output.mlm_loss} | ({} if pairing == "none" else {"nsp": output.nsp_loss})
        assert list(found.sums) == list(means)
        for name, mean in means.items():
            torch.testing.assert_close(found.sums[name] / len(batch[LABELS[name]]), mean)
        assert found.correct["mlm"] == (output.mlm_logits.argmax(-1) == batch["mlm_targets"]).sum()


@pytest.mark.parametrize("pairing", ["segment", "none"])
def test_what_is_computed_only_where_it_is_read_has_the_gradients_of_the_whole(store: Path, pairing: Any) -> None:
    module = loss_of(pairing=pairing, dropout=0.0).double().train()
    parameters = list(module.parameters())
    for batch in source_of(store, pairing=pairing).step(0).micro_batches:
        sums = module(batch).sums
        loss = torch.stack([total / len(batch[LABELS[name]]) for name, total in sums.items()]).sum()
        known = {name: tensor for name, tensor in batch.items() if name != "input_ids"}
        expected = torch.autograd.grad(module.model(batch["input_ids"], **known).loss, parameters)
        found = torch.autograd.grad(loss, parameters)
        norm = torch.nn.utils.get_total_norm(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine - theirs).norm() <= 1e-12 * norm


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_the_labels_of_the_micro_batches_add_up_to_those_of_the_step(store: Path, pairing: Any) -> None:
    source = source_of(store, pairing=pairing)
    for step in range(source.steps_of_epochs(1)):
        batches = source.step(step)
        total: Counter[str] = Counter()
        for batch in batches.micro_batches:
            total.update({name: len(batch[key]) for name, key in LABELS.items() if key in batch})
        assert total == batches.counts


@pytest.mark.parametrize("pairing", ["segment", "sentence", "none"])
def test_every_parameter_gets_a_gradient(store: Path, pairing: Any) -> None:
    module = loss_of(pairing=pairing)
    for batch in source_of(store, pairing=pairing).step(0).micro_batches:
        torch.stack(list(module(batch).sums.values())).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_without_pairs_there_is_no_pooler_and_no_next_sentence_head(store: Path) -> None:
    names = {name for name, _ in loss_of(pairing="none").named_parameters()}
    assert not any("pooler" in name or "nsp" in name for name in names)
    assert "next_sentence_label" not in source_of(store, pairing="none").step(0).micro_batches[0]


def test_dropout_changes_the_output_in_training_only(store: Path) -> None:
    module, batch = loss_of(), source_of(store).step(0).micro_batches[0]
    with torch.no_grad():
        module.train()
        assert module(batch).sums["mlm"] != module(batch).sums["mlm"]
        module.eval()
        assert module(batch).sums["mlm"] == module(batch).sums["mlm"]


def test_muon_gets_exactly_the_matrices_inside_the_layers() -> None:
    module = loss_of()
    inside = {
        f"model.encoder.layers.{layer}.{name}.weight"
        for layer in range(2)
        for name in ("attention.query_key_value", "attention.output", "intermediate", "output")
    }
    assert {name for name, _ in module.named_parameters() if is_layer_matrix(name)} == inside
    assert all(module.get_parameter(name).ndim == 2 for name in inside)


# --- learning ------------------------------------------------------------------------------------------------------


class Repeated:
    """The same batches each step."""

    def __init__(self, batches: StepBatches) -> None:
        self.batches = batches

    def step(self, step: int) -> StepBatches:
        return self.batches

    def longest(self) -> dict[str, Tensor]:
        return self.batches.micro_batches[0]

    def describe(self, step: int) -> str:
        return "the same rows"


def trained(module: nn.Module, batches: StepBatches, folder: Path, **values: Any) -> list[dict[str, float]]:
    """Train by the loop itself; return what it logged."""
    settings = TrainSettings(**{"warmup_ratio": 0.1, "log_every": 1, "learning_rate": 5e-3, **values})
    log = MetricsLog(folder, after_step=0, report_to="none")
    rows: list[dict[str, float]] = []
    log.write = lambda kind, step, values: rows.append(values)  # type: ignore[method-assign, assignment]
    started = runtime.start(settings)
    job = Job(
        module=ParallelModule(module, started, units=[], ema_decay=None),
        source=Repeated(batches),
        optimizers=build_optimizers(module, settings, is_layer_matrix=is_layer_matrix),
        settings=settings,
        max_steps=settings.max_steps or 0,
        runtime=started,
        log=log,
        evaluate=lambda step: {"loss": 0.0},
        save=lambda state: None,
        eval_every=10**6,
        save_every=10**6,
    )
    train(job, TrainState())
    return rows


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("pairing", ["segment", "none"])
def test_a_small_set_is_learnt_by_heart(store: Path, tmp_path: Path, optimizer: str, pairing: Any) -> None:
    batches = source_of(store, pairing=pairing).step(0)
    rows = trained(
        loss_of(pairing=pairing, dropout=0.0), batches, tmp_path, max_steps=60, optimizer=optimizer, weight_decay=0.0
    )
    assert rows[0]["mlm_loss"] == pytest.approx(np.log(VOCABULARY.size), abs=0.3)
    assert rows[-1]["mlm_loss"] < 0.3 * rows[0]["mlm_loss"]
    assert rows[-1]["mlm_accuracy"] > 0.9


def separable(rows: int) -> StepBatches:
    """Pairs whose B is Chinese where it follows A, and English where it is random; nothing is masked."""
    chinese = [VOCABULARY.ids[token] for token in "明月春风江楼青山"]
    english = [VOCABULARY.ids[token] for token in ("moon", "wind", "tower", "hill", "sees", "one", "the", "a")]
    generator = np.random.default_rng(0)
    labels = np.arange(rows) % 2
    ids = np.full((rows, 11), VOCABULARY.sep_id)
    ids[:, 0] = VOCABULARY.cls_id
    ids[:, 1:5] = generator.choice(chinese + english, (rows, 4))
    ids[:, 6:10] = np.where(
        labels[:, None] == 0, generator.choice(chinese, (rows, 4)), generator.choice(english, (rows, 4))
    )
    types = np.broadcast_to((np.arange(11) > 5).astype(np.int64), ids.shape).copy()
    nothing = torch.zeros(0, dtype=torch.int64)
    batch: dict[str, Tensor] = {
        "input_ids": torch.from_numpy(ids),
        "token_type_ids": torch.from_numpy(types),
        "mlm_positions": nothing,
        "mlm_targets": nothing,
        "next_sentence_label": torch.from_numpy(labels),
    }
    return StepBatches([batch], [0], {"mlm": 0, "nsp": rows}, tokens=ids.size, slots=ids.size)


def test_next_sentences_that_can_be_told_apart_are(tmp_path: Path) -> None:
    module = loss_of(dropout=0.1)
    trained(module, separable(64), tmp_path, max_steps=40)
    batches = separable(256)
    with torch.no_grad():
        found = module.eval()(batches.micro_batches[0])
    assert found.correct["nsp"].item() / 256 > 0.99


# --- the source ----------------------------------------------------------------------------------------------------


def rows_of(batches: StepBatches) -> int:
    return sum(len(batch["input_ids"]) for batch in batches.micro_batches)


@pytest.mark.parametrize("pairing", ["segment", "none"])
def test_every_row_of_an_epoch_comes_once_and_the_last_batch_is_short(store: Path, pairing: Any) -> None:
    source = source_of(store, pairing=pairing)
    steps, start = source.steps_of_epochs(1), 0
    for epoch in (0, 1):
        number = len(source.table(epoch))
        steps = -(-number // 8)
        batches = [source.step(start + step) for step in range(steps)]
        assert [rows_of(batch) for batch in batches] == [8] * (number // 8) + [number % 8] * bool(number % 8)
        assert {source.epoch_of(step) for step in range(start, start + len(batches))} == {epoch}
        start += steps
    assert source.epoch_of(start) == 2


def test_a_step_is_a_function_of_its_number_only(store: Path) -> None:
    forwards, backwards = source_of(store), source_of(store)
    steps = range(30)
    seen = {step: forwards.step(step) for step in steps}
    for step in reversed(steps):
        for mine, other in zip(backwards.step(step).micro_batches, seen[step].micro_batches, strict=True):
            assert all(torch.equal(mine[name], other[name]) for name in other)


def test_the_next_epoch_has_other_pairs_and_masks(store: Path) -> None:
    source = source_of(store, batch_size=10**6)
    first, second = (source.step(epoch).micro_batches[0]["input_ids"] for epoch in (0, 1))
    assert first.shape != second.shape or not torch.equal(first, second)


def test_a_resumed_source_builds_no_epoch_that_is_over(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source_of(store)
    expected = first.step(30)
    again = source_of(store)
    again.epoch_starts = expected.source["epoch_starts"]
    asked: list[int] = []
    table = PretrainingSource.table
    monkeypatch.setattr(
        PretrainingSource, "table", lambda self, epoch, *, phase: asked.append(epoch) or table(self, epoch, phase=phase)
    )
    found = again.step(30)
    assert set(asked) == {first.epoch_of(30)} == {2}
    assert torch.equal(found.micro_batches[0]["input_ids"], expected.micro_batches[0]["input_ids"])


def test_epochs_become_steps(store: Path) -> None:
    source = source_of(store)
    first, second = (-(-len(source.table(epoch)) // 8) for epoch in (0, 1))
    assert source.steps_of_epochs(1) == first
    assert source.steps_of_epochs(2) == first + second
    assert source.steps_of_epochs(0.5) == -(-first // 2)
    assert source.steps_of_epochs(1.5) == first + -(-second // 2)
    assert source.steps_of_epochs(1e-9) == 1


def test_tokens_and_slots_are_counted(store: Path) -> None:
    batches = source_of(store).step(0)
    masks = [batch.get("attention_mask", torch.ones_like(batch["input_ids"])) for batch in batches.micro_batches]
    assert batches.tokens == sum(int(mask.sum()) for mask in masks)
    assert batches.slots == sum(mask.numel() for mask in masks)
    assert batches.counts["nsp"] == 8


# --- frozen rows, a rate that changes, other schemes ---------------------------------------------------------------


def finished_rows(source: PretrainingSource, epoch: int) -> list[tuple[Any, ...]]:
    """The rows of an epoch in the order of training: ids, hidden columns, targets, label."""
    rows = []
    steps = source.steps_of_epochs(epoch + 1)
    for step in range(source.epoch_starts[0][epoch], steps):
        for batch in source.step(step).micro_batches:
            width, columns = batch["input_ids"].shape[1], batch["mlm_positions"]
            for row, ids in enumerate(batch["input_ids"].tolist()):
                here = columns // width == row
                mask = batch.get("attention_mask")
                length = width if mask is None else int(mask[row].sum())
                label = int(batch["next_sentence_label"][row])
                hidden = (columns[here] % width).tolist(), batch["mlm_targets"][here].tolist()
                rows.append((ids[:length], *hidden, label))
    return rows


@pytest.mark.parametrize("masking", ["token", "whole_word", "span"])
@pytest.mark.parametrize("pairing", ["segment", "sentence", "sop"])
def test_frozen_pairs_and_masks_are_those_of_every_epoch_and_only_their_order_differs(
    store: Path, pairing: Any, masking: Any
) -> None:
    source = source_of(store, pairing=pairing, static=True, masking=MaskingSettings(masking=masking))
    first, second, third = (finished_rows(source, epoch) for epoch in range(3))
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third
    redrawn = source_of(store, pairing=pairing, masking=MaskingSettings(masking=masking))
    assert finished_rows(redrawn, 0) == first
    assert sorted(finished_rows(redrawn, 1)) != sorted(first)


def test_the_rate_begins_at_the_first_share_and_ends_at_the_last(store: Path) -> None:
    masking = MaskingSettings(mlm_probability=0.6, final_mlm_probability=0.1)
    source = source_of(store, batch_size=16, masking=masking, max_steps=11)
    constant = {
        share: source_of(store, batch_size=16, masking=MaskingSettings(mlm_probability=share)) for share in (0.6, 0.1)
    }
    assert source.step(0).counts == constant[0.6].step(0).counts
    assert source.step(10).counts == constant[0.1].step(10).counts
    shares = [source.step(step).counts["mlm"] / source.step(step).tokens for step in range(11)]
    assert all(later < earlier for earlier, later in pairwise(shares))
    assert source.step(12).counts == constant[0.1].step(12).counts  # asked for behind the end
    assert (
        source_of(store, masking=masking, max_steps=1).step(0).counts
        == source_of(store, masking=MaskingSettings(mlm_probability=0.6)).step(0).counts
    )


def test_without_a_length_of_the_run_the_rate_stays_the_first(store: Path) -> None:
    masking = MaskingSettings(mlm_probability=0.6, final_mlm_probability=0.1)
    first = source_of(store, masking=MaskingSettings(mlm_probability=0.6))
    for step in (0, 9):
        assert source_of(store, masking=masking).step(step).counts == first.step(step).counts


@pytest.mark.parametrize("masking", ["token", "whole_word", "span", "ngram", "phrases"])
@pytest.mark.parametrize("pairing", ["segment", "sop", "none"])
def test_a_step_of_every_scheme_is_a_function_of_its_number_only(store: Path, pairing: Any, masking: Any) -> None:
    moon = tuple(VOCABULARY.ids[character] for character in "明月")
    named: dict[str, Any] = {
        "pairing": pairing,
        "masking": MaskingSettings(masking=masking, phrases_file="terms.txt" if masking == "phrases" else None),
        "phrases": Phrases([moon], continuation=VOCABULARY.continuation),
    }
    forwards, backwards = source_of(store, **named), source_of(store, **named)
    seen = {step: forwards.step(step) for step in range(6)}
    for step in reversed(range(6)):
        for mine, other in zip(backwards.step(step).micro_batches, seen[step].micro_batches, strict=True):
            assert all(torch.equal(mine[name], other[name]) for name in other)


def test_order_of_segments_has_a_next_sentence_label(store: Path) -> None:
    batches = source_of(store, pairing="sop", batch_size=64).step(0)
    labels = torch.cat([batch["next_sentence_label"] for batch in batches.micro_batches])
    assert batches.counts["nsp"] == len(labels) > 50
    assert 10 < labels.sum() < len(labels) - 10


# --- the longest batch, and what a step is called ------------------------------------------------------------------


@pytest.mark.parametrize("pairing", ["segment", "none"])
@pytest.mark.parametrize("tokens", [1, 70, 200, 10**6])
@pytest.mark.parametrize("probability", [0.15, 0.3, 0.6, 1.0])
def test_no_micro_batch_is_larger_than_the_longest(store: Path, pairing: Any, tokens: int, probability: float) -> None:
    source = replace(
        source_of(store, pairing=pairing, masking=MaskingSettings(mlm_probability=probability)),
        micro_batch_tokens=tokens,
    )
    longest = source.longest()
    rows, width = longest["input_ids"].shape
    # A row alone where none fits; 69 tokens rather than 64; never more rows than a step has.
    assert (rows, width) == {1: (1, 32), 70: (3, 23), 200: (7, 28), 10**6: (8, 32)}[tokens]
    for step in range(source.steps_of_epochs(1)):
        for batch in source.step(step).micro_batches:
            assert batch.keys() <= longest.keys()
            assert batch["input_ids"].numel() <= rows * width
            assert len(batch["mlm_targets"]) <= len(longest["mlm_targets"])
    sums = loss_of(pairing=pairing)(longest).sums
    assert all(torch.isfinite(total) for total in sums.values())


def test_the_longest_batch_of_a_run_in_phases_is_that_of_its_longest_phase(store: Path) -> None:
    source = replace(source_of(store, max_steps=10), phases=phases_from("16:0.5,24:0.5"))
    assert source.longest()["input_ids"].shape == (8, 24)


def test_the_longest_batch_has_as_many_targets_as_the_highest_rate_hides(store: Path) -> None:
    masking = MaskingSettings(mlm_probability=0.1, final_mlm_probability=0.5)
    source = source_of(store, masking=masking, max_steps=10)
    assert len(source.longest()["mlm_targets"]) == 7 * 28 / 2


def test_a_step_is_described_by_its_epoch_and_documents(store: Path) -> None:
    source = source_of(store)
    first_of_second = source.steps_of_epochs(1)
    for step, epoch in ((0, 0), (first_of_second, 1)):
        rows = source._place(step)[2]
        documents = sorted(set(source.table(epoch).document_a[rows].tolist()))
        assert source_of(store).describe(step) == f"epoch {epoch}, documents {', '.join(map(str, documents))}"


def test_a_long_list_of_documents_is_cut_and_counted(store: Path) -> None:
    source = source_of(store, batch_size=64)
    number = len(set(source.table(0).document_a[source._place(0)[2]].tolist()))
    described = source.describe(0)
    assert described.endswith(f" and {number - 8} more")
    assert described.count(",") == 8


# --- parts that stay, activations computed again, compiled layers --------------------------------------------------


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_frozen_layers_and_the_embeddings_stay_and_all_else_learns(store: Path, tmp_path: Path, layers: int) -> None:
    pretrain(toy_config(store, tmp_path / "whole", max_steps=1))
    start = tmp_path / "whole"
    run = tmp_path / "run"
    pretrain(toy_config(store, run, max_steps=3, freeze_layers=layers, model_name_or_path=str(start), eval_every=3))
    before, after = (load_file(folder / "model.safetensors") for folder in (start, run))
    frozen = ("bert.embeddings.", *(f"bert.encoder.layer.{layer}." for layer in range(layers)))
    for name, tensor in before.items():
        tied = name.startswith(frozen) or name == "cls.predictions.decoder.weight"
        assert torch.equal(tensor, after[name]) == tied, name


@pytest.mark.parametrize("layers", [-1, 3])
def test_more_layers_than_there_are_cannot_be_frozen(store: Path, tmp_path: Path, layers: int) -> None:
    with pytest.raises(InputError, match=rf"--freeze_layers: is not a number of layers\n  value: {layers}\n  .*0 to 2"):
        pretrain(toy_config(store, tmp_path / "run", freeze_layers=layers))


def test_activations_computed_again_change_no_bit_of_the_gradient(store: Path) -> None:
    found = []
    for again in (False, True):
        module = loss_of(dropout=0.3).train()
        module.model.encoder.gradient_checkpointing = again
        for number, batch in enumerate(source_of(store).step(0).micro_batches):
            runtime.seed_dropout(1, step=0, micro_batch=number)
            torch.stack(list(module(batch).sums.values())).sum().backward()
        found.append({name: p.grad for name, p in module.named_parameters()})
    assert all(torch.equal(gradient, found[1][name]) for name, gradient in found[0].items())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler: torch.compile needs one on a processor")
@pytest.mark.filterwarnings("default")  # Inductor warns of its own imports
def test_compiled_layers_train_as_the_others_do(store: Path, tmp_path: Path) -> None:
    losses = []
    for compiled in (False, True):
        run = tmp_path / str(compiled)
        quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        pretrain(toy_config(store, run, max_steps=4, eval_every=4, torch_compile=compiled, ema_decay=0.5, **quiet))
        losses.append([row["loss"] for row in metrics_of(run) if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    names = [set(load_file(tmp_path / name / "model.safetensors")) for name in ("False", "True")]
    assert names[0] == names[1]


def test_a_row_of_padding_is_finite_in_bf16(store: Path) -> None:
    """Case 32: its attention has nothing to look at."""
    module = loss_of().train()
    batch = {name: tensor.clone() for name, tensor in source_of(store).step(0).micro_batches[0].items()}
    rows, width = batch["input_ids"].shape
    mask = batch.get("attention_mask", torch.ones(rows, width, dtype=torch.bool)).clone()
    mask[0] = False
    batch |= {"attention_mask": mask, "input_ids": batch["input_ids"].masked_fill(~mask, VOCABULARY.pad_id)}
    started = runtime.Runtime(torch.device("cpu"), precision="bf16")
    with started.autocast():
        sums = module(batch).sums
    assert all(torch.isfinite(total) for total in sums.values())
    torch.stack(list(sums.values())).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters() if p.grad is not None)


# --- checkpoints that are kept -------------------------------------------------------------------------------------


def test_checkpoints_at_multiples_are_kept_for_good(store: Path, tmp_path: Path) -> None:
    config = toy_config(store, tmp_path / "run", save_every=1, eval_every=12, keep_every=4, save_total_limit=1)
    pretrain(config)
    kept = {int(path.name[5:]) for path in (tmp_path / "run" / "checkpoints").glob("step-*")}
    assert kept == {4, 8, 11, 12}  # 12 is the best, and one more stands besides it


def test_an_averaged_run_keeps_the_average_as_its_model_and_learns_as_one_without(store: Path, tmp_path: Path) -> None:
    for name, decay in (("plain", None), ("averaged", 0.9)):
        pretrain(toy_config(store, tmp_path / name, ema_decay=decay))
    plain, averaged = (metrics_of(tmp_path / name, kind="train") for name in ("plain", "averaged"))
    assert plain == averaged  # training is the same to the last bit
    folders = [tmp_path / name / "checkpoints" / "step-12" for name in ("plain", "averaged")]
    kept, raw = (load_file(folders[1] / "training" / f"{name}.safetensors") for name in ("average", "weights"))
    for folder, expected in ((folders[0], raw), (folders[1], kept)):
        model = load(folder, head="pretraining")
        assert isinstance(model, PretrainingModel)
        for name, tensor in PretrainingLoss(model).named_parameters():
            assert torch.equal(tensor, expected[name]), name
    seen = [metrics_of(tmp_path / name, kind="validation")[-1]["loss"] for name in ("plain", "averaged")]
    assert seen[0] != seen[1]
