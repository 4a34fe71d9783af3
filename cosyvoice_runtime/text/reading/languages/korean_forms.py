"""Korean: forms that it alone has, such as native numbers before counters, and particles that agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import korean_tables as tables
from cosyvoice_runtime.text.reading.languages.language import Clock, Date, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.korean import Korean

_FREE = r"(?a)(?<![\w.,:/-])(?<![0-9]\s)"
"""No number goes on to here."""
_MARK = r"\s?[-–—~～〜∼]\s?"
_COUNTED = re.compile(
    rf"(?a)(?<![A-Za-z0-9_.,:/])(?:(?P<low>[0-9]{{1,4}})(?P<unit>시|개|명|살|시간)?{_MARK})?(?P<number>[0-9]{{1,9}})"
    rf"(?P<space>\s?)(?P<counter>{'|'.join(tables.NATIVE_COUNTERS)})"
)
_TIMES = re.compile(r"(?a)(?<![A-Za-z0-9_.,:/-])(?:([0-9]{1,2})\s?[-~～〜]\s?)?([0-9]{1,9})\s?(번째|번)")
_NAMED = re.compile(tables.NUMBERED)
_OFTEN = re.compile(rf"(?:{tables.HOW_OFTEN})\s?\Z")
_COUNTING = re.compile(
    r"(?:씩|이상|이하|정도|이나|만에|더|도\s|째|밖에)|\s(?:이상|이하|정도|더|연속|반복|시도|클릭|먹|복용|나누|나눠|읽|보|갔|가\s|방문|왔|찾|만났|실패|"
    r"성공|우승|했|하|해|눌|썼|들|이겼|졌|물|말|울|뛰|전화|생각|확인|다시|다녀|걸|씻|닦|운동|사용|쉬|넘)"
)
_PAIRS = {
    (1, 2): "한두",
    (2, 3): "두세",
    (3, 4): "서너",
    (4, 5): "네다섯",
    (5, 6): "대여섯",
    (6, 7): "예닐곱",
}
_PADDED = re.compile(r"(?a)(?<![\w.,])0([1-9])(?=\s?[월일시분초])")
_MONTH = re.compile(r"(?a)(?<![\w.,])(0?6|10)\s?월(?!드)")
_WEEKDAY = re.compile(rf"\s?[(（]([월화수목금토일])(?:요일)?(?:{_MARK}([월화수목금토일])(?:요일)?)?[)）]")
_DATED = re.compile(r"(?:일|[0-9])\s?\Z")
_TO = re.compile(r"\s?[-–—~～〜∼]\s?(?=[0-9]|(?:오전|오후|새벽|아침|저녁|밤|낮|기원|다음)\s?[0-9]|내년|현재)")
_SINCE = re.compile(
    r"(?:[0-9가-힣]\s?[년월일시분초대반]|(?:일|[0-9])\s?[(（][월화수목금토일](?:요일)?[)）]|[0-9]{4}|\s[0-9]{1,2}\.|"
    r"[0-9] ?[AP]M)\s?\Z"
)
_FROM = re.compile(r"[0-9]\s?(?:[가-힣]{1,3}|%)\s?\Z")
_WEEKDAYS = re.compile(r"(?<=[월화수목금토일])\s?[-–~～〜]\s?(?=[월화수목금토일](?:요일)?(?![가-힣]))")
_UNTIL_UNIT = re.compile(
    rf"{_FREE}([0-9]{{1,4}}){_MARK}([0-9]{{1,4}})(?=\s?(?:년|월|일(?![가-힣])|일까지|일에))"
)
_AFTER_MONTH = re.compile(r"월\s?\Z")
_DOTTED_DATE = re.compile(
    rf"{_FREE}((?:19|20)[0-9]{{2}})\.\s(1[0-2]|0?[1-9])\.\s?([12][0-9]|3[01]|0?[1-9])(?![0-9]|\.[0-9])\.?"
)
_MONTH_DAY = re.compile(
    rf"{_FREE}(1[0-2]|0?[1-9])/([12][0-9]|3[01]|0?[1-9])(?=\s?[(（][월화수목금토일]|\s?(?:까지|부터|일))"
)
_SCORE = re.compile(
    rf"{_FREE}([0-9]{{1,3}})\s?[-–:]\s?([0-9]{{1,3}})"
    r"(?=\s?(?:승리|패배|완승|완패|으?로 (?:승|패|이|졌|지|완|꺾|무|역전|비|앞|뒤|끝)))"
)
_FALLING = re.compile(
    rf"{_FREE}([0-9]{{1,3}})-([0-9]{{1,3}})(?![0-9-]|\s?[=+×÷*%℃°]|\s?(?:호|번|동|층|차|월|일|년|원))"
)
_PRESSURE = re.compile(r"([0-9]{2,3})\s?/\s?([0-9]{2,3})(?![0-9/]|\s?mm)")
_PRESSURE_BEFORE = re.compile(r"혈압[은이]?\s?\Z")
_STATUS = re.compile(r"[1-5][0-9]{2}(?![0-9.,])")
_STATUS_BEFORE = re.compile(r"HTTP(?: 상태)?(?: ?코드)?\s?\Z")
_OUT_OF = re.compile(rf"{_FREE}([0-9]{{1,3}}(?:\.[0-9]{{1,2}})?)\s?/\s?([0-9]{{1,4}})점")
_COMPARED = re.compile(
    r"(?a)(?<![\w.<>=])([0-9]+(?:\.[0-9]+)?|[A-Za-z])\s?([<>≤≥])\s?([0-9]+(?:\.[0-9]+)?)(?![\w.<>=])"
)
_NUMBERED_PLOT = re.compile(rf"{_FREE}([0-9]{{1,5}})-([0-9]{{1,5}})(?=\s?(?:번지|호(?!선)))")
_STREET = re.compile(r"(?<=[로길동리] )([0-9]{1,5})-([0-9]{1,5})(?![0-9-])")
_SERVICE = re.compile(rf"{_FREE}(1[568][0-9]{{2}})-([0-9]{{4}})(?![0-9-])")
_BRACKETED = re.compile(r"(?<![0-9.-])(0[0-9]{1,2})[).]\s?([0-9]{3,4})[-.]([0-9]{4})(?![0-9-])")
_PRODUCT = re.compile(r"(?<=[가-힣A-Za-z%])\s?[×*]\s?(?=[0-9])")
_AMOUNT_BEFORE = re.compile(r"[0-9][가-힣A-Za-z%]{1,3}\Z")
_EQUAL_NUMBER = re.compile(r"(?<=[0-9])\s?=\s?(?=[0-9])")
_EQUAL = re.compile(r"(?<=[가-힣])\s?=\s?(?=[0-9])")
_CALLED = re.compile(
    rf"{_FREE}(11[0-9]|12[0-9]|13[0-9]|1[58][0-9]{{2}})(?=(?:에|로|으로|번으로|번에)\s?(?:신고|전화|문의|연락|구조))"
)
_FLIGHT = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2}|[A-Z][0-9]|[0-9][A-Z])\s?([0-9]{3,4})(?=\s?편)")
_PART = re.compile(
    rf"(?a)(?<![\w./])([0-9]{{1,4}})/([0-9]{{1,4}})\s?({alternatives(tables.UNITS)})(?![A-Za-z0-9/])"
)
_PART_OF = re.compile(r"(?<=의 )([0-9]{1,4})/([0-9]{1,4})(?![0-9/])")
_ROOT = re.compile(r"√\s?(?=[0-9])")
_ROOT_PART = re.compile(r"(√?)([0-9]{1,4})/(√?)([0-9]{1,4})(?![0-9/])")
_HALF_BEFORE = re.compile(
    r"(?a)(?<![A-Za-z])(AM|PM|am|pm)\s?(?:([0-9]{1,2}):([0-5][0-9])(?![0-9:])|(?=[0-9]{1,2}\s?시))"
)
_ONE = re.compile(
    r"(?a)(?<![\w.,])1(?=[만천백](?![가-힣])|[만천백](?:원|명|개|천|백|여|달러|년)|\s?만\s?(?:원|명|개|달러))"
)
_HISTORY = re.compile(
    r"(?a)(?<![\w.·])(1[0-2]|[1-9])(?:[·‧・ㆍ]|\.(?=[0-9]{1,2}\s?(?:혁명|전쟁|운동|항쟁|사태|절|민주)))([1-3][0-9]|[1-9])(?![0-9·.])"
)
_PER = re.compile(r"(?<=[원러로엔])/(?=(?:월|년|일|시간|분|인|명|개|박|건|회|주)(?![가-힣]))")
_FILE = re.compile(
    rf"(?<=[가-힣A-Za-z0-9_])\.({'|'.join(tables.ENDINGS_OF_FILES)})(?![A-Za-z0-9])", re.IGNORECASE
)


def _counted(place: Place, korean: Korean) -> ReadForm | None:
    """``3개``, ``2~3명``, ``9시~18시``: native numbers."""
    found = place.match(_COUNTED)
    if not found or place.before.endswith("제"):
        return None
    counter, number = found["counter"], int(found["number"])
    if counter == "대" and number % 10 == 0 and 10 <= number <= 90:
        return None
    words = _number_of(number, counter, korean)
    if found["low"] is None:
        return ReadForm(found.end(), f"{words}{found['space']}{counter}")
    low = int(found["low"])
    if (low, number) in _PAIRS and counter != "시" and not found["unit"]:
        return ReadForm(found.end(), f"{_PAIRS[low, number]} {counter}")
    unit = found["unit"] or counter
    to = "부터" if unit == "시" else "에서"
    return ReadForm(
        found.end(), f"{_number_of(low, unit, korean)}{unit}{to} {words}{found['space']}{counter}"
    )


def _number_of(number: int, counter: str, korean: Korean) -> str:
    if (counter == "시" and number > 12) or (counter == "시간" and number > 23):
        return korean.cardinal(str(number))
    return korean.native(number)


def _times(place: Place, korean: Korean) -> ReadForm | None:
    """``3번째`` is the third; ``3번`` three times, unless it names something."""
    found = place.match(_TIMES)
    if not found:
        return None
    number = int(found[2])
    if found[3] == "번째":
        return None if found[1] else ReadForm(found.end(), korean.ordinal(number))
    counting = _OFTEN.search(place.before) or _COUNTING.match(place.text, found.end())
    named = place.before.endswith("제") or _NAMED.match(place.text, found.end())
    spoken = korean.native if counting and not named else lambda each: korean.cardinal(str(each))
    if not found[1]:
        return ReadForm(found.end(), f"{spoken(number)}번")
    low = int(found[1])
    if counting and (low, number) in _PAIRS:
        return ReadForm(found.end(), f"{_PAIRS[low, number]} 번")
    return ReadForm(found.end(), f"{spoken(low)}번에서 {spoken(number)}번")


def _padded(place: Place, korean: Korean) -> ReadForm | None:
    """``05월`` is the fifth month; the sixth and tenth have names of their own."""
    if found := place.match(_MONTH):
        return ReadForm(found.end(), korean.month(int(found[1])))
    found = place.match(_PADDED)
    if not found:
        return None
    hour = place.text[found.end() :].lstrip().startswith("시")
    return ReadForm(found.end(), korean.native(int(found[1])) if hour else korean.cardinal(found[1]))


def _weekday(place: Place, korean: Korean) -> ReadForm | None:  # noqa: ARG001
    """``5일(금)``: the day of the week in words."""
    found = place.match(_WEEKDAY)
    if not found or not _DATED.search(place.before):
        return None
    words = f"{found[1]}요일" + (f"부터 {found[2]}요일" if found[2] else "")
    return ReadForm(found.end(), words if place.before[-1:].isspace() else f" {words}")


def _to(place: Place, korean: Korean) -> ReadForm | None:  # noqa: ARG001
    """The mark between the ends of a span of time, or of a range."""
    if found := place.match(_WEEKDAYS):
        return ReadForm(found.end(), "부터 ")
    found = place.match(_TO)
    if not found:
        return None
    if _SINCE.search(place.before):
        return ReadForm(found.end(), "부터 ")
    is_range = "-" not in found[0] and _FROM.search(place.before)
    return ReadForm(found.end(), "에서 ") if is_range else None


def _span(place: Place, korean: Korean) -> ReadForm | None:
    """``3월 10~15일``, ``1970~1980년대``."""
    found = place.match(_UNTIL_UNIT)
    if not found or not (len(found[1]) == 4 or _AFTER_MONTH.search(place.before)):
        return None
    low, high = (korean.cardinal(found[part]) for part in (1, 2))
    return ReadForm(found.end(), f"{low}부터 {high}")


def _date(place: Place, korean: Korean) -> ReadForm | None:
    """``2024. 5. 17.``, ``5/17(금)``."""
    if found := place.match(_DOTTED_DATE):
        return ReadForm(found.end(), korean.date(Date(int(found[2]), int(found[3]), int(found[1]))))
    found = place.match(_MONTH_DAY)
    return ReadForm(found.end(), korean.date(Date(int(found[1]), int(found[2])))) if found else None


def _score(place: Place, korean: Korean) -> ReadForm | None:
    """``3:2로 이겼다``, ``4.8/5점``."""
    if found := place.match(_OUT_OF):
        got = korean.number(korean.numerals.parse(found[1]))
        return ReadForm(found.end(), korean.out_of(got, korean.cardinal(found[2])))
    found = place.match(_STATUS)
    if found and _STATUS_BEFORE.search(place.before):
        return ReadForm(found.end(), korean.telephone_digits(found[0]))
    found = place.match(_PRESSURE)
    if found and _PRESSURE_BEFORE.search(place.before):
        return ReadForm(found.end(), korean.over(*map(korean.cardinal, found.groups())))
    found = place.match(_SCORE)
    if not found:
        return None
    return ReadForm(found.end(), korean.ratio(korean.cardinal(found[1]), korean.cardinal(found[2])))


def _compared(place: Place, korean: Korean) -> ReadForm | None:
    """``5 > 3``: the verb comes last; ``1달러=1,350원``."""
    found = place.match(_PRODUCT)
    if found and _AMOUNT_BEFORE.search(place.before):
        return ReadForm(found.end(), " 곱하기 ")
    if found := place.match(_EQUAL_NUMBER):
        return ReadForm(found.end(), " 이퀄 ")
    if found := place.match(_EQUAL):
        return ReadForm(found.end(), "은 " if ends_in_consonant(place.before) else "는 ")
    found = place.match(_COMPARED)
    if not found:
        return None
    one, other = (
        part if part.isalpha() else korean.number(korean.numerals.parse(part))
        for part in (found[1], found[3])
    )
    topic = "은" if ends_in_consonant(one) else "는"
    return ReadForm(found.end(), f"{one}{topic} {other}보다 {tables.COMPARED[found[2]]}")


def _falling(place: Place, korean: Korean) -> ReadForm | None:
    """``12-10``: what falls is no range."""
    found = place.match(_FALLING)
    if not found or int(found[1]) <= int(found[2]):
        return None
    return ReadForm(found.end(), korean.ratio(korean.cardinal(found[1]), korean.cardinal(found[2])))


def _plot(place: Place, korean: Korean) -> ReadForm | None:
    """``12-3번지``, ``강남대로 123-4``."""
    found = place.match(_NUMBERED_PLOT) or place.match(_STREET)
    if not found:
        return None
    return ReadForm(found.end(), f"{korean.cardinal(found[1])} 다시 {korean.cardinal(found[2])}")


def _service(place: Place, korean: Korean) -> ReadForm | None:
    """``1588-1234``, ``119에 신고``, ``KE901편``."""
    if found := place.match(_FLIGHT):
        return ReadForm(found.end(), f"{found[1]} {korean.telephone_digits(found[2])}")
    if found := place.match(_SERVICE) or place.match(_BRACKETED):
        return ReadForm(
            found.end(), korean.grouped([korean.telephone_digits(part) for part in found.groups()])
        )
    found = place.match(_CALLED)
    return ReadForm(found.end(), korean.telephone_digits(found[1])) if found else None


def _part(place: Place, korean: Korean) -> ReadForm | None:
    """``2/3km``, ``응답자의 6/10``, ``1/√3``, ``√2``."""
    found = place.match(_PART)
    if found and found[3] != "mmHg":
        unit = tables.UNITS[found[3]]
        return ReadForm(found.end(), f"{korean.fraction(int(found[1]), int(found[2]))} {unit.one}")
    if found := place.match(_PART_OF):
        return ReadForm(found.end(), korean.fraction(int(found[1]), int(found[2])))
    found = place.match(_ROOT_PART)
    if found and "√" in found[0]:
        above, below = (
            ("루트 " if root else "") + korean.cardinal(digits)
            for root, digits in ((found[1], found[2]), (found[3], found[4]))
        )
        return ReadForm(found.end(), f"{below}분의 {above}")
    found = place.match(_ROOT)
    return ReadForm(found.end(), "루트 ") if found else None


def _half(place: Place, korean: Korean) -> ReadForm | None:
    """``PM 3:40``."""
    found = place.match(_HALF_BEFORE)
    if not found:
        return None
    half = korean.halves[found[1].lower()]
    if not found[2]:
        return ReadForm(found.end(), f"{half} ")
    return ReadForm(found.end(), korean.clock(Clock(int(found[2]), int(found[3]), half=half)))


def _one(place: Place, korean: Korean) -> ReadForm | None:  # noqa: ARG001
    """The one of ``1만`` and ``1천`` is silent."""
    found = place.match(_ONE)
    return ReadForm(found.end(), "") if found else None


def _day_of_history(place: Place, korean: Korean) -> ReadForm | None:
    """``6·25`` is six, two, five."""
    found = place.match(_HISTORY)
    if not found:
        return None
    last = korean.cardinal(found[2]) if found[2] in ("10", found[1]) else korean.digits(found[2])
    return ReadForm(found.end(), f"{korean.cardinal(found[1])}{last}")


def _per(place: Place, korean: Korean) -> ReadForm | None:  # noqa: ARG001
    """``5,000원/월``."""
    found = place.match(_PER)
    return ReadForm(found.end(), " 퍼 ") if found else None


def _roman(place: Place, korean: Korean) -> ReadForm | None:
    sign = place.text[place.start]
    return ReadForm(place.start + 1, korean.cardinal(str(ord(sign) - 0x215F))) if "Ⅰ" <= sign <= "Ⅻ" else None


def _file(place: Place, korean: Korean) -> ReadForm | None:  # noqa: ARG001
    """``사진.JPG``."""
    found = place.match(_FILE)
    return ReadForm(found.end(), f" 닷 {tables.ENDINGS_OF_FILES[found[1].lower()]}") if found else None


FORMS: tuple[Callable[[Place, Korean], ReadForm | None], ...] = (
    _service,
    _date,
    _score,
    _compared,
    _plot,
    _falling,
    _span,
    _counted,
    _times,
    _padded,
    _weekday,
    _to,
    _part,
    _half,
    _one,
    _day_of_history,
    _per,
    _roman,
    _file,
)

_PARTICLE = re.compile(r"[은는을를이가](?![가-힣])")
_AFTER_VOWEL = {"은": "는", "을": "를", "이": "가"}
_AFTER_CONSONANT = {vowel: consonant for consonant, vowel in _AFTER_VOWEL.items()}


def ends_in_consonant(words: str) -> bool:
    """Whether the last syllable does; False for other letters."""
    return "가" <= words[-1:] <= "힣" and (ord(words[-1]) - ord("가")) % 28 > 0


def agreed(form: ReadForm, text: str) -> ReadForm:
    """A form with the particle after it, which goes by the last sound; 이 and 가, which are also nouns, after
    fractions alone.
    """
    found = _PARTICLE.match(text, form.end)
    if not found or not "가" <= form.words[-1:] <= "힣" or (found[0] in "이가" and "분의" not in form.words):
        return form
    choice = _AFTER_CONSONANT if ends_in_consonant(form.words) else _AFTER_VOWEL
    return ReadForm(found.end(), form.words + choice.get(found[0], found[0]))
