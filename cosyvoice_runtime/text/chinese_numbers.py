"""Numbers of Chinese text in words."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.rules import EAST_ASIAN_NUMERALS, Read, Rule, apply, plain, read_by_clause, rule

_HAN = "\u3007\u3400-\u9fff"
# Bounded, since the library holds the interpreter's lock for about 0.5 ms per character.
_CLAUSE = re.compile(rf"(?:[{_HAN}0-9A-Za-z%°℃℉$€£¥~+\-=×÷*/²³ ]|[.:,](?=[0-9A-Za-z])){{1,120}}")
_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_TELEPHONE_DIGITS = str.maketrans("0123456789", "零幺二三四五六七八九")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_START = r"(?<![0-9.])"
_CURRENCIES = "USD|EUR|GBP|JPY|CNY|RMB|HKD"
_MONEY = {"¥": "元", "$": "美元", "€": "欧元", "£": "英镑"}
_RANGE = r"\s?[-~–—～]\s?"
_UNITS = {
    "kWh": "千瓦时", "mAh": "毫安时", "dB": "分贝", "mL": "毫升", "Hz": "赫兹", "kHz": "千赫兹",
    "MHz": "兆赫兹", "GHz": "吉赫兹", "V": "伏", "W": "瓦", "Mbps": "兆比特每秒", "Gbps": "吉比特每秒",
    "rpm": "转每分", "‰": "‰",
}  # fmt: skip
_URL_SIGNS = {
    ".": "点", "/": "斜杠", "-": "杠", "_": "下划线", "@": "艾特", "?": "问号", "=": "等于", "&": "和",
    "#": "井号", "%": "百分号", "+": "加", "~": "波浪号", ":": "冒号",
}  # fmt: skip
_HOST = r"[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63}){0,5}\.[A-Za-z]{2,}(?![0-9A-Za-z])"
_CALLED = r"电话|手机号?码?|热线|传真|拨打|致电|客服|房间号?|航班号?|车次"
_NUMBERED = (
    r"QQ号?|微信号?|密码|验证码|口令|门牌号?|编号|单号|订单号?|账号|帐号|卡号|学号|工号|尾号|邮编|邮政编码|代码|编码"
    r"|ISBN|ISSN|RTX|GTX|ISO|RFC"
)
_BEFORE_DIGITS = "(?:号码?)?(?:[是为：:] ?| )?[A-Za-z]{0,3}"
_NO_COUNT = "(?![0-9.:%年月日天时分秒岁元块个万亿人次名位家种行条本页字份张件台套米公斤吨度倍多余来左起-])"
_WON = "领先|落后|战胜|击败|取胜|获胜|大胜|完胜|横扫|逆转|战平|负于|不敌"
_AFTER_LETTER = "层楼栋座区口出号室单幢排级组班期"


def _spoken(match: re.Match[str]) -> str:
    return match[0].translate(_DIGITS)


def _telephone(match: re.Match[str]) -> str:
    return re.sub("[^0-9]", "", match[0]).translate(_TELEPHONE_DIGITS)


def _abroad(match: re.Match[str]) -> str:
    return "加" + _telephone(match)


def _called(match: re.Match[str]) -> str:
    return match[1] + match[2].translate(_TELEPHONE_DIGITS)


def _numbered(match: re.Match[str]) -> str:
    return match[1] + match[2].translate(_DIGITS)


def _code(match: re.Match[str]) -> str:
    return match[1] + match[2].translate(_DIGITS)


def _address(match: re.Match[str]) -> str:
    address = re.sub("^https?://", "", match[0]).rstrip("/").translate(_DIGITS)
    return "".join(_URL_SIGNS.get(character, character) for character in address)


def _money(match: re.Match[str]) -> str:
    return _plain_decimal(match[2]) + (match[3] or "") + (match[4] or _MONEY[match[1]])


def _date(match: re.Match[str]) -> str:
    return f"{match[1]}年{int(match[2])}月{int(match[3])}日"


def _date_by_month(match: re.Match[str]) -> str:
    """Month before day, unless that can't be."""
    month, day = sorted((int(match[1]), int(match[2]))) if int(match[1]) > 12 else match.group(1, 2)
    return f"{match[3]}年{int(month)}月{int(day)}日"


def _power(match: re.Match[str]) -> str:
    sign = "负" if match[1] == "-" else ""
    return f"的{sign}{match[2]}次方"


def _fraction(match: re.Match[str]) -> str:
    return f"{match[1]}又{match[3]}分之{match[2]}"


def _unit(match: re.Match[str]) -> str:
    return match[1] + _UNITS[match[2]]


_PREPARE: list[Rule] = [
    rule(r"https?://[0-9A-Za-z./%#?=&+~_:@-]{1,100}(?<![.:?&])", _address),
    rule(rf"(?<![0-9A-Za-z.+_-])[0-9A-Za-z.+_-]{{1,64}}@{_HOST}", _address),
    rule(rf"(?<![0-9A-Za-z.@-]){_HOST}(?:/[0-9A-Za-z/%#?=&_.-]{{0,100}}[0-9A-Za-z/])?", _address),
    rule(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])", lambda match: match[0].replace(",", "")),
    rule(r"(?<![0-9])(?:\+?86[ -]?)?1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}(?![0-9])", _telephone),
    rule(r"\(0[0-9]{2,3}\)[ -]?[0-9]{3,4}[ -]?[0-9]{4}(?![0-9])", _telephone),
    rule(r"(?<![0-9])\+[0-9]{1,3}(?:[ -][0-9]{2,8}){2,5}(?![0-9])", _abroad),
    rule(rf"((?:{_CALLED}){_BEFORE_DIGITS})([0-9]{{3,}}){_NO_COUNT}", _called),
    rule(rf"((?:{_NUMBERED}){_BEFORE_DIGITS})([0-9]{{3,}}){_NO_COUNT}", _numbered),
    rule(r"(?<=[A-Z]·)[0-9]{4,5}(?![0-9])", _telephone),
    rule(
        rf"(?<![0-9A-Za-z])(?!{_CURRENCIES})([A-Z]{{1,3}})([0-9]{{2}}[1-9]|[0-9][1-9]0|[0-9]{{2}}(?!00)[0-9]{{2}})"
        "(?![0-9A-Za-z.%元块万亿个人名台件吨])",
        _code,
    ),
    rule(rf"{_START}((?:19|20)[0-9]{{2}})\.([0-9]{{1,2}})\.([0-9]{{1,2}})(?![0-9.])", _date),
    rule(rf"{_START}([0-9]{{1,2}})/([0-9]{{1,2}})/((?:19|20)[0-9]{{2}})(?![0-9/])", _date_by_month),
    rule(rf"{_START}[0-9]+(?:\.[0-9]+){{2,}}(?![0-9])", lambda match: _spoken(match).replace(".", "点")),
    rule(r"(?<![0-9.])[0-9]{12,}(?![0-9.])", _spoken),
    rule(
        r"(?<![0-9-])((?:19|20)[0-9]{2})[-–—~]((?:19|20)[0-9]{2})(?![0-9-])",
        lambda match: f"{match[1]}到{match[2]}".translate(_DIGITS),
    ),
    rule(r"['’‘]([0-9]{2})(?=年|级|届)", lambda match: match[1].translate(_DIGITS)),
    rule(r"(?<![0-9.])(?:19|20)[0-9]{2}(?=后)", _spoken),
    rule(r"(?<![0-9.到达过至为])[0-9][05](?=(?:[、和][0-9][05])*后)", _spoken),
    rule(r"(?<![0-9.:])(?<!比分)((?:[01]?[0-9]|2[0-4]):[0-5][0-9])分(?![钟0-9])", r"\1"),
    rule(
        rf"(?<=[0-9])(点(?:半|[一二三]刻|[0-9]{{1,2}}分?)?){_RANGE}(?=[0-9]{{1,2}}(?:点|:[0-9]{{2}}))",
        r"\1到",
    ),
    rule(rf"([0-9])-([0-9]{{1,2}})(?={_WON})", r"\1比\2"),
    rule(rf"({_NUMBER}%){_RANGE}(?={_NUMBER}%)", r"\1到"),
    rule(rf"(?<![0-9.])({_NUMBER}){_RANGE}({_NUMBER})%", r"百分之\1到\2"),
    rule(rf"(?<![0-9%A-Za-z])-({_NUMBER})%", r"负百分之\1"),
    rule(r"约([0-9]{1,3})/([0-9]{1,3})(?![0-9/])", r"约\2分之\1"),
    rule(r"(?<=\+\+)(?=[0-9])", " "),
    rule(r"(?<=[0-9])[—–～](?=[0-9])", "~"),
    rule(r"时速(?=约?[0-9.]+ ?km/h)", "每小时"),
    rule(r"(?<=每小时)(约?[0-9.]+) ?km/h", r"\1公里"),
    rule(r"(?<![0-9])24/7(?![0-9])", "7乘24"),
    rule(r"(?<=[0-9]) ?[×*xX] ?(?=[0-9])", "乘"),
    rule(r"(?<=[0-9]) ?÷ ?(?=[0-9])", "除以"),
    rule(r"(?<=[0-9A-Za-z])\^(-?)([0-9]{1,4})(?![0-9])", _power),
    rule(r"≈ ?(?=[0-9])", "约等于"),
    rule(r"≤ ?(?=[0-9])", "小于等于"),
    rule(r"≥ ?(?=[0-9])", "大于等于"),
    rule(rf"({_NUMBER}) ?‰", r"千分之\1"),
    rule(r"(?<![0-9/.])([0-9]+) ([0-9]+)/([0-9]+)(?![0-9/.])", _fraction),
    rule(r"(?<![A-Za-z])[Nn][Oo]\.? ?(?=[0-9])", "第"),
    rule(rf"(?<=[A-Za-z座栋幢楼号层])2(?=[{_AFTER_LETTER}])", "二"),
    rule(r"第2(?![0-9])", "第二"),
    rule(r"(?<=月)2(?=[日号])", "二"),
    rule(r"(?<![0-9.第])2(?=点(?![0-9一二三四五六七八九])|点[0-9]{1,2}分|点半|年[前后多来内间以])", "两"),
    rule(r"(?<![0-9A-Za-z])(1080|2160|1440|720|480)(?=[pP](?![A-Za-z]))", _telephone),
    rule(r"(?<=[A-Za-z])-(?=[0-9])", ""),
    rule(rf"([¥$€£])\s?({_NUMBER})(?: ?([十百千万亿]+))?(?:\s?(元|美元|欧元|英镑))?", _money),
    rule("㎡", "平方米"),
    rule(rf"({_NUMBER}) ?({'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![0-9A-Za-z])", _unit),
]
"""Shapes that the library misreads, rewritten to ones that it reads right."""


def read_numbers(text: str, library: Read) -> str:
    """Numbers of a text (no special tokens in it) in Chinese words, clause by clause."""
    return read_by_clause(_CLAUSE, apply(_PREPARE, plain(text)).translate(EAST_ASIAN_NUMERALS), library)


def _plain_decimal(number: str) -> str:
    """45.50 -> 45.5: a trailing zero of an amount isn't spoken."""
    return number.rstrip("0").rstrip(".") if "." in number else number
