"""What the page of every run has: notes on its files, its command, its settings.

In: a Record.  Out: escaped HTML.  Next: page.py, finetuning_page.py
"""

import json
from collections.abc import Collection
from html import escape
from typing import Any

from bertkit.report.charts import POINTS_SHOWN
from bertkit.report.record import Record


def notes_html(record: Record) -> str:
    """Return the command of the run, and what a reader of the page must know about its files."""
    notes = list(record.notes)
    for label, rows in (("training", record.train), ("evaluation", record.validation)):
        if len(rows) > POINTS_SHOWN:
            notes.append(f"The curves show {POINTS_SHOWN:,} of {len(rows):,} {label} points, evenly spaced.")
    if record.run.get("evaluated_on") == "train":
        notes.append("Nothing was held out: what is called held-out here is the training text.")
    command = record.run.get("command")
    html = f"<p class=command><code>{escape(shown(command))}</code></p>" if command else ""
    return html + "".join(f"<p class=note>{escape(note)}</p>" for note in notes)


def settings_html(record: Record, *, shown_elsewhere: Collection[str]) -> str:
    """Return settings, versions and the rest of run.json, folded; `shown_elsewhere`: entries that are not repeated."""
    settings = record.run.get("settings")
    versions = record.run.get("versions")
    left_out = {"settings", "versions", "command", *shown_elsewhere}
    others = {name: value for name, value in record.run.items() if name not in left_out}
    parts = [("Settings of the run", settings), ("Versions", versions), ("Everything else in run.json", others)]
    blocks = [
        f"<details><summary>{escape(title)}</summary>\n<table class=settings>\n{_pairs_html(pairs)}</table></details>"
        for title, pairs in parts
        if isinstance(pairs, dict) and pairs
    ]
    return "\n".join(blocks) or "<p class=note>run.json holds no settings.</p>"


def _pairs_html(pairs: dict[str, Any]) -> str:
    rows = [
        f"<tr><th scope=row><code>{escape(name)}</code></th><td>{escape(shown(value))}</td></tr>\n"
        for name, value in pairs.items()
    ]
    return "".join(rows)


def shown(value: Any) -> str:
    """Return a value as text: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
