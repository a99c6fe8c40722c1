"""`bertkit inspect model`: every tensor with its fate, the tokenizer against the model, a head that knows something."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_model import ENGLISH, TEXTS, learnt_model, model_folder, random_model, toy_config, toy_tokenizer

from bertkit.cli import main
from bertkit.commands import inspect_model
from bertkit.commands.inspect_model import SENTENCES, Config, run
from bertkit.errors import InputError
from bertkit.model.pretrained import build, save
from bertkit.model.probe import Probe
from bertkit.model.task_config import TaskConfig
from bertkit.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows TEXTS by heart, and those texts in a file beside it."""
    folder = model_folder(tmp_path_factory.mktemp("learnt") / "model", learnt_model())
    (folder.parent / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return folder


def shown(path: Path, capsys: pytest.CaptureFixture[str], **settings: object) -> dict[str, object]:
    """What the command prints as JSON."""
    run(Config(path=str(path), json=True, **settings))  # type: ignore[arg-type]
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_trained_head_is_told_from_a_new_one(learnt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = str(learnt.parent / "texts.txt")
    found = shown(learnt, capsys, input_file=texts)["probes"]["the texts"]
    assert found["trained"]
    assert found["loss"] < 0.2 * found["chance"]
    assert found["accuracy"] > 0.9
    new = model_folder(learnt.parent / "new", build(toy_config(), head="pretraining"))
    answer = shown(new, capsys, input_file=texts)
    probe = answer["probes"]["the texts"]
    assert not probe["trained"]
    assert probe["loss"] == pytest.approx(probe["chance"], rel=0.05)
    assert f"the masked-LM head is {verdict_of(probe)}: it is untrained" in answer["remarks"][-1]


def verdict_of(probe: dict[str, float]) -> str:
    return "hardly better than a guess" if probe["loss"] < probe["chance"] else "no better than a guess"


@pytest.mark.parametrize(
    ("loss", "accuracy", "verdict"),
    [
        (3.0, 0.0, "trained"),
        (9.5, 0.35, "trained"),  # often right, and too sure where it is wrong
        (7.6, 0.1, "hardly better than a guess"),
        (8.0, 0.1, "no better than a guess"),
        (20.0, 0.0, "no better than a guess"),
    ],
)
def test_the_verdict_on_a_head_agrees_with_its_figures(loss: float, accuracy: float, verdict: str) -> None:
    probe = Probe(loss, accuracy, num_tokens=100, chance=8.0)
    assert probe.verdict == verdict
    assert probe.trained == (verdict == "trained")


def test_what_is_printed_is_the_shape_the_fates_the_counts_and_the_tokenizer(
    learnt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Config(path=str(learnt), input_file=str(learnt.parent / "texts.txt")))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    size, tensors = toy_tokenizer().vocabulary.size, len(load_file(learnt / "model.safetensors"))
    for row in (["head", "pretraining"], ["tokens", str(size)], ["loaded", str(tensors)], ["newly", "made", "0"]):
        assert row in rows, row
    assert [row[0] for row in rows if row[-1] == "right"] == ["loss"]
    run(Config(path=str(learnt), show_tensors=True))
    assert "bert.encoder.layer.1.attention.self.key.bias" in capsys.readouterr().out


def test_parameters_are_counted_by_part_and_add_up(learnt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(learnt, capsys)["parameters"]
    model = learnt_model(steps=0)
    assert found.pop("all") == sum(found.values()) == sum(p.numel() for p in model.parameters())
    assert found["layers"] == sum(p.numel() for p in model.encoder.layers.parameters())
    assert set(found) == {"embeddings", "layers", "pooler", "mlm_head", "nsp_head"}


def test_sentences_outside_the_vocabulary_are_not_tried_and_said(
    learnt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(learnt, capsys)
    assert found["probes"] == {}
    assert [line.split(":")[0] for line in found["remarks"]] == [
        f"the masked-LM head was not tried on {language}" for language in SENTENCES
    ]


def test_a_language_that_the_vocabulary_covers_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    characters = sorted({c for text in SENTENCES["Chinese"] for c in text})
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = Vocabulary((*special, *characters))
    (tmp_path / "vocab.txt").write_bytes(vocabulary.to_bytes())
    save(tmp_path, random_model(config=toy_config(vocab_size=vocabulary.size)), files={})
    found = shown(tmp_path, capsys)
    assert list(found["probes"]) == ["Chinese"]
    assert found["probes"]["Chinese"]["num_tokens"] == sum(map(len, SENTENCES["Chinese"]))


def test_a_vocabulary_padded_beyond_the_tokenizer_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = toy_tokenizer().vocabulary.size
    folder = model_folder(tmp_path, random_model(config=toy_config(vocab_size=size + 5)))
    assert shown(folder, capsys)["tokenizer"]["rows of the model without a token"] == 5


def test_a_tokenizer_that_does_not_fit_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = toy_tokenizer().vocabulary.size
    folder = model_folder(tmp_path, random_model(config=toy_config(vocab_size=size - 5, pad_token_id=3)))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", encoding="utf-8")
    remarks = " ".join(shown(folder, capsys)["remarks"])
    assert f"the tokenizer has {size} tokens and the model {size - 5}" in remarks
    assert "[PAD] has id 0 in the tokenizer, pad_token_id is 3" in remarks
    assert "tokenizer.json and vocab.txt differ: id 1 is '[unused0]' and '[UNK]'" in remarks


@pytest.mark.parametrize(("do_lower_case", "extra", "said"), [(True, "Gold", "case mismatch: 1 entries"), (False, "gold", "no entry has a capital letter, but")])  # fmt: skip # noqa: E501
def test_a_case_that_does_not_fit_the_vocabulary_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], do_lower_case: bool, extra: str, said: str
) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(t for t in ENGLISH if t != "gold"), extra]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": do_lower_case}), encoding="utf-8")
    save(tmp_path, random_model(config=toy_config(vocab_size=len(tokens))), files={})
    assert said in " ".join(shown(tmp_path, capsys)["remarks"])


def test_a_folder_without_a_tokenizer_or_with_a_broken_one_is_still_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, random_model(), files={})
    assert shown(tmp_path, capsys)["tokenizer"] == {"tokenizer": "none in the folder"}
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
    assert shown(tmp_path, capsys)["tokenizer"]["tokenizer"].startswith("cannot be used: ")


def test_a_classifier_and_an_encoder_without_pooler_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TaskConfig(labels=("a", "b", "c"))
    save(tmp_path / "tokens", build(toy_config(), head="token_classification", task=task), files={})
    found = shown(tmp_path / "tokens", capsys)
    assert found["head"] == "token_classification"
    assert found["labels"] == ["a", "b", "c"]
    run(Config(path=str(tmp_path / "tokens")))
    assert "3: a, b, c" in capsys.readouterr().out
    assert found["parameters"]["classifier"] == 3 * 33
    assert "there is no masked-LM head, so none was tried" in found["remarks"]
    tensors = load_file(tmp_path / "tokens" / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    save_file(tensors, tmp_path / "tokens" / "model.safetensors")
    found = shown(tmp_path / "tokens", capsys)
    assert found["head"] == "none (an encoder alone)"
    assert found["tensors"]["encoder.pooler.weight"] == "newly made"
    assert any("new at random here: encoder.pooler" in line for line in found["remarks"])


def test_two_vocabularies_of_different_lengths_and_one_cut_short_are_remarked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = toy_tokenizer().vocabulary.size
    folder = model_folder(tmp_path / "model", random_model(config=toy_config(vocab_size=size + 128)))
    kept = (folder / "vocab.txt").read_text("utf-8").split("\n")[: size - 3]
    (folder / "vocab.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
    remarks = shown(folder, capsys)["remarks"]
    assert f"tokenizer.json has {size:,} tokens and vocab.txt {size - 3:,}" in remarks
    assert any(f"for {size + 128:,} tokens, its vocabulary has {size:,}: is it cut short?" in line for line in remarks)


def test_a_pickle_is_opened_by_its_flag_alone(learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path, random_model())
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert main(["inspect", "model", str(folder)]) == 2
    assert "--allow_bin" in capsys.readouterr().err
    assert main(["inspect", "model", str(folder), "--allow_bin"]) == 0
    assert "pretraining" in capsys.readouterr().out


def test_a_link_in_place_of_the_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", random_model())
    (folder / "vocab.txt").rename(tmp_path / "vocab.txt")
    (folder / "vocab.txt").symlink_to(tmp_path / "vocab.txt")
    with pytest.raises(InputError, match=r"vocab\.txt: is a symbolic link"):
        inspect_model.inspect_model(folder)
