"""What training writes, transformers opens: the run, each of its checkpoints, and their tokenizer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from toy_run import toy_config, toy_tokenizer, write_store

from bertkit.commands.pretrain import pretrain
from bertkit.model.heads import PretrainingModel
from bertkit.model.pretrained import load

TEXTS = ["明月照江楼。", "The moon sees a green hill.", "Ωmega 雪"]
PAIR = ("明月照江楼。", "The moon sees the tower.")
ATOL = 1e-5


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers' progress bars and remarks, switched off for one test."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened")
    store = write_store(folder)
    pretrain(toy_config(store, folder / "run", save_every=4, save_total_limit=9, learning_rate=1e-2))
    pretrain(toy_config(store, folder / "mlm", pairing="none", learning_rate=1e-2))
    return folder / "run"


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = toy_tokenizer().vocabulary.size
    mask = torch.tensor([[1] * 12, [1] * 7 + [0] * 5])
    types = torch.tensor([[0] * 5 + [1] * 7, [0] * 4 + [1] * 3 + [0] * 5])
    ids = torch.randint(5, size, (2, 12), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


@torch.no_grad()
def test_the_run_and_every_checkpoint_give_the_same_logits_there(run: Path) -> None:
    folders = [run, *sorted((run / "checkpoints").glob("step-*"))]
    assert len(folders) == 5  # 4, 6 (evaluated), 8, 12
    seen = set()
    for folder in folders:
        theirs, notes = transformers.AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
        assert not any(notes[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        ours = load(folder)
        assert isinstance(ours, PretrainingModel)
        given = batch()
        expected, found = theirs.eval()(**given), ours(given.pop("input_ids"), **given)
        real = given["attention_mask"].bool()
        assert found.mlm_logits is not None
        torch.testing.assert_close(found.mlm_logits[real], expected.prediction_logits[real], rtol=0, atol=ATOL)
        torch.testing.assert_close(found.nsp_logits, expected.seq_relationship_logits, rtol=0, atol=ATOL)
        seen.add(round(float(expected.prediction_logits[0, 0, 9]), 4))
    assert len(seen) == 4  # the run is its best checkpoint; the checkpoints differ


@torch.no_grad()
def test_a_run_without_pairs_opens_as_a_masked_lm(run: Path) -> None:
    folder = run.with_name("mlm")
    theirs, notes = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(notes[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ours = load(folder, head="masked_lm")
    given = batch()
    expected = theirs.eval()(**given).logits
    found = ours(given.pop("input_ids"), **given)
    real = given["attention_mask"].bool()
    assert isinstance(ours, PretrainingModel)
    torch.testing.assert_close(found.mlm_logits[real], expected[real], rtol=0, atol=ATOL)


def test_the_tokenizer_of_the_run_opens_there_and_cuts_alike(run: Path) -> None:
    ours = toy_tokenizer()
    for folder in (run, run / "checkpoints" / "step-12"):
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        for text in TEXTS:
            assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).ids.tolist()
        ids = theirs(*PAIR)["input_ids"]
        assert theirs.convert_ids_to_tokens(ids)[0] == "[CLS]"
        assert ids.count(theirs.sep_token_id) == 2
        assert (
            theirs.model_max_length
            == json.loads((folder / "config.json").read_text("utf-8"))["max_position_embeddings"]
        )
