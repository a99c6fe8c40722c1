"""How long does loading a model take, and how much memory?  Beside reading its bytes, and beside transformers.

In: nothing; a base-size checkpoint at random is written to a temporary folder.  Out: a table in Markdown. Each round is
a process of its own; its libraries are imported before the clock starts.
    OMP_NUM_THREADS=1 python benchmarks/load.py --rounds 6
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# transformers maps the file into memory and reads a number when it is first used.
WAYS = (
    "reading the bytes",
    "bertkit",
    "bertkit, pytorch_model.bin",
    "transformers, nothing used yet",
    "transformers, every number used once",
)
CHILD = """
import sys, time
from pathlib import Path
way, folder = sys.argv[1], Path(sys.argv[2])
import torch
from torch import nn
import bertkit.model.pretrained, bertkit.model.pickled_weights, safetensors.torch
small = str(folder.parent / "small")
def use(directory):
    if way.startswith("transformers"):
        import transformers
        transformers.logging.disable_progress_bar()
        transformers.logging.set_verbosity_error()
        model = transformers.BertForPreTraining.from_pretrained(directory)
        if way.endswith("once"):
            [parameter.sum() for parameter in model.parameters()]
        return model
    if way.startswith("bertkit"):
        return bertkit.model.pretrained.load(directory, allow_pickle_weights=way.endswith(".bin"))
    with open(Path(directory) / "model.safetensors", "rb") as file:
        return file.read()
def memory(key):
    return int(Path("/proc/self/status").read_text().split(key + ":")[1].split()[0]) / 1024
use(small + "/bin" if way.endswith(".bin") else small)  # what is imported or set up late is so now
start = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
began = time.perf_counter()
model = use(folder / "bin" if way.endswith(".bin") else folder)
seconds = time.perf_counter() - began
print(seconds, memory("VmHWM") - start)
"""


def write_models(folder: Path) -> float:
    """Write a base-size model as safetensors and as a pickle, and a small one beside it; return its MB."""
    import torch
    from safetensors.torch import load_file

    from bertkit.model.config import BertConfig
    from bertkit.model.pretrained import build, save

    torch.manual_seed(0)
    tiny = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
    for name, config in (("base", BertConfig()), ("small", tiny)):
        save(folder / name, build(config, head="pretraining"), files={})
        tensors = load_file(folder / name / "model.safetensors")
        target = folder / name / "bin"
        target.mkdir()
        torch.save(tensors, target / "pytorch_model.bin")
        (target / "config.json").write_bytes((folder / name / "config.json").read_bytes())
    return (folder / "base" / "model.safetensors").stat().st_size / 2**20


def main() -> None:
    """Run every way in turn, round after round, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    figures: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        size = write_models(Path(name))
        for _ in range(rounds):
            for way in WAYS:
                command = [sys.executable, "-c", CHILD, way, str(Path(name) / "base")]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                figures[way].append((float(answer[0]), float(answer[1])))
    bytes_alone = [seconds for seconds, _ in figures[WAYS[0]]]
    print(f"A base-size model, {size:.0f} MB; the files are in the page cache; {rounds} interleaved rounds.\n")
    print("| | seconds, median (least – most) | × reading the bytes | peak MB ÷ size |\n|---|---|---|---|")
    for way, values in figures.items():
        times, peaks = zip(*values, strict=True)
        ratio = statistics.median(a / b for a, b in zip(times, bytes_alone, strict=True))
        median = statistics.median(times)
        shown = f"{median:.3f} ({min(times):.3f} – {max(times):.3f})"
        print(f"| {way} | {shown} | {ratio:.2f} | {statistics.median(peaks) / size:.2f} |")


if __name__ == "__main__":
    main()
