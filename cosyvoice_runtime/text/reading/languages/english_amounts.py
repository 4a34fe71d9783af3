"""English: amounts in forms of its own: ``20k users``, ``12\"``, ``5 ft. tall``, ``128/82``, ``3/16\"``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language, Unit

_SCALED = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]+)?)(?:(k)(?![A-Za-z0-9Ω])(?<!401k)"
    r"|((?<=\.[0-9])[MB]|(?<=\.[0-9]{2})[MB]|[MB](?= [a-z]{2,})|bn(?= [a-z]{2,})))(?!\w)"
)
_PER_WORD = re.compile(r"(?<=[A-Za-z\"”″])/([A-Za-z]{1,8})(?![\w/])")
_SIGNED_POINTS = re.compile(r"(?<![\w)])[-−+](?=[0-9]{1,3}(?:\.[0-9]+)?[ -]?bps(?!\w))")
_AND_MONEY = re.compile(r"(?<=[a-z0-9KMB])/(?=[$€£][0-9])")
_COUNTED_WORD = re.compile(r"[0-9][0-9.,]*\s?[kKMB]?\+?\s(?:m?g\s)?[a-z]{2,12}\Z|[0-9][\"”″]\Z")
_FRACTION_OF_INCH = re.compile(
    r"(?<![\w.,/])(?:([0-9]{1,3})[ -])?([0-9]{1,2})/(?:([0-9]{1,2})[\"”″]|(2|4|8|16|32|64)[- ]in\."
    r"(?=\s[a-z]|[,;)]))(?!\w)"
)
_BETWEEN_TWO = re.compile(
    r"(?<=city)/(?=hwy|highway)|(?<=hwy)/(?=city|comb)|(?<=highway)/(?=city)|(?<=[Mm]in)/(?=[Mm]ax)"
    r"|(?<=[Mm]in\.)/(?=[Mm]ax)|(?<=[Hh]igh)/(?=[Ll]ow)"
)
_OF_MEMORY = re.compile(
    r"(?<![\w.,/])([0-9]{1,4}(?:\.[0-9]{1,2})?)/(?=[0-9]{1,4}(?:\.[0-9]{1,2})?\s?[MGT]i?B(?![\w/]))"
)
_PERCENTAGE_POINTS = re.compile(r"(?<![\w.,])([0-9]{1,2}\.[0-9]{1,2}) ?pp(?!\w)")
_EACH_TIME = re.compile(r"/([a-z]{2,5})(?![\w/])")
_OVER = re.compile(r"(?<![\w.,/])([1-9][0-9]{1,3})/([1-9][0-9]{2,3})(?![\w/]|[.,%][0-9])")
_PRESSURE = re.compile(
    r"(?<![\w.,/])([0-9]{2,3})/([0-9]{2,3})(?![\w/]|[.,%][0-9])(?:\s?mm\s?Hg(?![A-Za-z]))?"
)
_PRESSURE_BEFORE = re.compile(
    r"(?:\bBP|[Pp]ressure)(?: (?:was|is|of|reading|at|around|about|below|above)){0,3}:? \Z"
)
_BASIS_POINTS = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]{1,3}))?[\s-]?bps(?!\w)")
_DOTTED_UNIT = re.compile(
    r"(?:(?<![\w.,])|(?<=[0-9]x))([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]+(?:\.[0-9]+)?))?([\s-]?)"
    r"(?!HR)(T(?=\. [a-z])|(?i:ft|oz|c(?=\. [a-z])"
    r"|tbsps?|tsps?|lbs?|in|yds?|mi|hrs?|mins?|secs?|gal|qts?|pts?"
    r"|yrs?|mos?|wks?|(?<![-−] [0-9])ac|fl\. ?oz|(?:sq|cu)\. ?(?:ft|in|yd|mi))|cm|km|mm|kg|ml)"
    r"(?:\.(?=\s(?:[a-z(=≈≤≥]|[0-9]{1,2}\s?(?:min|sec|in|oz)\b)|[,;:)/-]|\s*\Z)"
    r"|(?<=[qu]\. (?:ft|in|yd|mi))(?=\.))"
)
_INCHES = re.compile(
    r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]{1,3}(?:\.[0-9]+)?))?[\"”″](?![\w\"])"
)
_AND_MORE = re.compile(
    r"(?<![\w.,/$€£])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?)\+[ -]?"
    r"(mins?|hrs?|yrs?|lbs?|mi|km|ft|oz|mg|kg|g|mL|ml|mos?|wks?|secs?|GB|TB|MB|h|in)(?![\w-])\.?(?<!in)(?<!h)"
)
_SIDE = re.compile(r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9]+)?)[\"”″]\s?([LWHD])(?!\w)(?:\s?[x×]\s?(?=[0-9]))?")
_THINGS = re.compile(
    r"(?: (?:lag|deck|wood|drywall|hex|carriage|finish|galvanized|steel|round|square))?"
    r" (?:wheel|rim|tire|pot|screw|nail|board|tile|monitor|pan|skillet|pipe|round|square|strip"
    r"|piece|plank|post|blade|tortilla|pizza|cube|heel|screen|display|bolt|layer|shelf|shelves|container"
    r"|inseam|neck|waist|chest|sleeve|rise)s?(?!\w)"
)
_THE = re.compile(r"(?<!\w)(?i:the|this|an?|my|your|our|his|her) \Z")
_SETS = re.compile(r"(?<![\w.,×])([1-9])[×x]([0-9]{1,2})[–-]([0-9]{1,2})(?![\w.–-]| ?[=+×*/-])")
_SIDES = {"L": "long", "W": "wide", "H": "high", "D": "deep"}
_TIMES_RANGE = re.compile(
    r"(?<![\w.,])([0-9]{1,2})[-–]([0-9]{1,2})[x×]"
    r"(?=(?:/([a-z]{1,6})(?![\w/]))| (?:per|a|an|each|every|daily|weekly)\b)"
)
_PER = re.compile(r"(?<![\w.,/])([0-9]+(?:\.[0-9]+)?)/([a-z]{2,})(?![\w/])")


_QUOTE = re.compile(r'(?<![0-9])"')
_TIMES = re.compile(
    r"(?<![\w.,])([0-9]{1,3})[x×](?= (?:per|a|an|each|every|daily|weekly|monthly|in|before|after)\b)"
)
_MILLIONS = re.compile(
    r"(?<![\w.,$€£-])([0-9]{1,3}(?:\.[0-9]{1,2})?)m(?= (?:people|users|views|followers|subscribers|downloads|"
    r"votes|jobs|homes|barrels|copies|records|rows|tokens|customers|viewers|fans|residents)\b)"
)
_BOARDS = re.compile(r"(?<![\w.,])([0-9]{1,2})x([0-9]{1,2})s(?!\w)")
_HEIGHT = re.compile(r"(?<![\w.,])([4-7])['’′]([0-9]|1[01])(?![\w\"”″.]|['’′])")
_AREA = re.compile(
    r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9]+)?)(['’′\"”″])\s?[x×]\s?([0-9]{1,3}(?:\.[0-9]+)?)\2(?![\w\"])"
)
_SIGNED = re.compile(
    r"(?<![\w.,$])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,4}(?:\.[0-9]+)?)"
    r"(?:(?<=[0-9]{3}) ?(SF)(?![\w/])|(?<![0-9]{4}) (in)(?=\.?$|[;,)])|(° [CF])(?![\w]))"
)
_OF_SIGNS = {"SF": "sq ft", "in": "in", "° C": "°C", "° F": "°F"}
_EACH = re.compile(r"(?<![\w.,])([0-9]{1,3})[x×]/([a-z]{1,6})(?![\w/])")
_SCALED_UNIT = re.compile(
    r"(?<![\w.,$€£-])([0-9]{1,3}(?:\.[0-9]+)?)([kKMB]|bn)[ -](?=([a-zA-Zµ²³0-9]{1,4})(?![\w/])"
    r"(?:\.(?=\s[a-z]))?)"
)
_COUNTED_SCALE = re.compile(
    r"(?<![\w.,$€£-])([0-9]{1,3}\.[0-9]{1,2})([kK])(?= [a-z]{3})|(?<![\w.,$€£-])([0-9]{1,3})([kK])"
    r"(?= (?!feet|meters|metres|bps)[a-z]{3,14}s(?!\w)| people)"
)
_SCALES_TO = re.compile(
    r"(?<![\w.,$€£-])([0-9]{1,3}(?:\.[0-9]+)?)([kKMB]|bn)?\s?[-–]\s?([0-9]{1,3}(?:\.[0-9]+)?)([kKMB]|bn)"
    r"(?:[ -](mi|km|ft|lbs?|mg|kg|m|rpm|psi|IU)(?!\w)|(?= [a-z]{3}|[.,;:)]|$))"
)
_LABELLED = re.compile(r"(?<![\w.,])([0-9]{1,4})([A-Z])(?![\w])")
_OUT_OF = re.compile(r"(?<![\w.,/])([0-4]\.[0-9]{1,2})/(4\.0|4\.3|4\.5)(?![\w/]|[.,][0-9])")
_MARK = re.compile(
    r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9])?)/([0-9]{1,3})(?![\w/]|[.,%][0-9])"
    r"( (?:stars?|correct|points?|marks?|right|passed|passing|tests|votes|hearts)(?!\w))?"
)
_SPAN = re.compile(
    r"(?<![\w.,])([0-9]{1,3})(d|w|y|mo)(?= (?:ago|left|later|old|remaining|trial|streak|from now)\b)"
)
_SPANS = {"d": "day", "w": "week", "y": "year", "mo": "month"}
_BARE_UNIT = re.compile(
    r"(?<![\w.,])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?) ([AJNTFt])"
    r"(?=[,;)]|\.?$| [=×]|\. |\s(?:of|and|at|is|for|to|from|fuse|breaker|circuit|acts?|when|each)\b)"
)
_OF_PHYSICS = re.compile(
    r"[0-9]\s?(?:V|W|Ω|kW|mV|volts|watts|kg|m/s|kJ|eV|µF|mol|Pa|kN|N·m)\b|\b(?i:joules?|energy|charge|forces?|"
    r"newtons?|current|capacitor|magnetic|field|heat|friction|weight|gravity|tension|work)\b"
)
_ALONE_HOURS = re.compile(
    r"(?<![\w.,:])([0-9]{1,3}(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]{1,3}))? h"
    r"(?:/(day|d|night|wk|week|mo|month|yr|year)|(?![/-]))(?![\w'’])"
)
_GREAT_RATIO = re.compile(r"(?<![\w.,:])([0-9]{1,3}):([0-9]{1,3}(?:,[0-9]{3})+)(?![\w:])")
_LONG = (
    r"\s(?:(tall|long|wide|high|deep|thick|apart|away|from|of|above|below)"
    r"|ceiling|ladder|fence|wall|board|post|cord|rope|tree|length|section|span|run|pole|pipe|stud|table|sofa|rug"
    r"|bench|boat|truck|gap|drop|hallway|deck|wave|hole|trench|beam|joist|rafter|sheet|roll|strip|cable|hose)"
)
_FEET = re.compile(
    r"(?<![\w.,])(?:(?P<low>[0-9]{1,2})\s?[-–]\s?)?(?P<high>[0-9]{1,3}|[0-9]{1,2},[0-9]{3})['’′]"
    rf"(?:(?P<by>\s?[x×]\s?)(?=[0-9])|(?<=,[0-9]{{3}}.)(?!\w)|(?={_LONG}s?\b))"
    r"|(?:(?<=[x×] )|(?<=[0-9]['’′][x×]))(?P<side>[0-9]{1,3})['’′](?![\w])"
)
_FOR_MONEY = re.compile(r"(?<![\w.,/])([2-9]|1[0-9])/(?=[$€£][0-9])")
_AGES = re.compile(
    r"(?<![\w.,/-])([0-9]{1,3})[-–]([0-9]{1,3})(?=-(?:years?|months?|weeks?|days?|hours?|minutes?|seconds?|miles?|"
    r"foot|feet|inch|persons?|pages?|pounds?|ounces?|points?|stars?|gallons?|games?|man)(?!\w))"
)


def _scaled(place: Place, language: Language) -> ReadForm | None:
    if (found := place.match(_TIMES_RANGE)) and (not found[3] or found[3] in language.per_units):
        words = f"{language.ranged(*map(language.cardinal, found.groups()[:2]))} times"
        if not found[3]:
            return ReadForm(found.end(), words)
        return ReadForm(found.end(3), language.per(words, language.per_units[found[3]]))
    if (found := place.match(_SETS)) and int(found[2]) < int(found[3]):
        sets, low, high = map(language.cardinal, found.groups())
        return ReadForm(found.end(), f"{sets} {language.by} {language.ranged(low, high)}")
    if found := place.match(_EACH):
        unit = language.per_units.get(found[2])
        times = {"1": "once", "2": "twice"}.get(found[1]) or f"{language.cardinal(found[1])} times"
        return ReadForm(found.end(), f"{times} per {unit.one}") if unit else None
    if found := place.match(_TIMES):
        times = {"1": "once", "2": "twice"}.get(found[1]) or f"{language.cardinal(found[1])} times"
        return ReadForm(found.end(), times)
    if found := place.match(_MILLIONS):
        return ReadForm(found.end(), _multiplied(found[1], "M", language))
    if found := place.match(_SCALES_TO):
        return ReadForm(found.end(), _scales(found, language))
    if (found := place.match(_SCALED_UNIT)) and _is_unit(found[3], language):
        unit = language.units[found[3]]
        one = found[0].endswith("-") or language.qualifies(place, found.end(3))
        unit = unit._replace(many=unit.one) if one else unit
        return ReadForm(found.end(3), f"{_multiplied(found[1], found[2], language)} {unit.many}")
    if found := place.match(_COUNTED_SCALE):
        return ReadForm(found.end(), _multiplied(found[1] or found[3], found[2] or found[4], language))
    found = place.match(_SCALED)
    if not found or (found[3] in ("M", "B") and place.word_before in listed.BEFORE_LABEL):
        return None
    number = language.number(language.numerals.parse(found[1]))
    return ReadForm(found.end(), f"{number} {language.scales[found[2] or found[3]]}")


def _is_unit(sign: str, language: Language) -> bool:
    return sign in language.units and sign not in language.glued_units


def _scales(found: re.Match[str], language: Language) -> str:
    """``20k–30k``, ``5-10M``: the first number has the scale of the second where it has none."""
    high = _multiplied(found[3], found[4], language)
    low = language.number(language.numerals.parse(found[1]))
    if found[2] and found[2] != found[4]:
        low = _multiplied(found[1], found[2], language)
    unit = language.units[found[5]].many if found[5] else ""
    return f"{language.ranged(low, high)} {unit}".rstrip()


def _multiplied(digits: str, scale: str, language: Language) -> str:
    return f"{language.number(language.numerals.parse(digits))} {language.scales[scale]}"


def _labelled(place: Place, language: Language) -> ReadForm | None:
    """``gate 14A``: a letter after the number of a gate is no unit."""
    found = place.match(_LABELLED) if place.word_before in listed.BEFORE_LABEL else None
    return ReadForm(found.end(), f"{language.name_number(found[1])} {found[2]}") if found else None


def _related(place: Place, language: Language) -> ReadForm | None:
    """``3.85/4.0``, ``3/$10`` and ``3–5-year-olds``."""
    if found := place.match(_OUT_OF):
        got, most = (language.number(language.numerals.parse(found[part])) for part in (1, 2))
        return ReadForm(found.end(), language.out_of(got, most))
    found = place.match(_MARK)
    if found and (found[3] or place.word_before in language.before_rating):
        got, most = (language.number(language.numerals.parse(found[part])) for part in (1, 2))
        return ReadForm(found.end(2), language.out_of(got, most))
    if found := place.match(_SPAN):
        unit = _SPANS[found[2]]
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {unit}{'' if found[1] == '1' else 's'}")
    if (found := place.match(_BARE_UNIT)) and (found[2] == "t" or place.near(_OF_PHYSICS)):
        counted = language.formula_units.get(found[2]) or language.units[found[2]]
        return ReadForm(found.end(), language.counted(language.numerals.parse(found[1]), counted))
    if found := place.match(_ALONE_HOURS):
        words = _one_or_range(found, language.units["h"], language)
        return ReadForm(found.end(), language.per(words, language.per_units[found[3]]) if found[3] else words)
    if found := place.match(_GREAT_RATIO):
        high = language.number(language.numerals.parse(found[2]))
        return ReadForm(found.end(), language.ratio(language.cardinal(found[1]), high))
    if found := place.match(_FEET):
        foot = language.units["ft"]
        thing = re.match(_LONG, place.text[found.end() : found.end() + 12])
        foot = foot._replace(many=foot.one) if thing and not thing[1] else foot
        words = language.counted(language.numerals.parse(found["high"] or found["side"]), foot)
        words = language.ranged(language.cardinal(found["low"]), words) if found["low"] else words
        return ReadForm(found.end(), f"{words} {language.by} " if found["by"] else words)
    if found := place.match(_SIGNED):
        counted = language.units[_OF_SIGNS[found[2] or found[3] or found[4]]]
        return ReadForm(found.end(), language.counted(language.numerals.parse(found[1]), counted))
    if found := place.match(_BOARDS):
        sides = (language.cardinal(side) for side in found.groups())
        return ReadForm(found.end(), f"{f' {language.by} '.join(sides)}s")
    if found := place.match(_HEIGHT):
        return ReadForm(found.end(), language.feet(int(found[1]), int(found[2])))
    if found := place.match(_FOR_MONEY):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} for ")
    found = place.match(_AGES)
    if not found or int(found[1]) >= int(found[2]):
        return None
    return ReadForm(found.end(), language.ranged(language.cardinal(found[1]), language.cardinal(found[2])))


def _measured(place: Place, language: Language) -> ReadForm | None:
    """``12"`` outside of quotes, and ``12/kg``."""
    if found := place.match(_AND_MORE):
        words = f"{language.number(language.numerals.parse(found[1]))} {language.plus}"
        return ReadForm(found.end(), f"{words} {language.units[found[2]].many}")
    if found := place.match(_SIDE):
        words = language.counted(language.numerals.parse(found[1]), language.units["in"])
        by = f" {language.by} " if found[0][-1] not in "LWHD" else ""
        return ReadForm(found.end(), f"{words} {_SIDES[found[2]]}{by}")
    inches = place.match(_INCHES)
    if inches and _outside_quotes(place):
        unit = language.units["in"]
        if (
            _THE.search(place.before)
            or language.qualifies(place, inches.end())
            or _THINGS.match(place.text, inches.end())
        ):
            unit = unit._replace(many=unit.one)
        words, each = _one_or_range(inches, unit, language), _EACH_TIME.match(place.text, inches.end())
        if each and each[1] in language.per_units:
            return ReadForm(each.end(), language.per(words, language.per_units[each[1]]))
        return ReadForm(inches.end(), words)
    per = place.match(_PER)
    if not per or per[2] not in language.per_units:
        return None
    number = language.number(language.numerals.parse(per[1]))
    return ReadForm(per.end(), language.per(number, language.per_units[per[2]]))


def and_money(place: Place, language: Language) -> ReadForm | None:
    """``$15 adv/$20 door``, ``city/hwy``: a stroke that is a pause; or the sign of ``−5 bps``."""
    if found := place.match(_SIGNED_POINTS):
        return ReadForm(found.end(), f"{language.signs_before[found[0]]} ")
    found = place.match(_AND_MONEY) or place.match(_BETWEEN_TWO)
    return ReadForm(found.end(), f"{language.pause} ") if found else None


def per_word(place: Place, language: Language) -> ReadForm | None:
    """``100 requests/min``: a stroke after what is counted."""
    found = place.match(_PER_WORD)
    if not found or found[1] not in language.per_units or not _COUNTED_WORD.search(place.before):
        return None
    return ReadForm(found.end(), f" {language.per('', language.per_units[found[1]]).strip()}")


def _outside_quotes(place: Place) -> bool:
    """Whether the quotes before a place are closed; those right after a digit are inches."""
    start = max(0, place.start - 300)
    opened, closed = (place.text.count(sign, start, place.start) for sign in "“”")
    return opened <= closed and len(_QUOTE.findall(place.text, start, place.start)) % 2 == 0


def _pair(place: Place, language: Language) -> ReadForm | None:
    """Two numbers with a stroke that are no fraction, or a fraction of an inch."""
    inch = place.match(_FRACTION_OF_INCH)
    if inch and int(inch[3] or inch[4]) and (inch[4] or _outside_quotes(place)):
        words = language.fraction(int(inch[2]), int(inch[3] or inch[4]))
        words = language.mixed(language.cardinal(inch[1]), words) if inch[1] else words
        end = inch.end()
        one = not inch[1] or language.qualifies(place, end) or _THINGS.match(place.text, end)
        return ReadForm(inch.end(), f"{words} {'inch' if one else 'inches'}")
    if found := place.match(_OF_MEMORY):
        got = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{language.out_of(got, '').rstrip()} ")
    if found := place.match(_PERCENTAGE_POINTS):
        number = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{number} percentage points")
    found = place.match(_OVER)
    if not found or int(found[2]) <= 100 or found[1] == found[2]:
        return None
    return ReadForm(found.end(), language.over(language.cardinal(found[1]), language.cardinal(found[2])))


def _blood_pressure(place: Place, language: Language) -> ReadForm | None:
    """``128/82``: a pair that only a pressure of blood is."""
    found = place.match(_PRESSURE)
    if not found or not (80 <= int(found[1]) <= 250 and 40 <= int(found[2]) <= 140):
        return None
    named = _PRESSURE_BEFORE.search(place.before)
    if not named and (len(found[1]) == 2 or int(found[1]) <= int(found[2]) or found[2].endswith("00")):
        return None
    return ReadForm(found.end(), language.over(language.pressure(found[1]), language.pressure(found[2])))


def _basis_points(place: Place, language: Language) -> ReadForm | None:
    """``25 bps``: few of them are no speed of a line."""
    found = place.match(_BASIS_POINTS)
    if not found:
        return None
    low, high = (found[part] and language.number(language.numerals.parse(found[part])) for part in (1, 2))
    unit = "basis point" if found[1] == "1" and not high else "basis points"
    return ReadForm(found.end(), f"{language.ranged(low, high) if high else low} {unit}")


def _one_or_range(found: re.Match[str], unit: Unit, language: Language) -> str:
    """An amount of a unit, or a range of amounts: the numbers are the first two groups."""
    low = language.numerals.parse(found[1])
    return (
        language.range_of(low, language.numerals.parse(found[2]), unit)
        if found[2]
        else language.counted(low, unit)
    )


def _dotted_unit(place: Place, language: Language) -> ReadForm | None:
    """``5 ft. tall``: the dot of a unit ends no sentence before a small letter."""
    found = place.match(_DOTTED_UNIT)
    if not found:
        return None
    written = {"c": "cup", "T": "tbsp"}.get(found[4]) or re.sub(r"\. ?", " ", found[4])
    unit = language.units[written if written in language.units else written.lower()]
    if found[3] == "-" or (written != "cup" and language.qualifies(place, found.end())):
        unit = unit._replace(many=unit.one)
    return ReadForm(found.end(), _one_or_range(found, unit, language))


def _sides(place: Place, language: Language) -> ReadForm | None:
    """``12' × 14'`` and ``2" x 3.5"``."""
    found = place.match(_AREA)
    if not found:
        return None
    unit = language.units["ft" if found[2] in "'’′" else "in"]
    if language.qualifies(place, found.end()):
        unit = unit._replace(many=unit.one)
    sides = (language.counted(language.numerals.parse(found[side]), unit) for side in (1, 3))
    return ReadForm(found.end(), f" {language.by} ".join(sides))


DIGITS = (
    _labelled,
    _sides,
    _related,
    _scaled,
    _blood_pressure,
    _basis_points,
    _pair,
    _dotted_unit,
    _measured,
)
"""The readers that are tried where a digit stands."""
