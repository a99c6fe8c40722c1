"""What is said before and during a run: by hand."""

import math
from pathlib import Path

import pytest
from toy_run import toy_config, toy_documents, write_store

from bertkit.commands.pretrain import pretrain
from bertkit.errors import InputError
from bertkit.tasks.diagnosis import check_first_losses, unusual, warn_of_plateau
from bertkit.train.settings import TrainSettings

LN_1000 = math.log(1000)


def test_usual_settings_are_passed_over() -> None:
    for optimizer in ("adamw", "muon"):
        assert unusual(TrainSettings(optimizer=optimizer), rows=1000, hidden=0.4) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "rows", "said"),
    [
        (TrainSettings(learning_rate=0.1), 1000, "--learning_rate 0.1 is unusual for adamw: 1e-05 to 0.005"),
        (TrainSettings(learning_rate=1e-7), 1000, "--learning_rate 1e-07 is unusual for adamw"),
        (TrainSettings(optimizer="lamb", learning_rate=1.0), 1000, "--learning_rate 1 is unusual for lamb"),
        (TrainSettings(optimizer="muon", muon_learning_rate=1.0), 1000, "--muon_learning_rate 1 is unusual"),
        (TrainSettings(batch_size=4), 1000, "--batch_size 4: gradients of so few rows are mostly noise"),
        (TrainSettings(batch_size=64), 50, "--batch_size 64 is more than the 50 rows of an epoch"),
    ],
)
def test_what_is_unusual_is_said(settings: TrainSettings, rows: int, said: str) -> None:
    [warning] = unusual(settings, rows=rows, hidden=0.4)
    assert warning.startswith(said)


def test_a_share_hidden_that_leaves_little_is_unusual() -> None:
    [warning] = unusual(TrainSettings(), rows=1000, hidden=1.0)
    assert warning == "--mlm_probability 1 leaves little to guess by: up to 0.6 is known to learn"


def test_a_text_that_the_tokenizer_does_not_know_is_warned_of_and_then_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = [f"{'λόγος ' * 9}. 。 {document}" for document in toy_documents()[:40]]
    some, most = (tmp_path / name for name in ("some", "most"))
    for folder in (some, most):
        folder.mkdir()
    pretrain(toy_config(write_store(some, toy_documents() + foreign), some / "run", max_steps=1))
    assert " % of the text is [UNK], of which nothing is learnt" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"\d+ % of the text is \[UNK\] by this tokenizer") as found:
        pretrain(toy_config(write_store(most, [f"{'λ ' * 2000}. 。 {text}" for text in foreign]), most / "run"))
    assert "take the model or the tokenizer of this text's language" in str(found.value)


def test_a_new_model_that_does_not_guess_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    check_first_losses({"mlm_loss": LN_1000 + 0.1, "nsp_loss": 2.0}, vocab_size=1000, is_new=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "before training: mlm_loss 7.008, a model that guesses has 6.908"
    assert lines[1] == "warning: before training: nsp_loss 2.000, a model that guesses has 0.693"


@pytest.mark.parametrize(("loss", "is_usual"), [(4.9, False), (5.2, True), (7.2, True), (7.6, False)])
def test_a_new_model_that_knows_frequencies_lies_between_two_ways_of_guessing(
    capsys: pytest.CaptureFixture[str], loss: float, is_usual: bool
) -> None:
    check_first_losses({"mlm_loss": loss}, vocab_size=1000, is_new=True, unigram=5.5)
    line = (
        f"before training: mlm_loss {loss:.3f}, a model that guesses has 6.908, one that knows the frequencies 5.500\n"
    )
    assert capsys.readouterr().err == ("" if is_usual else "warning: ") + line


@pytest.mark.parametrize(("loss", "trained"), [(LN_1000 - 0.6, True), (LN_1000 - 0.4, False), (20.0, False)])
def test_a_loaded_head_that_only_guesses_is_warned_of(
    capsys: pytest.CaptureFixture[str], loss: float, trained: bool
) -> None:
    check_first_losses({"mlm_loss": loss}, vocab_size=1000, is_new=False)
    assert ("the masked-LM head of this model is not trained" in capsys.readouterr().err) != trained


def test_a_loss_on_the_plateau_of_frequencies_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert not warn_of_plateau(5.7, unigram=5.9)
    assert capsys.readouterr().err == ""
    assert warn_of_plateau(5.85, unigram=5.9)
    assert "the masked-LM loss 5.850 is that of guessing by frequency alone (5.900)" in capsys.readouterr().err


def test_a_run_on_the_plateau_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertkit.tasks.diagnosis.PLATEAU_STEPS", 2)
    pretrain(toy_config(write_store(tmp_path), tmp_path / "run", max_steps=6, eval_every=2, learning_rate=1e-5))
    assert capsys.readouterr().err.count("guessing by frequency alone") == 1


def test_a_text_that_repeats_itself_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path, toy_documents() * 2)
    pretrain(toy_config(store, tmp_path / "run", max_steps=1))
    assert "of the documents repeat an earlier one" in capsys.readouterr().err


def test_frozen_parameters_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain(toy_config(write_store(tmp_path), tmp_path / "run", max_steps=1, freeze_layers=1))
    said = capsys.readouterr().err
    assert "of them frozen)" in said
    assert "--freeze_layers keeps layers of a new model as they were drawn" in said
