"""German: words and habits."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import german_forms, german_nouns
from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.european import ALONE, HOUR, MINUTE, SECOND, European, listed
from cosyvoice_runtime.text.reading.languages.language import Clock
from cosyvoice_runtime.text.reading.languages.numeral import Numeral, value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


class German(European):
    """German, the parts of long numbers apart: drei hundert sechs und fünfzig."""

    tag = "de"
    minus, plus, point, dot, to, by, root = "minus", "plus", "Komma", "Punkt", "bis", "mal", "Wurzel aus"
    small, month_words, months = tables.SMALL, tables.MONTH_WORDS, tables.MONTHS
    units, per_units, currencies, scales = tables.UNITS, tables.PER_UNITS, tables.CURRENCIES, tables.SCALES
    signs, signs_before, operations = tables.SIGNS, tables.SIGNS_BEFORE, tables.OPERATIONS
    abbreviations, known_labels = tables.ABBREVIATIONS, tables.KNOWN_LABELS
    letters = tables.LETTERS
    glued_units = ("A", "N", "J", "d", "x")
    between, ratio_word, out_of_word, over_word, per_word = "", "zu", "von", "zu", "pro"
    squared, cubed, power_word = "zum Quadrat", "hoch drei", "hoch"
    before_code = (
        "PIN|TAN|IBAN|ISBN|PLZ|Postleitzahl|Passwort|Zugangscode|Code|Flug|Durchwahl",
        "Konto|Kontonummer|Karte|Kartennummer|Bestellnummer|Rechnungsnummer|Seriennummer|Sendungsnummer|"
        "Kundennummer|Nummer|Nr\\.|[A-Z][a-z]+nr\\.|Tel\\.?|Telefon|Handy|Mobil|Fax",
        "Notruf|Notfall|Rufnummer|Nummer|unter",
    )
    before_result = (
        "verhältnis|wahrscheinlichkeit|chance|quote|maßstab|mischung|ergebnis|endstand|stand|steh|gewann|"
        "gewonnen|gewinn|verlor|verlier|sieg|unterlag|unterl[ai]eg|endet|führ|niederlage|tor|spiel"
    )
    spells_postcodes = True
    single_scales, own_forms = tables.SINGLE_SCALES, german_forms.FORMS
    before_rating = ("bewertung", "note", "bewertet", "wertung")
    after_day = r"\.?"
    date_patterns = (
        r"(?:(?<![\w.,:/-])|(?<=[0-9]\./)){day}\.? ?{month}(?!\w)(?: {year})?",
        ALONE + r"{day}\.\s?{number}\.(?:\s?{short}|(?![0-9]))",
        r"(?:\A|(?<=\b[AaVv]m )|(?<=\b[Vv]om )|(?<=\bv\. )|(?<=\bbis )|(?<=\bde[rnm] ))"
        r"{day}\.{number}(?=[,;!?)]|\Z)",
        r"(?:(?<=\b[AaVv]m )|(?<=\b[Vv]om )|(?<=[(*†] )|(?<=\())"
        r"{day}\.\s?{number}\.\s?(?P<year>[1-9][0-9]{{2}})(?![\w]|[.,:-][0-9])",
        r"\b{month} {year}",
    )
    clock_patterns = (
        rf"{HOUR}[:.]{MINUTE}(?:[:.]{SECOND})?\s?(?:Uhr|h)\b",
        rf"{HOUR}\s?Uhr\b(?: (?P<minute>[0-5]?[0-9])(?![\w.:]|,[0-9]))?",
    )

    def spell(self, number: int, gender: str = "") -> str:
        if not number:
            return "null"
        words = []
        for power, (one, many) in reversed(list(enumerate(tables.LARGE, 2))):
            if group := number // 1000**power % 1000:
                words.append(f"eine {one}" if group == 1 else f"{_below_thousand(group)} {many}")
        if group := number // 1000 % 1000:
            words.append(f"{_below_thousand(group, last='ein')} tausend")
        if group := number % 1000:
            words.append(_below_thousand(group, _ONES.get(gender, "eins") if group == number else "eins"))
        return " ".join(words)

    def decimals(self, digits: str) -> str:
        return self.digits(digits)

    def gender_of(self, word: str, numeral: Numeral) -> str:
        if word in ("Uhr", "Mal", "mal") or not numeral.is_one:
            return "n"
        if not word[0].isupper():
            return "f" if word in ("million", "milliarde", "billion") else ""
        if word.isupper():
            return ""
        return "f" if german_nouns.is_feminine(word) else "n"

    def year(self, year: int) -> str:
        century, rest = divmod(year, 100)
        if not 11 <= century < 20:
            return self.spell(year)
        return f"{self.spell(century)} hundert{' ' + self.spell(rest) if rest else ''}"

    def counts(self, place: Place, end: int) -> bool:
        found = _COUNTED.match(place.text, end)
        is_noun = found and found[0].strip().lower() not in tables.RULERS
        return bool(is_noun) and place.word_before not in _BEFORE_YEARS

    def number_before(self, numeral: Numeral, place: Place, end: int) -> str:
        if place.word_before in _NUMBERED:
            return self.number(numeral)
        return super().number_before(numeral, place, end)

    def agreed(self, form: ReadForm, place: Place) -> ReadForm:
        declined = german_forms.declined(form, place)
        return german_forms.with_end_of_sentence(declined, place)

    def governor(self, place: Place) -> str:
        return german_forms.governor(place)

    def ordinal(self, number: int) -> str:
        return f"{_ordinal_stem(self, number)}er"

    def day(self, day: int, before: str) -> str:
        article = "dem " if before.endswith(",") else ""
        return article + _ordinal_stem(self, day) + _ending(before.removesuffix(","))

    def ordinal_day(self, day: int) -> str:
        return f"{_ordinal_stem(self, day)}en"

    def first_day(self, day: int) -> str:
        return f"{_ordinal_stem(self, day)}en"

    def clock(self, clock: Clock) -> str:
        hour = "ein" if clock.hour == 1 else self.spell(clock.hour)
        if clock.second is not None:
            minutes = f"{self.spell(clock.minute, 'f')} {'Minute' if clock.minute == 1 else 'Minuten'}"
            seconds = f"{self.spell(clock.second, 'f')} {'Sekunde' if clock.second == 1 else 'Sekunden'}"
            return f"{hour} Uhr {minutes} {seconds}"
        return f"{hour} Uhr{' ' + self.spell(clock.minute) if clock.minute else ''}"

    def fraction(self, numerator: int, denominator: int) -> str:
        above = "ein" if numerator == 1 else self.spell(numerator)
        if denominator == 2:
            return f"{above} {'halb' if numerator == 1 else 'halbe'}"
        return f"{above} {_ordinal_stem(self, denominator).removesuffix('t')}tel"

    def mixed(self, whole: str, fraction: str) -> str:
        return f"{'ein' if whole == 'eins' else whole} {fraction}"

    def ordinals(self, place: Place) -> ReadForm | None:
        if found := place.match(_WITH_ENDING):
            return ReadForm(found.end(), _ordinal_stem(self, int(found[1])) + found[2])
        if found := place.match(_DECADE):
            number = int(found[1])
            return ReadForm(
                found.end(), (self.year(number) if number > 100 else self.spell(number)) + "er" + found[2]
            )
        if roman := place.match(_ROMAN):
            words = _ordinal_stem(self, value_of_roman(roman[1])) + _ending_at(place, roman[2])
            return ReadForm(roman.end(1) + 1, words)
        found = place.match(_WITH_DOT)
        if not found or not _is_ordinal(found, place):
            return None
        chained = _CHAINED.match(place.text, found.end())
        noun = chained[1] if chained else found[2] or ""
        words = _ordinal_stem(self, int(found[1])) + _ending_at(place, noun)
        if noun == "km":
            return ReadForm(found.end() + 3, f"{words} Kilometer")
        return ReadForm(found.end(), words)

    def roman(self, before: str, value: int) -> str | None:
        return self.cardinal(str(value)) if before in tables.BEFORE_ROMAN else None


_ONES = {"f": "eine", "m": "ein", "n": "ein"}
_COUNTED = re.compile(r" [A-ZÄÖÜ][a-zäöü]+")
_NUMBERED = frozenset(
    listed(
        "abs absatz art artikel nr nummer kapitel kap seite teil stufe satz ziffer platz gleis s gl bd ziff"
    )
)
_BEFORE_YEARS = frozenset(
    listed(
        """wurde wurden war starb entstand erschien begann endete trat fand fiel jahr jahre jahren seit ab um
        bis in von anno sommer winter herbst frühjahr frühling saison"""
    )
) | set(tables.MONTHS)
_WEAK = frozenset(listed("v d am im zum zur vom beim dem den des ab bis seit ins ans nach von"))
_BARE = ("ab", "seit", "nach", "von")
"""Words that ask for the dative without an article: ``ab achter Woche``."""
_NOMINATIVE = frozenset(listed("der die das"))
_DECLINED = re.compile(
    "(?P<mixed>[mdsk]?ein|ihr|unser|euer|eur)(?P<end>e[mnrs]?)?"
    "|(?:dies|jed|jen|welch|beid|solch)(?P<strong>e[mnrs]?)"
)
"""Words before an ordinal that show its case."""
_WITH_ENDING = re.compile(r"(?<![\w.,])([0-9]{1,9})\.?s?t(e[rmns]?)(?!\w)")
_DECADE = re.compile(r"(?<![\w.,])([0-9]{1,4})er(n?)\b")
_ROMAN = re.compile(
    r"(?<![\w.-])(I|II|III|IV|V|VI{1,3}|IX|X)\. (?=(Weltkrieg|Bundesliga|Liga|Rang|Republik|Reich|Akt|"
    r"Quartal|Internationale|Klasse|Kapitel|Abschnitt|Vatikanisch|Symphonie|Sinfonie|Satz|Armee|Kreuzzug)\w{0,3}\b)"
)
_APART = r"(?<![\w,:])(?:(?<![./])|(?<=[0-9]\./))"
_WITH_DOT = re.compile(
    rf"{_APART}(?<![0-9]-)([0-9]{{1,7}})\.(?![0-9]|\.)(?:(?= ([^\W\d_]+))|(?=(.|\Z)))", re.S
)

_CHAINED = re.compile(
    r"(?:(?:(?:,| und| u\.| oder| bis| sowie| bzw\.) |[/–-])[0-9]{1,3}\.){1,5} ([A-ZÄÖÜ][a-zäöüß]+)"
)
"""Other ordinals that share the noun of the first: ``12. und 78. Minute``."""


def _ending(before: str, noun: str = "") -> str:
    """The ending of an ordinal after a word: ``am zweiten``, ``die zweite``, ``zweiter``."""
    found = _DECLINED.fullmatch(before)
    if found and found["strong"]:
        weak = {"er": german_nouns.is_feminine(noun), "es": noun.endswith("s"), "e": False}
        return "en" if weak.get(found["strong"], True) else "e"
    if found and found["end"]:
        return "e" if found["end"] == "e" else "en"
    if before in _WEAK:
        return "en"
    return "e" if before in _NOMINATIVE else "er"


def _ending_at(place: Place, noun: str) -> str:
    """The ending of an ordinal before a noun, which shows the gender where no article does."""
    before = german_forms.without_chain(place.before)
    of_feminine = german_forms.governor(place) == "der" and german_nouns.is_feminine(noun)
    ending = "en" if of_feminine or _DATIVE.search(before) else _ending(german_forms.governor(place), noun)
    if ending == "en" and german_forms.governor(place) in _BARE and noun[:1].isupper():
        return "er" if german_nouns.is_feminine(noun) else ending
    if ending == "er" and noun[:1].isupper():
        if german_nouns.is_neuter(noun):
            return "es"
        return "e" if german_nouns.is_feminine(noun) else ending
    return ending


_DATIVE = re.compile(
    r"\b(?i:in|von|mit|bei|aus|nach|seit|zu|auf|an|vor|ab|während|unter|wegen) (?:der|den) \Z"
)


def _is_ordinal(found: re.Match[str], place: Place) -> bool:
    """Whether a number with a dot is one rather than the last of a sentence, or the number of an item."""
    number, following = found[1], found[2]
    before_word = german_forms.governor(place)
    determined = before_word in _DETERMINERS or bool(_DECLINED.fullmatch(before_word))
    if number.startswith("0"):
        return False
    if place.text.strip() == found[0]:
        return True
    if _CHAINED.match(place.text, found.end()):
        return True
    if following is None:
        return determined
    if following.lower() in tables.ORDERED:
        return True
    before = place.text[: place.start].rstrip(" ")
    if (
        not before
        or before.endswith("\n")
        or _SENTENCE_END.search(before)
        or following in tables.SENTENCE_STARTS
    ):
        return False
    if _LABELLED.match(place.text, found.end()):
        return True
    if _IMPERATIVE.match(place.text, found.end()) or _COUNT.search(before):
        return False
    if _GENITIVE.search(before):
        return following[0].isupper()
    return following[0].islower() or determined or (len(number) < 3 and not _CALLED.search(before))


_DETERMINERS = (_WEAK | _NOMINATIVE) - {"in", "von", "ab", "bis", "seit", "nach", "ins"}
_LABELLED = re.compile(r" [A-ZÄÖÜ][a-zäöü]+(?: am | im |:)")
"""A noun of which a list says more: ``1. Dosis am``."""
_IMPERATIVE = re.compile(r" [A-ZÄÖÜ][a-zäöü]+n Sie\b")
_COUNT = re.compile(r"[0-9] (?:und|bis|oder)\Z|[=≈:−<>≥≤]\Z|[A-Z]-\Z|= -\Z")
_GENITIVE = re.compile(r"\b[A-ZÄÖÜ][a-zäöüß]{3,}s\Z")
"""A name before what is its own: ``Beethovens 9. Sinfonie``."""
_SENTENCE_END = re.compile(r"(?:[a-zäöüß]{5}|[0-9)%₂²])[.!?]\Z")
"""The end of a sentence, after which a number with a dot is a heading's."""
_CALLED = re.compile(r"\b(?:[A-ZÄÖÜ][\wäöüß]*|(?:Gl|Nr|Kap|Abs|Art|S|Abb|Tab|Pos)\.)\Z")
"""A noun before a number: ``Kapitel 5.``"""


def _ordinal_stem(language: German, number: int) -> str:
    """Without its ending: ``zweit``, ``drei und zwanzigst``."""
    rest = number % 100
    if not 0 < rest < 20:
        return ("ein tausend" if number == 1000 else language.spell(number)) + "st"
    last = tables.ORDINALS.get(rest, f"{tables.SMALL[rest]}t")
    return f"{language.spell(number - rest)} {last}" if number > rest else last


def _below_thousand(number: int, last: str = "eins") -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_one(hundreds, 'ein')} hundert"] if hundreds else []
    if rest < 20:
        return " ".join([*words, *([_one(rest, last)] if rest else [])])
    tens, ones = divmod(rest, 10)
    return " ".join([*words, *([_one(ones, "ein"), "und"] if ones else []), tables.TENS[tens - 2]])


def _one(number: int, word: str) -> str:
    return word if number == 1 else tables.SMALL[number]


GERMAN = German()
