"""The READMEs tell the truth: commands parse, the tree exists, both languages show the same, links lead somewhere."""

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from bertkit.cli import COMMANDS
from bertkit.flags import CONFIG_FILE, split_words, values_given
from bertkit.options import options_of

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.zh.md")
PAGES = [*READMES, *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def shell_lines(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text_of(page), flags=re.S)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("page", READMES)
def test_every_bertkit_command_of_the_readme_parses(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "runs" / "first" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("output_dir: runs/first\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [shlex.split(line) for line in shell_lines(page) if line.startswith("bertkit ")]
    assert len(lines) >= 8
    for _, command, *words in lines:
        if f"{command} {' '.join(words[:1])}" in COMMANDS:  # a command of two words
            command, words = f"{command} {words[0]}", words[1:]
        module = import_module(f"bertkit.commands.{COMMANDS[command][0]}")
        options = [*options_of(module.Config), CONFIG_FILE]
        flags, rest, wants_help = split_words(command, words, options)
        assert not wants_help
        assert values_given(command, flags, rest, options)


def test_both_readmes_show_the_same_commands() -> None:
    commands = [[line for line in shell_lines(page) if line.startswith("bertkit ")] for page in READMES]
    assert commands[0] == commands[1]


@pytest.mark.parametrize("page", READMES)
def test_the_make_targets_of_the_readme_exist(page: str) -> None:
    targets = {line.split()[1] for line in shell_lines(page) if line.startswith("make ")}
    assert targets == {"demo", "test"}
    makefile = text_of("Makefile")
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


def test_the_tree_of_the_readme_names_every_module_and_no_other() -> None:
    [tree] = re.findall(r"```\nsrc/bertkit/\n(.*?)```", text_of("README.md"), flags=re.S)
    named = set(re.findall(r"\w+\.py", tree))
    present = {path.name for path in (ROOT / "src" / "bertkit").rglob("*.py") if not path.name.startswith("__")}
    inside_report = {path.name for path in (ROOT / "src" / "bertkit" / "report").glob("*.py")}
    assert named - present == set()
    assert present - named - inside_report == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_that_exist(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page))
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


def test_the_extras_that_the_readme_names_exist() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    named = {
        extra
        for page in READMES
        for group in re.findall(r"\.\[([\w,]+)\]", text_of(page))
        for extra in group.split(",")
    }
    assert named
    assert named <= extras.keys()


LAUNCHERS = ("nproc_per_node", "nnodes", "num_processes", "multi_gpu")  # flags of torchrun and accelerate launch


@pytest.mark.parametrize("page", PAGES)
def test_flags_that_the_pages_name_exist_in_some_command(page: str) -> None:
    known = {"help", "version", CONFIG_FILE.name, *LAUNCHERS}
    for module, _ in COMMANDS.values():
        for option in options_of(import_module(f"bertkit.commands.{module}").Config):
            known |= {option.name, *option.aliases}
    named = {flag.replace("-", "_") for flag in re.findall(r"`[^`\n]*?--([a-z][a-z0-9_\-]+)", text_of(page))}
    assert named - known == set()


def test_both_readmes_tell_the_number_of_poems_alike() -> None:
    assert all("20,021" in text_of(page) for page in READMES)


def test_the_next_file_that_a_header_names_is_there() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        found = re.search(r"^Next: (.*)|  Next: (.*)", path.read_text(encoding="utf-8"), flags=re.M)
        for name in re.findall(r"[\w/.]+\.py", "".join(found.groups("")) if found else ""):
            places = (path.parent, ROOT / "src" / "bertkit", ROOT / "benchmarks")
            assert any((place / name).is_file() for place in places), (path, name)
