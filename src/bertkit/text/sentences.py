"""Text cut into sentences, Chinese and English rules side by side, so that joining them gives the text back.

In: a string or a Document.  Out: its sentences; the stop, closing quotes and the blanks behind stay with the sentence.
Each possible stop is looked at once, with a bounded stretch around it: linear time.  Next: tokenizer.py
"""

import re
from collections.abc import Callable, Iterable

from bertkit.errors import InputError
from bertkit.text.documents import Document

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # a line's end is a sentence's end
FULL_STOPS = "。！？｡"  # end a sentence whatever stands around them, titles and embedded quotes apart
ELLIPSES = "…⋯"
OPENERS = "「『“‘（《【〈〔([{«\"'"
CLOSERS = "」』”’）》】〉〕)]}»\"'"
CONTINUERS = "，、：,:;；)）]】%％/&="  # a sentence goes on when one of these follows its stop

_STOPS = FULL_STOPS + ELLIPSES + "；.!?"
_CANDIDATE = re.compile(  # also the spaced ellipsis . . . and a footnote's mark [3]
    rf"(?!\.[a-z0-9])(?:\.(?: \.)+|[{_STOPS}])[{_STOPS}{re.escape(CLOSERS)}]*(?:\[\d{{1,3}}\])*|[{BREAKS}]"
)
_BLANKS = re.compile(r"\s*")
_BLANKS_OF_LINE = re.compile(rf"[^\S{BREAKS}]*")
_LINE = re.compile(rf"[^{BREAKS}]*")
_OPENING = re.compile(r"[\"'“‘(\[«„¿¡—–\-•* ]{0,4}")
_WORD = re.compile(r"[^\W\d_][\w.’']{0,30}")
_LATIN_TAIL = re.compile(r"[^\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef]*$")
_LOOK_BACK = 40  # characters searched for the word before a stop
_TITLE_LENGTH = 60  # characters a title in 《》 may have
_BRACKET_LENGTH = 200  # characters a remark in （） may have


# Words that begin a sentence: after "U.S." or "Inc." only these say that a new one has begun.
_STARTERS = re.compile(
    "A|After|All|Although|An|And|Another|Any|As|At|Because|Before|But|By|Both|Can|Did|Do|Does|Each|Even|Every|"
    "For|From|Had|Has|Have|He|Her|Here|His|How|However|I|If|In|Is|It|Its|Just|Let|Many|May|Meanwhile|More|Most|"
    "My|Neither|No|Not|Nothing|Now|Of|On|Once|One|Only|Or|Other|Our|People|Perhaps|She|Since|So|Some|Such|Than|"
    "That|The|Their|Then|There|These|They|This|Those|Though|Through|Thus|To|Today|Two|Under|Until|We|Were|What|"
    "When|Where|Whether|Which|While|Who|Why|Will|With|Without|Would|Yes|Yesterday|Yet|You|Your|I'm|I've|I'll|I'd|"
    "It's|He's|She's|That's|We're|They're"
)
_TITLES = re.compile(
    "Mr|Mrs|Ms|Mx|Dr|Prof|St|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Maj|Cmdr|Cpl|Adm|Gov|Sen|Rep|Pres|Messrs|Mme|Mlle|Fr|"
    "Supt|Insp|Amb|Atty|Mt|Ft"
)
_NEVER_LAST = re.compile(r"vs|e\.g|i\.e|cf|viz|approx|incl|esp|resp")
_BEFORE_NUMBER = re.compile("no|nos|nr|fig|figs|vol|vols|ch|chap|sec|sect|p|pp|art|eq|op|ca|c|par|ft|ex|ps|v")
_MAY_BE_LAST = re.compile(
    r"inc|ltd|co|corp|bros|jr|sr|esq|al|ave|blvd|rd|dept|univ|assn|est|ed|eds|trans|ph\.d|ala|ariz|calif|colo|"
    r"conn|fla|ga|ill|ind|kan|mass|mich|minn|miss|mo|mont|neb|nev|okla|ore|pa|tenn|tex|va|vt|wash|wis"
)
_ENDS_UNLESS_TIME = re.compile(r"etc|a\.m|p\.m")
_CALENDAR = re.compile(
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|Mon|Tue|Tues|Wed|Thu|Thur|Thurs|Fri|Sat|Sun|January|"
    "February|March|April|May|June|July|August|September|October|November|December|Monday|Tuesday|Wednesday|"
    "Thursday|Friday|Saturday|Sunday"
)
_ZONES = re.compile("EST|EDT|CST|CDT|MST|PST|PDT|GMT|UTC|Eastern|Central|Mountain|Pacific|Greenwich")
_BEFORE_LETTER = re.compile(  # "vitamin C." ends a sentence, "George W." does not
    "vitamin|vitamins|plan|grade|type|class|group|hepatitis|option|section|part|appendix|team|point|figure|table|"
    "chapter|schedule|category|exhibit"
)
_NAMES_WITH_MARK = ("Yahoo!", "Jeopardy!", "Mamma Mia!")
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]$")
_ROMAN = re.compile(r"[IVXLC]+$|[ivx]+$")
_RUN_TOGETHER = re.compile(r"[A-Z][a-z’']*[ ,]")  # "carry on.Our leader": a blank was lost
_SAID = re.compile(
    r"(?!(?:He|She|They|We|It|The|Then|You) )(?:I|[A-Z]\w{0,20}(?: [A-Z]\w{0,20})?) "
    r"(?:said|asked|cried|replied|shouted|whispered|answered|exclaimed|called|yelled|demanded|murmured|inquired)\b"
)
_SAID_IN_CHINESE = re.compile(
    r"(?:(?![没沒不无無未])[\u4e00-\u9fff]){0,8}?"
    r"(?:(?<![小听传学没提疑访聽傳學沒訪])(?:说|說|问|問|喊|叫|嚷|答|吼|骂|罵|想)(?:道|着|了)?"
    r"|(?<![知味街通难難报報频頻渠轨軌管隧赤跑地公茶人车車航])道)[。，：；！…]"
)
_GOES_ON_IN_CHINESE = re.compile(r"[的和或及]|[与與](?!此)|一[词詞语語句]|等[，。、]|就(?![在这這是连連算])")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of Chinese, English or mixed `text`, none of blanks only; joined they are `text`.

    >>> split_sentences("明月几时有？把酒问青天。")
    ['明月几时有？', '把酒问青天。']
    >>> split_sentences("The U.S. team won 3.5 million. It's 太好了！他说。")
    ['The U.S. team won 3.5 million. ', "It's 太好了！", '他说。']
    """
    ends, start = list[int](), 0
    line = _Line(text)
    first = len(text) - len(text.lstrip())
    for match in _CANDIDATE.finditer(text):
        at = match.start()
        if at < first:
            line.begin(match.end())
            continue
        if text[at] in BREAKS:
            line.begin(match.end())
            end = match.end()
        else:
            end = line.trimmed(at, match.end())
            if at == start and ends and line.start < start:
                start = ends.pop()  # a second stop behind a blank is no sentence of its own
            elif at >= start and not _is_end(text, start, at, end, line):
                continue
        if at >= start:
            start = _BLANKS.match(text, end).end()  # type: ignore[union-attr]  # an empty run matches too
            ends.append(start)
    ends.append(len(text))
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


def sentence_splitter(sentence_end: str | None) -> Callable[[str], list[str]]:
    """Return the function that splits a text: `split_sentences`, or a plain rule where `sentence_end` is given.

    sentence_end: the characters that end a sentence; closing quotes, brackets and the blanks behind stay with it.

    >>> sentence_splitter("。，")("云破月来，花弄影。")
    ['云破月来，', '花弄影。']

    Raises:
        InputError: no character is given.
    """
    if sentence_end is None:
        return split_sentences
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
        line = _Line(text)
        for match in end.finditer(text):
            if match.start() < start:
                continue
            stop = _BLANKS.match(text, line.trimmed(match.start(), match.end())).end()  # type: ignore[union-attr]
            pieces.append(text[start:stop])
            start = stop
        return _blanks_joined([*pieces, text[start:]] if start < len(text) else pieces)

    return split


def sentences_of(document: Document, split: Callable[[str], list[str]]) -> list[str]:
    """Return the document's own sentences where its format gives them, else those that `split` finds.

    A sentence of blanks only is joined to its neighbour; a document of blanks only has none.
    """
    found = split(document.text) if document.sentences is None else document.sentences
    sentences = _blanks_joined(found)
    return [] if len(sentences) == 1 and not sentences[0].strip() else sentences


def _blanks_joined(pieces: Iterable[str]) -> list[str]:
    """The pieces with those of blanks only put behind the one before, or before the first."""
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


class _Line:
    """What is known of the line being scanned: how many straight quotes it has had, and whether it has capitals."""

    def __init__(self, text: str) -> None:
        self._text, self.start, self._counted, self._quotes = text, 0, 0, 0
        self._uncased: bool | None = None

    def begin(self, position: int) -> None:
        self.start = self._counted = position
        self._quotes, self._uncased = 0, None

    def trimmed(self, start: int, end: int) -> int:
        """The end of a stop's run with the straight quotes that close and without those that open: `He left."Why?"`."""
        text = self._text
        while end - 1 > start and end < len(text) and text[end - 1] in "\"'" and text[end].isalnum():
            if text[end - 1] == '"' and self._quotes_before(end - 1) % 2:
                break
            end -= 1
        if text[end : end + 2] == ' "' and not text[end + 2 : end + 3].strip() and self._quotes_before(end) % 2:
            end += 2  # `he said : " no . "`, as WikiText writes
        return end

    def _quotes_before(self, position: int) -> int:
        if position < self._counted:  # only the run just counted is looked at again
            return self._quotes - self._text.count('"', position, self._counted)
        self._quotes += self._text.count('"', self._counted, position)
        self._counted = position
        return self._quotes

    def is_uncased(self) -> bool:
        """True where nobody wrote capitals, so that a small letter may begin a sentence."""
        if self._uncased is None:
            end = _LINE.match(self._text, self.start).end()  # type: ignore[union-attr]
            self._uncased = self._text[self.start : end].islower()
        return self._uncased


def _is_end(text: str, start: int, at: int, end: int, line: _Line) -> bool:
    """Whether the run of stops and closers text[at:end] ends the sentence that began at `start`."""
    follows = _BLANKS_OF_LINE.match(text, end).end()  # type: ignore[union-attr]
    if follows == len(text) or text[follows] in BREAKS:
        return True
    run, before, after = text[at:end], text[at - 1] if at > start else "", text[follows]
    if after in CONTINUERS or (before and before in OPENERS and before not in "\"'"):
        return False  # `（！）` and `‘……` stand inside a sentence
    closed = any(c in CLOSERS for c in run)
    if closed and (_GOES_ON_IN_CHINESE.match(text, follows) or _SAID_IN_CHINESE.match(text, follows)):
        return False
    if any(c in FULL_STOPS for c in run):
        return not _is_in_title(text, start, at, run)
    if "；" in run:
        return not _is_open(text, start, at, "（(", "）)", _BRACKET_LENGTH)
    if run[0] in ELLIPSES or run[:2] in ("..", ". "):
        return _ellipsis_ends(text, start, at, follows, line, spaced=follows > end)
    return _ascii_stop_ends(text, start, at, end, follows, line)


def _is_in_title(text: str, start: int, at: int, run: str) -> bool:
    """Whether a mark belongs to a title: 《加油！》 or 《加油！好男儿》."""
    if any(c in "。｡" for c in run):
        return False
    if any(c in "》〉" for c in run):
        return run[-1] in "》〉"
    return _is_open(text, start, at, "《〈", "》〉", _TITLE_LENGTH)


def _is_open(text: str, start: int, at: int, openers: str, closers: str, length: int) -> bool:
    begin = max(start, at - length)
    opened = max(text.rfind(c, begin, at) for c in openers)
    return opened > max(text.rfind(c, begin, at) for c in closers)


def _ellipsis_ends(text: str, start: int, at: int, follows: int, line: _Line, *, spaced: bool) -> bool:
    """Whether an ellipsis ends a sentence: not at its beginning, in a list, in a stutter, or before a small letter."""
    if at == start or text[at - 1] in "、，,":
        return False
    if _is_cjk(text[follows]):
        return text[follows] not in ("等", text[at - 1])
    if not spaced and not _is_cjk(text[at - 1]):
        return False
    hesitates = text[start:at].count(" ") < 2 and _WORD.match(text, follows) is not None
    return _may_begin(text, follows, line) and not (hesitates and _next_word(text, follows)[:2] in ("I", "I'", "I’"))


def _ascii_stop_ends(text: str, start: int, at: int, end: int, follows: int, line: _Line) -> bool:
    """Whether `.`, `!`, `?` and their runs end a sentence before something on the same line."""
    run, before = text[at:end], text[at - 1] if at > start else ""
    after, spaced = text[follows], follows > end
    is_dot = run.rstrip(CLOSERS + " ") == "."
    if not spaced and not _is_cjk(after) and after not in OPENERS:
        if before and _is_cjk(before):
            return not (is_dot and after.isalnum() and not after.isupper())
        lost_blank = (
            len(run) == 1 and text[max(start, at - 2) : at].islower() and text[max(start, at - 2) : at].isalpha()
        )
        return lost_blank and _RUN_TOGETHER.match(text, end) is not None and "." not in _word_before(text, start, at)
    if not _may_begin(text, follows, line):
        return False
    if is_dot:
        return not _is_abbreviation(text, start, at, follows, spaced=spaced)
    if text[max(start, at - 12) : at + 1].endswith(_NAMES_WITH_MARK):
        return _STARTERS.fullmatch(_next_word(text, follows)) is not None
    return not (any(c in "\"'”’" for c in run) and _SAID.match(text, follows))


def _may_begin(text: str, follows: int, line: _Line) -> bool:
    """Whether what stands here can begin a sentence: no small letter, unless the whole line has no capitals."""
    begin = _OPENING.match(text, follows).end()  # type: ignore[union-attr]
    head = text[begin : begin + 2]
    return not head[:1].islower() or head[1:].isupper() or line.is_uncased()  # "iPhone" may begin one


def _is_abbreviation(text: str, start: int, at: int, follows: int, *, spaced: bool) -> bool:
    """Whether the one full stop at `at` belongs to the word before it and ends no sentence."""
    word, after = _word_before(text, start, at), _next_word(text, follows)
    head = text[_OPENING.match(text, follows).end() :][:1] if not after else after[0]  # type: ignore[union-attr]
    small, starts = word.lower(), _STARTERS.fullmatch(after) is not None
    leads = _leads(text, start, at - len(word))
    if word.isdigit():
        return (len(word) <= 3 and leads) or (len(word) <= 2 and not spaced)
    if leads and (_ROMAN.match(word) or (len(word) == 1 and word.isalpha())):
        return True
    if _TITLES.fullmatch(word):
        return not (word == "St" and starts)
    if _NEVER_LAST.fullmatch(small):
        return True
    if _BEFORE_NUMBER.fullmatch(small) and not (len(word) == 1 and word.isupper()):
        return head.isdigit() or len(word) == 1 or (small != "no" and bool(_ROMAN.match(after)))
    if _CALENDAR.fullmatch(word) and len(word) <= 5 and word != "May":
        return head.isdigit() or _CALENDAR.fullmatch(after) is not None
    if _ENDS_UNLESS_TIME.fullmatch(small):
        return (_CALENDAR.fullmatch(after) or _ZONES.fullmatch(after)) is not None
    if _MAY_BE_LAST.fullmatch(small) or _DOTTED.match(word):
        return not starts
    return len(word) == 1 and word.isupper() and not starts and _is_initial(text, start, at, word, after)


def _is_initial(text: str, start: int, at: int, word: str, after: str) -> bool:
    """Whether a capital letter and its full stop stand for a name, as in "George W. Bush"."""
    previous = text[max(start, at - _LOOK_BACK) : at - 1].split()[-1:]
    if previous and _BEFORE_LETTER.fullmatch(previous[0].lower()):
        return False
    if word == "I":  # "World War I. Germany …" and "So did I. Mary …", but "J. I. Smith"
        return (bool(previous) and previous[0].endswith(".")) or len(after.rstrip(".")) == 1
    return True


def _leads(text: str, start: int, position: int) -> bool:
    """Whether nothing but brackets and bullets, or a colon, stands before an enumeration's number."""
    lead = text[max(start, position - 8) : position].rstrip()
    return lead[-1:] in (":", "：", ";") or (position - start <= 8 and not lead.strip(OPENERS + " \t-*•·#>"))


def _word_before(text: str, start: int, at: int) -> str:
    words = text[max(start, at - _LOOK_BACK) : at].split()
    if not words or text[at - 1].isspace():
        return ""
    word = words[-1].lstrip(OPENERS)
    if not word.isascii():
        word = _LATIN_TAIL.search(word).group()  # type: ignore[union-attr]  # an empty tail matches too
    return word.rpartition("-")[2]


def _next_word(text: str, follows: int) -> str:
    word = _WORD.match(text, _OPENING.match(text, follows).end())  # type: ignore[union-attr]
    return word.group().rstrip(".") if word else ""


def _is_cjk(character: str) -> bool:
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\uffef" or character >= "\U00020000"
