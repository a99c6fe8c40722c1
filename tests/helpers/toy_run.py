"""A toy corpus of a small grammar, its vocabulary, a store and a model, and pre-training runs of a blink on them."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bertkit.commands import pretrain as command
from bertkit.data.preparation import PreparationSettings, prepare_store
from bertkit.model.config import BertConfig
from bertkit.options import config_from
from bertkit.text.documents import CorpusSettings
from bertkit.text.tokenizer import Tokenizer, make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.train import loop
from bertkit.train.feed import StepBatches
from bertkit.train.saver import Saver
from bertkit.train.state import TrainState, Window

CHINESE = (
    ["明月", "春风", "孤舟", "落花", "故人", "归雁", "细雨", "寒蝉"],
    ["照", "过", "入", "下", "别", "向"],
    ["江楼", "青山", "西窗", "南浦", "长亭", "画桥", "小院", "平沙"],
)
ENGLISH = (
    ["the moon", "a wind", "one boat", "the flower", "my friend", "a wild goose", "the rain", "some bird"],
    ["sees", "passes", "enters", "leaves", "loves", "seeks"],
    ["the tower", "a green hill", "the window", "the shore", "a long road", "the bridge", "a yard", "the sand"],
)
# What says nothing of the numbers of a run: how long it took.
TIMES = ("tokens_per_second", "training_seconds", "mfu")


def toy_documents(*, number: int = 80, seed: int = 7) -> list[str]:
    """Documents of one to six sentences, Chinese and English in turn."""
    generator = random.Random(seed)
    return [_document(generator, english=bool(index % 2)) for index in range(number)]


def _document(generator: random.Random, *, english: bool) -> str:
    parts = ENGLISH if english else CHINESE
    sentences = []
    for _ in range(generator.randint(1, 6)):
        words = [generator.choice(part) for part in parts]
        sentences.append((" ".join(words)).capitalize() + "." if english else "".join(words) + "。")
    return (" " if english else "").join(sentences)


def toy_tokenizer(*, specials_first: bool = True) -> Tokenizer:
    """Every Chinese character and English word of the grammar, 。 and the full stop."""
    words = sorted({word for part in ENGLISH for phrase in part for word in phrase.split()})
    characters = sorted({character for part in CHINESE for word in part for character in word})
    ordinary = (".", "。", *words, *characters)
    tokens = (*SPECIAL_TOKENS, *ordinary) if specials_first else (*ordinary, *SPECIAL_TOKENS)
    return make_tokenizer(Vocabulary(tokens), do_lower_case=True)


def write_corpus(path: Path, documents: list[str]) -> CorpusSettings:
    """Write a document a line and return the settings that read them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{document}\n" for document in documents), encoding="utf-8")
    return CorpusSettings(input_file=str(path), format="lines")


def write_store(
    folder: Path,
    documents: list[str] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    validation_split: bool = True,
) -> Path:
    """Write a store of the documents (the toy corpus) into folder/store."""
    corpus = write_corpus(folder / "corpus.txt", toy_documents() if documents is None else documents)
    prepare_store(
        corpus, tokenizer or toy_tokenizer(), folder / "store", PreparationSettings(validation_split=validation_split)
    )
    return folder / "store"


def toy_model_config(*, dropout: float = 0.1, positions: int = 64, vocab_size: int | None = None) -> BertConfig:
    """Two layers × 32."""
    return BertConfig(
        vocab_size=toy_tokenizer().vocabulary.size if vocab_size is None else vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def write_model_config(path: Path, config: BertConfig | None = None) -> Path:
    """Write a config.json for --model_size."""
    path.write_text(json.dumps((config or toy_model_config()).to_json()), encoding="utf-8")
    return path


def toy_config(store: Path | None, output: Path, **values: Any) -> command.Config:
    """The settings of a run of 12 steps of 8 rows, each step logged; `values` by the names of the flags."""
    base = {
        "output_dir": str(output),
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "warmup_ratio": 0.1,
        "final_learning_rate_ratio": 0.0,
        "hidden_dropout_prob": None,
        "attention_probs_dropout_prob": None,
        "data_dir": None if store is None else str(store),
        "max_seq_length": 32,
        "batch_size": 8,
        "max_steps": 12,
        "log_every": 1,
        "eval_every": 6,
        "eval_rows": 16,
    }
    if "model_name_or_path" not in values and "model_size" not in values:
        base["model_size"] = str(write_model_config(output.with_name(f"{output.name}.config.json")))
    config: command.Config = config_from(command.Config, {**base, **values})
    return config


class StopError(Exception):
    """The machine is switched off."""


@contextmanager
def stopped_before(step: int) -> Iterator[None]:
    """Training inside ends as by a kill when `step` updates are finished (and all their lines and files written)."""
    update = loop.update

    def update_or_stop(job: loop.Job, state: TrainState, batches: Iterator[StepBatches]) -> Window | None:
        if state.step == step:
            if isinstance(job.saver, Saver):
                job.saver.wait()
            raise StopError
        return update(job, state, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "update", update_or_stop)
        try:
            yield
        except StopError:
            return
    pytest.fail(f"training was not stopped before step {step}")


def metrics_of(run: Path, *, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, times left out."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n") if line]
    return [
        {name: value for name, value in row.items() if name not in TIMES} for row in rows if kind in (None, row["kind"])
    ]
