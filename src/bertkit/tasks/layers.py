"""Which parameters of a task's module lie where in the encoder: for Muon, for rates by depth, for freezing.

In: names of parameters, an Encoder.  Out: yes or no, a depth; layers that stay as they are.  Next: pretraining.py
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bertkit.errors import InputError
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder
from bertkit.model.layer_mix import normal_mix
from bertkit.model.task_config import Combine
from bertkit.train.settings import TrainSettings


def layers_above(name: str, num_hidden_layers: int) -> int:
    """Return how many layers lie above a parameter of a task's module: 0 in the top layer and the heads.

    >>> [layers_above(f"model.encoder.{name}.weight", 4) for name in ("embeddings.x", "layers.0.y", "layers.3.y")]
    [4, 3, 0]
    """
    if ".encoder.embeddings." in name:
        return num_hidden_layers
    _, found, rest = name.partition(".encoder.layers.")
    return num_hidden_layers - 1 - int(rest.split(".")[0]) if found else 0


def is_layer_matrix(name: str) -> bool:
    """Return whether a parameter of a task's module is a weight matrix inside the encoder's layers: Muon's share.

    >>> is_layer_matrix("model.encoder.layers.0.output.weight"), is_layer_matrix("model.mlm_head.dense.weight")
    (True, False)
    """
    return ".encoder.layers." in name and name.endswith(".weight") and "norm" not in name


def freeze(encoder: Encoder, layers: int) -> None:
    """Keep the embeddings and the lowest layers as they are.

    Raises:
        InputError: there are not so many layers.
    """
    most = len(encoder.layers)
    if not 0 <= layers <= most:
        raise InputError("is not a number of layers", field="--freeze_layers", value=layers, expected=f"0 to {most}")
    for part in (encoder.embeddings, *encoder.layers[:layers]):
        part.requires_grad_(False)


def cut_after(config: BertConfig, layers: Sequence[int], *, combine: Combine) -> tuple[BertConfig, dict[str, Any]]:
    """Return the configuration without the layers above those that are read, and what a TaskConfig says of the mix.

    Of the deepest layer alone there is no mix: a model that ends there is a BERT like any other.

    Raises:
        InputError: a layer that the model does not have, one named twice, the embeddings alone.
    """
    combine, chosen = normal_mix(layers, combine, num_hidden_layers=config.num_hidden_layers)
    deepest = max(chosen)
    if deepest == 0:
        raise InputError("leaves no layer of the model", field="--layers", value=0, expected="1 or more among them")
    pruned = {layer: heads for layer, heads in config.pruned_heads.items() if layer < deepest}
    cut = replace(config, num_hidden_layers=deepest, pruned_heads=pruned)
    return cut, {"layers": chosen, "combine": combine} if combine != "last" else {}


def with_dropout(
    config: BertConfig, *, hidden_dropout_prob: float | None, attention_probs_dropout_prob: float | None
) -> BertConfig:
    """Return the configuration with other dropout; None leaves it as it is."""
    hidden, attention = hidden_dropout_prob, attention_probs_dropout_prob
    return replace(
        config,
        hidden_dropout_prob=config.hidden_dropout_prob if hidden is None else hidden,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob if attention is None else attention,
    )


def prepare(encoder: Encoder, training: TrainSettings) -> None:
    """Let an encoder save memory, pack rows or be compiled, as the settings say; its weights stay what they are.

    Raises:
        InputError: packed rows with dropout in attention.
    """
    encoder.gradient_checkpointing = training.gradient_checkpointing
    encoder.packs_rows = training.attention == "packed"
    if encoder.packs_rows and encoder.config.attention_probs_dropout_prob > 0:
        raise InputError(
            "has no dropout of attention weights",
            field="--attention",
            value="packed",
            expected="--attention_probs_dropout_prob 0",
        )
    if training.torch_compile:
        for layer in encoder.layers:
            layer.compile(dynamic=True)
