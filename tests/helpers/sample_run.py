"""A made-up run on disk, for the tests of the report: curves of a plausible shape, Chinese and English samples."""

import json
import math
import random
from pathlib import Path
from typing import Any

HOSTILE = '</script><script>document.title="hit"</script><img src=x onerror=alert(1)>'


def write_sample_run(folder: Path, *, steps: int = 400, next_sentence: bool = True, ended: bool = True) -> Path:
    """Write metrics.jsonl, run.json and, of a run that ended, eval_results.json; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(7)
    rows: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        rows.append(_train_row(step, steps, generator, next_sentence=next_sentence))
        if step % 100 == 0:
            rows += [_validation_row(step, steps, next_sentence=next_sentence), _samples_row(step, steps)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = {
        "command": "bertkit pretrain --data_dir store --output_dir runs/宋词",
        "unigram_loss": 6.2,
        "parameters": 4_385_920,
        "training_seconds": 221.4,
        "settings": {"learning_rate": 1e-3, "masking": "whole_word", "input_file": ["ci.txt", HOSTILE]},
        "versions": {"bertkit": "0.1.0", "torch": "2.13.0"},
        "seed": 12345,
    }
    (folder / "run.json").write_text(json.dumps(run, ensure_ascii=False), encoding="utf-8")
    if ended:
        last = next(row for row in reversed(rows) if row["kind"] == "validation")
        results = {"masked_lm_accuracy": last["mlm_accuracy"], "masked_lm_loss": last["mlm_loss"]}
        if next_sentence:
            results |= {"next_sentence_accuracy": last["nsp_accuracy"], "next_sentence_loss": last["nsp_loss"]}
        results |= {"global_step": steps, "loss": last["loss"]}
        (folder / "eval_results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def _losses(share: float, noise: float, *, next_sentence: bool) -> dict[str, float]:
    mlm = 3.4 + 5.2 * math.exp(-5 * share) + noise
    values = {"mlm_loss": mlm, "loss": mlm, "mlm_accuracy": 0.42 * (1 - math.exp(-4 * share)) + noise / 20}
    if next_sentence:
        nsp = 0.32 + 0.38 * math.exp(-3 * share) + noise / 8
        values |= {"nsp_loss": nsp, "loss": mlm + nsp, "nsp_accuracy": 0.5 + 0.38 * (1 - math.exp(-3 * share))}
    return values


def _train_row(step: int, steps: int, generator: random.Random, *, next_sentence: bool) -> dict[str, Any]:
    share = step / steps
    rate = 1e-3 * min(share / 0.1, (1 - share) / 0.9)
    row = {"kind": "train", "step": step, "epoch": 0, "tokens": step * 2048, "learning_rate": rate}
    row |= _losses(share, generator.gauss(0, 0.15), next_sentence=next_sentence)
    return row | {"gradient_norm": 1.2, "tokens_per_second": 38_412.5, "padding": 0.04}


def _validation_row(step: int, steps: int, *, next_sentence: bool) -> dict[str, Any]:
    row = {"kind": "validation", "step": step} | _losses(step / steps, 0.1, next_sentence=next_sentence)
    return row | {"mlm_accuracy_without_punctuation": row["mlm_accuracy"] * 0.7}


def _samples_row(step: int, steps: int) -> dict[str, Any]:
    late = step > steps // 2
    chinese = "明月几时有？把酒问青天。不知天上宫阙，今夕是何年。"
    masked = chinese.replace("时", "[MASK]").replace("酒", "[MASK]").replace("宫阙", "[MASK][MASK]")
    samples = [
        {"original": chinese, "masked": masked, "filled": _fill(masked, "时酒宫阙" if late else "，。，不")},
        {
            "original": "In the beginning God created the heaven and the earth.",
            "masked": "In the [MASK] God created the [MASK] and the earth.",
            "filled": f"In the {'beginning' if late else 'the'} God created the heaven and the earth.",
        },
        {"original": f"a {HOSTILE} b", "masked": f"a {HOSTILE} [MASK]", "filled": f"a {HOSTILE} <b>b</b>"},
    ]
    return {"kind": "samples", "step": step, "samples": samples}


def _fill(masked: str, characters: str) -> str:
    for character in characters:
        masked = masked.replace("[MASK]", character, 1)
    return masked
