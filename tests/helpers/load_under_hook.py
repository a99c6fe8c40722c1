"""Opens every folder it is told of, with a hook that writes down whatever the interpreter reports meanwhile.

In: on standard input, JSON: {"warm": [arguments of load], "cases": [{"folder": …, "arguments": …}]}.
Out: on standard output, JSON: for each case the error, the seconds, and what was seen; and the peak of memory.
"""

import encodings.cp437  # of zipfile, for names without a flag
import json
import sys
import time
from pathlib import Path
from typing import Any

from bertkit.errors import InputError
from bertkit.model.pretrained import load_with_report

FORBIDDEN = ("socket.", "exec", "compile", "pickle.find_class", "subprocess.", "os.system", "os.exec", "os.posix_spawn")
FORBIDDEN_TOO = ("import", "marshal.loads", "ctypes.", "os.remove", "os.rename", "os.mkdir", "shutil.", "urllib.")


def most_memory() -> float:
    """The most resident MB since the last call; ru_maxrss would be the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    assert encodings.cp437.getregentry().name == "cp437"
    told = json.load(sys.stdin)
    for arguments in told["warm"]:  # what is imported late is imported now
        load_with_report(**arguments)
    seen: list[str] = []
    inside: list[str] = [""]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not inside[0]:
            return
        if event == "open":
            path = arguments[0]
            # A bare name is one below the folder's descriptor: this process stands in an empty folder.
            bare = isinstance(path, str) and ("/" not in path or path == "../../blobs")
            if not (isinstance(path, int) or bare or str(path).startswith(inside[0])):
                seen.append(f"open {path}")
        elif event.startswith((*FORBIDDEN, *FORBIDDEN_TOO)):
            seen.append(f"{event} {str(arguments)[:200]}")

    sys.addaudithook(hook)
    most_memory()
    start = most_memory()
    results = []
    for case in told["cases"]:
        seen.clear()
        inside[0], began, error = case["folder"], time.perf_counter(), ""
        try:
            load_with_report(case["folder"], **case["arguments"])
        except InputError as problem:
            error = str(problem)
        except Exception as problem:
            error = f"{type(problem).__name__}, no InputError: {problem}"
        seconds = time.perf_counter() - began
        inside[0] = ""
        peak = most_memory() - start
        results.append({"error": error, "seconds": seconds, "seen": list(seen), "peak": peak})
    assert not list(Path.cwd().iterdir())
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
