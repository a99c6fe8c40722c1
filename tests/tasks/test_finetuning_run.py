"""Fine-tuning as a whole: what stands in RUN, which checkpoint is best, resumes, parts, weights, what is said."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from on_ranks import on_ranks
from safetensors.torch import load_file
from toy_run import metrics_of, stopped_before
from toy_tasks import finetune_config, write_base, write_task

from bertkit.commands.finetune import Config, finetune
from bertkit.commands.finetune import run as run_command
from bertkit.errors import InputError, InputErrors, Stopped
from bertkit.tasks.task_file import read_task_file
from bertkit.train import loop

KINDS = ("single", "pair", "multi", "regression", "tags", "choices", "questions", "questions2")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"), dropout=0.1)


def config_of(kind: str, base: Path, output: Path, **values: Any) -> Config:
    """A run on 24 rows with 10 for validation, evaluated three times."""
    data = output.parent / "data"
    return finetune_config(
        base,
        Path(values.pop("train_file", None) or write_task(data, kind, number=24)),
        output,
        kind=kind,
        **{
            "validation_file": str(write_task(data, kind, number=10, seed=1)),
            "max_steps": 6,
            "eval_every": 2,
            **values,
        },
    )


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def results_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))
    return found


def ids_in(folder: Path) -> list[str]:
    lines = (folder / "predictions_validation.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["id"] for line in lines]


def settings_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run = tmp_path_factory.mktemp(request.param) / "run"
    finetune(
        config_of(request.param, base, run, test_file=str(write_task(run.parent, request.param, number=8, seed=2)))
    )
    return request.param, run


def test_what_stands_in_a_finished_run(trained: tuple[str, Path]) -> None:
    _kind, run = trained
    names = {path.name for path in run.iterdir()}
    assert names >= {"settings.yaml", "run.json", "metrics.jsonl", "eval_results.json", "eval_results.txt"}
    assert names >= {"config.json", "model.safetensors", "vocab.txt", "task.json", "README.md", "checkpoints"}
    assert names >= {"predictions_validation.jsonl", "predictions_test.jsonl"}
    results = results_in(run)
    assert (results["validation"]["examples"], results["test"]["examples"]) == (10, 8)
    lines = (run / "predictions_test.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(lines) == 8
    assert all({"gold", "text"} <= json.loads(line).keys() for line in lines)
    facts = settings_of(run)
    assert facts["steps"] == 6
    assert set(facts["coverage"]) == {"train", "validation", "test"}
    assert facts["coverage"]["train"]["examples"] == 24


def test_figures_stand_in_lines_too(trained: tuple[str, Path]) -> None:
    _, run = trained
    lines = (run / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    shown = dict(line.split(" = ", 1) for line in lines)
    assert list(shown) == sorted(shown)
    for part in ("validation", "test"):
        for name, value in results_in(run)[part].items():
            assert shown.get(f"{part}_{name}") == (None if isinstance(value, dict) else str(value))


def test_a_finished_run_resumed_is_evaluated_again_and_stays_as_it_is(base: Path, tmp_path: Path) -> None:
    first = finetune(config_of("multi", base, tmp_path / "run"))
    files = ("metrics.jsonl", "eval_results.json", "task.json", "model.safetensors", "predictions_validation.jsonl")
    before = [(tmp_path / "run" / name).read_bytes() for name in files]
    assert finetune(config_of("multi", base, tmp_path / "run", resume_from="last")) == first
    assert [(tmp_path / "run" / name).read_bytes() for name in files] == before


def test_the_best_checkpoint_is_that_with_the_best_figure(trained: tuple[str, Path]) -> None:
    kind, run = trained
    name = {"single": "accuracy", "pair": "accuracy", "multi": "micro_f1", "regression": "pearson"}.get(kind, "f1")
    name = "accuracy" if kind == "choices" else name
    seen = {line["step"]: line[name] for line in metrics_of(run, kind="validation")}
    assert list(seen) == [2, 4, 6]
    best = max(seen, key=lambda step: seen[step])  # the first of those as good
    assert results_in(run)["global_step"] == settings_of(run)["best_step"] == best
    assert json.loads((run / "checkpoints" / "best.json").read_text(encoding="utf-8"))["step"] == best
    saved = weights_in(run / "checkpoints" / f"step-{best}")
    assert all(torch.equal(tensor, saved[key]) for key, tensor in weights_in(run).items())
    if kind not in ("multi", "questions2"):  # whose threshold is tuned afterwards
        assert results_in(run)["validation"][name] == pytest.approx(seen[best], abs=1e-6)


def test_tuned_thresholds_are_kept_and_never_make_validation_worse(trained: tuple[str, Path]) -> None:
    kind, run = trained
    knowledge = read_task_file(run).knowledge
    assert (knowledge.threshold is not None) == (kind in ("multi", "questions2"))
    if knowledge.threshold is not None:
        name = "micro_f1" if kind == "multi" else "f1"
        best = max(line[name] for line in metrics_of(run, kind="validation"))
        assert results_in(run)["validation"][name] >= best - 1e-9


def test_the_new_head_of_a_regression_begins_at_the_mean_of_the_labels_in_training(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    still: dict[str, Any] = {"max_steps": 1, "learning_rate": 1e-12}
    config = config_of("regression", base, tmp_path / "one", **still)
    finetune(config)
    lines = Path(config.train_file).read_text(encoding="utf-8").splitlines()
    mean = statistics.fmean(json.loads(line)["label"] for line in lines)
    assert f"the new head begins with the mean of the labels in training, {mean:.4g}" in capsys.readouterr().err
    assert weights_in(tmp_path / "one")["classifier.bias"].item() == pytest.approx(mean)
    # A head that is there already goes on from where it is.
    other = write_task(tmp_path, "regression", number=10, seed=5)
    finetune(config_of("regression", tmp_path / "one", tmp_path / "two", train_file=str(other), **still))
    assert "begins with the mean" not in capsys.readouterr().err
    assert weights_in(tmp_path / "two")["classifier.bias"].item() == pytest.approx(mean)


@pytest.mark.parametrize("kind", ["single", "questions"])
def test_a_new_head_is_made_where_it_is_asked_for(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    still: dict[str, Any] = {"max_steps": 1, "learning_rate": 1e-12}
    finetune(config_of(kind, base, tmp_path / "one", **still))
    capsys.readouterr()
    finetune(config_of(kind, tmp_path / "one", tmp_path / "two", new_head=True, seed=7, **still))
    assert "a new head was asked for" in capsys.readouterr().err
    name = "qa_outputs.weight" if kind == "questions" else "classifier.weight"
    one, two = weights_in(tmp_path / "one"), weights_in(tmp_path / "two")
    assert not torch.equal(one[name], two[name])
    torch.testing.assert_close(*(each["bert.embeddings.word_embeddings.weight"] for each in (one, two)))


@pytest.mark.parametrize("kind", ["single", "choices"])
def test_a_resume_refuses_another_pooling(base: Path, tmp_path: Path, kind: str) -> None:
    finetune(config_of(kind, base, tmp_path / "run"))
    for values in ({"pooling": "cls"}, {"layers": [1]}, {"layers": [1, 2], "combine": "sum"}):
        for inexact in (False, True):
            with pytest.raises(InputError, match=r"--(pooling|layers): contradicts the run that is resumed"):
                finetune(config_of(kind, base, tmp_path / "run", resume_from="last", allow_inexact=inexact, **values))


@pytest.mark.parametrize("kind", ["pair", "regression", "tags", "choices", "questions2", "multi"])
def test_a_resume_equals_a_run_that_was_never_stopped(base: Path, tmp_path: Path, kind: str) -> None:
    finetune(config_of(kind, base, tmp_path / "whole"))
    with stopped_before(3):
        finetune(config_of(kind, base, tmp_path / "parts", save_every=1))
    finetune(config_of(kind, base, tmp_path / "parts", save_every=1, resume_from="last"))
    assert metrics_of(tmp_path / "parts") == metrics_of(tmp_path / "whole")
    assert results_in(tmp_path / "parts") == results_in(tmp_path / "whole")
    whole, parts = (weights_in(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert (tmp_path / "parts" / "task.json").read_bytes() == (tmp_path / "whole" / "task.json").read_bytes()


def test_a_resume_that_would_be_another_run_is_refused(base: Path, tmp_path: Path) -> None:
    with stopped_before(3):
        finetune(config_of("single", base, tmp_path / "run", save_every=1))
    values: list[dict[str, Any]] = [
        {"freeze_layers": 1},
        {"classifier_dropout": 0.5},
        {"hidden_dropout_prob": 0.2},
        {"label_smoothing": 0.1},
        {"validation_file": str(write_task(tmp_path, "single", number=9, seed=5))},
    ]
    for value in values:
        with pytest.raises(InputError, match="allow_inexact"):
            finetune(config_of("single", base, tmp_path / "run", save_every=1, resume_from="last", **value))


def test_a_resume_knows_how_long_the_run_is(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"max_steps": None, "num_train_epochs": 2, "eval_every": None}
    with stopped_before(4):
        finetune(config_of("single", base, tmp_path / "run", **values))
    assert "2 epochs are 6 steps" in capsys.readouterr().err
    finetune(config_of("single", base, tmp_path / "run", **{**values, "num_train_epochs": None}, resume_from="last"))
    assert "resuming a run of 6 steps in all" in capsys.readouterr().err
    assert settings_of(tmp_path / "run")["steps"] == 6


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_of_any_size_give_the_same_losses(tmp_path: Path, kind: str) -> None:
    base = write_base(tmp_path / "base")  # without dropout, which would draw for other shapes
    seen = []
    for tokens in (1, 100, 10**6):
        run = tmp_path / str(tokens)
        finetune(config_of(kind, base, run, micro_batch_tokens=tokens, max_steps=3, eval_every=3))
        seen.append([line["loss"] for line in metrics_of(run, kind="train")])
    assert seen[1] == pytest.approx(seen[0], rel=1e-5)
    assert seen[2] == pytest.approx(seen[0], rel=1e-5)


def test_workers_change_nothing(base: Path, tmp_path: Path) -> None:
    for workers in (0, 1):
        finetune(config_of("single", base, tmp_path / str(workers), data_workers=workers, max_steps=3))
    assert metrics_of(tmp_path / "0") == metrics_of(tmp_path / "1")


# --- parts of the data ----------------------------------------------------------------------------------------------


def test_a_share_of_training_is_kept_for_validation(base: Path, tmp_path: Path) -> None:
    config = config_of("single", base, tmp_path / "run", validation_file=None, validation_split=0.25, max_steps=2)
    results = finetune(config)
    assert results["validation"]["examples"] >= 6
    assert settings_of(tmp_path / "run")["coverage"]["train"]["examples"] == 24 - results["validation"]["examples"]


def test_without_held_out_data_the_last_step_is_best_and_that_is_said(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = finetune(config_of("single", base, tmp_path / "run", validation_file=None))
    assert "warning: nothing is held out" in capsys.readouterr().err
    assert results["global_step"] == 6
    assert results["train"]["examples"] == 24
    assert metrics_of(tmp_path / "run", kind="validation") == []


def test_a_test_part_that_decides_is_warned_of(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_task(tmp_path, "single", number=8, seed=3))
    finetune(config_of("single", base, tmp_path / "run", validation_file=None, test_file=data, max_steps=2))
    assert "warning: the test part decides which checkpoint is best" in capsys.readouterr().err


def test_eleven_rows_are_eleven_predictions_in_order(base: Path, tmp_path: Path) -> None:
    # Case 31.
    data = write_task(tmp_path, "single", number=11, seed=7)
    finetune(config_of("single", base, tmp_path / "run", validation_file=str(data), max_steps=2, batch_size=4))
    texts = [json.loads(line)["text"] for line in data.read_text(encoding="utf-8").splitlines()]
    lines = (tmp_path / "run" / "predictions_validation.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    assert results_in(tmp_path / "run")["validation"]["examples"] == 11


def test_early_stopping_ends_a_run_that_gets_no_better(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"learning_rate": 1e-30, "max_steps": 12, "eval_every": 2, "early_stopping_patience": 2}
    results = finetune(config_of("single", base, tmp_path / "run", **values))
    assert "no better accuracy in 2 evaluations: training ends early" in capsys.readouterr().err
    assert (settings_of(tmp_path / "run")["steps"], results["global_step"]) == (6, 2)


def test_a_label_of_validation_alone_is_said_and_counts_as_a_miss(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Case 39.
    data = tmp_path / "dev.jsonl"
    data.write_text('{"text": "the moon", "label": "new"}\n{"text": "月", "label": "中文"}\n', encoding="utf-8")
    results = finetune(config_of("single", base, tmp_path / "run", validation_file=str(data), max_steps=2))
    assert "1 labels of validation never stand in train" in capsys.readouterr().err
    assert set(results["validation"]["by_class"]) == {"english", "new", "中文"}
    assert results["validation"]["by_class"]["new"]["support"] == 1


def test_one_class_that_is_always_given_is_warned_of(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Case 36.
    lines = [
        {"text": f"the {word}", "label": "rare" if word == "sand" else "often"} for word in ["moon"] * 19 + ["sand"]
    ]
    data = tmp_path / "x.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    values = {"validation_file": str(data), "max_steps": 2, "learning_rate": 1e-2}
    results = finetune(config_of("single", base, tmp_path / "run", **values, train_file=str(data)))
    assert "warning: validation: every text is given the one class 'often'" in capsys.readouterr().err
    assert results["validation"]["by_class"]["rare"]["recall"] == 0


# --- weights of classes ---------------------------------------------------------------------------------------------


def test_weights_of_classes_change_the_loss(base: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.jsonl"
    lines = [{"text": f"the {word}", "label": word} for word in ["moon"] * 15 + ["sand"] * 5]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    table = tmp_path / "weights.json"
    table.write_text(json.dumps({"moon": 20 / 30, "sand": 2.0}), encoding="utf-8")
    losses = {}
    for name, given in (("none", None), ("auto", "auto"), ("file", str(table))):
        values = {"class_weights": given, "validation_file": None, "max_steps": 2}
        finetune(config_of("single", base, tmp_path / name, **values, train_file=str(data)))
        losses[name] = [line["loss"] for line in metrics_of(tmp_path / name, kind="train")]
    assert losses["auto"] == pytest.approx(losses["file"], rel=1e-6)
    assert losses["auto"] != pytest.approx(losses["none"], rel=1e-3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is no table of weights"),
        ("{", "is no table of weights"),
        ('{"english": "much"}', "is no table of weights"),
        ('{"deutsch": 1}', "deutsch: is no label of the data"),
        ('{"english": -1}', "english: is no weight"),
        ('{"english": NaN}', "english: is no weight"),
        ('{"english": 0, "中文": 0}', "gives every class the weight 0"),
        (None, "does not exist"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_anything_is_made(
    base: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "weights.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        finetune(config_of("single", base, tmp_path / "run", class_weights=str(file)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("regression", {"class_weights": "auto"}, "--class_weights: has no meaning for regression"),
        ("choices", {"class_weights": "auto"}, "--class_weights: is no option of multiple-choice"),
        ("questions", {"class_weights": "auto"}, "--class_weights: is no option of question-answering"),
        ("regression", {"label_smoothing": 0.1}, "--label_smoothing: has no meaning for regression"),
        ("multi", {"label_smoothing": 0.1}, "--label_smoothing: has no meaning for multi_label_classification"),
        ("choices", {"label_smoothing": 0.1}, "--label_smoothing: is no option of multiple-choice"),
        ("questions2", {"label_smoothing": 0.1}, "--label_smoothing: is no option of question-answering"),
    ],
)
def test_what_has_no_meaning_for_a_loss_is_refused(
    base: Path, tmp_path: Path, kind: str, value: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        finetune(config_of(kind, base, tmp_path / "run", **value))
    assert not (tmp_path / "run").exists()


def test_texts_with_several_labels_or_none_may_be_weighted(base: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.jsonl"
    labels = [["a"], [], ["a", "b"], ["b"]] * 4
    data.write_text("".join(json.dumps({"text": "the moon", "labels": each}) + "\n" for each in labels), "utf-8")
    values = {"class_weights": "auto", "validation_file": None, "max_steps": 2}
    finetune(config_of("multi", base, tmp_path / "run", **values, train_file=str(data)))
    golds = [
        json.loads(line)["gold"]
        for line in (tmp_path / "run" / "predictions_train.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert golds == labels


# --- where a run starts ---------------------------------------------------------------------------------------------


def test_heads_of_pre_training_are_dropped_with_a_line(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finetune(config_of("tags", base, tmp_path / "run", max_steps=1))
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("model loaded from"))
    assert "newly made: classifier.bias, classifier.weight; ignored: bert.pooler.dense.bias" in line
    assert "cls.predictions.bias" in line
    assert "cls.seq_relationship.weight" in line


def test_frozen_layers_stay_as_they_are(base: Path, tmp_path: Path) -> None:
    finetune(config_of("single", base, tmp_path / "run", freeze_layers=1, max_steps=2))
    before, after = weights_in(base), weights_in(tmp_path / "run")
    same = {name for name, tensor in after.items() if name in before and torch.equal(tensor, before[name])}
    assert {name for name in after if ".embeddings." in name or ".layer.0." in name} <= same
    assert not any(".layer.1." in name and "weight" in name and "LayerNorm" not in name for name in same)
    with pytest.raises(InputError, match=r"--freeze_layers: is not a number of layers\n  value: 3\n  expected: 0 to 2"):
        finetune(config_of("single", base, tmp_path / "other", freeze_layers=3))
    assert not (tmp_path / "other").exists()


def test_a_fine_tuned_model_is_fine_tuned_again(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = tmp_path / "first"
    finetune(config_of("single", base, first, max_steps=2))
    still = {"learning_rate": 1e-30, "max_steps": 1}
    capsys.readouterr()
    finetune(config_of("single", first, tmp_path / "same", **still))
    old, same = weights_in(first), weights_in(tmp_path / "same")
    assert torch.equal(old["classifier.weight"], same["classifier.weight"])
    lines = {}
    for kind in ("pair", "tags", "questions"):  # other labels, another task
        capsys.readouterr()
        finetune(config_of(kind, first, tmp_path / kind, **still))
        lines[kind] = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("model loaded"))
        new = weights_in(tmp_path / kind)
        assert torch.equal(new["bert.embeddings.word_embeddings.weight"], old["bert.embeddings.word_embeddings.weight"])
    assert not torch.equal(weights_in(tmp_path / "pair")["classifier.weight"], old["classifier.weight"])
    assert lines["pair"].endswith("the file's classifier has other labels (2: english, 中文)")
    assert lines["tags"].endswith("the file's classifier is that of a BertForSequenceClassification")


def test_other_dropout_is_written_into_the_model(base: Path, tmp_path: Path) -> None:
    values = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.4}
    finetune(config_of("single", base, tmp_path / "run", max_steps=1, **values))
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert {name: config[name] for name in values} == values


def test_labels_keep_their_names_and_places(base: Path, tmp_path: Path) -> None:
    # Case 33: what comes first in one file comes last in the other.
    for name, places in (("one", "ab"), ("other", "ba")):
        data = tmp_path / f"{name}.jsonl"
        data.write_text("".join(json.dumps({"text": "月", "label": each}) + "\n" for each in places * 4), "utf-8")
        values = {"validation_file": str(data), "max_steps": 1}
        finetune(config_of("single", base, tmp_path / name, **values, train_file=str(data)))
        config = json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))
        assert config["id2label"] == {"0": "a", "1": "b"}


# --- how a run ends -------------------------------------------------------------------------------------------------


def test_a_signal_saves_and_says_how_to_go_on(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = loop.update

    def signalled(job: Any, state: Any, batches: Any) -> Any:
        if state.step == 2:
            job.runtime.stop.received = 15
        return update(job, state, batches)

    monkeypatch.setattr(loop, "update", signalled)
    with pytest.raises(Stopped, match=r"stopped after step 2 of 6; go on by --resume_from last") as caught:
        finetune(config_of("single", base, tmp_path / "run"))
    assert caught.value.signal_number == 15
    assert not (tmp_path / "run" / "eval_results.json").exists()
    monkeypatch.setattr(loop, "update", update)
    finetune(config_of("single", base, tmp_path / "run", resume_from="last"))
    finetune(config_of("single", base, tmp_path / "whole"))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [60, 10**6])  # the second: one micro-batch, so that one process has none
def test_two_processes_train_as_one_does(base: Path, tmp_path: Path, tokens: int) -> None:
    files = {
        kind: [str(write_task(tmp_path, kind, number=21)), str(write_task(tmp_path, kind, number=11, seed=1))]
        for kind in KINDS
    }
    values = {"micro_batch_tokens": tokens, "max_steps": 4, "eval_every": 2}
    for ranks in (1, 2):
        on_ranks(ranks, "finetunings", tmp_path / str(ranks), base=str(base), files=files, values=values)
    for kind in KINDS:
        one, two = (metrics_of(tmp_path / str(ranks) / kind) for ranks in (1, 2))
        assert [line.keys() for line in one] == [line.keys() for line in two]
        for line, other in zip(one, two, strict=True):
            assert other.pop("kind") == line.pop("kind")
            assert other == pytest.approx(line, rel=1e-4, abs=2e-4)  # a correlation of 11 rows is not as sharp
        files_of_both = [tmp_path / ranks / kind / "predictions_validation.jsonl" for ranks in ("1", "2")]
        records = [
            [json.loads(line)["id"] for line in path.read_text(encoding="utf-8").splitlines()] for path in files_of_both
        ]
        assert len(records[0]) == 11
        assert records[0] == records[1]


def test_several_seeds_are_several_runs_and_their_mean(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(config_of("pair", base, tmp_path / "runs", max_steps=2, seeds="3,5"))
    shown = {
        tuple(line.split()[:2]): [float(cell) for cell in line.split()[2:]]
        for line in capsys.readouterr().out.splitlines()
        if "." in line
    }
    values = [results_in(tmp_path / "runs" / f"seed-{seed}")["validation"]["macro_f1"] for seed in (3, 5)]
    mean = sum(values) / 2
    deviation = abs(values[0] - values[1]) / 2**0.5
    assert shown["validation", "macro_f1"] == pytest.approx([mean, deviation, *values], abs=1e-4)
    first, second = (weights_in(tmp_path / "runs" / f"seed-{seed}")["classifier.weight"] for seed in (3, 5))
    assert not torch.equal(first, second)


def test_one_run_and_several_do_not_stand_in_one_folder(base: Path, tmp_path: Path) -> None:
    run_command(config_of("pair", base, tmp_path / "one", max_steps=1))
    with pytest.raises(InputError, match="one: --output_dir: holds a model or a store"):
        run_command(config_of("pair", base, tmp_path / "one", max_steps=1, seeds="3,5"))
    assert not (tmp_path / "one" / "seed-3").exists()
    run_command(config_of("pair", base, tmp_path / "several", max_steps=1, seeds="3,5"))
    before = (tmp_path / "several" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"several: --output_dir: holds several runs \(--seeds, --compare_layers\)"):
        run_command(config_of("pair", base, tmp_path / "several", max_steps=1))
    with pytest.raises(InputError, match="several: --output_dir: holds several runs"):
        run_command(config_of("pair", base, tmp_path / "several", max_steps=1, compare_layers=True))
    assert (tmp_path / "several" / "README.md").read_text(encoding="utf-8") == before


def test_seeds_leave_their_summary_and_share_the_validation_part(base: Path, tmp_path: Path) -> None:
    values = {"validation_file": None, "validation_split": 0.3, "max_steps": 1}
    run_command(config_of("pair", base, tmp_path / "runs", seeds="3,5", **values))
    summary = json.loads((tmp_path / "runs" / "seeds.json").read_text(encoding="utf-8"))
    for seed in ("3", "5"):
        results = results_in(tmp_path / "runs" / f"seed-{seed}")
        assert summary["seeds"][seed]["validation"]["accuracy"] == results["validation"]["accuracy"]
    values_of = [summary["seeds"][seed]["validation"]["accuracy"] for seed in ("3", "5")]
    overall = summary["overall"]["validation"]["accuracy"]
    assert overall["mean"] == pytest.approx(sum(values_of) / 2)
    assert overall["sd"] == pytest.approx(abs(values_of[0] - values_of[1]) / 2**0.5)
    page = (tmp_path / "runs" / "README.md").read_text(encoding="utf-8").splitlines()
    assert page[0] == "# sequence-classification: mean and standard deviation of 2 seeds"
    assert page[2:4] == ["| part | metric | mean | sd | seed 3 | seed 5 |", "|---|---|---|---|---|---|"]
    assert any(
        line.startswith(f"| validation | accuracy | {overall['mean']:.4f} | {overall['sd']:.4f} |") for line in page
    )
    shared = [ids_in(tmp_path / "runs" / f"seed-{seed}") for seed in (3, 5)]
    assert shared[0] == shared[1]
    run_command(config_of("pair", base, tmp_path / "other", seeds="3", split_seed=7, **values))
    assert ids_in(tmp_path / "other" / "seed-3") != shared[0]


def test_seeds_given_again_go_on_where_they_were_stopped(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of("pair", base, tmp_path / "runs", max_steps=3, save_every=1, seeds="3,5,7")
    update, steps = loop.update, []

    def asked_to_stop(job: Any, state: Any, batches: Any) -> Any:
        steps.append(state.step)
        if len(steps) == 5:  # the second step of the second seed
            job.runtime.stop.received = 15
        return update(job, state, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "update", asked_to_stop)
        with pytest.raises(Stopped, match=r"stopped in seed 5 \(finished: 3\); the same command goes on"):
            run_command(config)
    steps.clear()
    finished = (tmp_path / "runs" / "seed-3" / "metrics.jsonl").stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "update", lambda *given: steps.append(given[1].step) or update(*given))
        run_command(config)
    assert steps == [1, 2, 0, 1, 2]
    assert "seed 3 is finished: its results are those of" in capsys.readouterr().err
    assert (tmp_path / "runs" / "seed-3" / "metrics.jsonl").stat().st_mtime_ns == finished
    run_command(config_of("pair", base, tmp_path / "whole", max_steps=3, save_every=1, seeds="3,5,7"))
    whole, parts = (json.loads((tmp_path / name / "seeds.json").read_text("utf-8")) for name in ("whole", "runs"))
    assert whole == parts


def test_seeds_of_other_settings_are_not_mixed(base: Path, tmp_path: Path) -> None:
    run_command(config_of("pair", base, tmp_path / "runs", max_steps=1, seeds="5"))
    said = r"seed-5: --output_dir: holds a run of other settings: learning_rate: 0\.005 then, 0\.1 now"
    with pytest.raises(InputError, match=said):
        run_command(config_of("pair", base, tmp_path / "runs", max_steps=1, seeds="3,5", learning_rate=0.1))
    with pytest.raises(InputError, match="max_steps: 1 then, 2 now"):
        run_command(config_of("pair", base, tmp_path / "runs", max_steps=2, seeds="3,5"))
    (tmp_path / "runs" / "seed-5" / "run.json").unlink()
    with pytest.raises(InputError, match="holds a run of other settings, which are not known"):
        run_command(config_of("pair", base, tmp_path / "runs", max_steps=1, seeds="3,5"))
    with pytest.raises(InputError, match="--seed: is no seed"):
        run_command(config_of("pair", base, tmp_path / "runs", max_steps=1, seeds="3,-5"))
    assert not (tmp_path / "runs" / "seed-3").exists()


def test_all_problems_of_labels_are_shown(base: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.jsonl"
    lines = [{"text": "a", "label": "x"}, {"text": "b", "label": "1.5"}, {"text": "c", "label": "y"}]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(InputErrors, match=r"(?s)x\.jsonl:1: label.*x\.jsonl:3: label.*2 of 2 problems shown"):
        finetune(config_of("regression", base, tmp_path / "run", problem_type="regression", train_file=str(data)))
