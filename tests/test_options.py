"""Settings as dataclasses: one list of options, and back."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.options import REQUIRED, argument, config_from, group, option, options_of, values_of


@dataclass(frozen=True)
class Masking:
    mlm_probability: float = option(0.15, help="share of tokens", aliases=("masked_lm_prob",))


@dataclass(frozen=True)
class Building:
    max_seq_length: int = option(128, help="tokens")
    masking: Masking = group(Masking)


@dataclass(frozen=True)
class Config:
    input_file: list[str] = argument(help="texts")
    output_dir: Path = option(help="folder")
    columns: list[str] = option(["text"], help="columns")
    building: Building = group(Building)


@dataclass(frozen=True)
class Short:
    building: Building = group(Building, defaults={"max_seq_length": 32})


def test_a_command_may_have_defaults_of_its_own() -> None:
    [length, rate] = options_of(Short)
    assert (length.default, rate.default) == (32, 0.15)
    assert config_from(Short, {}) == Short()
    assert Short().building.max_seq_length == 32
    assert config_from(Short, {"max_seq_length": 64}).building.max_seq_length == 64
    assert values_of(Short()) == {"max_seq_length": 32, "mlm_probability": 0.15}


@dataclass(frozen=True)
class WithRecipe:
    recipe: str = option(
        "short", help="r", presets={"short": {}, "long": {"max_seq_length": 512, "width": 3}}.__getitem__
    )
    width: int = option(1, help="w")
    building: Building = group(Building, defaults={"max_seq_length": 32})


def test_a_preset_gives_what_is_not_given() -> None:
    assert values_of(config_from(WithRecipe, {})) == {
        **{"recipe": "short", "width": 1, "max_seq_length": 32, "mlm_probability": 0.15}
    }
    found = config_from(WithRecipe, {"recipe": "long", "max_seq_length": 64})
    assert (found.width, found.building.max_seq_length) == (3, 64)
    assert config_from(WithRecipe, values_of(found)) == found  # the settings file repeats it


def test_options_come_in_order_with_groups_opened() -> None:
    options = list(options_of(Config))
    assert [each.name for each in options] == [
        "input_file",
        "output_dir",
        "columns",
        "max_seq_length",
        "mlm_probability",
    ]
    assert options[4].path == ("building", "masking", "mlm_probability")
    assert (options[4].aliases, options[4].help, options[4].default) == (("masked_lm_prob",), "share of tokens", 0.15)
    assert [each.positional for each in options] == [True, False, False, False, False]
    assert (options[0].type, options[1].type) == (list[str], Path)
    assert (options[0].default, options[1].default, options[2].default) == (REQUIRED, REQUIRED, ["text"])


@given(length=st.integers(), probability=st.floats(allow_nan=False), columns=st.lists(st.text()))
def test_values_and_config_are_each_others_inverse(length: int, probability: float, columns: list[str]) -> None:
    values = {
        "input_file": ["诗.txt"],
        "output_dir": Path("out"),
        "columns": columns,
        "max_seq_length": length,
        "mlm_probability": probability,
    }
    config = config_from(Config, values)
    assert config.building.masking.mlm_probability == probability
    assert values_of(config) == {**values, "output_dir": "out"}
    assert config_from(Config, {**values_of(config), "output_dir": Path("out")}) == config


def test_what_is_not_given_keeps_its_default() -> None:
    config = config_from(Config, {"input_file": [], "output_dir": Path("o")})
    assert config == Config(input_file=[], output_dir=Path("o"))
    assert config.building == Building(max_seq_length=128, masking=Masking(mlm_probability=0.15))


def test_a_required_value_must_be_given() -> None:
    with pytest.raises(TypeError, match="output_dir"):
        config_from(Config, {"input_file": []})


def test_a_list_default_is_not_shared() -> None:
    first, second = (config_from(Config, {"input_file": [], "output_dir": Path()}) for _ in range(2))
    first.columns.append("title")
    assert second.columns == ["text"]


def test_what_a_group_leaves_out_is_no_flag() -> None:
    @dataclass(frozen=True)
    class Inner:
        kept: int = option(1, help="k")
        gone: int = option(2, help="g")

    @dataclass(frozen=True)
    class Outer:
        inner: Inner = group(Inner, without=("gone",))

    assert [one.name for one in options_of(Outer)] == ["kept"]
    assert config_from(Outer, {"kept": 5}) == Outer(Inner(5, 2))
