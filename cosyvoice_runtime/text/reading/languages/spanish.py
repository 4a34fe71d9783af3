"""Spanish: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import spanish_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, HOUR, MINUTE, SECOND, European
from cosyvoice_runtime.text.reading.languages.european_forms import hectares, lasting
from cosyvoice_runtime.text.reading.languages.language import Clock
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_HALF = r"\s?(?P<half>[ap]\.?\s?m\b\.?)"
_ZONE = r"(?:\s(?P<zone>UTC|GMT|EST|PST|CET|utc|gmt|est|pst|cet))?(?![A-Za-z])"


class Spanish(European):
    """Spanish, with the gender of what is counted where its last letters show it."""

    tag = "es"
    minus, plus, point, dot, to, by, root = "menos", "más", "coma", "punto", "a", "por", "raíz cuadrada de"
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations = tables.ABBREVIATIONS
    glued_units = ("ha", "A", "N", "J")
    of_year = "de"
    of, dates_of = "de", True
    between, ratio_word, out_of_word, over_word, per_word = "y", "a", "de", "sobre", "por"
    squared, cubed, power_word = "al cuadrado", "al cubo", "elevado a"
    halves = tables.HALVES
    before_code = (
        "PIN|ISBN|IBAN|contraseña|código postal|C\\.?P\\.?|vuelo|extensión",
        "cuenta|tarjeta|código|serie|pedido|factura|número|núm\\.|n\\.º|tel\\.?|teléfono|móvil|celular|"
        "fax|whatsapp|llam[a-zé]* al|marc[a-zé]* el",
        "llam[a-zé]* al|marc[a-zé]* el|emergencias",
    )
    own_forms = (hectares, lasting)
    half = "medio"
    single_scales = tables.SINGLE_SCALES
    short_weekdays = tables.SHORT_WEEKDAYS
    before_rating = ("nota", "puntuación", "calificación", "valoración")
    after_day = ""
    date_patterns = (
        ALONE + r"{day}(?:\.?º)? ?(?:de )?{month}(?!\w)(?: (?:de )?{year})?",
        r"\b{month} {day}(?![\w.,:/-])(?:,? (?:de )?{year})?",
        r"\b{month} (?:de )?{year}",
        ALONE + r"{day}/{number}/{short}",
    )
    clock_patterns = (
        rf"{HOUR}[:.]{MINUTE}{_HALF}{_ZONE}",
        rf"{HOUR}{_HALF}{_ZONE}",
        rf"{HOUR}[:.]{MINUTE}(?:[:.]{SECOND})?\s?h(?:oras|rs\.?|s\.?)?\b{_ZONE}",
        rf"{HOUR}\s?h\s?{MINUTE}(?:\s?m)?(?:\s?{SECOND}\s?s)?(?!\w|\s?min)",
    )

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "cero"
        words = []
        for power, (one, many) in reversed(list(enumerate(tables.LARGE, 1))):
            if group := number // 10 ** (6 * power) % 10**6:
                words.append(f"un {one}" if group == 1 else f"{_below_million(group, 'm')} {many}")
        if group := number % 10**6:
            words.append(_below_million(group, gender))
        return " ".join(words)

    def decimals(self, digits: str) -> str:
        if len(digits) == 3 and digits[0] != "0":
            return self.spell(int(digits))
        pairs = (digits[start : start + 2] for start in range(0, len(digits), 2))
        return " ".join(self.digits(pair) if pair[0] == "0" else self.spell(int(pair)) for pair in pairs)

    def gender_of(self, word: str, numeral: Numeral) -> str:  # noqa: ARG002
        lower = word.lower()
        if lower in tables.NOT_COUNTED or (word[0].isupper() and not word.isupper()):
            return ""
        return "f" if _FEMININE.search(lower) and lower not in tables.MASCULINE else "m"

    def ordinal(self, number: int) -> str:
        return _ordinal(number)

    def day(self, day: int, before: str) -> str:  # noqa: ARG002
        return "primero" if day == 1 else self.spell(day)

    def clock(self, clock: Clock) -> str:
        zone = " ".join(clock.zone)
        if clock.second:
            parts = [
                self.counted(Numeral(str(clock.hour)), self.units["h"]),
                self.counted(Numeral(str(clock.minute)), self.units["min"]),
                "y",
                self.counted(Numeral(str(clock.second)), self.units["s"]),
            ]
            return " ".join(filter(None, (*parts, zone)))
        hour = self.spell(clock.hour, "f")
        minutes = {0: "", 15: "y cuarto", 30: "y media"} if clock.hour <= 12 else {0: "", 15: "y cuarto"}
        minute = minutes.get(clock.minute, f"y {self.spell(clock.minute)}")
        return " ".join(filter(None, (hour, minute, _half(clock), zone)))

    def fraction(self, numerator: int, denominator: int) -> str:
        above = self.spell(numerator, "m")
        if denominator == 2:
            return f"{above} {'medio' if numerator == 1 else 'medios'}"
        name = _part(denominator)
        if not name:
            return f"{self.spell(numerator)} sobre {self.spell(denominator)}"
        return f"{above} {name}{'' if numerator == 1 else 's'}"

    def ordinals(self, place: Place) -> ReadForm | None:
        if not (found := place.match(_ORDINAL)):
            return None
        end, number = found[2].strip(". ").lower(), int(re.sub("[ .]", "", found[1]))
        words = _ordinal(number, feminine=end in ("ª", "a", "ra", "da", "ta", "va", "na", "ma"))
        noun = _NOUN.match(place.text, found.end())
        if words.endswith("ero") and (end in ("er", "ᵉʳ") or (noun and noun[1] not in tables.NOT_COUNTED)):
            words = words[:-1]
        return ReadForm(found.end(), f"{words}s" if end in ("os", "as") else words)

    def roman(self, before: str, value: int) -> str | None:
        if before in tables.RULERS:
            return self.spell(value) if value > 10 else _ordinal(value, before in tables.QUEENS)
        return self.spell(value) if before in tables.BEFORE_ROMAN else None


_FEMININE = re.compile(
    r"(?:as?|ción|ciones|sión|siones|dad|dades|tad|tades|tud|veces|vez|noches?|clases?|"
    r"mujer(?:es)?|flor(?:es)?|imágenes|imagen|leyes|ley|luz|luces|voz|voces|partes?|calles?|llaves?|tardes?|"
    r"frases?|bases?|fases?|series?|torres?|red(?:es)?|pared(?:es)?|naves?|nubes?|fuentes?|madres?|"
    r"señal(?:es)?|sal(?:es)?|cárcel(?:es)?|legumbres?|almendras?)$"
)
_ORDINAL = re.compile(
    r"(?<![\w.,])([0-9]{1,3}(?:[ .][0-9]{3})+|[0-9]{1,6})"
    r"(\.?\s?(?:[ºª°](?![CFK])|ᵉʳ)|\.?er|ro|ra|do|da|to|ta|vo|va|mo|ma)(?!\w)"
)


_NOUN = re.compile(r" ([a-záéíóúñ]+)")


def _half(clock: Clock) -> str:
    if clock.half != "de la tarde":
        return clock.half
    if clock.hour == 12:
        return "del mediodía"
    return "de la noche" if clock.hour >= 8 else clock.half


def _ordinal(number: int, feminine: bool = False) -> str:
    """``vigésimo primero``; one word up to the twenties."""
    words = _ordinal_words(number)
    if feminine:
        if number in (11, 12):
            words = "undécimo" if number == 11 else "duodécimo"
        words = re.sub(r"o\b", "a", words) if number >= 30 else f"{words[:-1]}a"
    return words


def _ordinal_words(number: int) -> str:
    if not 0 < number < 10000:
        return tables.MILLIONTH if number == 10**6 else Spanish().spell(number)
    thousands, rest = divmod(number, 1000)
    words = [f"{'' if thousands == 1 else tables.SMALL[thousands]}milésimo"] if thousands else []
    hundreds, rest = divmod(rest, 100)
    words += [tables.HUNDREDTHS[hundreds - 1]] if hundreds else []
    tens, ones = divmod(rest, 10)
    if tens in (1, 2) and ones:
        words.append((("decimo", "vigesimo")[tens - 1] + tables.ORDINALS[ones - 1]).replace("oo", "o"))
    else:
        words += [tables.TENTHS[tens - 1]] if tens else []
        words += [tables.ORDINALS[ones - 1]] if ones else []
    return " ".join(words)


def _part(denominator: int) -> str:
    """The name of a part: ``tercio``, ``onceavo``; empty where there is none."""
    if denominator in tables.PARTS:
        return tables.PARTS[denominator]
    if denominator < 100:
        words = _below_million(denominator, "").translate(str.maketrans("áéíóú", "aeiou"))
        return re.sub(
            "aavo|unoavo",
            lambda found: found[0].removesuffix("avo").rstrip("ao") + "avo",
            words.replace(" y ", "i") + "avo",
        )
    if denominator < 1000:
        return tables.HUNDREDTHS[denominator // 100 - 1] if denominator % 100 == 0 else ""
    for power, name in ((10**6, "millonésimo"), (1000, "milésimo")):
        if denominator % power == 0:
            many = denominator // power
            return name if many == 1 else _below_million(many, "m").replace(" ", "") + name
    return ""


def _below_million(number: int, gender: str) -> str:
    thousands, rest = divmod(number, 1000)
    words = []
    if thousands:
        words.append("mil" if thousands == 1 else f"{_below_thousand(thousands, gender or 'm')} mil")
    if rest:
        words.append(_below_thousand(rest, gender))
    return " ".join(words)


def _below_thousand(number: int, gender: str) -> str:
    hundreds, rest = divmod(number, 100)
    if number == 100:
        return "cien"
    words = [tables.HUNDREDS[hundreds - 1]] if hundreds else []
    if gender == "f" and hundreds > 1:
        words = [f"{words[0][:-2]}as"]
    if rest:
        words.append(_below_hundred(rest, gender))
    return " ".join(words)


def _below_hundred(number: int, gender: str) -> str:
    one = {"f": "una", "m": "un"}.get(gender, "uno")
    if number == 1:
        return one
    if number == 21:
        return "veintiún" if gender == "m" else f"veinti{one}"
    if number < 30:
        return tables.SMALL[number]
    tens, ones = divmod(number, 10)
    return tables.TENS[tens - 3] + (f" y {one if ones == 1 else tables.SMALL[ones]}" if ones else "")


SPANISH = Spanish()
