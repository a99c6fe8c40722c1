"""Answers a second: bertkit beside the pipelines of transformers and ONNX Runtime, fp32 and int8.

In: nothing; texts of Chinese characters, their lengths spread as sentences' are, one [MASK] in each; weights are
random, as speed does not depend on them.  Out: a table in Markdown, for filled masks and for vectors of texts.
All contenders run in one process, interleaved, on the threads of OMP_NUM_THREADS; a figure is the median of the rounds.
    OMP_NUM_THREADS=1 python benchmarks/answers.py --model_size mini
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import transformers
from onnxruntime import InferenceSession, SessionOptions

from bertkit.model.config import config_of_size
from bertkit.model.export import INPUTS, exportable, write_int8, write_onnx
from bertkit.model.pretrained import build, load, save
from bertkit.pipelines import Embedder, FillMask
from bertkit.text.tokenizer import Tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB_SIZE = 21_128  # of the Chinese base model
BATCH = 32  # texts at a time for the others
TOP_K = 5
MEAN_LOG_LENGTH, DEVIATION, LONGEST = 3.4, 0.7, 126  # of lengths: median 30 characters, one in ten over 73

Contender = Callable[[list[str]], Any]


def tokenizer_of_characters() -> Tokenizer:
    """Return a tokenizer whose every token is one Chinese character."""
    characters = [chr(point) for point in range(0x4E00, 0x4E00 + VOCAB_SIZE - len(SPECIAL_TOKENS) - 200)]
    unused = [f"[unused{number}]" for number in range(200)]
    return make_tokenizer(Vocabulary((*SPECIAL_TOKENS, *unused, *characters)), do_lower_case=True)


def mixed_texts(number: int, *, length: int | None = None, seed: int = 1) -> list[str]:
    """Return texts of mixed lengths (or of one) in characters, a [MASK] in each."""
    generator = np.random.default_rng(seed)
    texts = []
    for _ in range(number):
        size = length or int(np.clip(generator.lognormal(MEAN_LOG_LENGTH, DEVIATION), 4, LONGEST))
        points = generator.integers(0x4E00, 0x4E00 + 5000, size)
        characters = [chr(point) for point in points]
        characters[int(generator.integers(size))] = "[MASK]"
        texts.append("".join(characters))
    return texts


def session_of(path: Path) -> InferenceSession:
    """Return an ONNX file, ready to be asked on as many threads as everybody has."""
    options = SessionOptions()
    options.intra_op_num_threads = THREADS
    return InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_batches(texts: list[str], tokenizer: Any, *, by_length: bool) -> Iterator[dict[str, Any]]:
    """Yield padded batches, in the order of the texts, as an export is most often used, or sorted by length."""
    ordered = sorted(texts, key=len) if by_length else texts
    for start in range(0, len(ordered), BATCH):
        batch = tokenizer(ordered[start : start + BATCH], padding=True, return_tensors="np")
        yield {name: batch[name] for name in INPUTS}


def onnx_fill(path: Path, tokenizer: Any, *, by_length: bool = False) -> Contender:
    """Return a contender that fills masks."""
    session = session_of(path)

    def answer(texts: list[str]) -> list[Any]:
        found = []
        for inputs in onnx_batches(texts, tokenizer, by_length=by_length):
            [logits] = session.run(["logits"], inputs)
            rows, columns = np.nonzero(inputs["input_ids"] == tokenizer.mask_token_id)
            at_masks = torch.from_numpy(logits[rows, columns]).softmax(-1).topk(TOP_K)
            found += list(zip(at_masks.values.tolist(), at_masks.indices.tolist(), strict=True))
        return found

    return answer


def onnx_vectors(path: Path, tokenizer: Any, *, by_length: bool = False) -> Contender:
    """Return a contender that gives the mean of each text's token vectors."""
    session = session_of(path)

    def answer(texts: list[str]) -> list[Any]:
        found = []
        for inputs in onnx_batches(texts, tokenizer, by_length=by_length):
            [states] = session.run(["last_hidden_state"], inputs)
            mask = inputs["attention_mask"][:, :, None]
            found += list((states * mask).sum(1) / mask.sum(1))
        return found

    return answer


def fillers(folder: Path) -> dict[str, Contender]:
    """Return everybody who fills masks, by name; the exports are made first."""
    write_onnx(exportable(load(folder, head="masked_lm")), folder / "fill.onnx")
    write_int8(folder / "fill.onnx", folder / "fill8.onnx")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipeline = transformers.pipeline("fill-mask", model=str(folder), device="cpu")
    fill = FillMask(folder)
    return {
        "bertkit": lambda texts: list(fill.fill(texts, top_k=TOP_K)),
        "transformers pipeline": lambda texts: pipeline(texts, batch_size=BATCH, top_k=TOP_K),
        "ONNX Runtime": onnx_fill(folder / "fill.onnx", tokenizer),
        "ONNX Runtime, sorted": onnx_fill(folder / "fill.onnx", tokenizer, by_length=True),
        "ONNX Runtime int8, sorted": onnx_fill(folder / "fill8.onnx", tokenizer, by_length=True),
    }


def embedders(folder: Path) -> dict[str, Contender]:
    """Return everybody who makes a vector of a text, by name; the exports are made first."""
    write_onnx(exportable(load(folder, head=None)), folder / "encode.onnx")
    write_int8(folder / "encode.onnx", folder / "encode8.onnx")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipeline = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    embedder = Embedder(folder)

    def features(texts: list[str]) -> list[Any]:
        return [states[0].mean(0) for states in pipeline(texts, batch_size=BATCH, return_tensors=True)]

    return {
        "bertkit": lambda texts: list(embedder.embed(texts)),
        "transformers pipeline": features,
        "ONNX Runtime": onnx_vectors(folder / "encode.onnx", tokenizer),
        "ONNX Runtime, sorted": onnx_vectors(folder / "encode.onnx", tokenizer, by_length=True),
        "ONNX Runtime int8, sorted": onnx_vectors(folder / "encode8.onnx", tokenizer, by_length=True),
    }


def seconds_of(contender: Contender, texts: list[str]) -> float:
    """Return how long a contender takes for the texts."""
    began = time.perf_counter()
    contender(texts)
    return time.perf_counter() - began


def compare(everybody: dict[str, Contender], *, texts: list[str], one: list[str], rounds: int) -> dict[str, Any]:
    """Return texts a second, and milliseconds for one text, of everybody, round by round."""
    rates: dict[str, list[float]] = {who: [] for who in everybody}
    waits: dict[str, list[float]] = {who: [] for who in everybody}
    for contender in everybody.values():
        contender(texts[:BATCH])
    for _ in range(rounds):
        for who, contender in everybody.items():
            rates[who].append(len(texts) / seconds_of(contender, texts))
            waits[who] += [1000 * seconds_of(contender, one) for _ in range(3)]
    return {"texts_per_second": rates, "milliseconds": waits}


def table(figures: dict[str, Any], title: str) -> str:
    """Return the figures as Markdown."""
    rates, waits = figures["texts_per_second"], figures["milliseconds"]
    ours, our_wait = statistics.median(rates["bertkit"]), statistics.median(waits["bertkit"])
    lines = [f"| {title} | texts/s, median (least – most) | bertkit is | one text of 128 tokens, ms | bertkit is |"]
    lines += ["|---|---|---|---|---|"]
    for who in rates:
        rate, wait = statistics.median(rates[who]), statistics.median(waits[who])
        spread = f"({min(rates[who]):.1f} – {max(rates[who]):.1f})"
        lines.append(f"| {who} | {rate:.1f} {spread} | {ours / rate:.2f} × | {wait:.1f} | {wait / our_wait:.2f} × |")
    return "\n".join(lines)


def main() -> None:
    """Run the contenders and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_size", default="mini")
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON here")
    wish = parser.parse_args()
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    texts, one = mixed_texts(wish.texts), mixed_texts(1, length=LONGEST)
    figures: dict[str, Any] = {}
    print(f"{wish.model_size}, vocabulary {VOCAB_SIZE:,}, {THREADS} thread(s), {wish.texts} texts of mixed lengths")
    with tempfile.TemporaryDirectory() as name:
        torch.manual_seed(0)
        model = build(config_of_size(wish.model_size, vocab_size=VOCAB_SIZE), head="pretraining")
        save(name, model, files=tokenizer_of_characters().files())
        for title, everybody in (("filled masks", fillers(Path(name))), ("vectors of texts", embedders(Path(name)))):
            figures[title] = compare(everybody, texts=texts, one=one, rounds=wish.rounds)
            print(f"\n{table(figures[title], title)}", flush=True)
    if wish.output:
        wish.output.write_text(json.dumps(figures, indent=2), "utf-8")


if __name__ == "__main__":
    main()
