"""Text cut into sentences, Chinese and English rules side by side, so that joining them gives the text back.

In: a string or a Document.  Out: its sentences; the stop, closing quotes and the blanks behind stay with the sentence.
Each possible stop is looked at once, with a bounded stretch around it: linear time.  Next: stops.py, then tokenizer.py
"""

import re
from collections.abc import Callable, Iterable

from bertkit.errors import InputError
from bertkit.text.abbreviations import OPENERS
from bertkit.text.documents import Document
from bertkit.text.stops import BLANKS, BREAKS, CLOSERS, CONTINUERS, FULL_STOPS, STOPS, Line, is_end, plain_end

OWN_LANGUAGES = ("zh", "en")  # those of the rules here and in stops.py
# Those that sentencex has rules for; any other code it would take for a relative of one of them, without a word.
LANGUAGES = "am ar bg bn ca da de el es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"

_CANDIDATE = re.compile(  # begins with a plain set, which is searched fastest; also . . . and a footnote's mark [3]
    rf"[{STOPS}{BREAKS}](?:(?<=[{BREAKS}])"
    rf"|(?:(?<!\.)|(?![a-z0-9])(?: \.)*)[{STOPS}{re.escape(CLOSERS)}]*(?:\[\d{{1,3}}\])*)"
)
_BLANKS = re.compile(r"\s*")
_PLAIN_STOPS = FULL_STOPS + "；"
_ODD = re.escape("".join(c for c in [*STOPS, *BREAKS, *BLANKS, *OPENERS, *CLOSERS, "—"] if c not in _PLAIN_STOPS))
_PLAIN_TEXT = re.compile(rf"[^{_ODD}]*")
_PLAIN_SENTENCE = re.compile(
    rf"[^{_PLAIN_STOPS}]*+[{_PLAIN_STOPS}]++(?:(?=[{re.escape(CONTINUERS)}])[^{_PLAIN_STOPS}]++(?:[{_PLAIN_STOPS}]++|\Z))*+"
    rf"|[^{_PLAIN_STOPS}]++"
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of Chinese, English or mixed `text`, none of blanks only; joined they are `text`.

    >>> split_sentences("明月几时有？把酒问青天。")
    ['明月几时有？', '把酒问青天。']
    >>> split_sentences("The U.S. team won 3.5 million. It's 太好了！他说。")
    ['The U.S. team won 3.5 million. ', "It's 太好了！", '他说。']
    """
    if _PLAIN_TEXT.fullmatch(text):  # a ci: nothing but characters, 。 and ， in it
        return _PLAIN_SENTENCE.findall(text)
    return _judged(text)


def _judged(text: str) -> list[str]:
    """The sentences of any text, every possible stop judged by `plain_end` or `is_end`."""
    ends, start = list[int](), 0
    line = Line(text)
    first = len(text) - len(text.lstrip())
    line.begin(first)
    for match in _CANDIDATE.finditer(text, first):
        at, end = match.span()
        begins = plain_end(text, start, at, end)
        if begins:
            start = begins
            ends.append(start)
            continue
        if text[at] in BREAKS:
            line.begin(end)
        else:
            end = line.trimmed(at, end)
            if at == start and ends and line.start < start:
                start = ends.pop()  # a second stop behind a blank is no sentence of its own
            elif at >= start and not is_end(text, start, at, end, line):
                continue
        if at >= start:
            start = _BLANKS.match(text, end).end()  # type: ignore[union-attr]  # an empty run matches too
            ends.append(start)
    ends.append(len(text))
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


def sentence_splitter(sentence_end: str | None, *, language: str | None = None) -> Callable[[str], list[str]]:
    """Return the function that splits a text: `split_sentences`, another language's, or a plain rule.

    sentence_end: the characters that end a sentence; closing quotes, brackets and the blanks behind stay with it.
    None: the rules of the language decide.
    language: a code such as "de", "ja" or "hi", for the rules of `sentencex`. None, "zh", "en": those of this file.

    >>> sentence_splitter("。，")("云破月来，花弄影。")
    ['云破月来，', '花弄影。']

    Raises:
        InputError: no character is given, or characters and a language; the language is unknown; sentencex is not
            installed.
    """
    if sentence_end is None:
        return split_sentences if language in (None, *OWN_LANGUAGES) else _language_splitter(language)
    if language is not None:
        raise InputError(
            "has its own sentence ends, and --sentence_end names others",
            field="--language",
            value=language,
            remedy="leave one of the two flags away",
        )
    if not sentence_end:
        raise InputError(
            "names no character",
            field="--sentence_end",
            value=sentence_end,
            expected="the characters that end a sentence, such as 。！？",
            remedy="name some, or leave the flag away for the built-in rules",
        )
    closers = "".join(c for c in CLOSERS if c not in sentence_end)
    end = re.compile(rf"[{re.escape(sentence_end)}]+[{re.escape(closers)}]*")

    def split(text: str) -> list[str]:
        pieces, start = list[str](), 0
        line = Line(text)
        for match in end.finditer(text):
            if match.start() < start:
                continue
            stop = _BLANKS.match(text, line.trimmed(match.start(), match.end())).end()  # type: ignore[union-attr]
            pieces.append(text[start:stop])
            start = stop
        return _blanks_joined([*pieces, text[start:]] if start < len(text) else pieces)

    return split


def _language_splitter(language: str) -> Callable[[str], list[str]]:
    """The splitter of `sentencex`, line by line, with the text kept to the last blank."""
    if language not in LANGUAGES.split():
        raise InputError(
            "is no language with rules for its sentences",
            field="--language",
            value=language,
            expected=f"one of {' '.join(OWN_LANGUAGES)} {LANGUAGES}",
            remedy='for another one say where its sentences end, such as --sentence_end "።"',
        )
    try:
        import sentencex
    except ImportError:
        raise InputError(
            "needs the package sentencex, which is not installed",
            field="--language",
            value=language,
            remedy='pip install "bertkit[languages]"',
        ) from None
    return lambda text: _placed(
        text, (piece for line in text.splitlines() for piece in sentencex.segment(language, line))
    )


def _placed(text: str, pieces: Iterable[str]) -> list[str]:
    """`text` cut where the pieces begin in it, so that joining gives it back whatever blanks they lost or hold."""
    begins, position = [0], 0
    for piece in pieces:
        core = piece.strip()
        at = text.find(core, position) if core else -1
        if at >= 0:
            begins += [at] if position else []
            position = at + len(core)
    return [text[begin:end] for begin, end in zip(begins, [*begins[1:], len(text)], strict=True) if begin < end]


def sentences_of(document: Document, split: Callable[[str], list[str]]) -> list[str]:
    """Return the document's own sentences where its format gives them, else those that `split` finds.

    A sentence of blanks only is joined to its neighbour; a document of blanks only has none.
    """
    found = split(document.text) if document.sentences is None else document.sentences
    sentences = _blanks_joined(found)
    return [] if len(sentences) == 1 and not sentences[0].strip() else sentences


def _blanks_joined(pieces: Iterable[str]) -> list[str]:
    """The pieces with those of blanks only put behind the one before, or before the first."""
    pieces = list(pieces)
    if all(map(str.strip, pieces)):  # nearly always: none is of blanks only
        return pieces
    joined: list[str] = []
    pending: list[str] = []
    for piece in pieces:
        if piece.strip():
            if pending and joined:
                joined[-1] = "".join([joined[-1], *pending])
                pending = []
            joined.append("".join([*pending, piece]))
            pending = []
        elif piece:
            pending.append(piece)
    if pending:
        joined[-1:] = ["".join([*joined[-1:], *pending])]
    return joined
