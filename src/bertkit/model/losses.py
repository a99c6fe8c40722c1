"""What a loss is made of: the sum over the labels, and the weight it is divided by.

In: logits, or what they are made of, and labels.  Out: (sum, weight), both (); their quotient is the loss, also over
several batches. Pre-training's is (sum, hits).
Next: heads.py
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.products import linear, product, stays_with_torch

IGNORE_INDEX = -100  # the label of a position that has none; PyTorch's default
BIT = math.log(2)  # e^x is 2^(x / BIT)


def cross_entropy(
    name: str,
    logits: Tensor,
    labels: Tensor,
    *,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy () in float32 or better, and the weight () it is a sum over.

    logits: (n, classes); labels: (n,) int64, called `name` in errors, IGNORE_INDEX for none.
    class_weights: (classes,), a weight for the labels of each class; the weight returned is then the sum of those of
        the labels present, else their number.
    label_smoothing: share of the target that is spread over all classes, 0 ≤ s < 1.
    The quotient is what F.cross_entropy gives, both options included.

    Raises:
        InputError: labels of another shape or out of range; weights of another shape; a smoothing out of range.
    """
    check_labels(name, labels, shape=logits.shape[:1], limit=logits.size(1))
    if not 0 <= label_smoothing < 1:
        raise InputError("is no share", field="label_smoothing", value=label_smoothing, expected="0 ≤ s < 1")
    wide = in_float32(logits)
    real = labels != IGNORE_INDEX  # (n,)
    weights = None
    if class_weights is not None:
        check_class_weights(class_weights, classes=logits.size(1))
        weights = class_weights.to(wide)
    total = F.cross_entropy(
        wide,
        labels,
        weight=weights,
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    count = real.sum().to(wide.dtype) if weights is None else weights[labels.clamp(min=0)].where(real, 0.0).sum()
    return total, count


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy () in float32 or better, and how many labels () have the highest score.

    logits: (n, classes); labels: (n,) int64 below classes, or IGNORE_INDEX for none; they are not looked at.
    The same as F.cross_entropy, for less than half the time where classes are many: the exponentials are computed
    once, and the gradient is made in their place, so that there is one backward pass. A label that shares the highest
    score counts, which argmax leaves to the order.
    """
    total, hits = _SummedCrossEntropy.apply(in_float32(logits), labels)  # type: ignore[no-untyped-call]
    return total, hits


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `summed_cross_entropy` gives for hidden · weightᵀ + bias, whose scores nobody else reads.

    hidden: (n, hidden); weight: (classes, hidden); bias: (classes,); labels: (n,), as there.
    The exponentials are made in the memory of the scores, and stay undivided by their sums: the gradients are products
    with them, in which n numbers that are divided by the sums stand for n · classes.
    """
    in_one_format = hidden.dtype == weight.dtype == bias.dtype == torch.promote_types(hidden.dtype, torch.float32)
    if not in_one_format or stays_with_torch(hidden, weight):
        return summed_cross_entropy(linear(hidden, weight, bias), labels)
    total, hits = _LinearCrossEntropy.apply(hidden, weight, bias, labels)  # type: ignore[no-untyped-call]
    return total, hits


def _to_exponentials(logits: Tensor, labels: Tensor, *, in_bits: bool = False) -> tuple[Tensor, ...]:
    """The summed loss (), the hits (), and two whose product is the gradient by the logits: (n, classes), (n, 1).

    in_bits: the logits come divided by BIT, and the first of these is made in their memory. (torch takes its exp from
        MKL, which on a processor that is not Intel's needs three times as long as exp2, which is torch's own.)
    """
    is_label = (labels != IGNORE_INDEX)[:, None]  # (n, 1)
    targets = labels.clamp(min=0)[:, None]  # (n, 1)
    scores = logits.gather(1, targets)  # (n, 1)
    highest = logits.amax(dim=1, keepdim=True)  # (n, 1); argmax, which knows the place too, takes ten times as long
    hits = ((scores == highest) & is_label).sum()
    # (n, classes); softmax takes three times as long
    exponentials = logits.sub_(highest).exp2_() if in_bits else (logits - highest).exp_()
    sums = exponentials.sum(dim=1, keepdim=True)  # (n, 1), at least 1, so that its logarithm is exact
    ahead = (highest - scores) * (BIT if in_bits else 1.0)  # (n, 1)
    losses = (sums.log() + ahead).where(is_label, 0.0)  # (n, 1); so the small is not lost in the large
    # The gradient is the probabilities, less 1 at the label.
    return losses.sum(), hits, exponentials.scatter_add_(1, targets, -sums), is_label / sums


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        total, hits, *gradient = _to_exponentials(logits, labels)
        ctx.save_for_backward(*gradient)
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        exponentials, factors = ctx.saved_tensors
        return exponentials.mul_(gradient * factors), None


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = product(hidden / BIT, weight.t(), bias / BIT)  # (n, classes)
        total, hits, *gradient = _to_exponentials(logits, labels, in_bits=True)
        ctx.save_for_backward(hidden, weight, *gradient)
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, exponentials, factors = ctx.saved_tensors
        factors = gradient * factors  # (n, 1)
        by_hidden, by_weight, by_bias, _ = ctx.needs_input_grad
        return (
            product(exponentials, weight).mul_(factors) if by_hidden else None,
            product(exponentials.t(), hidden * factors) if by_weight else None,
            exponentials.t().mv(factors.squeeze(1)) if by_bias else None,
            None,
        )


def mean(parts: tuple[Tensor, Tensor]) -> Tensor:
    """Return the quotient () of a sum and its weight; without a single label 0 with a valid backward, not 0 / 0."""
    total, count = parts
    return total / count.where(count > 0, 1.0)


def in_float32(logits: Tensor) -> Tensor:
    """Return the logits in float32, or as they are where that is wider still."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check_labels(name: str, labels: Tensor, *, shape: torch.Size, limit: int) -> None:
    """Refuse labels of another shape, or (where looking costs no wait for a device) outside 0 … limit − 1.

    Raises:
        InputError: with the place of the first one.
    """
    if labels.shape != shape:
        # In labels of another shape a flat position would mean another token than the one that was labelled.
        raise InputError(f"has shape {tuple(labels.shape)}", field=name, expected=str(tuple(shape)))
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = (((labels < 0) | (labels >= limit)) & (labels != IGNORE_INDEX)).nonzero()
    if len(wrong):
        index = tuple(wrong[0].tolist())
        place = ", column ".join(map(str, index))
        raise InputError(
            f"row {place} is {int(labels[index])}, but there are {limit} classes",
            field=name,
            expected=f"0 to {limit - 1}, or {IGNORE_INDEX} for none",
        )


def check_class_weights(weights: Tensor, *, classes: int) -> None:
    """Refuse weights that are not (classes,).

    Raises:
        InputError: they have another shape.
    """
    if weights.shape != (classes,):
        expected = f"({classes},), a weight for each class"
        raise InputError(f"has shape {tuple(weights.shape)}", field="class_weights", expected=expected)


def check_choices(mask: Tensor, labels: Tensor | None, *, shape: torch.Size) -> None:
    """Refuse a mask of another shape or (where looking costs no wait for a device) a row whose softmax has no sense.

    Raises:
        InputError: also for a row without a choice, and for a label that is none of its row's choices.
    """
    if mask.shape != shape:
        raise InputError(f"has shape {tuple(mask.shape)}", field="choice_mask", expected=str(tuple(shape)))
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return
    real = mask.bool()
    empty = (~real.any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise InputError(f"row {empty[0]} has no choice", field="choice_mask", expected="one or more in every row")
    if labels is not None:
        check_labels("labels", labels, shape=shape[:1], limit=shape[1])
        right = real.gather(1, labels.clamp(min=0)[:, None]).squeeze(1)  # (batch,)
        wrong = (~right & (labels != IGNORE_INDEX)).nonzero().flatten().tolist()
        if wrong:
            value = int(labels[wrong[0]])
            raise InputError(f"row {wrong[0]} is {value}, which choice_mask says is no choice", field="labels")


def position_loss(name: str, logits: Tensor, positions: Tensor) -> Tensor:
    """Return the mean cross entropy () of columns (batch,) over the rows of logits (batch, seq) that have them."""
    inside = (positions >= 0) & (positions < logits.size(1))
    return mean(cross_entropy(name, logits, positions.where(inside, IGNORE_INDEX)))
