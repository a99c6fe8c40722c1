"""Settings that go together: how a model is pre-trained unless one says otherwise, and how BERT was.

In: nothing.  Out: by a recipe's name, the values of flags that are not given.  Next: ../commands/pretrain.py
"""

from collections.abc import Mapping
from typing import Any, Literal

from bertkit.errors import InputError

Recipe = Literal["muon", "continue", "bert"]
Initialization = Literal["neighbours", "normal"]  # what a new model begins with; see model/head_start.py
DEFAULT_RECIPE: Recipe = "muon"
_MUON: dict[str, Any] = {
    "optimizer": "muon",
    "learning_rate": 3e-3,
    "muon_learning_rate": 0.02,
    "batch_size": 64,
    "warmup_ratio": 0.05,
    "final_learning_rate_ratio": 0.02,
    "mlm_probability": 0.4,
}
RECIPES: dict[str, dict[str, Any]] = {
    # What learns most in minutes to hours on few cores, by measurement (docs/performance.md); tuned for tiny.
    "muon": {
        **_MUON,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initialization": "neighbours",
    },
    # For a model that has learnt already: at the rates of a new one it would forget (docs/performance.md).
    "continue": {
        **_MUON,
        "learning_rate": 3e-4,
        "muon_learning_rate": 0.002,
        "hidden_dropout_prob": None,
        "attention_probs_dropout_prob": None,
    },
    # Devlin et al. 2019, appendix A.2; epsilon as in Google's optimization.py.
    "bert": {
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-6,
        "weight_decay": 0.01,
        "batch_size": 256,
        "warmup_ratio": 0.01,
        "final_learning_rate_ratio": 0.0,
        "mlm_probability": 0.15,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initialization": "normal",
    },
}
# Of a new model other than tiny, before what the recipe says: tuned for mini and small (docs/performance.md); for
# larger ones, and where a config.json says the size, it is an extrapolation.
RATE_ABOVE_TINY = 0.01
RATES = ("learning_rate", "muon_learning_rate")
NOT_OF_TRAINING = frozenset(
    {"hidden_dropout_prob", "attention_probs_dropout_prob", "initialization", "mlm_probability"}
)
TRAINING_OF_DEFAULT_RECIPE = {k: v for k, v in RECIPES[DEFAULT_RECIPE].items() if k not in NOT_OF_TRAINING}
MASKING_OF_DEFAULT_RECIPE = {"mlm_probability": RECIPES[DEFAULT_RECIPE]["mlm_probability"]}


def of_recipe(recipe: str) -> dict[str, Any]:
    """Return the values of a recipe.

    Raises:
        InputError: there is no such recipe.
    """
    if recipe not in RECIPES:
        raise InputError("is no recipe", field="--recipe", value=recipe, expected=" | ".join(RECIPES))
    return RECIPES[recipe]


def of_size(model_size: str) -> dict[str, Any]:
    """Return the values that go before the recipe's for a new model of a size (a name or a config.json)."""
    return {} if model_size == "tiny" else {"muon_learning_rate": RATE_ABOVE_TINY}


def of_loaded(model_name_or_path: str | None) -> dict[str, Any]:
    """Return the values that go before the recipe's where a model goes on: another recipe."""
    return {} if model_name_or_path is None else {"recipe": "continue"}


def in_words(recipe: Recipe, values: Mapping[str, Any]) -> str:
    """Return a recipe as one line for people, with the values in force: those given go before the recipe's.

    values: what has no effect in this run is left out of them.

    >>> in_words("bert", RECIPES["bert"]).split(", adam")[0]
    'recipe bert: adamw, learning_rate 0.0001'
    """
    names = ["learning_rate", *(["muon_learning_rate"] if values["optimizer"] == "muon" else [])]
    names += [name for name in RECIPES[recipe] if name in values and name not in ("optimizer", *RATES)]
    said = (f"{name} {'the model’s' if values[name] is None else values[name]}" for name in names)
    return f"recipe {recipe}: {values['optimizer']}, " + ", ".join(said)
