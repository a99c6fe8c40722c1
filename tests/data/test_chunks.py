"""A corpus in chunks: whatever their size, every part has its documents in their order, but for those that are done."""

import random
from pathlib import Path

import pytest

from bertkit.data import chunks
from bertkit.data.chunks import read_chunks
from bertkit.data.repeats import RepeatCounter
from bertkit.data.store import PARTS
from bertkit.data.store_key import PreparationSettings
from bertkit.text.corpus import CorpusReport
from bertkit.text.documents import CorpusSettings, part_of


def corpus_of(folder: Path, *, documents: int, seed: int) -> tuple[CorpusSettings, list[str]]:
    draw = random.Random(seed)
    lines = ["".join(draw.choices("明月几时有 moon", k=draw.randint(1, 30))).strip() or "月" for _ in range(documents)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CorpusSettings(str(folder / "text.txt"), "lines"), lines


@pytest.mark.parametrize("chunk_bytes", [1, 50, 700, 1 << 20])
@pytest.mark.parametrize("validation_split", [False, True])
@pytest.mark.parametrize("done", [(0, 0, 0), (7, 0, 2), (40, 3, 1), (1000, 1000, 1000)])
def test_chunks_of_any_size_hold_the_rest_of_every_part_in_its_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk_bytes: int,
    validation_split: bool,
    done: tuple[int, int, int],
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    corpus, lines = corpus_of(tmp_path, documents=120, seed=chunk_bytes)
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    sizes, report = [], CorpusReport()
    with RepeatCounter(tmp_path) as repeats:
        settings = PreparationSettings(validation_split=validation_split)
        for chunk in read_chunks(corpus, settings, done, report, repeats):
            sizes.append(chunk.size)
            assert chunk.ends[-1] == len(chunk.documents)
            for part, first, end in zip(PARTS, [0, *chunk.ends], chunk.ends, strict=False):
                found[part] += [document.text for document in chunk.documents[first:end]]
        assert repeats.count() == len(lines) - len({*lines})
    for number, part in enumerate(PARTS):
        of_part = [line for line in lines if part_of(line, validation_split=validation_split) == part]
        assert found[part] == of_part[done[number] :]
    assert sum(sizes) == sum(len(line) * (1 if line.isascii() else 3) for line in lines)
    assert all(size >= chunk_bytes for size in sizes[:-1])
    assert report.reading.documents == len(lines)
