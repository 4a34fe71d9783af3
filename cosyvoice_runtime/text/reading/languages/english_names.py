"""English: numbers in names and after words that tell their kind: ``A380``, ``1080p``, ``under-12s``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_LINES = re.compile(
    r"(?<![\w.,])(144|240|360|480|540|576|720|1080|1440|2160|4320)([pi])([1-9][0-9]{1,2})?(?![\w])"
)
_JET = re.compile(r"(?<![\w.,])(7[0-9]7)-(8|9|10|[2-9]00)(?![\w-])")
_PROCESSOR = re.compile(r"(?<=[iI][3579]-)([0-9]{2})([0-9]{2,3})(?=[A-Z]{0,2}[0-9]?(?!\w))")
_MODEL = re.compile(r"(?<=[A-Z][0-9]-)([0-9]{4})(?!\w)|(?<![\w.,])(7[0-9]7)(?=[A-Z](?!\w))")
_HUNDREDS = re.compile(r"(?<![\w.,$€£-])([1-9][1-9]00)([A-Z]{1,3})(3D)?(?!\w)")
_FREE_CALL = re.compile(r"(?<![\w.,+-])(1[38]00)[ -]([0-9]{3})[ -]([0-9]{3})(?![\w-])")
_EPISODE = re.compile(r"(?<![\w])S0?([0-9]{1,2})\s?E0?([0-9]{1,3})(?!\w)")
_SERIAL = re.compile(r"(?<![\w.,-])(?=[0-9]+[A-Z]+[0-9]+[0-9A-Z]*(?!\w))[0-9A-Z]{8,40}")
_HEADED = re.compile(r"(?<=[A-Z]-)([1-9][0-9]{0,2}) ([NSEW])(?![\w])")
_ROUTE = re.compile(r"([1-9][0-9]{0,2}) ([NSEW])(?![\w'’&])")
_BEFORE_ROUTE = frozenset(("rt", "rte", "route", "hwy", "highway", "interstate", "us", "sr"))
_BATTED = re.compile(r"(?<![\w.,/])\.([0-9]{3})(?:/\.([0-9]{3}))?/\.([0-9]{3})(?![\w/]|\.[0-9])")
_HEADINGS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_BOTH = re.compile(r"(?<![\w.,/])([0-9]{1,4})/(?=[0-9]{1,4}\s?[kMG](?:bps|Hz|B/s)\b)")
_MILEAGE = re.compile(r"(?<![\w.,/])([1-9][0-9])/(?=[1-9][0-9](?![\w/]|[.,][0-9]))")
_OF_MILEAGE = re.compile(r"(?i)\bmpg\b|\bcity, ?highway")
_DEGREES = re.compile(r"(?<![\w.,/])([0-9]{1,3})/(?=[-−]?[0-9]{1,3}\s?°)")
_CABLE = re.compile(
    r"(?<![\w.,/])(6|8|1[0-8])/([2-4])(?= (?:AWG|NM|UF|Romex|wire|wiring|cable|gauge|THHN|MC)\b)"
)
_COORDINATE = re.compile(
    r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]+)?)\s?°\s?(?:([0-9]{1,2}(?:\.[0-9]+)?)['’′]\s?(?:([0-9]{1,2}(?:\.[0-9]+)?)"
    r"[\"”″]\s?)?)?([NSEW])(?![A-Za-z])"
)
_ANGLE = re.compile(r"(?<![\w.,])([0-9]{1,3})°\s?([0-9]{1,2})['’′](?:\s?([0-9]{1,2}(?:\.[0-9]+)?)[\"”″])?()")
_DIRECTIONS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_ROADS = re.compile(r"(?<=(?<!\w)I-)([1-9][0-9]{0,2})/(?=[1-9][0-9]{0,2}(?![\w/]))")
_EVEN = re.compile(r"(?<![\w.,-])50-50(?![\w-]|[.,][0-9])")
_LETTERS = re.compile(r"(?<![\w.,])([0-9]{1,2}) ([A-Z])s(?![\w])")
_TIMES = re.compile(r"(?<![\w.,])([0-9]{1,3})x(?= [0-9])")
_EACH_PERSON = re.compile(r"pp(?!\w)")
_PRICE_BEFORE = re.compile(r"[$€£¥][0-9][0-9.,]*[kK]? ?\Z")
_PART_OF = re.compile(
    r"(?<![\w.,/])([1-9][0-9])/([3-9][0-9])(?=\)| (?!of|in|cup)[a-z]{2}|, [0-9]+ [a-zA-Z])(?! inch)"
)
_POWERS_OF_TWO = ("32", "64")
_PRICES = re.compile(r"((?:19|20)[0-9]{2})(?= (?:dollars|prices|terms|euros|pounds)\b)")
_HOST_ALONE = re.compile(r"\A([a-z]{2,30})\.([a-z]{2,5})\Z")
_OVER_LETTER = re.compile(r"(?<![\w.,/])([0-9]{1,3})/([a-z])(?![\w/])")
_ROAD = re.compile(r"(?<=[A-Z]-)([1-9][0-9]{2})(?![\w-]|[.,][0-9])")
_TIRE = re.compile(r"(?<=R[0-9]{2} )([0-9]{2,3})([A-Z])(?!\w)")
_TIRE_SIZE = re.compile(r"(?<![\w.,/])(P|LT)?([1-4][0-9]{2})/([2-9][05])\s?(Z?R)([12][0-9])(?!\w)")
_LETTERED = re.compile(r"#(?=[A-Z]{1,3}[0-9]{1,6}(?![\w-]))")
_NUMBER_AFTER = re.compile(
    r"(?:(?<=[A-Z])|(?<=[\s(]))# ?(?!10000)([0-9]{5,12})(?![\w-]|[.,][0-9])"
    r"|(?<=[A-Z])#(?=:| [0-9])|(?<= )#(?=: )"
)
_NUMBER_SIGN = re.compile(r"#\s?([1-9][0-9]{2,3})(?![\w-]|[.,][0-9])")
_SEVERAL = re.compile(r"(?<![\w.,])([0-9]{1,3})['’]?s(?![\w])")
_OF_AGE = re.compile(r"(?:[Uu]nder|[Oo]ver|No\.|#|[Uu])[- ]?\Z")
_AGED = re.compile(r"(?<![\w.,])([0-9]{1,3})(?:\s|-)?(?:y/o|yo|y\.o\.|yr old|yrs old)(?!\w)")
_TONE = re.compile(
    r"(?<![\w#])([A-G])([#♯♭])(maj|min|m|dim|aug|sus|add)?([0-9]{1,2})?(?:([#♯b♭])([0-9]{1,2}))?(?![\w#])"
)
_MUSIC = re.compile(
    r"(?i:\b(?:chords?|progressions?|capo|bars?|beats?|tempo|rhythm|strum\w*|songs?|melody|riff|scale|arpeggio|"
    r"waltz|minor|major|guitar|piano|bpm)\b)|[♩♪♭♯]|[A-G](?:m|maj|sus|dim|7)[0-9]?[ ,–|-]"
)
_CHORD = re.compile(
    r"(?<![\w'’#])([A-G])(b?)(maj|min|m|dim|aug|sus|add)?([2-9]|1[13])?(sus|add|b|#)?([2-9]|1[13])?(?![\w'’#])"
    r"(?:/([A-G])([#b♯♭]?)(?![\w]))?"
)
_TIME = re.compile(r"(?<![\w.,/])([2-79]|12)/([248])(?![\w/]|[.,][0-9])(?! (?:of|cup|tsp|tbsp|inch))")
_TIME_BEFORE = re.compile(r"\b(?:in|to|from|and|of|time|signature|meter)(?: signature)?:? \Z")
_TONES = {"#": "sharp", "♯": "sharp", "♭": "flat", "b": "flat"}
_CHORDS = {
    "maj": "major", "min": "minor", "m": "minor", "dim": "diminished", "aug": "augmented", "sus": "sus",
    "add": "add",
}  # fmt: skip
_KEY = re.compile(r"(?<![\w#])([A-G])(b?)(?: (maj|min)\.?(?=[,;)]|$)|(?<=b) (?=(?:major|minor)\b))")
_TAG = re.compile(r"#(?=[0-9]+[A-Za-z])([A-Za-z0-9]{3,40})(?!\w)")
_PIECES_OF_TAG = re.compile(r"[0-9]+|[A-Z]?[a-z]+|[A-Z]+")
_DIODE = re.compile(r"(?<![\w.,])([12])N([0-9]{3,4})(?![0-9])")
_MOLAR = re.compile(r"(?<![\w.,$€£])([0-9]*\.?[0-9]+) ?M(?= [A-Za-z(×]|[.,;)/]|$)")
_OF_CHEMISTRY = re.compile(
    r"\b(?:pH|mol|molar\w*|HCl|NaOH|NaCl|KCl|H2SO4|HNO3|acids?|bases?|buffers?|titrat\w+|[Dd]ilut\w+|stock|solutions?|Tris|EDTA)\b"
)
_BASED = re.compile(r"(?<![\w.,])([0-9]{2,16})_(2|8|10|16)(?!\w)")
_MIX = re.compile(
    r"(?<![\w.,:])([1-9][0-9]?):([1-9][0-9]?):([1-9][0-9]?)(?![\w:])( (?:mix|ratio|split|blend)\b)?"
)
_BASE_PAIRS = re.compile(r"(?<![\w.,$])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+) ?bp(?!\w)")
_OF_GENES = re.compile(r"\b(?:DNA|RNA|PCR|primers?|genes?|genom\w+|sequenc\w+|plasmid|exons?)\b")
_STEPS = {
    "I": "one", "II": "two", "III": "three", "IV": "four", "V": "five", "VI": "six", "VII": "seven",
}  # fmt: skip
_PROGRESSION = re.compile(
    r"(?<![\w–-])(?:(?:I{1,3}|IV|VI{0,2}|i{1,3}|iv|vi{0,2})[–-]){2,7}(?:I{1,3}|IV|VI{0,2}|i{1,3}|iv|vi{0,2})(?![\w–-])"
)
_STRAND = re.compile(
    r"(?<![\w.,'’′])([35])['’′](?:(-)(?=[A-Z]{2})|(?= ?(?:end|UTR|cap|to|carbon|and)\b|[ -][35]['’′]))"
)
_STRAND_END = re.compile(r"(?<=[A-Z])-([35])['’′](?!\w)")
_NOTE = re.compile(r"([♩♪])(\.?) ?[=≈] ?(?=[0-9])")
_STAR = re.compile(r"\*(?=[0-9]{2,5}(?!\w))")
_CALLED = frozenset(("dial", "press", "call", "enter", "text", "dialing", "pressing"))
_MEAN = re.compile("([A-Za-z])([\u0304\u0305\u0302])")
_MARKS = {"\u0304": "bar", "\u0305": "bar", "\u0302": "hat"}
_PERMISSIONS = re.compile(r"(?<![\w.,])([0-7]{3,4})(?!\w)")
_PREPRINT = re.compile(r"([0-9]{4})\.([0-9]{4,5})(?:v([0-9]))?(?!\w|[.,][0-9])")
_IDENTIFIER = re.compile(r"10\.[0-9]{4,9}/[^\s]{2,80}(?<![.,;:)\]])")
_WEEK = re.compile(r"(?<![\w.-])([12][0-9]{3})-?W([0-5][0-9])(?![\w-])")


def digits(place: Place, language: Language) -> ReadForm | None:
    """A number in a name or of a group of people."""
    if found := place.match(_LINES):
        return ReadForm(
            found.end(),
            " ".join(
                (
                    language.pairs(found[1]),
                    *(
                        language.cardinal(each) if each.isdecimal() else each
                        for each in found.groups()[1:]
                        if each
                    ),
                )
            ),
        )
    found = place.match(_TIME) if _TIME_BEFORE.search(place.before) else None
    if found and place.near(_MUSIC):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.cardinal(found[2])}")
    if found := place.match(_DIODE):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} N {language.name_number(found[2])}")
    if (found := place.match(_MOLAR)) and place.near(_OF_CHEMISTRY):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} molar")
    if found := place.match(_BASED):
        return ReadForm(found.end(), f"{language.digits(found[1])} base {language.cardinal(found[2])}")
    if (found := place.match(_MIX)) and (found[4] or len(found[2]) == 1):
        return ReadForm(found.end(3), f" {language.to} ".join(map(language.cardinal, found.groups()[:3])))
    if (found := place.match(_BASE_PAIRS)) and place.near(_OF_GENES):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} base pairs")
    if found := place.match(_STRAND):
        return ReadForm(
            found.end(), f"{language.cardinal(found[1])} prime{f'{language.pause} ' if found[2] else ''}"
        )
    if found := place.match(_HEADED):
        return ReadForm(found.end(), f"{language.name_number(found[1])} {_HEADINGS[found[2]]}")
    if place.word_before in _BEFORE_ROUTE and (found := place.match(_ROUTE)):
        return ReadForm(found.end(), f"{language.name_number(found[1])} {_HEADINGS[found[2]]}")
    if (found := place.match(_OVER_LETTER)) and found[2] not in language.per_units:
        return ReadForm(found.end(), language.over(language.cardinal(found[1]), found[2]))
    if found := place.match(_TIRE):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {found[2]}")
    if pair := _tire(place, language) or _coordinate(place, language) or _pair(place, language):
        return pair
    if (
        (found := place.match(_PART_OF))
        and 12 < int(found[1]) < int(found[2])
        and found[2] not in _POWERS_OF_TWO
    ):
        return ReadForm(found.end(), language.out_of(*map(language.cardinal, found.groups())))
    if found := place.match(_EVEN):
        return ReadForm(found.end(), "fifty fifty")
    if found := place.match(_LETTERS):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {found[2]}s")
    if found := place.match(_TIMES):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} x")
    if place.word_before == "in" and (found := place.match(_PRICES)):
        return ReadForm(found.end(), language.year(int(found[1])))
    if found := place.match(_JET):
        return ReadForm(found.end(), f"{language.pairs(found[1])} {language.cardinal(found[2])}")
    if found := place.match(_ROAD):
        return ReadForm(found.end(), language.name_number(found[1]))
    if found := place.match(_SERIAL):
        pieces = re.findall("[0-9]+|[A-Z]+", found[0])
        spoken = [language.digits(piece) if piece.isdecimal() else piece for piece in pieces]
        return ReadForm(found.end(), " ".join(spoken))
    if found := place.match(_PROCESSOR):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.cardinal(found[2])}")
    if found := place.match(_MODEL):
        return ReadForm(found.end(), language.name_number(found[1] or found[2]))
    if (found := place.match(_HUNDREDS)) and found[2] not in language.units:
        return ReadForm(
            found.end(), f"{language.name_number(found[1])} {found[2]}{' three D' if found[3] else ''}"
        )
    if found := place.match(_FREE_CALL):
        return ReadForm(found.end(), language.grouped([language.digits(part) for part in found.groups()]))
    if found := place.match(_AGED):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} year old")
    if (found := place.match(_SEVERAL)) and _OF_AGE.search(place.before):
        return ReadForm(found.end(), _plural(language.cardinal(found[1])))
    if found := place.match(_WEEK):
        week, year = language.cardinal(str(int(found[2]))), language.year(int(found[1]))
        return ReadForm(found.end(), f"week {week} of {year}")
    return _identifier(place, language)


def letters(place: Place, language: Language) -> ReadForm | None:
    """A tone or a chord, or a mean value."""
    if size := _tire(place, language):
        return size
    if place.match(_EACH_PERSON) and _PRICE_BEFORE.search(place.before):
        return ReadForm(place.start + 2, "per person")
    if found := place.match(_HOST_ALONE):
        return ReadForm(found.end(), f"{found[1]} {language.signs['.']} {found[2]}")
    if found := place.match(_PROGRESSION):
        degrees = re.split("[–-]", found[0].upper())
        return ReadForm(found.end(), f"{language.pause} ".join(map(_STEPS.__getitem__, degrees)))
    if found := place.match(_EPISODE):
        season, episode = (language.cardinal(part) for part in found.groups())
        return ReadForm(found.end(), f"season {season} episode {episode}")
    if found := place.match(_TONE):
        _, sign, chord, number, change, by = found.groups()
        words = [found[1], _TONES[sign], chord and _CHORDS[chord], number and language.cardinal(number)]
        words += [_TONES[change], language.cardinal(by)] if change else []
        return ReadForm(found.end(), " ".join(filter(None, words)))
    found = place.match(_CHORD)
    if found and (found[2] or found[3] or found[7]) and place.near(_MUSIC):
        if found[0] == "Am" and place.text.startswith(" ", found.end()):
            return None
        return ReadForm(found.end(), _chord(found, language))
    if (found := place.match(_KEY)) and (found[2] or found[3]):
        tone = f"{found[1]} flat" if found[2] else found[1]
        return ReadForm(found.end(), f"{tone} {_CHORDS[found[3]] if found[3] else ''}")
    found = place.match(_MEAN)
    if found:
        return ReadForm(found.end(), f"{found[1]} {_MARKS[found[2]]}")
    return None


def signs(place: Place, language: Language) -> ReadForm | None:
    """A tag that begins with a number, a star to dial, or a note that tells a tempo."""
    if found := place.match(_BATTED):
        return ReadForm(
            found.end(), f"{language.pause} ".join(map(language.pairs, filter(None, found.groups())))
        )
    if found := place.match(_NOTE):
        note = "quarter note" if found[1] == "♩" else "eighth note"
        return ReadForm(found.end(), f"{'dotted ' if found[2] else ''}{note} {language.operations['=']} ")
    if found := place.match(_TAG):
        pieces = _PIECES_OF_TAG.findall(found[1])
        serial = len(found[1]) > 8 and found[1].isupper()
        said = language.digits if serial else language.cardinal
        words = (said(piece) if piece.isdecimal() else piece for piece in pieces)
        return ReadForm(found.end(), " ".join(words))
    if place.word_before in listed.NUMBERED and (found := place.match(_NUMBER_SIGN)):
        return ReadForm(found.end(), f"{language.signs_before['#']} {language.name_number(found[1])}")
    if place.word_before in listed.NUMBERED and (found := place.match(_LETTERED)):
        return ReadForm(found.end(), f"{language.signs_before['#']} ")
    if found := place.match(_NUMBER_AFTER):
        number = f" {language.digits(found[1])}" if found[1] else ""
        space = "" if place.before[-1:] in " (" else " "
        return ReadForm(found.end(), f"{space}{language.signs_before['#']}{number}")
    if found := place.match(_STRAND_END):
        return ReadForm(found.end(), f"{language.pause} {language.cardinal(found[1])} prime")
    found = place.match(_STAR) if place.word_before in _CALLED else None
    return ReadForm(found.end(), "star ") if found else None


def _pair(place: Place, language: Language) -> ReadForm | None:
    """``14/2 cable``, ``28/36 mpg``, ``20/40 MHz``: two numbers that no fraction is."""
    if found := place.match(_CABLE):
        return ReadForm(found.end(), " ".join(map(language.cardinal, found.groups())))
    if found := place.match(_DEGREES):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))}{language.pause} ")
    if found := place.match(_ROADS):
        return ReadForm(found.end(), f"{language.cardinal(found[1])}{language.pause} ")
    if (found := place.match(_MILEAGE)) and place.near(_OF_MILEAGE):
        return ReadForm(found.end(), f"{language.cardinal(found[1])}{language.pause} ")
    found = place.match(_BOTH)
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.signs['/']} ") if found else None


def _coordinate(place: Place, language: Language) -> ReadForm | None:
    """``40.7128° N``, ``51°30'26"N``."""
    found = place.match(_COORDINATE) or place.match(_ANGLE)
    if not found:
        return None
    parts = zip(found.groups()[:3], ("degree", "minute", "second"), strict=True)
    words = [
        f"{language.number(language.numerals.parse(number))} {unit}{'' if number == '1' else 's'}"
        for number, unit in parts
        if number
    ]
    words += [_DIRECTIONS[found[4]]] if found[4] else []
    return ReadForm(found.end(), " ".join(words))


def _tire(place: Place, language: Language) -> ReadForm | None:
    """``225/65R17``: the size of a tire."""
    found = place.match(_TIRE_SIZE)
    if not found:
        return None
    width, share, rim = language.pairs(found[2]), language.cardinal(found[3]), language.cardinal(found[5])
    words = f"{width}, {share}, {' '.join(found[4])} {rim}"
    return ReadForm(found.end(), f"{found[1]} {words}" if found[1] else words)


def _identifier(place: Place, language: Language) -> ReadForm | None:
    """An identifier that ``chmod``, ``arXiv`` or ``doi`` announces."""
    before = place.word_before
    if before == "chmod" and (found := place.match(_PERMISSIONS)):
        return ReadForm(found.end(), language.digits(found[1]))
    if before == "arxiv" and (found := place.match(_PREPRINT)):
        words = f"{language.digits(found[1])} {language.point} {language.digits(found[2])}"
        return ReadForm(found.end(), words + (f" version {language.cardinal(found[3])}" if found[3] else ""))
    if before not in ("doi", "org") or not (found := place.match(_IDENTIFIER)):
        return None
    words = " ".join(
        language.digits(part) if part.isdecimal() else language.signs.get(part, part)
        for part in re.findall(r"[0-9]+|[A-Za-z]+|[^\w\s]", found[0])
    )
    return ReadForm(found.end(), words)


def _chord(found: re.Match[str], language: Language) -> str:
    """``Bbm7/Ab``: its tone, its kind, and its bass."""
    tone, flat, kind, number, change, by, bass, sign = found.groups()
    words = [tone, _TONES.get(flat), _CHORDS.get(kind), number and language.cardinal(number)]
    words += [_CHORDS.get(change) or _TONES.get(change), by and language.cardinal(by)]
    words += ["over", bass, _TONES.get(sign)] if bass else []
    return " ".join(filter(None, words))


def _plural(words: str) -> str:
    """twelve -> twelves, six -> sixes, sixty -> sixties."""
    if words.endswith("y"):
        return f"{words[:-1]}ies"
    return f"{words}{'es' if words.endswith('x') else 's'}"
