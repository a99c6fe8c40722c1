"""Building data, side by side: bertkit, the tokenizers library alone, datasets.map with it, a plain-Python builder.

In: text files (by default the Song ci and the King James Bible of the shared data).  Out: a table in Markdown and JSON.
All contenders run in one process, interleaved, one thread each; a figure is the median of the rounds.
    OMP_NUM_THREADS=1 python benchmarks/data.py --rounds 5
With --megabytes: bertkit alone, one process beside --workers, on text of about that size (a new process takes 0.3 s).
    OMP_NUM_THREADS=1 python benchmarks/data.py --rounds 3 --megabytes 240
"""

import argparse
import functools
import json
import os
import random
import statistics
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

from memory import write_text

from bertkit.commands.vocab import build_vocabulary
from bertkit.data.masking import MaskingSettings
from bertkit.data.pairs import PairSettings
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.data.store import open_parts
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import Tokenizer

SHARED = Path(os.environ.get("BERTKIT_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
CORPORA = {
    "Chinese (Song ci)": CorpusSettings(str(SHARED / "songci" / "songci.txt"), "lines"),
    "English (King James Bible)": CorpusSettings(str(SHARED / "kjv_bible" / "kjv.txt"), "paragraphs"),
}


def bertkit(corpus: CorpusSettings, tokenizer: Tokenizer, folder: Path, *, workers: int = 1) -> None:
    """Raw text to a finished store."""
    prepare_store(corpus, tokenizer, folder / "store", PreparationSettings(workers=workers))


def tokenizers_alone(corpus: CorpusSettings, tokenizer: Tokenizer, folder: Path) -> None:
    """Only the library's call on the lines; nothing is split, kept or written."""
    import tokenizers

    library = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
    lines = Path(str(corpus.input_file)).read_text(encoding="utf-8").split("\n")
    for start in range(0, len(lines), 1000):
        library.encode_batch_fast(lines[start : start + 1000], add_special_tokens=False)


def datasets_map(corpus: CorpusSettings, tokenizer: Tokenizer, folder: Path) -> None:
    """datasets.map with the same tokenizer, written as Arrow."""
    import datasets
    import tokenizers

    datasets.disable_progress_bars()
    library = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
    lines = [line for line in Path(str(corpus.input_file)).read_text(encoding="utf-8").split("\n") if line]
    data = datasets.Dataset.from_dict({"text": lines})
    data = data.map(
        lambda batch: {
            "input_ids": [e.ids for e in library.encode_batch_fast(batch["text"], add_special_tokens=False)]
        },
        batched=True,
        remove_columns=["text"],
        new_fingerprint=f"round{time.time_ns()}",
        cache_file_name=str(folder / "map.arrow"),
    )
    data.save_to_disk(str(folder / "saved"))


def plain_python(corpus: CorpusSettings, tokenizer: Tokenizer, folder: Path) -> None:
    """What textbooks do: tokenize, pair and mask in Python lists, and write JSON."""
    known = tokenizer.vocabulary.ids
    draw = random.Random(0)
    documents = []
    for line in Path(str(corpus.input_file)).read_text(encoding="utf-8").split("\n"):
        sentences = [s for s in line.replace("。", "。\n").replace(". ", ".\n").split("\n") if s]
        documents.append([[known.get(t, 1) for t in _plain_tokens(s, known)] for s in sentences])
    documents = [document for document in documents if document]
    with open(folder / "plain.jsonl", "w", encoding="utf-8") as file:
        for document in documents:
            for a, b in pairwise(document):
                other = draw.choice(draw.choice(documents)) if draw.random() < 0.5 else b
                ids = [2, *a, 3, *other, 3][:128]
                labels = [-100] * len(ids)
                for place in draw.sample(range(len(ids)), max(1, int(0.15 * len(ids)))):
                    labels[place], ids[place] = ids[place], 4
                file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")


def _plain_tokens(text: str, known: object) -> list[str]:
    tokens: list[str] = []
    word = ""
    for character in unicodedata.normalize("NFD", text.lower()) + " ":
        alone = "\u4e00" <= character <= "\u9fff" or unicodedata.category(character)[0] == "P"
        if character.isspace() or alone:
            start = 0
            while start < len(word):  # greedy, longest piece first
                end = len(word)
                while end > start and (("##" if start else "") + word[start:end]) not in known:  # type: ignore[operator]
                    end -= 1
                if end == start:
                    tokens.append("[UNK]")
                    break
                tokens.append(("##" if start else "") + word[start:end])
                start = end
            word = ""
            if alone:
                tokens.append(character)
        else:
            word += character
    return tokens


def seconds_of(
    contender: Callable[[CorpusSettings, Tokenizer, Path], None], corpus: CorpusSettings, tokenizer: Tokenizer
) -> float:
    """Return how long one run takes, its folder thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        contender(corpus, tokenizer, Path(folder))
        return time.perf_counter() - began


def batch_rate(corpus: CorpusSettings, tokenizer: Tokenizer, *, batch_size: int = 256, steps: int = 60) -> float:
    """Return the tokens a second of making batches: pairs, masks and collation."""
    from bertkit.tasks.pretraining import PretrainingSource  # (brings torch, which new processes need not import)

    with tempfile.TemporaryDirectory() as folder:
        bertkit(corpus, tokenizer, Path(folder))
        store = open_parts(Path(folder) / "store")["train"]
        source = PretrainingSource(
            store,
            tokenizer.vocabulary,
            PairSettings(),
            MaskingSettings(),
            seed=1,
            batch_size=batch_size,
            micro_batch_tokens=4096,
        )
        began = time.perf_counter()
        tokens = sum(source.step(step).tokens for step in range(steps))
        return tokens / (time.perf_counter() - began)


@contextmanager
def large_corpora(megabytes: int) -> Iterator[dict[str, tuple[CorpusSettings, CorpusSettings]]]:
    """Yield corpora of about that many MB, each with the smaller one it repeats, from which its vocabulary comes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "generated.txt", 5)
        texts = {
            "English (King James Bible)": (SHARED / "kjv_bible" / "kjv.txt", "paragraphs"),
            "Chinese prose (Wikipedia)": (SHARED / "zhwiki_paragraphs" / "zhwiki_paragraphs.txt", "lines"),
            "Chinese, short lines (generated)": (folder / "generated.txt", "lines"),
        }
        corpora = {}
        for title, (path, format) in texts.items():
            text, large = path.read_bytes(), folder / f"large-{path.name}"
            with open(large, "wb") as file:
                while file.tell() < megabytes * 1e6:
                    file.write(text)
            corpora[title] = CorpusSettings(str(large), format), CorpusSettings(str(path), format)
        yield corpora


def compare_workers(*, megabytes: int, workers: int, rounds: int) -> None:
    """Print how fast one process and several are, taking turns."""
    print(f"\n| MB/s, median (least – most) | one process | --workers {workers} | ratio |\n|---|---|---|---|")
    with large_corpora(megabytes) as corpora:
        for name, (corpus, sample) in corpora.items():
            tokenizer = build_vocabulary(sample, vocab_size=8000)
            size = Path(str(corpus.input_file)).stat().st_size / 1e6
            rates: dict[int, list[float]] = {1: [], workers: []}
            for _ in range(rounds):
                for number, found in rates.items():
                    contender = functools.partial(bertkit, workers=number)
                    found.append(size / seconds_of(contender, corpus, tokenizer))
            one, several = (statistics.median(found) for found in rates.values())
            shown = [f" {statistics.median(f):.1f} ({min(f):.1f} – {max(f):.1f}) |" for f in rates.values()]
            print(f"| {name}, {size:.0f} MB |" + "".join(shown) + f" {several / one:.2f} |", flush=True)


def main() -> None:
    """Run the contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON here")
    parser.add_argument("--megabytes", type=int, help="compare numbers of processes on text of this size")
    parser.add_argument("--workers", type=int, default=2)
    rounds = parser.parse_args()
    if rounds.megabytes:
        compare_workers(megabytes=rounds.megabytes, workers=rounds.workers, rounds=rounds.rounds)
        return
    contenders = {
        "bertkit": bertkit,
        "tokenizers alone": tokenizers_alone,
        "datasets.map": datasets_map,
        "plain Python": plain_python,
    }
    figures: dict[str, dict[str, list[float]]] = {}
    rates: dict[str, float] = {}
    for name, corpus in CORPORA.items():
        tokenizer = build_vocabulary(corpus, vocab_size=8000)
        megabytes = Path(str(corpus.input_file)).stat().st_size / 1e6
        figures[name] = {contender: [] for contender in contenders}
        for _ in range(rounds.rounds):
            for contender, function in contenders.items():
                figures[name][contender].append(megabytes / seconds_of(function, corpus, tokenizer))
        rates[name] = batch_rate(corpus, tokenizer)
    print("\n| MB/s on one core, median (least – most) |" + "".join(f" {name} |" for name in figures))
    print("|---|" + "---|" * len(figures))
    for contender in contenders:
        cells = [figures[name][contender] for name in figures]
        shown = [f" {statistics.median(cell):.2f} ({min(cell):.2f} – {max(cell):.2f}) |" for cell in cells]
        print(f"| {contender} |" + "".join(shown))
    print("| making batches, million tokens/s |" + "".join(f" {rate / 1e6:.2f} |" for rate in rates.values()))
    if rounds.output:
        rounds.output.write_text(
            json.dumps({"megabytes_per_second": figures, "tokens_per_second": rates}, indent=2), "utf-8"
        )


if __name__ == "__main__":
    main()
