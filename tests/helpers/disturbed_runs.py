"""Pre-training runs on the toy store as real processes, on one rank or several, and what must be equal after them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from processes import Forge, Running, ended, free_port, rank_variables, steps_logged, wait_until
from safetensors.numpy import load_file
from toy_run import metrics_of, toy_model_config, toy_tokenizer, write_model_config, write_store

from bertkit.text.tokenizer import make_tokenizer
from bertkit.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertkit.train.checkpoint import damage, find_checkpoint

SECONDS = 60.0  # for whatever should take two


@dataclass
class ToyRuns:
    """A store and a model size, and runs on them in folders below `folder`."""

    forge: Forge
    folder: Path
    steps: int = 60
    flags: tuple[object, ...] = ()
    documents: list[str] | None = None  # each character of theirs is a token; None: the toy corpus
    store: Path = field(init=False)
    size: Path = field(init=False)

    def __post_init__(self) -> None:
        tokenizer = toy_tokenizer()
        if self.documents is not None:
            characters = sorted({character for document in self.documents for character in document} - {" "})
            tokenizer = make_tokenizer(Vocabulary((*SPECIAL_TOKENS, *characters)), do_lower_case=False)
        self.store = write_store(self.folder, self.documents, tokenizer=tokenizer)
        config = toy_model_config(vocab_size=tokenizer.vocabulary.size)
        self.size = write_model_config(self.folder / "model.json", config)

    def words(self, run: Path, *more: object) -> list[object]:
        """Return the words of the command."""
        words = ["pretrain", "--data_dir", self.store, "--output_dir", run, "--model_size", self.size]
        words += ["--max_seq_length", 32, "--batch_size", 8, "--micro_batch_tokens", 128, "--max_steps", self.steps]
        return [*words, "--log_every", 1, "--eval_every", 20, "--save_every", 10, "--eval_rows", 8, *self.flags, *more]

    @contextmanager
    def begun(self, run: Path, *more: object, ranks: int = 1) -> Iterator[list[Running]]:
        """Yield the processes of a run that has begun; whatever is left of them at the end is killed."""
        port = free_port()
        processes = []
        for rank in range(ranks):
            variables = rank_variables(rank, ranks=ranks, port=port) if ranks > 1 else {}
            output = run.with_name(f"{run.name}-{rank}.output")
            processes.append(self.forge.begin(self.words(run, *more), output, **variables))
        with ended(*processes):
            yield processes

    @contextmanager
    def in_step(self, run: Path, step: int, *more: object, ranks: int = 1) -> Iterator[list[Running]]:
        """Yield the processes of a run that has made so many steps."""
        with self.begun(run, *more, ranks=ranks) as processes:
            wait_until(lambda: steps_logged(run) >= step, seconds=SECONDS, processes=processes)
            yield processes

    def finish(self, run: Path, *more: object, ranks: int = 1) -> None:
        """Let a run go to its end; from where it stands, if it has a checkpoint."""
        resume = ("--resume_from", "last") if has_checkpoint(run) else ()
        with self.begun(run, *resume, *more, ranks=ranks) as processes:
            assert [process.wait(SECONDS) for process in processes] == [0] * ranks, processes[0].said()


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has finished a checkpoint."""
    return any(path.name[5:].isdigit() for path in (run / "checkpoints").glob("step-*"))


def last_step(run: Path) -> int:
    """Return the step of the newest checkpoint, which must be undamaged."""
    newest = max(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*") if path.name[5:].isdigit())
    found = find_checkpoint(run, "last")
    assert found.name == f"step-{newest}"
    assert damage(found) is None
    return newest


def assert_same_end(run: Path, undisturbed: Path) -> None:
    """Every weight, moment, counter and logged number is that of the run that nothing disturbed, to the last bit."""
    assert metrics_of(run) == metrics_of(undisturbed)
    last, other = (find_checkpoint(each, "last") for each in (run, undisturbed))
    assert last.name == other.name
    names = {path.relative_to(last) for path in last.rglob("*.safetensors")}
    assert len(names) >= 2
    for first, second in ((run, undisturbed), *((last / name, other / name) for name in names)):
        first, second = (path / "model.safetensors" if path.is_dir() else path for path in (first, second))
        mine, theirs = load_file(first), load_file(second)
        assert mine.keys() == theirs.keys()
        assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine), first
    mine, theirs = (json.loads((path / "training/state.json").read_text(encoding="utf-8")) for path in (last, other))
    for state in (mine, theirs):
        del state["training_seconds"], state["window"]["seconds"]
    assert mine == theirs
