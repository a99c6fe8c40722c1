"""Settings as dataclasses, and what a command line or a YAML file must know of them.

In: a Config dataclass whose fields are made by `option`, `argument` and `group`.  Out: its flat list of Options.
Imports no argument parser, so that any room may define its own settings.  Next: cli.py
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from bertkit.errors import InputError
from bertkit.files import write_atomically

REQUIRED = dataclasses.MISSING
SETTINGS_FILE = "settings.yaml"
ALLOW_BIN = "open pytorch_model.bin, a pickle, where the model has no safetensors file"  # help of --allow_bin


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag or argument of a command."""

    name: str
    type: Any
    default: Any  # REQUIRED when the user must give it
    help: str  # with the unit; the default is appended by the command line
    aliases: tuple[str, ...]  # other flag names, without dashes
    positional: bool
    path: tuple[str, ...]  # where the value stands: ("masking", "mlm_probability")
    fixed: bool = False  # whether a run that is resumed keeps the value that it began with


def option(
    default: Any = REQUIRED,
    *,
    help: str,
    aliases: tuple[str, ...] = (),
    presets: Callable[[Any], Mapping[str, Any]] | None = None,
    fixed: bool = False,
) -> Any:
    """Return a dataclass field that is a flag `--name`.

    presets: of a value of it, the values of other flags where these are not given; those of an earlier flag go first.
    fixed: whether a run that is resumed keeps the value that it began with, so that another one contradicts it.
    """
    return _field(default, {"help": help, "aliases": aliases, "presets": presets, "fixed": fixed})


def argument(default: Any = REQUIRED, *, help: str) -> Any:
    """Return a dataclass field that is given by its place on the command line; a list type takes all that remain."""
    return _field(default, {"help": help, "positional": True})


def group(
    settings: type,
    *,
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> Any:
    """Return a dataclass field that holds another settings dataclass; its fields are flags of the command too.

    defaults, helps: by name, where this command's are other than those of the settings.
    without: those that would have no effect in this command, and are no flags of it.
    """
    own = dict(defaults or {})
    metadata = {"group": settings, "defaults": own, "helps": dict(helps or {}), "without": frozenset(without)}
    return dataclasses.field(default_factory=lambda: settings(**own), metadata=metadata)


def _field(default: Any, metadata: dict[str, Any]) -> Any:
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(
    config: type,
    *,
    path: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] | None = None,
) -> Iterator[Option]:
    """Yield every option of a Config class, groups opened, in the order of their fields."""
    hints = get_type_hints(config)
    for field in dataclasses.fields(config):
        if "group" in field.metadata:
            own = {"defaults": field.metadata["defaults"], "helps": field.metadata["helps"]}
            inner = options_of(field.metadata["group"], path=(*path, field.name), **own)
            yield from (one for one in inner if one.name not in field.metadata["without"])
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        default = (defaults or {}).get(field.name, default)
        yield Option(
            name=field.name,
            type=hints[field.name],
            default=default,
            help=(helps or {}).get(field.name, field.metadata["help"]),
            aliases=field.metadata.get("aliases", ()),
            positional=field.metadata.get("positional", False),
            path=(*path, field.name),
            fixed=field.metadata.get("fixed", False),
        )


def config_from(config: type, values: dict[str, Any]) -> Any:
    """Return an instance of `config` with the flat `values` {name: value} set, its groups included."""
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if field.metadata.get("presets"):
            values = {**field.metadata["presets"](values.get(field.name, field.default)), **values}
    for field in dataclasses.fields(config):
        if "group" in field.metadata:
            arguments[field.name] = config_from(field.metadata["group"], {**field.metadata["defaults"], **values})
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return config(**arguments)


def values_of(config: Any) -> dict[str, Any]:
    """Return the flat {name: value} of a Config instance, paths as text: what `settings.yaml` and `run.json` hold."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if "group" in field.metadata:
            values |= values_of(value)
        else:
            values[field.name] = str(value) if isinstance(value, Path) else value
    return values


def changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are other than by default."""
    return {name: value for name, value in values.items() if value != defaults.get(name)}


def without_effect(
    values: Mapping[str, Any], defaults: Mapping[str, Any], needs: Mapping[str, tuple[str, tuple[Any, ...]]]
) -> list[InputError]:
    """Return a problem for each value that was changed although another one leaves it without effect.

    needs: by a flag's name, the flag that it depends on, and the values of that one with which it has an effect.
    """
    return [
        InputError(
            f"has no effect with --{other} {values[other]}",
            field=f"--{name}",
            value=value,
            expected=f"--{other} {' or '.join(map(str, wanted))}",
            remedy="leave one of them out",
        )
        for name, value in changed(values, defaults).items()
        if name in needs
        for other, wanted in [needs[name]]
        if values[other] not in wanted
    ]


def unused(values: Mapping[str, Any], defaults: Mapping[str, Any], *, why: str) -> list[InputError]:
    """Return a problem for each value that was changed, none of which has an effect; why: where that is so."""
    return [
        InputError(f"has no effect {why}", field=f"--{name}", value=value, remedy="leave it out")
        for name, value in changed(values, defaults).items()
    ]


def write_settings(config: Any, directory: Path) -> None:
    """Write the resolved settings as `settings.yaml` into a folder; `--config_file` reads it back."""
    write_values(values_of(config), directory)


def write_values(values: dict[str, Any], directory: Path) -> None:
    """Write settings by name as `settings.yaml` into a folder."""
    import yaml

    text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    if yaml.safe_load(text) != values:  # a character that YAML takes for a line end (U+0085) must be escaped
        text = yaml.safe_dump(values, allow_unicode=False, sort_keys=False)
    write_atomically(directory / SETTINGS_FILE, text)
