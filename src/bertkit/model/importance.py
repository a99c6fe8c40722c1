"""Which heads and layers a loss depends on: the mean size of its gradient by a mask that is 1 everywhere.

In: a model, batches and a loss.  Out: Importance: a number for every head and every layer.  Next: pruning.py
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.heads import IGNORE_INDEX, PretrainingModel
from bertkit.model.pruning import encoder_of


@dataclass(frozen=True)
class Importance:
    """Mean over examples of |d loss / d mask|; 0: leaving it out would, to first order, change nothing."""

    heads: Tensor  # (layers, heads) float64, 0 for heads that were pruned
    layers: Tensor  # (layers,) float64
    examples: int
    kept: tuple[tuple[int, ...], ...]  # for each layer the numbers of its heads, of which some may have been pruned

    def least_important_heads(self, number: int) -> dict[int, list[int]]:
        """Return {layer: heads} of the `number` least important ones, one left in each layer: for `prune_heads`."""
        width = self.heads.size(1)
        left = [len(kept) for kept in self.kept]
        chosen: dict[int, list[int]] = {}
        for index in self.heads.flatten().argsort(stable=True).tolist():
            layer, head = divmod(index, width)
            if number > 0 and head in self.kept[layer] and left[layer] > 1:
                chosen.setdefault(layer, []).append(head)
                left[layer] -= 1
                number -= 1
        return {layer: sorted(heads) for layer, heads in sorted(chosen.items())}


def importance(
    model: nn.Module,
    batches: Iterable[Mapping[str, Tensor]],
    *,
    loss: Callable[[Any, Mapping[str, Tensor]], Tensor],
) -> Importance:
    """Return what every head and layer matters to a loss, in eval mode; the model's own gradients are untouched.

    model: an encoder, or any model that stands on one; its mode is put back.
    batches: what `loss` understands; the first axis of `input_ids` counts the examples.
    loss: the sum () over the examples of a batch of each example's own loss; `masked_lm_losses` for masked tokens. As
        a sum it makes the result independent of how examples are batched.

    Raises:
        InputError: no batch.
    Source: Michel et al. 2019, section 4.1, without its division by the norm of each layer.
    """
    encoder = encoder_of(model)
    config, parameter = encoder.config, next(encoder.parameters())
    sums = torch.zeros(config.num_hidden_layers, config.num_attention_heads, dtype=torch.float64)
    layer_sums = torch.zeros(config.num_hidden_layers, dtype=torch.float64)
    examples, was_training = 0, model.training
    model.eval()
    try:
        for batch in batches:
            rows = batch["input_ids"].size(0)
            heads = parameter.new_ones(rows, *sums.shape).requires_grad_()  # (batch, layers, heads)
            layers = parameter.new_ones(rows, len(layer_sums)).requires_grad_()  # (batch, layers)
            masks = {"head_mask": heads, "layer_mask": layers}
            with encoder.register_forward_pre_hook(_adding(masks), with_kwargs=True), torch.enable_grad():
                by_head, by_layer = torch.autograd.grad(loss(model, batch), (heads, layers))
            sums += by_head.abs().sum(0).double().cpu()
            layer_sums += by_layer.abs().sum(0).double().cpu()
            examples += rows
    finally:
        model.train(was_training)
    if not examples:
        raise InputError("no example was given", field="batches", expected="at least one batch")
    kept = tuple(config.kept_heads(layer) for layer in range(config.num_hidden_layers))
    return Importance(sums / examples, layer_sums / examples, examples, kept)


def _adding(masks: dict[str, Tensor]) -> Callable[[nn.Module, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]:
    """A hook that hands the encoder the masks too, whichever model calls it; choices of one example share its masks."""

    def add(_module: nn.Module, arguments: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        rows = (arguments[0] if arguments else keywords["input_ids"]).size(0)
        own = {name: mask.repeat_interleave(rows // mask.size(0), 0) for name, mask in masks.items()}
        return arguments, keywords | own

    return add


def masked_lm_losses(model: PretrainingModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the sum () over the rows of a batch of the mean loss of a row's masked tokens; a row with none adds 0.

    batch: as `data/collate.py` makes it: the inputs, mlm_positions (n,) and mlm_targets (n,).
    """
    inputs = ("input_ids", "attention_mask", "token_type_ids", "mlm_positions")
    output = model(**{name: batch[name] for name in inputs if name in batch})
    targets, (rows, seq) = batch["mlm_targets"], batch["input_ids"].shape
    losses = F.cross_entropy(output.mlm_logits, targets, ignore_index=IGNORE_INDEX, reduction="none")  # (n,)
    row_of = batch["mlm_positions"] // seq  # (n,)
    counts = torch.bincount(row_of[targets != IGNORE_INDEX], minlength=rows).clamp(min=1)  # (batch,)
    return (losses / counts[row_of]).sum()
