"""Tensors that are cut over processes, and whole ones.

In: a DTensor of FSDP2, or a plain tensor.  Out: the other one.  Next: optimizer.py
"""

from torch import Tensor
from torch.distributed.tensor import DTensor


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with all its parts; every process must call it on one that is cut."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Return the whole `tensor` cut as `pattern` is, on its device; all of it where that one is not cut."""
    if not isinstance(pattern, DTensor):
        return tensor.to(pattern.device)
    mesh = pattern.device_mesh
    parts = tensor.chunk(mesh.size(), dim=0)  # FSDP2 cuts along the first axis, and as chunk does
    rank = mesh.get_local_rank()
    mine = parts[rank] if rank < len(parts) else tensor[:0]
    return DTensor.from_local(
        mine.to(pattern.device).contiguous(),
        mesh,
        pattern.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
