"""What a pass through BERT costs, counted from its shape.

In: a BertConfig and the shape of a batch.  Out: operations.  Next: ../tasks/pretraining.py
"""

from bertkit.model.config import BertConfig

BACKWARD = 2  # a backward pass has two matrix products for each of the forward pass


def forward_flops(
    config: BertConfig, *, tokens: int, squares: int, targets: int, pairs: int, read: int | None = None
) -> float:
    """Return the multiplications and additions in the matrix products of one forward pass.

    tokens: what goes through the layers; squares: sum over the rows of their squared length.
    targets: positions at which the masked-LM head is computed; pairs: rows of the next-sentence head.
    read: positions at which the last layer is finished; None: everywhere.

    >>> from bertkit.model.config import config_of_size
    >>> f"{forward_flops(config_of_size('base', vocab_size=30522), tokens=1, squares=0, targets=0, pairs=0):.4g}"
    '1.699e+08'
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    keys_and_values, rest = 4 * hidden * hidden, 4 * hidden * hidden + 4 * hidden * inner
    layer = tokens * (keys_and_values + rest) + squares * 4 * hidden
    last: float = layer
    if read is not None and tokens:
        last = tokens * keys_and_values + read * rest + squares * 4 * hidden * read / tokens
    masked_lm = targets * 2 * (hidden * hidden + hidden * config.vocab_size)
    return float((config.num_hidden_layers - 1) * layer + last + masked_lm + pairs * 2 * hidden * hidden)


def training_flops(
    config: BertConfig, *, tokens: int, squares: int, targets: int, pairs: int, read: int | None = None
) -> float:
    """Return what a forward and a backward pass cost together; what is computed again is not counted."""
    forward = forward_flops(config, tokens=tokens, squares=squares, targets=targets, pairs=pairs, read=read)
    return (1 + BACKWARD) * forward
