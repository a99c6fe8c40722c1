"""What repeats a run, and what came of it: run.json, eval_results.json and eval_results.txt.

In: facts by name.  Out: files in RUN.  Next: log.py
"""

import functools
import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bertkit.files import write_atomically

GIVEN = "given"  # in run.json: the settings as they were given, before the length of the run was fixed
RUN, RESULTS_JSON, RESULTS_TEXT = "run.json", "eval_results.json", "eval_results.txt"
_PACKAGES = ("bertkit", "torch", "numpy", "tokenizers", "safetensors", "accelerate", "pyarrow")


def environment() -> dict[str, Any]:
    """Return the command, the versions and the machine that this process runs with."""
    return {
        "command": shlex.join(["bertkit", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), **versions()},
        "code": code_hash(),
        "hardware": {"system": platform.platform(), "processor": platform.processor() or platform.machine()},
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that numbers depend on."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


@functools.cache
def code_hash() -> str:
    """Return the SHA-256 of this package's own source files, in the order of their names."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def update_run(run_directory: Path, facts: Mapping[str, Any]) -> None:
    """Add facts to RUN/run.json, replacing those of the same name."""
    path = run_directory / RUN
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_atomically(path, json.dumps({**before, **facts}, indent=2, ensure_ascii=False) + "\n")


def write_results(run_directory: Path, results: Mapping[str, Any]) -> None:
    """Write eval_results.json, and eval_results.txt with a line `name = value` each, sorted.

    Of results by part the second has a line `part_name = value` for each single value; tables are in the first alone.
    """
    flat: dict[str, Any] = {}
    for name, value in results.items():
        by_name = {f"{name}_{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        flat |= {key: one for key, one in by_name.items() if not isinstance(one, dict | list)}
    lines = [f"{name} = {value}\n" for name, value in sorted(flat.items())]
    write_atomically(run_directory / RESULTS_TEXT, "".join(lines))
    # Last, as a run that has this file is finished.
    write_atomically(run_directory / RESULTS_JSON, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
