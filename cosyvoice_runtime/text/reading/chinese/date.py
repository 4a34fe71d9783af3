"""Dates in digits: ``2024-05-17``, ``05/17/2024``, ``2024-05``, ``日期：5/20``, ``08-08``."""

from __future__ import annotations

import re
from math import gcd

from cosyvoice_runtime.text.reading.chinese.between import RANGE, in_equation, is_measured
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.language import Date
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_START = r"(?<![0-9A-Za-z./-])"
_FULL = re.compile(
    _START + r"(?P<year>[12][0-9]{3})(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})"
    r"(?![0-9]|[/.][0-9]|-[0-9]{1,2}(?![0-9./]))(?:T(?=[0-9]{2}:)|日)?"
)
_YEAR_LAST = re.compile(
    _START + r"(?P<first>[0-9]{1,2})(?P<mark>[-/.])(?P<second>[0-9]{1,2})(?P=mark)(?P<year>(?:19|20)[0-9]{2})"
    r"(?![0-9]|[-/.][0-9])"
)
_MONTH = re.compile(
    _START + r"(?P<year>(?:19|20)[0-9]{2})[-/](?P<month>0[1-9]|1[0-2])(?![0-9]|[-/.][0-9]"
    r"|\s?(?:赛季|学年|财年|年|元|万|个|人|名))"
)
_MONTH_FIRST = re.compile(
    _START + r"(?P<month>0[1-9]|1[0-2])[-/](?P<year>(?:19|20)[0-9]{2})(?![0-9]|[-/.][0-9])"
)
_DOTTED_MONTH = re.compile(_START + r"(?P<year>(?:19|20)[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?![0-9]|\.[0-9])")
_DAY = re.compile(
    _START + r"(?P<month>0?[1-9]|1[0-2])(?P<mark>[-/.])(?P<day>0?[1-9]|[12][0-9]|3[01])"
    r"(?![0-9%]|(?!-[0-9]{1,2}[./][0-9]{1,2}(?![0-9]))[-/.:][0-9])(?P<end>号(?!线|楼)|日)?"
)
_COMPACT = re.compile(
    _START + r"(?P<year>(?:19|20)[0-9]{2})(?P<month>0[1-9]|1[0-2])(?P<day>[0-3][0-9])(?![0-9])"
)
_DATED = re.compile(
    rf"(?:(?i:deadline|ddl|due|due date)\s?[是为在到：:]{{0,2}}\s?\Z"
    rf"|{tables.DATED}|(?:周|星期|礼拜)[一-日天]\s?[（(]|座[（(]|[奖货期限课费息假]日)[是为：:]{{0,2}}\s?\Z"
)
_DATED_AFTER = re.compile(
    r"\s?(?:[）)][日号]|[\u4e00-\u9fff]{0,4}节(?![约省目奏])|[（(]?(?:周|星期)[一-日天]|[（(][一二三四五六日][）)]|前(?!后)|当天|当日|起(?!重)|截止|到期|发布|开始|上线|上市|发售|发表|登场|举行|国庆|元旦|双十|[\u4e00-\u9fff]{0,3}纪念日"
    r"|开幕|开抢|出发|开学|生日|放假|开售|[0-9]{1,2}:[0-9]{2})"
)
_OF_BIRTH = re.compile("生日|出生|日期")
_PART_BEFORE = re.compile(r"(?:[是为约占的了即有加减乘除到较数率度量][：:]?|等于|[0-9A-Za-z+×÷*=])\s?\Z")
_DAY_BEFORE = re.compile(rf"(?:{tables.DATED})[^。！？]{{0,8}}[0-9]{{1,2}}/[0-9]{{1,2}}[^。！？]{{0,20}}\Z")
_OF_DAYS = re.compile(
    r"[出抵到]发?[发达]|入住|返程|行程|旅[行程]|日程|赛程|排期|Day|第[一二三四五六七0-9]天|开学|报名|截止|考试|开幕|预售|上线|发布|周[一-日]|[上中下]旬"
)
_PROGRESS = re.compile(r"(?:进度|完成|[率分页集例分度值]|部分)\s?[（(]\Z")
_OPENED = re.compile(r"[（(]\Z")
_CLOSED = re.compile(r"\s?[）)]")
_BRACKETED = re.compile(r"[（(](?:0?[1-9]|1[0-2])/([12]?[0-9]|3[01])[）)]")
_FORMULA_BEFORE = re.compile(r"[+×÷=*]|分之")
_LAST_DAY = re.compile(rf"{RANGE}(1?[0-9])/([12]?[0-9]|3[01])(?![0-9/.])")
_BETWEEN = re.compile(RANGE)


def read(place: Place) -> ReadForm | None:
    """A date, or a range of dates."""
    if not place.text[place.start].isdecimal():
        return None
    found = _single(place)
    if found is None:
        return None
    date, end = found
    language = place.language
    between = _BETWEEN.match(place.text, end)
    last = _single(place.apart(between.end()), is_dated=True) if between else None
    if between and last:
        return ReadForm(between.end() + last[1], language.ranged(language.date(date), language.date(last[0])))
    return ReadForm(end, language.date(date))


def _single(place: Place, is_dated: bool = False) -> tuple[Date, int] | None:
    if found := place.match(_FULL):
        return _checked(int(found["year"]), found["month"], found["day"], found.end())
    if found := place.match(_YEAR_LAST):
        month, day = found["first"], found["second"]
        if int(month) > 12:
            month, day = day, month
        return _checked(int(found["year"]), month, day, found.end())
    if found := place.match(_MONTH) or place.match(_MONTH_FIRST):
        return _checked(int(found["year"]), found["month"], None, found.end())
    is_dated = is_dated or bool(_DATED.search(place.before))
    found = place.match(_DOTTED_MONTH)
    if found and (is_dated or _is_alone(place, found)):
        return _checked(int(found["year"]), found["month"], None, found.end())
    found = place.match(_COMPACT)
    if found and (is_dated or place.near(_OF_BIRTH)):
        return _checked(int(found["year"]), found["month"], found["day"], found.end())
    found = place.match(_DAY)
    if not found:
        return None
    mark, padded = found["mark"], found["month"][0] == "0" and len(found["day"]) == 2
    is_counted = mark != "/" and is_measured(place.text, found.end()) and not found["end"]
    is_dated = is_dated or (mark == "/" and _is_of_no_part(place, found))
    if (
        (is_dated and not is_counted)
        or (padded and (mark != "." or _is_alone(place, found)))
        or (mark == "/" and (found["end"] or _DATED_AFTER.match(place.text, found.end())))
    ):
        return _checked(None, found["month"], found["day"], found.end())
    return None


def _is_of_no_part(place: Place, found: re.Match[str]) -> bool:
    """Whether two numbers are hardly a fraction: ``4/17``, and ``3/20`` after another day of the sentence."""
    month, day = int(found["month"]), int(found["day"])
    if _is_bracketed_day(place, found):
        return True
    if month == 1 or in_equation(place) or _FORMULA_BEFORE.search(place.before):
        return False
    if _is_span(place, found):
        return not _PART_BEFORE.search(place.before)
    is_odd = day > 10 and day % 2 and day % 5 and gcd(month, day) == 1
    if is_measured(place.text, found.end()):
        return False
    return not _PART_BEFORE.search(place.before) and bool(is_odd or _DAY_BEFORE.search(place.before))


def _is_span(place: Place, found: re.Match[str]) -> bool:
    """Whether another day of the same month or of the next follows: ``6/25-7/2``."""
    last = _LAST_DAY.match(place.text, found.end())
    if not last or is_measured(place.text, last.end()):
        return False
    month, day = int(last[1]), int(last[2])
    if month == int(found["month"]):
        return day > int(found["day"]) > 0
    return month == int(found["month"]) + 1 and int(found["day"]) > 12


def _is_bracketed_day(place: Place, found: re.Match[str]) -> bool:
    """Whether two numbers fill brackets among words of days, or other days do: ``出发（10/15）``."""
    if not _OPENED.search(place.before) or not _CLOSED.match(place.text, found.end()):
        return False
    if _PROGRESS.search(place.before):
        return False
    days = {int(day) for day in _BRACKETED.findall(place.text)}
    return place.near(_OF_DAYS) or (len(days) > 1 and max(days) > 12)


def _is_alone(place: Place, found: re.Match[str]) -> bool:
    return place.start == 0 and not place.text[found.end() :].strip(" 。.-–~0123456789")


def _checked(year: int | None, month: str, day: str | None, end: int) -> tuple[Date, int] | None:
    if not 1 <= int(month) <= 12 or (day is not None and not 1 <= int(day) <= 31):
        return None
    return Date(int(month), None if day is None else int(day), year), end
