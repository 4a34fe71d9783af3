"""French: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import french_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, HOUR, MINUTE, SECOND, European
from cosyvoice_runtime.text.reading.languages.language import Clock, Currency, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral, value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


class French(European):
    """French of France: soixante-dix, quatre-vingt-onze."""

    tag = "fr"
    minus, plus, point, dot, to, by, root = (
        "moins",
        "plus",
        "virgule",
        "point",
        "à",
        "sur",
        "racine carrée de",
    )
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations = tables.ABBREVIATIONS
    glued_units = ("A", "N", "J", "d", "x")
    of, between, ratio_word, out_of_word, over_word, per_word = "de", "et", "sur", "sur", "sur", ""
    squared, cubed, power_word = "au carré", "au cube", "puissance"
    before_code = (
        "PIN|ISBN|IBAN|mot de passe|code postal|code|vol|poste",
        "compte|carte|série|commande|facture|numéro|n°|dossier|tél\\.?|téléphone|mobile|portable|fax",
        "appel[a-zé]*(?: le)?|compos[a-zé]*(?: le)?|urgences",
    )
    single_scales = tables.SINGLE_SCALES
    short_weekdays = tables.SHORT_WEEKDAYS
    before_rating = ("note", "évaluation")
    after_day = "(?:er)?"
    date_patterns = (
        ALONE + r"{day}(?:er|ᵉʳ)? ?{month}(?!\w)(?: {year})?",
        r"\b{month} {year}",
        ALONE + r"{day}/{number}/{short}",
        r"(?:\A(?![0-9]+/)|(?<=\b[Ll]e )|(?<=\b[dDaA]u )){day}[./]"
        r"(?P<month>0[1-9]|1[0-2])(?=[\s,;!?)]|\.?\Z)",
    )
    clock_patterns = (
        rf"{HOUR}\s?[hH]\s?{MINUTE}(?:\s?min?)?(?:\s?{SECOND}\s?s)?(?!\w)",
        rf"{HOUR}:{MINUTE}(?::{SECOND})?\s?[hH](?!\w)",
        rf"{HOUR}\s?[hH](?!\w)",
    )

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "zéro"
        words = []
        for power, (one, many) in reversed(list(enumerate(tables.LARGE, 2))):
            if group := number // 1000**power % 1000:
                words.append(f"un {one}" if group == 1 else f"{_below_thousand(group)} {many}")
        if group := number // 1000 % 1000:
            words.append("mille" if group == 1 else f"{_invariable(_below_thousand(group))} mille")
        if group := number % 1000:
            words.append(_below_thousand(group, gender))
        return " ".join(words)

    def form(self, numeral: Numeral, unit: Unit | Currency) -> str:
        return unit.one if numeral.value < 2 else unit.many

    def partitive(self, words: str) -> str:
        return f"d'{words}" if words[0] in "aeiouyhéèêAEIOUYHÉ" else f"de {words}"

    def gender_of(self, word: str, numeral: Numeral) -> str:
        if numeral.value % 10 != 1:
            return ""
        return "f" if _FEMININE.search(word) or {word, word.rstrip("s")} & tables.FEMININE else "m"

    def ordinal(self, number: int) -> str:
        return "premier" if number == 1 else _ordinal(self.spell(number))

    def day(self, day: int, before: str) -> str:  # noqa: ARG002
        return "premier" if day == 1 else self.spell(day)

    def clock(self, clock: Clock) -> str:
        words = [self.counted(Numeral(str(clock.hour)), self.units["h"])]
        if clock.second:
            words.append(self.counted(Numeral(str(clock.minute)), self.units["min"]))
            words.append(f"et {self.counted(Numeral(str(clock.second)), self.units['s'])}")
        elif clock.minute:
            words.append(self.spell(clock.minute, "f"))
        return " ".join([*words, *clock.zone])

    def fraction(self, numerator: int, denominator: int) -> str:
        name = tables.PARTS.get(denominator) or self.ordinal(denominator)
        many = "" if numerator == 1 or name.endswith("s") else "s"
        return f"{self.spell(numerator)} {name}{many}"

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{whole} et {'demi' if fraction == 'un demi' else fraction}"

    def telephone_digits(self, digits: str) -> str:
        if len(digits) != 2 or digits.startswith("0"):
            return self.digits(digits)
        return self.spell(int(digits))

    def ordinals(self, place: Place) -> ReadForm | None:
        if found := place.match(_ORDINAL):
            number, end = int(found[1].replace(" ", "")), found[2]
        elif found := place.match(_ROMAN):
            number, end = value_of_roman(found[1]), found[2]
        else:
            return None
        if number == 1:
            words = "première" if end in ("re", "ère") else "premier"
        elif end in ("nd", "nde"):
            words = "second" + end[2:]
        else:
            words = self.ordinal(number)
        return ReadForm(found.end(), words)

    def roman(self, before: str, value: int) -> str | None:
        return self.spell(value) if before in tables.BEFORE_ROMAN and value > 1 else None


_FEMININE = re.compile(
    r"(?:tion|sion|xion|[^n]té|ée|ie|ure|ance|ence|ette|elle|esse|aison|euse|trice|ille|ine|aine|ude|ière)s?$"
)
_ORDINAL = re.compile(
    r"(?<![\w.,])([0-9]{1,3}(?: [0-9]{3})+|[0-9]{1,9})(er|re|ère|ème|eme|ième|nde?|e|ᵉʳ|ᵉ|ʳᵉ)s?(?![\w])"
)
_ROMAN = re.compile(r"(?<!\w)([IVX]{1,6})(er|re|ère|ème|eme|e|ᵉʳ|ᵉ)(?!\w)")


def _invariable(words: str) -> str:
    """The words of a number before ``mille`` or an ending: without the plural of hundreds."""
    return re.sub(r"(?<=cent)s$|(?<=vingt)s$", "", words)


def _ordinal(words: str) -> str:
    words = _invariable(words)
    if words.endswith("cinq"):
        return f"{words}uième"
    if words.endswith("neuf"):
        return f"{words[:-1]}vième"
    return f"{words.removesuffix('e')}ième"


def _below_thousand(number: int, gender: str = "") -> str:
    hundreds, rest = divmod(number, 100)
    words = []
    if hundreds:
        words = ["cent"] if hundreds == 1 else [tables.SMALL[hundreds], "cent" if rest else "cents"]
    if rest:
        words.append(_below_hundred(rest, gender))
    return " ".join(words)


def _below_hundred(number: int, gender: str) -> str:
    one = "une" if gender == "f" else "un"
    if number < 17:
        return one if number == 1 else tables.SMALL[number]
    tens, ones = divmod(number, 10)
    if tens in (7, 9):
        tens, ones = tens - 1, ones + 10
    word = tables.TENS[tens - 1]
    if not ones:
        return word + ("s" if tens == 8 else "")
    last = one if ones == 1 else _below_hundred(ones, "") if ones > 16 else tables.SMALL[ones]
    return f"{word} et {last}" if ones in (1, 11) and tens != 8 else f"{word}-{last}"


FRENCH = French()
