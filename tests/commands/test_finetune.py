"""`bertkit finetune` as it is typed: what goes where, how long it is, resuming, and all that is refused first."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from toy_run import metrics_of, stopped_before
from toy_tasks import TASK_OF, finetune_config, write_base, write_task

from bertkit.cli import main
from bertkit.commands import finetune as command
from bertkit.commands.finetune import finetune
from bertkit.tasks.sequence_classification import SequenceClassification
from bertkit.train.loop import Job, LossSums

QUICK = ("--batch_size", "8", "--max_seq_length", "32")
OF_QUESTIONS = ("--doc_stride", "8", "--max_query_length", "8")
KINDS = ("single", "pair", "multi", "regression", "tags", "choices", "questions", "questions2")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


def words(kind: str, base: object, train: object, output: object, *flags: object) -> list[str]:
    given = ["finetune", TASK_OF[kind], "--model_name_or_path", base, "--train_file", train, "--output_dir", output]
    own = OF_QUESTIONS if TASK_OF[kind] == "question-answering" else ()
    return list(map(str, [*given, *QUICK, *own, *flags]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_trained_by_one_command(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    train, held_out = write_task(tmp_path, kind, number=16), write_task(tmp_path, kind, number=8, seed=1)
    assert main(words(kind, base, train, tmp_path / "run", "--validation_file", held_out, "--max_steps", 2)) == 0
    captured = capsys.readouterr()
    results = json.loads((tmp_path / "run" / "eval_results.json").read_text(encoding="utf-8"))
    assert results["task"] == TASK_OF[kind]
    shown = {
        line.split()[1]: line.split()[2]
        for line in captured.out.splitlines()
        if line.split()[:1] == ["validation"] and len(line.split()) == 3
    }
    assert shown == {k: f"{v:.4f}" for k, v in results["validation"].items() if isinstance(v, float)}
    assert f"model: {tmp_path / 'run'}" in captured.out
    assert "records read: 24" in captured.err
    assert "validation:" in captured.err
    assert "records read" not in captured.out
    assert (tmp_path / "run" / "report.html").exists() == (f"report: {tmp_path / 'run'}" in captured.out)


def test_three_epochs_are_made_unless_said_otherwise(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_task(tmp_path, "single", number=12)
    assert main(words("single", base, train, tmp_path / "run", "--validation_split", 0.2)) == 0
    assert "3 epochs are 6 steps" in capsys.readouterr().err
    written = yaml.safe_load((tmp_path / "run" / "settings.yaml").read_text(encoding="utf-8"))
    assert (written["max_steps"], written["num_train_epochs"], written["eval_every"]) == (6, None, 2)
    assert (written["learning_rate"], written["adam_beta2"]) == (5e-5, 0.999)


def test_minutes_become_steps_and_leave_no_other_trace(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(job: Job) -> float:
        with torch.no_grad():  # measuring changes the weights of a copy
            for parameter in job.module.module.parameters():
                parameter.zero_()
        return 2.5

    monkeypatch.setattr("bertkit.train.trial.seconds_a_step", measured)
    train = write_task(tmp_path, "single", number=20)
    assert main(words("single", base, train, tmp_path / "minutes", "--max_minutes", 0.25)) == 0
    assert "0.25 minutes are 6 steps here, 2.00 epochs" in capsys.readouterr().err
    assert main(words("single", base, train, tmp_path / "steps", "--max_steps", 6)) == 0
    assert metrics_of(tmp_path / "minutes") == metrics_of(tmp_path / "steps")
    written = yaml.safe_load((tmp_path / "minutes" / "settings.yaml").read_text(encoding="utf-8"))
    assert (written["max_steps"], written["max_minutes"]) == (6, None)


def test_a_run_is_resumed_by_its_own_settings_file(base: Path, tmp_path: Path) -> None:
    train = write_task(tmp_path, "single", number=20)
    values = {"validation_split": 0.2, "max_steps": 6, "eval_every": 2}
    with stopped_before(4):
        finetune(finetune_config(base, train, tmp_path / "run", kind="single", **values))
    settings = tmp_path / "run" / "settings.yaml"
    assert main(["finetune", "--config_file", str(settings), "--resume_from", "last"]) == 0
    finetune(finetune_config(base, train, tmp_path / "straight", kind="single", **values))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "straight")


def test_a_run_is_resumed_from_another_folder_and_by_another_path(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, other = write_task(tmp_path, "single", number=20), tmp_path / "elsewhere"
    other.mkdir()
    flags = ("--validation_split", 0.2, "--max_steps", 6, "--eval_every", 2)
    monkeypatch.chdir(tmp_path)
    with stopped_before(4):
        main(words("single", base, train.name, tmp_path / "run", *flags))
    monkeypatch.chdir(other)
    typed = ["finetune", "sequence-classification", "--output_dir", str(tmp_path / "run"), "--resume_from", "last"]
    assert main([*typed, "--model_name_or_path", str(base)]) == 0  # the data by its path as the run has kept it
    main(words("single", base, train, tmp_path / "straight", *flags))
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "straight")


def test_a_report_is_written_or_how_to_get_one_is_said(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertkit.report.page.plotly_is_installed", lambda: False)
    train = write_task(tmp_path, "single", number=8)
    command.run(finetune_config(base, train, tmp_path / "run", kind="single", max_steps=1))
    captured = capsys.readouterr()
    assert "report:" not in captured.out
    assert 'no report.html was written: pip install "bertkit[report]"' in captured.err


def test_skipped_records_are_counted(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write_task(tmp_path, "single", number=8)
    with train.open("a", encoding="utf-8") as file:
        file.write('{"text": "", "label": "english"}\n{\n')
    assert main(words("single", base, train, tmp_path / "run", "--max_steps", 1, "--on_bad", "skip")) == 0
    said = capsys.readouterr().err
    assert "records skipped as broken: 2" in said
    assert "data: 8 for train" in said


@pytest.mark.parametrize(
    ("kind", "flags", "said"),
    [
        ("single", ("--max_seq_length", 65), "--max_seq_length: is longer than the 64 positions of the model"),
        ("single", ("--max_seq_length", 2), "--max_seq_length: leaves no room for the text"),
        ("single", ("--max_seq_length", 0), "--max_seq_length: is not a number of 1 or more"),
        ("single", ("--max_steps", 1, "--num_train_epochs", 1), "set the same thing"),
        ("single", ("--validation_split", 0), "--validation_split: is no share"),
        ("single", ("--validation_split", 1.5), "--validation_split: is no share"),
        ("single", ("--validation_split", 0.1, "--validation_file", "x"), "name two validation parts"),
        ("single", ("--early_stopping_patience", 1), "--early_stopping_patience: has no effect where nothing is held"),
        ("single", ("--seeds", "1,b"), "--seeds: is no list of seeds"),
        ("single", ("--seeds", "1,1"), "--seeds: names a seed twice"),
        ("single", ("--seeds", "1,2", "--resume_from", "last"), "--seeds: are several runs"),
        ("single", ("--seeds", "1,2", "--seed", 5), "--seed: has no effect beside --seeds"),
        ("single", ("--label_smoothing", 1), "--label_smoothing: is no share"),
        ("single", ("--allow_inexact",), "--allow_inexact: has no effect without --resume_from"),
        ("single", ("--layers=-1,-2",), "--layers: only the deepest of several layers is read"),
        ("single", ("--freeze_layers", 9), "--freeze_layers: is not a number of layers"),
        ("single", ("--freeze_layers", -1), "--freeze_layers: is not a number of layers"),
        ("single", ("--classifier_dropout", 1), "classifier_dropout: is not a probability"),
        ("single", ("--hidden_dropout_prob", 2), "hidden_dropout_prob"),
        ("single", ("--resume_from", "last"), "--resume_from: does not exist"),
        ("single", ("--resume_from", "last", "--max_steps", 1), "start it without --resume_from"),
        ("single", ("--text_column", "nothing"), "nothing: the field is missing"),
        ("single", ("--problem_type", "multi_label_classification"), "label: the label is"),
        ("single", ("--class_weights", "no file"), "no file: does not exist"),
        ("single", ("--train_files", "x"), "--train_files: is not a flag of this command"),
        ("pair", ("--long_texts", "windows"), "windows are made of single texts only"),
        ("single", ("--long_texts", "windows", "--stride", 60), "would leave tokens out"),
        ("questions", ("--doc_stride", 40), "--doc_stride: a window holds"),
        ("questions", ("--max_seq_length", 5), "--max_seq_length: leaves no room for the context"),
        ("tags", ("--doc_stride", 8), "--doc_stride: is no option of token-classification"),
        ("questions", ("--stride", 8), "it belongs to sequence-classification, token-classification"),
        ("choices", ("--class_weights", "auto"), "--class_weights: is no option of multiple-choice"),
        ("single", ("--scheme", "IOB1"), "--scheme: is no option of sequence-classification"),
        ("single", ("--vote", "max"), "--vote: has no effect with --long_texts cut"),
        ("single", ("--decay_ratio", 0.3), "--decay_ratio: has no effect with --lr_scheduler_type linear"),
        ("tags", ("--scheme", "BMES"), "tag: the entity does not end (BMES, by --scheme)"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, flags: tuple[object, ...], said: str
) -> None:
    train = write_task(tmp_path, kind, number=6)
    assert main(words(kind, base, train, tmp_path / "run", *flags)) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "sentiment", "--model_name_or_path", "x", "--train_file", "x", "--output_dir", "x"]) == 2
    said = capsys.readouterr().err
    assert "TASK" in said or "task" in said
    assert "sequence-classification" in said


def test_a_run_is_not_written_over_another_nor_over_its_model(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_task(tmp_path, "single", number=6)
    assert main(words("single", base, train, base, "--max_steps", 1)) == 2
    assert "is the model that training starts from" in capsys.readouterr().err
    assert main(words("single", base, train, tmp_path / "run", "--max_steps", 1)) == 0
    assert main(words("single", base, train, tmp_path / "run", "--max_steps", 1)) == 2
    assert f"{tmp_path / 'run'}: --output_dir: holds a run already" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert main(words("single", base, train, tmp_path / "run", "--max_steps", 2)) == 2
    assert f"{tmp_path / 'run'}: --output_dir: holds a model" in capsys.readouterr().err
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_model_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write_task(tmp_path, "single", number=6)
    assert main(words("single", tmp_path / "nowhere", train, tmp_path / "run")) == 2
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_without_one_finite_loss_is_an_error_although_it_ends(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = SequenceClassification.losses

    def not_finite(*given: Any, **named: Any) -> LossSums:
        found = losses(*given, **named)
        return found._replace(sums={name: total * math.nan for name, total in found.sums.items()})

    monkeypatch.setattr(SequenceClassification, "losses", not_finite)
    train = write_task(tmp_path, "single", number=16)
    flags = ("--max_steps", 3, "--on_non_finite", "skip")
    assert main(words("single", base, train, tmp_path / "run", *flags)) == 2
    said = capsys.readouterr().err
    assert "error: --learning_rate: not one of the 3 steps was made: no loss or gradient was finite" in said
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "eval_results.json").exists()
    # Of several runs one that was refused is not taken for a finished one when the command is given again.
    for _ in range(2):
        assert main(words("single", base, train, tmp_path / "seeds", *flags, "--seeds", "1,2")) == 2
        captured = capsys.readouterr()
        assert "error: --learning_rate: not one of the 3 steps was made" in captured.err
        assert "is finished" not in captured.err
        assert captured.out == ""
    assert not (tmp_path / "seeds" / "seeds.json").exists()


def test_runs_that_are_finished_are_held_to_their_settings_without_checkpoints(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write_task(tmp_path, "single", number=16)
    typed = words("single", base, train, tmp_path / "run", "--max_steps", 2, "--seeds", "1,2")
    assert main(typed) == 0
    for seed in (1, 2):
        shutil.rmtree(tmp_path / "run" / f"seed-{seed}" / "checkpoints")
    capsys.readouterr()
    assert main([*typed, "--learning_rate", "1e-3"]) == 2
    assert "holds a run of other settings: learning_rate: 5e-05 then, 0.001 now" in capsys.readouterr().err
    assert main(typed) == 0
    assert "seed 2 is finished" in capsys.readouterr().err


def test_help_speaks_of_fine_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--num_train_epochs passes over the training examples in all; null with no other length: 3" in shown
    assert "--eval_every steps between two evaluations; null: an epoch" in shown
    assert "a tenth of the run" not in shown
    assert main(["finetune", "token-classification", "--help"]) == 0
    of_tags = capsys.readouterr().out
    assert "--scheme" in of_tags
    assert "--doc_stride" not in of_tags
    assert "--doc_stride" in shown
    assert main(["pretrain", "--help"]) == 0
    assert "null: a tenth of the run" in " ".join(capsys.readouterr().out.split())
