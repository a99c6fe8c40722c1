"""How many operations a second this machine makes in matrix products: by torch.mm, and by its fastest library.

In: nothing.  Out: operations a second, on the threads that torch has.  Next: pretraining.py
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from bertkit.products import linear

SIZE = 2048  # rows and columns; performance figures are shares of the rate of this product
REPEATS = 3  # of which the fastest counts


def mm_rate(device: str = "cpu", *, dtype: torch.dtype = torch.float32, size: int = SIZE) -> float:
    """Return the operations a second of torch.mm: P."""
    return _rate(torch.mm, device, dtype=dtype, size=size)


def fastest_rate(device: str = "cpu", *, dtype: torch.dtype = torch.float32, size: int = SIZE) -> float:
    """Return the rate of the fastest library: on some processors oneDNN's is over twice torch.mm's (products.py)."""
    by_onednn = _rate(lambda left, right: linear(left, right, None), device, dtype=dtype, size=size)
    return max(by_onednn, mm_rate(device, dtype=dtype, size=size))


def _rate(product: Callable[[Tensor, Tensor], Tensor], device: str, *, dtype: torch.dtype, size: int) -> float:
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        product(left, right)[0, 0].item()  # a GPU is done when a number is here
        seconds.append(time.perf_counter() - began)
    return float(2 * size**3 / min(seconds))
