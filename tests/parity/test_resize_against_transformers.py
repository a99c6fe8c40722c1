"""Three tokens added, the model resized, its head run, saved, and opened in transformers: everything is V + 3."""

from pathlib import Path

import pytest
import torch
from toy_model import CHINESE, model_folder, random_model, toy_config, toy_tokenizer
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from bertkit.commands.vocab import Config, run
from bertkit.model.pretrained import load
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import load_tokenizer

WORDS = "goldnight,苓,playing"
SIZE = toy_config().vocab_size
TEXTS = ["我住长江头，君住长江尾。", "The team won gold in the night, playing.", "苓 goldnight"]


def resized_folder(tmp_path: Path, *, tied: bool, head: str) -> tuple[Path, Path]:
    model = random_model(head=head, config=toy_config(tie_word_embeddings=tied))
    old = model_folder(tmp_path / "old", model)
    run(Config(output_dir=tmp_path / "new", model=old, add_words=WORDS))
    return old, tmp_path / "new"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_three_added_tokens_are_everywhere_and_old_scores_stay(tmp_path: Path, tied: bool, head: str) -> None:
    old, new = resized_folder(tmp_path, tied=tied, head=head)
    loader = AutoModelForPreTraining if head == "pretraining" else AutoModelForMaskedLM
    theirs = loader.from_pretrained(new).eval()
    decoder, embeddings = theirs.cls.predictions.decoder, theirs.bert.embeddings.word_embeddings
    assert embeddings.weight.shape[0] == decoder.weight.shape[0] == SIZE + 3
    assert decoder.bias.shape == theirs.cls.predictions.bias.shape == (SIZE + 3,)
    assert theirs.config.vocab_size == SIZE + 3
    assert (decoder.weight is embeddings.weight) == tied
    ids = torch.arange(SIZE - SIZE % 2).view(2, -1)
    with torch.no_grad():
        before, after = load(old, head=head)(ids).mlm_logits, load(new, head=head)(ids).mlm_logits
        output = theirs(ids)
    logits = output.prediction_logits if head == "pretraining" else output.logits
    torch.testing.assert_close(after[..., :SIZE], before, rtol=0, atol=1e-6)
    torch.testing.assert_close(logits, after, rtol=0, atol=1e-5)


def test_transformers_own_resizing_keeps_the_same_old_scores(tmp_path: Path) -> None:
    old, new = resized_folder(tmp_path, tied=True, head="pretraining")
    theirs = AutoModelForPreTraining.from_pretrained(old).eval()
    theirs.resize_token_embeddings(SIZE + 3, mean_resizing=False)
    ids = torch.arange(SIZE - SIZE % 2).view(2, -1)
    with torch.no_grad():
        ours = load(new)(ids).mlm_logits
        torch.testing.assert_close(theirs(ids).prediction_logits[..., :SIZE], ours[..., :SIZE], rtol=0, atol=1e-5)


def test_the_tokenizer_of_the_folder_gives_the_added_tokens_in_both_libraries(tmp_path: Path) -> None:
    _, new = resized_folder(tmp_path, tied=True, head="pretraining")
    theirs, ours = AutoTokenizer.from_pretrained(new), load_tokenizer(new)
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).ids.tolist()
    assert ours.encode(TEXTS[2]).tokens == ["苓", "goldnight"]


def test_a_trimmed_folder_gives_the_same_scores_in_transformers(tmp_path: Path) -> None:
    old = model_folder(tmp_path / "old", random_model())
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS[:2]) + "\n", encoding="utf-8")
    settings = CorpusSettings(input_file=str(corpus), format="lines")
    run(Config(output_dir=tmp_path / "new", model=old, trim_to_corpus=True, corpus=settings))
    before, after = (AutoModelForPreTraining.from_pretrained(tmp_path / name).eval() for name in ("old", "new"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert after.config.vocab_size == len(tokenizer) < before.config.vocab_size
    assert after.config.pad_token_id == tokenizer.pad_token_id
    kept = [toy_tokenizer().vocabulary.ids[token] for token in load_tokenizer(tmp_path / "new").vocabulary.tokens]
    assert {token for token in map(toy_tokenizer().token_of, kept) if token in CHINESE} == set(TEXTS[0])
    for text in TEXTS[:2]:
        with torch.no_grad():
            wide = before(**AutoTokenizer.from_pretrained(old)(text, return_tensors="pt"))
            narrow = after(**tokenizer(text, return_tensors="pt"))
        torch.testing.assert_close(narrow.prediction_logits, wide.prediction_logits[..., kept], rtol=0, atol=1e-5)
        torch.testing.assert_close(narrow.seq_relationship_logits, wide.seq_relationship_logits, rtol=0, atol=1e-5)
