"""Full stops that belong to the word before them: Mr. Hall, Fig. 3, J. Reed, 5 p.m., the 2. of a list.

In: a text and where a full stop stands in it.  Out: whether the stop is the word's own and ends no sentence.
Words are looked up in sets, and at most 40 characters around the stop are read.  Next: sentences.py
"""

import re

OPENERS = "「『“‘（《【〈〔([{«\"'"

_OPENING = re.compile(r"[\"'“‘(\[«„¿¡—–\-•* ]{0,4}")
_WORD = re.compile(r"[^\W\d_][\w.’']{0,30}")
_LATIN_TAIL = re.compile(r"[^\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef]*$")
_LOOK_BACK = 40  # characters searched for the word before a stop


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that begin a sentence: after "U.S." or "Inc." only these say that a new one has begun.
STARTERS = _words(
    "A After All Although An And Another Any As At Because Before But By Both Can Did Do Does Each Even Every "
    "For From Had Has Have He Her Here His How However I If In Is It Its Just Let Many May Meanwhile More Most "
    "My Neither No Not Nothing Now Of On Once One Only Or Other Our People Perhaps She Since So Some Such Than "
    "That The Their Then There These They This Those Though Through Thus To Today Two Under Until We Were What "
    "When Where Whether Which While Who Why Will With Without Would Yes Yesterday Yet You Your I'm I've I'll I'd "
    "It's He's She's That's We're They're"
)
_TITLES = _words(
    "mr mrs ms mx dr prof st rev hon gen col capt lt sgt maj cmdr cpl adm gov sen rep pres messrs mme mlle fr "
    "supt insp amb atty mt ft"
)
_NEVER_LAST = _words("vs e.g i.e cf viz approx incl esp resp")
_BEFORE_NUMBER = _words("no nos nr fig figs vol vols ch chap sec sect p pp art eq op ca c par ft ex ps v")
_MAY_BE_LAST = _words("inc ltd co corp bros jr sr esq al ave blvd rd dept univ assn est ed eds trans ph.d")
_STATES = _words(  # with a capital: "he was ill" and "to mass" are words
    "Ala Ariz Calif Colo Conn Fla Ga Ill Ind Kan Mass Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash "
    "Wis"
)
_ENDS_UNLESS_TIME = _words("etc a.m p.m")
_DAYS_AND_MONTHS = _words("jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri")
_CALENDAR = _words(
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun January "
    "February March April May June July August September October November December Monday Tuesday Wednesday "
    "Thursday Friday Saturday Sunday"
)
_ZONES = _words("EST EDT CST CDT MST PST PDT GMT UTC Eastern Central Mountain Pacific Greenwich")
_BEFORE_LETTER = _words(  # "vitamin C." ends a sentence, "George W." does not
    "vitamin vitamins plan grade type class group hepatitis option section part appendix team point figure table "
    "chapter schedule category exhibit"
)
_HEADINGS = _words("chapter section part book act scene article appendix lesson unit figure table")
_SMALL = _TITLES | _NEVER_LAST | _BEFORE_NUMBER | _MAY_BE_LAST | _ENDS_UNLESS_TIME | _DAYS_AND_MONTHS
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]$")
_ROMAN = re.compile(r"[IVXLC]+$|[ivx]+$")


def is_abbreviation(text: str, start: int, at: int, follows: int, *, spaced: bool, one_case: bool) -> bool:
    """Return whether the full stop text[at] belongs to the word before it and ends no sentence.

    start: where the sentence began; follows: where the next word, bracket or quote stands; spaced: a blank is between
    them; one_case: the line has capitals only or none, so that case says nothing.

    >>> text = "I met Dr. Hall."
    >>> is_abbreviation(text, 0, text.index("."), text.index("Hall"), spaced=True, one_case=False)
    True
    """
    word, after = word_before(text, start, at), next_word(text, follows)
    opened = opening_end(text, follows)
    head = text[opened : opened + 1]
    small, starts = word.lower(), after in STARTERS
    leads = _leads(text, start, at - len(word))
    if word.isdigit():
        return (len(word) <= 3 and leads) or (len(word) <= 2 and not spaced)
    if leads and (_ROMAN.match(word) or (len(word) == 1 and word.isalpha())):
        return True
    if small in _TITLES and (word.istitle() or one_case):
        return not (small == "st" and starts)
    if small in _NEVER_LAST:
        return True
    if small in _BEFORE_NUMBER and not (len(word) == 1 and word.isupper()):
        return head.isdigit() or len(word) == 1 or (small != "no" and bool(_ROMAN.match(after)))
    if small in _DAYS_AND_MONTHS or word in ("Sat", "Sun", "Mar"):
        return head.isdigit() or after in _CALENDAR
    if small in _ENDS_UNLESS_TIME:
        return after in _CALENDAR or after in _ZONES or (not spaced and is_cjk(head))
    if small in _MAY_BE_LAST or word in _STATES or _DOTTED.match(word):
        return not starts
    return len(word) == 1 and word.isupper() and not starts and _is_initial(text, start, at, word, after)


def is_plain_word(word: str) -> bool:
    """Return whether a full stop behind `word`, and a capital after that, end a sentence whatever else stands there.

    >>> is_plain_word("river"), is_plain_word("etc"), is_plain_word("vi"), is_plain_word("River")
    (True, False, False, False)
    """
    return (
        word.isascii()
        and word.isalpha()
        and word.islower()
        and len(word) > 1
        and word not in _SMALL
        and not _ROMAN.match(word)
    )


def word_before(text: str, start: int, at: int) -> str:
    """Return the word that stands directly before text[at], without what opens it, or "" behind a blank."""
    words = text[max(start, at - _LOOK_BACK) : at].split()
    if not words or text[at - 1].isspace():
        return ""
    word = words[-1].lstrip(OPENERS)
    if not word.isascii():
        word = _LATIN_TAIL.search(word).group()  # type: ignore[union-attr]  # an empty tail matches too
    return word.rpartition("-")[2]


def next_word(text: str, follows: int) -> str:
    """Return the word that begins at text[follows] or behind the quotes and brackets there, or ""."""
    word = _WORD.match(text, opening_end(text, follows))
    return word.group().rstrip(".") if word else ""


def opening_end(text: str, position: int) -> int:
    """Return where the quotes, brackets and dashes that stand at `position` end."""
    return _OPENING.match(text, position).end()  # type: ignore[union-attr]  # an empty run matches too


def is_cjk(character: str) -> bool:
    """Return whether `character` is Chinese, Japanese or full-width."""
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\uffef" or character >= "\U00020000"


def _is_initial(text: str, start: int, at: int, word: str, after: str) -> bool:
    """Whether a capital letter and its full stop stand for a name, as in "George W. Bush"."""
    previous = text[max(start, at - _LOOK_BACK) : at - 1].split()[-1:]
    if previous and previous[0].lower() in _BEFORE_LETTER:
        return False
    if word == "I":  # "World War I. Germany …" and "So did I. Mary …", but "J. I. Smith"
        return (bool(previous) and previous[0].endswith(".")) or len(after.rstrip(".")) == 1
    return True


def _leads(text: str, start: int, position: int) -> bool:
    """Whether what is numbered stands before its number: bullets or brackets only, a colon, "Chapter"."""
    lead = text[max(start, position - 8) : position].rstrip()
    if lead[-1:] in (":", "：", ";") or (position - start <= 8 and not lead.strip(OPENERS + " \t-*•·#>")):
        return True
    return position - start <= 12 and text[start:position].strip().lower() in _HEADINGS
