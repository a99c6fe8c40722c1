"""One run of stops judged: does 。 or ?” or . . . end the sentence it stands in, or stand inside it?

In: a text, where a run of stops and closers stands, what is known of its line.  Out: yes or no.
A bounded stretch around the run is read.  Quotations, brackets, titles, ellipses are here.  Next: abbreviations.py
"""

import re
from typing import NamedTuple

from bertkit.text.abbreviations import (
    OPENERS,
    STARTERS,
    is_abbreviation,
    is_cjk,
    is_plain_word,
    next_word,
    opening_end,
    word_before,
)

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # a line's end is a sentence's end
BLANKS = "\t\x1f \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
FULL_STOPS = "。！？｡"  # end a sentence whatever stands around them, titles and embedded quotes apart
ELLIPSES = "…⋯"
STOPS = FULL_STOPS + ELLIPSES + "；．.!?‽"
CLOSERS = "」』”’）》】〉〕)]}»\"'"
CONTINUERS = "，、：,:;；)）]】%％/&="  # a sentence goes on when one of these follows its stop

_BLANKS_OF_LINE = re.compile(rf"[^\S{BREAKS}]*")
_LINE = re.compile(rf"[^{BREAKS}]*")
_TITLE_LENGTH = 60  # characters a title in 《》 may have
_BRACKET_LENGTH = 200  # characters a remark in （） may have
_DASHED_LENGTH = 60  # characters that may stand between two dashes
_LONGEST_WORD = 40  # characters searched for the word before a full stop
_NOT_PLAINLY_BEHIND = frozenset(("", "—", *CONTINUERS, *BREAKS, *BLANKS))  # 。 and one of these is looked at closer
_HESITATION_LENGTH = 60  # characters the first two words of an English sentence may have

_NAMES_WITH_MARK = ("Yahoo!", "Jeopardy!", "Mamma Mia!")
_ITEM = re.compile(r"(?:[a-z]|[ivx]{2,4})\) ")  # "b) Take out the lamp"
_RUN_TOGETHER = re.compile(r"[A-Z][a-z’']*[ ,]")  # "carry on.Our leader": a blank was lost
_SAID = re.compile(
    r"(?!(?:He|She|They|We|It|The|Then|You) )"
    r"(?:I|(?:(?:Mr|Mrs|Ms|Dr|Prof)\. |(?:Miss|Sir|Lady|Lord|Aunt|Uncle) )?[A-Z]\w{0,20}(?: [A-Z]\w{0,20})?) "
    r"(?:said|asked|cried|replied|shouted|whispered|answered|exclaimed|called|yelled|demanded|murmured|inquired)\b"
)
_HAN = r"(?:(?![没沒不无無未])[\u4e00-\u9fff])"
_SAID_IN_CHINESE = re.compile(  # "“几点了？”老人抬起头，看着我问。"
    rf"{_HAN}{{0,8}}?(?:(?=，?[^，]{{1,12}}[。：！…])，?{_HAN}{{0,8}}?)?"
    r"(?:(?<![小听传学没提疑访聽傳學沒訪])(?:说|說|问|問|喊|叫|嚷|答|吼|骂|罵|想|[欢歡惊驚]呼|感[叹嘆])(?:道|着|了?起来|了?起來|了)?"
    r"|(?<![知味街通难難报報频頻渠轨軌管隧赤跑地公茶人车車航])道)[。，：；！…]"
)
_GOES_ON_IN_CHINESE = re.compile(
    r"[的和或及]|[与與](?!此)|[为為](?![了此什甚何])|一[词詞语語句]|等[，。、]|就(?![在这這是连連算])"
    r"|(?:[这這那][句首]|[这這那一两兩三四五六七八几幾]+[个個]?大?字)|字[样樣]|口[号號]|[标標][语語]"
    r"|(?:然后|然後|接着|接著|随后|隨後)(?![，,]|[他她它我你您咱大众眾人])"
    r"|是(?![的啊吗嗎呀呢])[^，。！？]{1,20}的[^，。！？]{1,6}[，。！？]"  # "“为什么？”是他最常问的问题。"
)
_CARRIES_ON_IN_CHINESE = re.compile(  # behind an ellipsis: adverbs that begin no sentence
    r"[还還]是|全都|全部都|[却卻仍]|才(?![华華能子女智干幹])|都(?![市城会會])|就(?![在这這是连連算])|也(?![许許]|就是)"
)


class _Facts(NamedTuple):
    lower: bool
    upper: bool
    wide_points: bool


class Line:
    """What is known of the line being scanned: its straight quotes so far, and its capitals."""

    def __init__(self, text: str) -> None:
        self._text, self.start, self._counted, self._quotes = text, 0, 0, 0
        self._known: _Facts | None = None

    def begin(self, position: int) -> None:
        self.start = self._counted = position
        self._quotes, self._known = 0, None

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

    def is_lower(self) -> bool:
        """True where nobody wrote capitals, so that a small letter may begin a sentence."""
        return self._facts().lower

    def is_one_case(self) -> bool:
        """True where all letters are small or all are capitals, so that a title is not known by its capital."""
        return self._facts().lower or self._facts().upper

    def has_no_chinese_stop(self) -> bool:
        """True where ．, not 。, is the full stop: elsewhere it stands inside names (若望．玛达)."""
        return self._facts().wide_points

    def _facts(self) -> _Facts:
        if self._known is None:  # asked for few lines, and of a long line once
            line = _LINE.match(self._text, self.start).group()  # type: ignore[union-attr]  # may be empty
            wide_points = "。" not in line and line.rstrip()[-1:] in ("．", "！", "？")
            self._known = _Facts(line.islower(), line.isupper(), wide_points)
        return self._known


def is_end(text: str, start: int, at: int, end: int, line: Line) -> bool:
    """Return whether the run of stops and closers text[at:end] ends the sentence that began at `start`.

    >>> text = "“你来了？”他问。"
    >>> is_end(text, 0, 4, 6, Line(text))
    False
    """
    follows = _BLANKS_OF_LINE.match(text, end).end()  # type: ignore[union-attr]  # an empty run matches too
    if follows == len(text) or text[follows] in BREAKS:
        return True
    run, before, after = text[at:end], text[at - 1] if at > start else "", text[follows]
    if after in CONTINUERS or (before and before in OPENERS and before not in "\"'"):
        return False  # `（！）` and `‘……` stand inside a sentence
    if after == "—" and run[0] not in "。｡" and text.count("——", max(start, at - _DASHED_LENGTH), at) % 2:
        return False  # `他——真糟糕！——又忘了。`
    if any(c in CLOSERS for c in run) and _goes_on(text, start, at, run, follows, spaced=follows > end):
        return False
    if any(c in FULL_STOPS for c in run):
        return any(c in "。｡》〉" for c in run) or not _is_open(text, start, at, "《〈", "》〉", _TITLE_LENGTH)
    if "；" in run:
        return not _is_open(text, start, at, "（(", "）)", _BRACKET_LENGTH)
    if run[0] == "．":
        return "\u3400" <= before <= "\u9fff" and line.has_no_chinese_stop()
    if run[0] in ELLIPSES or run[:2] in ("..", ". "):
        return _ellipsis_ends(text, start, at, follows, line, spaced=follows > end)
    return _ascii_stop_ends(text, start, at, end, follows, line)


def plain_end(text: str, start: int, at: int, end: int) -> int:
    """Return where the next sentence begins if the stop text[at:end] plainly ends one, else 0.

    Plainly: 。 between characters, or a full stop between a small word that is no abbreviation and a capital. It says
    what `is_end` would say, in a tenth of the time, for most stops of a text.
    """
    if end - at != 1 or at <= start:
        return 0
    if text[at] == "。":
        plain = text[end : end + 1] not in _NOT_PLAINLY_BEHIND and text[at - 1] not in OPENERS
        return end if plain else 0
    if text[at] == "." and " A" <= text[end : end + 2] <= " Z":
        word = text[text.rfind(" ", max(start, at - _LONGEST_WORD), at) + 1 : at]
        return end + 1 if is_plain_word(word) else 0
    return 0


def _goes_on(text: str, start: int, at: int, run: str, follows: int, *, spaced: bool) -> bool:
    """Whether the sentence goes on behind the closing quote or bracket of the run."""
    if run[-1] in "》〉":  # 《加油！》
        return not any(c in "。｡" for c in run) or _is_open(text, start, at, "《〈", "》〉", _TITLE_LENGTH)
    if run[-1] in "）)" and is_cjk(text[follows]) and _is_remark(text, start, at):
        return True
    if spaced and "a" <= text[follows] <= "z" and any(c in FULL_STOPS for c in run):
        return True  # “加油！” they shouted.
    return bool(_GOES_ON_IN_CHINESE.match(text, follows) or _SAID_IN_CHINESE.match(text, follows))


def _is_remark(text: str, start: int, at: int) -> bool:
    """Whether the bracket open at `at` was opened inside the sentence, not at its beginning."""
    if not _is_open(text, start, at, "（(", "）)", _BRACKET_LENGTH):
        return False
    opener = max(text.rfind(c, max(start, at - _BRACKET_LENGTH), at) for c in "（(")
    return bool(text[max(start, opener - 8) : opener].strip(OPENERS + BLANKS))


def _is_open(text: str, start: int, at: int, openers: str, closers: str, length: int) -> bool:
    begin = max(start, at - length)
    opened = max(text.rfind(c, begin, at) for c in openers)
    return opened > max(text.rfind(c, begin, at) for c in closers)


def _ellipsis_ends(text: str, start: int, at: int, follows: int, line: Line, *, spaced: bool) -> bool:
    """Whether an ellipsis ends a sentence: not at its beginning, in a list, in a stutter, or before a small letter."""
    before, after = text[at - 1], text[follows]
    if at == start or before in "、，,":
        return False
    if is_cjk(after):
        if after in ("等", before):
            return False
        if text[at : at + 2] == ".." and text[at + 2 : at + 3] != ".":
            return True  # two dots are a careless full stop
        if _CARRIES_ON_IN_CHINESE.match(text, follows):
            return False
        begun = text[start:at].lstrip(OPENERS + BLANKS) if at - start < 8 else None  # "可是……", "这件事……"
        return begun is None or len(begun) > 3 or before in "了吧啊呢吗嗎呀哦"
    if not spaced and not is_cjk(before):
        return False
    hesitates = at - start <= _HESITATION_LENGTH and text.count(" ", start, at) < 2
    return _may_begin(text, follows, line) and not (hesitates and next_word(text, follows)[:2] in ("I", "I'", "I’"))


def _ascii_stop_ends(text: str, start: int, at: int, end: int, follows: int, line: Line) -> bool:
    """Whether `.`, `!`, `?` and their runs end a sentence before something on the same line."""
    run, before = text[at:end], text[at - 1] if at > start else ""
    after, spaced = text[follows], follows > end
    is_dot = run.rstrip(CLOSERS + " ") == "."
    if not spaced and not is_cjk(after) and after not in OPENERS:
        if before and is_cjk(before):
            return not (is_dot and after.isalnum() and not after.isupper())
        tail = text[max(start, at - 2) : at]
        lost_blank = len(run) == 1 and tail.islower() and tail.isalpha()
        return lost_blank and _RUN_TOGETHER.match(text, end) is not None and "." not in word_before(text, start, at)
    if not _may_begin(text, follows, line):
        return False
    if is_dot:
        return not is_abbreviation(text, start, at, follows, spaced=spaced, one_case=line.is_one_case())
    if text[max(start, at - 12) : at + 1].endswith(_NAMES_WITH_MARK):
        return next_word(text, follows) in STARTERS
    return not (any(c in "\"'”’" for c in run) and _SAID.match(text, follows))


def _may_begin(text: str, follows: int, line: Line) -> bool:
    """Whether what stands here can begin a sentence: no small letter, unless the whole line has no capitals."""
    begin = opening_end(text, follows)
    head = text[begin : begin + 2]
    if not head[:1].islower() or head[1:].isupper():  # "iPhone" may begin one
        return True
    return line.is_lower() or _ITEM.match(text, begin) is not None
