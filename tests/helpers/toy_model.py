"""Small model folders on a toy vocabulary, for the tests of what stands behind a model: random, or learnt by heart."""

import dataclasses
from pathlib import Path

import torch

from bertkit.model.config import BertConfig
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import Head, build, save
from bertkit.text.tokenizer import Tokenizer, make_tokenizer, with_special_tokens
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary

# Li Zhiyi's ci, two sentences by two; and an English pair.
RIVER, DAY = "我住长江头，君住长江尾。", "日日思君不见君，共饮长江水。"
WHEN, HEART = "此水几时休，此恨何时已。", "只愿君心似我心，定不负相思意。"
GOLD, LATE = "The U.S. team won gold.", "It was late in the night."
TEXTS = [RIVER, DAY, WHEN, HEART, GOLD, LATE]
ENGLISH = [
    *("the", "u", "s", "team", "won", "gold", "it", "was", "late", "in", "night", "naive", "cafe", ".", ",", "'"),
    *("un", "##seen", "##s", "##ing", "play", "a", "b", "##a", "##b"),
]
CHINESE = sorted({character for text in (RIVER, DAY, WHEN, HEART) for character in text})


def toy_vocabulary() -> Vocabulary:
    """Special tokens not at the front, two unused ones, English pieces, jamo, and every character of the ci."""
    return Vocabulary(("[PAD]", "[unused0]", *SPECIAL_TOKENS[1:], *ENGLISH, "ᄒ", "##ᅡ", "##ᆫ", *CHINESE, "[unused1]"))


def toy_tokenizer(*, do_lower_case: bool = True) -> Tokenizer:
    """The tokenizer of the toy vocabulary."""
    return make_tokenizer(toy_vocabulary(), do_lower_case=do_lower_case)


def toy_config(**changes: int) -> BertConfig:
    """Two layers of width 32 for the toy vocabulary, 64 positions, no dropout."""
    small = BertConfig(
        vocab_size=toy_vocabulary().size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=64,
    )
    return dataclasses.replace(small, **changes)


def random_model(*, head: Head = "pretraining", config: BertConfig | None = None, seed: int = 0) -> PretrainingModel:
    """A seeded model in eval mode whose answers differ from token to token."""
    torch.manual_seed(seed)
    model = build(config or toy_config(), head=head).eval()
    assert isinstance(model, PretrainingModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def model_folder(path: Path, model: PretrainingModel, *, do_lower_case: bool = True) -> Path:
    """The folder `path`, in which the model was saved with the toy tokenizer."""
    files = toy_tokenizer(do_lower_case=do_lower_case).files(model_max_length=model.config.max_position_embeddings)
    save(path, model, files=files)
    return path


def learnt_model(*, steps: int = 70, seed: int = 0) -> PretrainingModel:
    """A model in eval mode that knows TEXTS by heart, any two neighbouring tokens hidden, and which text follows."""
    torch.manual_seed(seed)
    model = PretrainingModel(toy_config())
    vocabulary, tokenizer = toy_vocabulary(), toy_tokenizer()
    ids = [tokenizer.encode_plain([text])[0].astype("int64") for text in TEXTS]
    rows, labels = [], []
    for sentence in ids:
        for column in range(len(sentence)):
            hidden = sentence.copy()
            for place in {column, (column + 1) % len(sentence)}:
                hidden[place] = vocabulary.mask_id
                labels.append((len(rows), 1 + place, sentence[place]))
            rows.append(with_special_tokens(hidden, None, vocabulary))
    masked, _, masked_mask = _batch(rows)
    pairs = [(a, b) for a in range(0, len(TEXTS), 2) for b in range(1, len(TEXTS), 2)]
    joined, types, joined_mask = _batch([with_special_tokens(ids[a], ids[b], vocabulary) for a, b in pairs])
    positions = torch.tensor([row * masked.size(1) + column for row, column, _ in labels])
    targets = torch.tensor([int(id) for _, _, id in labels])
    follows = torch.tensor([0 if b == a + 1 else 1 for a, b in pairs])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        fill = model(masked, attention_mask=masked_mask, mlm_positions=positions, mlm_targets=targets)
        judge = model(joined, attention_mask=joined_mask, token_type_ids=types, next_sentence_label=follows)
        (fill.loss + judge.loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def _batch(rows: list) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, token types and mask of rows, (batch, seq) each."""
    width = max(len(ids) for ids, _ in rows)
    batch = torch.zeros(3, len(rows), width, dtype=torch.int64)  # [PAD] has id 0
    for row, (ids, types) in enumerate(rows):
        batch[0, row, : len(ids)], batch[1, row, : len(ids)] = torch.from_numpy(ids), torch.from_numpy(types)
        batch[2, row, : len(ids)] = 1
    return batch[0], batch[1], batch[2].bool()
