"""What the C library does with memory that is freed: here it keeps it, as the next step needs as much again.

In: nothing.  Out: the allocator of this process, set.  Next: data/helpers.py, train/runtime.py
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt, by malloc.h of glibc
_NEVER = -1


def keep_freed_memory() -> bool:
    """Have glibc keep what the main thread frees until the process ends; return whether there is such a call.

    By itself it gives large blocks back to the system, those of more than 32 MB always (the scores of a large
    vocabulary, say), and the system zeroes each page when it is touched again: up to a tenth of a training step
    (docs/performance.md). Another allocator that was preloaded is not told.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _NEVER))
