"""`bertkit export`: a model as one file for a runtime without bertkit, its answers checked before it is kept.

In: a model folder, labelled files if wished.  Out: model.onnx (and model_int8.onnx) or model.pt2, check.json,
config.json and the tokenizer's files.  Next: model/export.py, tasks/exported.py
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertkit.commands.running import require_no_model
from bertkit.console import result, say, table, warn
from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError, InputErrors
from bertkit.files import file_written_atomically, require_folder_or_nothing, write_atomically
from bertkit.options import ALLOW_BIN, group, option, unused, values_of

if TYPE_CHECKING:
    from bertkit.model.architectures import Model
    from bertkit.model.export import Answer, Exportable
    from bertkit.tasks.predicting import Predictor

CHECK = "check.json"
A_POINT = 0.01  # of a figure from 0 to 1; an int8 file that loses more is warned of


@dataclass(frozen=True)
class Config:
    """Which model, and what becomes of it."""

    model: str = option(help="model folder, or owner/name of the Hugging Face hub")
    output_dir: Path = option(help="folder for the file, its check.json, config.json and the tokenizer's files")
    format: Literal["onnx", "torch"] = option("onnx", help="onnx: model.onnx; torch: model.pt2, for torch.export.load")
    head: Literal["pretraining", "masked_lm", "next_sentence", "encoder"] | None = option(
        None,
        help="what is exported with the encoder; encoder: nothing; null: the head that the folder has, any there is",
    )
    int8: bool = option(False, help="also model_int8.onnx: matrices in int8, smaller and faster, answers a little off")
    input_file: str | None = option(
        None, help="labelled examples on which the model and its files are measured: paths, comma separated; globs"
    )
    reading: ReadingSettings = group(ReadingSettings)
    allow_bin: bool = option(False, help=ALLOW_BIN)

    def __post_init__(self) -> None:
        if self.int8 and self.format != "onnx":
            raise InputError("is for --format onnx", field="--int8", remedy="leave one of the two away")
        if self.input_file is not None and self.head is not None:
            expected = "the head of fine-tuning, which the examples are for"
            raise InputError("has no metric", field="--head", value=self.head, expected=expected)
        if self.input_file is None and (
            problems := unused(values_of(self.reading), values_of(ReadingSettings()), why="without --input_file")
        ):
            raise InputErrors(problems)


def run(config: Config) -> None:
    """Write the files and print their paths.

    Raises:
        InputError: a folder that holds a model already; no such model or head; the extra `onnx` is not installed;
            answers that differ from the model's; anything wrong with the examples, before a file is written.
    """
    from bertkit.model import export
    from bertkit.model.hub import model_directory
    from bertkit.model.pretrained import head_of, model_files
    from bertkit.tasks.tokenizers import fitting_tokenizer

    require_folder_or_nothing(config.output_dir, flag="--output_dir")
    require_no_model(config.output_dir)
    if config.format == "onnx":
        export.require_onnx()
    folder = model_directory(config.model, allow_pickle_weights=config.allow_bin)
    model, asked = _opened(config, folder)
    tokenizer = fitting_tokenizer(folder, vocab_size=model.config.vocab_size)
    wish = export.exportable(model)
    check, files = _checked_files(wish, config)
    check = {
        "model": head_of(model) or "encoder",
        "outputs": list(wish.outputs),
        "allowed_difference": export.MAX_DIFFERENCE,
        **check,
    }
    if asked is not None:
        check["metrics"] = _metrics(*asked, files)
    contents = tokenizer.files(model_max_length=model.config.max_position_embeddings)
    contents["config.json"] = model_files(model)["config.json"]
    contents[CHECK] = (json.dumps(check, indent=2) + "\n").encode("utf-8")
    for name, content in contents.items():
        write_atomically(config.output_dir / name, content)


def _opened(config: Config, folder: Path) -> "tuple[Model, tuple[Predictor, list[Any]] | None]":
    """The model, and where there are examples what asks it, and them."""
    from bertkit.model.pretrained import head_on_disk, load
    from bertkit.tasks.opening import open_predictor

    if config.input_file is not None:
        predictor = open_predictor(folder, allow_bin=config.allow_bin)
        return predictor.model, (predictor, predictor.labelled(config.input_file, config.reading, flag="--input_file"))
    allowed = config.allow_bin
    head = head_on_disk(folder, allow_pickle_weights=allowed) if config.head is None else config.head
    return load(folder, head=None if head == "encoder" else head, allow_pickle_weights=allowed), None


def _checked_files(wish: "Exportable", config: Config) -> "tuple[dict[str, Any], dict[str, Answer]]":
    """Write the model's file, and the one in int8; return what the check found, and what asks each file by its name."""
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
    answers = {path.name: answer}
    if config.int8:
        small = config.output_dir / "model_int8.onnx"
        with file_written_atomically(small) as temporary:
            export.write_int8(path, temporary)
            answers[small.name] = export.onnx_answer(temporary, wish.outputs)
            check["int8_max_difference"] = export.differences(wish, answers[small.name])
        worst = max(check["int8_max_difference"].values())
        size, whole = small.stat().st_size / 1e6, path.stat().st_size / 1e6
        say(f"answers of {small.name} differ by at most {worst:.2g}; {size:.1f} MB in place of {whole:.1f} MB")
        result(str(small))
    return check, answers


def _metrics(predictor: "Predictor", examples: list[Any], files: "dict[str, Answer]") -> dict[str, Any]:
    """What the model and its files make of the examples; a file that does worse by more than a point is warned of."""
    from bertkit.tasks.exported import figures_of_files

    figures = figures_of_files(predictor, examples, files)
    names = [name for name in figures["model"] if all(name in of_file for of_file in figures.values())]
    rows = [(name, *(f"{of_file[name]:.4f}" for of_file in figures.values())) for name in names]
    say(table([("", *figures), *rows]))
    best_by, more_is_better = predictor.task.best_by(predictor.config)
    for file, of_file in figures.items():
        loss = (figures["model"][best_by] - of_file[best_by]) * (1 if more_is_better else -1)
        if loss > A_POINT:
            warn(f"{file} loses {loss:.4f} of {best_by} on these examples")
    return {"examples": len(examples), "decided_by": best_by, **figures}
