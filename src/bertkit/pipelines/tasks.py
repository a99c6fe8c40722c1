"""A fine-tuned model asked from Python: what classes, which entities, which choice, which answer.

In: any iterable of texts, and a folder that `bertkit finetune` wrote.  Out: records in order, with the keys of Hugging
Face's pipelines.  Next: ../tasks/predicting.py
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bertkit.data.answers import Candidate
from bertkit.data.examples.example import ChoiceExample, QuestionExample, TaggedExample, TextExample
from bertkit.data.examples.words import joined_words, words_of
from bertkit.errors import InputError
from bertkit.pipelines.batches import require_short, require_top_k
from bertkit.tasks.opening import open_predictor
from bertkit.tasks.predicting import Predictor
from bertkit.tasks.task_settings import TaskName

Record = dict[str, Any]
Item = TypeVar("Item")
Example = TypeVar("Example")
ASKED = "asked"  # the file that is named in errors on what was not read from a file


class TextClassifier:
    """Says which classes a text or a pair of texts has; of a regression which number.

    model: a folder that `bertkit finetune sequence-classification` wrote, or one of transformers with its architecture.

    Raises:
        InputError: no such folder, or a model of another task.
    """

    def __init__(self, model: str | Path) -> None:
        self.predictor = _opened(model, "sequence-classification")

    def __call__(self, text: str | tuple[str, str] | Mapping[str, str], *, top_k: int | None = None) -> list[Record]:
        """Return {label, score} of every class, the likeliest first, or of the top k."""
        [records] = self.classify([text], top_k=top_k)
        return records

    def classify(
        self, texts: Iterable[str | tuple[str, str] | Mapping[str, str]], *, top_k: int | None = None
    ) -> Iterator[list[Record]]:
        """Yield the records of each text, in order; a pair is (A, B), or {"text": A, "text_pair": B}.

        score: the probability; where several classes may hold, each has its own, and they do not add up to 1. Of a
            regression it is the number, and label the name that the model has for it.

        Raises:
            InputError: something else than a text or a pair; a top_k below 1.
        """
        if top_k is not None:
            require_top_k(top_k)
        [name, *_] = self.predictor.config.labels
        for _, answer in _asked(self.predictor, texts, _text_example):
            scores = answer.scores or {name: answer.score}
            ranked = sorted(scores.items(), key=lambda item: -item[1])
            yield [{"label": label, "score": score} for label, score in ranked[:top_k]]


@dataclass(frozen=True)
class TaggedText:
    """A text with its words' tags and its entities; places are characters of `text`, end exclusive."""

    text: str  # as it was given; of a list of words: the words joined
    words: list[Record]  # entity (the tag), score, word, start, end; a record a word
    entities: list[Record]  # entity_group, score, word, start, end


class Tagger:
    """Tags the words of a text and names its entities.

    model: a folder that `bertkit finetune token-classification` wrote.

    Raises:
        InputError: no such folder, or a model of another task.
    """

    def __init__(self, model: str | Path) -> None:
        self.predictor = _opened(model, "token-classification")

    def __call__(self, text: str | Sequence[str]) -> list[Record]:
        """Return {entity_group, score, word, start, end} of each entity, start and end in characters of the text."""
        [tagged] = self.tag([text])
        return tagged.entities

    def tag(self, texts: Iterable[str | Sequence[str]]) -> Iterator[TaggedText]:
        """Yield each text with its tags, in order.

        A text is cut into Chinese characters, runs of letters and digits, and single other characters; who wants
        other words gives a list of them. Every entity's word is `text[start:end]`.

        Raises:
            InputError: something else than a text or a list of words.
        """
        for example, answer in _asked(self.predictor, texts, _tagged_example):
            words = [
                {"entity": tag, "score": score, "word": word, "start": start, "end": end}
                for tag, score, word, (start, end) in zip(
                    answer.tags, answer.scores, example.words, example.offsets, strict=True
                )
            ]
            yield TaggedText(example.text, words, list(answer.entities))


class Chooser:
    """Takes one of some ways in which a text may go on.

    model: a folder that `bertkit finetune multiple-choice` wrote.

    Raises:
        InputError: no such folder, or a model of another task.
    """

    def __init__(self, model: str | Path) -> None:
        self.predictor = _opened(model, "multiple-choice")

    def __call__(self, context: str, choices: Sequence[str]) -> Record:
        """Return {label, scores}: the place of the choice that is taken, from 0, and the probability of each."""
        [record] = self.choose([(context, choices)])
        return record

    def choose(self, questions: Iterable[tuple[str, Sequence[str]] | Mapping[str, Any]]) -> Iterator[Record]:
        """Yield the record of each question, in order: (context, choices), or {"context": …, "choices": […]}.

        Raises:
            InputError: something else, or no choice.
        """
        for _, answer in _asked(self.predictor, questions, _choice_example):
            yield {"label": answer.label, "scores": list(answer.scores)}


class QuestionAnswerer:
    """Finds the answer to a question in a text.

    model: a folder that `bertkit finetune question-answering` wrote.

    Raises:
        InputError: no such folder, or a model of another task.
    """

    def __init__(self, model: str | Path) -> None:
        self.predictor = _opened(model, "question-answering")

    def __call__(self, question: str, context: str) -> Record:
        """Return {score, start, end, answer}; answer is `context[start:end]`, or "" where there is none."""
        [record] = self.answer([{"question": question, "context": context}])
        return record

    def answer(self, questions: Iterable[Mapping[str, str]]) -> Iterator[Record]:
        """Yield {score, start, end, answer} of each {"question": …, "context": …}, in order.

        score: the probability among the candidates of this question.

        Raises:
            InputError: something else than a question with its context.
        """
        for _, answer in _asked(self.predictor, questions, _question_example):
            given = answer.best if answer.text else next(c for c in answer.candidates if not c.text)
            yield _answer_record(given)

    def candidates(self, questions: Iterable[Mapping[str, str]], *, top_k: int = 5) -> Iterator[list[Record]]:
        """Yield the best answers to each question, none among them where the model may say so.

        Raises:
            InputError: as `answer`; a top_k below 1.
        """
        require_top_k(top_k)
        for _, answer in _asked(self.predictor, questions, _question_example):
            yield [_answer_record(candidate) for candidate in answer.candidates[:top_k]]


def _answer_record(candidate: Candidate) -> Record:
    return {
        "score": candidate.probability,
        "start": candidate.start,
        "end": candidate.end,
        "answer": candidate.text,
    }


def _opened(model: str | Path, task: TaskName) -> Predictor:
    predictor = open_predictor(model)
    if predictor.task.name != task:
        raise InputError(
            f"was fine-tuned for {predictor.task.name}",
            file=model,
            expected=f"a model of bertkit finetune {task}",
            remedy="use the class of its own task",
        )
    return predictor


def _asked(
    predictor: Predictor, items: Iterable[Item], example_of: Callable[[str, Any], Example]
) -> Iterator[tuple[Example, Any]]:
    """Yield each item as an example with its answer, reading no further ahead than the predictor does."""
    waiting: deque[Example] = deque()

    def examples() -> Iterator[Example]:
        for number, item in enumerate(items, start=1):
            waiting.append(example_of(str(number), item))
            yield waiting[-1]

    for answer in predictor.answers(examples()):
        yield waiting.popleft(), answer


def _text_example(id: str, item: Any) -> TextExample:
    if isinstance(item, Mapping):
        item = (item.get("text"), item["text_pair"]) if item.get("text_pair") is not None else item.get("text")
    sides = (item, None) if isinstance(item, str) else item
    is_pair = isinstance(sides, tuple) and len(sides) == 2  # (a list may as well be two texts)
    if not is_pair or not all(isinstance(side, str) for side in sides if side is not None) or sides[0] is None:
        raise _unfit(id, item, 'a text, a pair (A, B), or {"text": A, "text_pair": B}; several of them: classify([…])')
    for side in sides:
        require_short(side or "", what=f"item {id}")
    return TextExample(id, sides[0], sides[1], None, None, None, ASKED, int(id))


def _tagged_example(id: str, item: Any) -> TaggedExample:
    if isinstance(item, str):
        require_short(item, what=f"item {id}")
        text, offsets = item, words_of(item)
        words = tuple(text[start:end] for start, end in offsets)
    elif isinstance(item, Sequence) and all(isinstance(word, str) for word in item):
        words = tuple(item)
        text, offsets = joined_words(words)
        require_short(text, what=f"item {id}")
    else:
        raise _unfit(id, item, "a text, or a list of words")
    return TaggedExample(id, text, words, offsets, None, 0, ASKED, (int(id),))


def _choice_example(id: str, item: Any) -> ChoiceExample:
    context, choices = _pair(item, "context", "choices")
    is_list = isinstance(choices, Sequence) and not isinstance(choices, str) and len(choices) > 0
    if not isinstance(context, str) or not is_list or not all(isinstance(choice, str) for choice in choices):
        raise _unfit(id, item, 'a pair (context, choices), or {"context": …, "choices": […]}')
    for text in (context, *choices):
        require_short(text, what=f"item {id}")
    return ChoiceExample(id, context, tuple(choices), None, ASKED, int(id))


def _question_example(id: str, item: Any) -> QuestionExample:
    question, context = _pair(item, "question", "context")
    if not isinstance(question, str) or not isinstance(context, str):
        raise _unfit(id, item, '{"question": …, "context": …}')
    for text in (question, context):
        require_short(text, what=f"item {id}")
    return QuestionExample(id, "", question, context, (), False, id, ASKED, int(id))


def _pair(item: Any, first: str, second: str) -> tuple[Any, Any]:
    """Both parts of a pair or of a mapping with these keys; None for what is neither."""
    if isinstance(item, Mapping):
        return item.get(first), item.get(second)
    return (item[0], item[1]) if isinstance(item, tuple) and len(item) == 2 else (None, None)


def _unfit(id: str, item: Any, expected: str) -> InputError:
    return InputError("is nothing that can be asked", field=f"item {id}", value=repr(item)[:1000], expected=expected)
