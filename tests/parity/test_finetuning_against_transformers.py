"""Twenty steps of each task: the losses of our loop are those of transformers' model under AdamW, batch by batch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from toy_tasks import finetune_config, write_base, write_task

from bertkit.commands.finetune import finetune
from bertkit.data.collate import Batch
from bertkit.model.losses import IGNORE_INDEX
from bertkit.tasks.finetuning_source import FeatureSource
from bertkit.train.feed import StepBatches
from bertkit.train.schedule import rate_factor
from bertkit.train.settings import TrainSettings

STEPS, RATE = 20, 1e-3
CLASSES = {
    "single": "BertForSequenceClassification",
    "pair": "BertForSequenceClassification",
    "multi": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tags": "BertForTokenClassification",
    "choices": "BertForMultipleChoice",
    "questions": "BertForQuestionAnswering",
    "questions2": "BertForQuestionAnswering",
}
# Ours leave padding out of where an answer may be, theirs do not; and theirs have no mask of choices: a row alone has
# neither.
ALONE = {"questions", "questions2", "choices"}


@pytest.mark.parametrize("kind", CLASSES)
def test_the_losses_of_twenty_steps_are_those_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seen: list[StepBatches] = []
    step = FeatureSource.step
    monkeypatch.setattr(FeatureSource, "step", lambda self, number: seen.append(step(self, number)) or seen[-1])
    values = {"micro_batch_tokens": 1 if kind in ALONE else 10**6, "warmup_ratio": 0.1, "weight_decay": 0.01}
    data = write_task(tmp_path, kind, number=30)
    # A step of no length makes the head that both begin with.
    head = finetune_config(write_base(tmp_path / "base"), data, tmp_path / "head", kind=kind, max_steps=1)
    finetune(replace(head, training=replace(head.training, learning_rate=1e-30)))
    seen.clear()
    finetune(
        finetune_config(
            tmp_path / "head", data, tmp_path / "run", kind=kind, max_steps=STEPS, learning_rate=RATE, **values
        )
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    mine = [line["loss"] for line in lines if line["kind"] == "train"]
    theirs = losses_of_transformers(tmp_path / "head", kind, seen, TrainSettings(**values))
    assert mine == pytest.approx(theirs, rel=1e-5)
    assert mine[-1] < mine[0]


def losses_of_transformers(folder: Path, kind: str, steps: list[StepBatches], settings: TrainSettings) -> list[float]:
    model = vars(transformers.models.bert.modeling_bert)[CLASSES[kind]].from_pretrained(folder)
    model.train()  # dropout is 0
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.999), weight_decay=0.01
    )
    losses = []
    for number, batches in enumerate(steps):
        total = 0.0
        for batch in batches.micro_batches:
            given, weight = inputs(batch, kind)
            if weight:
                loss = model(**given).loss * (weight / sum(batches.counts.values()))
                loss.backward()
                total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate_factor(number, max_steps=STEPS, settings=settings)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def inputs(batch: Batch, kind: str) -> tuple[dict[str, Tensor], int]:
    """A batch of ours as theirs, and over how many labels their mean is."""
    given = {name: tensor for name, tensor in batch.items() if name not in ("labels", "positions", "choice_mask")}
    if "positions" in batch:
        start, end = batch["positions"].unbind(1)
        return {**given, "start_positions": start, "end_positions": end}, int((start >= 0).sum())
    labels = batch["labels"]
    number = labels.numel() if kind in ("multi", "regression") else int((labels != IGNORE_INDEX).sum())
    return {**given, "labels": labels}, number
