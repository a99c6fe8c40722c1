"""Loading and saving: what comes back, what the report says, and every folder that is refused."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import (
    ARCHITECTURES,
    Head,
    LoadReport,
    build,
    head_of,
    load,
    load_with_report,
    model_files,
    save,
)

CONFIG = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
UNTIED = dataclasses.replace(CONFIG, tie_word_embeddings=False)
INPUT_IDS = torch.tensor([[2, 17, 4, 42, 33, 28, 3]])  # [CLS] 窗 [MASK] 明 月 光 [SEP]
HEADS: list[Head | None] = ["pretraining", "masked_lm", "next_sentence", None]
DECODER, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
WORDS = "bert.embeddings.word_embeddings.weight"


def model_of(head: Head | None = "pretraining", *, config: BertConfig = CONFIG) -> Encoder | PretrainingModel:
    """A seeded model in eval mode, biases and LayerNorms at random too."""
    torch.manual_seed(0)
    model = build(config, head=head).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def folder_of(path: Path, head: Head | None = "pretraining", *, config: BertConfig = CONFIG) -> Path:
    """The folder `path`, in which such a model was saved."""
    save(path, model_of(head, config=config), files={})
    return path


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | changes), encoding="utf-8")


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def assert_same_state(one: torch.nn.Module, other: torch.nn.Module) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
        assert tensor.dtype == other.state_dict()[name].dtype, name


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("config", [CONFIG, UNTIED], ids=["tied", "untied"])
def test_a_saved_model_comes_back_bit_by_bit(tmp_path: Path, head: Head | None, config: BertConfig) -> None:
    model = model_of(head, config=config)
    save(tmp_path, model, files={})
    loaded, report = load_with_report(tmp_path, head=head)
    assert_same_state(model, loaded)
    assert loaded.config == config
    assert head_of(loaded) == head
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert report.newly_made == report.ignored == report.unknown_config_keys == []
    assert set(report.loaded) | set(report.tied) == load_file(tmp_path / "model.safetensors").keys()


@pytest.mark.parametrize("head", HEADS)
def test_config_json_names_the_class_that_opens_the_folder(tmp_path: Path, head: Head | None) -> None:
    values = json.loads((folder_of(tmp_path, head) / "config.json").read_text(encoding="utf-8"))
    assert values["architectures"] == [ARCHITECTURES[head]]
    assert values["dtype"] == "float32"
    assert list(values) == sorted(values)


def test_saving_is_deterministic_to_the_byte() -> None:
    first, second = model_files(model_of()), model_files(model_of())
    assert first == second
    assert set(first) == {"config.json", "model.safetensors"}


def test_saving_loading_and_saving_again_gives_the_same_bytes(tmp_path: Path) -> None:
    assert model_files(load(folder_of(tmp_path))) == model_files(model_of())


def test_other_files_are_saved_beside_the_model_as_they_are(tmp_path: Path) -> None:
    save(tmp_path / "model", model_of(), files={"vocab.txt": "[PAD]\n窗\n".encode()})
    assert (tmp_path / "model" / "vocab.txt").read_bytes() == "[PAD]\n窗\n".encode()
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]


def test_tied_weights_are_stored_once_and_still_shared_after_loading(tmp_path: Path) -> None:
    names = load_file(folder_of(tmp_path) / "model.safetensors").keys()
    assert WORDS in names
    assert not {DECODER, DECODER_BIAS} & names
    model = load(tmp_path)
    before = model(INPUT_IDS).mlm_logits
    with torch.no_grad():
        model.encoder.embeddings.word_embeddings.weight[50] += 1.0  # type: ignore[union-attr]
    changed = (model(INPUT_IDS).mlm_logits != before).any(dim=1)[0].nonzero().flatten().tolist()
    assert changed == [50]


def test_a_second_copy_of_tied_weights_on_disk_is_said_and_not_loaded_twice(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_weights(
        tmp_path, lambda t: t.update({DECODER: t[WORDS].clone(), DECODER_BIAS: t["cls.predictions.bias"].clone()})
    )
    model, report = load_with_report(tmp_path)
    assert_same_state(model, model_of())
    assert report.tied == [DECODER_BIAS, DECODER]
    assert "tied: cls.predictions.decoder.bias, cls.predictions.decoder.weight" in report.summary()


@pytest.mark.parametrize(("name", "source"), [(DECODER, WORDS), (DECODER_BIAS, "cls.predictions.bias")])
def test_a_decoder_apart_from_the_embeddings_is_refused_where_the_config_ties_them(
    tmp_path: Path, name: str, source: str
) -> None:
    folder_of(tmp_path)
    edit_weights(tmp_path, lambda tensors: tensors.update({name: tensors[source] + 1}))
    with pytest.raises(InputError, match=f"(?s){name} differs.*set tie_word_embeddings to false in config.json"):
        load(tmp_path)
    assert isinstance(load(tmp_path, head=None), Encoder)  # which has no decoder to be in doubt about


def test_a_pretraining_folder_opens_as_each_of_its_parts(tmp_path: Path) -> None:
    folder_of(tmp_path)
    whole = load(tmp_path)(INPUT_IDS)
    masked_lm, report = load_with_report(tmp_path, head="masked_lm")
    assert torch.equal(masked_lm(INPUT_IDS).mlm_logits, whole.mlm_logits)
    assert [name for name in report.ignored if "pooler" in name or "seq_relationship" in name] == report.ignored
    assert len(report.ignored) == 4
    assert torch.equal(load(tmp_path, head="next_sentence")(INPUT_IDS).nsp_logits, whole.nsp_logits)
    assert torch.equal(load(tmp_path, head=None)(INPUT_IDS).pooler_output, whole.pooler_output)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision_are_loaded_as_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    model = model_of()
    save(tmp_path, model.to(dtype), files={})
    assert load_file(tmp_path / "model.safetensors")[WORDS].dtype == dtype
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["dtype"] == str(dtype).split(".")[1]
    assert_same_state(load(tmp_path), model.float())


def test_a_loaded_model_does_not_change_with_its_file(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path))
    path = tmp_path / "model.safetensors"
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(b"\0" * size)
        file.truncate(0)
    assert_same_state(model, model_of())


@pytest.mark.parametrize("config", [CONFIG, UNTIED], ids=["tied", "untied"])
def test_new_heads_on_an_encoder_are_said_and_initialised(tmp_path: Path, config: BertConfig) -> None:
    folder_of(tmp_path, None, config=config)
    torch.manual_seed(1)
    model, report = load_with_report(tmp_path, allow_new_head=True)
    assert isinstance(model, PretrainingModel)
    assert report.newly_made == sorted(name for name, _ in model.named_parameters() if "_head." in name)
    assert f"newly made: {report.newly_made[0]}" in report.summary()
    expected = model_of(None, config=config)
    assert_same_state(model.encoder, expected)
    assert not any(name.startswith("bert.") for name in report.loaded)
    for name in report.newly_made:
        tensor = model.state_dict()[name]
        if name.endswith("bias"):
            assert bool((tensor == 0).all()), name
        elif name.endswith("layer_norm.weight"):
            assert bool((tensor == 1).all()), name
        else:
            assert tensor.std().item() == pytest.approx(config.initializer_range, rel=0.3), name
    output = model(INPUT_IDS, mlm_labels=INPUT_IDS, next_sentence_label=torch.tensor([1]))
    output.loss.backward()
    assert bool(output.loss.isfinite())
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_new_heads_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    folder_of(tmp_path, None)
    models = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        models.append(load(tmp_path, allow_new_head=True))
    assert_same_state(models[0], models[1])
    assert not torch.equal(models[0].state_dict()["nsp_head.weight"], models[2].state_dict()["nsp_head.weight"])


def test_a_head_found_in_part_keeps_what_was_found(tmp_path: Path) -> None:
    folder_of(tmp_path, config=UNTIED)
    edit_weights(tmp_path, lambda tensors: tensors.pop(DECODER))
    model, report = load_with_report(tmp_path, allow_new_head=True)
    assert report.newly_made == ["mlm_head.decoder"]
    found, expected = model.state_dict(), model_of(config=UNTIED).state_dict()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == ["mlm_head.decoder"]
    assert bool((found["mlm_head.decoder"] != 0).any())


def test_a_new_pooler_is_made_only_if_allowed(tmp_path: Path) -> None:
    folder_of(tmp_path, "masked_lm")
    with pytest.raises(InputError, match=r"has no pooler\n.*bert\.pooler\.dense\.weight"):
        load(tmp_path, head=None)
    _, report = load_with_report(tmp_path, head=None, allow_new_head=True)
    assert report.newly_made == ["encoder.pooler.bias", "encoder.pooler.weight"]


def test_a_checkpoint_without_heads_is_refused_with_the_names_it_lacks(tmp_path: Path) -> None:
    folder_of(tmp_path, None)
    with pytest.raises(
        InputError, match=r"model\.safetensors: has no masked-LM head \(MLM head\), next-sentence"
    ) as caught:
        load(tmp_path)
    assert "what head='pretraining' needs: cls." in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert "use a pre-trained checkpoint with this head" in str(caught.value)


@pytest.mark.parametrize("allow_new_head", [False, True])
def test_a_missing_tensor_of_the_encoder_is_refused_by_its_name_in_the_file(
    tmp_path: Path, allow_new_head: bool
) -> None:
    folder_of(tmp_path)
    edit_weights(tmp_path, lambda tensors: tensors.pop("bert.encoder.layer.1.attention.self.key.bias"))
    with pytest.raises(InputError, match=r"lacks bert\.encoder\.layer\.1\.attention\.self\.key\.bias\n") as caught:
        load(tmp_path, allow_new_head=allow_new_head)
    assert "an encoder with 2 layers, as config.json says" in str(caught.value)


def test_a_file_with_fewer_layers_than_the_config_says_is_refused_briefly(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_config(tmp_path, num_hidden_layers=24)
    with pytest.raises(InputError, match=r"(?s)lacks bert\.encoder\.layer\.2\..* and 347 more.*24 layers"):
        load(tmp_path)


def test_a_file_with_more_layers_than_the_config_says_lists_what_it_ignores(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_config(tmp_path, num_hidden_layers=1)
    _, report = load_with_report(tmp_path)
    assert len(report.ignored) == 16
    assert all(name.startswith("bert.encoder.layer.1.") for name in report.ignored)
    assert "ignored: bert.encoder.layer.1.attention.output.LayerNorm.bias, " in report.summary()


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        ({"vocab_size": 61}, "bert.embeddings.word_embeddings.weight", r"\(61, 32\)"),
        ({"intermediate_size": 48}, "bert.encoder.layer.0.intermediate.dense.weight", r"\(48, 32\)"),
        ({"max_position_embeddings": 128}, "bert.embeddings.position_embeddings.weight", r"\(128, 32\)"),
    ],
)
def test_a_tensor_of_another_shape_than_the_config_says_is_refused(
    tmp_path: Path, change: dict[str, int], name: str, expected: str
) -> None:
    folder_of(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(InputError, match=f"(?s)safetensors: {name} has shape .*expected: {expected}.*mixes two models"):
        load(tmp_path)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_weights_of_a_training_that_diverged_are_refused(tmp_path: Path, wrong: float) -> None:
    folder_of(tmp_path)
    edit_weights(tmp_path, lambda tensors: tensors["bert.embeddings.LayerNorm.bias"].fill_(wrong))
    with pytest.raises(InputError, match=r"layer_norm\.bias holds NaN or infinity[\s\S]*use an earlier checkpoint"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["seed", "layer"])
def test_a_folder_of_several_runs_is_named_as_one(tmp_path: Path, kind: str) -> None:
    folder_of(tmp_path / f"{kind}-1")
    with pytest.raises(InputError, match=rf"holds several runs: {kind}-1\n[\s\S]*ask one of them, such as .*{kind}-1"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_a_folder_of_an_exported_model_is_named_as_one(tmp_path: Path, name: str) -> None:
    folder_of(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name}: holds an exported model[\s\S]*ask the model that it was made of"):
        load(tmp_path)


@pytest.mark.parametrize("shapes", [[(32, 32), (32, 16), (32, 32)], [(32, 32), (16, 32), (48, 32)]])
def test_a_part_of_the_fused_matrix_with_another_shape_is_refused(
    tmp_path: Path, shapes: list[tuple[int, int]]
) -> None:
    folder_of(tmp_path)
    names = [f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key", "value")]
    changed = {name: torch.zeros(shape) for name, shape in zip(names, shapes, strict=True)}
    edit_weights(tmp_path, lambda tensors: tensors.update(changed))
    with pytest.raises(InputError, match=rf"{names[1]} has shape \({shapes[1][0]}, {shapes[1][1]}\)\n.*\(32, 32\)"):
        load(tmp_path)


def test_keys_of_the_config_that_mean_nothing_here_are_reported(tmp_path: Path) -> None:
    folder_of(tmp_path)
    edit_config(tmp_path, auto_map={"AutoModel": "evil.Model"}, 作者="苏轼")
    assert load_with_report(tmp_path)[1].unknown_config_keys == ["auto_map", "作者"]


def test_a_missing_folder_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="没有: does not exist\n  expected: a folder with config"):
        load(tmp_path / "没有")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="file: is not a model folder"):
        load(tmp_path / "file")


def test_a_folder_without_config_json_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json: does not exist"):
        load(tmp_path)


def test_a_config_that_is_not_json_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "config.json").write_text("{vocab_size: 60}", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json: is not JSON in UTF-8"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not divisible by num_attention_heads 5"),
    ],
)
def test_a_config_that_is_no_berts_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder_of(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(InputError, match=rf"config\.json: .*{message}"):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"(?s)model\.safetensors: does not exist.*the model's weights.*as safetensors"
    ):
        load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 100, 5000, -1])
def test_a_damaged_weights_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = folder_of(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"model\.safetensors: is damaged or no safetensors file \(.+\)\n.*copy the"):
        load(tmp_path)


def test_an_unknown_head_is_refused_with_the_heads_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)head: is no head.*'mlm'.*'pretraining' \| 'masked_lm'.*None"):
        load(folder_of(tmp_path), head="mlm")  # type: ignore[arg-type]


def test_a_report_without_anything_to_say_is_one_count() -> None:
    assert LoadReport(loaded=["a"]).summary() == "1 tensors loaded"


def test_a_failed_save_leaves_the_model_that_stood_there(tmp_path: Path) -> None:
    folder_of(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    unsavable = build(dataclasses.replace(CONFIG, hidden_act=torch.sin), head="pretraining")
    with pytest.raises(InputError, match="cannot be saved"):
        save(tmp_path, unsavable, files={"vocab.txt": b""})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
