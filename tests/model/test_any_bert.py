"""Any BERT in: the same model under other names, cut in shards, padded, pickled, or with another task's head."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model import pickled_weights, weights
from bertkit.model.architectures import Head, build, head_in
from bertkit.model.config import BertConfig, unknown_keys
from bertkit.model.foreign_folder import ForeignFolder, require_plain_tokenizer_files
from bertkit.model.load_report import LoadReport
from bertkit.model.pretrained import head_on_disk, load, load_with_report, model_files, save
from bertkit.model.recognition import NOT_A_BERT, require_bert
from bertkit.model.task_config import TaskConfig, default_labels
from bertkit.model.weights import SafetensorsFiles

CONFIG = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
IDS = torch.tensor([[2, 17, 4, 42, 33, 28, 3]])
WORDS = "bert.embeddings.word_embeddings.weight"
MOODS = TaskConfig(labels=("喜", "怒", "哀"))


def model_of(head: Head | None = "pretraining", *, config: BertConfig = CONFIG, task: TaskConfig | None = None) -> Any:
    torch.manual_seed(0)
    model = build(config, head=head, task=task).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def folder_of(path: Path, head: Head | None = "pretraining", **rest: Any) -> Path:
    save(path, model_of(head, **rest), files={})
    return path


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}), encoding="utf-8")


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")


def renamed(old: str, new: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def rows(matrix: Tensor, number: int) -> Tensor:
    return torch.cat([matrix, torch.full((number, *matrix.shape[1:]), 7.0)])


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        (renamed("LayerNorm.weight", "LayerNorm.gamma"), None),
        (renamed("LayerNorm.bias", "LayerNorm.beta"), None),
        (lambda t: {f"module.{name}": tensor for name, tensor in t.items()}, "begin with 'module.bert.'"),
        (renamed("bert.", "electra."), "begin with 'electra.'"),
        (renamed("bert.", "0.auto_model."), "begin with '0.auto_model.'"),
        (lambda t: {name.removeprefix("bert."): tensor for name, tensor in t.items()}, None),
        (lambda t: t | {"bert.embeddings.position_ids": torch.arange(512)[None]}, None),
        (lambda t: t | {"embeddings.position_ids": torch.arange(512)[None]}, None),
    ],
)
def test_the_same_model_under_other_names_is_the_same_model(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], remark: str | None
) -> None:
    edit_weights(folder_of(tmp_path), change)
    model, report = load_with_report(tmp_path)
    assert_same(model, model_of())
    assert [remark in text for text in report.remarks] == ([] if remark is None else [True])
    assert report.ignored == [name for name in load_file(tmp_path / "model.safetensors") if "position_ids" in name]
    assert len(report.loaded) + len(report.ignored) == len(load_file(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("name", ["ernie", "electra", "my-own", None])
def test_a_bert_that_calls_itself_something_else_is_a_bert_by_its_content(tmp_path: Path, name: str | None) -> None:
    edit_config(folder_of(tmp_path), model_type=... if name is None else name, embedding_size=32, use_task_id=False)
    model, report = load_with_report(tmp_path)
    assert_same(model, model_of())
    assert report.unknown_config_keys == []
    said = "has no model_type" if name is None else f"calls the model {name!r}"
    assert said in report.summary()


@pytest.mark.parametrize("name", sorted(NOT_A_BERT))
def test_what_is_known_not_to_be_one_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InputError, match="is not a BERT encoder") as caught:
        require_bert({"model_type": name}, file="config.json")
    assert NOT_A_BERT[name] in str(caught.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"architectures": ["RobertaForMaskedLM"]}, "positions count from pad_token_id"),
        ({"architectures": ["XLMRobertaModel"]}, "positions count from pad_token_id"),
        ({"max_position_embeddings": 514, "pad_token_id": 1, "type_vocab_size": 1}, "it is a RoBERTa's"),
        ({"model_type": "electra", "embedding_size": 128, "hidden_size": 256}, "another width than its layers"),
        ({"model_type": "ernie", "use_task_id": True}, "a fourth embedding, of the task"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"num_hidden_groups": 1}, "its layers share weights"),
        ({"quantization_config": {"bits": 8}}, "its weights are whole numbers"),
    ],
)
def test_what_computes_something_else_is_refused_whatever_its_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match="is not a BERT encoder") as caught:
        require_bert(values, file="config.json")
    assert reason in str(caught.value)


@pytest.mark.parametrize("prefix", ["roberta.", "module.albert.", "xlm_roberta."])
def test_tensors_of_another_network_are_refused_whatever_config_json_says(tmp_path: Path, prefix: str) -> None:
    edit_weights(folder_of(tmp_path), renamed("bert.", prefix))
    with pytest.raises(InputError, match=rf"holds tensors of a model that is not a BERT encoder \({prefix}…\)"):
        load(tmp_path)


def test_a_second_copy_in_whole_numbers_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_weights(tmp_path, lambda t: t | {"cls.predictions.decoder.weight": t[WORDS].to(torch.int8)})
    with pytest.raises(InputError, match=r"cls\.predictions\.decoder\.weight holds no floating-point numbers"):
        load(tmp_path)


def test_a_model_is_built_for_loading_without_importing_half_of_pytorch() -> None:
    code = (
        "import sys, torch; from bertkit.model.architectures import Unfilled, build\n"
        "from bertkit.model.config import BertConfig\n"
        "before = len(sys.modules)\n"
        "with torch.device('meta'), Unfilled(): build(BertConfig(), head='pretraining')\n"
        "print(len(sys.modules) - before < 100)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


def test_keys_that_every_old_config_json_has_are_known() -> None:
    old = {"output_past": True, "pruned_heads": {}, "torchscript": False, "num_beams": 1, "top_k": 50, "do_sample": 0}
    assert unknown_keys(old | {"mine": 1}) == ["mine"]
    require_bert(old, file="config.json")


@pytest.mark.parametrize(("vocabulary", "padded"), [(60, 64), (57, 64), (61, 128)])
@pytest.mark.parametrize("tied", [True, False])
def test_a_vocabulary_padded_to_a_multiple_is_cut_to_the_config_and_said(
    tmp_path: Path, vocabulary: int, padded: int, tied: bool
) -> None:
    config = dataclasses.replace(CONFIG, vocab_size=vocabulary, tie_word_embeddings=tied)
    folder_of(tmp_path, config=config)
    names = [WORDS, "cls.predictions.bias"] + ([] if tied else [f"cls.predictions.decoder.{x}" for x in ("weight", "bias")])  # fmt: skip # noqa: E501
    edit_weights(tmp_path, lambda t: t | {name: rows(t[name], padded - vocabulary) for name in names})
    model, report = load_with_report(tmp_path)
    assert_same(model, model_of(config=config))
    if not tied:
        assert report.tied == ["cls.predictions.bias"]
        names.remove("cls.predictions.bias")
    assert report.resized == sorted(names)
    assert f"cut to the vocabulary: {', '.join(sorted(names))}" in report.summary()
    assert {report.fates()[name] for name in names} == {"resized"}
    assert not set(report.loaded) & set(names)


def test_a_padded_copy_of_tied_weights_is_one_too(tmp_path: Path) -> None:
    folder_of(tmp_path)
    names = [WORDS, "cls.predictions.decoder.weight"]
    edit_weights(tmp_path, lambda t: t | {name: rows(t[WORDS], 4) for name in names})
    model, report = load_with_report(tmp_path)
    assert_same(model, model_of())
    assert (report.tied, report.resized) == ([names[1]], [WORDS])


def test_rows_that_pad_nothing_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_weights(tmp_path, lambda t: t | {WORDS: rows(t[WORDS], 5)})
    with pytest.raises(InputError, match=r"has shape \(65, 32\)"):
        load(tmp_path)


def sharded(folder: Path, *, number: int = 3) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, table = sorted(tensors), {}
    for n in range(number):
        shard = f"model-{n + 1:05d}-of-{number:05d}.safetensors"
        save_file({name: tensors[name] for name in names[n::number]}, folder / shard)
        table |= dict.fromkeys(names[n::number], shard)
    index = {"metadata": {"total_size": 1}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def test_a_model_in_shards_is_the_same_model(tmp_path: Path) -> None:
    sharded(folder_of(tmp_path))
    model, report = load_with_report(tmp_path)
    assert_same(model, model_of())
    assert model_files(model) == model_files(model_of())
    assert report.ignored == report.newly_made == []


@pytest.mark.parametrize("old", [False, True], ids=["zip", "older than zip"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_pickle_asked_for_is_the_same_model(tmp_path: Path, tied: bool, old: bool) -> None:
    config = dataclasses.replace(CONFIG, tie_word_embeddings=tied)
    tensors = load_file(folder_of(tmp_path, config=config) / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    with pytest.raises(InputError, match=r"(?s)bin: is a pickle, which is not opened.*--allow_bin.*keep it as safet"):
        load(tmp_path)
    assert_same(load(tmp_path, allow_pickle_weights=True), model_of(config=config))


def test_pickled_shards_are_the_same_model_and_the_safe_file_goes_first(tmp_path: Path) -> None:
    tensors = load_file(folder_of(tmp_path) / "model.safetensors")
    names, table = sorted(tensors), {}
    for n in range(2):
        shard = f"pytorch_model-{n + 1:05d}-of-00002.bin"
        torch.save({name: tensors[name] + 1 for name in names[n::2]}, tmp_path / shard)
        table |= dict.fromkeys(names[n::2], shard)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}), encoding="utf-8")
    assert_same(load(tmp_path, allow_pickle_weights=True), model_of())
    (tmp_path / "model.safetensors").unlink()
    model = load(tmp_path, allow_pickle_weights=True)
    assert torch.equal(model.encoder.layers[0].output.bias, model_of().encoder.layers[0].output.bias + 1)
    torch.save({names[0]: tensors[names[0]]}, tmp_path / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(InputError, match=f"{names[0]} stands in another shard too"):
        load(tmp_path, allow_pickle_weights=True)
    torch.save({}, tmp_path / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(InputError, match=r"does not hold .*, as the index says"):
        load(tmp_path, allow_pickle_weights=True)


@pytest.mark.parametrize(("version", "old"), [("2.9.1+cpu", True), ("1.13.0", True), ("2.10.0", False), ("3.0", False)])
def test_a_pickle_is_not_opened_by_a_pytorch_with_known_holes(
    monkeypatch: pytest.MonkeyPatch, version: str, old: bool
) -> None:
    monkeypatch.setattr(pickled_weights.torch, "__version__", version)
    if old:
        with pytest.raises(
            InputError, match=f"torch: is too old.*\n  value: '{version[:3]}.*\n  expected: 2.10 or new"
        ):
            pickled_weights.require_safe_torch()
    else:
        pickled_weights.require_safe_torch()


def test_weights_that_shared_memory_in_a_pickle_do_not_share_it_here(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, tie_word_embeddings=False)
    tensors = load_file(folder_of(tmp_path, config=config) / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    tensors["cls.predictions.decoder.weight"] = tensors[WORDS]
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    model = load(tmp_path, allow_pickle_weights=True)
    assert model.mlm_head.decoder.data_ptr() != model.encoder.embeddings.word_embeddings.weight.data_ptr()
    assert torch.equal(model.mlm_head.decoder, model.encoder.embeddings.word_embeddings.weight)


def test_a_file_cut_while_it_is_read_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    with ForeignFolder(folder_of(tmp_path)) as folder:
        found = SafetensorsFiles(folder, ["model.safetensors"])
        os.truncate(tmp_path / "model.safetensors", 30_000)
        with pytest.raises(InputError, match=r"it ends inside bert\.embeddings\.position"):
            found.read("bert.embeddings.position_embeddings.weight", torch.empty(512, 32))


def test_a_model_larger_than_the_memory_is_refused_before_any_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path)
    monkeypatch.setattr("bertkit.model.loading_checks.os.sysconf", lambda name: 1 if name == "SC_PHYS_PAGES" else 4096)
    monkeypatch.setattr(weights.SafetensorsFiles, "read", None)  # not a tensor is read
    with pytest.raises(InputError, match=r"is a model of 151,288 bytes\n  expected: at most 4,096, the memory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("head", "values", "expected"),
    [
        ("sequence_classification", {}, "sequence_classification"),
        ("token_classification", {}, "token_classification"),
        ("multiple_choice", {}, "multiple_choice"),
        ("question_answering", {}, "question_answering"),
        ("masked_lm", {}, "masked_lm"),
        ("next_sentence", {}, "next_sentence"),
        ("pretraining", {}, "pretraining"),
        (None, {}, None),
        ("token_classification", {"architectures": ["SomethingElse"]}, "sequence_classification"),
    ],
)
def test_the_head_of_a_folder_is_known(
    tmp_path: Path, head: Head | None, values: dict[str, Any], expected: Head | None
) -> None:
    edit_config(folder_of(tmp_path, head), **values)
    assert head_on_disk(tmp_path) == expected


def test_a_head_of_fine_tuning_that_the_file_lacks_is_made_only_if_allowed(tmp_path: Path) -> None:
    folder_of(tmp_path)
    with pytest.raises(InputError, match=r"has no classifier for this task\n.*'token_classification' needs: classif"):
        load(tmp_path, head="token_classification")
    model, report = load_with_report(tmp_path, head="token_classification", allow_new_head=True, task=MOODS)
    assert report.newly_made == ["classifier.bias", "classifier.weight"]
    assert model.task == MOODS
    assert model.classifier.weight.shape == (3, 32)
    assert {name for name in report.ignored if not name.startswith(("cls.", "bert.pooler."))} == set()
    assert_same(model.encoder.layers, model_of().encoder.layers)
    with pytest.raises(InputError, match=r"has no head for answers in a text\n.*needs: qa_outputs\.weight"):
        load(tmp_path, head="question_answering")


def test_a_classifier_of_another_task_is_not_taken_for_this_one(tmp_path: Path) -> None:
    folder_of(tmp_path, "sequence_classification", task=MOODS)
    with pytest.raises(InputError, match=r"that of a BertForSequenceClassification\)\n"):
        load(tmp_path, head="token_classification")
    model, report = load_with_report(tmp_path, head="multiple_choice", allow_new_head=True)
    assert report.newly_made == ["classifier.bias", "classifier.weight"]
    assert report.ignored == ["classifier.bias", "classifier.weight"]
    assert "that of a BertForSequenceClassification" in report.summary()
    assert model.classifier.weight.shape == (1, 32)


@pytest.mark.parametrize("labels", [("喜", "怒"), ("喜", "哀", "怒"), ("a", "b", "c", "d")])
def test_a_classifier_with_other_labels_is_one_that_the_file_lacks(tmp_path: Path, labels: tuple[str, ...]) -> None:
    folder_of(tmp_path, "sequence_classification", task=MOODS)
    task = TaskConfig(labels=labels)
    with pytest.raises(InputError, match=r"the file's classifier has other labels \(3: 喜, 怒, 哀\)"):
        load(tmp_path, head="sequence_classification", task=task)
    model, report = load_with_report(tmp_path, head="sequence_classification", task=task, allow_new_head=True)
    assert report.newly_made == ["classifier.bias", "classifier.weight"]
    assert model.task.labels == labels


def test_a_classifier_of_another_problem_is_one_that_the_file_lacks(tmp_path: Path) -> None:
    folder_of(tmp_path, "sequence_classification", task=dataclasses.replace(MOODS, problem_type="regression"))
    with pytest.raises(InputError, match="the file's classifier is for regression"):
        load(tmp_path, head="sequence_classification", task=MOODS)
    edit_config(tmp_path, problem_type=None)  # as Hugging Face's files may have it: of three labels nothing is known
    assert load(tmp_path, head="sequence_classification", task=MOODS).task == MOODS


def test_one_label_without_a_problem_is_a_regression(tmp_path: Path) -> None:
    one = TaskConfig(labels=("a",), problem_type="regression")
    edit_config(folder_of(tmp_path, "sequence_classification", task=one), problem_type=None)
    assert load(tmp_path, head="sequence_classification", task=one).task == one
    several = dataclasses.replace(one, problem_type="multi_label_classification")
    with pytest.raises(InputError, match="the file's classifier is for regression"):
        load(tmp_path, head="sequence_classification", task=several)


def test_the_classifier_of_a_file_is_loaded_with_what_config_json_says_of_it(tmp_path: Path) -> None:
    task = dataclasses.replace(MOODS, problem_type="multi_label_classification", classifier_dropout=0.4)
    expected = model_of("sequence_classification", task=task)
    save(tmp_path, expected, files={})
    model, report = load_with_report(tmp_path, head="sequence_classification")
    assert model.task == task
    assert_same(model, expected)
    assert set(report.fates().values()) == {"loaded"}
    again = load(tmp_path, head="sequence_classification", task=dataclasses.replace(task, classifier_dropout=0.0))
    assert again.dropout.p == 0.0
    assert_same(again, expected)


def test_labels_without_a_name_are_named_by_number_and_fit_any(tmp_path: Path) -> None:
    folder_of(tmp_path, "sequence_classification", task=TaskConfig(labels=default_labels(3)))
    edit_config(tmp_path, id2label={"0": "LABEL_0", "1": "LABEL_1"}, num_labels=3)
    assert load(tmp_path, head="sequence_classification").task.labels == default_labels(3)
    assert load(tmp_path, head="sequence_classification", task=MOODS).task.labels == MOODS.labels


def test_a_choice_is_not_scored_by_a_classifier_of_unknown_kind_with_several_rows(tmp_path: Path) -> None:
    edit_config(folder_of(tmp_path, "sequence_classification", task=MOODS), architectures=None)
    with pytest.raises(InputError, match="the file's classifier has 3 scores a text, not one"):
        load(tmp_path, head="multiple_choice")


def test_every_tensor_has_one_fate() -> None:
    report = LoadReport(loaded=["a"], tied=["b"], resized=["c"], newly_made=["d"], ignored=["e"], remarks=["Said."])
    assert report.fates() == {"a": "loaded", "b": "tied", "c": "resized", "d": "newly made", "e": "ignored"}
    assert report.summary().endswith("ignored: e; Said.")


def test_the_heads_names_tell_the_head() -> None:
    assert head_in(["cls.predictions.bias"], {}) == "masked_lm"
    assert head_in([], {}) is None


def test_files_of_a_tokenizer_must_be_plain_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    require_plain_tokenizer_files(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match=r"tokenizer\.json: is a symbolic link"):
        require_plain_tokenizer_files(tmp_path / "model")


def test_no_other_file_of_a_folder_can_be_asked_for(tmp_path: Path) -> None:
    with ForeignFolder(folder_of(tmp_path)) as folder:
        for name in ("../config.json", "/etc/passwd", "README.md", "model-1-of-2.safetensors", ""):
            with pytest.raises(InputError, match="is no file of a model folder"):
                folder.open(name, what="", remedy="")


def test_opening_a_folder_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    folder_of(tmp_path)
    before = sorted(os.listdir("/proc/self/fd"))
    load(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError):
        load(tmp_path)
    assert sorted(os.listdir("/proc/self/fd")) == before
