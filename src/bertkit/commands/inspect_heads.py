"""`bertkit inspect heads`: which attention heads and layers a loss depends on; and a model without the least important.

In: a model folder, labelled examples of its task or texts.  Out: a table of heads by layers; a smaller model folder.
Next: pipelines/importance.py
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.commands.running import require_no_model
from bertkit.console import Progress, result, result_json, table
from bertkit.data.examples.reading import ReadingSettings
from bertkit.errors import InputError, InputErrors
from bertkit.files import require_folder_or_nothing
from bertkit.options import ALLOW_BIN, argument, group, option, unused, values_of

if TYPE_CHECKING:
    from bertkit.model.importance import Importance
    from bertkit.model.pretrained import Model


@dataclass(frozen=True)
class Config:
    """Which model, on what, and what becomes of it."""

    path: str = argument(help="model folder, or owner/name of the Hugging Face hub")
    input_file: str = option(
        help="of a fine-tuned model labelled examples, as for `bertkit evaluate`; else texts, one a line"
    )
    mlm_probability: float = option(0.15, help="texts: share of the tokens hidden, at least one")
    seed: int = option(12345, help="texts: seed of the places hidden")
    reading: ReadingSettings = group(ReadingSettings)
    prune_heads: int | None = option(
        None,
        help="take out so many of the least important heads, one being left in each layer, and write --output_dir "
        "(transformers, which has no pruning any more, does not open it)",
    )
    output_dir: Path | None = option(None, help="folder for the model without the heads that --prune_heads takes out")
    allow_bin: bool = option(False, help=ALLOW_BIN)
    json: bool = option(False, help="print everything as one line of JSON")

    def __post_init__(self) -> None:
        if (self.prune_heads is None) != (self.output_dir is None):
            field = "--output_dir" if self.output_dir is None else "--prune_heads"
            raise InputError("is missing", field=field, expected="--prune_heads and --output_dir, or neither")
        if self.prune_heads is not None and self.prune_heads < 1:
            raise InputError("takes nothing out", field="--prune_heads", value=self.prune_heads, expected="1 or more")
        if self.output_dir is not None:
            require_no_model(self.output_dir)


def run(config: Config) -> None:
    """Print the importance of every head and layer; write the pruned model, if one is wished.

    Raises:
        InputError: a folder without a head that has a loss; anything wrong with the examples; nothing left to prune.
    """
    if config.output_dir is not None:
        require_folder_or_nothing(config.output_dir, flag="--output_dir")
    model, found, files = _measured(config)
    chosen: dict[int, list[int]] = {}
    if config.prune_heads is not None:
        chosen = _pruned(config, model, found, files)
    if config.json:
        pruned = {str(layer): heads for layer, heads in chosen.items()}
        heads, layers = found.heads.tolist(), found.layers.tolist()
        result_json({"examples": found.examples, "heads": heads, "layers": layers, "pruned": pruned})
        return
    result(f"mean size of the gradient by a mask, over {found.examples:,} rows; 0: taking it out changes little")
    result(
        "layers and heads count from 0, as in pruned_heads of config.json; --layers elsewhere has the embeddings as 0"
    )
    columns = ("layer", *(f"head {head}" for head in range(found.heads.size(1))), "whole layer")
    rows = []
    for layer, (heads, whole) in enumerate(zip(found.heads.tolist(), found.layers.tolist(), strict=True)):
        kept = found.kept[layer]
        cells = [f"{value:.5f}" if head in kept else "pruned" for head, value in enumerate(heads)]
        rows.append((str(layer), *cells, f"{whole:.5f}"))
    result(table([columns, *rows]))
    if chosen:
        named = "; ".join(f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in chosen.items())
        result(f"taken out: {named}\nmodel: {config.output_dir}")


def _measured(config: Config) -> "tuple[Model, Importance, dict[str, bytes]]":
    """The model, what its heads matter, and the files that stand beside its weights."""
    from bertkit.model.architectures import TASKS
    from bertkit.model.heads import PretrainingModel
    from bertkit.model.hub import model_directory
    from bertkit.model.pretrained import head_on_disk, load
    from bertkit.pipelines.importance import importance_in_task, importance_in_texts
    from bertkit.tasks.opening import open_predictor
    from bertkit.tasks.task_file import TASK_FILE, task_file
    from bertkit.tasks.tokenizers import fitting_tokenizer
    from bertkit.text.given import given_texts

    folder = model_directory(config.path, allow_pickle_weights=config.allow_bin)
    head = head_on_disk(folder, allow_pickle_weights=config.allow_bin)
    _require_heads(config, folder)
    _require_effect(config, fine_tuned=head in TASKS)
    with Progress("measuring", total=None, unit="rows") as progress:
        if head in TASKS:
            predictor = open_predictor(folder, allow_bin=config.allow_bin)
            examples: list[Any] = predictor.labelled(config.input_file, config.reading, flag="--input_file")
            found = importance_in_task(predictor, examples, seen=progress.advance)
            saved = task_file(predictor.task, predictor.settings, predictor.knowledge)
            return predictor.model, found, {**_tokenizer_files(predictor.tokenizer, predictor.model), TASK_FILE: saved}
        if head not in ("pretraining", "masked_lm"):
            raise InputError(
                "has no head whose loss could be asked for",
                file=folder,
                expected="a head of fine-tuning or a masked-LM head",
                remedy="fine-tune it first: bertkit finetune",
            )
        model = load(folder, head=head, allow_pickle_weights=config.allow_bin)
        assert isinstance(model, PretrainingModel)
        tokenizer = fitting_tokenizer(folder, vocab_size=model.config.vocab_size)
        texts = list(given_texts([], config.input_file, example=""))
        found = importance_in_texts(
            model,
            tokenizer,
            texts,
            mlm_probability=config.mlm_probability,
            seed=config.seed,
            seen=progress.advance,
        )
        return model, found, _tokenizer_files(tokenizer, model)


def _require_heads(config: Config, folder: Path) -> None:
    """Refuse to take out more heads than there are, but one in each layer.

    Raises:
        InputError: with their number.
    """
    from bertkit.model.config import config_from_json, read_json_object

    path = folder / "config.json"
    shape = config_from_json(read_json_object(path), file=path)
    most = sum(len(shape.kept_heads(number)) - 1 for number in range(shape.num_hidden_layers))
    if config.prune_heads is not None and config.prune_heads > most:
        raise InputError(
            "are more heads than can be taken out, one staying in each layer",
            field="--prune_heads",
            value=config.prune_heads,
            expected=f"at most {most}",
        )


def _require_effect(config: Config, *, fine_tuned: bool) -> None:
    """Refuse options that were set and that this model's examples do not know.

    Raises:
        InputErrors: all of them.
    """
    if fine_tuned:
        given = {"mlm_probability": config.mlm_probability, "seed": config.seed}
        problems = unused(given, {name: getattr(Config, name) for name in given}, why="on a fine-tuned model")
    else:
        problems = unused(values_of(config.reading), values_of(ReadingSettings()), why="on texts, one a line")
    if problems:
        raise InputErrors(problems)


def _tokenizer_files(tokenizer: Any, model: "Model") -> dict[str, bytes]:
    files: dict[str, bytes] = tokenizer.files(model_max_length=model.config.max_position_embeddings)
    return files


def _pruned(config: Config, model: "Model", found: "Importance", files: dict[str, bytes]) -> dict[int, list[int]]:
    """Take the heads out and write the folder; return them by layer."""
    from bertkit.model.pretrained import save
    from bertkit.model.pruning import prune_heads

    assert config.prune_heads is not None
    assert config.output_dir is not None
    chosen = found.least_important_heads(config.prune_heads)
    prune_heads(model, chosen)
    save(config.output_dir, model, files=files)
    return chosen
