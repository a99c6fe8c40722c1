"""Finished rows of training as people read them: A and B as text, before and after masking, and every token.

In: a Store and the settings of training.  Out: FinishedRows, the first of the epoch's order.
Next: ../commands/inspect_data.py
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.console import table
from bertkit.data.instances import masked_rows
from bertkit.data.masking import MaskingSettings
from bertkit.data.order import global_batch
from bertkit.data.pairs import IS_NEXT, PairSettings, build_pairs
from bertkit.data.selection import Phrases
from bertkit.data.store import Store
from bertkit.text.tokenizer import Tokenizer
from bertkit.text.vocabulary import CONTINUATION, is_continuation, joined_tokens

DASH = "-"  # where nothing is to be predicted


@dataclass(frozen=True)
class FinishedToken:
    """One position of a row: what the model reads, and what it is to say."""

    position: int
    token: str
    id: int
    segment: int  # token_type_id
    label: str | None  # the token that stood there; None: nothing is to be predicted
    label_id: int | None
    text_before: str  # how the position reads in the text before and after masking, the space before it included
    text_after: str  # (special tokens of the frame: empty)


@dataclass(frozen=True)
class FinishedRow:
    """A row as training takes it."""

    row: int  # in the table of the first epoch
    document_a: int  # in the part, from 0
    document_b: int | None  # None: there is no B
    next_sentence_label: int | None
    pairing: str
    tokens: list[FinishedToken]

    def text(self, segment: int, *, masked: bool) -> str:
        """Return A (0) or B (1) as text, before or after masking."""
        inside = [token for token in self.tokens if token.segment == segment]
        return "".join(token.text_after if masked else token.text_before for token in inside)

    def relation(self) -> str:
        """Return what the label says, in words."""
        if self.next_sentence_label is None:
            return "one text, no next-sentence label"
        if self.pairing == "sop":
            meaning = "A and B in order" if self.next_sentence_label == IS_NEXT else "A and B swapped"
        else:
            meaning = "B follows A" if self.next_sentence_label == IS_NEXT else "B is random"
        return f"{meaning} (next_sentence_label {self.next_sentence_label})"

    def shown(self) -> str:
        """Return the row as text for a terminal."""
        where = f"document {self.document_a}" + ("" if self.document_b is None else f", B: document {self.document_b}")
        lines = [f"row {self.row:,}: {self.relation()}; A: {where}"]
        texts = [("A", 0), ("B", 1)][: 1 if self.document_b is None else 2]
        lines += [f"  {name} before  {self.text(segment, masked=False)}" for name, segment in texts]
        lines += [f"  {name} after   {self.text(segment, masked=True)}" for name, segment in texts]
        head = ("position", "token", "id", "segment", "label", "label id")
        cells = [tuple(map(str, (one.position, one.token, one.id, one.segment, *_label(one)))) for one in self.tokens]
        return "\n".join([*lines, table([head, *cells], indent="    ")])

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON can hold it."""
        is_next = None if self.next_sentence_label is None else self.next_sentence_label == IS_NEXT
        texts = {
            f"{name}_{when}": self.text(segment, masked=when == "after")
            for when in ("before", "after")
            for name, segment in (("a", 0), ("b", 1))
        }
        return {**asdict(self), "is_next": is_next, "relation": self.relation(), **texts}


def _label(token: FinishedToken) -> tuple[str, str]:
    return (DASH, DASH) if token.label is None else (token.label, str(token.label_id))


def finished_rows(
    store: Store,
    tokenizer: Tokenizer,
    pairs: PairSettings,
    masking: MaskingSettings,
    *,
    seed: int,
    number: int,
    phrases: Phrases | None = None,
) -> list[FinishedRow]:
    """Return the first `number` rows (or all) of the first epoch, in the order in which training takes them.

    Raises:
        InputError: what build_pairs raises.
    """
    if number < 1:
        return []
    drawn = build_pairs(store, pairs, seed=seed, epoch=0)
    rows = global_batch(seed=seed, epoch=0, step=0, num_rows=len(drawn), batch_size=number)
    built, masked = masked_rows(
        store,
        drawn,
        rows,
        vocabulary=tokenizer.vocabulary,
        masking=masking.at(0.0),
        phrases=phrases,
        seed=seed,
        epoch=0,
    )
    has_pairs = pairs.pairing != "none"
    finished = []
    for place, row in enumerate(rows.tolist()):
        length = int(built.lengths[place])
        tokens = _tokens(
            built.input_ids[place, :length].tolist(),
            masked.input_ids[place, :length].tolist(),
            built.token_type_ids[place, :length].tolist(),
            masked.selected[place, :length].tolist(),
            tokenizer,
        )
        finished.append(
            FinishedRow(
                row=row,
                document_a=int(drawn.document_a[row]),
                document_b=int(drawn.document_b[row]) if has_pairs else None,
                next_sentence_label=int(drawn.next_sentence_label[row]) if has_pairs else None,
                pairing=pairs.pairing,
                tokens=tokens,
            )
        )
    return finished


def _tokens(
    before: list[int], after: list[int], segments: list[int], selected: list[bool], tokenizer: Tokenizer
) -> list[FinishedToken]:
    names = tokenizer.vocabulary.tokens
    texts_before = _framed_texts([names[id] for id in before], segments)
    texts_after = _framed_texts([names[id] for id in after], segments)
    return [
        FinishedToken(
            position=position,
            token=names[after[position]],
            id=after[position],
            segment=segments[position],
            label=names[before[position]] if selected[position] else None,
            label_id=before[position] if selected[position] else None,
            text_before=texts_before[position],
            text_after=texts_after[position],
        )
        for position in range(len(before))
    ]


def _framed_texts(tokens: list[str], segments: list[int]) -> list[str]:
    """How each token of [CLS] A [SEP] B [SEP] reads; nothing for the frame itself."""
    end_a = len(segments) - sum(segments)  # A's [SEP] is the last of segment 0
    texts = ["", *pieces_of_text(tokens[1 : end_a - 1]), ""]
    return texts if end_a == len(tokens) else [*texts, *pieces_of_text(tokens[end_a:-1]), ""]


def pieces_of_text(tokens: Sequence[str]) -> list[str]:
    """Return what each token adds to the text of them all, the space before it included.

    >>> pieces_of_text(["it", "'", "s", "un", "##seen", "。"])
    ['it', "'", 's', ' un', 'seen', '。']
    """
    text, position = joined_tokens(tokens), 0
    pieces = []
    for token in tokens:
        if is_continuation(token) and position:
            piece = token[len(CONTINUATION) :]
        else:
            piece = token if text.startswith(token, position) else f" {token}"
        pieces.append(piece)
        position += len(piece)
    assert position == len(text), "the pieces are the text"
    return pieces
