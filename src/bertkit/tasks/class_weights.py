"""How much an example of each class counts in the loss.

In: `auto`, or a file of weights, and how often each class occurs.  Out: (labels,) float32.  Next: finetuning_run.py
"""

import json
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.labels import class_weights
from bertkit.errors import InputError
from bertkit.files import require_file

AUTO = "auto"


def weights_of_classes(given: str | None, counts: Sequence[int], names: Sequence[str]) -> NDArray[np.float32] | None:
    """Return the weight of each class, (labels,) float32; None where every example counts alike.

    given: None; `auto`: all classes count alike; or a JSON file {label: weight}, 1 for a label it does not name.

    Raises:
        InputError: no such file, no table of numbers, a label that the data does not have, a weight below 0,
            nothing but weights of 0.
    """
    if given is None:
        return None
    if given == AUTO:
        return np.array(class_weights(counts), dtype=np.float32)
    file = require_file(given, what=f'a JSON file {{"label": weight}}, or {AUTO}', remedy="check --class_weights")
    try:
        weights = {str(name): float(weight) for name, weight in json.loads(file.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError):
        raise InputError("is no table of weights", file=file, expected='JSON: {"label": weight, …}') from None
    for name, weight in weights.items():
        if name not in names:
            expected = f"one of {', '.join(names[:20])}"
            raise InputError("is no label of the data", file=file, field=name, value=name, expected=expected)
        if not 0 <= weight < math.inf:
            raise InputError("is no weight", file=file, field=name, value=weight, expected="a number of 0 or more")
    found = np.array([weights.get(name, 1.0) for name in names], dtype=np.float32)
    if not found.any():
        raise InputError("gives every class the weight 0: nothing counts", file=file, expected="a weight above 0")
    return found
