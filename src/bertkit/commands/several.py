"""Several runs of `bertkit finetune` beside each other: by seed, by layer; what is finished is not made again.

In: the settings of each run, and how to make one.  Out: a folder each; their figures as a table, README.md and JSON.
Next: finetune.py
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.commands.running import has_checkpoint, require_no_model, require_no_summary
from bertkit.console import result, say, table
from bertkit.errors import InputError, Stopped
from bertkit.files import write_atomically
from bertkit.model.config import read_json_object
from bertkit.train.record import GIVEN, RESULTS_JSON, RUN
from bertkit.train.settings import FREE_ON_RESUME

Results = dict[str, Any]
Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Member:
    """One of the runs."""

    directory: Path
    settings: Mapping[str, Any]  # as given, by name
    make: Callable[[bool], Results]  # True: go on from its last checkpoint


def make_all(directory: Path, kind: str, members: Mapping[str, Member]) -> dict[str, Results]:
    """Make each run that is not finished, one after the other, and return the results of all by name.

    directory: the folder of all.  kind: what tells them apart, in a word.

    Raises:
        InputError: the folder is that of a model, a single run or runs told apart otherwise, or that of a run holds one
            of other settings (said before the first is made); what a run raises.
        Stopped: what a run raises, with the way on.
    """
    require_no_model(directory)
    require_no_summary(directory, but=f"{kind}s.json")
    for member in members.values():
        _require_same(member)
    found: dict[str, Results] = {}
    for name, member in members.items():
        if (member.directory / RESULTS_JSON).is_file():
            say(f"\n— {kind} {name} is finished: its results are those of {member.directory}")
            found[name] = read_json_object(member.directory / RESULTS_JSON)
            continue
        say(f"\n— {kind} {name}")
        try:
            found[name] = member.make(has_checkpoint(member.directory))
        except Stopped as stopped:
            before = ", ".join(found) or "none"
            raise Stopped(
                stopped.signal_number,
                f"stopped in {kind} {name} (finished: {before}); the same command goes on where this one ended",
            ) from None
    return found


def _require_same(member: Member) -> None:
    """Refuse to mix figures of runs that differ in more than what tells them apart."""
    if not has_checkpoint(member.directory) and not (member.directory / RESULTS_JSON).is_file():
        return
    path = member.directory / RUN
    before = read_json_object(path).get(GIVEN) if path.is_file() else None
    now = _comparable(member.settings)
    if before is not None:  # an option that was not there yet has changed nothing
        now = {name: value for name, value in now.items() if name in before}
        if _comparable(before) == now:
            return
    differ = {name for name, value in now.items() if _comparable(before or {}).get(name) != value}
    listed = "; ".join(f"{name}: {(before or {}).get(name)!r} then, {now[name]!r} now" for name in sorted(differ))
    raise InputError(
        "holds a run of other settings" + (f": {listed}" if before else ", which are not known"),
        file=member.directory,
        field="--output_dir",
        remedy="give the settings of that run, or name another folder",
    )


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of settings those that make another run, as JSON has them."""
    own = {name: value for name, value in settings.items() if name not in FREE_ON_RESUME | {"output_dir"}}
    return dict(json.loads(json.dumps(own)))


def figures_of(results: Results) -> dict[str, dict[str, float]]:
    """Return the figures of a run by part and name; tables and counts are left out."""
    parts = {part: value for part, value in results.items() if isinstance(value, dict)}
    return {
        part: {name: value for name, value in figures.items() if isinstance(value, float)}
        for part, figures in parts.items()
    }


def write_summary(directory: Path, kind: str, *, title: str, rows: Rows, content: Mapping[str, Any]) -> None:
    """Print the rows, the first of them the header, and write them into README.md and `content` into KINDs.json."""
    if os.environ.get("RANK", "0") == "0":
        write_atomically(directory / f"{kind}s.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        head, *body = [f"| {' | '.join(row)} |" for row in rows]
        rule = "|---" * len(rows[0]) + "|"
        write_atomically(directory / "README.md", "\n".join([f"# {title}", "", head, rule, *body, ""]))
    result(table(rows))
    result(f"summary: {directory / f'{kind}s.json'}")
