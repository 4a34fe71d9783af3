"""Times of day and lengths of time: ``9:30``, ``9:00 - 18:00``, ``21:51:31``, ``用时5:30``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import RANGE, is_score
from cosyvoice_runtime.text.reading.languages.language import Clock, Language, Unit
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_TIME = re.compile(
    r"(?<![0-9A-SU-Za-z.])(?<![0-9][:：])(?P<hour>[01]?[0-9]|2[0-4]):(?P<minute>[0-5][0-9])(?:[:：](?P<second>[0-5][0-9])(?:\.0+)?)?"
    r"(?![0-9]|[:：.][0-9])(?:\s?(?P<half>[AaPp]\.?[Mm]\.?)(?![A-Za-z]))?(?:分(?!钟))?"
)
_HOURS = re.compile(r"(?<![0-9A-Za-z.:])(?P<hour>1[0-2]|[1-9])\s?(?P<half>[AaPp]\.?[Mm]\.?)(?![A-Za-z])")
_BETWEEN = re.compile(RANGE)
_LENGTH = re.compile(
    r"(?:[半全]马|时长|用时|用了|跑出|完赛|耗时|片长|历时|配速|成绩|倒计时|时间差)[是为约：:]{0,2}\s?\Z"
)
_MINUTES = re.compile(r"分钟?")
_PARTS = re.compile(
    r"(?<![0-9A-Za-z.])(?:(?P<hour>[0-9]{1,3})\s?(?:h|hr|hrs)\s?)?(?:(?P<minute>[0-9]{1,3})\s?(?:m|min|mins)\s?)?"
    r"(?:(?P<second>[0-9]{1,3})\s?(?:s|sec))?(?![0-9A-Za-z])"
)
_LAP = re.compile(
    r"(?<![0-9A-Za-z.:：])(?P<minute>[0-9]{1,2}):(?P<second>[0-5][0-9])\.(?P<part>[0-9]{2,3})(?![0-9.])"
)
_PACE = re.compile(
    r"(?<![0-9A-Za-z.])(?P<minute>[0-9]{1,3})['’′](?P<second>[0-5][0-9])(?:[\"”″]|['’′]{2})(?:\s?/\s?(?P<per>km|公里))?"
)
_RATIO = re.compile(
    r"(?:[:：][A-Za-z\u4e00-\u9fff]\s?=|(?<!时间)(?<!成绩)[^相对]比|比例|配比|比率|比重|稀释|缩放|汇率|赔率|按|兑|尺)[是为约：:]{0,2}\s?\Z"
)
_SAID = re.compile(r"(?:上午|下午|早上|晚上|凌晨|中午|傍晚|深夜|午后|清晨|今晚|明晚|昨晚)\s?\Z")


def read(place: Place) -> ReadForm | None:
    """A time of day, or a range of times."""
    if not place.text[place.start].isdecimal():
        return None
    lap = place.match(_LAP)
    if lap and not _RATIO.search(place.before):
        return ReadForm(lap.end(), _length(lap, place.language) + place.language.digits(lap["part"]))
    if pace := place.match(_PACE):
        per = "每公里" if pace["per"] else ""
        return ReadForm(pace.end(), _length(pace, place.language) + per)
    parts = place.match(_PARTS)
    if parts and sum(map(bool, parts.groups())) > 1:
        return ReadForm(parts.end(), _length(parts, place.language))
    first = place.match(_TIME) or place.match(_HOURS)
    if first is None or is_score(place, first.end()) or _RATIO.search(place.before):
        return None
    language = place.language
    if _LENGTH.search(place.before) and first.groupdict().get("second"):
        return ReadForm(first.end(), _length(first, language))
    if _LENGTH.search(place.before):
        rest = _MINUTES.match(place.text, first.end())
        minute, second = int(first["hour"]), int(first["minute"])
        seconds = f"{language.cardinal(str(second))}秒" if second else "钟"
        return ReadForm(rest.end() if rest else first.end(), f"{language.cardinal(str(minute))}分{seconds}")
    words = _words(first, language, bool(_SAID.search(place.before)))
    between = _BETWEEN.match(place.text, first.end())
    second_time = place.apart(between.end()).match(_TIME) if between else None
    if between and second_time:
        return ReadForm(
            between.end() + second_time.end(), language.ranged(words, _words(second_time, language, False))
        )
    return ReadForm(first.end(), words)


def _length(found: re.Match[str], language: Language) -> str:
    """A length of time in parts: ``1h30min``, ``5'30"``."""
    names = {"hour": "小时", "minute": "分", "second": "秒"}
    given = {name: (found.groupdict().get(name) or "").lstrip("0") for name in names}
    parts = {name: written for name, written in given.items() if written} or {"second": "0"}
    words = [
        language.counted(Numeral(written), Unit(names[name], names[name])) for name, written in parts.items()
    ]
    return "".join(words) + ("钟" if "second" not in parts else "")


def _words(found: re.Match[str], language: Language, is_half_said: bool) -> str:
    parts = found.groupdict()
    hour, half = int(parts["hour"]), ""
    if parts["half"] and not is_half_said:
        half = _half(parts["half"][0].lower(), hour)
    second = int(parts["second"]) if parts.get("second") else None
    return language.clock(Clock(hour, int(parts.get("minute") or 0), second, half))


def _half(letter: str, hour: int) -> str:
    if letter == "a":
        return "上午"
    return "晚上" if 6 <= hour < 12 else "下午"
