"""Vectors of texts: those of transformers, whatever the batch and the padding; windows; files that others read."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import toy_model as toy
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import InputError
from bertkit.model.task_config import Combine
from bertkit.pipelines.embedding import Embedder, EmbeddingSettings, Pooling
from bertkit.pipelines.fill_mask import FillMask
from bertkit.pipelines.next_sentence import NextSentence
from bertkit.pipelines.vector_files import vector_file
from bertkit.pipelines.windows import windows_of

MODEL, TOKENIZER = toy.random_model(), toy.toy_tokenizer()
LONG = "".join(toy.TEXTS[:4]) * 4  # 204 tokens


def embedder(**changes: object) -> Embedder:
    return Embedder(MODEL, tokenizer=TOKENIZER, settings=EmbeddingSettings(**changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.model_folder(tmp_path_factory.mktemp("model"), MODEL)


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean", "max", "none"])
def test_the_vectors_are_those_of_transformers(folder: Path, pooling: Pooling) -> None:
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = Embedder(folder, settings=EmbeddingSettings(pooling=pooling))
    for text in toy.TEXTS:
        with torch.no_grad():
            output = theirs(**tokenizer(text, return_tensors="pt"))
        states = output.last_hidden_state[0]
        expected = {
            "cls": states[0],
            "pooler": output.pooler_output[0],
            "mean": states.mean(0),
            "max": states.amax(0),
            "none": states,
        }[pooling]
        np.testing.assert_allclose(ours(text), expected.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("combine", ["last", "concat", "sum", "mean", "weighted"])
def test_layers_are_combined_before_they_are_pooled(folder: Path, combine: Combine) -> None:
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    ids = torch.from_numpy(next(iter(embedder().embed([toy.DAY]))).input_ids)[None]
    with torch.no_grad():
        states = theirs(ids, output_hidden_states=True).hidden_states
    last, first = states[2][0].mean(0).numpy(), states[0][0].mean(0).numpy()
    expected = {
        "last": last,
        "concat": np.concatenate([last, first]),
        "sum": last + first,
        "mean": (last + first) / 2,
        "weighted": 0.75 * last + 0.25 * first,
    }[combine]
    weights = (3.0, 1.0) if combine == "weighted" else None
    ours = embedder(layers=(-1, 0), combine=combine, layer_weights=weights)
    np.testing.assert_allclose(ours(toy.DAY), expected, rtol=0, atol=2e-5)
    assert ours.width == len(expected)


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean", "max", "none"])
def test_a_vector_does_not_depend_on_its_batch(pooling: Pooling) -> None:
    ours = embedder(pooling=pooling)
    texts = [text[: 1 + number % 9] for number, text in enumerate(toy.TEXTS * 8)]
    for text, embedding in zip(texts, ours.embed(texts), strict=True):
        np.testing.assert_allclose(embedding.vectors, ours(text), rtol=0, atol=1e-5)


def test_a_pair_has_two_segments() -> None:
    ours = embedder(pooling="pooler")
    ids, types = windows_of((toy.RIVER, toy.DAY), TOKENIZER, what="", length=64, how="cut")[0].input_ids, None
    types = torch.tensor([[0] * 14 + [1] * 15])
    with torch.no_grad():
        expected = MODEL(torch.from_numpy(ids)[None], token_type_ids=types).pooler_output[0]
    np.testing.assert_allclose(ours((toy.RIVER, toy.DAY)), expected.numpy(), rtol=0, atol=1e-5)


# ---- long texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["cls", "mean", "none"])
def test_a_cut_text_is_its_beginning(pooling: Pooling) -> None:
    ours = embedder(pooling=pooling, max_seq_length=20)
    [cut] = ours.embed([LONG])
    [whole] = ours.embed([LONG[:18]])
    assert cut.cut
    assert not whole.cut
    np.testing.assert_allclose(cut.vectors, whole.vectors, rtol=0, atol=1e-6)


@given(number=st.integers(1, 400), length=st.integers(4, 64))
@settings(deadline=None)
def test_windows_own_every_token_once(number: int, length: int) -> None:
    text = (LONG * 2)[:number]
    windows = windows_of(text, TOKENIZER, what="", length=length, how="windows")
    own = np.concatenate([window.input_ids[window.own_start : window.own_end] for window in windows])
    expected = TOKENIZER.encode_plain([text])[0]
    vocabulary = TOKENIZER.vocabulary
    assert own.tolist() == [vocabulary.cls_id, *expected.tolist(), vocabulary.sep_id]
    assert all(len(window.input_ids) <= length and window.own_start < window.own_end for window in windows)
    assert [window.is_last for window in windows] == [False] * (len(windows) - 1) + [True]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "none"])
def test_windows_of_a_text_that_fits_are_the_text(pooling: Pooling) -> None:
    one, other = (embedder(pooling=pooling, long_texts=how)(toy.DAY) for how in ("cut", "windows"))
    np.testing.assert_array_equal(one, other)


def test_windows_pool_over_every_token() -> None:
    tokens = embedder(pooling="none", long_texts="windows", max_seq_length=20)(LONG)
    assert len(tokens) == len(LONG) + 2
    for pooling, expected in (("mean", tokens.mean(0)), ("max", tokens.max(0))):
        found = embedder(pooling=pooling, long_texts="windows", max_seq_length=20)(LONG)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_pair_is_cut_at_its_longer_side() -> None:
    [window] = windows_of((LONG, toy.DAY), TOKENIZER, what="", length=40, how="cut")
    assert window.cut
    assert np.bincount(window.token_type_ids).tolist() == [40 - 15, 15]
    with pytest.raises(InputError, match="text 3: is a pair of more than 40 tokens, and a pair has no windows"):
        windows_of((LONG, toy.DAY), TOKENIZER, what="text 3", length=40, how="windows")


@given(length=st.integers(0, 300), word=st.sampled_from(["a", "e\u0301", "君", " late ", "un", "b" * 101 + " "]))
@settings(deadline=None)
def test_the_first_tokens_are_those_of_the_whole_text(length: int, word: str) -> None:
    text = word * length + "gold 君" * 3000
    [window] = windows_of(text, TOKENIZER, what="", length=64, how="cut")
    assert window.input_ids[1:-1].tolist() == TOKENIZER.encode_plain([text])[0][:62].tolist()


# ---- files -----------------------------------------------------------------------------------------------------------


def written(path: Path, ours: Embedder, layers: list[int | str]) -> list[np.ndarray]:
    tokens = ours.settings.pooling == "none"
    found = list(ours.embed(toy.TEXTS))
    with vector_file(path, width=ours.width, tokens=tokens, layers=layers, vocabulary=TOKENIZER.vocabulary) as write:
        for embedding in found:
            write(embedding)
    return [embedding.vectors for embedding in found]


def test_npz_holds_a_vector_a_text(tmp_path: Path) -> None:
    expected = written(tmp_path / "v.npz", embedder(), [-1])
    with np.load(tmp_path / "v.npz") as arrays:
        np.testing.assert_array_equal(arrays["vectors"], np.stack(expected))
        assert arrays["vectors"].dtype == np.float32
        assert arrays["cut"].tolist() == [False] * 6
        assert set(arrays) == {"vectors", "cut"}


def test_npz_holds_the_vectors_of_tokens_with_offsets(tmp_path: Path) -> None:
    expected = written(tmp_path / "v.npz", embedder(pooling="none"), [-1])
    with np.load(tmp_path / "v.npz") as arrays:
        offsets = arrays["offsets"]
        for number, vectors in enumerate(expected):
            np.testing.assert_array_equal(arrays["vectors"][offsets[number] : offsets[number + 1]], vectors)
        assert arrays["input_ids"][offsets[0] : offsets[1]].tolist()[1:-1] == TOKENIZER.encode(toy.RIVER).ids.tolist()


def test_jsonl_of_tokens_is_googles_layout(tmp_path: Path) -> None:
    expected = written(tmp_path / "v.jsonl", embedder(pooling="none", layers=(-1, -2), combine="concat"), [-1, -2])
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["linex_index"] for row in rows] == list(range(6))
    first = rows[0]["features"]
    assert [feature["token"] for feature in first] == ["[CLS]", *toy.RIVER, "[SEP]"]
    assert [layer["index"] for layer in first[0]["layers"]] == [-1, -2]
    np.testing.assert_allclose(first[1]["layers"][1]["values"], expected[0][1, 32:], rtol=0, atol=1e-6)


def test_jsonl_and_parquet_hold_the_same_vectors(tmp_path: Path) -> None:
    expected = written(tmp_path / "v.jsonl", embedder(), [-1])
    written(tmp_path / "v.parquet", embedder(), [-1])
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").splitlines()]
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["index"].to_pylist() == [row["index"] for row in rows] == list(range(6))
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), np.stack(expected))
    np.testing.assert_allclose([row["vector"] for row in rows], np.stack(expected), rtol=0, atol=1e-6)


def test_parquet_of_tokens_nests_them(tmp_path: Path) -> None:
    expected = written(tmp_path / "v.parquet", embedder(pooling="none"), [-1])
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["tokens"].to_pylist()[1] == ["[CLS]", *toy.DAY, "[SEP]"]
    for found, vectors in zip(table["vectors"].to_pylist(), expected, strict=True):
        np.testing.assert_array_equal(np.array(found, np.float32), vectors)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"--output_file: says no format by its name\n.*\n.*\.npz, \.jsonl or \.parquet"
    ):
        written(tmp_path / "v.csv", embedder(), [-1])


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": (3,)}, "layers: is no layer of the model"),
        ({"pooling": "sum"}, "--pooling: is no way to pool\n  value: 'sum'"),
        ({"pooling": "pooler", "layers": (1,)}, "--pooling: reads the last layer only"),
        ({"layer_weights": (1.0,)}, "--layer_weights: are for --combine weighted"),
        ({"layer_weights": (1.0, 2.0), "combine": "weighted"}, "--layer_weights: do not fit\n.*\n.*1 positive numbers"),
        ({"layer_weights": (-1.0,), "combine": "weighted"}, "--layer_weights: do not fit"),
        ({"max_seq_length": 65}, "--max_seq_length: is out of range\n  value: 65\n  expected: 4 to 64"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        embedder(**changes)


def test_a_pooler_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    folder = toy.model_folder(tmp_path, toy.random_model(head="masked_lm"))
    assert Embedder(folder)(toy.DAY).shape == (32,)
    with pytest.raises(InputError, match="--pooling: needs a pooler, which this model does not have"):
        Embedder(folder, settings=EmbeddingSettings(pooling="pooler"))


def test_a_text_without_a_token_is_refused_by_its_number() -> None:
    with pytest.raises(InputError, match="text 2: holds no token"):
        list(embedder().embed([toy.DAY, "\u200b"]))
    with pytest.raises(InputError, match="text 1, B: holds no token"):
        list(embedder().embed([(toy.DAY, "")]))
    assert [index for index, _ in embedder().problems([toy.DAY, "\u200b", (toy.DAY, "")])] == [1, 2]


@pytest.mark.parametrize("pipeline", [Embedder, FillMask, NextSentence])
def test_a_model_that_is_loaded_already_needs_its_tokenizer(pipeline: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="tokenizer: is needed beside a model that is loaded already"):
        pipeline(toy.random_model())
