"""What a pass through BERT costs, counted from its shape.

In: a BertConfig and the shape of a batch.  Out: operations, bytes.  Next: ../train/loop.py
"""

from bertkit.model.config import BertConfig

BACKWARD = 2  # a backward pass has two matrix products for each of the forward pass
BYTES = 4  # of a number in fp32


def forward_flops(config: BertConfig, *, slots: int, squares: int, targets: int, pairs: int) -> float:
    """Return the multiplications and additions in the matrix products of one forward pass of pre-training.

    slots: tokens, padding counted; squares: sum over the rows of their squared length, padding counted.
    targets: positions at which the masked-LM head is computed; pairs: rows of the next-sentence head.

    >>> from bertkit.model.config import config_of_size
    >>> f"{forward_flops(config_of_size('base', vocab_size=30522), slots=1, squares=0, targets=0, pairs=0):.4g}"
    '1.699e+08'
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = slots * 2 * (4 * hidden * hidden + 2 * hidden * inner) + squares * 4 * hidden
    masked_lm = targets * 2 * (hidden * hidden + hidden * config.vocab_size)
    return float(config.num_hidden_layers * layer + masked_lm + pairs * 2 * hidden * hidden)


def training_flops(config: BertConfig, *, slots: int, squares: int, targets: int, pairs: int) -> float:
    """Return what a forward and a backward pass cost together; what is computed again is not counted."""
    return (1 + BACKWARD) * forward_flops(config, slots=slots, squares=squares, targets=targets, pairs=pairs)
