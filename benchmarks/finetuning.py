"""Fine-tuning, examples a second on short texts: bertkit beside the Trainer of transformers.

In: banking77 of the shared data, the MiniLM encoder (`make weights`).  Out: a table in Markdown.
Everybody makes the same number of steps over the same texts: same model, batch, AdamW, precision, dropout.  All run in
one process, interleaved, on the threads of OMP_NUM_THREADS; a figure is the median of the rounds, an epoch each.
    OMP_NUM_THREADS=1 python benchmarks/finetuning.py --rounds 5
"""

import argparse
import contextlib
import csv
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers
from task_files import rows_of, write_splits
from tasks_by_transformers import Settings, collate, length, load, text_features
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from bertkit.commands.finetune import Config
from bertkit.files import cache_directory
from bertkit.options import config_from, values_of
from bertkit.tasks.finetuning_data import DataFiles
from bertkit.tasks.finetuning_setup import BaseModel, open_run
from bertkit.train.feed import feed
from bertkit.train.loop import update

MOST_ROUNDS = 1000  # the schedule reaches so far that every round trains at about one rate
SETTINGS = Settings(
    batch_size=32, epochs=1, learning_rate=5e-5, warmup_ratio=0.1, max_seq_length=128, doc_stride=128, dropout=0.1
)  # fmt: skip
PADDED = 128  # tokens
NOT_SAID = ("epochs", "dropout", "doc_stride")  # the model's own dropout is 0.1
Contender = Callable[[], float]  # trains an epoch, returns its texts a second


class Clock(transformers.TrainerCallback):
    """The seconds of an epoch, its batches made in them; not what the Trainer does before and after."""

    def __init__(self) -> None:
        self.began = self.seconds = 0.0

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self.began = time.perf_counter()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.seconds = time.perf_counter() - self.began


class ByLength(transformers.Trainer):
    """The Trainer, its batches made of texts of about one length, so that little is padded."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        features: Any = self.train_dataset
        generator = torch.Generator()
        generator.manual_seed(self.args.seed)
        lengths = [length(feature) for feature in features]
        return LengthGroupedSampler(self.args.train_batch_size, lengths=lengths, generator=generator)


def arguments(folder: Path) -> transformers.TrainingArguments:
    """Return the settings as the Trainer's."""
    return transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=SETTINGS.batch_size,
        num_train_epochs=SETTINGS.epochs,
        learning_rate=SETTINGS.learning_rate,
        lr_scheduler_type="linear",
        weight_decay=SETTINGS.weight_decay,
        max_grad_norm=SETTINGS.max_grad_norm,
        adam_beta2=SETTINGS.adam_beta2,
        optim="adamw_torch_fused",
        seed=1,
        save_strategy="no",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def by_trainer(
    base: str, rows: list[dict[str, Any]], *, folder: Path, pad_to: int | None = None, by_length: bool = False
) -> Contender:
    """Return the Trainer over these texts, its batches padded to their longest text, or all to a length."""
    labels = sorted({row["label"] for row in rows})
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    features = text_features(rows, tokenizer, labels=labels, settings=SETTINGS)
    model, clock = load("texts", base, labels=labels, dropout=SETTINGS.dropout), Clock()
    kind = ByLength if by_length else transformers.Trainer
    trainer = kind(
        model=model,
        args=arguments(folder),
        train_dataset=features,
        data_collator=lambda own: collate(own, pad_to=pad_to),
        callbacks=[clock],
    )

    def epoch() -> float:
        with contextlib.redirect_stdout(None):
            trainer.train()
        return len(rows) / clock.seconds

    return epoch


def by_bertkit(base: str, train: Path, *, folder: Path) -> Contender:
    """Return bertkit's loop over the same texts; each call is the next epoch."""
    own = asdict(SETTINGS) | {"num_train_epochs": None, "max_steps": MOST_ROUNDS**2, "seed": 1}
    own = {name: value for name, value in own.items() if name not in NOT_SAID}
    places = {"model_name_or_path": base, "train_file": str(train), "output_dir": str(folder)}
    config = config_from(Config, {"task": "sequence-classification", **places, **own})
    work = open_run(
        folder,
        task=config.task,
        base=BaseModel(base, False, None, None, None, None),
        files=DataFiles(str(train), None, None, None),
        reading=config.reading,
        settings=config.settings,
        training=config.training,
    )
    job, state = work.start(config.training, settings=values_of(config.settings), record={})
    source = work.source(config.training)
    steps, texts = source.steps_in_epoch, len(source.features)

    def epoch() -> float:
        began = time.perf_counter()
        batches = feed(job.source, start=state.step, end=state.step + steps, workers=0, pin_memory=False)
        for _ in range(steps):
            update(job, state, batches)
            state.step += 1
        return texts / (time.perf_counter() - began)

    return epoch


def table(rates: dict[str, list[float]]) -> str:
    """Return the rates as Markdown."""
    ours = statistics.median(rates["bertkit"])
    lines = ["| fine-tuning on short texts | examples/s, median (least – most) | bertkit is |", "|---|---|---|"]
    for who, own in rates.items():
        rate = statistics.median(own)
        lines.append(f"| {who} | {rate:.1f} ({min(own):.1f} – {max(own):.1f}) | {ours / rate:.2f} × |")
    return "\n".join(lines)


def main() -> None:
    """Run the contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=320, help="an epoch; a multiple of the batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model_name_or_path", default=str(cache_directory() / "weights" / "minilm"))
    parser.add_argument("--shared_data", type=Path, default=os.environ.get("BERTKIT_SHARED_DATA", "../shared/data"))
    parser.add_argument("--output", type=Path, help="also write the rates as JSON here")
    wish = parser.parse_args()
    torch.set_num_threads(THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    base = wish.model_name_or_path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, _ = write_splits("banking77", Path(wish.shared_data), folder)
        rows = rows_of("banking77", train)
        rows = rows[:: len(rows) // wish.texts][: wish.texts]  # the file is sorted by class
        with train.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "category"), *((row["text"], row["label"]) for row in rows)])
        some = rows[: max(SETTINGS.batch_size, len(rows) // 3)]  # every text takes as long when all are padded
        everybody = {
            "bertkit": by_bertkit(base, train, folder=folder / "run"),
            "Trainer, padded to the longest of a batch": by_trainer(base, rows, folder=folder / "dynamic"),
            "Trainer, texts of like length together": by_trainer(base, rows, folder=folder / "sorted", by_length=True),
            f"Trainer, padded to {PADDED}": by_trainer(base, some, folder=folder / "fixed", pad_to=PADDED),
        }
        rates: dict[str, list[float]] = {who: [] for who in everybody}
        for number in range(wish.rounds + 1):
            for who, epoch in everybody.items():
                rate = epoch()
                if number:  # the first warms up
                    rates[who].append(rate)
    print(f"{len(rows)} texts of banking77 a round, batch {SETTINGS.batch_size}, {THREADS} thread(s)\n\n{table(rates)}")
    if wish.output:
        wish.output.write_text(json.dumps(rates, indent=2), "utf-8")


if __name__ == "__main__":
    main()
