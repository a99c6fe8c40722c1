"""The front door: the command table, flags and YAML to a Config, errors to exit codes.

In: the words of the command line.  Out: an exit code (0 done, 2 the input is wrong, 130 interrupted, 143 terminated).
A command's module, and the value parser, are imported only when that command is called.  Next: flags.py
"""

import errno
import os
import select
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import get_origin

from bertkit import __version__, console
from bertkit.errors import SIGNALLED, InputError, Stopped
from bertkit.files import free_bytes
from bertkit.flags import CONFIG_FILE, HELP_FLAGS, in_words, near, split_words, values_given, with_settings_of_the_run
from bertkit.options import REQUIRED, Option, config_from, options_of

# Command -> (module in bertkit.commands, what it does).  A new command is one row here and one file there.
# A command may have two words, which are looked for before the first alone.
COMMANDS = {
    "demo": ("demo", "the whole way in about ten minutes: corpus, vocabulary, pre-training, answers"),
    "corpus": ("corpus", "fetch a real corpus by name"),
    "vocab": ("vocab", "learn a WordPiece vocabulary, add words to one, or trim one"),
    "prepare": ("prepare", "turn text into a store of token ids"),
    "inspect corpus": ("inspect_corpus", "show a text as [[sentence, …], …], and count it"),
    "inspect vocab": ("inspect_vocab", "show what stands in a vocabulary, and how it covers a corpus"),
    "inspect data": ("inspect_data", "look at prepared data as training will see it"),
    "inspect model": ("inspect_model", "show what stands in a model folder, and whether its head is trained"),
    "inspect heads": ("inspect_heads", "say which heads and layers of a model matter, or take the others out"),
    "inspect attention": ("inspect_attention", "write a page of what every head of a model looks at in a text"),
    "pretrain": ("pretrain", "pre-train BERT: masked tokens and next sentence"),
    "finetune": ("finetune", "fine-tune a model on labelled files: texts, tags, choices, questions"),
    "evaluate": ("evaluate", "measure a fine-tuned model on labelled files"),
    "predict": ("predict", "let a fine-tuned model answer a file, a line an answer"),
    "fill-mask": ("fill_mask", "say what stands behind [MASK]"),
    "next-sentence": ("next_sentence", "say whether one text follows another"),
    "embed": ("embed", "write texts as vectors, one a text or one a token"),
    "export": ("export", "write a model as one ONNX or torch.export file"),
    "report": ("report", "write the HTML page of a run again"),
}
HELP_WIDTH = 110  # columns
HELP_INDENT = 6


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` is `sys.argv[1:]` when None."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except InputError as problem:
        console.error(str(problem))
        return 2
    except Stopped as stopped:
        console.say(str(stopped))
        return SIGNALLED + stopped.signal_number
    except KeyboardInterrupt:
        console.say("interrupted; a training run goes on by --resume_from last, a build by the same command")
        return 130
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return 0
    except OSError as problem:
        if problem.filename is None:
            raise
        is_full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        free = f" ({free_bytes(Path(problem.filename)):,} bytes are free)" if is_full else ""
        console.error(f"{problem.filename}: {problem.strerror}{free}")
        return 2


def _run(words: list[str]) -> int:
    if not words or words[0] in (*HELP_FLAGS, "help"):
        console.result(overview())
        return 0
    if words[0] == "--version":
        console.result(f"bertkit {__version__}")
        return 0
    command, rest_of_words = _command_in(words)
    if command in _first_words():  # a first word that is no command by itself
        console.result(overview(command))
        return 0
    module = import_module(f"bertkit.commands.{COMMANDS[command][0]}")
    options = list({option.name: option for option in [*options_of(module.Config), CONFIG_FILE]}.values())
    flags, rest, wants_help = split_words(command, rest_of_words, options)
    if wants_help:
        unknown = module.unknown_options(rest) if hasattr(module, "unknown_options") else frozenset()
        console.result(help_of(command, [option for option in options if option.name not in unknown]))
        return 0
    flags = with_settings_of_the_run(flags)
    module.run(config_from(module.Config, values_given(command, flags, rest, options)))
    return 0


def _command_in(words: list[str]) -> tuple[str, list[str]]:
    """The command that the words begin with, and the words behind it; a first word alone where help on it is asked.

    Raises:
        InputError: they begin with no command.
    """
    for length in (2, 1):
        command = " ".join(words[:length]).replace("_", "-")
        if command in COMMANDS:
            return command, words[length:]
    first, second = words[0].replace("_", "-"), words[1:2]
    if first not in _first_words():
        known, remedy = ", ".join(COMMANDS), "bertkit --help lists the commands"
        remedy = near(first, COMMANDS) or remedy
        raise InputError("is not a command", field="bertkit", value=words[0], expected=f"one of {known}", remedy=remedy)
    if not second or second[0] in HELP_FLAGS:
        return first, []
    seconds = [name.split()[1] for name in COMMANDS if name.startswith(f"{first} ")]
    remedy = near(second[0], seconds) or f"bertkit {first} --help says what each shows"
    expected = f"one of {', '.join(seconds)}"
    raise InputError("is not a command", field=f"bertkit {first}", value=second[0], expected=expected, remedy=remedy)


def _first_words() -> set[str]:
    """The first words of commands of two, unless they are commands themselves."""
    return {name.split()[0] for name in COMMANDS if " " in name} - COMMANDS.keys()


def _reader_is_gone() -> bool:
    """True when standard output or error is a pipe that nobody reads any more (`bertkit ... | head`).

    Such a stream is turned to nowhere, so that Python's own flush at exit has nothing to complain of.
    """
    gone = False
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            gone = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
    return gone


def overview(first_word: str = "") -> str:
    """Return what `bertkit --help` shows, every command in a line; or those of two words that begin with one."""
    shown = [name for name in COMMANDS if not first_word or name.startswith(f"{first_word} ")]
    commands = console.table([(name, COMMANDS[name][1]) for name in shown])
    return f"""usage: bertkit COMMAND [--flag VALUE ...]

BERT the whole way through: raw text in, a pre-trained model folder out.

commands:
{commands}

bertkit COMMAND --help   the flags of a command, with units and defaults
bertkit --version        the version
"""


def help_of(command: str, options: list[Option]) -> str:
    """Return what `bertkit COMMAND --help` shows: usage, then every option with type, default and meaning."""
    positional = [option for option in options if option.positional]
    flags = [option for option in options if not option.positional]
    needed = [f"--{option.name} VALUE" for option in flags if option.default is REQUIRED]
    words = [_place(option) if option.default is REQUIRED else f"[{_place(option)}]" for option in positional]
    lines = [" ".join(["usage: bertkit", command, *words, *needed, "[--flag VALUE ...]"]), ""]
    lines += [COMMANDS[command][1][0].upper() + COMMANDS[command][1][1:] + "."]
    for title, part in (("arguments:", positional), ("flags:", flags)):
        if part:
            lines += ["", title]
            lines += [line for option in part for line in _help_lines(option)]
    lines += ["  --help", " " * HELP_INDENT + "show this text"]
    return "\n".join(lines)


def _help_lines(option: Option) -> list[str]:
    names = ", ".join(f"--{name}" for name in (option.name, *option.aliases))
    default = "required" if option.default is REQUIRED else f"default: {_shown(option.default)}"
    text = f"{option.help} ({in_words(option.type)}; {default})"
    indent = " " * HELP_INDENT
    head = _place(option) if option.positional else names
    return [f"  {head}", *textwrap.wrap(text, HELP_WIDTH, initial_indent=indent, subsequent_indent=indent)]


def _place(option: Option) -> str:
    return option.name.upper() + (" ..." if get_origin(option.type) is list else "")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | tuple):
        return ",".join(map(str, default)) or "empty"
    return "null" if default is None else str(default)
