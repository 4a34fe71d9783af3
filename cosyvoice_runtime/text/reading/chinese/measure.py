"""Amounts of a unit: ``5 %``, ``-5~3℃``, ``10km/h``, ``120/80mmHg``, ``135 g/L``, ``5w``, ``1米75``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import NUMBER, RANGE, parsed
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.language import Language, Unit, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_SPACED = alternatives(sign for sign in tables.UNITS if sign not in tables.WORDS)
_UNIT = rf"(?:\s?(?P<unit>{_SPACED})|(?P<glued>{alternatives(tables.WORDS)}))"
_PER = rf"(?:\s?/\s?(?P<hundred>100)?(?P<per>{alternatives(tables.PER_UNITS)})(?![A-Za-z0-9]))?"
_PART = re.compile(
    rf"(?P<minus>(?<![0-9A-Za-z)）])[-−]\s?)?(?P<low>{NUMBER})(?P<first>\s?(?:%|％|℃|°C|°|‰))?"
    rf"(?:(?P<to>{RANGE}|\s?[至到]\s?)(?P<high>-?{NUMBER}))?\s?(?P<sign>[%‰])"
)
_LOW_HIGH = re.compile(r"(-?[0-9]{1,2})\s?/\s?(-?[0-9]{1,2})\s?(?:℃|°C)")
_REST = re.compile(r"(1|100%)\s?[-−]\s?(?=[0-9.]+%\s?[)）-])")
_MEASURE = re.compile(
    rf"(?P<minus>(?<![0-9A-Za-z)）])[-−]\s?)?(?P<low>{NUMBER})"
    rf"(?:(?P<first>[A-Za-z℃°]{{1,3}})?{RANGE}(?P<high>{NUMBER}|(?<=[~～])-{NUMBER}))?{_UNIT}{_PER}(?:(?<=°)(?=[0-9])|(?![A-Za-z0-9²³]))"
)
_ALONE = re.compile(rf"(?:\s?(?P<unit>{alternatives(tables.UNITS)})(?P<glued>(?!))?)?{_PER}(?![A-Za-z0-9²³])")
_POWER = re.compile(
    r"(?:\^[-−]?[0-9]{1,3}|[0-9][eE]-?[0-9]{1,3}|[0-9]\s?[十百千]?[万亿]|[0-9万亿]\s?元|⁻[⁰¹²³⁴-⁹]{1,3})\Z"
)
_EACH = re.compile(r"(?<=每)\s?(?:[kcd]?m[²³]|kg|m[gLl])|(?<=每 )(?:[kcd]?m[²³]|kg|m[gLl])")
_AMPERES = re.compile(r"\s?(?:[=×]|电|插|保险|空开|断路|充|快充|输出)")
_CURRENT = re.compile(r"(?:电流|保险丝|额定|输入|输出|安培|负载|[0-9]V\s?[/×*÷])[^，。]{0,8}\Z")
_NETWORKS = re.compile(r"\s?(?:网|手机|信号|时代|通信|套餐|基站)")
_DEGREES = re.compile(
    r"([0-9]{1,3}(?:\.[0-9]{1,6})?)°(?:([0-9]{1,2})[′'’])?(?:([0-9]{1,2}(?:\.[0-9]+)?)[″\"”])?(?:\s?([NSEW])(?![A-Za-z]))?"
)
_INCH = re.compile(
    r"[\"″”](?=\s?(?:(屏|显|电视|平板|笔记本|披萨|蛋糕|轮|触|高清|全面|OLED|AMOLED|LCD|IPS|4K|2K|Retina)|[A-Za-z\u4e00-\u9fff，。、；/）)-]|$))"
)
_MINUTES = re.compile(r"(?<=[0-9])(?<![0-9]{4})['’′](?![0-9'’′])")
_SECONDS = re.compile(r'[″"](?![0-9]|\s?(?:屏|显|电视|平板|轮))')
_OF_TRAINING = re.compile("热身|组间|平板支撑|深蹲|拉伸|间歇|俯卧撑|冲刺跑")
_OF_MATCH = re.compile("[进破补扳]门?球|破门|补射|点球|红牌|黄牌|换下|伤停|梅开")
_SIZE = re.compile(
    r"(?:[0-9]\.[0-9]+|(?:屏幕?|尺寸|英寸|Air|Pro|MacBook|iPad|Surface)[是为：:约]{0,2}\s?[0-9]+)\Z"
)
_QUOTE = re.compile('(?<![0-9])"')
_SIDES = {"N": "北纬", "S": "南纬", "E": "东经", "W": "西经"}
_NAME = re.compile(r"(?<![A-Za-z0-9.+-])(?=[a-z]{0,20}[A-Z0-9_])[A-Za-z][A-Za-z0-9_.+-]*[ -]?\Z")
_PRESSURE = re.compile(r"(?P<high>[0-9]{2,3})\s?/\s?(?P<low>[0-9]{2,3})(?![0-9/.])(?P<unit>\s?mm\s?Hg)?")
_PRESSED = re.compile(r"(?:血压|高压|低压)[是为约：:在]{0,2}\s?\Z")
_BITS = re.compile(r"([1-9][0-9]{0,3})[- ]?bit(?![A-Za-z])")
_BASIS = re.compile(rf"({NUMBER})(?:{RANGE}({NUMBER}))?\s?(?:bps?|BPS?)(?![A-Za-z/])")
_OF_RATES = re.compile("[加降]息|利率|收益率|债|央行|美联储|利差|基点|利息")
_TERM = re.compile(r"([1-9][0-9]?)Y\s?(?=美[债債]|[国國][债債]|期|收益率|LPR)")
_TENTHS = re.compile(r"(?<=[0-9][米块秒])[0-9]{1,2}(?![0-9.])(?!\s?[厘公分毫米cm元块])")
_THOUSANDS = re.compile(
    rf"(?P<low>{NUMBER})(?:{RANGE}(?P<high>{NUMBER}))?(?P<sign>[kKw]|W(?=\+|[人字次元粉播赞阅]))"
    r"(?![A-Za-z0-9ΩΩ])(?!\s?(?:视频|屏|电视|分辨率|画质|超清|显示|高清|HDR|分屏|清|投影|摄|录|跑))"
)
_PAID = re.compile(r"(?:薪|工资|收入|奖金)[^，。]{0,10}\Z")
_FOR_AMOUNT = re.compile(
    r"\s?/\s?(?=[0-9]{1,4}\s?(?:k?[gm]|m[lL]|L|h|min|克|[公千]?斤|毫升|升|片|粒|个|张|公里|分钟|小时)(?![A-Za-z]))"
)
_FOR_MILLION = re.compile(r"\s?/\s?1?M(?![A-Za-z0-9]|\s?(?:[Tt]oken|in|out))")
_PRICED = re.compile(r"(?:[¥$€][0-9.,]+|[0-9]\s?元)\Z")
_STROKE = re.compile(
    r"\s?/\s?每?(?=(?:月|年|天(?!气)|日(?![落出])|周|人|次|晚|个|件|斤|公斤|千克|克|吨|升|平|立方|小时|分|秒|季|股|份|张|位|套|台|只|罐|筒|壶|片|粒|颗|块|根|延米|平米|头|棵|株|勺|顿|趟|遍|圈|场|局|票|[0-9]{0,4}\s?[MKk百千万](?=\s?(?:[Tt]okens?|次|字|in|out))|"
    r"百万|万|千|百|桶|盎司|瓶|盒|袋|箱|包|杯|碗|盘|串|条|支|本|页|课|节|千字|字|度|亩|公里|公顷|户|班|GB|kg|h(?![A-Za-z])))"
)
_BETWEEN_DEGREES = re.compile(r"(?<=[℃C])\s?/\s?(?=-?[0-9])")
_EACH_OF = {
    "hour": "小时", "hr": "小时", "min": "分钟", "sec": "秒", "day": "天", "week": "周", "wk": "周",
    "month": "月", "mo": "月", "year": "年", "yr": "年", "night": "晚", "person": "人", "user": "用户",
    "seat": "席位", "oz": "盎司", "gal": "加仑", "mile": "英里", "serving": "份",
}  # fmt: skip
_ENGLISH_STROKE = re.compile(rf"\s?/\s?({'|'.join(_EACH_OF)})(?![A-Za-z])")
_FOR_TIME = re.compile(r"\s?/\s?(min|h|kg|L)(?![A-Za-z0-9])")
_BETWEEN_PARTS = re.compile(r"(?<=[%‰])\s?/\s?(?=[0-9.]+[%‰])")
_COUNTED = re.compile(r"[0-9¥$€][^/，。]{0,8}[\u4e00-\u9fffA-Za-z0-9%²³](?:/[人件台户天])?\Z")
_HOURLY = re.compile(r"(?:时速|每小时)约?\s?\Z")


def read(place: Place) -> ReadForm | None:
    """An amount of a unit, or a range of amounts."""
    language = place.language
    if not (place.text[place.start].isdecimal() or place.text[place.start] in "-−"):
        return _inch(place) or _after_power(place) or _for_each(place)
    if found := place.match(_BITS):
        return ReadForm(found.end(), f"{language.cardinal(found[1])}位")
    if found := place.match(_TERM):
        years = language.cardinal(found[1])
        return ReadForm(found.end(), f"{years}年{'' if place.text[found.end()] == '期' else '期'}")
    if (found := place.match(_BASIS)) and place.near(_OF_RATES) and "速" not in place.before:
        numbers = [language.number(parsed(each, language)) for each in found.groups() if each]
        return ReadForm(found.end(), f"{language.to.join(numbers)}个基点")
    if found := place.match(_TENTHS):
        return ReadForm(found.end(), language.digits(found[0]))
    found = place.match(_PRESSURE)
    if found and (found["unit"] or _PRESSED.search(place.before)):
        words = language.over(language.pressure(found["high"]), language.pressure(found["low"]))
        return ReadForm(found.end(), words + (language.units["mmHg"].one if found["unit"] else ""))
    found = place.match(_DEGREES)
    if found and (found[2] or found[4]):
        parts = zip(found.groups()[:3], "度分秒", strict=True)
        words = _SIDES.get(found[4], "") + "".join(
            language.number(parsed(each, language)) + unit for each, unit in parts if each
        )
        return ReadForm(found.end(), words)
    if found := place.match(_LOW_HIGH):
        low, high = (language.number(parsed(each, language)) for each in found.groups())
        return ReadForm(found.end(), f"{language.ranged(low, high)}摄氏度")
    if (found := place.match(_REST)) and re.search(r"[(（]\s?\Z", place.before):
        return ReadForm(found.end(), f"{language.cardinal(found[1])}减")
    if found := place.match(_PART):
        return ReadForm(found.end(), _part(found, language))
    found = place.match(_THOUSANDS)
    if found and (found["sign"] != "K" or _PAID.search(place.before)):
        return ReadForm(found.end(), _thousands(found, language))
    found = place.match(_MEASURE)
    if not found:
        return None
    sign = found["unit"] or found["glued"]
    if sign in tables.SINGLE_LETTERS and not found["per"] and _NAME.search(place.before):
        return None
    following = place.text[found.end() :]
    if (sign == "A" and not (_AMPERES.match(following) or _CURRENT.search(place.before))) or (
        sign == "g" and _NETWORKS.match(following)
    ):
        return None
    if found["first"] and (found["first"] != sign or not found["high"]):
        return None
    return ReadForm(found.end(), _measure(found, sign, place))


def _inch(place: Place) -> ReadForm | None:
    """The sign of inches, which closes no quotation: ``6.7" OLED``."""
    if place.match(_MINUTES) and place.near(_OF_MATCH):
        return ReadForm(place.start + 1, "分钟")
    if place.text[place.start] in "'’′″\"”" and place.before[-1:].isdecimal() and place.near(_OF_TRAINING):
        if place.match(_MINUTES):
            return ReadForm(place.start + 1, "分钟")
        is_quoted = len(_QUOTE.findall(place.text, max(0, place.start - 300), place.start)) % 2
        if place.match(_SECONDS) and not is_quoted:
            return ReadForm(place.start + 1, "秒")
    found = place.match(_INCH)
    if not found or not (_SIZE.search(place.before) or (found[1] and place.before[-1:].isdecimal())):
        return None
    start = max(0, place.start - 300)
    opened, closed = (place.text.count(sign, start, place.start) for sign in "“”")
    is_quoted = opened > closed or len(_QUOTE.findall(place.text, start, place.start)) % 2
    return None if is_quoted else ReadForm(found.end(), "英寸")


def _after_power(place: Place) -> ReadForm | None:
    """The unit after a power: ``3×10^8 m/s``."""
    found = place.match(_ALONE) if _POWER.search(place.before) or place.match(_EACH) else None
    if not found:
        return None
    sign = found["unit"] or found["glued"]
    words = place.language.units[sign].one if sign else ""
    words = _for_one(words, found, place.language)
    return ReadForm(found.end(), words) if words else None


def _for_one(words: str, found: re.Match[str], language: Language) -> str:
    """An amount for each unit or each hundred of it."""
    if not found["per"]:
        return words
    unit = language.per_units[found["per"]]
    return language.per(words, Unit(f"百{unit.one}", "") if found["hundred"] else unit)


def _for_each(place: Place) -> ReadForm | None:
    """The stroke of ``50元/月``."""
    if found := place.match(_BETWEEN_DEGREES):
        return ReadForm(found.end(), place.language.pause)
    if (found := place.match(_FOR_AMOUNT)) and _PRICED.search(place.before):
        return ReadForm(found.end(), "每")
    if (found := place.match(_FOR_MILLION)) and _PRICED.search(place.before):
        return ReadForm(found.end(), "每百万")
    if found := place.match(_BETWEEN_PARTS):
        return ReadForm(found.end(), "、")
    counted = _COUNTED.search(place.before)
    if counted and (found := place.match(_FOR_TIME)):
        return ReadForm(found.end(), f"每{place.language.units[found[1]].one}")
    if counted and (found := place.match(_ENGLISH_STROKE)):
        return ReadForm(found.end(), f"每{_EACH_OF[found[1]]}")
    found = place.match(_STROKE) if counted else None
    return ReadForm(found.end(), "每") if found else None


def _part(found: re.Match[str], language: Language) -> str:
    """Parts of a hundred or of a thousand."""
    if found["sign"] == "%" and found["low"] == "100" and not found["high"]:
        return f"{language.minus if found['minus'] else ''}百分之百"
    of = "百分之" if found["sign"] == "%" else "千分之"
    low = language.number(parsed(found["low"], language))
    words = f"{language.minus if found['minus'] else ''}{of}{low}"
    if not found["high"]:
        return words
    high = parsed(found["high"], language)
    high_words = language.number(Numeral(high.whole, high.fraction))
    if found["first"] or high.negative:
        high_words = f"{language.minus if high.negative else ''}{of}{high_words}"
    return language.ranged(words, high_words)


def _thousands(found: re.Match[str], language: Language) -> str:
    """``5w`` is 五万, ``15k`` is 一万五千."""
    if found["sign"] not in "kK":
        return f"{_times(found, language, 1)}万"
    return _times(found, language, 1000)


def _times(found: re.Match[str], language: Language, factor: int) -> str:
    words = []
    for written in filter(None, (found["low"], found["high"])):
        number = parsed(written, language)
        if factor == 1:
            words.append("两" if number == Numeral("2") else language.number(number))
            continue
        whole = f"{number.whole}{(number.fraction or '')[:3].ljust(3, '0')}"
        words.append(language.cardinal(whole.lstrip("0") or "0"))
    return language.ranged(*words) if len(words) == 2 else words[0]


def _measure(found: re.Match[str], sign: str, place: Place) -> str:
    language = place.language
    unit = language.units[sign]
    low = parsed(found["low"], language)
    low = Numeral(low.whole, low.fraction, bool(found["minus"]))
    hourly = (sign, found["per"]) == ("km", "h")
    if found["per"] and sign in tables.IN_RATES:
        unit = Unit(tables.IN_RATES[sign], "")
    if found["high"]:
        high = parsed(found["high"], language)
        between = unit.one if found["first"] else ""
        words = f"{language.ranged(language.number(low) + between, language.number(high))}{unit.one}"
    elif sign.isascii() and not sign.isalpha() and sign[-1] == "B":
        words = f"{language.number(low)}{unit.one}"
    else:
        words = language.counted(low, unit)
    if hourly:
        return words if _HOURLY.search(place.before) else f"每小时{words}"
    return _for_one(words, found, language)
