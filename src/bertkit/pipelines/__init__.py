"""Text in, answers out, for the command line, the report and Python: any iterable in, records out in its order.

In: texts and a model folder.  Out: one record a text.  Next: batches.py
(Those of the fine-tuned tasks are in tasks.py, which brings more of the house than filling a mask should.)
"""

from bertkit.pipelines.embedding import Embedder
from bertkit.pipelines.fill_mask import FillMask
from bertkit.pipelines.filled import FilledText
from bertkit.pipelines.next_sentence import NextSentence
from bertkit.pipelines.scoring import ScoredText

__all__ = ["Embedder", "FillMask", "FilledText", "NextSentence", "ScoredText"]
