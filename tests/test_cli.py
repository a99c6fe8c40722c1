"""The front door: command table, flags, settings files, exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertkit
from bertkit import cli, flags
from bertkit.errors import InputError
from bertkit.options import REQUIRED, SETTINGS_FILE, argument, config_from, group, option, options_of, write_settings

WRITTEN = [
    name for name, (module, _) in cli.COMMANDS.items() if (Path(cli.__file__).parent / f"commands/{module}.py").exists()
]


@dataclass(frozen=True)
class Masking:
    mlm_probability: float = option(0.15, help="share of tokens to mask, 0 to 1", aliases=("masked_lm_prob",))
    masking: Literal["token", "whole_word"] = option("token", help="what is masked together")


@dataclass(frozen=True)
class Config:
    text: list[str] = argument(help="texts")
    output_dir: Path = option(Path("out"), help="folder")
    max_steps: int | None = option(None, help="steps")
    pad_to: int | Literal["longest"] = option("longest", help="tokens")
    layers: str = option("-1", help="layers, counted from the end when negative")
    columns: list[str] = option([], help="column names")
    do_lower_case: bool = option(False, help="whether to lower-case")
    note: str | None = option(None, help="free text")
    masking: Masking = group(Masking)


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Run `bertkit trial WORDS` and return the Config that its run() got."""
    module = ModuleType("bertkit.commands.trial")
    seen: list[Config] = []
    vars(module).update(Config=Config, run=seen.append)
    monkeypatch.setitem(sys.modules, "bertkit.commands.trial", module)
    monkeypatch.setitem(cli.COMMANDS, "trial", ("trial", "a command of this test"))

    def run(*words: str) -> Config:
        assert cli.main(["trial", *words]) == 0
        return seen[-1]

    return run


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run `bertkit trial WORDS`, which must end with exit code 2, and return what it says."""
    assert cli.main(["trial", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


def test_defaults_stand_where_nothing_is_given(trial: Callable[..., Config]) -> None:
    assert trial("明月几[MASK]有？") == Config(text=["明月几[MASK]有？"])


def test_flags_set_fields_and_fields_of_groups(trial: Callable[..., Config]) -> None:
    config = trial("a", "--max_steps", "20", "--output_dir=跑", "--mlm_probability", "5e-1", "--masking", "whole_word")
    assert (config.max_steps, config.output_dir) == (20, Path("跑"))
    assert config.masking == Masking(mlm_probability=0.5, masking="whole_word")


def test_flags_may_have_hyphens_and_aliases(trial: Callable[..., Config]) -> None:
    config = trial("a", "--max-steps=3", "--masked-lm-prob", "0.2")
    assert (config.max_steps, config.masking.mlm_probability) == (3, 0.2)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--do_lower_case"], True),
        (["--do_lower_case", "false"], False),
        (["--do_lower_case", "0"], False),
        (["--do_lower_case=1"], True),
        (["--do_lower_case", "TRUE"], True),
        (["--do_lower_case=no"], False),
        (["--do_lower_case", "--max_steps", "3"], True),
    ],
)
def test_a_boolean_flag_may_be_bare(trial: Callable[..., Config], words: list[str], value: bool) -> None:
    assert trial("a", *words).do_lower_case is value


def test_a_bare_boolean_flag_leaves_the_text_behind_it_alone(trial: Callable[..., Config]) -> None:
    config = trial("--do_lower_case", "Peace [MASK] be", "--max_steps", "1", "山[MASK]水")
    assert (config.do_lower_case, config.text) == (True, ["Peace [MASK] be", "山[MASK]水"])


def test_a_value_may_begin_with_a_dash(trial: Callable[..., Config]) -> None:
    assert trial("a", "--layers", "-1,-2").layers == "-1,-2"
    assert trial("a", "--max_steps", "-1").max_steps == -1
    assert trial("a", "--layers=--x").layers == "--x"


def test_after_a_lone_double_dash_no_word_is_a_flag(trial: Callable[..., Config]) -> None:
    assert trial("--max_steps", "2", "--", "-5度", "--help").text == ["-5度", "--help"]


def test_a_list_flag_is_cut_at_commas(trial: Callable[..., Config]) -> None:
    assert trial("a", "--columns", "正文,title").columns == ["正文", "title"]
    assert trial("a", "--columns", '["a,b", "c"]').columns == ["a,b", "c"]


def test_null_gives_none_where_none_is_allowed(trial: Callable[..., Config]) -> None:
    assert trial("a", "--max_steps", "null").max_steps is None
    assert trial("a", "--note", "null").note is None
    assert trial("a", "--layers", "null").layers == "null"


def test_a_union_takes_each_of_its_types(trial: Callable[..., Config]) -> None:
    assert trial("a", "--pad_to", "128").pad_to == 128
    assert trial("a", "--pad_to", "longest").pad_to == "longest"


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_options_keep_every_character(text: str) -> None:
    assert flags.typed(str, text) == text
    assert flags.typed(str | None, text) == (None if text == "null" else text)


@given(number=st.integers())
def test_whole_numbers_come_back_as_they_were_written(number: int) -> None:
    assert flags.typed(int, str(number)) == number


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_as_they_were_written(number: float) -> None:
    assert flags.typed(float, repr(number)) == number


@pytest.mark.parametrize("raw", ["1:30", "0x10", "1.5", "1e3", "", "three", "true", True, 2.0, [1], None])
def test_what_is_not_a_whole_number_is_none(raw: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its message is made by the caller
        flags.typed(int, raw)


@pytest.mark.parametrize("raw", ["nan", "inf", "1,5", "x", float("nan")])
def test_what_is_not_a_finite_number_is_no_number(raw: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its message is made by the caller
        flags.typed(float, raw)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["a", "--max_steps", "ten"], ["--max_steps: is not a whole number or null", "'ten'", "bertkit trial --help"]),
        (["a", "--masking", "whole_words"], ["one of token, whole_word", "did you mean whole_word?"]),
        (["a", "--max_step", "3"], ["--max_step: is not a flag of this command", "did you mean --max_steps?"]),
        (["a", "--zzz=3"], ["--zzz: is not a flag", "after a lone --"]),
        (["-5度"], ["-5度: is not a flag", "after a lone --"]),
        (["a", "--output_dir"], ["--output_dir: has no value", "a path", "--output_dir=VALUE"]),
        (["a", "--output_dir", "--max_steps", "3"], ["--output_dir: has no value"]),
        ([], ["text: is missing", "a list", "texts"]),
        (["a", "--do_lower_case=maybe"], ["--do_lower_case: is not true or false", "'maybe'"]),
        (["a", "--config_file", "/nowhere.yaml"], ["/nowhere.yaml: does not exist", "check --config_file"]),
    ],
)
def test_a_slip_is_one_message_and_exit_code_2(
    trial: Callable[..., Config], capsys: pytest.CaptureFixture[str], words: list[str], parts: list[str]
) -> None:
    message = failure(capsys, *words)
    for part in parts:
        assert part in message


def test_all_slips_are_said_at_once(trial: Callable[..., Config], capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "a", "--max_steps", "x", "--pad_to", "y", "--mlm_probability", "z")
    assert "3 of 3 problems shown" in message


def test_a_word_too_many_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "runs/a", "runs/b"]) == 2
    assert "bertkit report: is one word too many\n  value: 'runs/b'" in capsys.readouterr().err


# --- settings files --------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "settings.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


SETTINGS = "# 设置\ntext: [明月]\nmax_steps: 7\nmlm_probability: 5e-2\ndo-lower-case: yes\npad_to: 64\nnote: '012'\n"


def test_a_settings_file_gives_values(trial: Callable[..., Config], settings: Callable[[str], str]) -> None:
    config = trial("--config_file", settings(SETTINGS))
    assert (config.text, config.max_steps, config.pad_to, config.note) == (["明月"], 7, 64, "012")
    assert (config.masking.mlm_probability, config.do_lower_case) == (0.05, True)


@pytest.mark.parametrize("before", [True, False])
def test_flags_override_the_settings_file_wherever_they_stand(
    trial: Callable[..., Config], settings: Callable[[str], str], before: bool
) -> None:
    words = [["--max_steps", "9"], ["--config-file", settings(SETTINGS)]]
    config = trial(*(word for part in (words if before else words[::-1]) for word in part), "另一句")
    assert (config.max_steps, config.text, config.pad_to) == (9, ["另一句"], 64)


def test_a_settings_file_may_be_json_with_tabs_and_a_byte_order_mark(
    trial: Callable[..., Config], settings: Callable[[str], str]
) -> None:
    text = "\ufeff" + json.dumps({"text": ["a"], "max_steps": 7, "layers": "-1,\u2028"}, indent=2, ensure_ascii=False)
    assert trial("--config_file", settings(text)).layers == "-1,\u2028"
    text = json.dumps({"text": ["𠮷野家\t\\"], "masking": "whole_word"}, indent="\t")
    config = trial("--config_file", settings(text))
    assert (config.text, config.masking.masking) == (["𠮷野家\t\\"], "whole_word")


def test_an_empty_settings_file_gives_nothing(trial: Callable[..., Config], settings: Callable[[str], str]) -> None:
    assert trial("a", "--config_file", settings("# nothing\n")) == Config(text=["a"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("max_steps: 3\nmax_stepz: 3\n", ["settings.yaml:2: max_stepz: is not a setting", "did you mean max_steps?"]),
        ("qqqq: 3\n", ["settings.yaml:1: qqqq: is not a setting of this command", "remove the line"]),
        ("max_steps: 3\n\nmax_steps: 4\n", ["settings.yaml:3: max_steps: is given twice, first in line 1", "keep one"]),
        ("max_steps: 3\nmax-steps: 4\n", ["settings.yaml:2: max-steps: is given twice, first in line 1"]),
        ("max_steps: many\n", ["settings.yaml:1: max_steps: is not a whole number", "'many'"]),
        ("layers: 3\n", ["settings.yaml:1: layers: is not text", "put the value in quotes"]),
        ("layers: 2020-13-45\n", ["layers"]),
        ("layers: null\n", ["settings.yaml:1: layers: is not text", "'null'"]),
        ("config_file: other.yaml\n", ["config_file: is not a setting"]),
        ('{"max_steps": 3, "max_steps": 4}', ["settings.yaml: max_steps: is given twice\n"]),
        ('{"max_steps": 3,}', ["settings.yaml: cannot be read"]),
        ("- a\n- b\n", ["settings.yaml: is not a mapping", "one `name: value` a line"]),
        ("a: [1\n", ["settings.yaml: cannot be read", "YAML or JSON"]),
    ],
)
def test_a_slip_in_a_settings_file_names_file_line_and_key(
    trial: Callable[..., Config],
    settings: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    text: str,
    parts: list[str],
) -> None:
    if text.startswith("layers: 2020"):
        assert trial("a", "--config_file", settings(text)).layers == "2020-13-45"  # no date: text, unchanged
        return
    message = failure(capsys, "a", "--config_file", settings(text))
    for part in parts:
        assert part in message


def test_a_settings_file_that_is_not_utf8_is_named(
    trial: Callable[..., Config], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_bytes("note: 明月".encode("gb18030"))
    assert "s.yaml: cannot be read" in failure(capsys, "a", "--config_file", str(tmp_path / "s.yaml"))


def test_a_settings_file_runs_no_code(
    trial: Callable[..., Config],
    settings: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    message = failure(capsys, "a", "--config_file", settings(f"max_steps: !!python/object/apply:os.mkdir ['{mark}']\n"))
    assert "max_steps: is not a whole number" in message
    assert not mark.exists()


@given(
    text=st.lists(st.text(), min_size=1),
    note=st.none() | st.text().filter(lambda text: text != "null"),
    layers=st.sampled_from(
        ["null", "012", "1:30", "~", "# 1", "yes", "-1,-2", "明月", "a\u2028b", "1e-5", "2020-01-01"]
    ),
    probability=st.floats(0, 1),
    pad_to=st.integers() | st.just("longest"),
)
def test_a_run_is_repeated_from_the_settings_it_wrote(
    tmp_path_factory: pytest.TempPathFactory,
    text: list[str],
    note: str | None,
    layers: str,
    probability: float,
    pad_to: Any,
) -> None:
    config = Config(
        text=text,
        output_dir=Path("跑/1"),
        pad_to=pad_to,
        layers=layers,
        columns=["a,b", "[c]"],
        do_lower_case=True,
        note=note,
        masking=Masking(mlm_probability=probability, masking="whole_word"),
    )
    folder = tmp_path_factory.mktemp("run")
    write_settings(config, folder)
    options = [*options_of(Config), flags.CONFIG_FILE]
    written = [flags.Given(flags.CONFIG_FILE, str(folder / SETTINGS_FILE))]
    assert config_from(Config, flags.values_given("trial", written, [], options)) == config


# --- exit codes and help ---------------------------------------------------------------------------------------------


def run_that_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(config: object) -> None:
        raise error

    module = ModuleType("bertkit.commands.trial")
    vars(module).update(Config=Masking, run=run)
    monkeypatch.setitem(sys.modules, "bertkit.commands.trial", module)
    monkeypatch.setitem(cli.COMMANDS, "trial", ("trial", "a command of this test"))


def test_an_input_error_is_printed_and_gives_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_that_raises(monkeypatch, InputError("is empty", file="诗.txt", line=3))
    assert cli.main(["trial"]) == 2
    assert capsys.readouterr().err == "error: 诗.txt:3: is empty\n"


def test_an_interrupt_gives_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_that_raises(monkeypatch, KeyboardInterrupt())
    assert cli.main(["trial"]) == 130
    assert capsys.readouterr().err.startswith("interrupted; a training run goes on by --resume_from last")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    run_that_raises(monkeypatch, ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main(["trial"])


def test_a_broken_pipe_that_is_not_the_terminal_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    run_that_raises(monkeypatch, BrokenPipeError("a worker's"))
    with pytest.raises(BrokenPipeError, match="a worker's"):
        cli.main(["trial"])


def test_a_reader_that_stops_early_is_no_error() -> None:
    code = (
        "import sys; from bertkit import cli, console\n"
        "cli.overview = lambda: [console.result('明月' * 9999) for _ in range(99)] and ''\n"
        "sys.exit(cli.main(['--help']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(2) == "明月"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in cli.COMMANDS)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bertkit {bertkit.__version__}\n"


def test_an_unknown_command_gets_a_near_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrian"]) == 2
    assert "did you mean pretrain" in capsys.readouterr().err
    assert cli.main(["xyzzy"]) == 2
    assert "bertkit --help lists the commands" in capsys.readouterr().err


@pytest.fixture
def two_words(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Config]:
    """Run a command line, with `trial one` and `trial two` for commands; return the Config that its run() got."""
    seen: list[Config] = []
    for name in ("one", "two"):
        module = ModuleType(f"bertkit.commands.trial_{name}")
        vars(module).update(Config=Config, run=seen.append)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, f"trial {name}", (f"trial_{name}", f"look at {name}"))

    def run(line: str) -> Config:
        assert cli.main(line.split()) == 0
        return seen[-1]

    return run


def test_a_command_may_have_two_words(two_words: Callable[[str], Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert two_words("trial two 明月 --max_steps 3") == Config(text=["明月"], max_steps=3)
    assert cli.main(["trial", "one", "--help"]) == 0
    assert "usage: bertkit trial one TEXT ... [--flag VALUE ...]\n\nLook at one." in capsys.readouterr().out
    assert cli.main(["trial", "one"]) == 2
    assert "text: is missing" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["trial"], ["trial", "--help"]])
def test_the_first_word_of_two_shows_the_second_ones(
    two_words: Callable[[str], Config], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "  trial one  look at one\n  trial two  look at two\n" in printed
    assert "pretrain" not in printed.split("commands:")[1].split("\n\n")[0]


def test_an_unknown_second_word_gets_a_near_match(
    two_words: Callable[[str], Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["trial", "tow"]) == 2
    printed = capsys.readouterr().err
    assert "bertkit trial: is not a command\n  value: 'tow'\n  expected: one of one, two" in printed
    assert "did you mean two?" in printed
    assert cli.main(["trial", "xyzzy"]) == 2
    assert "bertkit trial --help says what each shows" in capsys.readouterr().err


def test_a_first_word_that_is_a_command_itself_takes_what_is_no_second_word(
    two_words: Callable[[str], Config], trial: Callable[..., Config]
) -> None:
    assert trial("three").text == ["three"]
    assert two_words("trial two three").text == ["three"]


def test_a_command_may_be_written_with_an_underscore(capsys: pytest.CaptureFixture[str]) -> None:
    if "fill-mask" not in WRITTEN:
        pytest.skip("fill-mask is not written yet")
    assert cli.main(["fill_mask", "--help"]) == 0
    assert "bertkit fill-mask" in capsys.readouterr().out


def test_help_shows_type_default_and_alias(trial: Callable[..., Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trial", "a", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "usage: bertkit trial TEXT ... [--flag VALUE ...]" in lines
    assert lines[lines.index("--mlm_probability, --masked_lm_prob") + 1] == (
        "share of tokens to mask, 0 to 1 (a number; default: 0.15)"
    )
    assert lines[lines.index("--do_lower_case") + 1] == "whether to lower-case (true or false; default: false)"
    assert lines[lines.index("--columns") + 1].endswith("default: empty)")
    assert lines[lines.index("TEXT ...") + 1].endswith("each text; required)")


@pytest.mark.parametrize("name", WRITTEN)
def test_every_option_of_every_command_is_explained(name: str) -> None:
    config: Any = import_module(f"bertkit.commands.{cli.COMMANDS[name][0]}").Config
    known: dict[str, object] = {}
    for each in options_of(config):
        assert each.help.strip(), f"{each.name} has no help"
        assert not each.help.endswith("."), f"{each.name}: type and default follow, so no full stop"
        assert "default" not in each.help.lower().split("(")[-1] or each.default is None or each.default is REQUIRED
        assert known.setdefault(each.name, each.type) == each.type, f"{each.name} means two things"
        if each.default is not REQUIRED and each.default is not None and not isinstance(each.default, list | tuple):
            written = str(each.default).lower() if isinstance(each.default, bool) else str(each.default)
            assert flags.typed(each.type, written) == each.default, f"{each.name}: its default cannot be typed"
    names = flags._names(list(options_of(config)))
    assert len(set(names)) == len(names) or len(known) < len(names)


def test_help_of_every_command_comes_without_torch() -> None:
    code = (
        "import sys; from bertkit import cli\n"
        "for name in sys.argv[1:]:\n"
        "    assert cli.main([name, '--help']) == 0\n"
        "    assert 'torch' not in sys.modules, name\n"
        "    assert 'transformers' not in sys.modules, name\n"
    )
    answer = subprocess.run([sys.executable, "-c", code, *WRITTEN], capture_output=True, text=True, encoding="utf-8")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_python_m_bertkit_is_the_same_command() -> None:
    answer = subprocess.run([sys.executable, "-m", "bertkit", "reprot"], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "did you mean report" in answer.stderr


def test_a_file_error_is_one_line_with_the_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_that_raises(monkeypatch, NotADirectoryError(20, "Not a directory", "file/x"))
    assert cli.main(["trial"]) == 2
    assert capsys.readouterr().err == "error: file/x: Not a directory\n"
