"""Words of a command line, and a settings file, to typed values.

In: words, and the Options of a command.  Out: {option name: value}; whatever is wrong is collected and said at once.
Next: options.py
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from bertkit.errors import InputError, InputErrors
from bertkit.files import require_file
from bertkit.options import REQUIRED, SETTINGS_FILE, Option

HELP_FLAGS = ("--help", "-h")
TRUE_WORDS, FALSE_WORDS = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# Behind a boolean flag these are its value; any other word ("on", say) may be a text: --json "on".
VALUES_OF_A_BARE_FLAG = ("true", "false", "1", "0", "null")
CONFIG_FILE = Option(
    name="config_file",
    type=Path | None,
    default=None,
    help="YAML or JSON file of flags, names without dashes, such as the settings.yaml of a run; flags override it",
    aliases=(),
    positional=False,
    path=("config_file",),
)


@dataclass(frozen=True)
class Given:
    """One value as it was given: on the command line (no file), or in a settings file."""

    option: Option
    raw: Any
    file: Path | None = None
    line: int | None = None

    @property
    def field(self) -> str:
        """The name a user knows it by."""
        return self.option.name if self.file or self.option.positional else f"--{self.option.name}"


def split_words(command: str, words: list[str], options: list[Option]) -> tuple[list[Given], list[str], bool]:
    """Return the flags as given, the words that are no flags, and whether help is asked for (those before it then).

    A flag is `--name value` or `--name=value`, with underscores or hyphens; a bare boolean means true;
    a value may begin with one dash; after a lone `--` no word is a flag.

    Raises:
        InputErrors: flags the command does not have, and flags without a value.
    """
    given: list[Given] = []
    rest: list[str] = []
    problems: list[InputError] = []
    position = 0
    while position < len(words):
        word, following = words[position], words[position + 1 : position + 2]
        position += 1
        if word == "--":
            rest += words[position:]
            break
        if word in HELP_FLAGS:
            return [], rest, True
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, equals, text = word.partition("=")
        option = _option_named(name, options) if name.startswith("--") else None
        if option is None:
            problems.append(_unknown_flag(command, name, options))
            if not equals and following and not following[0].startswith("-"):
                position += 1  # its value, which would only be a second error
        elif equals:
            given.append(Given(option, text))
        elif _allows(option.type, bool) and not (following and following[0].lower() in VALUES_OF_A_BARE_FLAG):
            given.append(Given(option, True))
        elif following and not following[0].startswith("--"):
            given.append(Given(option, following[0]))
            position += 1
        else:
            remedy = f"write --{option.name} VALUE, or --{option.name}=VALUE for a value that begins with --"
            expected = in_words(option.type)
            problems.append(InputError("has no value", field=f"--{option.name}", expected=expected, remedy=remedy))
    if problems:
        raise InputErrors(problems)
    return given, rest, False


def with_settings_of_the_run(flags: list[Given]) -> list[Given]:
    """Return the flags, before them the settings file of the run that they resume: what is not said stays as it was."""
    given = {flag.option.name: flag.raw for flag in flags}
    if "resume_from" not in given or "output_dir" not in given or CONFIG_FILE.name in given:
        return flags
    path = Path(given["output_dir"]) / SETTINGS_FILE
    if not path.is_file():
        return flags
    # The steps stand in the file since the run began, whatever they were made from; repeating that says nothing new.
    kept = [flag for flag in flags if flag.option.name not in ("num_train_epochs", "max_minutes")]
    return [Given(CONFIG_FILE, str(path)), *kept]


def values_given(command: str, flags: list[Given], words: list[str], options: list[Option]) -> dict[str, Any]:
    """Return the typed values by option name: of the settings file, overridden by flags and words.

    Raises:
        InputErrors: values of a wrong type, keys that are no option, options that are required and missing.
    """
    values: dict[str, Any] = {}
    problems: list[InputError] = []
    given: list[Given] = []
    for flag in flags:
        if flag.option is CONFIG_FILE:
            remedy = "check --config_file"
            file = require_file(flag.raw, what="a YAML or JSON file of flags", remedy=remedy)
            settings, unknown = read_settings(file, options)
            given += settings
            problems += unknown
    given += [flag for flag in flags if flag.option is not CONFIG_FILE]
    given += _by_place(command, words, options)
    for one in given:
        try:
            values[one.option.name] = typed(one.option.type, one.raw)
        except ValueError:
            problems.append(_wrong_value(command, one))
    present = {one.option.name for one in given}
    if not problems and values.get("resume_from") is not None:  # a settings file has a null for a run that was none
        problems += _contradictions(given)
    for option in options:
        if option.default is REQUIRED and option.name not in present:
            field = Given(option, None).field
            problems.append(InputError("is missing", field=field, expected=in_words(option.type), remedy=option.help))
    if problems:
        raise InputErrors(problems)
    return values


def _contradictions(given: list[Given]) -> Iterator[InputError]:
    """A problem for each flag that gives a resumed run another beginning than its settings file says."""
    before = {one.option.name: typed(one.option.type, one.raw) for one in given if one.file and one.option.fixed}
    for one in given:
        name, value = one.option.name, typed(one.option.type, one.raw)
        if one.file is None and name in before and value != before[name]:
            yield InputError(
                "contradicts the run that is resumed",
                field=one.field,
                value=value,
                expected=f"{'null' if before[name] is None else before[name]}, as when it began",
                remedy="leave it out, or start a new run without --resume_from, in another --output_dir",
            )


def _by_place(command: str, words: list[str], options: list[Option]) -> Iterator[Given]:
    for option in options:
        if option.positional and words:
            if get_origin(option.type) is list:
                yield Given(option, words)
                return
            yield Given(option, words[0])
            words = words[1:]
    if words:
        remedy = f"put a text with spaces in quotes; flags begin with --; see bertkit {command} --help"
        raise InputError("is one word too many", field=f"bertkit {command}", value=words[0], remedy=remedy)


def read_settings(file: Path, options: list[Option]) -> tuple[list[Given], list[InputError]]:
    """Return what a YAML or JSON file gives, and a problem for each key that is no option or stands there twice."""
    given: dict[str, Given] = {}
    problems: list[InputError] = []
    for key, value, line in _pairs(file):
        option = _option_named(key, options)
        if option is None or option is CONFIG_FILE:
            problem = "is not a setting of this command"
            remedy = near(key.replace("-", "_"), _names(options)) or "remove the line"
        elif option.name in given:
            problem, remedy = _twice(given[option.name].line), "keep one of the two"
        else:
            given[option.name] = Given(option, value, file, line)
            continue
        problems.append(InputError(problem, file=file, line=line, field=key, remedy=remedy))
    return list(given.values()), problems


def _twice(line: int | None) -> str:
    return "is given twice" + (f", first in line {line}" if line else "")


def _pairs(file: Path) -> Iterator[tuple[str, Any, int | None]]:
    """Yield (key, value, line) of a flat mapping in JSON (which gives no lines) or YAML; nothing is run."""
    import yaml

    remedy = "write one `name: value` a line, names as the flags without dashes"
    expected = "YAML or JSON: a mapping of flag names to values"
    try:
        text = file.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("{"):
            # YAML reads most JSON, but not its tabs, and not its characters written as two surrogates.
            yield from ((key, value, None) for key, value in json.loads(text, object_pairs_hook=list))
            return
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot be read: {reason}", file=file, expected=expected, remedy=remedy) from None
    if node is None:
        return
    if not isinstance(node, yaml.MappingNode):
        raise InputError("is not a mapping", file=file, expected=expected, remedy=remedy)
    for key_node, value_node in node.value:
        try:
            value = loader.construct_object(value_node, deep=True)
        except (yaml.YAMLError, ValueError):
            value = value_node.value  # a tag that asks for code, or no possible date: only text to us
        yield str(key_node.value), value, key_node.start_mark.line + 1


def typed(type_: Any, raw: Any) -> Any:
    """Return `raw` (a word, or a value of a settings file) as `type_`.

    >>> typed(int | None, "12"), typed(bool, "no"), typed(list[str], "a,b"), typed(str, "1:30")
    (12, False, ['a', 'b'], '1:30')

    Raises:
        ValueError: it is not one.
    """
    if raw is None or (raw == "null" and _allows(type_, NoneType)):
        if _allows(type_, NoneType):
            return None
        raise ValueError
    if isinstance(raw, str) and _allows(type_, str):
        return raw  # never through a parser, which would see more than text in "# 1" or "~"
    if _allows(type_, bool) and isinstance(raw, str | int) and str(raw).lower() in TRUE_WORDS + FALSE_WORDS:
        return str(raw).lower() in TRUE_WORDS
    if isinstance(raw, str) and _is_list(type_):
        raw = json.loads(raw) if raw.startswith("[") and raw.endswith("]") else raw.split(",")
    return _parsed(type_, raw)


def _parsed(type_: Any, raw: Any) -> Any:
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False, parser_mode="json")
    parser.add_argument("--value", type=type_)
    try:
        value = parser.parse_object({"value": raw}, defaults=False)["value"]
    except ArgumentError as error:
        raise ValueError(str(error)) from None
    # The parser reads 1:30 as ninety and 0x10 as sixteen; a person who writes them means something else.
    if isinstance(raw, str) and isinstance(value, int | float):
        value = int(raw) if isinstance(value, int) else float(raw)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return value


def _wrong_value(command: str, one: Given) -> InputError:
    expected, remedy = in_words(one.option.type), f"see bertkit {command} --help"
    if isinstance(one.raw, str):
        remedy = near(one.raw, _choices(one.option.type)) or remedy
    elif _allows(one.option.type, str) and one.raw is not None:
        remedy = "put the value in quotes"
    value = "null" if one.raw is None else one.raw
    problem = f"is not {expected}"
    return InputError(problem, file=one.file, line=one.line, field=one.field, value=value, remedy=remedy)


def _unknown_flag(command: str, name: str, options: list[Option]) -> InputError:
    remedy = near(name.lstrip("-").replace("-", "_"), _names(options), prefix="--")
    if not remedy and any(option.positional for option in options):
        remedy = "a text that begins with a dash comes after a lone --"
    remedy = remedy or f"see bertkit {command} --help"
    return InputError("is not a flag of this command", field=name, remedy=remedy)


def _option_named(name: str, options: list[Option]) -> Option | None:
    name = name.removeprefix("--").replace("-", "_")
    return next((option for option in options if name in (option.name, *option.aliases)), None)


def _names(options: list[Option]) -> list[str]:
    return [name for option in options for name in (option.name, *option.aliases)]


def near(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return a question that names what is written most like `word`, or "".

    >>> near("max_step", ["max_steps", "seed"], prefix="--")
    'did you mean --max_steps?'
    """
    matches = get_close_matches(word, known, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(prefix + match for match in matches)}?" if matches else ""


# --- types -----------------------------------------------------------------------------------------------------------


def in_words(type_: Any) -> str:
    """Return what a value of the type is, in a user's words.

    >>> in_words(int | None), in_words(Literal["token", "span"])
    ('a whole number or null', 'one of token, span')
    """
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    if get_origin(type_) is Literal:
        return f"one of {', '.join(map(str, get_args(type_)))}"
    if get_origin(type_) in (list, tuple):
        return f"a list, its items separated by commas, each {in_words(get_args(type_)[0])}"
    members = [member for member in _members(type_) if member is not NoneType]
    if len(members) == 1 and members[0] in words:
        text = words[members[0]]
    else:
        text = " or ".join(in_words(member) for member in members)
    return f"{text} or null" if _allows(type_, NoneType) else text


def _members(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)


def _allows(type_: Any, member: type) -> bool:
    return member in _members(type_)


def _is_list(type_: Any) -> bool:
    return any(get_origin(member) in (list, tuple) for member in _members(type_))


def _choices(type_: Any) -> list[str]:
    literals = [member for member in _members(type_) if get_origin(member) is Literal]
    return [str(choice) for member in literals for choice in get_args(member)]
