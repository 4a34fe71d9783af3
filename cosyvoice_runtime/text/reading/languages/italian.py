"""Italian: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import italian_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, HOUR, MINUTE, European
from cosyvoice_runtime.text.reading.languages.european_forms import hectares
from cosyvoice_runtime.text.reading.languages.language import Clock
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_BILLION = 10**9
_MINUTE = re.compile(r"(?<![\w.,])([0-9]{1,3})['’′](?!\w|[0-9])")


def _minute(place: Place, language: European) -> ReadForm | None:
    """``al 90'`` of a match."""
    found = place.match(_MINUTE)
    if not found or place.word_before not in ("al", "dal", "all", "nel"):
        return None
    return ReadForm(found.end(), language.ordinal(int(found[1])))


class Italian(European):
    """Italian, hundreds and thousands apart: duemila trecento quarantadue."""

    tag = "it"
    minus, plus, point, dot, to, by, root = (
        "meno",
        "più",
        "virgola",
        "punto",
        "a",
        "per",
        "radice quadrata di",
    )
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations, known_labels = tables.ABBREVIATIONS, tables.KNOWN_LABELS
    glued_units = ("ha", "N", "J", "x")
    of_year = "del"
    of, between, ratio_word, out_of_word, over_word, per_word = "di", "e", "a", "su", "su", ""
    squared, cubed, power_word = "al quadrato", "al cubo", "elevato a"
    before_code = (
        "PIN|ISBN|IBAN|password|CAP|codice|volo|interno",
        "conto|carta|serie|ordine|fattura|numero|n\\.|tel\\.?|telefono|cellulare|fax|chiam[a-z]* (?:il|al)",
        "chiam[a-z]* (?:il|al)|numero|emergenze",
    )
    own_forms = (hectares, _minute)
    half = "mezzo"
    single_scales = tables.SINGLE_SCALES
    short_weekdays = tables.SHORT_WEEKDAYS
    before_rating = ("voto", "valutazione", "punteggio")
    after_day = "[°º]?"
    date_patterns = (
        ALONE + r"{day}[°º]? ?{month}(?!\w)(?: (?:del )?{year})?",
        r"\b{month} (?:del )?{year}",
        ALONE + r"{day}/{number}/{short}",
    )
    clock_patterns = (
        rf"(?<=\b[Oo]re ){HOUR}[.:]{MINUTE}(?![0-9])",
        rf"(?<=\balle ){HOUR}[.:]{MINUTE}(?![0-9])",
        rf"(?<=\bdalle ){HOUR}[.:]{MINUTE}(?![0-9])",
    )

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "zero"
        words = []
        left = number
        for power, (one, many) in reversed(list(enumerate(tables.LARGE, 2))):
            # Thousands of millions stay so where hundreds and units follow.
            if power == 3 and left < 1000 * _BILLION and left % 10**6 and left >= _BILLION:
                words.append(f"{_below_million(left // 10**6)} milioni")
                left %= 10**6
            group, left = divmod(left, 1000**power)
            if group:
                words.append(f"un {one}" if group == 1 else f"{_below_million(group)} {many}")
        if left:
            words.append(_below_million(left, gender))
        return " ".join(words)

    def gender_of(self, word: str, numeral: Numeral) -> str:
        lower = word.lower()
        if not numeral.is_one or lower in tables.NOT_COUNTED:
            return ""
        if _FEMININE.search(lower) and lower not in tables.MASCULINE:
            return "f"
        return "lo" if _IMPURE.match(lower) else "m"

    def ordinal(self, number: int) -> str:
        if number <= 10:
            return tables.ORDINALS[number - 1]
        words = self.spell(number)
        if words.endswith("mille"):
            return f"{words[:-1]}esimo"
        return f"{words if words.endswith(('tre', 'sei')) else words[:-1]}esimo"

    def day(self, day: int, before: str) -> str:  # noqa: ARG002
        return "primo" if day == 1 else self.spell(day)

    def clock(self, clock: Clock) -> str:
        words = [self.spell(clock.hour, "f" if clock.hour == 1 else "")]
        if clock.minute or clock.second:
            unit = "" if clock.minute in (15, 30, 45) and not clock.second else " minuti"
            words.append(f"e {self.spell(clock.minute)}{' minuto' if clock.minute == 1 else unit}")
        if clock.second:
            words.append(f"e {self.counted(Numeral(str(clock.second)), self.units['s'])}")
        return " ".join([*words, *clock.zone])

    def fraction(self, numerator: int, denominator: int) -> str:
        name = "mezzo" if denominator == 2 else self.ordinal(denominator)
        above = "un" if numerator == 1 else self.spell(numerator)
        return f"{above} {name if numerator == 1 else name[:-1] + 'i'}"

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        if form.words.endswith("una") and _VOWEL.match(place.text, form.end):
            return ReadForm(form.end + 1, f"{form.words[:-1]}'")
        return ReadForm(form.end, form.words.replace("una ora", "un'ora"))

    def ordinals(self, place: Place) -> ReadForm | None:
        if found := place.match(_SHORT_DECADE):
            return ReadForm(found.end(), self.cardinal(found[1]))
        if (found := place.match(_CENTURY)) and found[0] in tables.ROMAN:
            return ReadForm(found.end(), self.ordinal(tables.ROMAN.index(found[0]) + 1))
        if found := place.match(_DEGREES):
            return ReadForm(
                found.end(), f"{self.spell(int(found[1]))} {'grado' if found[1] == '1' else 'gradi'}"
            )
        if not (found := place.match(_ORDINAL)):
            return None
        number, end = int(found[1].replace(".", "")), found[2] or found[3]
        if not number:
            return None
        words = self.ordinal(number)
        return ReadForm(found.end(), words[:-1] + ("a" if end in "ªa" else "o"))

    def roman(self, before: str, value: int) -> str | None:
        if before in tables.RULERS:
            return self.ordinal(value)[:-1] + ("a" if before in tables.QUEENS else "o")
        if before in tables.CENTURIES:
            return self.ordinal(value)
        return self.spell(value) if before in tables.BEFORE_ROMAN else None


_FEMININE = re.compile(r"(?:a|zione|sione|gione|tà|tù|rice|notte|parte|mente|chiave|classe|volte)$")
_VOWEL = re.compile(" [aeiouàèéìòù]")
_IMPURE = re.compile(r"z|s[^aeiou]|gn|ps|x|y")
_SHORT_DECADE = re.compile(r"(?<!\w)['’]([0-9]{2})(?![\w'’])")
_CENTURY = re.compile(r"(?<!\w)[IVX]{1,5}(?= sec(?:olo\b|\.))")
_DEGREES = re.compile(
    r"(?<![\w.,])([0-9]{1,3})°(?! (?!(?:di|e|a|al|in|con|per|da|o|ma|sotto|sopra|nord|sud) )[a-z])"
)
_ORDINAL = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{1,6})(?:\s?([ºª]|°(?= [a-zàèéìòù]))|([ao])(?!\w))"
)


def _below_million(number: int, gender: str = "") -> str:
    thousands, rest = divmod(number, 1000)
    words = []
    if thousands:
        words.append("mille" if thousands == 1 else f"{_below_thousand(thousands)}mila")
    if rest:
        words.append(_below_thousand(rest, gender))
    return " ".join(words)


def _below_thousand(number: int, gender: str = "") -> str:
    hundreds, rest = divmod(number, 100)
    words = [("" if hundreds == 1 else tables.SMALL[hundreds]) + "cento"] if hundreds else []
    if rest:
        words.append(_below_hundred(rest, gender if not hundreds else ""))
    return " ".join(words)


def _below_hundred(number: int, gender: str) -> str:
    if number == 1:
        return {"f": "una", "m": "un"}.get(gender, "uno")
    if number < 20:
        return tables.SMALL[number]
    tens, ones = divmod(number, 10)
    word = tables.TENS[tens - 2]
    return (word[:-1] if ones in (1, 8) else word) + (tables.SMALL[ones] if ones else "")


ITALIAN = Italian()
