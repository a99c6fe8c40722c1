"""A corpus as every command takes it: read, and cleaned as asked.

In: CorpusSettings and CleaningSettings.  Out: an iterator of Documents; two reports filled on the way.
Next: documents.py, clean.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bertkit.text.clean import CleaningReport, CleaningSettings, clean_documents
from bertkit.text.documents import CorpusSettings, Document, ReadingReport, read_documents
from bertkit.text.rejects import rejects_written


@dataclass
class CorpusReport:
    """What became of every line, record and document."""

    reading: ReadingReport = field(default_factory=ReadingReport)
    cleaning: CleaningReport = field(default_factory=CleaningReport)

    def rows(self, cleaning: CleaningSettings) -> list[tuple[str, int]]:
        """Return the counts as rows of a table; those of cleaning only where something was to be cleaned."""
        return [*self.reading.rows(), *(self.cleaning.rows() if cleaning.active else [])]


@contextmanager
def open_corpus(
    corpus: CorpusSettings, cleaning: CleaningSettings, report: CorpusReport
) -> Iterator[Iterator[Document]]:
    """Yield the documents of a corpus; what was dropped is written to the rejects file when the block ends.

    Raises:
        InputError: what reading and cleaning raise.
    """
    if not cleaning.active:  # nothing to count: no document is changed or dropped
        yield read_documents(corpus, report.reading)
        return
    with rejects_written(cleaning.rejects_file) as rejects:
        documents = read_documents(corpus, report.reading)
        yield clean_documents(documents, cleaning, report.cleaning, rejects=rejects)
