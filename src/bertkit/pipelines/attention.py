"""Every head's attention in one text or pair.

In: one or two texts and a model folder.  Out: AttentionWeights.  Next: report/attention.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import InputError
from bertkit.model.encoder import Encoder
from bertkit.model.hub import model_directory
from bertkit.model.pretrained import load_with_report
from bertkit.pipelines.batches import require_length, require_short
from bertkit.tasks.tokenizers import fitting_tokenizer
from bertkit.text.tokenizer import with_special_tokens

MAX_WEIGHTS = 2**24  # of all heads; a page of 22 MB, 340 tokens for twelve heads in twelve layers


@dataclass(frozen=True)
class AttentionWeights:
    """What every head of a model attends to in one text or pair."""

    tokens: list[str]  # (seq,)
    token_type_ids: list[int]  # (seq,) 0: A, 1: B
    weights: list[NDArray[np.float32]]  # for each layer (heads, seq, seq); [h, i, j]: from token i to token j
    heads: list[tuple[int, ...]]  # for each layer the numbers of its heads, of which some may have been pruned


@torch.inference_mode()
def attention_of(model: str | Path, texts: Sequence[str], *, allow_bin: bool = False) -> AttentionWeights:
    """Return the weights of every head for one text, or for a pair of two; [MASK] in it is the special token.

    allow_bin: open a pickle where the folder has no safetensors.

    Raises:
        InputError: a text without a token, longer than the model has positions, or too long for a page.
    """
    assert len(texts) in (1, 2)
    folder = model_directory(model, allow_pickle_weights=allow_bin)
    encoder, _ = load_with_report(folder, head=None, allow_new_head=True, allow_pickle_weights=allow_bin)
    assert isinstance(encoder, Encoder)
    config = encoder.config
    tokenizer = fitting_tokenizer(folder, vocab_size=config.vocab_size)
    sides = []
    for number, text in enumerate(texts, start=1):
        require_short(text, what=f"text {number}")
        sides.append(tokenizer.encode(text).ids)
        if not len(sides[-1]):
            raise InputError("holds no token", field=f"text {number}", value=text, remedy="give a text with words")
    ids, types = with_special_tokens(sides[0], sides[1] if len(sides) == 2 else None, tokenizer.vocabulary)
    require_length(len(ids), positions=config.max_position_embeddings, what="the text", text="\t".join(texts))
    heads = [config.kept_heads(layer) for layer in range(config.num_hidden_layers)]
    number = sum(map(len, heads))
    if number * len(ids) ** 2 > MAX_WEIGHTS:
        most = int((MAX_WEIGHTS / number) ** 0.5)
        raise InputError(
            f"has {len(ids)} tokens; with {number} heads that is more than a page can hold",
            field="the text",
            expected=f"at most {most} tokens",
            remedy="shorten it",
        )
    output = encoder(torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None], output_attentions=True)
    assert output.attentions is not None
    weights = [layer[0].float().numpy().astype(np.float32) for layer in output.attentions]
    return AttentionWeights([tokenizer.token_of(id) for id in ids.tolist()], types.tolist(), weights, heads)
