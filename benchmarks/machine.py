"""What figures were measured on, and where they are kept.

In: nothing.  Out: processor, threads, versions, date; a folder.  Next: pretraining.py, time_to_loss.py, gpu.py
"""

import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

RESULTS = Path(__file__).resolve().parent / "results" / "pretraining"


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "processor": str(torch.cpu.get_capabilities().get("cpu_name", platform.processor())),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": date.today().isoformat(),
    }
