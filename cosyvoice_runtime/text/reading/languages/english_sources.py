"""English: where something stands in laws, scripture, papers and games: ``§ 230(c)``, ``Psalm 23:1``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_SHORT_BOOKS = {
    "Gen": "Genesis", "Exod": "Exodus", "Lev": "Leviticus", "Deut": "Deuteronomy", "Ps": "Psalm",
    "Prov": "Proverbs", "Isa": "Isaiah", "Jer": "Jeremiah", "Matt": "Matthew", "Rom": "Romans",
    "Cor": "Corinthians", "Gal": "Galatians", "Eph": "Ephesians", "Phil": "Philippians", "Heb": "Hebrews",
    "Rev": "Revelation",
}  # fmt: skip
_BOOK = re.compile(
    rf"(?<![\w])({'|'.join(_SHORT_BOOKS)})\b\.?(?= [0-9]{{1,3}}:[0-9])|(?<=[123] )(Cor)\b\.?(?= [0-9])"
)
_VERSES = re.compile(
    r"([0-9]{1,3}):([0-9]{1,3})(?:[-–]([0-9]{1,3})(?::([0-9]{1,3}))?)?(?![\w:/]|[.,][0-9]|\s?[AaPp]\.?[Mm]\b)"
)
_BOOK_NUMBER = re.compile(
    r"(?<![\w.,:-])([123])(?= (?:Samuel|Kings|Chronicles|Corinthians|Thessalonians|Timothy|Peter|"
    r"John|Cor|Sam|Thess|Tim|Pet)\b\.? ?[0-9])"
)
_SUBSECTIONS = re.compile(
    r"(?<![\w.,])([0-9]{1,4}(?:\.[0-9]{1,4}){0,3}[a-z]?)((?:\((?:[a-z0-9]|[A-Z]|[ivx]{2,4}|[0-9]{2})\)){1,5})(?!\w)"
)
_SECTION = re.compile(
    r"(?<![\w.,])([1-9][0-9]{2,3})(?:\.([0-9]{1,4}))?(?:\s?[-–]\s?([1-9][0-9]{2,3})(?:\.([0-9]{1,4}))?)?"
    r"(?![\w(/–-]|[.,][0-9])"
)
_SECTION_SIGN = re.compile(r"(§§?|¶¶?)\s?")
_SECTION_WORDS = {"§": "section", "§§": "sections", "¶": "paragraph", "¶¶": "paragraphs"}
_BEFORE_NUMBER = {
    "art": "article", "arts": "articles", "sec": "section", "secs": "sections",
    "sect": "section", "fig": "figure",
    "figs": "figures", "ch": "chapter", "chs": "chapters", "chap": "chapter", "vol": "volume",
    "vols": "volumes", "op": "opus", "eq": "equation", "eqs": "equations", "nos": "numbers", "pp": "pages",
    "p": "page", "pt": "part", "ext": "extension", "apt": "apartment", "ste": "suite", "bldg": "building",
    "rm": "room", "tab": "table", "app": "appendix", "bk": "book", "para": "paragraph", "ver": "version",
    "approx": "approximately", "ca": "circa", "ep": "episode", "lvl": "level", "ex": "exercise",
    "avg": "average", "cat": "category", "col": "column", "pg": "page", "pgs": "pages", "pop": "population",
    "qty": "quantity", "est": "estimated", "thm": "theorem", "min": "minimum", "max": "maximum",
    "temp": "temperature", "elev": "elevation", "exp": "expires", "fn": "footnote",
    "fns": "footnotes", "rt": "route",
}  # fmt: skip
_WORDS_TOO = frozenset(
    ("art", "arts", "sec", "secs", "fig", "figs", "app", "tab", "ex", "para", "est", "cat")
)
"""Abbreviations that end sentences as words of their own."""
_BEFORE_THEM = frozenset(("see", "in", "under", "of", "per", "cf", "and", "to", "by"))
_ABBREVIATED = re.compile(
    rf"(?i)(?<![\w.])(?:({'|'.join(sorted(_BEFORE_NUMBER, key=len, reverse=True))})\.:?\s?"
    r"(?=[~$]?[0-9]|[IVX]+\b)"
    r"|(?<![0-9] )(?<!few )(?<!per )(min|max|est)\.(?=[/:]|\s(?-i:[a-z])))"
)
_EDITION = re.compile(r"(?<![\w.])(?:(?<=[0-9](?:st|nd|rd|th) )ed\.?|(?:(?<=\()|(?<=, ))(eds?)\.)(?![\w’'])")
_HOME = re.compile(r"(?<![\w.])(Apt|Ste|Bldg|Rm) #?(?=[0-9])")
_LIVED = re.compile(
    r"(?:(?<=[(,;])|(?<=[(,;] ))(b|d|c|r|fl|est|m)\.\s?(?=(?:c\.\s?)?[1-9][0-9]{2,3}(?![0-9])"
    r"|[0-9]{1,2}/[0-9]{1,2}/|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?[ –-])"
)
_LIVED_WORDS = {
    "b": "born", "d": "died", "c": "circa", "r": "reigned", "fl": "flourished", "est": "established",
    "m": "married",
}  # fmt: skip
_CIRCA = re.compile(r"(?<![\w.])c\. ?(?=[1-9][0-9]{2,3}(?![0-9]))")
_PIECES = {"K": "king", "Q": "queen", "R": "rook", "B": "bishop", "N": "knight"}
_MOVE = re.compile(
    r"(?<![\w-])(?:([KQRBN])([a-h]?[1-8]?)(x?)([a-h])([1-8])|([a-h])x([a-h])([1-8]))(?:=([QRBN]))?([+#]?)(?![\w])"
)
_CASTLES = re.compile(r"(?<![\w-])[O0]-[O0](-[O0])?([+#]?)(?![\w-])")
_GAME = re.compile(
    r"\b(?:[a-h][1-8]|[KQRBN][a-h1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8])\b.*\b(?:[a-h][1-8]|[KQRBN][a-h1-8]?x?[a-h][1-8]|"
    r"[a-h]x[a-h][1-8])\b|(?i:\b(?:chess|white|black|check|checkmate|mate|castl\w+|knight|bishop|rook|pawn|queen)\b)"
)
_TIME_SIGNATURE = re.compile(
    r"(?<![\w.,/])([1-9]|1[0-9])/(2|4|8|16)(?=[ -](?:time|signature|meter|beat|groove|waltz))"
    r"|(?<=in )([2-9]|12)/([248])(?= (?:at|with|and|for)\b|[.,;)]|$)"
)
_MUSIC = re.compile(
    r"(?i)\b(?:mvt|movement|tempo|beats?|waltz|bpm|op\.|rhythm|key of|minor|major|music\w*|song)\b"
)
_SPORT = re.compile(
    r"(?i)\b(?:won|wins?|winning|beat(?:s|en|ing)?|lost|loss|lose[sn]?|defeat\w*|leads?|led|leading|trail\w*|scor\w+|"
    r"victory|drew|tied?|finals?|match|games?|votes?|voted|passed|records?|sets?|ahead|edged|routed|upset)\b"
)
_DECIDED = re.compile(
    r" (?:decision|vote|ruling|majority|split|win|loss|lead|victory|draw|series|record|margin|start)\b"
)
_OPENING = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?\b|(?i:\b(?:open|closed|hours|daily|weekdays|weekends)\b)"
)
_SCORE = re.compile(
    r"(?<![\w.,–—-])([0-9]{1,3})([-–—])([0-9]{1,3})(?: ?\(([0-9]{1,2})(?:[-–]([0-9]{1,2}))?\))?"
    r"(?![\w–—/-]|[.,%][0-9])"
)


def numbers(place: Place, language: Language) -> ReadForm | None:
    """A verse, a subsection, a score or a time of music."""
    if place.word_before in listed.BOOKS and (found := place.match(_VERSES)):
        return ReadForm(found.end(), _verses(found, language))
    if found := place.match(_BOOK_NUMBER):
        return ReadForm(found.end(), language.ordinal(int(found[1])))
    if found := place.match(_SUBSECTIONS):
        parts = re.findall(r"[A-Za-z0-9]+", found[2])
        if len(parts) > 1 or _is_law(place):
            return ReadForm(found.end(), _section(found[1], parts, language))
    if (found := place.match(_TIME_SIGNATURE)) and (found[1] or place.near(_MUSIC)):
        return ReadForm(found.end(), " ".join(map(language.cardinal, filter(None, found.groups()))))
    found = place.match(_SCORE)
    return _score(found, place, language) if found else None


def section(place: Place, language: Language) -> ReadForm | None:
    """``§ 1950.5``, ``§§ 1940–1954``: sections in pairs."""
    if place.word_before not in ("section", "sections") and "§" not in place.before[-4:]:
        return None
    found = place.match(_SECTION)
    if not found:
        return None
    low = _dotted(found[1], found[2], language)
    high = _dotted(found[3], found[4], language) if found[3] else ""
    return ReadForm(found.end(), language.ranged(low, high) if high else low)


def _score(found: re.Match[str], place: Place, language: Language) -> ReadForm | None:
    """``112–108``, ``7-6 (4)``: a falling pair is a score, with a hyphen where words say so."""
    first, second = int(found[1]), int(found[3])
    words = language.ranged(language.cardinal(found[1]), language.cardinal(found[3]))
    if found[4] and {first, second} == {6, 7}:
        decided = map(language.cardinal, filter(None, found.groups()[3:]))
        return ReadForm(found.end(), f"{words}, {f' {language.to} '.join(decided)}")
    if found[2] != "-":
        return ReadForm(found.end(3), words) if first > second else None
    told = (
        _DECIDED.match(place.text, found.end())
        or place.near(_SPORT)
        or (first <= 12 and place.near(_OPENING))
    )
    return ReadForm(found.end(3), words) if first >= second and told else None


def words(place: Place, language: Language) -> ReadForm | None:
    """An abbreviation before a number, or a move of chess."""
    if (life := lived(place)) is not None:
        return life
    if found := place.match(_HOME):
        return ReadForm(found.end(), f"{_BEFORE_NUMBER[found[1].lower()].capitalize()} ")
    if found := place.match(_BOOK):
        return ReadForm(found.end(), _SHORT_BOOKS[found[1] or found[2]])
    if found := place.match(_ABBREVIATED):
        written = found[1] or found[2]
        if written == "P":
            return None
        if found[1] in _WORDS_TOO and place.before[-1:] != "(" and place.word_before not in _BEFORE_THEM:
            return None
        spoken = _BEFORE_NUMBER[written.lower()]
        if written.lower() == "est" and re.match("[12][0-9]{3}", place.text[found.end() :]):
            spoken = "established"
        spoken = spoken.capitalize() if written[0].isupper() else spoken
        return ReadForm(found.end(), f"{spoken} " if found[1] else spoken)
    if found := place.match(_EDITION):
        word = {"ed": "editor", "eds": "editors"}.get(found[1], "edition")
        return ReadForm(found.end(), word)
    if found := place.match(_CIRCA):
        return ReadForm(found.end(), "circa ")
    if found := place.match(_CASTLES):
        side = "queenside" if found[1] else "kingside"
        return ReadForm(found.end(), f"castles {side}{_check(found[2])}") if place.near(_GAME) else None
    found = place.match(_MOVE)
    if not found or not (found[3] or found[7] or place.near(_GAME)):
        return None
    return ReadForm(found.end(), _move(found, language))


def lived(place: Place) -> ReadForm | None:
    """``d. 1827`` after a bracket or a comma."""
    found = place.match(_LIVED)
    return ReadForm(found.end(), f"{_LIVED_WORDS[found[1]]} ") if found else None


def section_sign(place: Place) -> ReadForm | None:
    """``§ 12``."""
    found = place.match(_SECTION_SIGN)
    return ReadForm(found.end(), f"{_SECTION_WORDS[found[1]]} ") if found else None


def _verses(found: re.Match[str], language: Language) -> str:
    chapter, verse, last, beyond = (part and language.cardinal(part) for part in found.groups())
    words = f"{chapter} {verse}"
    if last:
        words = language.ranged(words, f"{last} {beyond}" if beyond else last)
    return words


def _is_law(place: Place) -> bool:
    return place.word_before in listed.LAWS or "§" in place.before[-4:] or place.before.endswith("U.S.C. ")


def _dotted(whole: str, part: str | None, language: Language) -> str:
    """The number of a section, and what stands after its point."""
    words = language.name_number(whole)
    return f"{words} {language.point} {language.digits(part)}" if part else words


def _section(number: str, parts: list[str], language: Language) -> str:
    digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
    if digits.count(".") > 1:
        spoken = [f" {language.point} ".join(map(language.cardinal, digits.split(".")))]
    else:
        spoken = [_dotted(*digits.partition(".")[::2], language)]
    spoken.append(number[len(digits) :])
    spoken += [language.cardinal(part) if part.isdecimal() else part for part in parts]
    return " ".join(filter(None, spoken))


def _move(found: re.Match[str], language: Language) -> str:
    piece, start, takes, file, rank, pawn, to_file, to_rank, promoted, check = found.groups()
    squares = re.findall("[a-h]|[1-8]", start or "")
    words = [_PIECES[piece] if piece else pawn]
    words += [language.cardinal(each) if each.isdecimal() else each for each in squares]
    words += ["takes"] if takes or pawn else []
    words += [file or to_file, language.cardinal(rank or to_rank)]
    words += [_PIECES[promoted]] if promoted else []
    return " ".join(words) + _check(check)


def _check(sign: str) -> str:
    return {"+": " check", "#": " checkmate"}.get(sign, "")
