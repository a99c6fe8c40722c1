"""A fine-tuned model asked: examples in, answers out, in their order, a chunk at a time.

In: a model, its task and settings, examples.  Out: answers; figures where the examples have labels.
Next: ../pipelines/tasks.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bertkit.console import Progress, say
from bertkit.data.examples.reading import ExampleReport, ReadingSettings
from bertkit.data.features import CoverageReport
from bertkit.model.architectures import TaskModel
from bertkit.model.task_config import TaskConfig
from bertkit.tasks.example_files import read_examples
from bertkit.tasks.finetuning import FineTuningTask, Outputs, no_gradient_scores
from bertkit.tasks.task_settings import Knowledge, TaskSettings, require_known, thresholds_in_words
from bertkit.text.tokenizer import Tokenizer
from bertkit.train.runtime import Runtime

EXAMPLES_AT_ONCE = 1024  # whose features are in memory together
MICRO_BATCH_TOKENS = 4096


@dataclass
class Predictor:
    """A model with all that its answers depend on.

    coverage: what of the examples so far the model did not get to see.
    """

    model: TaskModel
    tokenizer: Tokenizer
    task: FineTuningTask[Any, Any, Any]
    settings: TaskSettings
    knowledge: Knowledge
    coverage: CoverageReport = field(default_factory=CoverageReport)
    micro_batch_tokens: int = MICRO_BATCH_TOKENS

    @property
    def config(self) -> TaskConfig:
        """The labels of the model."""
        return self.model.task

    def say_thresholds(self) -> None:
        """Say what decides between an answer and none."""
        for line in thresholds_in_words(self.knowledge, self.settings):
            say(line)

    def labelled(self, paths: str, reading: ReadingSettings, *, flag: str) -> list[Any]:
        """Return the examples of labelled files, and say what was read.

        Raises:
            InputError: anything wrong with the data; labels that the model does not have.
        """
        require_known(self.task.name, reading)
        report = ExampleReport(reading.on_bad)
        examples = read_examples(self.task.name, paths, reading, report, labelled=True, flag=flag)
        return self.fitting(examples, reading, report)

    def fitting(self, examples: Sequence[Any], reading: ReadingSettings, report: ExampleReport) -> list[Any]:
        """Return the examples with labels as the model has them, and say what became of every record.

        Raises:
            InputError: labels that the model does not have.
        """
        found = self.task.check(examples, self.config, reading, report, knowledge=self.knowledge)
        report.say()
        return found

    def answers(self, examples: Iterable[Any], *, progress: Progress | None = None) -> Iterator[Any]:
        """Yield an answer for each example, in order; rows of like length go through the model together.

        An answer does not depend on what is asked beside it, but for rounding.

        progress: of examples; it moves with every batch of rows, before the answers of a chunk come together.
        """
        asked = iter(examples)
        while chunk := list(islice(asked, EXAMPLES_AT_ONCE)):
            features = self.task.features(
                chunk,
                self.tokenizer,
                settings=self.settings,
                task=self.config,
                knowledge=self.knowledge,
                coverage=self.coverage,
            )
            yield from self.decode(chunk, features, self.scores(features, progress=progress, units=len(chunk)))

    def scores(
        self,
        features: Sequence[Any],
        *,
        runtime: Runtime | None = None,
        progress: Progress | None = None,
        units: int | None = None,
    ) -> Outputs:
        """Return what the model gives for each feature.

        units: by how many `progress` moves on in all; None: by the number of features.
        """
        found: dict[int, Any] = {}
        units, told = len(features) if units is None else units, 0
        batches = no_gradient_scores(
            self.task,
            self.model,
            features,
            pad_id=self.tokenizer.vocabulary.pad_id,
            config=self.config,
            micro_batch_tokens=self.micro_batch_tokens,
            device=next(self.model.parameters()).device,
        )
        for places, outputs in batches:
            found |= zip(places, outputs, strict=True)
            if progress is not None:
                now = units * len(found) // len(features)
                progress.advance(now - told)
                told = now
            if runtime is not None:
                runtime.watchdog.beat()
        if progress is not None:
            progress.advance(units - told)
        return [found[place] for place in range(len(features))]

    def decode(self, examples: Sequence[Any], features: Sequence[Any], outputs: Outputs) -> list[Any]:
        """Return the answers that scores give."""
        return self.task.answers(
            examples,
            features,
            outputs,
            settings=self.settings,
            task=self.config,
            knowledge=self.knowledge,
        )

    def metrics(self, examples: Sequence[Any], answers: Sequence[Any]) -> tuple[dict[str, float], dict[str, Any]]:
        """Return figures by name, and tables."""
        return self.task.metrics(examples, answers, task=self.config, knowledge=self.knowledge)
