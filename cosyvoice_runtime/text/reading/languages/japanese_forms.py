"""Japanese: forms that it alone has, such as weekdays in brackets, and hyphens by what stands around them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages.japanese_tables import COUNTED_PER
from cosyvoice_runtime.text.reading.languages.language import Clock, Date, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.japanese import Japanese

_REACH = 24
"""Characters around a sign that show whether it is one of a formula."""
_FREE = r"(?a)(?<![\w.,:/-])"
"""No number goes on to here."""
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]+)?"
_END = r"(?![\w/:-]|[.,][0-9])"
_NAMES = {
    "B2B": "B to B",
    "B2C": "B to C",
    "C2C": "C to C",
    "P2P": "P to P",
    "O2O": "O to O",
    "FOREVER21": "FOREVERトゥエンティーワン",
}
_NAMED = re.compile(rf"(?<![A-Za-z0-9])({alternatives(_NAMES)})(?![A-Za-z0-9])")
_POST = re.compile(r"〒\s?([0-9]{3})-?([0-9]{4})(?![0-9])")
_ROOM = re.compile(rf"{_FREE}([0-9]{{3,5}})(?=号室)")
_NUMBERED = re.compile(r"(?a)(?<=[Nn]o)\.\s?([0-9]{1,8})(?![\w-]|[.,][0-9])")
_PAGE = re.compile(r"(?<![A-Za-z0-9])pp?\.\s?([0-9]{1,4})(?:\s?[-–~〜]\s?([0-9]{1,4}))?(?![0-9])")
_VERSION = re.compile(
    r"(?:(?<=[Vv]er)|(?<=[Vv]ol)|(?<=[Ff]ig))\.\s?([0-9]{1,8}(?:\.[0-9]{1,8}){0,3})(?![0-9]|\.[0-9])"
)
_STATUS = re.compile(r"[1-5][0-9]{2}(?![0-9.,])")
_STATUS_BEFORE = re.compile(r"(?:HTTP|ステータス|ステータスコード|エラー|エラーコード)\s?\Z")
_STEP = re.compile(r"([0-9]{1,2})/([0-9]{1,2})(?![0-9/])")
_STEP_BEFORE = re.compile(r"(?:手順|ステップ|工程|ページ|進捗)[：:]?\s?\Z")
_PRESSURE = re.compile(r"([0-9]{2,3})\s?/\s?([0-9]{2,3})(?![0-9/]|\s?mm)")
_PRESSURE_BEFORE = re.compile(r"血圧[はがも]?[：:]?\s?\Z")
_STOCK = re.compile(r"(?<=[(（])(?!19|20)[0-9]{4}(?=[)）])")
_MODEL = re.compile(r"[0-9]{4,5}(?=[A-Z]{0,2}(?![A-Za-z0-9]))")
_MODEL_BEFORE = re.compile(r"[A-Za-z][0-9]-\Z")
_LONG_NAME = re.compile(r"(?a)(?<=[A-Z]{2})[0-9]{5,12}(?![\w-])")
_COUNTRY = re.compile(r"(?<![0-9])\+([0-9]{1,3}) (?=\(?0?[0-9]{1,4}\)?-[0-9]{2,4}-[0-9]{3,4})")
_AREA_IN_BRACKETS = re.compile(r"[(（](0[0-9]{1,4})[)）]\s?([0-9]{1,4})-([0-9]{3,4})(?![0-9-])")
_PLATE = re.compile(r"(?<=[ぁ-ん])(\s?)([0-9]{2})-([0-9]{2})(?![0-9-])")
_PLATE_BEFORE = re.compile(r"[一-龥]\s?[0-9]{2,3}[A-Z]?\s?[ぁ-ん]\Z")
_SERVICE = re.compile(
    rf"{_FREE}(11[0789]|104|171|177|188|189)(?=番(?![目号線地])|に(?:電話|通報|連絡|かけ)|へ(?:電話|通報))"
)
_WEEKDAY = re.compile(
    r"[(（]([月火水木金土日])(?:曜日?)?(?:\s?[-~～〜・、]\s?([月火水木金土日])(?:曜日?)?)?(・?祝日?)?[)）]"
)
_DATED = re.compile(r"(?:[0-9]\s?日|[0-9])\s?\Z")
_ZERO_HOUR = re.compile(r"(?a)(?<![\w.,:])0(?=時(?!間))")
_PADDED = re.compile(r"(?a)(?<![\w.,:/-])0([1-9])(?=[年月日時分秒])")
_TO = re.compile(
    r"\s?[~～〜]\s?(?=[0-9０-９一-龥A-Za-z$¥￥第①-⑳])|(?<=[年月日時分秒世度人個回%）)])\s?[-–—]\s?(?=[0-9]|(?:午前|午後|正午|翌|深夜|早朝)[0-9日朝]?)"
)
_WEEKDAYS = re.compile(r"(?<=[月火水木金土日])[-–](?=[月火水木金土日](?![一-龥]))")
_BEFORE_TO = re.compile(r"[0-9①-⑳%一-龥A-Za-z)）℃]\Z")
_YEAR_MONTH = re.compile(rf"{_FREE}((?:19|20)[0-9]{{2}})[-/.](0[1-9]|1[0-2]){_END}")
_MONTH_YEAR = re.compile(rf"{_FREE}(0?[1-9]|1[0-2])[-/]((?:19|20)[0-9]{{2}}){_END}")
_DAY = r"(1[0-2]|0?[1-9])[/.-]([12][0-9]|3[01]|0?[1-9])"
_PADDED_DAY = re.compile(
    rf"{_FREE}(?:(?=0)|(?=..[/.]0))(0[1-9]|1[0-2])[/.](0[1-9]|[12][0-9]|3[01]){_END}(?!点)"
)
_ERA = re.compile(
    r"(?a)(?<![A-Za-z0-9])([RHS])([0-9]{1,2})([./])(1[0-2]|0?[1-9])\3([12][0-9]|3[01]|0?[1-9])(?![\w/.-])"
)
_ERAS = {"R": "令和", "H": "平成", "S": "昭和"}
_HALF_BEFORE = re.compile(r"(?a)(?<![A-Za-z])(AM|PM|am|pm)\s?([0-9]{1,2})[:：]([0-5][0-9])(?![0-9:])")
_LATE = re.compile(rf"{_FREE}(2[5-9])[:：]([0-5][0-9])(?![0-9:])")
_MONTH_DAY = re.compile(
    rf"{_FREE}(1[0-2]|0?[1-9])/([12][0-9]|3[01]|0?[1-9])(?![\w/-]|[.,][0-9])(?=\s?(?P<sure>[(（][月火水木金土日]|から|まで|"
    r"より|[~～〜]\s?[0-9]{1,2}/|締切|開催|発売|付|現在|の?(?:午前|午後|朝|夜|夕方|会|予定|試合|予約|イベント|便|天気)|"
    r"に(?:開|発|予|行|会|公|届|到|始|終|出|入|引|提|リ|生))|に|の|は)"
)
_AFTER_SPAN = re.compile(r"[0-9]{1,2}[/-][0-9]{1,2}(?:[(（][月火水木金土日][)）])?\s?(?:から|[~～〜-])\s?\Z")
_DAYS = re.compile(rf"{_FREE}{_DAY}\s?[-–]\s?{_DAY}(?![0-9/])(?=[(（]|の|は|に|まで|休|開|限|、|。|$)")
_ANY_DAY = re.compile(rf"{_FREE}{_DAY}{_END}")
_HYPHEN_DAY = re.compile(rf"{_FREE}(1[0-2]|0?[1-9])-([12][0-9]|3[01]|0?[1-9])(?=(?:から|まで)(?!の?点))")
_PAIR = re.compile(
    rf"(?a)(?<![0-9.,:/A-Za-z_-])(?<![0-9]\s)({_NUMBER})[-–−]({_NUMBER})"
    r"(?![\w/:=+×÷-]|[.,][0-9]|\s?[=+×÷%℃°])"
)
_SCORED = re.compile(
    r"(?:[、,]\s?[0-9]{1,2}-[0-9]{1,2}){0,4}(?:で|から)?\s?(?:勝|敗|負|引き?分|逆転|完封|圧勝|辛勝|快勝|下し|破|リード|同点|"
    r"と(?:逆転|接戦|勝|敗|引き?分|大勝|圧勝)|のストレート|の(?:快|圧|完|辛|大|惜)?(?:勝|敗|引き?分|同点|スコア|逆転|接戦|完封)|"
    r"で(?:前半|後半|試合|終|折り返|迎え|[^、。！？0-9]{1,12}(?:に勝|に敗|に負|を下し|を破|に快勝|に圧勝|に競り|が勝|が優勝|が制)))"
)
_PLACE = re.compile(r"(?:[町市区村丁目条]|番地)\Z")
_LEVEL = re.compile(
    r"(?:レベル|ステップ|ページ|パート|フェーズ|ランク|クラス|タイプ|問題?|巻|号|型|シーズン|話|頁|約|計|各|毎|全|"
    r"週|月|年齢|価格|料金|気温|身長|体重|人数|時間|期間|範囲|平均|数|量|値) ?\Z"
)
_FIGURE = re.compile(r"(?:図|表|付録|式|例|課|写真|図表|資料) ?\Z")
_TEAM = re.compile(r"[一-龥ァ-ヺーA-Za-z]\Z")
_COUNTED = re.compile(r"\s?(?:[一-龥々ァ-ヺ]|ヶ|か月|つ|くらい|ぐらい|ほど)")
_EQUAL = re.compile(r"(?<=[ぁ-ヺ一-龥A-Za-z0-9)）°℃%²³])\s?([=≠≒])\s?(?=[0-9$¥A-Za-z√])")
_TIMES = re.compile(r"(?<=[ぁ-ヺ一-龥A-Za-z0-9)）²³])\s?([×÷])\s?(?=[ぁ-ヺ一-龥0-9(（√])")
_PRODUCT = re.compile(r"(?<=[0-9][一-龥])\s?×\s?(?=[0-9])")
_AND_TAX = re.compile(r"(?<=[円人])\+(?=[一-龥])")
_OF_FORMULA = re.compile("[=÷]")
_RAISED = re.compile(r"(?<=[)）])([²³])")
_FOR_EACH = re.compile(
    rf"{_FREE}([0-9][0-9,]{{0,14}}(?:\.[0-9]+)?)([万億]?(?:円|ドル|ユーロ))/({alternatives(COUNTED_PER)})"
)
_FLOOR = re.compile(r"(?a)(?<![\w.])(B?)([1-9][0-9]?)F(?![A-Za-z0-9])")
_COUNTERS = (
    "人名個本枚台匹頭羽冊杯回度歳才年月日時分秒週円章節条項話巻号階番位点割倍段級組班部件社店校国都県市町村区丁畳坪歩膳着足軒棟基機両品種"
    "曲席泊駅代期世学平立箇通発問枠票勝敗打球周袋箱束皿缶斤合升字行文語色戸室錠粒滴房株輪頁件隻便桁次等限局弾幕拍編作兆億万千百"
)
"""Kanji that begin a counter; others after two numbers name the second side of a match."""
_OF_SCORE = re.compile(r"(?:スコア|ゲーム|セット|決勝|試合|結果|成績|勝敗|得点)[はがも]?[、:：]? ?\Z")
_SERIAL = re.compile(r"(?a)(?<=[A-Za-z]-)([0-9]+)(?=-[0-9])")
_ROOT = re.compile(r"√\s?(?=[0-9])")
_OUT_OF = re.compile(rf"{_FREE}([0-9]{{1,3}}(?:\.[0-9]{{1,2}})?)\s?/\s?([0-9]{{1,4}})点")
_PART_OF = re.compile(
    r"(?a)(?<![\w./,])(-?)([0-9]{1,4})/([0-9]{1,4})(?=以[上下]|程度|ほど|くらい|に減|に縮|の確率|の割合|の量|の大きさ|を占)"
)


def _code(place: Place, japanese: Japanese) -> ReadForm | None:
    """``〒100-0001``, ``1203号室``, ``No.1005``, ``110番``."""
    if found := place.match(_NAMED):
        return ReadForm(found.end(), _NAMES[found[1]])
    if found := place.match(_POST):
        words = japanese.grouped([japanese.telephone_digits(part) for part in found.groups()])
        return ReadForm(found.end(), f"郵便番号{words}")
    if found := place.match(_ROOM):
        return ReadForm(found.end(), japanese.digits(found[1]))
    if found := place.match(_PAGE):
        pages = [japanese.cardinal(page) for page in found.groups() if page]
        return ReadForm(found.end(), f"{japanese.to.join(pages)}ページ")
    if found := place.match(_VERSION):
        dot = "." if "." not in found[1] else ""
        return ReadForm(found.end(), dot + japanese.point.join(map(japanese.cardinal, found[1].split("."))))
    if found := place.match(_STOCK) or place.match(_LONG_NAME):
        return ReadForm(found.end(), japanese.digits(found[0]))
    found = place.match(_STATUS)
    if found and _STATUS_BEFORE.search(place.before):
        return ReadForm(found.end(), japanese.digits(found[0]))
    found = place.match(_MODEL)
    if found and _MODEL_BEFORE.search(place.before):
        return ReadForm(found.end(), japanese.digits(found[0]))
    if found := place.match(_NUMBERED):
        words = japanese.digits(found[1]) if len(found[1]) > 2 else japanese.cardinal(found[1])
        return ReadForm(found.end(), f".{words}")
    if found := place.match(_COUNTRY):
        return ReadForm(found.end(), f"{japanese.plus}{japanese.telephone_digits(found[1])}{japanese.pause}")
    if found := place.match(_AREA_IN_BRACKETS):
        return ReadForm(
            found.end(), japanese.grouped([japanese.telephone_digits(part) for part in found.groups()])
        )
    found = place.match(_PLATE)
    if found and _PLATE_BEFORE.search(place.before):
        return ReadForm(
            found.end(), found[1] + japanese.grouped([japanese.digits(found[2]), japanese.digits(found[3])])
        )
    found = place.match(_SERVICE)
    return ReadForm(found.end(), japanese.telephone_digits(found[1])) if found else None


def _weekday(place: Place, japanese: Japanese) -> ReadForm | None:
    """``3日(水)``: the day of the week in words."""
    found = place.match(_WEEKDAY)
    if not found or not _DATED.search(place.before):
        return None
    last = f"{japanese.to}{found[2]}曜日" if found[2] else ""
    return ReadForm(found.end(), f"{found[1]}曜日{last}{'祝日' if found[3] else ''}")


def _small(place: Place, japanese: Japanese) -> ReadForm | None:
    """``0時``, ``05月``, ``√2``, ``Ⅳ``, ``1ドル=150円``, ``7F``."""
    sign = place.text[place.start]
    if "Ⅰ" <= sign <= "Ⅻ":
        return ReadForm(place.start + 1, japanese.cardinal(str(ord(sign) - 0x215F)))
    if found := place.match(_ZERO_HOUR):
        return ReadForm(found.end(), "零")
    if found := place.match(_ROOT):
        return ReadForm(found.end(), japanese.root)
    if found := place.match(_RAISED):
        return ReadForm(found.end(), japanese.power("2" if found[1] == "²" else "3"))
    if found := place.match(_AND_TAX):
        return ReadForm(found.end(), japanese.plus)
    if found := place.match(_PRODUCT):
        return ReadForm(found.end(), japanese.by)
    found = place.match(_TIMES)
    if found and _OF_FORMULA.search(place.text, max(0, place.start - _REACH), place.start + _REACH):
        return ReadForm(found.end(), japanese.operations[found[1]])
    if found := place.match(_EQUAL):
        return ReadForm(found.end(), japanese.operations.get(found[1], "ニアリーイコール"))
    if found := place.match(_FLOOR):
        return ReadForm(found.end(), f"{'地下' if found[1] else ''}{japanese.cardinal(found[2])}階")
    found = place.match(_PADDED)
    return ReadForm(found.end(), japanese.cardinal(found[1])) if found else None


def _to(place: Place, japanese: Japanese) -> ReadForm | None:
    """The mark between the ends of a range."""
    if found := place.match(_WEEKDAYS):
        return ReadForm(found.end(), japanese.to)
    found = place.match(_TO)
    return ReadForm(found.end(), japanese.to) if found and _BEFORE_TO.search(place.before) else None


def _date(place: Place, japanese: Japanese) -> ReadForm | None:
    """``2008/08``, ``08.08``, ``11/5から``."""
    if found := place.match(_ERA):
        words = japanese.date(Date(int(found[4]), int(found[5]), int(found[2])))
        return ReadForm(found.end(), _ERAS[found[1]] + words)
    found = place.match(_DAYS)
    if found and "/" in found[0]:
        first, last = (Date(int(found[part]), int(found[part + 1])) for part in (1, 3))
        return ReadForm(found.end(), japanese.ranged(japanese.date(first), japanese.date(last)))
    if found := place.match(_YEAR_MONTH):
        return ReadForm(found.end(), japanese.date(Date(int(found[2]), None, int(found[1]))))
    if found := place.match(_MONTH_YEAR):
        return ReadForm(found.end(), japanese.date(Date(int(found[1]), None, int(found[2]))))
    found = place.match(_MONTH_DAY)
    if found and not found["sure"] and int(found[1]) < int(found[2]) <= 12:
        return None
    found = found or place.match(_PADDED_DAY) or place.match(_HYPHEN_DAY)
    if not found and _AFTER_SPAN.search(place.before):
        found = place.match(_ANY_DAY)
    return ReadForm(found.end(), japanese.date(Date(int(found[1]), int(found[2])))) if found else None


def _clock(place: Place, japanese: Japanese) -> ReadForm | None:
    """``PM 3:40``, ``25:30`` of late programmes."""
    if found := place.match(_HALF_BEFORE):
        half = japanese.halves[found[1].lower()]
        return ReadForm(found.end(), japanese.clock(Clock(int(found[2]), int(found[3]), half=half)))
    found = place.match(_LATE)
    return ReadForm(found.end(), japanese.clock(Clock(int(found[1]), int(found[2])))) if found else None


def _pair(place: Place, japanese: Japanese) -> ReadForm | None:
    """Two numbers with a hyphen: a score, a part of an address, a range or a difference."""
    if found := place.match(_SERIAL):
        return ReadForm(found.end(), japanese.cardinal(found[1]))
    found = place.match(_PAIR)
    if not found or any(
        part.startswith("0") and len(part) > 1 and "." not in part for part in found.groups()
    ):
        return None
    one, other = (japanese.number(japanese.numerals.parse(part)) for part in found.groups())
    end = found.end()
    if _SCORED.match(place.text, end) or _OF_SCORE.search(place.before) or _is_of_teams(place, end):
        return ReadForm(end, japanese.ratio(one, other))
    if _PLACE.search(place.before) or _FIGURE.search(place.before):
        return ReadForm(end, japanese.grouped([one, other]))
    if (
        place.before.endswith("第")
        or _LEVEL.search(place.before)
        or _COUNTED.match(place.text, end)
        or len(found[1]) > 3
    ):
        return ReadForm(end, japanese.ranged(one, other))
    if _TEAM.search(place.before) or "0" in found.groups():
        return ReadForm(end, japanese.ratio(one, other))
    return ReadForm(end, f"{one}{japanese.minus}{other}")


def _is_of_teams(place: Place, end: int) -> bool:
    """Whether names stand on both sides: ``日本2-1韓国``."""
    if place.before.endswith("第") or _LEVEL.search(place.before) or _PLACE.search(place.before):
        return False
    following = place.text[end : end + 1]
    names = "一" <= following <= "龥" and following not in _COUNTERS
    return names and bool(_TEAM.search(place.before))


def _part(place: Place, japanese: Japanese) -> ReadForm | None:
    """``1/10以下``, ``9/10点``, ``500円/回``."""
    if found := place.match(_FOR_EACH):
        number = japanese.number(japanese.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{COUNTED_PER[found[3]]}あたり{number}{found[2]}")
    if found := place.match(_OUT_OF):
        got = japanese.number(japanese.numerals.parse(found[1]))
        return ReadForm(found.end(), japanese.out_of(got, japanese.cardinal(found[2])))
    found = place.match(_STEP)
    if found and _STEP_BEFORE.search(place.before):
        return ReadForm(found.end(), f"{japanese.cardinal(found[2])}のうち{japanese.cardinal(found[1])}")
    found = place.match(_PRESSURE)
    if found and _PRESSURE_BEFORE.search(place.before):
        return ReadForm(found.end(), japanese.over(*map(japanese.cardinal, found.groups())))
    found = place.match(_PART_OF)
    if not found:
        return None
    words = japanese.fraction(int(found[2]), int(found[3]))
    return ReadForm(found.end(), f"{japanese.minus if found[1] else ''}{words}")


FORMS: tuple[Callable[[Place, Japanese], ReadForm | None], ...] = (
    _code,
    _date,
    _clock,
    _part,
    _pair,
    _weekday,
    _small,
    _to,
)
