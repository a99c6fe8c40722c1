"""Google's finished instances, draw for draw: what create_pretraining_data.py makes of a corpus with the same seed.

In: documents as lists of sentences, and a tokenizer.  Out: Instances.  An export and no training mode: the corpus and
all its instances are in memory, where a store (store.py, pairs.py) keeps neither.  Next: export.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np

from bertkit.console import Progress, say
from bertkit.data.export import Instance
from bertkit.data.pairs import IS_NEXT, IS_RANDOM, SPECIALS_OF_A_PAIR
from bertkit.errors import InputError
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import CONTINUATION, UNK

DOCUMENTS_AT_ONCE = 1000  # handed to the tokenizer in one call
RANDOM_DOCUMENT_DRAWS = 10  # the last one is used whatever it is
MASK_SHARE, KEPT_SHARE_OF_THE_REST = 0.8, 0.5

Tokens = list[int]


@dataclass(frozen=True)
class GoogleSettings:
    """The flags of create_pretraining_data.py that change its instances, with its defaults."""

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    dupe_factor: int = 10  # passes over the corpus
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False
    seed: int = 12345

    def __post_init__(self) -> None:
        for name, value, least in (
            ("max_seq_length", self.max_seq_length, SPECIALS_OF_A_PAIR + 2),
            ("max_predictions_per_seq", self.max_predictions_per_seq, 1),
            ("dupe_factor", self.dupe_factor, 1),
        ):
            if value < least:
                raise InputError("is too small", field=f"--{name}", value=value, expected=f"{least} or more")
        for name, share in (("masked_lm_prob", self.masked_lm_prob), ("short_seq_prob", self.short_seq_prob)):
            if not 0 <= share <= 1:
                raise InputError("is not a share", field=f"--{name}", value=share, expected="0 to 1")


@dataclass
class GoogleReport:
    """What became of the corpus, and which of the known faults struck how often."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    documents_without_tokens: int = 0
    sentences_without_tokens: int = 0
    instances: int = 0
    random: int = 0  # instances labelled random
    random_from_own_document: int = 0
    nothing_hidden: int = 0  # instances: every word in them has more pieces than may be hidden
    trimmed_tokens: int = 0

    def rows(self) -> list[tuple[str, int]]:
        """Return the counts as rows of a table; what struck nothing is left out."""
        rows = [("documents", self.documents), ("sentences", self.sentences), ("tokens", self.tokens)]
        rows += [("instances", self.instances), ("instances labelled random", self.random)]
        rare = [
            ("documents dropped: no token", self.documents_without_tokens),
            ("sentences dropped: no token", self.sentences_without_tokens),
            ("labelled random, but B of A's document", self.random_from_own_document),
            ("instances with nothing hidden", self.nothing_hidden),
            ("tokens trimmed from over-long pairs", self.trimmed_tokens),
        ]
        return [*rows, *((what, count) for what, count in rare if count)]


def google_instances(
    documents: Iterable[Sequence[str]], tokenizer: Tokenizer, settings: GoogleSettings, report: GoogleReport
) -> list[Instance]:
    """Return the instances in Google's order, and count in `report` what went into them.

    documents: each its sentences; Google's script reads a sentence a line and ends a document at a blank one.

    The known faults of this behaviour, which build_pairs and mask_tokens do not share, are kept: with one document, or
    after ten unlucky draws, a "random" B is of A's document (and may be what follows A); chunks of one sentence push
    the share of random pairs above half; special and [unused…] entries are drawn as replacements, and [UNK] is hidden;
    whole-word masking joins a ## with which the trimming left B to the end of A, and hides nothing in a row whose words
    all have too many pieces; the corpus is in memory as Python's lists; everything is made dupe_factor times.

    Raises:
        InputError: no document with a token in it.
    """
    say("--compat google: the corpus and all its instances are held in memory")
    rng = Random(settings.seed)
    read = _read(documents, tokenizer, report)
    if not read:
        raise InputError(
            "the corpus holds no document with a token in it", remedy="look at it with `bertkit inspect corpus`"
        )
    rng.shuffle(read)
    builder = _Builder(read, tokenizer, settings, report, rng)
    instances: list[Instance] = []
    with Progress("building", total=settings.dupe_factor * len(read), unit="documents") as progress:
        for _ in range(settings.dupe_factor):
            for number in range(len(read)):
                instances.extend(builder.instances_of(number))
                progress.advance()
    rng.shuffle(instances)
    report.instances = len(instances)
    return instances


def _read(documents: Iterable[Sequence[str]], tokenizer: Tokenizer, report: GoogleReport) -> list[list[Tokens]]:
    """The documents as ids, without the sentences and the documents that have no token."""
    read: list[list[Tokens]] = []
    iterator = iter(documents)
    while chunk := list(islice(iterator, DOCUMENTS_AT_ONCE)):
        # To Google's tokenizer a literal [UNK] is a word in brackets.  The space changes no token but hides it from
        # ours, to which it is the unknown token.
        texts = [sentence.replace(UNK, f"{UNK[0]} {UNK[1:]}") for document in chunk for sentence in document]
        encoded = iter(tokenizer.encode_plain(texts))
        for document in chunk:
            sentences = [ids.tolist() for ids in islice(encoded, len(document)) if len(ids)]
            report.sentences_without_tokens += len(document) - len(sentences)
            if not sentences:
                report.documents_without_tokens += 1
                continue
            report.documents += 1
            report.sentences += len(sentences)
            report.tokens += sum(map(len, sentences))
            read.append(sentences)
    return read


@dataclass(frozen=True)
class _Builder:
    """What every step needs; the one generator is threaded through all of them, and its draws' order is the result."""

    documents: list[list[Tokens]]
    tokenizer: Tokenizer
    settings: GoogleSettings
    report: GoogleReport
    rng: Random

    @property
    def _room(self) -> int:
        return self.settings.max_seq_length - SPECIALS_OF_A_PAIR

    def instances_of(self, number: int) -> Iterator[Instance]:
        """Yield the instances of one pass over one document."""
        document, rng = self.documents[number], self.rng
        target = self._room
        if rng.random() < self.settings.short_seq_prob:
            target = rng.randint(2, self._room)
        first = 0
        while first < len(document):
            end = _end_of_chunk(document, first, target)
            split = first + (rng.randint(1, end - first - 1) if end - first > 1 else 1)
            a = _joined(document[first:split])
            if end - first == 1 or rng.random() < 0.5:
                b, label = self._random_b(number, target - len(a)), IS_RANDOM
                first = split  # the sentences that A did not use are put back
            else:
                b, label = _joined(document[split:end]), IS_NEXT
                first = end
            self.report.random += label == IS_RANDOM
            yield self._finished(*self._trimmed(a, b), label)

    def _random_b(self, own: int, wanted: int) -> Tokens:
        """Sentences from a random place on, in what should be another document: `wanted` tokens, or all to its end."""
        for _ in range(RANDOM_DOCUMENT_DRAWS):
            other = self.rng.randint(0, len(self.documents) - 1)
            if other != own:
                break
        self.report.random_from_own_document += other == own
        document = self.documents[other]
        start = self.rng.randint(0, len(document) - 1)
        return _joined(document[start : _end_of_chunk(document, start, wanted)])

    def _trimmed(self, a: Tokens, b: Tokens) -> tuple[Tokens, Tokens]:
        """A and B cut to the room, token by token, from the longer one (B when equal), at a random end."""
        starts, ends = [0, 0], [len(a), len(b)]
        excess = max(0, len(a) + len(b) - self._room)
        for _ in range(excess):
            side = 0 if ends[0] - starts[0] > ends[1] - starts[1] else 1
            if self.rng.random() < 0.5:
                starts[side] += 1
            else:
                ends[side] -= 1
        self.report.trimmed_tokens += excess
        return a[starts[0] : ends[0]], b[starts[1] : ends[1]]

    def _finished(self, a: Tokens, b: Tokens, label: int) -> Instance:
        """[CLS] A [SEP] B [SEP] with tokens hidden."""
        vocabulary = self.tokenizer.vocabulary
        ids = [vocabulary.cls_id, *a, vocabulary.sep_id, *b, vocabulary.sep_id]
        replacements = self._replacements(ids)
        self.report.nothing_hidden += not replacements
        originals, positions = np.array(ids, np.int32), np.array(sorted(replacements), np.int32)
        output = originals.copy()
        output[list(replacements)] = list(replacements.values())
        return Instance(
            input_ids=output,
            token_type_ids=np.repeat(np.array([0, 1], np.int8), [len(a) + 2, len(b) + 1]),
            next_sentence_label=label,
            masked_lm_positions=positions,
            masked_lm_ids=originals[positions],
        )

    def _replacements(self, ids: Tokens) -> dict[int, int]:
        """Position → what stands there instead, in the order in which they are drawn."""
        candidates = self._candidates(ids)
        self.rng.shuffle(candidates)
        wanted = num_predictions(len(ids), self.settings)
        replacements: dict[int, int] = {}
        for candidate in candidates:
            if len(replacements) >= wanted:
                break
            if len(replacements) + len(candidate) <= wanted:
                replacements |= {position: self._replacement(ids[position]) for position in candidate}
        return replacements

    def _candidates(self, ids: Tokens) -> list[list[int]]:
        """The positions that may be hidden; with whole-word masking those of a word are one candidate."""
        vocabulary, whole_words = self.tokenizer.vocabulary, self.settings.do_whole_word_mask
        specials = (vocabulary.cls_id, vocabulary.sep_id)
        candidates: list[list[int]] = []
        for position, id in enumerate(ids):
            if id in specials:
                continue
            if whole_words and candidates and vocabulary.tokens[id].startswith(CONTINUATION):
                candidates[-1].append(position)
            else:
                candidates.append([position])
        return candidates

    def _replacement(self, original: int) -> int:
        vocabulary, rng = self.tokenizer.vocabulary, self.rng
        if rng.random() < MASK_SHARE:
            return vocabulary.mask_id
        return original if rng.random() < KEPT_SHARE_OF_THE_REST else rng.randint(0, vocabulary.size - 1)


def num_predictions(length: int, settings: GoogleSettings) -> int:
    """Return how many tokens are hidden in a row of `length` tokens, special ones counted; a half goes to the even.

    >>> [num_predictions(length, GoogleSettings()) for length in (3, 10, 30, 128, 512)]
    [1, 2, 4, 19, 20]
    """
    return min(settings.max_predictions_per_seq, max(1, round(length * settings.masked_lm_prob)))


def _end_of_chunk(document: list[Tokens], first: int, target: int) -> int:
    """The end of the sentences from `first` on, one or more, that have `target` tokens or reach the document's end."""
    end, length = first + 1, len(document[first])
    while end < len(document) and length < target:
        length += len(document[end])
        end += 1
    return end


def _joined(sentences: list[Tokens]) -> Tokens:
    return [token for sentence in sentences for token in sentence]
