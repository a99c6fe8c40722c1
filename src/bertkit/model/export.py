"""A model as one file that needs no bertkit: ONNX, int8 ONNX, or a program of torch.export; checked before it is kept.

In: a model and the names of its outputs.  Out: a file, and by how much its answers differ.  Next: commands/export.py
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.model.encoder import Encoder
from bertkit.model.heads import PretrainingModel
from bertkit.model.task_heads import MultipleChoiceModel, QuestionAnsweringModel, TokenClassificationModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # Hugging Face's names; int64
MAX_DIFFERENCE = 1e-4  # of two answers to the same row, padding aside
CHECKED_LENGTHS = (3, 11, 29)  # tokens of the rows of one batch
PACKAGES = ("onnx", "onnxruntime", "onnxscript")

Arrays = dict[str, NDArray[Any]]
Answer = Callable[[Arrays], list[NDArray[Any]]]  # inputs by name → outputs in order


@dataclass(frozen=True)
class Exportable:
    """A model to be exported, and what its inputs and outputs are called.

    outputs: their names, in the order in which `pick` takes them out of what the model returns, and whether each has a
        value for every token.
    axes: of each input; every one of them may have any size.
    """

    model: nn.Module
    outputs: dict[str, bool]
    pick: Callable[[Any], tuple[Tensor, ...]]
    vocab_size: int
    type_vocab_size: int
    max_length: int  # tokens
    axes: tuple[str, ...] = ("batch", "sequence")


def exportable(model: nn.Module) -> Exportable:
    """Return how a model is exported; outputs have the names of `transformers`.

    Of a model that is neither an encoder nor one that we know its output's `logits` are taken.
    """
    outputs, pick = _outputs(model)
    config = next(part for part in model.modules() if isinstance(part, Encoder)).config
    choices = ("choices",) if isinstance(model, MultipleChoiceModel) else ()
    axes = ("batch", *choices, "sequence")
    return Exportable(
        model.eval(), outputs, pick, config.vocab_size, config.type_vocab_size, config.max_position_embeddings, axes
    )


def _outputs(model: nn.Module) -> tuple[dict[str, bool], Callable[[Any], tuple[Tensor, ...]]]:
    if isinstance(model, Encoder):
        if model.pooler is None:
            return {"last_hidden_state": True}, lambda output: (output.last_hidden_state,)
        names = {"last_hidden_state": True, "pooler_output": False}
        return names, lambda output: (output.last_hidden_state, output.pooler_output)
    if isinstance(model, PretrainingModel):
        if model.nsp_head is None:
            return {"logits": True}, lambda output: (output.mlm_logits,)
        if model.mlm_head is None:
            return {"logits": False}, lambda output: (output.nsp_logits,)
        names = {"prediction_logits": True, "seq_relationship_logits": False}
        return names, lambda output: (output.mlm_logits, output.nsp_logits)
    if isinstance(model, QuestionAnsweringModel):
        return {"start_logits": True, "end_logits": True}, lambda output: (output.start_logits, output.end_logits)
    return {"logits": isinstance(model, TokenClassificationModel)}, lambda output: (output.logits,)


class _Named(nn.Module):
    """The model with inputs by place and a tuple of tensors as its answer."""

    def __init__(self, wish: Exportable) -> None:
        super().__init__()
        self.model, self._pick = wish.model, wish.pick

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in their order."""
        return self._pick(self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids))


# ---- writing ---------------------------------------------------------------------------------------------------------


def require_onnx() -> None:
    """Refuse to go on without the extra `onnx`.

    Raises:
        InputError: one of its packages is not installed.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX needs {', '.join(missing)}, not installed here", remedy='pip install "bertkit[onnx]"')


def write_onnx(wish: Exportable, path: Path) -> None:
    """Write the model as one ONNX file.

    Raises:
        InputError: the extra `onnx` is not installed.
    """
    require_onnx()
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            _Named(wish),
            _example(wish),
            dynamo=True,
            dynamic_shapes=(dict(enumerate(wish.axes)),) * len(INPUTS),
            input_names=list(INPUTS),
            output_names=list(wish.outputs),
            verbose=False,
        )
        assert program is not None
        program.save(path, external_data=False)


def write_int8(source: Path, path: Path) -> None:
    """Write an ONNX file with the matrices in int8, one scale for each output; activations are scaled as they come."""
    require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source, path, weight_type=QuantType.QInt8, per_channel=True, extra_options={"MatMulConstBOnly": True}
        )


def write_torch(wish: Exportable, path: Path) -> None:
    """Write the model as a program of torch.export (.pt2), which `torch.export.load` opens."""
    dimensions = tuple(
        torch.export.Dim(name, max=wish.max_length) if name == "sequence" else torch.export.Dim(name)
        for name in wish.axes
    )
    with _quiet(), torch.no_grad():
        program = torch.export.export(
            _Named(wish), _example(wish), dynamic_shapes=(dict(enumerate(dimensions)),) * len(INPUTS)
        )
        torch.export.save(program, path)


def _example(wish: Exportable) -> tuple[Tensor, ...]:
    """Inputs whose axes have sizes above 1, which the exporters would take for fixed."""
    shape = (2, 3, 7) if len(wish.axes) == 3 else (2, 7)
    ids = torch.ones(shape, dtype=torch.int64)
    return ids, torch.ones_like(ids), torch.zeros_like(ids)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what the exporters say about themselves away."""
    loggers = [logging.getLogger(name) for name in (None, "torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


# ---- checking --------------------------------------------------------------------------------------------------------


def onnx_answer(path: Path, outputs: Iterable[str]) -> Answer:
    """Return a function that asks an ONNX file, inputs and outputs by name, on as many threads as torch has."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(list(outputs), inputs)


def torch_answer(path: Path) -> Answer:
    """Return a function that asks a program of torch.export."""
    with _quiet():
        program = torch.export.load(path).module()

    def answer(inputs: Arrays) -> list[NDArray[Any]]:
        with torch.no_grad():
            found = program(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return [tensor.numpy() for tensor in found]

    return answer


def differences(wish: Exportable, answer: Answer, *, seed: int = 0) -> dict[str, float]:
    """Return for each output the largest difference between a file's answers and the model's, padding aside.

    Asked are one batch of rows of three lengths, padded, and its longest row alone.
    """
    lengths = [min(length, wish.max_length) for length in CHECKED_LENGTHS]
    generator = np.random.default_rng(seed)
    shape = (len(lengths), *(2,) * (len(wish.axes) - 2), max(lengths))
    ids = generator.integers(1, wish.vocab_size, shape)
    width = np.array(lengths).reshape(-1, *(1,) * (len(shape) - 1))
    mask = (np.arange(max(lengths)) < width) & np.ones(shape, dtype=bool)
    types = ((np.arange(max(lengths)) >= width // 2) & mask & (wish.type_vocab_size > 1)).astype(np.int64)
    batch = {"input_ids": ids * mask, "attention_mask": mask.astype(np.int64), "token_type_ids": types}
    found = dict.fromkeys(wish.outputs, 0.0)
    for inputs in (batch, {name: array[-1:] for name, array in batch.items()}):
        kept = inputs["attention_mask"].astype(bool)
        with torch.no_grad():
            expected = _Named(wish)(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        for (name, by_token), ours, theirs in zip(wish.outputs.items(), expected, answer(inputs), strict=True):
            gap = np.abs(ours.numpy() - theirs)
            gap = gap[kept] if by_token else gap  # there are values on padding too, which nobody reads
            found[name] = max(found[name], float(gap.max()))
    return found


def require_equal(found: dict[str, float], *, file: Path) -> None:
    """Refuse a file whose answers are not the model's.

    Raises:
        InputError: an output differs by more than MAX_DIFFERENCE.
    """
    wrong = {name: gap for name, gap in found.items() if not gap <= MAX_DIFFERENCE}
    if wrong:
        shown = ", ".join(f"{name} by {gap:.2g}" for name, gap in wrong.items())
        raise InputError(
            f"answers differ from the model's: {shown}",
            file=file,
            expected=f"at most {MAX_DIFFERENCE:g}",
            remedy="export with the versions of constraints.txt",
        )
