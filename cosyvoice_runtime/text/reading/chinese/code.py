"""Numbers that name something: telephones, codes after words, plates, rooms, models, ``985``, ``110报警``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import is_measured
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.english import ENGLISH
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_TOKEN = re.compile(r"[0-9]{3,}(?=[A-Z]{1,4}[0-9]{2})")
_STANDARD = re.compile(r"(?<=[A-Z/] )([0-9]{3,6})(?:\.([0-9]{1,2}))?[-—–]((?:19|20)[0-9]{2})(?![0-9-])")
_STANDARD_BEFORE = re.compile(
    r"(?<![A-Za-z])(?:ISO|IEC|IEEE|GB|GB/[TZ]|JB/T|DB/T|QB/T|YY/T|HJ|DL/T|SH/T|NB/T|GA/T|EN|DIN|ASTM) \Z"
)
_END = r"(?![0-9A-Za-z]|[.,][0-9])"
_TELEPHONE = re.compile(
    r"(?<![0-9])(?:\+?86[ -]?)?1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}(?![0-9])"
    r"|[(（]0[0-9]{1,3}[)）][ -]?[0-9]{3,4}[ -]?[0-9]{4}(?![0-9])(?:-[0-9]{1,5})?"
    r"|(?<![0-9])00[1-9][0-9]{0,2}(?:[ -][0-9]{2,8}){2,4}(?![0-9])"
    r"|(?<![0-9])0[2-9]-[0-9]{3,4}-[0-9]{4}(?![0-9])"
    r"|(?<![0-9])\(?0[0-9]{2,3}\)?[ -][2-8][0-9]{2,3}[ -]?[0-9]{4}(?![0-9])(?:-[0-9]{1,5})?"
    r"|(?<![0-9])[48]00[ -][0-9]{3}[ -][0-9]{4}(?![0-9])|(?<![0-9])[48]00[ -][0-9]{4}[ -][0-9]{3}(?![0-9])"
    r"|(?:(?<![0-9])\+[0-9]{1,3}[ -]?)?[(（][2-9][0-9]{2}[)）][ -]?[0-9]{3}[ -][0-9]{4}(?![0-9])"
    r"|(?<![0-9])\+[0-9]{1,3}(?:[ -]\(?[0-9]{1,8}\)?){2,5}(?![0-9])"
)
_HOTLINE = re.compile(r"(?:1[02][0-9]{3}|9[56][0-9]{3,4}|[48]00[0-9]{7})" + _END)
_HOTLINE_BEFORE = re.compile(r"(?:拨打|拨|打|致电|电话|给|联系|热线|客服|投诉|咨询)\s?\Z")
_HOTLINE_AFTER = re.compile(r"\s?(?:打|电话|热线|投诉|举报|官网|客服|平台|短信|抢票)")
_EMERGENCY = re.compile(r"(?:11[0249]|12[02]|911|999)" + _END)
_CALL_BEFORE = re.compile(
    r"(?:拨打|拨|打|呼叫|叫|报|报警|火警|急救|匪警|电话|致电|找|求助|联系)(?:了|过)?\s?\Z"
)
_CALL_AFTER = re.compile(
    r"\s?(?:查号|报警|急救|火警|匪警|指挥中心|救护车?|出警|民警|接警|联动|求助|电话|热线|调度)"
)
_LINK = r"(?:(?:号码?|ID)?(?:\s?(?:就是|分别是|是|为|:|：)\s?|\s){0,2}[「“\"'【\[(（]?[A-Za-z]{0,3}-?)"
_CALLED = re.compile(rf"(?:{tables.CALLED}){_LINK}\Z")
_NUMBERED = re.compile(rf"(?:{tables.NUMBERED}){_LINK}\Z")
_DIGITS = re.compile(r"[0-9]{3,}(?:[ -][0-9]{2,}){0,6}(?![0-9])")
_DIGITS_ALONE = re.compile(r"[0-9]{3,}(?=\s)")
_FILM_SPEED = re.compile(r"(?:[1248]|16|32|64|128|256|512|1024)00(?![0-9])")
_NO_COUNT = re.compile(
    r"(?:\s?[.:%年月日天时分秒岁元块个万亿人次名位家种条行条本页字份张件台套米公斤吨度倍多余来左起款℃°-]|[A-Za-z]{2}|,[0-9])"
)
_PLATE = re.compile(r"[0-9]{1,6}(?![0-9.%])")
_PLATE_BEFORE = re.compile(rf"[{tables.PLATES}][A-Z][·.\s]?(?:[A-Z0-9]{{0,5}})\Z")
_ROOM = re.compile(
    r"[0-9]{3,4}(?=\s?(?:室|号房|房间|房(?![价东产贷租])|教室|包厢|包间|会议室|病房|宿舍|寝室))"
)
_ROOM_NUMBER = re.compile(r"[0-9]{3,4}(?![0-9A-Za-z.:/-])")
_BUILDING = re.compile(r"(?:单元|[栋座幢]|号楼|[0-9][楼层]|[0-9]F-?)\s?\Z")
_ISSUE = re.compile(
    r"(?:(?<=第)|(?<=第 ))(?:20[0-9]{5,8})(?=\s?期)|[0-9]{2}(?=式(?:坦克|步枪|手枪|机枪|战车|火炮)|[A-G]坦克)"
)
_ORDINAL = re.compile(r"(?<![0-9.])([0-9]{1,3})(?:st|nd|rd|th)(?![A-Za-z0-9])")
_MASKED = re.compile(r"(?<![0-9])([0-9]{3})\*{3,6}([0-9]{2,4})(?![0-9])")
_DIALLED = re.compile(r"(?<![0-9A-Za-z#*])[*#]{1,2}[0-9]{2,6}(?:[*#][0-9]+){0,3}#")
_KEYS = str.maketrans({"*": "星", "#": "井"})
_VISCOSITY = re.compile(r"(?<![0-9A-Za-z.])([0-9]{1,2})W-?([2-6]0)(?![0-9A-Za-z])")
_TIRE = re.compile(r"(?<![0-9/])([1-3][0-9]5)/([2-8][05])(?=\s?Z?R[12][0-9])")
_OFFSET = re.compile(r"(?<=UTC|GMT)([-+−])([0-9]{1,2})(?::00)?(?![0-9:])")
_SERIAL = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{9,20}(?![A-Za-z0-9]))(?:[A-Z]{1,8}[0-9]{1,12}){2,6}(?![A-Za-z])"
)
_HALF_YEAR = re.compile(r"(?<![0-9A-Za-z.])([12][0-9])(?=[HQ][1-4](?![0-9A-Za-z]))")
_TRAIN = re.compile(r"\s?次(?!元|方|数|[分要])|\s?(?:列车|高铁|动车|火车|航班|班机|次航班)")
_AFTER_LINE = re.compile(r"(?<=[A-Za-z0-9]_)[0-9]{3,}(?![0-9A-Za-z])")
_BUS = re.compile(
    r"(?![0-9]0{2,3}\s?路)[0-9]{3,4}(?=\s?路(?:公交|公车|车|$|[，。、去到]))|(?<![0-9])[1-9][0-9][1-9](?=医院|中学)|(?<=台北)101|101(?=\s?(?:大楼|观景))"
)
_LINE_BEFORE = re.compile(r"(?:公车|公交车|巴士)\s?(?:[0-9]{1,4}\s?[、和/或，]\s?){0,4}\Z")
_PAGE = re.compile(r"(?:999|925|916)(?=足金|千足金|银|纯银|黄金)|(?<=N)9[59](?=口罩|级|[同系])")
_ADDRESS = re.compile(r"(?<![0-9A-Za-z.-])[0-9]{1,4}(?:-[0-9]{1,5}){2,6}(?![0-9A-Za-z-]|\.[0-9])")
_HOUSE = re.compile(r"(?<![0-9A-Za-z.-])[0-9]{1,3}-[0-9]{3,4}(?=\s?(?:室|号|房|户))")
_HOUSE_BEFORE = re.compile(
    r"(?:地址|住址|门牌号?|房号|住在|家住|小区|花园|苑|栋|座|单元|号楼)[是为：:]{0,2}\s?\Z"
)
_HOUSE_OF_FLAT = re.compile(
    r"(?<![0-9A-Za-z.-])(?!1[0-2]-(?:19|20))[1-9][0-9]?-[1-9][0-9]?[0-9](?!00)[0-9]{2}(?![0-9A-Za-z.-]|\s?[的之])"
)
_HOUSE_ALONE = re.compile(r"[0-9]{1,2}-[0-9]{1,4}(?:-[0-9]{1,4})?(?![0-9-])")
_BOOK = re.compile(r"(?<![0-9])97[89](?:-[0-9]{1,7}){3}-[0-9X](?![0-9])")
_STOCK = re.compile(r"([0-9]{4,6})\.((?:SH|SZ|SS|BJ|HK|TW|US|T|L)(?![A-Za-z]))|(?<=[(（])[0-9]{6}(?=[)）])")
_SHARE = re.compile(r"(?<=[(（])(?<![共有约计达][(（])[0-9]{4}(?=[)）](?![人名位个元]|股(?!价)))")
_OF_SHARES = re.compile("股[价票份]|个股|概念股|[A港美]股|收盘|本益比|市盈率|殖利率")
_FLIGHT = re.compile(r"(?<![A-Za-z]{3})(?:(?<=[A-Z][A-Z0-9])|(?<=[0-9][A-Z]))[0-9]{3,4}(?![0-9A-Za-z.])")
_OF_FLIGHTS = re.compile("航班|航空|起飞|降落|登机|值机|机场")
_LONG = re.compile(r"(?<![0-9.,])[0-9]{12,}[Xx]?(?![0-9.,])")
_ZERO = re.compile(r"(?<![0-9.:,-])0[0-9]+(?![0-9.:]|,[0-9])")
_NAME_BEFORE = re.compile(
    r"(?<![0-9])([A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?)(-?)\Z|(?<![A-Za-z])[A-Za-oq-z]\.\Z"
)
_NAME = re.compile(r"[0-9]+(?![0-9]|\.[0-9]|[%°])")
_SPACED_NAME = re.compile(rf"(?:[A-Za-z]|[A-Za-z] [0-9]\s|{tables.NAMED})\s?-?\Z")
_SERIES = re.compile(r"(?:RTX|GTX|骁龙|麒麟|天玑)\s?[0-9]{3,4}\s?[/、和与]\s?\Z")
_RESOLUTION = re.compile(r"(?<![0-9A-Za-z])(?:1080|2160|1440|720|480)(?=[pPi](?![A-Za-z]))")
_FEST = re.compile(
    r"(?<![0-9.])(?P<month>1?[0-9])(?:·|\.(?=[0-9]{1,2}(?:大促|晚会|购物节|事件|假期|长假|小长假|黄金周)))"
    r"(?P<day>[0-9]{1,2})(?![0-9]|\s?=)"
)
_SAID = re.compile(rf"(?:{'|'.join(tables.DIGIT_NAMES)})(?![0-9A-Za-z%.,:：~～]|-[0-9]|/[0-9]\b)")
_AMOUNT_BEFORE = re.compile(
    r"(?:[共约达近超仅价格额数量费款第到至是了满过为余剩有花省赚高长宽重+×=<>≥≤¥$€]|[0-9]\s?[-~～.,:+*/]\s?)\s?\Z"
)
_SAID_BEFORE = re.compile(r"(?:京东|天猫|淘宝|双非|非|或|和|与|、|，|/|是|读|考上|进|上)\s?\Z")
_STORE = re.compile(r"(?<![0-9])7-11(?=便利店|超市|门店|的|$|[，。])")
_READ_TO = {
    "O2O": "O to O",
    "B2B": "B to B",
    "B2C": "B to C",
    "C2C": "C to C",
    "P2P": "P to P",
    "F2F": "F to F",
}
_TO = re.compile(r"(?<![0-9A-Za-z])[OBCPF]2[OBCPF](?![0-9A-Za-z])")


def read(place: Place) -> ReadForm | None:
    """The digits one by one, or a number in a name."""
    if found := place.match(_TO):
        return ReadForm(found.end(), _READ_TO.get(found[0], found[0]))
    if found := place.match(_STORE):
        return ReadForm(found.end(), _telephone(found[0], place))
    if place.text[place.start] not in "0123456789+(（*#-−ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        return None
    if found := place.match(_ORDINAL):
        return ReadForm(found.end(), ENGLISH.ordinal(int(found[1])))
    if found := place.match(_DIALLED):
        return ReadForm(found.end(), place.language.telephone_digits(found[0].translate(_KEYS)))
    if found := place.match(_VISCOSITY):
        return ReadForm(
            found.end(), f"{place.language.cardinal(found[1])}W{place.language.cardinal(found[2])}"
        )
    if found := place.match(_TIRE):
        return ReadForm(found.end(), place.language.pause.join(map(place.language.digits, found.groups())))
    if found := place.match(_MASKED):
        return ReadForm(
            found.end(), place.language.pause.join(_telephone(part, place) for part in found.groups())
        )
    if found := place.match(_OFFSET):
        words = place.language.cardinal(found[2])
        return ReadForm(found.end(), ("加" if found[1] == "+" else "减") + words)
    if found := place.match(_SERIAL):
        return ReadForm(found.end(), place.language.digits(found[0]))
    if found := place.match(_TELEPHONE):
        if _NUMBERED.search(place.before) and not found[0].startswith("+"):
            return ReadForm(found.end(), _spoken(found[0], place))
        return ReadForm(found.end(), _telephone(found[0], place))
    return first((_after_word, _called, _place_name, _said, _in_name, _run), place)


def _telephone(written: str, place: Place) -> str:
    abroad = written.startswith("+") and not written.startswith("+86")
    words = place.language.telephone_digits(re.sub("[^0-9]", "", written))
    return f"加{words}" if abroad else words


def _spoken(written: str, place: Place) -> str:
    return place.language.digits(re.sub("[ -]", "", written))


def _after_word(place: Place) -> ReadForm | None:
    """Digits after a word that announces them."""
    if found := place.match(_BOOK):
        return ReadForm(found.end(), _spoken(found[0], place))
    found = place.match(_STANDARD)
    if found and _STANDARD_BEFORE.search(place.before):
        number, part, year = (place.language.digits(each) if each else "" for each in found.groups())
        return ReadForm(found.end(), f"{number}{'点' if part else ''}{part}杠{year}")
    found = place.match(_TOKEN)
    if found and _NUMBERED.search(place.before):
        return ReadForm(found.end(), _spoken(found[0], place))
    found = place.match(_DIGITS)
    if found and " " in found[0] and _NO_COUNT.match(place.text, found.end()):
        found = place.match(_DIGITS_ALONE)
    if not found or _NO_COUNT.match(place.text, found.end()):
        return None
    if _CALLED.search(place.before):
        return ReadForm(found.end(), _telephone(found[0], place))
    is_film = place.match(_FILM_SPEED) and re.search(r"ISO\s?\Z", place.before)
    if _NUMBERED.search(place.before) and not is_film:
        return ReadForm(found.end(), _spoken(found[0], place))
    return None


def _called(place: Place) -> ReadForm | None:
    """Short numbers of services, where words say that they are called."""
    if found := place.match(_HOTLINE):
        is_free = len(found[0]) == 10 and not is_measured(place.text, found.end())
        if is_free or _HOTLINE_BEFORE.search(place.before) or _HOTLINE_AFTER.match(place.text, found.end()):
            return ReadForm(found.end(), _telephone(found[0], place))
        return None
    found = place.match(_EMERGENCY)
    if not found or is_measured(place.text, found.end()):
        return None
    is_alone = place.start == 0 and found.end() == len(place.text) and found[0] in ("110", "120", "119")
    if is_alone or _CALL_BEFORE.search(place.before) or _CALL_AFTER.match(place.text, found.end()):
        return ReadForm(found.end(), _telephone(found[0], place))
    return None


def _place_name(place: Place) -> ReadForm | None:
    """Rooms, houses, plates, lines of buses."""
    language = place.language
    found = place.match(_ROOM_NUMBER) if _LINE_BEFORE.search(place.before) else None
    if found and not is_measured(place.text, found.end()):
        return ReadForm(found.end(), _telephone(found[0], place))
    found = place.match(_ROOM_NUMBER) if _BUILDING.search(place.before) else None
    if found and not is_measured(place.text, found.end()):
        return ReadForm(found.end(), _telephone(found[0], place))
    if found := place.match(_ROOM) or place.match(_BUS) or place.match(_RESOLUTION) or place.match(_PAGE):
        return ReadForm(found.end(), _telephone(found[0], place))
    found = place.match(_HOUSE) or place.match(_ADDRESS)
    if not found and (flat := place.match(_HOUSE_OF_FLAT)) and not is_measured(place.text, flat.end()):
        found = flat
    if not found and _HOUSE_BEFORE.search(place.before):
        found = place.match(_HOUSE_ALONE)
    if found:
        if re.match(
            r"[12][0-9]{3}-[0-9]{1,2}-[0-9]{1,2}\Z|[0-9]{1,2}-[0-9]{1,2}-(?:19|20)[0-9]{2}\Z", found[0]
        ):
            return None
        parts = [
            language.digits(part) if len(part) > 2 else language.cardinal(part)
            for part in found[0].split("-")
        ]
        return ReadForm(found.end(), "杠".join(parts))
    if _PLATE_BEFORE.search(place.before):
        found = place.match(_PLATE)
        return ReadForm(found.end(), _telephone(found[0], place)) if found else None
    return None


def _said(place: Place) -> ReadForm | None:
    """Numbers that everybody says digit by digit, where they count nothing."""
    if found := place.match(_FEST):
        return ReadForm(found.end(), _feast(found["month"], found["day"], place))
    found = place.match(_SAID)
    if not found or is_measured(place.text, found.end()):
        return None
    if _AMOUNT_BEFORE.search(place.before) and not _SAID_BEFORE.search(place.before):
        return None
    is_called = len(found[0]) == 5 and found[0].startswith("1")
    return ReadForm(found.end(), (_telephone if is_called else _spoken)(found[0], place))


def _feast(month: str, day: str, place: Place) -> str:
    """A day that is called by its numbers: 3·15 is 三一五, 10.1 十一, 11.11 双十一."""
    language = place.language
    if month == day and len(month) > 1:
        return f"双{language.cardinal(month)}"
    return f"{language.cardinal(month)}{language.digits(day)}"


def _in_name(place: Place) -> ReadForm | None:
    """A number after Latin letters: ``H100``, ``RTX4090``, ``i7-13700K``, ``MP3``."""
    language = place.language
    found = place.match(_NAME)
    if not found:
        return None
    if (flight := place.match(_FLIGHT)) and place.near(_OF_FLIGHTS):
        return ReadForm(flight.end(), _telephone(flight[0], place))
    glued = _NAME_BEFORE.search(place.before)
    digits = found[0]
    if glued and glued[1] not in tables.CURRENCIES:
        if re.match(r"[元块万亿个人名台件吨]", place.text[found.end() :]) and len(glued[1] or "") > 1:
            return None
        if glued[1] in ("x", "X") and digits in ("86", "64", "509"):
            return ReadForm(found.end(), language.digits(digits))
        if len(digits) > 2 and glued[1] and glued[1].isupper() and _TRAIN.match(place.text, found.end()):
            return ReadForm(found.end(), _telephone(digits, place))
        return ReadForm(found.end(), _name_number(digits, place))
    if _SPACED_NAME.search(place.before) or _SERIES.search(place.before):
        is_model = len(digits) >= (3 if place.before[-2:-1].isdecimal() else 4) and re.match(
            r"[A-Z](?![A-Za-z])", place.text[found.end() :]
        )
        is_named = _SERIES.search(place.before) or (
            re.search(rf"(?:{tables.NAMED})\s?\Z", place.before) and len(digits) >= 3
        )
        if is_model or is_named:
            return ReadForm(found.end(), language.digits(digits))
    return None


def _name_number(digits: str, place: Place) -> str:
    language = place.language
    if digits.startswith("0") or len(digits) > 4 or (len(digits) > 3 and place.before.endswith("-")):
        return language.digits(digits)
    if len(digits) < 3 or digits.endswith("00"):
        return language.cardinal(digits)
    return language.digits(digits)


def _run(place: Place) -> ReadForm | None:
    """Runs of digits that are no number."""
    language = place.language
    if found := place.match(_ISSUE):
        return ReadForm(found.end(), _spoken(found[0], place))
    if found := place.match(_AFTER_LINE) or place.match(_HALF_YEAR):
        return ReadForm(found.end(), language.digits(found[0]))
    if found := place.match(_STOCK):
        words = language.digits(found[1] or found[0])
        return ReadForm(found.end(), f"{words}点{found[2]}" if found[2] else words)
    if (found := place.match(_SHARE)) and place.near(_OF_SHARES):
        return ReadForm(found.end(), language.digits(found[0]))
    if found := place.match(_LONG):
        return ReadForm(found.end(), language.digits(found[0]))
    found = place.match(_ZERO)
    if (
        not found
        or re.match(r"\s?[月日号点时]", place.text[found.end() :])
        or re.match("[/-][0-9]", place.text[found.end() :])
    ):
        return None
    if re.search(r"[点时分]\Z", place.before) and len(found[0]) == 2:
        return ReadForm(found.end(), f"零{language.cardinal(found[0][1:])}" if found[0] != "00" else "零")
    return ReadForm(found.end(), language.digits(found[0]))
