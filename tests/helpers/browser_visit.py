"""A page opened in headless Chromium: what became of it, and what it asked for."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000"),
    "--proxy-server=127.0.0.1:9",  # the discard port: whatever is asked for goes nowhere
]


@dataclass(frozen=True)
class Visit:
    """A page as the browser has it after its scripts ran, and the addresses that it asked for, blocked or not."""

    dom: str
    asked: list[str]


def visit(page: Path, folder: Path, *, place: str = "") -> Visit:
    """place: what stands behind the address of the page, as `#1-1`."""
    assert BROWSER is not None
    log = folder / "net.json"
    words = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    answer = subprocess.run([*words, page.as_uri() + place], capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
    events = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    # What the browser asks for on its own account has no origin; what a page asks for has the page's.
    asked = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
    return Visit(answer.stdout.decode("utf-8"), sorted(set(asked)))
