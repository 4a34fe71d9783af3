"""English: short forms of notes: ``(Fri, May 9)``, ``winds NW``, ``42nd St.``, ``Elizabeth I``, ``23'``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_DAY_NAMES = "|".join(sorted(tables.WEEKDAYS, key=len, reverse=True))
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAY = re.compile(
    rf"(?<![\w'’])({_DAY_NAMES})(?![\w'’])(?!\.?,? (?:1[0-2]|0?[1-9])/[0-9]{{1,2}}(?![0-9°c]))"
    rf"(?:\.(?=,|\s(?:[a-z0-9(–&-]|{_MONTHS})))?(/(?={_DAY_NAMES}))?"
)
_DAY_AFTER = re.compile(
    rf"\.?,? (?:[0-9]|(?:{_MONTHS})[a-z]*\.? [0-9]|(?:morning|afternoon|evening|night|noon|at [0-9])\b)"
    r"|(?<=Sat): |(?<=Mon): |(?<=Wed): |(?<=Sun): (?![Ff]ull|[Pp]art|[Ss]hade|[Nn]eeds)"
)
_NEXT_DAY = re.compile(r"[;,] \Z")
_DAY_BEFORE = re.compile(
    r"(?:\b(?:[Oo]n|[Ee]very|[Bb]y|[Tt]his|[Nn]ext|[Ll]ast|[Uu]ntil|[Ee]ach|airs)|[0-9],?"
    r"|[AP]M|[ECMP][SD]?T) \Z"
)
_OTHER_DAY = re.compile(
    rf"(?<!\w)(?:Mon(?! [A-Z]|(?:sieur|day))|Tues?|Thu|Thurs|Fri)(?!\w)"
    rf"|(?<!\w)(?:{_DAY_NAMES})\.?(?:\s?[,/&|–-]\s?|\s(?:and|or|to)\s)(?:{_DAY_NAMES})(?!\w)"
)
_IN_LIST = re.compile(
    r"\.?(?:\s?[,:;/&|()–—-]|[.!?]?$|[.!?] | (?:and|or|to|at|from|till?|until|runs?|only|[0-9@]))"
)
_ONLY_DAYS = frozenset(("Tue", "Tues", "Thu", "Thur", "Thurs", "Fri"))
_WINDS = {
    "N": "north", "S": "south", "E": "east", "W": "west", "NE": "northeast", "NW": "northwest",
    "SE": "southeast", "SW": "southwest", "NNE": "north-northeast", "NNW": "north-northwest",
    "SSE": "south-southeast", "SSW": "south-southwest", "ENE": "east-northeast", "ESE": "east-southeast",
    "WNW": "west-northwest", "WSW": "west-southwest",
}  # fmt: skip
_WIND = re.compile(r"(?<![\w./&-])([NSEW]{1,3})(?:([/–-])([NSEW]{1,3}))?(?![\w/&'’-]|\.[A-Z])")
_WIND_BEFORE = re.compile(
    r"(?i)\b(?:winds?|gusts?|breezes?|swell)(?: (?:is|are|will be|from|out of|of|the|light|around|turning|"
    r"blowing|shifting)){0,4}:? \Z|\b(?:out of|gusts? from) the \Z|\b(?:blowing|winds? shifting)(?: "
    r"from| to| out of)?(?: the)? \Z"
)
_WIND_AFTER = re.compile(
    r" (?:winds?|breezes?|swells?|gusts?|(?:at )?[0-9]+(?:[-–][0-9]+)? ?(?:mph|km|kn|kt|m/s))"
)
_HEAD_BEFORE = re.compile(
    r"\b(?:[Hh]ead|[Hh]eading|[Ff]acing|[Dd]rive|[Tt]ravel|[Ww]alk|[Gg]o|[Tt]urn|[Cc]ontinue|[Ll]ook|"
    r"[Mm]iles|blocks?|mi|km)(?: (?:due|to the))? \Z"
)
_SOUTH_OF = re.compile(r" of (?:the [A-Z]|[A-Z])")
_HEAD_AFTER = re.compile(
    r"(?:\s(?:of|on|for|after|at|along|toward|towards|onto|until|and|corner|side)\b|[.,;]|$)"
)
_STREET_BEFORE = re.compile(r"(?:Ave|St|Street|Avenue|Blvd|Rd|Dr|Place|Pl|Way|Ct|Ln)\.?,? \Z")
_STREET_AFTER = re.compile(
    r" [0-9]{1,3}(?:st|nd|rd|th)\b"
    r"|(?: [A-Z][a-z]+){1,2} (?:St|Ave|Blvd|Rd|Dr|Street|Avenue)\b"
)
_STREET = re.compile(r"(?<![\w.])(Sts|Aves|St|Ave|Blvd|Rd|Ln|Pkwy|Expy|Hwy|Dr|Ct|Pl|Sq)(?:\.|(?![\w.'’]))")
_NAMED_STREET = re.compile(r"(?:[0-9](?:st|nd|rd|th)|(?<![\w.])(?!The\b)[A-Z][a-z]+)\Z")
_LESS_SURE = frozenset(("Dr", "Ct", "Pl", "Sq"))
_SAINTED = frozenset(("Port", "Mount", "Fort", "Lake", "New", "Sault", "East", "West", "North", "South"))
_SAINT = re.compile(
    r"\s(?:Louis|Petersburg|Patrick|John|Paul|Peter|George|Mary|Lucia|Lucie|Andrew|Helen|Augustine|Francis|"
    r"Thomas|James|Joseph|Michael|Nicholas|Martin|Kitts|Vincent|Pancras|Basil|Mark|Luke|Anne|Albans|"
    r"Moritz|Tropez|"
    r"Croix|Barts|Maarten|Jude|Anthony|Bernard|Catherine|Clair|Cloud|Elmo|Ives|Lawrence|Valentine|Stephen)"
)
_CAPITAL = re.compile(r"\s[A-Z]")
_SENTENCE_GOES_ON = re.compile(r"\s?(?:[a-z0-9,;:()&~]|[A-Z]{2}\b)")
_FIRST_RULER = re.compile(r"I(?![\w'’]|\.[A-Za-z])")
_LIKE_ME = re.compile(
    r" (?:am|think|know|believe|guess|hope|mean|see|saw|love|like|want|need|don['’]t|can|can['’]t|"
    r"could|should|"
    r"will|would|do|did|have|met|use|say|said|feel|felt|wish|wonder|remember|recommend|suggest)\b"
)
_RULED = re.compile(
    r"[.,;:)!?]|$| (?:of|was|became|ruled|reigned|and|in|\(|had|who|took|died|succeeded|crowned|defeated|"
    r"abdicated|granted|signed|founded|followed|married|to|from|on|at|as|by)\b| \(|['’]s"
)
_WITH_ME = re.compile(r"\b(?:I|[Ww]e|[Ww]ith|met|saw|told|asked|to|for|like|than) (?:\w+ )?\Z")
_OF_RULER = re.compile(
    r"\b(?:King|Queen|Tsar|Czar|Pope|Emperor|Empress|Kaiser|Sultan|Shah|"
    r"Prince|Pharaoh|under)(?: \w+)? \Z"
)
_MINUTES = re.compile(r"(?<![\w.,'’])([0-9]{1,3})(?:\+([0-9]{1,2}))?['’′](?![\w'’\"”″])")
_MATCH = re.compile(
    r"(?i)\b(?:goals?|scor\w+|match|half-?time|full-?time|penalt\w+|red card|yellow card|"
    r"substitut\w+|equali[sz]\w+|"
    r"header|free kick|striker|kick-?off|stoppage|"
    r"assist\w*|brace|hat-trick|HT:|FT:|xG|pen\.|(?:won|beat|drew|lost)\b.{0,30}[0-9]-[0-9])"
)
_QUOTED = re.compile(r"(?<!\w)['‘]")
_PRICES = re.compile(
    r""
    r"([$€£])([0-9][0-9,]*(?:\.[0-9]+)?)([kKMBT]?)\s?[-–—]\s?\1([0-9][0-9,]*(?:\.[0-9]+)?)([kKMBT]?)(?![\w%]|[.,][0-9])"
)
_SCREW = re.compile(r"#([0-9]{1,2})-([0-9]{2})(?=[ ,.;)]|$)")
_SIZE_SCREW = re.compile(r"(?<![\w.,/])(1/4|5/16|3/8|7/16|1/2|5/8|3/4)-([0-9]{2})(?= |[,.;)]|$)")
_OPEN_VERSION = re.compile(r"(?<![\w.,])([0-9]{1,3})((?:\.[0-9]{1,3}){0,2})((?:\.[xX]){1,2})(?![\w])")
_KELVIN = re.compile(r"(?<![\w.,$€£])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?)[ -]K(?![\w'’])")
_WARMTH = re.compile(
    r"(?i)°\s?[CF]|\b(?:kelvins?|temperatures?|absolute zero|superconduct\w*|stars?|cryo\w*|boil\w*|"
    r"melt\w*|freez\w*|"
    r"cool(?:s|ed|ing)?|heat(?:s|ed|ing)?|gas|atm|plasma|blackbody|surface|hot|cold)\b"
)
_YEARLY = re.compile(r"(?<![\w.])p\.\s?a\.")
_CUPS = re.compile(r"(?<![\w.,/])(?:([0-9]{1,2}) )?([1-9])/([2-8]) ?c\.?(?=\s[a-z+&(]|,)")
_GRAVITY = re.compile(r"(?<![\w.,])([0-9]{1,2}(?:\.[0-9]{1,3})?) ?[gG](?![\w'’])")
_OF_GRAVITY = re.compile(r"(?i)\b(?:(?:micro)?gravity|g-force|accelerat\w+)\b")
_FORECAST = re.compile(r"/(?=[0-9]{1,3}°)")
_FOR_EACH = re.compile(r"/([a-z]{2,12})(?:/([a-z]{2,12}))?(?:\.(?=\s[a-z]|[,;)]))?(?![\w/])")
_PRICE_BEFORE = re.compile(
    r"[$€£][0-9][0-9.,]*[kKMB]?\Z|\b(?:Cost|Price|Pay|Rate|Fee|Calories|Protein)\Z"
    r"|[0-9]\+?\s?(?:mins?|hrs?|h|secs?|s|lbs?|oz|g|mg|kg|ml|mL|cups?"
    r"|miles?|mi|km|reps|sets|pts|kcal|[Tt]bsp|tsp|gal|(?:sq\.? )?ft|in)\.?\Z"
)
_FOR_HOURS = re.compile(
    r"/(?=[0-9]{1,3}[ -]?(?:h|hrs?|hours|d|days)(?![\w/])"
    r"|1(?:00|,?000) ?(?:g|mL|ml|km|mi|kcal|lbs?|sq|gal|L)(?![\w/])"
    r"|1\.73 ?m)|(?<=mg|cg|µg| g)/(?=[0-9]{1,3} ?m[lL](?![\w/]))"
    r"|(?<=mL|mg|cg)/(?=[0-9]{1,3} ?(?:lbs?|kg)(?![\w/]))"
)
_EVERY_HOURS = re.compile(r"(?<!\w)q\.? ?([1-9][0-9]?)(?:[-–]([1-9][0-9]?))? ?(h(?:rs?)?|d|wks?|mo)(?!\w)")
_SPANS = {"h": "hours", "d": "days", "w": "weeks", "m": "months"}
_LEFT_OUT = re.compile(r"(?<=not )incl(?!\w)(?:\.(?=\s[a-z]|[,;)]))?")
_HIGH = re.compile(r"(?<!\w)(?:Hi|Lo)(?=:? ?[-−]?[0-9])")
_LOW = re.compile(r"\bHi(?:gh)?\b.{1,40}\bLo(?:w)?:? ?[-−]?[0-9]")
_STATIONS = re.compile(r"(?<![\w.,/])(1[0-2]|[1-9])/(1[0-2]|[1-9])c(?!\w)")
_DEW_POINT = re.compile(r"(?<=[Dd]ew )pt\.?(?!\w)")
_PAIR_OF_MONEY = re.compile(
    r"(?<![\w/])(EUR|USD|GBP|JPY|CHF|AUD|CAD|NZD|BTC|ETH|CNY)/(USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|KRW|INR|MXN)(?![\w/])"
)
_DOSE_BEFORE = re.compile(
    r"[0-9]\s?(?:mL/min|mg|mcg|µg|g|kg|mL|ml|L|IU|units?|doses?|tablets?|tabs|pills|caps|capsules|cups?|kcal|lbs?|oz|"
    r"gal|hrs?|h|tbsp|tsp|kWh|people|cases|deaths)\.?\Z"
)
_ZONES = {"E": "Eastern", "C": "Central", "M": "Mountain", "P": "Pacific"}
_ZONE = re.compile(r"(?<![\w.])([ECMP])T(?:/([ECMP])T)?(?![\w'’])")
_TIME_BEFORE = re.compile(
    r"(?:[0-9]\s?(?:[AaPp]\.?[Mm]\.?)|[0-9]:[0-9]{2}|[0-9][-–][0-9]{1,2}|noon|[Mm]idnight|EO[DWM]|COB)\s?(?:\()?\Z"
    r"|(?<!\w)[ECMP]T(?: ?[/,&–-] ?| and | or )[0-9]{1,2}(?::[0-9]{2})? ?\Z"
)
_MOVES = re.compile(
    r"(?<![\w.,])([0-9]{1,3})(\.(?:\.\.|…)?)\s?(?=(?:[KQRBN][a-h]?[1-8]?x?[a-h][1-8]"
    r"|[a-h](?:x[a-h])?[1-8]|O-O)(?![\w]))"
)


def digits(place: Place, language: Language) -> ReadForm | None:
    """Minutes of a match, a thread of a screw, a version that is open, kelvins, or the number of a move."""
    found = place.match(_MINUTES)
    if found and not _is_quoted(place) and (found[2] or place.near(_MATCH)):
        minute = language.ordinal(int(found[1])).replace("-", " ")
        late = f" plus {language.cardinal(found[2])}" if found[2] else ""
        return ReadForm(found.end(), f"{minute} minute{late}")
    if found := place.match(_STATIONS):
        eastern, central = map(language.cardinal, found.groups())
        return ReadForm(found.end(), f"{eastern}, {central} Central")
    if found := place.match(_SIZE_SCREW):
        above, below = map(int, found[1].split("/"))
        return ReadForm(found.end(), f"{language.fraction(above, below)} {language.cardinal(found[2])}")
    if found := place.match(_OPEN_VERSION):
        numbers = [language.cardinal(part) for part in (found[1] + found[2]).split(".")]
        return ReadForm(
            found.end(), f" {language.point} ".join((*numbers, *("x" * found[3].lower().count("x"))))
        )
    if (found := place.match(_KELVIN)) and ("," in found[1] or place.near(_WARMTH)):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} kelvin")
    if (found := place.match(_CUPS)) and int(found[2]) < int(found[3]):
        fraction = language.fraction(int(found[2]), int(found[3]))
        words = language.mixed(language.cardinal(found[1]), fraction) if found[1] else fraction
        return ReadForm(found.end(), language.fraction_of(words, language.units["cup"], bool(found[1])))
    if (found := place.match(_GRAVITY)) and place.near(_OF_GRAVITY):
        return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} g")
    found = place.match(_MOVES)
    return ReadForm(found.end(), f"{language.cardinal(found[1])}{language.pause} ") if found else None


def letters(place: Place, language: Language) -> ReadForm | None:
    """A day of the week, a direction, a street, or the first ruler of a name."""
    if found := place.match(_EVERY_HOURS):
        low, high = (found[part] and language.cardinal(found[part]) for part in (1, 2))
        return ReadForm(
            found.end(), f"every {language.ranged(low, high) if high else low} {_SPANS[found[3][0]]}"
        )
    if (found := place.match(_ZONE)) and _TIME_BEFORE.search(place.before):
        return ReadForm(found.end(), ", ".join(_ZONES[zone] for zone in found.groups() if zone))
    if found := place.match(_LEFT_OUT):
        return ReadForm(found.end(), "included")
    if (found := place.match(_HIGH)) and place.near(_LOW):
        return ReadForm(found.end(), {"Hi": "High", "Lo": "Low"}[found[0]])
    if found := place.match(_DEW_POINT):
        return ReadForm(found.end(), "point")
    if found := place.match(_PAIR_OF_MONEY):
        return ReadForm(found.end(), f"{found[1]} {found[2]}")
    if found := place.match(_DAY):
        return _day(found, place)
    if found := place.match(_WIND):
        return _wind(found, place, language)
    if found := place.match(_STREET):
        return _street(found, place)
    if found := place.match(_YEARLY):
        goes_on = _SENTENCE_GOES_ON.match(place.text, found.end())
        return ReadForm(found.end(), f"per annum{'' if goes_on else '.'}")
    return _first_ruler(place, language)


def signs(place: Place, language: Language) -> ReadForm | None:
    """``#6-32``: the thread of a screw."""
    if (found := place.match(_PRICES)) and (found[3] or "." in found[2] + found[4]):
        return ReadForm(found.end(), _prices(found, language))
    if place.before.endswith("°") and (found := place.match(_FORECAST)):
        return ReadForm(found.end(), f"{language.pause} ")
    if (found := place.match(_FOR_EACH)) and _PRICE_BEFORE.search(place.before):
        units = [(word, language.per_units.get(word)) for word in found.groups() if word]
        if all(unit or len(word) > 2 for word, unit in units):
            return ReadForm(
                found.end(), "".join(f" per {unit.one if unit else word}" for word, unit in units)
            )
    if (found := place.match(_FOR_HOURS)) and _DOSE_BEFORE.search(place.before):
        return ReadForm(found.end(), " per ")
    found = place.match(_SCREW)
    if not found:
        return None
    return ReadForm(found.end(), f"number {language.cardinal(found[1])} {language.cardinal(found[2])}")


def _prices(found: re.Match[str], language: Language) -> str:
    """``$150K–$165K`` and ``$2.50–$3.75``: the currency once after scales, else with each amount."""
    currency = language.currencies[found[1]]
    low, high = (language.numerals.parse(found[part]) for part in (2, 4))
    if not (found[3] or found[5]):
        return language.ranged(language.money(low, currency), language.money(high, currency))
    scales = (language.scales.get(found[part] or found[5], "") for part in (3, 5))
    numbers = (
        f"{language.number(number)} {scale}".rstrip()
        for number, scale in zip((low, high), scales, strict=True)
    )
    return f"{language.ranged(*numbers)} {currency.many}"


def _is_quoted(place: Place) -> bool:
    """Whether a single quote is open before a place."""
    return len(_QUOTED.findall(place.text, max(0, place.start - 80), place.start)) % 2 == 1


def _day(found: re.Match[str], place: Place) -> ReadForm | None:
    sure = (
        found[1] in _ONLY_DAYS
        or found[2]
        or _DAY_AFTER.match(place.text, found.end(1))
        or _DAY_BEFORE.search(place.before)
        or (
            _NEXT_DAY.search(place.before)
            and place.near(_OTHER_DAY)
            and place.text[found.end() + 1 : found.end() + 2].isupper()
        )
        or (_IN_LIST.match(place.text, found.end(1)) and place.near(_OTHER_DAY))
        or (found[1] == "Mon" and place.near(_OTHER_DAY))
    )
    if not sure:
        return None
    return ReadForm(found.end(), tables.WEEKDAYS[found[1]] + (", " if found[2] else ""))


def _wind(found: re.Match[str], place: Place, language: Language) -> ReadForm | None:
    first, mark, second = found.groups()
    if first not in _WINDS or (second and second not in _WINDS):
        return None
    end, before, text = found.end(), place.before, place.text
    winds = _WIND_BEFORE.search(before) or _WIND_AFTER.match(text, end)
    heads = _HEAD_BEFORE.search(before) and _HEAD_AFTER.match(text, end)
    street = _STREET_BEFORE.search(before) or (not second and _STREET_AFTER.match(text, end))
    beyond = not second and place.before[-2:-1].islower() and _SOUTH_OF.match(text, end)
    if not (winds or heads or street or beyond or (len(first) == 3 and not second)):
        return None
    if not second:
        return ReadForm(end, _WINDS[first])
    joint = " " if mark == "/" else f" {language.to} "
    return ReadForm(end, f"{_WINDS[first]}{joint}{_WINDS[second]}")


def _street(found: re.Match[str], place: Place) -> ReadForm | None:
    """``42nd St.``, ``Main St.``; before a name ``St.`` is a saint."""
    written, text, end = found[1], place.text, found.end()
    dotted = found[0].endswith(".")
    before = place.before.removesuffix(" ")
    named = _NAMED_STREET.search(before) if before != place.before else None
    saint = written == "St" and _CAPITAL.match(text, end)
    if saint and (not named or named[0] in _SAINTED or (_SAINT.match(text, end) and named[0][0].isalpha())):
        return ReadForm(end, "Saint")
    if written == "Hwy" and re.match(r" [0-9]", text[end : end + 2]):
        return ReadForm(end, "Highway")
    goes_on = _SENTENCE_GOES_ON.match(text, end)
    if not named or (written in _LESS_SURE and not (goes_on or not text[end:].strip())):
        return None
    return ReadForm(end, tables.STREETS[written] + ("" if goes_on or not dotted else "."))


def _first_ruler(place: Place, language: Language) -> ReadForm | None:
    """``Elizabeth I``; after names of everybody only where no ``I`` goes on."""
    found = place.match(_FIRST_RULER)
    before = place.word_before
    if not found or before not in listed.RULERS or not place.before.endswith(" "):
        return None
    if _LIKE_ME.match(place.text, found.end()):
        return None
    royal = before in listed.ROYAL or _OF_RULER.search(place.before[: -len(before) - 1])
    told = _RULED.match(place.text, found.end()) and not _WITH_ME.search(place.before)
    if not royal and not told:
        return None
    return ReadForm(found.end(), f"the {language.ordinal(1)}")
