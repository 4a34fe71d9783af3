"""Portuguese: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import portuguese_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, HOUR, MINUTE, SECOND, European
from cosyvoice_runtime.text.reading.languages.european_forms import lasting
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_MATCH = re.compile(r"(?<=\w )([0-9]{1,2}) ?[xX] ?([0-9]{1,2})(?= [A-ZÁÉÍÓÚ][a-zà-ú])")


def _match(place: Place, language: European) -> ReadForm | None:
    """``Santos 2 x 1 Palmeiras``."""
    found = place.match(_MATCH)
    return (
        ReadForm(found.end(), f"{language.cardinal(found[1])} a {language.cardinal(found[2])}")
        if found
        else None
    )


class Portuguese(European):
    """Portuguese with the numbers of Brazil: um bilhão is a thousand millions."""

    tag = "pt"
    minus, plus, point, dot, to, by, root = (
        "menos",
        "mais",
        "vírgula",
        "ponto",
        "a",
        "por",
        "raiz quadrada de",
    )
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations = tables.ABBREVIATIONS
    glued_units = ("A", "N", "J", "x")
    of_year = "de"
    of, dates_of, cents_after = "de", True, "e"
    between, ratio_word, out_of_word, over_word, per_word = "e", "por", "de", "por", "por"
    squared, cubed, power_word = "ao quadrado", "ao cubo", "elevado a"
    before_code = (
        "PIN|ISBN|CEP|CPF|CNPJ|senha|voo|ramal",
        "conta|cartão|código|série|pedido|nota fiscal|fatura|número|n\\.º|nº|tel\\.?|telefone|celular|fax|"
        "whatsapp|lig[a-z]* para(?: o)?",
        "lig[a-z]* para(?: o)?|disque|emergência",
    )
    own_forms = (_match, lasting)
    half = "meio"
    single_scales = tables.SINGLE_SCALES
    short_weekdays = tables.SHORT_WEEKDAYS
    before_rating = ("nota", "avaliação", "pontuação")
    after_day = "º?"
    date_patterns = (
        ALONE + r"{day}(?:\.?º)? ?(?:de )?{month}(?!\w)(?: (?:de )?{year})?",
        r"\b{month} (?:de )?{year}",
        ALONE + r"{day}/{number}/{short}",
    )
    clock_patterns = (
        rf"{HOUR}[:hH]\s?{MINUTE}(?:\s?min|\s?h)?(?:\s?{SECOND}\s?s)?(?!\w)",
        rf"{HOUR}\s?[hH](?:rs?)?(?!\w)",
    )

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "zero"
        words = []
        for power, (one, many) in reversed(list(enumerate(tables.LARGE, 2))):
            if group := number // 1000**power % 1000:
                words.append(f"um {one}" if group == 1 else f"{_below_thousand(group, 'm')} {many}")
        if group := number // 1000 % 1000:
            words.append("mil" if group == 1 else f"{_below_thousand(group, gender)} mil")
        if group := number % 1000:
            # The last group is joined where it is one word or two.
            joined = bool(words) and (group < 100 or group % 100 == 0)
            words.append(f"{'e ' if joined else ''}{_below_thousand(group, gender)}")
        return " ".join(words)

    def decimals(self, digits: str) -> str:
        if len(digits) > 3 or digits.startswith("0"):
            return self.digits(digits)
        return self.spell(int(digits))

    def form(self, numeral: Numeral, unit: Unit | Currency) -> str:
        return unit.one if numeral.is_one or (not numeral.is_whole and numeral.value == 1) else unit.many

    def gender_of(self, word: str, numeral: Numeral) -> str:  # noqa: ARG002
        lower = word.lower()
        if lower in tables.NOT_COUNTED or (word[0].isupper() and not word.isupper()):
            return ""
        return "f" if _FEMININE.search(lower) and lower not in tables.MASCULINE else "m"

    def ordinal(self, number: int) -> str:
        if not 0 < number < 1000:
            return "milésimo" if number == 1000 else self.spell(number)
        hundreds, rest = divmod(number, 100)
        words = [tables.HUNDREDTHS[hundreds - 1]] if hundreds else []
        tens, ones = divmod(rest, 10)
        words += [tables.TENTHS[tens - 1]] if tens else []
        words += [tables.ORDINALS[ones - 1]] if ones else []
        return " ".join(words)

    def day(self, day: int, before: str) -> str:  # noqa: ARG002
        return "primeiro" if day == 1 else self.spell(day)

    def clock(self, clock: Clock) -> str:
        words = [self.counted(Numeral(str(clock.hour)), self.units["h"])]
        if clock.minute == 30 and clock.hour <= 12 and not clock.second:
            words = [self.spell(clock.hour, "f"), "e meia"]
        elif clock.minute and not clock.second:
            words = [self.spell(clock.hour, "f"), f"e {self.spell(clock.minute)}"]
        elif clock.second:
            words.append(self.counted(Numeral(str(clock.minute)), self.units["min"]))
            words.append(f"e {self.counted(Numeral(str(clock.second)), self.units['s'])}")
        return " ".join([*words, *clock.zone])

    def fraction(self, numerator: int, denominator: int) -> str:
        above = self.spell(numerator)
        if denominator in tables.PARTS:
            name = tables.PARTS[denominator]
        elif denominator <= 10 or denominator % 100 == 0:
            name = self.ordinal(denominator)
        else:
            return f"{above} {self.spell(denominator)} avos"
        return f"{above} {name}{'' if numerator == 1 else 's'}"

    def ordinals(self, place: Place) -> ReadForm | None:
        found = place.match(_ORDINAL)
        if not found or not int(found[1].replace(".", "")):
            return None
        words = self.ordinal(int(found[1].replace(".", "")))
        if found[2][-1] in "ªa":
            words = re.sub(r"o\b", "a", words)
        return ReadForm(found.end(), words)

    def roman(self, before: str, value: int) -> str | None:
        if before in tables.RULERS:
            words = self.spell(value) if value > 10 else self.ordinal(value)
            return re.sub(r"o$", "a", words) if before in tables.QUEENS and value <= 10 else words
        return self.spell(value) if before in tables.BEFORE_ROMAN else None


_FEMININE = re.compile(
    r"(?:[aã]s?|ção|ções|são|sões|gem|gens|dades?|tudes?|vez(?:es)?|noites?|mulher(?:es)?|mãos?|flor(?:es)?|vozes|luzes|partes?|"
    r"fases?|chaves?|tardes?|cores|leis?|chances?|classes?|cidades?)$"
)
_ORDINAL = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{1,4})(\.?[ºª]|°(?= [a-zà-ú])|[oa])(?!\w)"
)


def _below_thousand(number: int, gender: str) -> str:
    hundreds, rest = divmod(number, 100)
    if number == 100:
        return "cem"
    words = [tables.HUNDREDS[hundreds - 1]] if hundreds else []
    if gender == "f" and hundreds > 1:
        words = [f"{words[0][:-2]}as"]
    if rest < 20:
        words += [_small(rest, gender)] if rest else []
    else:
        tens, ones = divmod(rest, 10)
        words += [tables.TENS[tens - 2], *([_small(ones, gender)] if ones else [])]
    return " e ".join(words)


def _small(number: int, gender: str) -> str:
    if gender == "f" and number in (1, 2):
        return ("uma", "duas")[number - 1]
    return tables.SMALL[number]


PORTUGUESE = Portuguese()
