"""Numbers alone: years, ranges, versions, decimals, whole numbers and the signs before them."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import (
    NUMBER,
    RANGE,
    counts,
    in_equation,
    is_measured,
    parsed,
    worded,
)
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.chinese import without_zeros
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_YEARS = re.compile(
    rf"(?<![0-9.:/-])(?P<low>[12][0-9]{{3}})(?:\s?年?{RANGE}(?P<high>[12][0-9]{{3}}|[0-9]{{2}}(?=赛季|学年|财年|年度)))"
    r"(?![0-9-]|[.:,][0-9])"
)
_YEAR = re.compile(
    rf"(?<![0-9.:/-])(?P<low>[12][0-9]{{3}})(?=(?:\s?[、和与及或至到]\s?[12][0-9]{{3}}){{0,4}}\s?(?:{tables.AFTER_YEAR}))"
)
_ERA_YEAR = re.compile(
    r"[0-9]{2,4}(?=\s?年|\s?[-－–—~～至到]\s?前?[0-9]{2,4}\s?年)"
    r"|[0-9]{3,4}(?=\s?[-－–—~～至到]\s?前[0-9]{2,4}\s?[)）])|(?<=[0-9][-－–—~～至到]前)[0-9]{2,4}(?=\s?[)）])"
)
_ERA_BEFORE = re.compile(
    r"公元前?\s?\Z|[（(]前\s?\Z|公元[^。！？]{0,24}[，、（(年0-9]\s?[-－–—~～至到]?\s?前\s?\Z|[0-9]\s?年?\s?[-－–—~～至到]\s?前\Z"
)
_BOTH_EARLY = re.compile(
    r"(?:[0-9]{3,4}|[0-9]{2}(?=\s?年))(?=\s?年?\s?[-－–—~～至到]\s?前\s?[0-9]{1,4}\s?年?)"
)
_BORN_EARLY = re.compile(r"[0-9]{3}(?=\s?年)")
_BORN_BEFORE = re.compile(r"[于约]\s?前\s?\Z")
_EARLY = re.compile(r"前\s?\Z")
_EARLY_YEAR = re.compile(
    r"(?:(?<![0-9.:/-])|(?<=年[-－]))[1-9][0-9]{2}(?=\s?年(?:[-–—~～－至到]\s?[0-9]{3}|(?![前后来间多余级的之])(?!历史)))"
)
_EARLY_BEFORE = re.compile(r"(?:^|[\s于在自从至到（(，。、]|一说|[或约]|年[-–—~～－])\Z")
_TITLE_YEAR = re.compile(
    r"(?:1[0-9]|20)[0-9]{2}(?![0-9.,:/年%-]|\s?[－–—~～])|(?<=[（(])(?:19|20)[0-9]{2}(?=[)）])"
)
_TITLE_BEFORE = re.compile(
    r"《\Z|(?:Office|Photoshop|Studio|Server|Visual|Acrobat|AutoCAD|MATLAB|Premiere) \Z"
)
_ENDS_YEAR = re.compile(r"\s?年?[-–—~～－]\s?[0-9]{3,4}\s?年")
_LIVED = re.compile(rf"(?<=[(（])([1-9][0-9]{{2}}){RANGE}([1-9][0-9]{{2,3}})(?=\s?年?[)）])")
_TOGETHER = re.compile(
    r"(?<![0-9.])(?:19|20)[0-9]{2}(?=((?:\s?[、和与]\s?(?:19|20)[0-9]{2}){1,4})?\s?这?[两三四五]年)"
)
"""Years that are counted after the last: ``2023、2024两年``."""
_SPAN = re.compile(rf"(?<=[（(])([12][0-9]{{3}}){RANGE}([12][0-9]{{3}})(?=[)）])")
_RECENT = re.compile(
    r"(?<![0-9.:/-])(?:19[5-9][0-9]|20(?:0[1-9]|[1-4][0-9]))(?![0-9A-Za-z%]|[.,:/][0-9]|\s?[-~+×*/])"
)
_RECENT_BEFORE = re.compile(r"(?:^|[于在从自至迎入、，。\s])\Z")
_RECENT_AFTER = re.compile(
    r"(?:$|[，。、！；\s]|总结|计划|目标|展望|回顾|加油|你好|再见|新|最|全球|中国|[\u4e00-\u9fff]{0,4}(?:奥运|亚运|世博|欧洲杯|世界杯|大会|峰会|年会|论坛|马拉松|展会|车展))"
)
_LASTS_AFTER = re.compile(r"\s?年(?:的?(?:历史|文明|时间|光阴|岁月|传统|寿命)|之久|多|余|间)")
_LASTS_BEFORE = re.compile(r"(?:距今|已有|长达|历经|持续|经历|历时|近|超过|约|过去|上下|[有了])\s?\Z")
_LASTS_ROUND = re.compile(r"\s?年(?:前(?!后)|来)")
_OF_TWO_DIGITS = re.compile(
    r"['’‘]([0-9]{2})(?=\s?[年级届])|(?<![0-9.])(0[0-9])(?=\s?[年级届款])|(?<![0-9.])([0-9]{2})(?=年[0-9]{1,2}月)"
    r"|(?<![0-9.])([89][0-9])(?=年(?:出生|生|毕业|入学|入职|建成|款|产|世界杯|奥运|春|夏|秋|冬|初|底|末|版|的(?:酒|老|车|房|拉菲)))|(?<![0-9])((?:19|20)[0-9]{2})(?=后)"
    r"|(?<![0-9.])([1-9][1-9])(?=\s?折(?![合算叠腾]))|(?<![0-9.到达过至为])([0-9][05])(?=(?:\s?[、和]\s?[0-9][05])*\s?后)"
)
_SCIENTIFIC = re.compile(rf"({NUMBER})[eE]([-+]?[0-9]{{1,3}})(?![0-9A-Za-z.])")
_DOTTED = re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+){2,}(?![0-9])")
_RANGE = re.compile(
    rf"(?P<low>{NUMBER})(?P<scale>[十百千万亿]{{0,2}})(?P<mark>{RANGE})(?P<high>{NUMBER}|(?<=[~～])-{NUMBER})(?![0-9]|[.,:][0-9]|-[0-9])"
)
_TEAM_BEFORE = re.compile(r"[A-Z][a-z]+ \Z")
_TEAM_AFTER = re.compile(" [A-Z][a-z]+")
_BOUGHT = re.compile(r"(?:[满每]\s?[0-9]*|[0-9][件元份单])\Z")
_FIGURE = re.compile(r"(?:图|表|例|式|题|公式|附录|习题|图表|算法|代码清单|型号)\s?\Z")
_ORDINAL = re.compile(r"第\s?\Z")
_OF_MONEY = re.compile(r"\s?[十百千]?[万亿]?(?:[美日欧港澳加韩]?元|英镑|新台币|块(?![^钱，。！？；\s]))")
_NUMBER = re.compile(NUMBER + r"|(?<![0-9.])\.[0-9]+")
_JOINED = re.compile(RANGE)
_OF_EQUATION = re.compile(r"[=＝][^，。；=]{0,20}\Z")
_TAKEN_AFTER = re.compile(r"[万亿元]{1,2}\s?[-−]")
_EQUAL_BEFORE = re.compile(r"[=＝][^，。；=]{0,20}[0-9][万亿元]\Z")
_TAKEN = re.compile(r"[0-9.]+[万亿元]\s?[-−]")
_UNIT_BEFORE = re.compile(r"[0-9一二三四五六七八九十半]\s?([\u4e00-\u9fff%℃°]{1,3}|[A-Za-z]{1,3})\Z")
_AFTER_UNIT = re.compile(r"(?:[0-9]{1,4}(?:[:：][0-9]{2}|(?:\.[0-9]+)?\s?([\u4e00-\u9fff%℃°A-Za-z]{1,3})))")
_CHINESE_RANGE = re.compile(
    r"\s?(?:[–—]{1,2}|[-－~～])\s?(?=(?:周|星期|礼拜)?[一二三四五六七八九十日]|(?:公元)?前\s?[0-9]{1,4}\s?[年名位强)）]|约\s?[0-9]{2,4}\s?年|(?:次日|翌日|第二天|凌晨|早上|上午|中午|下午|晚上?)\s?[0-9])"
)
_CHINESE_BEFORE = re.compile(
    r"(?:(?:周|星期|礼拜)[一二三四五六日天]|[一二三四五六七八九十百][月日号点年级天个折楼层]?|[0-9]{1,2}(?:[:：][0-9]{2}|[点时]半?)|[0-9]{2,4}\s?年|前\s?[0-9]{1,4}\s?[年名位强]?)\Z"
)
_MINUS = re.compile(r"[-−－]\s?(?=\.?[0-9])")
_NEGATIVE_BEFORE = re.compile(
    r"(?:^|[\s，。；：、:;,=（(\[<>≥≤≈×÷*/^|“\"~～到至为是在达低降约从涨跌幅率增比于度数值差温润净利了得变拔额速益标分距势压深盘]|零下)\Z"
)
_NEGATIVE_AFTER = re.compile(rf"[-−]\s?{NUMBER}\s?(?:%|D(?![A-Za-z])|°|℃|度|摄氏)")
_NAME_BEFORE = re.compile(r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?\Z")
_OPTION_BEFORE = re.compile(r"(?<![A-Za-z0-9])(?:log|head|tail|kill|ls|top|show|diff|make) \Z")
_SERIES_BEFORE = re.compile(r"(?<![A-Za-z0-9])([A-Z])[0-9]{1,3}\Z")
_LESS = re.compile(r"[0-9.]+\s?(?:BP|bp|个?基点)")
_HOUSE = re.compile(r"#([0-9]{1,3})\s?(?=[楼栋幢座机炉门库井泵车])")
_OF_GRADE = re.compile(r"(?<![0-9])[0-9]{1,2}\Z")
_GRADED = re.compile(r"#(?:[\u4e00-\u9fff，、。；/）)]|\s|$)")
_SIGN = re.compile(r"[~～≈#№]\s?(?=[0-9])|[~～]+(?=[\s，。！？；、）]|$)")
_LONG_CODE = re.compile(r"#\s?([0-9]{5,})(?![0-9])")
_EXTENSION = re.compile(r"#\s?([0-9]{2,5})(?![0-9])")
_TELEPHONE_BEFORE = re.compile(r"[0-9]{3,4}-[0-9]{3,4}\s?\Z")
_SIGNS = {"~": "约", "～": "约", "≈": "约等于", "#": "第", "№": "第"}


def read(place: Place) -> ReadForm | None:
    """A number, or a sign before or between numbers."""
    if not place.text[place.start].isdecimal():
        return _of_two_digits(place) or _hyphen(place) or _sign(place) or _number(place)
    return first((_scientific, _year, _of_two_digits, _dotted, _range, _number), place)


def _scientific(place: Place) -> ReadForm | None:
    """``1e-4``: one times ten to the minus four."""
    found = place.match(_SCIENTIFIC)
    if not found:
        return None
    language = place.language
    number = language.number(parsed(found[1], language))
    return ReadForm(found.end(), f"{number}乘十{language.power(found[2].lstrip('+'))}")


def _year(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_YEARS)
    if found and not (
        is_measured(place.text, found.end()) and not re.match(r"\s?[年级届]", place.text[found.end() :])
    ):
        low, high = found["low"], found["high"]
        if len(high) == 2 or (
            low < high
            and (low[:2] in ("19", "20", "18") or place.text[found.end() :].lstrip().startswith("年"))
        ):
            return ReadForm(found.end(), language.ranged(language.digits(low), language.digits(high)))
    found = place.match(_YEAR)
    if found and not _lasts(place, found):
        return ReadForm(found.end(), language.digits(found[0]))
    found = place.match(_TOGETHER)
    if found and (found[1] or re.search(r"[0-9][、和与]\s?\Z", place.before)):
        return ReadForm(found.end(), language.digits(found[0]))
    if (found := place.match(_SPAN)) and _is_of_years(int(found[1]), int(found[2])):
        return ReadForm(found.end(), language.ranged(*map(language.digits, found.groups())))
    found = place.match(_TITLE_YEAR)
    if found and (place.before[-1:] in ("（", "(") or _TITLE_BEFORE.search(place.before)):
        return ReadForm(found.end(), language.digits(found[0]))
    if found := place.match(_LIVED):
        return ReadForm(found.end(), language.ranged(*map(language.digits, found.groups())))
    found = place.match(_EARLY_YEAR)
    before = found and _EARLY_BEFORE.search(place.before)
    if (
        found
        and before
        and (
            before[0].startswith("年")
            or not found[0].endswith("0")
            or _ENDS_YEAR.match(place.text, found.end())
        )
    ):
        return ReadForm(found.end(), language.digits(found[0]))
    if (found := place.match(_BOTH_EARLY)) and _EARLY.search(place.before):
        return ReadForm(found.end(), language.digits(found[0]))
    if (found := place.match(_BORN_EARLY)) and _BORN_BEFORE.search(place.before):
        return ReadForm(found.end(), language.digits(found[0]))
    found = place.match(_ERA_YEAR)
    if found and _ERA_BEFORE.search(place.before):
        return ReadForm(found.end(), language.digits(found[0]))
    found = place.match(_RECENT)
    if (
        found
        and _RECENT_BEFORE.search(place.before)
        and _RECENT_AFTER.match(place.text, found.end())
        and place.text.strip() != found[0]
        and (not is_measured(place.text, found.end()) or re.match(r"\s?年", place.text[found.end() :]))
    ):
        return ReadForm(found.end(), language.digits(found[0]))
    return None


def _is_of_years(first: int, last: int) -> bool:
    """Whether two numbers in brackets are the years of a life or a reign, and no round amounts."""
    is_odd = first % 10 and last % 10
    return first < last < 2100 and bool(is_odd or (last - first <= 120 and (first % 100 or last % 100)))


def _lasts(place: Place, found: re.Match[str]) -> bool:
    """Whether a number of years is a length of time."""
    year = int(found["low"])
    if year > 2199:
        return True
    if _LASTS_AFTER.match(place.text, found.end()):
        return year % 10 == 0
    if year % 100:
        return False
    return bool(_LASTS_BEFORE.search(place.before)) or bool(
        year % 500 == 0 and _LASTS_ROUND.match(place.text, found.end())
    )


def _of_two_digits(place: Place) -> ReadForm | None:
    found = place.match(_OF_TWO_DIGITS)
    return ReadForm(found.end(), place.language.digits(found[0].lstrip("'’‘"))) if found else None


def _dotted(place: Place) -> ReadForm | None:
    found = place.match(_DOTTED)
    if not found:
        return None
    language = place.language
    parts = [
        language.digits(part) if len(part) > 2 else language.cardinal(part) for part in found[0].split(".")
    ]
    return ReadForm(found.end(), "点".join(parts))


def _range(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_RANGE)
    if not found or _NAME_BEFORE.search(place.before):
        return None
    low, high = parsed(found["low"], language), parsed(found["high"], language)
    end = found.end()
    if in_equation(place) and not (low.value < high.value and is_measured(place.text, end)):
        return None
    is_counted = counts(place, end)
    words = (
        worded(low, is_counted or bool(found["scale"]), language) + found["scale"],
        worded(high, is_counted, language),
    )
    if "~" not in found["mark"] and "～" not in found["mark"]:
        if low == high and not found["scale"] and not is_measured(place.text, end):
            return ReadForm(end, language.ratio(*words))
        if _OF_EQUATION.search(place.before) and _TAKEN_AFTER.match(place.text, end):
            return ReadForm(end, f"{words[0]}减{words[1]}")
        falls_by = low.value > high.value and _BOUGHT.search(place.before)
        if place.before.rstrip().endswith("满") or falls_by:
            return ReadForm(end, f"{words[0]}减{words[1]}")
        if _FIGURE.search(place.before):
            return ReadForm(end, f"{words[0]}杠{words[1]}")
        if low.value > high.value and not found["scale"] and not is_measured(place.text, end):
            is_of_teams = _TEAM_BEFORE.search(place.before) and _TEAM_AFTER.match(place.text, end)
            if max(low.value, high.value) < 100 or is_of_teams:
                return ReadForm(end, language.ratio(*words))
            return ReadForm(end, f"{words[0]}杠{words[1]}")
    return ReadForm(end, language.ranged(*words))


def _number(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_NUMBER)
    if not found:
        return None
    end = found.end()
    numeral = parsed(found[0], language)
    if re.fullmatch("0[0-9]", found[0]) and re.match(r"\s?[月日号点时]", place.text[end:]):
        numeral = Numeral(found[0][1:])
    if _OF_MONEY.match(place.text, end):
        numeral = without_zeros(numeral)
    is_ordinal = bool(_ORDINAL.search(place.before))
    return ReadForm(end, worded(numeral, counts(place, end), language, is_ordinal))


def _hyphen(place: Place) -> ReadForm | None:
    """A hyphen in a range of what has units, in a name, or before a negative number."""
    language, text = place.language, place.text
    found = place.match(_CHINESE_RANGE)
    if found and _CHINESE_BEFORE.search(place.before):
        return ReadForm(found.end(), language.to)
    found = place.match(_JOINED)
    if found and _EQUAL_BEFORE.search(place.before) and _TAKEN.match(text, found.end()):
        return ReadForm(found.end(), "减")
    if found and _joins(place, found.end()):
        return ReadForm(found.end(), language.to)
    series = _SERIES_BEFORE.search(place.before)
    if found and series and re.match(rf"{series[1]}[0-9]", text[found.end() :]):
        return ReadForm(found.end(), language.to)
    found = place.match(_MINUS)
    if not found:
        return None
    if _OPTION_BEFORE.search(place.before) and not is_measured(text, found.end() + 1):
        return ReadForm(found.end(), "杠")
    if _LESS.match(text, found.end()):
        return ReadForm(found.end(), "减")
    if _NAME_BEFORE.search(place.before):
        return ReadForm(found.end(), language.pause if place.before[-1:].isdecimal() else "")
    if re.search(r"[0-9)）]\Z", place.before):
        return None
    if _NEGATIVE_BEFORE.search(place.before) or _NEGATIVE_AFTER.match(text, place.start):
        return ReadForm(found.end(), language.minus)
    return ReadForm(found.end(), "")


def _joins(place: Place, end: int) -> bool:
    """Whether the same unit, or that of a day or time, stands on both sides of a mark."""
    before, after = _UNIT_BEFORE.search(place.before), _AFTER_UNIT.match(place.text, end)
    if not before or not after:
        return False
    one, other = before[1], after[1]
    if other is None:
        return one.startswith("点") or one[-1] in "分点时"
    kinds = ("年月", "月日号", "日号月", "点时分半", "分点", "号日月", "日号年")
    return one[0] == other[0] or any(one[-1] in kind and other[0] in kind for kind in kinds)


def _sign(place: Place) -> ReadForm | None:
    sign = place.text[place.start]
    if sign == "#" and _OF_GRADE.search(place.before) and _GRADED.match(place.text, place.start):
        return ReadForm(place.start + 1, "号")
    if (extension := place.match(_EXTENSION)) and _TELEPHONE_BEFORE.search(place.before):
        return ReadForm(extension.end(), f"转{place.language.telephone_digits(extension[1])}")
    if found := place.match(_HOUSE):
        return ReadForm(found.end(), f"{place.language.cardinal(found[1])}号")
    if found := place.match(_LONG_CODE):
        return ReadForm(found.end(), place.language.digits(found[1]))
    found = place.match(_SIGN)
    if found and sign in "~～" and not place.text[found.end() : found.end() + 1].isdecimal():
        return ReadForm(found.end(), "")
    if not found or (place.before[-1:].isalnum() and sign in "#~～" and place.before[-1:].isascii()):
        return None
    if sign == "#" and re.search(r"[A-Za-z] ?\Z", place.before):
        return ReadForm(found.end(), "")
    return ReadForm(found.end(), _SIGNS[sign])
