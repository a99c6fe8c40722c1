"""The benchmarks of pre-training: their tables, ratios and batches are right, and the GPU's script runs without one."""

import doctest
import importlib
import json
import multiprocessing
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import counting
import pytest
import torch
import transformers
from counting import Counting
from toy_model import toy_config

from bertkit.data.collate import Batch
from bertkit.data.pairs import PairSettings
from bertkit.model.losses import IGNORE_INDEX

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PRETRAINING = ("contenders", "elsewhere", "gpu", "growth", "pretraining", "tables", "time_to_loss", "uniform_rows")
NAMES = (*PRETRAINING, "task_files", "tasks", "tasks_by_transformers")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The benchmarks by name, which are scripts and import each other as such."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    return {name: importlib.import_module(name) for name in NAMES}


def test_the_examples_in_the_benchmarks_are_right(modules: dict[str, ModuleType]) -> None:
    assert {name: doctest.testmod(module).failed for name, module in modules.items()} == dict.fromkeys(NAMES, 0)


def rounds(ours: list[float], default: list[float], tuned: list[float]) -> dict[str, Any]:
    return {
        "tokens_per_second": {"bertkit": ours, "HF-d": default, "HF-t": tuned},
        "padding": {"bertkit": [0.0], "HF-d": [0.4], "HF-t": [0.02]},
        "products": {"torch.mm": [1e11] * len(ours), "fastest": [2e11] * len(ours)},
    }


def test_tables_say_ratios_of_the_rounds_and_which_target_is_reached(modules: dict[str, Any]) -> None:
    machine = {"threads": 1}
    kept = {
        "items": {
            "P4-tiny": {"machine": machine, "found": {"Song ci": rounds([90, 100, 110], [10, 10, 10], [25, 25, 25])}},
            "P6": {"machine": machine, "found": {"rows": {**rounds([4e3], [1e3], [2e3]), "flops_per_token": 2e7}}},
            "P8": {"machine": machine, "found": {"32 × 128": {"megabytes": {"bertkit": [250.0], "HF-d": [1500.0]}}}},
        }
    }
    text = modules["tables"].markdown(kept, loss=None)
    assert "**10.00 (9.00 – 11.00) ×**, 9 × reached" in text
    assert "**4.00 (3.60 – 4.40) ×**, 5 × missed" in text
    assert "**80.0 (80.0 – 80.0) %**, 70 % reached | 40.0 (40.0 – 40.0) %" in text
    assert "| bertkit | 250 (250 – 250), 400 MB reached |" in text
    assert "make bench-loss" in text


def test_the_time_to_a_loss_is_that_of_the_shortest_run_that_reaches_it(modules: dict[str, Any]) -> None:
    def run(tokens: int, loss: float) -> dict[str, float]:
        accuracies = {"mlm_accuracy": 0.2, "mlm_accuracy_without_punctuation": 0.1, "nsp_accuracy": 0.7}
        return {"seed": 1, "tokens": tokens, "mlm_loss": loss, **accuracies}

    rates = {"HF-t": {"tokens_per_second": [9.0, 10.0, 11.0]}, "bertkit": {"tokens_per_second": [20.0]}}
    kept = {"size": "tiny", "minutes": 20, "rates": rates, "head_start_seconds": 3.0}
    two = [run(2400, 5.6), run(2400, 5.5)]
    runs = {"HF-t": [run(12_000, 5.5)], "bertkit, 0.1": two, "bertkit, 0.25": [run(6000, 5.4)], "bertkit, 1": []}
    text = "\n".join(modules["tables"].loss_table({**kept, "runs": runs}))
    assert "HF-t ends at 5.500; bertkit is as good **4.0 ×** sooner" in text
    assert "| bertkit, 0.1 | 2 | 2,400 | 123 | 5.550 (5.500 – 5.600) | 20.0 % | 10.0 % | 70.0 % |" in text
    del kept["head_start_seconds"]  # as a file of before has it
    assert "| bertkit, 0.1 | 2 | 2,400 | 120 |" in "\n".join(modules["tables"].loss_table({**kept, "runs": runs}))
    worse = {"HF-t": [run(12_000, 5.5)], "bertkit, 0.1": two}
    text = "\n".join(modules["tables"].loss_table({**kept, "runs": worse}))
    assert "no run of bertkit is as good" in text


@pytest.mark.parametrize("is_same_recipe", [True, False])
def test_what_another_recipe_reached_is_dropped_and_the_peers_stay(
    modules: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same_recipe: bool
) -> None:
    module = modules["time_to_loss"]
    rates = {name: {"tokens_per_second": [10.0], "tokens_a_step": 5.0} for name in ("bertkit", "HF-t")}
    monkeypatch.setattr(module, "measure_rates", lambda size, data: rates)
    monkeypatch.setattr(module, "seconds_of_head_start", lambda size, data: 2.0)
    monkeypatch.setattr(module, "machine", dict)
    compare = partial(module.compare, "tiny", tmp_path, minutes=20, seeds=[1], only=[], output=tmp_path)
    compare()
    kept = json.loads((tmp_path / "time_to_loss.json").read_text("utf-8"))
    for name in ("HF-t", "bertkit, 0.1 of the time"):
        kept["runs"][name] = [{"seed": 1, "mlm_loss": 4.0, "tokens": 12_000}]
    kept["rates"]["bertkit"]["tokens_per_second"] = [99.0]
    if not is_same_recipe:
        kept["recipe"]["muon_learning_rate"] = 1.0
    (tmp_path / "time_to_loss.json").write_text(json.dumps(kept), "utf-8")
    found = compare()
    assert len(found["runs"]["HF-t"]) == 1
    assert len(found["runs"]["bertkit, 0.1 of the time"]) == is_same_recipe
    assert found["rates"]["bertkit"]["tokens_per_second"] == ([99.0] if is_same_recipe else [10.0])


def test_the_tuning_of_the_peer_goes_on_near_the_best_of_its_grid(modules: dict[str, Any]) -> None:
    best = modules["contenders"].Tuning(rows=32, learning_rate=2e-3, warmup=0.1)
    found = modules["time_to_loss"].finalists(best)
    assert len(set(found)) == len(found) == 10
    assert found[0] == best
    assert max(tuning.mlm_probability for tuning in found) == 0.4  # as much as bertkit hides
    assert {tuning.rows for tuning in found} == {16, 32}
    assert max(tuning.learning_rate for tuning in found) == 3e-3


def test_dense_labels_stand_where_the_targets_were(modules: dict[str, Any]) -> None:
    config = toy_config()
    batch: Batch = modules["uniform_rows"].uniform_batch(
        config, 3, length=16, generator=torch.Generator().manual_seed(1)
    )
    dense = modules["contenders"].with_dense_labels(batch, always_masked=True)
    labelled = dense["labels"].flatten() != IGNORE_INDEX
    assert labelled.nonzero().squeeze(1).tolist() == batch["mlm_positions"].tolist()
    assert dense["labels"].flatten()[labelled].tolist() == batch["mlm_targets"].tolist()
    assert dense["attention_mask"].all()
    assert not batch["mlm_positions"].remainder(16).eq(0).any()  # [CLS] is never hidden


def test_a_corpus_smaller_than_what_is_sorted_together_has_batches(modules: dict[str, Any]) -> None:
    contenders = modules["contenders"]
    store = modules["uniform_rows"].uniform_store(300)  # of 200 documents
    assert contenders.GROUPED_BATCHES * contenders.HF_T.rows > 1600
    batch = next(contenders.dense_batches(store, PairSettings(), contenders.HF_T))
    assert len(batch["input_ids"]) <= contenders.HF_T.rows_at_once


def test_a_timed_share_of_a_step_is_scaled_to_the_whole(modules: dict[str, Any]) -> None:
    contenders, config = modules["contenders"], toy_config()
    tuning = contenders.Tuning(rows=8, rows_at_once=2)
    batches = modules["uniform_rows"].dense_uniform_batches(config, 2, length=16)
    other = contenders.Transformers(config, batches, tuning, share=0.5)
    before = [p.detach().clone() for p in other.model.parameters()]
    step = other.step(0.5)
    assert (step.tokens, step.slots) == (8 * 16, 8 * 16)
    assert any((p != old).any() for p, old in zip(other.model.parameters(), before, strict=True))
    assert other.optimizer.param_groups[0]["lr"] == 0.5 * contenders.DEFAULT_RATE


def test_contenders_side_by_side_have_a_process_each(modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SET_IN_THIS_PROCESS", True)
    before, threads = set(multiprocessing.active_children()), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with modules["elsewhere"].side_by_side({"a": partial(Counting, 0), "b": partial(Counting, 10)}) as everybody:
            made = [everybody[name].step() for name in "abab"]
    finally:
        torch.set_num_threads(threads)
    assert [step.number for step in made] == [1, 11, 2, 12]
    assert len({step.process for step in made} | {os.getpid()}) == 3
    assert {(step.threads, step.is_set) for step in made} == {(2, False)}
    assert set(multiprocessing.active_children()) == before


@pytest.mark.parametrize("fails", [partial(Counting, "many", 1), partial(Counting, 0, last=0)], ids=["made", "asked"])
def test_a_contender_that_fails_says_why(
    modules: dict[str, Any], capfd: pytest.CaptureFixture[str], fails: partial[Counting]
) -> None:
    with (
        pytest.raises(RuntimeError, match="a contender failed: its process ended with 1"),
        modules["elsewhere"].side_by_side({"a": fails}) as everybody,
    ):
        everybody["a"].step()
    said = capfd.readouterr().err
    assert "takes 2 positional arguments" in said or "no step after 0" in said


def test_the_tuned_peer_keeps_freed_memory_and_the_default_one_does_not(
    modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    contenders, asked = modules["contenders"], []
    monkeypatch.setattr(contenders, "keep_freed_memory", lambda: asked.append(True))
    for tuning, times in ((contenders.HF_D, 0), (contenders.HF_T, 1)):
        contenders.Transformers(toy_config(), iter(()), tuning)
        assert len(asked) == times


def test_the_script_for_a_gpu_is_rehearsed_on_a_processor(
    modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(modules["contenders"], "VOCAB_SIZE", 300)
    words = ["--device", "cpu", "--size", "tiny", "--rows", "2", "--rounds", "1", "--output", str(tmp_path / "f.json")]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    modules["gpu"].main()
    assert "| transformers, 2 rows at once |" in capsys.readouterr().out
    kept = json.loads((tmp_path / "f.json").read_text(encoding="utf-8"))
    assert kept["tokens_per_second"].keys() == {"bertkit, 2 rows at once", "transformers, 2 rows at once"}
    assert kept["useful_flops"] < kept["dense_flops"]
    assert kept["packed_difference"] < 1e-6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_script_says_so(
    modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    modules["gpu"].main()
    assert "there is no CUDA device here" in capsys.readouterr().out


def test_the_peer_of_the_gpu_takes_the_fused_attention(modules: dict[str, Any]) -> None:
    other = modules["contenders"].Transformers(toy_config(), iter(()), modules["contenders"].HF_T)
    assert isinstance(other.model, transformers.BertForPreTraining)
    assert other.model.config._attn_implementation == "sdpa"


def test_pairs_stand_in_both_orders_for_training(modules: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text('"a, b",c,3.5\nd,e,0\n', encoding="utf-8")
    found = modules["task_files"].rows_of("stsb-en", modules["task_files"].both_ways(path))
    assert [(row["text"], row["pair"], row["label"]) for row in found] == [
        ("a, b", "c", 3.5),
        ("c", "a, b", 3.5),
        ("d", "e", 0.0),
        ("e", "d", 0.0),
    ]


def test_a_regression_by_transformers_reads_the_first_token(modules: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=1
    )
    inner = transformers.BertForTokenClassification(config).eval()
    model = modules["tasks_by_transformers"].OnFirstToken(inner)
    ids, labels = torch.randint(0, 9, (3, 5)), torch.tensor([0.0, 1.0, 2.0])
    found = model(input_ids=ids, labels=labels)
    expected = inner.classifier(inner.bert(input_ids=ids).last_hidden_state[:, 0])  # (3, 1)
    torch.testing.assert_close(found.logits, expected)
    torch.testing.assert_close(found.loss, ((expected[:, 0] - labels) ** 2).mean())
    assert model(input_ids=ids).loss is None
