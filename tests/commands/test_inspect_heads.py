"""`bertkit inspect heads` as it is typed: what a head matters, whatever the task and the batches; models with fewer."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_model as toy
from toy_tasks import write_task, write_tuned

from bertkit.cli import main
from bertkit.model.encoder import Encoder
from bertkit.model.pretrained import load, save
from bertkit.pipelines import importance
from bertkit.tasks.opening import open_predictor

KINDS: dict[str, dict[str, Any]] = {
    "single": {"labels": ("english", "中文")},
    "regression": {"labels": ("score",), "problem_type": "regression"},
    "tags": {"labels": ("O", "B-PLACE", "I-PLACE"), "scheme": "IOB2"},
    "choices": {},
    "questions": {},
}


def typed(*words: object) -> int:
    return main(["inspect", "heads", *map(str, words)])


def tuned(folder: Path, kind: str) -> tuple[Path, Path]:
    return write_tuned(folder / "model", kind, **KINDS[kind]), write_task(folder, kind, number=10)


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert typed(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_head_matters_does_not_depend_on_the_batches(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = tuned(tmp_path, kind)
    together = shown(capsys, model, "--input_file", data)
    monkeypatch.setattr(importance, "BATCH_TOKENS", 1)
    apart = shown(capsys, model, "--input_file", data)
    assert together["examples"] == apart["examples"] >= 10
    for name, shape in (("heads", (2, 2)), ("layers", (2,))):
        found = torch.tensor(together[name])
        assert found.shape == shape
        assert (found > 0).all()
        torch.testing.assert_close(found, torch.tensor(apart[name]), rtol=1e-3, atol=1e-5)


def test_the_gradient_is_that_of_the_loss_by_a_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = tuned(tmp_path, "choices")
    found = shown(capsys, model, "--input_file", data)
    predictor = open_predictor(model)
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    expected = torch.zeros(2, 2)
    for row in rows:
        mask = torch.ones(2, 2, requires_grad=True)
        scores = []
        for choice in row["choices"]:
            ids = [predictor.tokenizer.encode(text).ids.tolist() for text in (row["question"], choice)]
            whole = [2, *ids[0], 3, *ids[1], 3]
            types = [0] * (len(ids[0]) + 2) + [1] * (len(ids[1]) + 1)
            encoder = predictor.model.encoder
            encoded = encoder(torch.tensor([whole]), token_type_ids=torch.tensor([types]), head_mask=mask)
            scores.append(predictor.model.classifier(encoded.pooler_output)[0, 0])
        loss = -torch.stack(scores).log_softmax(0)[row["label"]]
        expected += torch.autograd.grad(loss, mask)[0].abs() / len(rows)
    torch.testing.assert_close(torch.tensor(found["heads"]), expected, rtol=1e-3, atol=1e-5)


def test_a_model_without_the_least_important_heads_is_smaller_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = tuned(tmp_path, "single")
    model: Any = load(folder, head="sequence_classification")
    with torch.no_grad():
        model.encoder.layers[1].attention.output.weight[:, 16:] = 0.0  # head 1 of layer 1 says nothing
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    save(folder, model, files={name: files[name] for name in files if name not in ("config.json", "model.safetensors")})
    output = tmp_path / "smaller"
    found = shown(capsys, folder, "--input_file", data, "--prune_heads", 1, "--output_dir", output)
    assert found["heads"][1][1] == 0
    assert found["pruned"] == {"1": [1]}
    weights = [(path / "model.safetensors").stat().st_size for path in (folder, output)]
    assert weights[0] - weights[1] >= 4 * 4 * 16 * 32
    answers = []
    for name in (folder, output):
        words = ["--model", str(name), "--input_file", str(data), "--output_file", str(tmp_path / "a.jsonl")]
        assert main(["predict", *words]) == 0
        answers.append([json.loads(line)["score"] for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()])
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)
    capsys.readouterr()
    # What was taken out is not taken out again: of two heads in either layer one is left to go.
    assert typed(output, "--input_file", data) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[2].split() == ["layer", "head", "0", "head", "1", "whole", "layer"]
    assert "pruned" in printed.splitlines()[4]
    again = shown(capsys, output, "--input_file", data, "--prune_heads", 1, "--output_dir", tmp_path / "smallest")
    assert list(again["pruned"]) == ["0"]
    words = [output, "--input_file", data, "--prune_heads", 2, "--output_dir", tmp_path / "none"]
    assert typed(*words) == 2
    assert "--prune_heads: are more heads than can be taken out" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_of_a_pre_trained_model_hidden_tokens_are_asked(
    head: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy.model_folder(tmp_path / "model", toy.random_model(head=head))
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text in toy.TEXTS), encoding="utf-8")
    together = shown(capsys, model, "--input_file", texts)
    assert together["examples"] == len(toy.TEXTS)
    monkeypatch.setattr(importance, "BATCH_TOKENS", 1)
    apart = shown(capsys, model, "--input_file", texts)
    torch.testing.assert_close(torch.tensor(together["heads"]), torch.tensor(apart["heads"]), rtol=1e-3, atol=1e-5)
    other = shown(capsys, model, "--input_file", texts, "--seed", 1)
    assert other["heads"] != apart["heads"]
    output = tmp_path / "smaller"
    assert typed(model, "--input_file", texts, "--prune_heads", 3, "--output_dir", output) == 0
    printed = capsys.readouterr().out
    assert "taken out: layer 0: " in printed
    assert printed.endswith(f"model: {output}\n")
    smaller: Any = load(output, head=head)
    assert sum(map(len, smaller.config.pruned_heads.values())) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prune_heads", "1"], "--output_dir: is missing"),
        (["--output_dir", "out"], "--prune_heads: is missing"),
        (["--prune_heads", "0", "--output_dir", "out"], "--prune_heads: takes nothing out"),
        (["--prune_heads", "1", "--output_dir", "model"], "--output_dir: holds a model"),
        (["--prune_heads", "1", "--output_dir", "store"], "--output_dir: holds a model or a store"),
    ],
)
def test_flags_that_contradict_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy.model_folder(tmp_path / "model", toy.random_model())
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "manifest.json").write_text("{}", encoding="utf-8")
    assert typed("model", "--input_file", "texts.txt", *words) == 2
    assert message in capsys.readouterr().err


def test_what_has_no_loss_or_cannot_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = Encoder(toy.toy_config())
    save(tmp_path / "encoder", encoder, files=toy.toy_tokenizer().files())
    texts = tmp_path / "texts.txt"
    texts.write_text("君\n", encoding="utf-8")
    assert typed(tmp_path / "encoder", "--input_file", texts) == 2
    assert "has no head whose loss could be asked for" in capsys.readouterr().err
    model = toy.model_folder(tmp_path / "model", toy.random_model())
    texts.write_text("君\n" + "君" * 70 + "\n", encoding="utf-8")
    assert typed(model, "--input_file", texts) == 2
    assert "text 2" in capsys.readouterr().err
    texts.write_text("\u200b\n", encoding="utf-8")
    assert typed(model, "--input_file", texts) == 2
    assert "text 1: holds no token" in capsys.readouterr().err


def test_options_that_do_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = tuned(tmp_path, "choices")
    assert typed(model, "--input_file", data, "--mlm_probability", 0.3, "--seed", 1) == 2
    said = capsys.readouterr().err
    assert "--mlm_probability: has no effect on a fine-tuned model\n  value: 0.3" in said
    assert "--seed: has no effect on a fine-tuned model\n  value: 1" in said
    texts = toy.model_folder(tmp_path / "texts", toy.random_model())
    assert typed(texts, "--input_file", data, "--text_column", "a", "--on_bad", "skip") == 2
    said = capsys.readouterr().err
    assert "--text_column: has no effect on texts, one a line" in said
    assert "--on_bad: has no effect on texts, one a line" in said
