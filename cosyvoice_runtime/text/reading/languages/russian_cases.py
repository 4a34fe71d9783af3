"""Cases of Russian numbers: до двадцати минут, к пяти часам, с тремя друзьями."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import russian_tables as tables
from cosyvoice_runtime.text.reading.languages.european import listed
from cosyvoice_runtime.text.reading.languages.language import Currency, Unit
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

GENITIVE, DATIVE, INSTRUMENTAL, OF_HER = "genitive", "dative", "instrumental", "instrumental of her"
_GOVERNORS = {
    **dict.fromkeys(
        listed("""до от ото после около из для без более менее больше меньше свыше течение порядка кроме
        против
        среди старше младше выше ниже дольше длиннее короче дороже дешевле далее раньше позже возрасте
        стоимостью весом длиной высотой глубиной ростом у"""),
        GENITIVE,
    ),
    **dict.fromkeys(("к", "ко", "благодаря", "равен", "равна", "равно", "равны"), DATIVE),
    **dict.fromkeys(("между", "перед", "над"), INSTRUMENTAL),
}
"""Words before a number that give it a case."""
_NOT_GOVERNED = re.compile(r"(?:не раньше|не позже|раньше|позже) \Z")
_SPAN = re.compile(r"\b(?:до|по) [0-9]")
_CLOCK = re.compile(r"[0-9]:[0-9]")
_SINCE = frozenset({"с", "со"})
_NOUN_CASES = (
    (re.compile(r"[а-яё]{2,}(?:ами|ями|ьми)\b"), INSTRUMENTAL),
    (re.compile(r"(?!грамм|программ|реклам|драм|мадам|дам\b)[а-яё]{2,}(?:ам|ям)\b"), DATIVE),
    (re.compile(r"[а-яё]{2,}(?:ах|ях)\b"), GENITIVE),
)
"""Ends of a counted noun that show its case; numbers of the prepositional are as in the genitive."""
_OF_ONE = re.compile(r" [а-яё]+(?:ой|ей|ью)\b")
_NEXT_NOUN = re.compile(r" (?:[а-яё]+(?:ых|их|ым|им|ыми|ими) )?([а-яё]+)")
_ADJECTIVE = re.compile(r"(?:ого|его|ому|ему|ом|ем|ый|ий|ой|ая|ое|ую|ых|ыми?)\Z")


def _numbers() -> dict[str, tuple[str, str, str]]:
    """The genitive, dative and instrumental of words of numbers."""
    found = {
        "ноль": ("ноля", "нолю", "нолём"), "один": ("одного", "одному", "одним"),
        "одно": ("одного", "одному", "одним"), "одна": ("одной", "одной", "одной"),
        "одну": ("одной", "одной", "одной"), "целая": ("целой", "целой", "целой"),
        "два": ("двух", "двум", "двумя"), "две": ("двух", "двум", "двумя"),
        "три": ("трёх", "трём", "тремя"), "четыре": ("четырёх", "четырём", "четырьмя"),
        "восемь": ("восьми", "восьми", "восемью"), "сорок": ("сорока",) * 3, "сто": ("ста",) * 3,
        "девяносто": ("девяноста",) * 3, "двести": ("двухсот", "двумстам", "двумястами"),
        "триста": ("трёхсот", "трёмстам", "тремястами"),
        "четыреста": ("четырёхсот", "четырёмстам", "четырьмястами"),
        "тысяча": ("тысячи", "тысяче", "тысячей"), "тысячи": ("тысяч", "тысячам", "тысячами"),
        "тысяч": ("тысяч", "тысячам", "тысячами"),
    }  # fmt: skip
    for word in (*tables.SMALL[5:8], *tables.SMALL[9:], "двадцать", "тридцать"):
        found[word] = (f"{word[:-1]}и", f"{word[:-1]}и", f"{word}ю")
    for tens in ("пять", "шесть", "семь"):
        stem = tens[:-1]
        found[f"{tens}десят"] = (f"{stem}идесяти", f"{stem}идесяти", f"{tens}юдесятью")
        found[f"{tens}сот"] = (f"{stem}исот", f"{stem}истам", f"{tens}юстами")
    found["восемьдесят"] = ("восьмидесяти", "восьмидесяти", "восемьюдесятью")
    found["восемьсот"] = ("восьмисот", "восьмистам", "восемьюстами")
    found["девятьсот"] = ("девятисот", "девятистам", "девятьюстами")
    for one, few, many in tables.LARGE[1:5]:
        found |= {one: (few, f"{one}у", f"{one}ом")} | dict.fromkeys(
            (few, many), (many, f"{one}ам", f"{one}ами")
        )
    return found


_NUMBERS = _numbers()
_CASES = (GENITIVE, DATIVE, INSTRUMENTAL)


def _nouns() -> dict[str, str]:
    """The genitives of the first words of units and currencies."""
    found: dict[str, str] = {}
    units: list[Unit | Currency] = [*tables.UNITS.values(), *tables.CURRENCIES.values(), tables.GRAM]
    cents = [
        Unit(each.cent, each.cents, "", each.few_cents) for each in tables.CURRENCIES.values() if each.cent
    ]
    for unit in (*units, *cents):
        if unit.few and unit.one != unit.many and unit.many not in tables.SCALE_FORMS:
            found |= {unit.few: unit.many, unit.one: unit.few}
    return found


_GENITIVES = _nouns()
_DATIVES = {
    "час": "часу", "часа": "часам", "часов": "часам", "минута": "минуте", "минуты": "минутам",
    "минут": "минутам", "год": "году", "года": "годам", "лет": "годам", "процент": "проценту",
    "процента": "процентам", "процентов": "процентам", "рубль": "рублю", "рубля": "рублям",
    "рублей": "рублям", "градус": "градусу", "градуса": "градусам", "градусов": "градусам",
}  # fmt: skip


def case_at(form: ReadForm, place: Place) -> str:
    """The case that the words around a number give it; empty for the nominative."""
    if place.text[max(0, place.start - 1) : place.start] in ("-", "−", "+"):
        place = Place(place.text, place.start - 1, place.language)
    before = place.word_before
    noun = _NEXT_NOUN.match(place.text, form.end)
    if noun:
        for ends, case in _NOUN_CASES:
            if ends.fullmatch(noun[1]):
                return case
    if (
        before in ("с", "со", "и", "над", "под")
        and form.words == "один"
        and _OF_ONE.match(place.text, form.end)
    ):
        return OF_HER
    if before in _GOVERNORS and not _NOT_GOVERNED.search(place.before):
        return _GOVERNORS[before]
    if before in _SINCE and (
        _SPAN.search(place.text[form.end : form.end + 24])
        or _CLOCK.search(place.text[place.start : form.end])
    ):
        return GENITIVE
    if before == "по" and form.words in ("один", "одна", "одно"):
        return DATIVE
    return ""


def takes_genitive(place: Place) -> bool:
    """Whether the word before a place asks for the genitive."""
    return place.word_before in _SINCE or _GOVERNORS.get(place.word_before) == GENITIVE


def declined(words: str, case: str) -> str:
    """A number and what it counts in a case; ordinals and what is no number stay."""
    parts = words.split(" ")
    numbers = 0
    while numbers < len(parts) and (parts[numbers] in _NUMBERS or parts[numbers] in ("целых", "–", "минус")):
        numbers += 1
    rest = parts[numbers:]
    is_part = len(parts) == 2 and words.endswith(("ых", "их"))
    if not numbers or (rest and rest[0] in _ORDINALS and not is_part and "цел" not in words):
        return words
    if case == DATIVE and parts[numbers - 1] == "одно":
        parts[numbers - 1] = "одна"
    if case == OF_HER:
        return "одной"
    place = _CASES.index(case)
    changed = [_NUMBERS[part][place] if part in _NUMBERS else part for part in parts[:numbers]]
    if rest and "цел" not in words:
        forms = _GENITIVES if case == GENITIVE else _DATIVES if case == DATIVE else {}
        rest[0] = forms.get(rest[0], rest[0])
        if len(rest) > 1 and rest[0].endswith("ых"):
            rest[1] = _GENITIVES.get(rest[1], rest[1])
    return " ".join(changed + rest)


_ORDINALS = frozenset(tables.THIRD.values()) | {
    word[:-2] + end
    for word in tables.ORDINALS.values()
    for end in ("ый", "ой", "ий", *tables.ADJECTIVES.values())
}
"""Words that end an ordinal, whose other words stay in the nominative."""


def shortened(place: Place) -> ReadForm | None:
    """``на ул.``, ``согласно ст. 15``: a noun in short, in the case of the word before."""
    found = place.match(_SHORT)
    if not found:
        return None
    nominative, genitive, dative, prepositional = _SHORT_NOUNS[found[1].lower()]
    before = place.word_before
    word = nominative
    if takes_genitive(place):
        word = genitive
    elif before in ("к", "ко", "согласно", "по"):
        word = dative
    elif before in ("в", "во", "на", "о", "об"):
        word = prepositional
    return ReadForm(found.end(), word.capitalize() if found[1][0].isupper() else word)


_SHORT_NOUNS = {
    short: tuple(nouns.split())
    for short, nouns in {
        "ул": "улица улицы улице улице", "г": "город города городу городе",
        "ст": "статья статьи статье статье",
        "п": "пункт пункта пункту пункте", "д": "дом дома дому доме",
        "кв": "квартира квартиры квартире квартире",
        "каб": "кабинет кабинета кабинету кабинете", "просп": "проспект проспекта проспекту проспекте",
        "пл": "площадь площади площади площади", "стр": "страница страницы странице странице",
        "рис": "рисунок рисунка рисунку рисунке", "гл": "глава главы главе главе",
        "корп": "корпус корпуса корпусу корпусе", "оф": "офис офиса офису офисе",
        "эт": "этаж этажа этажу этаже",
        "ч": "часть части части части", "табл": "таблица таблицы таблице таблице",
    }.items()
}  # fmt: skip
_SHORT = re.compile(
    rf"(?i:(?<![\w.-])({'|'.join(sorted(_SHORT_NOUNS, key=len, reverse=True))})\.)(?= ?[0-9]| [А-ЯЁ][а-яё])"
    r"(?<!\b[0-9] [гч]\.)(?<![0-9] [гч]\.)"
)
