"""BERT the whole way through: the public names and nothing else.

In: `from bertkit import load`.  Out: the name, its module imported on first use, so that `import bertkit` costs nothing
and brings no torch.  Next: cli.py
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> the module it lives in.  A new public name is one row here.
_PUBLIC = {
    "Chooser": "bertkit.pipelines.tasks",
    "Embedder": "bertkit.pipelines",
    "FillMask": "bertkit.pipelines",
    "InputError": "bertkit.errors",
    "NextSentence": "bertkit.pipelines",
    "QuestionAnswerer": "bertkit.pipelines.tasks",
    "Tagger": "bertkit.pipelines.tasks",
    "TaskConfig": "bertkit.model.task_config",
    "TextClassifier": "bertkit.pipelines.tasks",
    "load": "bertkit.model.pretrained",
    "push_to_hub": "bertkit.model.hub",
    "save": "bertkit.model.pretrained",
}


def __getattr__(name: str) -> Any:
    """Return the public `name`, imported now (Python calls this for names the module does not have yet)."""
    if name not in _PUBLIC:
        raise AttributeError(f"bertkit has no {name!r}; its public names are {', '.join(_PUBLIC)}")
    value = vars(import_module(_PUBLIC[name]))[name]
    globals()[name] = value  # the second use does not come here
    return value


def __dir__() -> list[str]:
    """Return the public names, so that completion shows them before they are imported."""
    return sorted([*_PUBLIC, "__version__"])
