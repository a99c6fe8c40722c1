"""Does the memory of building data grow with the corpus?  Peak resident set of `bertkit prepare` at several sizes.

In: sizes in MB.  Out: a table in Markdown; the text is generated, Chinese sentences over 5,000 characters.
    OMP_NUM_THREADS=1 python benchmarks/memory.py 10 100 1000
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHARACTERS = 5000  # different ones, from U+4E00 on, drawn by Zipf's law
SENTENCES_A_LINE, CHARACTERS_A_SENTENCE = 8, 10
LINES_AT_ONCE = 4000


def write_text(path: Path, megabytes: int) -> None:
    """Write about so many MB of UTF-8, the same for the same size."""
    draw = np.random.default_rng(megabytes)
    shares = 1 / np.arange(1, CHARACTERS + 1)
    shares /= shares.sum()
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            number = LINES_AT_ONCE * SENTENCES_A_LINE
            codes = draw.choice(CHARACTERS, size=(number, CHARACTERS_A_SENTENCE), p=shares) + 0x4E00
            sentences = ["".join(map(chr, row)) + "。" for row in codes.tolist()]
            for start in range(0, number, SENTENCES_A_LINE):
                file.write("".join(sentences[start : start + SENTENCES_A_LINE]) + "\n")


def peak_of(text: Path, folder: Path) -> tuple[float, float, list[float]]:
    """Return peak MB, seconds, and the resident MB once a second, of preparing the text in a process of its own."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "。", *(chr(0x4E00 + n) for n in range(CHARACTERS))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    words = ["prepare", "--input_file", str(text), "--format", "lines", "--tokenizer", str(folder / "vocab.txt")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bertkit", *words, "--output_dir", str(folder / "store")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    curve, peak = [], 0.0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        except OSError:
            break
        sizes = {line.split(":")[0]: line.split()[1] for line in status.split("\n") if line.startswith("Vm")}
        if "VmHWM" in sizes:
            peak = max(peak, int(sizes["VmHWM"]) / 1024)
            curve.append(int(sizes["VmRSS"]) / 1024)
        time.sleep(0.2)
    assert process.wait() == 0, "prepare failed"
    return peak, time.perf_counter() - began, curve[::5]


def main() -> None:
    """Prepare each size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int, nargs="+")
    print("| text, MB | peak resident set, MB | MB/s | resident MB, a value a second |\n|---|---|---|---|")
    for megabytes in parser.parse_args().megabytes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_text(folder / "text.txt", megabytes)
            peak, seconds, curve = peak_of(folder / "text.txt", folder)
            shown = " ".join(f"{value:.0f}" for value in curve[:: max(1, len(curve) // 20)])
            print(f"| {megabytes:,} | {peak:.0f} | {megabytes / seconds:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
