"""`bertkit export`: a model as one file for a runtime without bertkit, its answers checked before it is kept.

In: a model folder.  Out: model.onnx (and model_int8.onnx) or model.pt2, check.json, config.json and the tokenizer's
files.  Next: model/export.py
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertkit.console import result, say
from bertkit.errors import InputError
from bertkit.files import file_written_atomically, write_atomically
from bertkit.options import option

if TYPE_CHECKING:
    from bertkit.model.export import Exportable

CHECK = "check.json"


@dataclass(frozen=True)
class Config:
    """Which model, and what becomes of it."""

    model: str = option(help="model folder")
    output_dir: Path = option(help="folder for the file, its check.json, config.json and the tokenizer's files")
    format: Literal["onnx", "torch"] = option("onnx", help="onnx: model.onnx; torch: model.pt2, for torch.export.load")
    head: Literal["pretraining", "masked_lm", "next_sentence", "encoder"] | None = option(
        None,
        help="what is exported with the encoder; encoder: nothing; null: the head that the folder has, any there is",
    )
    int8: bool = option(False, help="also model_int8.onnx: matrices in int8, smaller and faster, answers a little off")


def run(config: Config) -> None:
    """Write the files and print the path of the model's.

    Raises:
        InputError: no such model or head; the extra `onnx` is not installed; answers that differ from the model's.
    """
    from bertkit.model import export
    from bertkit.model.pretrained import head_on_disk, load, model_files
    from bertkit.pipelines.batches import fitting_tokenizer

    if config.int8 and config.format != "onnx":
        raise InputError("is for --format onnx", field="--int8", remedy="leave one of the two away")
    if config.format == "onnx":
        export.require_onnx()
    head = head_on_disk(config.model) if config.head is None else config.head
    model = load(config.model, head=None if head == "encoder" else head)
    tokenizer = fitting_tokenizer(config.model, vocab_size=model.config.vocab_size)
    wish = export.exportable(model)
    check = _checked_file(wish, config)
    check = {
        "model": head or "encoder",
        "outputs": list(wish.outputs),
        "allowed_difference": export.MAX_DIFFERENCE,
        **check,
    }
    files = tokenizer.files(model_max_length=model.config.max_position_embeddings)
    files["config.json"] = model_files(model)["config.json"]
    files[CHECK] = (json.dumps(check, indent=2) + "\n").encode("utf-8")
    for name, content in files.items():
        write_atomically(config.output_dir / name, content)


def _checked_file(wish: "Exportable", config: Config) -> dict[str, Any]:
    """Write the model's file, and the one in int8; return what the check found."""
    from bertkit.model import export

    path = config.output_dir / ("model.onnx" if config.format == "onnx" else "model.pt2")
    with file_written_atomically(path) as temporary:
        # The runtimes look at the ending.
        named = temporary.with_suffix(path.suffix)
        try:
            (export.write_onnx if config.format == "onnx" else export.write_torch)(wish, named)
            answer = export.onnx_answer(named, wish.outputs) if config.format == "onnx" else export.torch_answer(named)
            found = export.differences(wish, answer)
            export.require_equal(found, file=path)
            named.rename(temporary)
        finally:
            named.unlink(missing_ok=True)
    say(f"answers of {path.name} differ from the model's by at most {max(found.values()):.1g}")
    result(str(path))
    check: dict[str, Any] = {"max_difference": found, "rows_of_tokens": list(export.CHECKED_LENGTHS)}
    if config.int8:
        small = config.output_dir / "model_int8.onnx"
        with file_written_atomically(small) as temporary:
            export.write_int8(path, temporary)
            check["int8_max_difference"] = export.differences(wish, export.onnx_answer(temporary, wish.outputs))
        worst = max(check["int8_max_difference"].values())
        size, whole = small.stat().st_size / 1e6, path.stat().st_size / 1e6
        say(f"answers of {small.name} differ by at most {worst:.2g}; {size:.1f} MB in place of {whole:.1f} MB")
        result(str(small))
    return check
