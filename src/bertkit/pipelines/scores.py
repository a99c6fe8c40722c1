"""The masked-LM head asked at single tokens: scores of a vocabulary there, computed nowhere else.

In: rows of ids and the columns to ask.  Out: log-probabilities (n, vocab), those never offered at −∞.
Next: fill_mask.py, scoring.py
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.model.heads import PretrainingModel
from bertkit.pipelines.batches import device_of, padded
from bertkit.text.tokenizer import Tokenizer, with_special_tokens


class MaskScores:
    """A model with a masked-LM head, asked what stands at single tokens of texts."""

    def __init__(self, model: PretrainingModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        vocabulary = tokenizer.vocabulary
        # A model's vocabulary may be padded beyond the tokenizer's.
        never = np.full(model.config.vocab_size, -np.inf, dtype=np.float32)
        never[: vocabulary.size][vocabulary.ordinary] = 0.0
        self._offered = torch.from_numpy(never).to(device_of(model))  # (vocab,) 0, or −∞ where never offered
        self.num_offered = int(vocabulary.ordinary.sum())

    @torch.inference_mode()
    def log_probabilities(self, texts: Sequence[NDArray[np.int64]], columns: Sequence[Sequence[int]]) -> Tensor:
        """Return (n, vocab) float32 on the model's device, for each column of each text, in order.

        texts: ids (seq,) of each, without special tokens; columns: where to ask in each, counted in its ids.
        """
        vocabulary = self.tokenizer.vocabulary
        device = device_of(self.model)
        rows = [with_special_tokens(ids, None, vocabulary) for ids in texts]
        batch = padded(rows, pad_id=vocabulary.pad_id, device=device)
        width = batch["input_ids"].size(1)
        flat = [row * width + 1 + column for row, asked in enumerate(columns) for column in asked]  # 1: behind [CLS]
        encoder, head = self.model.encoder, self.model.mlm_head
        assert head is not None
        positions = torch.tensor(flat, dtype=torch.int64, device=device)
        hidden = encoder(**batch, read_positions=positions).last_hidden_state  # (n, hidden)
        logits: Tensor = head(hidden, encoder.embeddings.word_embeddings.weight)
        return logits.float().log_softmax(dim=-1)  # (n, vocab)

    def best(self, log_probabilities: Tensor, *, top_k: int) -> tuple[Tensor, Tensor]:
        """Return the highest of (n, vocab) among ordinary tokens and their ids, (n, k) each, on the CPU.

        k: top_k, or the number of ordinary tokens where that is less.
        """
        best = (log_probabilities + self._offered).topk(min(top_k, self.num_offered), dim=-1)
        return best.values.cpu(), best.indices.cpu()
