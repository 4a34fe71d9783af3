"""Numbers of machines: ports, codes of answers, ``0x1F``, ``128M tokens``, ``%.2f``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import is_measured, parsed, times
from cosyvoice_runtime.text.reading.languages.initials import INITIALS
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_PORT = re.compile(
    r"(?<![0-9A-Za-z.,:/¥$-])[0-9]{2,5}(?![0-9A-Za-z%℃]|[.,:/-][0-9]|\s?(?:并发|连接|请求|QPS|字|用户|以[上下内]|左右|[-~～至到]\s?[0-9]+\s?个))"
)
_PORTS = re.compile(r"(?<![0-9A-Za-z.:/-])([0-9]{4,5}):([0-9]{2,5})(?![0-9:.])")
_CELLS = re.compile(
    r"(?<=[A-Z])(?<![A-Z]{4}):(?=[A-Z]{1,3}(?![A-Za-z0-9]))|(?<=[A-Z0-9][0-9]):(?=[A-Z]{1,2}[0-9]+(?![A-Za-z]))"
)
_AFTER_NAME = re.compile(r"(?<=localhost:)[0-9]{2,5}(?![0-9])|(?<=chmod )[0-7]{3,4}(?![0-9])")
_PORT_AFTER = re.compile(r"\s?(?:(?:号|[和与、/或]\s?[0-9]{2,5}\s?)?(?:端口|连接埠|埠)(?!号?[数个])|被占用)")
_PORT_BEFORE = re.compile(
    r"(?:端口号?|埠号?|监听|映射[到至为]|暴露|放行|[Pp]ort)[是为用了在：:=]{0,2}\s?(?:[0-9]{2,5}\s?[和与、/或到至]\s?){0,4}\Z"
)
_NAMED_BEFORE = re.compile(
    r"(?:[是为成到用和或与、口，：将把由从]|默认|访问|Redis|MySQL|PostgreSQL|MongoDB|Tomcat|占用了?)\s?\Z"
)
_OF_PORTS = re.compile(r"(?i)端口|埠|占用|监听|映射到|\bports?\b|localhost|Redis|MySQL|PostgreSQL|MongoDB")
_ANSWER = re.compile(r"[1-5](?:0[0-9]|1[0-9]|2[0-9]|51)(?![0-9A-Za-z%]|[.,:/-][0-9])")
_ANSWERS = re.compile(r"[1-5][0-9]{2}(?:/[1-5][0-9]{2}){1,4}(?![0-9A-Za-z/.])")
_ANSWER_BEFORE = re.compile(
    r"(?:状态码|错误码|响应码|返回码?|报错?|出现|遇到|[Ss]tatus|code)[了是为：:]{0,2}\s?(?:[1-5][0-9]{2}\s?[和与、/或，]\s?){0,4}\Z"
    r"|状态码[^。！？]*[^0-9.][是为：:，、；]\s?\Z"
)
_ANSWER_AFTER = re.compile(r"\s?(?:错误|页面|报错|状态码?|界面|响应)")
_OF_ANSWERS = re.compile(r"(?i)nginx|\bhttps?\b|后端|网关|状态码")
_MILLIONS = re.compile(
    r"(?<![0-9A-Za-z.,$¥])([0-9]{1,4}(?:\.[0-9]+)?)(?:M(?=\s?(?:(?:in|out)put|tokens?\b|上下文|用户|参数|次调用|条数据))|\s?([mb]illion)(?![a-z]))"
)
_HEXADECIMAL = re.compile(r"(?<![0-9A-Za-z])0x([0-9A-Fa-f]{1,16})(?![0-9A-Za-z])")

_FORMAT = re.compile(
    r"(?<![0-9A-Za-z])(?:(?P<sign>%)|(?<=:)|(?=\.[0-9]{1,2}[fe]))\.(?P<digits>[0-9]{1,2})(?=[defgs](?![0-9A-Za-z]))"
)
"""How a program writes a number; ``.5g`` alone is half a gram."""


def read(place: Place) -> ReadForm | None:
    """The digits one by one, of what machines number."""
    language = place.language
    if place.match(_CELLS):
        return ReadForm(place.start + 1, language.to)
    if found := place.match(_FORMAT):
        sign = "百分号" if found["sign"] else ""
        return ReadForm(found.end(), f"{sign}点{language.cardinal(found['digits'])}")
    if found := place.match(INITIALS):
        return ReadForm(found.end(), found[0].upper())
    if not place.text[place.start].isdecimal():
        return None
    if found := place.match(_MILLIONS):
        return ReadForm(
            found.end(),
            language.cardinal(times(parsed(found[1], language), 9 if found[2] == "billion" else 6)),
        )
    if found := place.match(_HEXADECIMAL):
        return ReadForm(found.end(), f"零x{language.digits(found[1])}")
    if (found := place.match(_PORTS)) and place.near(_OF_PORTS):
        return ReadForm(found.end(), "冒号".join(map(language.digits, found.groups())))
    found = place.match(_AFTER_NAME)
    if found or ((found := place.match(_PORT)) and _is_port(place, found)):
        return ReadForm(found.end(), language.digits(found[0]))
    if (
        (found := place.match(_ANSWERS))
        and place.near(_OF_ANSWERS)
        and not re.search(r"[0-9/]\Z", place.before)
    ):
        return ReadForm(found.end(), "、".join(map(language.digits, found[0].split("/"))))
    found = place.match(_ANSWER)
    if not found or is_measured(place.text, found.end()):
        return None
    begins = re.search(r"(?:^|[，。；、：:])\s?\Z", place.before) and place.near(_OF_ANSWERS)
    if begins or _ANSWER_BEFORE.search(place.before) or _ANSWER_AFTER.match(place.text, found.end()):
        return ReadForm(found.end(), language.digits(found[0]))
    return None


def _is_port(place: Place, found: re.Match[str]) -> bool:
    """Whether words beside a number say that it is that of a port; 22 and 25 alone count anything."""
    if _PORT_AFTER.match(place.text, found.end()):
        return True
    if is_measured(place.text, found.end()) or found[0].startswith("0"):
        return False
    if _PORT_BEFORE.search(place.before):
        return True
    is_long = len(found[0]) > 3 and not found[0].endswith("00")
    return is_long and bool(_NAMED_BEFORE.search(place.before)) and place.near(_OF_PORTS)
