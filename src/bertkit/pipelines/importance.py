"""Which heads and layers of a model matter on given examples, whatever head it has.

In: a fine-tuned model and labelled examples, or a masked-LM head and texts.  Out: Importance.
Next: ../model/importance.py
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.data.collate import Batch, padded
from bertkit.data.masking import MaskingSettings, mask_tokens
from bertkit.errors import InputError
from bertkit.model.heads import PretrainingModel
from bertkit.model.importance import Importance, importance, masked_lm_losses
from bertkit.pipelines.batches import cut_by_length, require_length, require_short
from bertkit.tasks.finetuning import padded_lengths
from bertkit.tasks.predicting import Predictor
from bertkit.text.tokenizer import Tokenizer, with_special_tokens

BATCH_TOKENS = 4096

Seen = Callable[[int], None]  # told of each batch how many rows it has


def importance_in_task(predictor: Predictor, examples: Sequence[Any], *, seen: Seen) -> Importance:
    """Return what heads and layers matter to the loss of a row's labels, summed.

    A long text or question may be several rows, its windows.
    """
    task, config = predictor.task, predictor.config
    features = task.features(
        examples,
        predictor.tokenizer,
        settings=predictor.settings,
        task=config,
        knowledge=predictor.knowledge,
        coverage=predictor.coverage,
    )
    pad_id = predictor.tokenizer.vocabulary.pad_id

    def batches() -> Iterator[Batch]:
        lengths = padded_lengths([task.lengths(feature) for feature in features]).tolist()
        for places in cut_by_length(lengths, batch_tokens=BATCH_TOKENS):
            yield task.collate([features[place] for place in places], pad_id=pad_id, task=config)
            seen(len(places))

    def loss(_model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        sums = task.losses(predictor.model, dict(batch), class_weights=None, label_smoothing=0.0).sums
        return torch.stack(list(sums.values())).sum()

    return importance(predictor.model, batches(), loss=loss)


def importance_in_texts(
    model: PretrainingModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    mlm_probability: float,
    seed: int,
    seen: Seen,
) -> Importance:
    """Return what heads and layers matter to the mean loss of a text's hidden tokens; each is replaced by [MASK].

    Raises:
        InputError: a text without a token, or longer than the model has positions.
    """
    settings = MaskingSettings(mlm_probability=mlm_probability, mask_replace_prob=1.0, random_replace_prob=0.0)
    vocabulary, rows = tokenizer.vocabulary, []
    for number, text in enumerate(texts, start=1):
        require_short(text, what=f"text {number}")
        ids = tokenizer.encode(text).ids
        if not len(ids):
            raise InputError("holds no token", field=f"text {number}", value=text, remedy="give a text with words")
        whole, types = with_special_tokens(ids, None, vocabulary)
        positions = model.config.max_position_embeddings
        require_length(len(whole), positions=positions, what=f"text {number}", text=text)
        masked = mask_tokens(
            whole[None, :],
            index=np.array([number]),
            ordinary=vocabulary.ordinary,
            mask_id=vocabulary.mask_id,
            settings=settings,
            seed=seed,
            epoch=0,
        )
        rows.append((whole, types, masked.input_ids[0], np.flatnonzero(masked.selected[0])))

    def batches() -> Iterator[Batch]:
        for places in cut_by_length([len(whole) for whole, *_ in rows], batch_tokens=BATCH_TOKENS):
            batch = padded([(rows[place][2], rows[place][1]) for place in places], pad_id=vocabulary.pad_id)
            width = batch["input_ids"].size(1)
            flat = [row * width + rows[place][3] for row, place in enumerate(places)]
            targets = [rows[place][0][rows[place][3]] for place in places]
            batch["mlm_positions"] = torch.from_numpy(np.concatenate(flat))
            batch["mlm_targets"] = torch.from_numpy(np.concatenate(targets))
            yield batch
            seen(len(places))

    return importance(model, batches(), loss=masked_lm_losses)
