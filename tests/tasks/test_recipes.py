"""Recipes: every value is a setting of `pretrain`, and the default one is what its flags say."""

import pytest

from bertkit.commands.pretrain import Config
from bertkit.errors import InputError, InputErrors
from bertkit.model.config import MODEL_SIZES
from bertkit.options import config_from, options_of, values_of
from bertkit.tasks.recipes import DEFAULT_RECIPE, RECIPES, in_words

NEEDED = {"output_dir": "run", "data_dir": "store"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_settings_and_is_what_a_run_gets(recipe: str) -> None:
    assert RECIPES[recipe].keys() <= {option.name for option in options_of(Config)}
    given = {**NEEDED, "recipe": recipe} | ({"model_name_or_path": "model"} if recipe == "continue" else {})
    values = values_of(config_from(Config, given))
    assert {name: values[name] for name in RECIPES[recipe]} == RECIPES[recipe]


def test_the_defaults_of_the_flags_are_those_of_the_default_recipe() -> None:
    defaults = {option.name: option.default for option in options_of(Config)}
    assert {name: defaults[name] for name in RECIPES[DEFAULT_RECIPE]} == RECIPES[DEFAULT_RECIPE]
    assert Config(**NEEDED) == config_from(Config, NEEDED)


def test_a_flag_goes_before_the_recipe() -> None:
    values = values_of(config_from(Config, {**NEEDED, "recipe": "bert", "batch_size": 8}))
    assert (values["batch_size"], values["optimizer"], values["adam_epsilon"]) == (8, "adamw", 1e-6)


def test_a_recipe_is_said_with_its_values() -> None:
    said = in_words("muon", {**RECIPES["muon"], "batch_size": 8})
    assert said.startswith("recipe muon: muon, learning_rate 0.003, muon_learning_rate 0.02, batch_size 8")


def test_what_is_said_of_a_recipe_are_the_rates_in_use_and_whose_dropout_it_is() -> None:
    with_adamw = in_words("muon", {**RECIPES["muon"], "optimizer": "adamw"})
    assert with_adamw.startswith("recipe muon: adamw, learning_rate 0.003, batch_size 64")
    with_muon = in_words("bert", {**RECIPES["bert"], "optimizer": "muon", "muon_learning_rate": 0.02})
    assert with_muon.startswith("recipe bert: muon, learning_rate 0.0001, muon_learning_rate 0.02")
    assert "hidden_dropout_prob the model’s" in in_words("continue", RECIPES["continue"])


def test_a_larger_model_is_trained_at_another_rate_unless_one_is_given() -> None:
    def rate(**values: object) -> float:
        found: float = values_of(config_from(Config, {**NEEDED, **values}))["muon_learning_rate"]
        return found

    assert rate() == 0.02
    assert {rate(model_size=size) for size in (*(MODEL_SIZES.keys() - {"tiny"}), "config.json")} == {0.01}
    assert rate(model_size="mini", muon_learning_rate=0.05) == 0.05
    values = values_of(config_from(Config, {**NEEDED, "model_size": "base", "recipe": "bert"}))
    assert (values["optimizer"], values["learning_rate"]) == ("adamw", 1e-4)


def test_a_model_that_goes_on_is_trained_at_lower_rates_and_with_its_own_dropout() -> None:
    going_on = {**NEEDED, "model_name_or_path": "model"}
    values = values_of(config_from(Config, going_on))
    assert (values["recipe"], values["learning_rate"], values["muon_learning_rate"]) == ("continue", 3e-4, 2e-3)
    assert values["hidden_dropout_prob"] is values["attention_probs_dropout_prob"] is None
    assert config_from(Config, {**going_on, "optimizer": "adamw"}).training.learning_rate == 3e-4
    for recipe, rate in (("muon", 3e-3), ("bert", 1e-4)):
        assert config_from(Config, {**going_on, "recipe": recipe}).training.learning_rate == rate


def test_a_recipe_that_is_none_or_not_for_a_new_model_is_refused() -> None:
    with pytest.raises(InputError, match="--recipe: is no recipe"):
        config_from(Config, {**NEEDED, "recipe": "best"})
    with pytest.raises(InputError, match="--recipe: has the rates of a model that goes on"):
        config_from(Config, {**NEEDED, "recipe": "continue"})


@pytest.mark.parametrize("size", ["tiny", "base"])
@pytest.mark.parametrize("rate", [0.01, 0.02])
def test_a_rate_of_muon_that_no_one_chose_does_no_harm_beside_adamw(size: str, rate: float) -> None:
    settings = {**NEEDED, "recipe": "bert", "optimizer": "adamw", "model_size": size, "muon_learning_rate": rate}
    assert config_from(Config, settings).training.optimizer == "adamw"
    with pytest.raises(InputErrors, match="--muon_learning_rate: has no effect with --optimizer adamw"):
        config_from(Config, {**settings, "muon_learning_rate": 0.03})
