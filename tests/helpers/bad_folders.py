"""Model folders that somebody wicked or careless could have made: each with the words of the error it must end in."""

import json
import os
import pickle
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bertkit.model.config import BertConfig
from bertkit.model.pretrained import build, save

LOADS = ""  # what is expected of a folder that loads


@dataclass(frozen=True)
class Case:
    """A folder, how it is opened, and what comes of it."""

    name: str
    folder: str
    expected: str  # words of the InputError, or LOADS
    arguments: dict[str, Any] = field(default_factory=dict)


class Touch:
    """A pickle of this makes a file when it is opened."""

    def __init__(self, path: Path, *, call: str = "system") -> None:
        self.path, self.call = path, call

    def __reduce__(self) -> tuple[Any, ...]:
        if self.call == "system":
            return os.system, (f"touch {self.path}",)
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


def good_folder(path: Path) -> Path:
    """A folder of two layers of width 32 with both heads."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    save(path, build(config, head="pretraining"), files={"vocab.txt": b"[PAD]\n"})
    return path


def safetensors_file(path: Path, header: Any, *, data: bytes = b"", length: int | None = None) -> None:
    """A file with this header (an object, or its bytes), whatever sense it makes."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + data)


def entry(shape: list[int], first: int, last: int, *, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def bad_folders(root: Path, *, secret: Path, marker: Path) -> list[Case]:
    """Make every folder below `root`; `secret` lies outside of them, `marker` is what no code may make."""
    template = good_folder(root / "template")
    cases = []
    groups = (
        config_edits(),
        config_files(secret),
        headers(),
        tensors(),
        shards(secret),
        pickles(marker),
        links(secret),
    )
    for group in groups:
        for name, change, expected, *rest in group:
            folder = root / f"{len(cases):03d}" / "model"
            shutil.copytree(template, folder)
            change(folder)
            cases.append(Case(name, str(folder), expected, rest[0] if rest else {}))
    return cases


Change = tuple[Any, ...]  # name, what is done to a good folder, words of the error, arguments of load


def edited(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")

    return change


def config_edits() -> Iterator[Change]:
    for key, value in (
        *(("vocab_size", 10**12), ("hidden_size", 10**12), ("num_hidden_layers", 10**9), ("num_hidden_layers", 257)),
        *(("max_position_embeddings", 10**12), ("intermediate_size", 10**15), ("type_vocab_size", 10**6)),
    ):
        yield f"{key} {value}", edited(**{key: value}), f"{key}: is out of range"
    for key, value, expected in (
        ("vocab_size", -1, "is not a positive whole number"),
        ("vocab_size", "60", "is not a positive whole number"),
        ("hidden_size", 32.0, "is not a positive whole number"),
        ("num_hidden_layers", True, "is not a positive whole number"),
        ("num_attention_heads", 0, "is not a positive whole number"),
        ("num_attention_heads", 7, "is not divisible"),
        ("hidden_act", "__import__('os').system('true')", "is no activation"),
        ("hidden_act", ["gelu"], "is no activation"),
        ("hidden_dropout_prob", 2, "is not a probability"),
        ("layer_norm_eps", "1e-12", "is not a number of 0 or more"),
        ("pad_token_id", 10**9, "is no id of the vocabulary"),
        ("tie_word_embeddings", "yes", "is neither true nor false"),
        ("model_type", "roberta", "positions count from pad_token_id"),
        ("model_type", "albert", "share one set of weights"),
        ("model_type", "gpt2", "writes text from left to right"),
        ("position_embedding_type", "relative_key", "distances between tokens"),
        ("is_decoder", True, "looks only to the left"),
        ("add_cross_attention", True, "looks at a second text"),
        ("embedding_size", 16, "another width than its layers"),
        ("pruned_heads", {"0": [1]}, "has shape"),
        ("quantization_config", {"bits": 8}, "whole numbers with factors"),
        ("num_hidden_layers", 3, "lacks bert.encoder.layer.2."),
        ("vocab_size", 61, "has shape (60, 32)"),
        ("vocab_size", 2**24, "has shape (60, 32)"),
    ):
        yield f"{key} {value}", edited(**{key: value}), expected
    yield "no shape", lambda f: (f / "config.json").write_text("{}"), "lacks hidden_size"
    yield (
        "labels beyond number",
        edited(num_labels=10**12),
        "is no number of labels",
        {"head": "sequence_classification", "allow_new_head": True},
    )
    yield (
        "code named in auto_map",
        lambda f: (edited(auto_map={"AutoModel": "evil.Model"})(f), (f / "evil.py").write_text("1 / 0")),
        LOADS,
    )
    yield "a key of 100,000 letters", edited(**{"x" * 100_000: 1}), LOADS


def config_files(secret: Path) -> Iterator[Change]:
    def text(content: bytes) -> Callable[[Path], object]:
        return lambda folder: (folder / "config.json").write_bytes(content)

    def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
        return lambda folder: ((folder / "config.json").unlink(), make(folder / "config.json"))

    yield "no config", lambda f: (f / "config.json").unlink(), "config.json: does not exist"
    yield "config is a folder", replaced(Path.mkdir), "is not a file"
    yield "config is a FIFO", replaced(os.mkfifo), "is not a file"
    yield "config is a socket", replaced(_socket), "is not a file"
    yield "config is a link to outside", replaced(lambda p: p.symlink_to(secret)), "is a symbolic link"
    yield "config is a link inside", replaced(lambda p: p.symlink_to("vocab.txt")), "is a symbolic link"
    yield "config is a link to itself", replaced(lambda p: p.symlink_to(p.name)), "is a symbolic link"
    yield "config is a link to a device", replaced(lambda p: p.symlink_to("/dev/zero")), "is a symbolic link"
    yield "config is a link to nothing", replaced(lambda p: p.symlink_to("nowhere")), "is a symbolic link"
    for name, content, expected in (
        ("empty", b"", "is not JSON"),
        ("Latin-1", b'{"a": "\xe9"}', "is not JSON"),
        ("UTF-16", '{"vocab_size": 60}'.encode("utf-16"), "is not JSON"),
        ("an array", b"[1]", "holds no JSON object"),
        ("a number", b"1", "holds no JSON object"),
        ("broken", b'{"vocab_size": 60', "is not JSON"),
        ("deeply nested", b"[" * 100_000, "is not JSON"),
        ("a key twice", b'{"vocab_size": 60, "vocab_size": 61}', "'vocab_size' stands twice"),
        ("a key twice inside", b'{"a": {"b": 1, "b": 2}}', "'b' stands twice"),
        ("NaN", b'{"layer_norm_eps": NaN}', "NaN is no JSON number"),
        ("Infinity", b'{"layer_norm_eps": Infinity}', "Infinity is no JSON number"),
        ("a number of 9,000 digits", b'{"vocab_size": ' + b"9" * 9000 + b"}", "is not JSON"),
        ("2 MB", b'{"a": "' + b"a" * 2 * 2**20 + b'"}', "of at most 1,048,576 bytes"),
    ):
        yield f"config {name}", text(content), expected


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        at = os.open(path.parent, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{at}/{path.name}")  # a path may have 107 bytes there
        os.close(at)


def headers() -> Iterator[Change]:
    def file(header: Any, **rest: Any) -> Callable[[Path], object]:
        return lambda folder: safetensors_file(folder / "model.safetensors", header, **rest)

    def raw(content: bytes) -> Callable[[Path], object]:
        return lambda folder: (folder / "model.safetensors").write_bytes(content)

    twice = b'{"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "a": {}}'
    many = {f"t{n}": entry([0], 0, 0) for n in range(300_000)}
    some = {f"t{n}": entry([0], 0, 0) for n in range(25_000)}
    yield "no weights", lambda f: (f / "model.safetensors").unlink(), "model.safetensors: does not exist"
    yield "weights empty", raw(b""), "it has no header"
    yield "weights of 7 bytes", raw(b"\0" * 7), "it has no header"
    yield "header of 2^63 bytes", file(b"{}", length=2**63), "its header would have"
    yield "header of 2^40 bytes", file(b"{}", length=2**40), "its header would have"
    yield "header longer than the file", file(b"{}", length=4000), "it ends inside its header"
    yield "header is no JSON", file(b"pickle"), "its header is not JSON"
    yield "header is an array", file([]), "its header holds no JSON object"
    yield "header deeply nested", file(b'{"a":' * 100_000), "its header is not JSON"
    yield "header names a tensor twice", file(twice), "'a' stands twice"
    yield "300,000 empty tensors", file(many), "its header would have"
    yield "25,000 empty tensors", file(some), "names 25,000 tensors"
    yield "tensor beyond the file", file({"a": entry([1000], 0, 4000)}, data=b"\0" * 4), "speaks of 4000 bytes"
    yield (
        "overlapping tensors",
        file({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, data=b"\0" * 12),
        "b begins at byte 4, the one before it ends at 8",
    )
    yield "a hole", file({"a": entry([1], 8, 12)}, data=b"\0" * 12), "a begins at byte 8"
    yield "bytes left over", file({"a": entry([1], 0, 4)}, data=b"\0" * 12), "speaks of 4 bytes, 12 follow"
    yield "negative shape", file({"a": entry([-1, -1], 0, 4)}, data=b"\0" * 4), "shape [-1, -1]"
    yield "shape beyond number", file({"a": entry([2**62, 4], 0, 0)}), "has 0 bytes"
    yield "shape of 10^30", file({"a": entry([10**30], 0, 0)}), "a has dtype"
    yield "shape is a text", file({"a": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}), "a has dtype"
    yield "offsets backwards", file({"a": entry([1], 4, 0)}), "has -4 bytes"
    yield "entry without dtype", file({"a": {"shape": [1], "data_offsets": [0, 4]}}), "is not described by dtype"
    yield "entry with a path", file({"a": {**entry([1], 0, 4), "file": "/etc/passwd"}}), "is not described by dtype"
    yield "entry is a number", file({"a": 5}), "is not described by dtype"
    yield "no tensors", file({}), "lacks bert.embeddings.word_embeddings.weight"
    yield "cut short", _cut, "the header speaks of"


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def tensors() -> Iterator[Change]:
    words, norm = "bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm"

    def stored(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            found = load_file(folder / "model.safetensors")
            change(found)
            save_file(found, folder / "model.safetensors")

        return apply

    def sparse(folder: Path, *, rows: int) -> None:
        header = {words: entry([rows, 32], 0, rows * 128)}
        safetensors_file(folder / "model.safetensors", header)
        os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size + rows * 128)

    yield "quantised", stored(lambda t: t.update({words: t[words].to(torch.int8)})), "holds no floating-point numbers"
    yield "8-bit floats", _eight_bits, "holds no floating-point numbers"
    yield "two encoders", stored(lambda t: t.update({f"other.{words}": t[words].clone()})), "holds 2 encoders"
    yield (
        "one tensor under two names",
        stored(lambda t: t.update({f"{norm}.gamma": t[f"{norm}.weight"].clone()})),
        "holds one tensor under two names",
    )
    yield "a tensor too few", stored(lambda t: t.pop(f"{norm}.bias")), "lacks bert.embeddings.LayerNorm.bias"
    yield "a tensor of another shape", stored(lambda t: t.update({words: t[words][:, :16].clone()})), "has shape"
    yield "a vector for a matrix", stored(lambda t: t.update({words: t[words][0].clone()})), "has shape (32,)"
    yield "a scalar for a matrix", stored(lambda t: t.update({words: torch.tensor(1.0)})), "has shape ()"
    yield "a decoder apart", stored(lambda t: t.update({"cls.predictions.decoder.weight": t[words] + 1})), "differs"
    yield "a file of 100 GB", lambda f: sparse(f, rows=800_000_000), "of at most 68,719,476,736 bytes"
    yield "a matrix of 1 GB, and the config of 60 rows", lambda f: sparse(f, rows=8_000_000), "has shape (8000000, 32)"
    yield (
        "another model's head",
        lambda f: None,
        "has no head for answers in a text",
        {"head": "question_answering"},
    )


def _eight_bits(folder: Path) -> None:
    path = folder / "model.safetensors"
    name, content = b"bert.embeddings.LayerNorm.bias", path.read_bytes()
    [length] = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header[name.decode()]["dtype"] = "F8_E4M3"
    safetensors_file(path, header, data=content[8 + length :])


def shards(secret: Path) -> Iterator[Change]:
    def cut(table: Callable[[dict[str, str]], Any]) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            shard = "model-00001-of-00001.safetensors"
            (folder / "model.safetensors").rename(folder / shard)
            names = dict.fromkeys(load_file(folder / shard), shard)
            value = table(names)
            content = value if isinstance(value, bytes) else json.dumps({"weight_map": value}).encode()
            (folder / "model.safetensors.index.json").write_bytes(content)

        return change

    def other(name: str) -> Callable[[Path], object]:
        return cut(lambda names: names | {next(iter(names)): name})

    yield "a whole shard", cut(lambda names: names), LOADS
    yield "shard above the folder", other("../model-00001-of-00002.safetensors"), "is no file of a model folder"
    yield "shard at an absolute path", other("/tmp/model-00001-of-00002.safetensors"), "is no file of a model folder"
    yield "shard in a folder below", other("a/model-00001-of-00002.safetensors"), "is no file of a model folder"
    yield "shard with a NUL", other("\0-of-.safetensors"), "is no file of a model folder"
    yield "shard is the config", other("config.json"), "names what is no shard"
    yield "shard is the secret", other(str(secret)), "names what is no shard"
    yield "shard missing", other("model-00002-of-00002.safetensors"), "does not exist"
    yield "index is a list", cut(lambda names: list(names)), "names no shards"
    yield "index maps to numbers", cut(lambda names: dict.fromkeys(names, 1)), "names no shards"
    yield "index is empty", cut(lambda names: b"{}"), "names no shards"
    yield "index with a key twice", cut(lambda names: b'{"weight_map": {"a": "b", "a": "c"}}'), "'a' stands twice"
    yield (
        "2,000 shards",
        cut(lambda names: {f"t{n}": f"model-{n:05d}-of-02000.safetensors" for n in range(2000)}),
        "names 2000 shards",
    )
    yield "tensor promised and not there", cut(lambda n: n | {"a": "model-00001-of-00001.safetensors"}), "not hold a,"
    yield "tensor in two shards", _two_shards, "stands in model-00001-of-00002.safetensors too"
    yield "shard is a link to outside", _linked_shard(secret), "is a symbolic link"


def _two_shards(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (folder / "model.safetensors").rename(folder / names[0])
    first = next(iter(found))
    save_file({first: found[first]}, folder / names[1])
    table = dict.fromkeys(found, names[0]) | {first: names[1]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def _linked_shard(secret: Path) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model-00001-of-00001.safetensors").symlink_to(secret)
        table = {"a": "model-00001-of-00001.safetensors"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))

    return change


def pickles(marker: Path) -> Iterator[Change]:
    allowed = {"allow_pickle_weights": True}

    def bin_of(make: Callable[[Path, dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            found = load_file(folder / "model.safetensors")
            (folder / "model.safetensors").unlink()
            make(folder / "pytorch_model.bin", found)

        return change

    def saved(value: Any, **rest: Any) -> Callable[[Path], None]:
        return bin_of(lambda path, _: torch.save(value, path, **rest))

    def plain(value: Any, protocol: int) -> Callable[[Path], None]:
        return bin_of(lambda path, _: path.write_bytes(pickle.dumps(value, protocol=protocol)))

    refused = "is damaged, or holds more than tensors"
    words = "bert.embeddings.word_embeddings.weight"
    yield "a pickle", bin_of(lambda path, found: torch.save(found, path)), "is a pickle, which is not opened"
    yield "a pickle asked for", bin_of(lambda path, found: torch.save(found, path)), LOADS, allowed
    yield "an old pickle asked for", bin_of(_old), LOADS, allowed
    yield "a pickle with a command, not asked for", saved({words: Touch(marker)}), "is a pickle, which is not opened"
    yield "a pickle with a command", saved({words: Touch(marker)}), refused, allowed
    yield "an old pickle with a command", saved({words: Touch(marker)}, _use_new_zipfile_serialization=False), refused, allowed  # fmt: skip # noqa: E501
    yield "a pickle with code", saved({words: Touch(marker, call="eval")}), refused, allowed
    for protocol in (0, 2, 4, 5):
        yield f"a bare pickle with a command, {protocol}", plain(Touch(marker), protocol), refused, allowed
        yield f"a bare pickle with code, {protocol}", plain(Touch(marker, call="eval"), protocol), refused, allowed
    yield "a pickle of a module", saved(torch.nn.Linear(2, 2)), refused, allowed
    yield "a pickle of a list", saved([torch.ones(2)]), "holds no state dict", allowed
    yield "a pickle of a number", saved({words: 5}), "something else than plain tensors", allowed
    yield "a sparse tensor", saved({words: torch.eye(60).to_sparse()}), "something else than plain tensors", allowed
    yield (
        "one number spread over 10^12 rows",
        bin_of(lambda path, found: torch.save(found | {words: torch.zeros(1).expand(10**12, 32)}, path)),
        "has shape (1000000000000, 32)",
        allowed,
    )
    yield "a pickle cut short", bin_of(_cut_pickle), "is damaged", allowed
    yield "no pickle at all", bin_of(lambda path, _: path.write_bytes(b"text" * 100)), refused, allowed
    yield "an empty pickle", bin_of(lambda path, _: path.write_bytes(b"")), refused, allowed
    yield "an archive that grows", bin_of(_bomb), "is an archive of", allowed
    yield (
        "pickled shards above the folder",
        bin_of(
            lambda path, _: path.with_name("pytorch_model.bin.index.json").write_text(
                json.dumps({"weight_map": {"a": "../pytorch_model-00001-of-00001.bin"}})
            )
        ),
        "is no file of a model folder",
        allowed,
    )


def _old(path: Path, found: dict[str, torch.Tensor]) -> None:
    torch.save(found, path, _use_new_zipfile_serialization=False)


def _cut_pickle(path: Path, found: dict[str, torch.Tensor]) -> None:
    torch.save(found, path)
    path.write_bytes(path.read_bytes()[:-500])


def _bomb(path: Path, found: dict[str, torch.Tensor]) -> None:
    torch.save(found, path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, b"\0" * 2**28 if name.endswith("/data/0") else data)


def links(secret: Path) -> Iterator[Change]:
    def linked(target: object) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors").symlink_to(str(target))

        return change

    def hard(folder: Path) -> None:
        os.link(folder / "model.safetensors", folder.parent / "other")
        (folder / "model.safetensors").unlink()
        os.link(folder.parent / "other", folder / "model.safetensors")

    def snapshot(target: str) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            place = folder.parent / "snapshots" / "main"
            place.parent.mkdir()
            folder.rename(place)
            (folder.parent / "blobs").mkdir()
            (place / "model.safetensors").rename(folder.parent / "blobs" / ("a" * 64))
            (place / "model.safetensors").symlink_to(target)
            folder.symlink_to(place)  # the case's folder keeps its name

        return change

    yield "weights are a link to outside", linked(secret), "is a symbolic link"
    yield "weights are a link to a device", linked("/dev/zero"), "is a symbolic link"
    yield "weights are a link below /proc", linked("/proc/self/environ"), "is a symbolic link"
    yield "weights are a FIFO", lambda f: ((f / "model.safetensors").unlink(), os.mkfifo(f / "model.safetensors")), "is not a file"  # fmt: skip # noqa: E501
    yield "weights are a folder", lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()), "is not a file"  # fmt: skip # noqa: E501
    yield "weights are a blob, outside the cache", linked("../../blobs/" + "a" * 64), "is a symbolic link"
    yield "weights are a hard link", hard, LOADS
    yield "the cache's own link", snapshot("../../blobs/" + "a" * 64), LOADS
    yield "the cache's link to outside", snapshot(f"../../blobs/../../../{secret.name}"), "is a symbolic link"
    yield "the cache's link to a name that is no hash", snapshot("../../blobs/passwd"), "is a symbolic link"
    yield "the cache's link to nothing", snapshot("../../blobs/" + "b" * 64), "does not exist"
    yield "no folder", lambda f: shutil.rmtree(f), "does not exist"
    yield "a file in place of the folder", lambda f: (shutil.rmtree(f), f.write_text("")), "is not a model folder"
