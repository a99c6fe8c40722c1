"""What became of a text on its way into a store: counts for people and for the store's manifest.

In: counts of the readers and of every part.  Out: rows of a table, and the unknown characters by name.
Next: preparation.py
"""

from collections import Counter
from dataclasses import dataclass, field

from bertkit.console import table
from bertkit.text.clean import CleaningSettings
from bertkit.text.corpus import CorpusReport

MOST_FREQUENT = 10  # unknown characters named

REPEATED = "documents that repeat an earlier one"  # a row of the report


@dataclass
class PreparationReport:
    """What became of the text; printed, and kept in the store's manifest."""

    corpus: CorpusReport = field(default_factory=CorpusReport)
    cleaning: CleaningSettings = field(default_factory=CleaningSettings)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)  # documents, sentences, tokens, unknown_tokens
    sentences_without_tokens: int = 0
    documents_without_tokens: int = 0
    documents_of_one_sentence: int = 0
    repeated_documents: int = 0
    unknown_characters: Counter[str] = field(default_factory=Counter)  # that no entry of the vocabulary has
    documents_kept: int = 0  # of a build that was stopped; their unknown characters are not counted again

    def rows(self) -> list[tuple[str, object]]:
        """Return the corpus report as rows of a table."""
        total = Counter[str]()
        for counts in self.parts.values():
            total.update(counts)
        documents, tokens = total["documents"], max(1, total["tokens"])
        rows: list[tuple[str, object]] = [*self.corpus.rows(self.cleaning)]
        rows += [
            ("sentences dropped: no token in them", self.sentences_without_tokens),
            ("documents dropped: no token in them", self.documents_without_tokens),
            ("documents of one sentence (only ever a random B)", self.documents_of_one_sentence),
            (REPEATED, self.repeated_documents),
            ("sentences", total["sentences"]),
            ("sentences in a document, mean", f"{total['sentences'] / max(1, documents):.1f}"),
            ("tokens in a sentence, mean", f"{tokens / max(1, total['sentences']):.1f}"),
            ("tokens", total["tokens"]),
            ("[UNK] among the tokens", f"{100 * total['unknown_tokens'] / tokens:.2f} %"),
        ]
        return rows + [(f"documents for {part}", self.parts[part]["documents"]) for part in self.parts]

    def text(self) -> str:
        """Return the corpus report as people read it, the most frequent unknown characters named."""
        lines = [table(self.rows())]
        if self.unknown_characters:
            # By count, then by text: the order must not depend on which process met a character first.
            ranked = sorted(self.unknown_characters.items(), key=lambda item: (-item[1], item[0]))
            shown = "  ".join(f"{character} {count:,}" for character, count in ranked[:MOST_FREQUENT])
            since = f" after the {self.documents_kept:,} documents of the stopped build" if self.documents_kept else ""
            lines.append(f"  unknown characters{since} ({len(ranked):,} different), the most frequent: {shown}")
        return "\n".join(lines)
