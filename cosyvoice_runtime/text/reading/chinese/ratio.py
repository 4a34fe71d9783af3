"""Results, ratios, marks and fractions: ``3-1胜``, ``16:9``, ``评分4.5/5``, ``3/4``, ``24/7``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import (
    NUMBER,
    RANGE,
    begins_equation,
    is_measured,
    is_score,
    parsed,
)
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.brackets import in_factor
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_RATIO = re.compile(
    rf"(?<![0-9A-Za-z./])(?<![0-9][:：])(?P<one>{NUMBER})\s?[:∶]\s?(?P<other>{NUMBER})"
    r"(?P<more>(?:[:：∶][0-9]+){0,3})(?![0-9]|[:：.][0-9])"
)
_LABEL_BEFORE = re.compile(r"[A-Za-z\u4e00-\u9fff] \Z")
_SLICE_BEFORE = re.compile(r"[A-Za-z]\[[0-9:, ]*\Z")
_LABELLED = re.compile(rf"\s?(?:[\"″”%元万]|英寸|[A-Za-z]{{2}}|{RANGE}[0-9])")
_LETTER = "[\u4e00-\u9fffA-Za-z]"
_OF_LETTERS = re.compile(rf"\s?[:：∶]\s?(?={_LETTER}(?:\s?[:：∶]\s?{_LETTER}){{0,2}}\s?=)")
_HAN = "[\u4e00-\u9fff]"
_OF_NAMES = re.compile(
    rf"\s?[:：∶]\s?(?=(?P<names>{_HAN}{{1,8}}(?:\s?[:：∶]\s?{_HAN}{{1,8}}){{0,3}})\s?[=＝]\s?"
    r"[0-9.]+(?P<others>(?:\s?[:：∶]\s?[0-9.]+){1,4})(?!\s?[:：∶.]?[0-9]))"
)
_NAME_BEFORE = re.compile(rf"{_HAN}(?<!比例|配比|配方|比值|如下)\Z")
_COLON = re.compile("[:：∶]")
_OF_AMOUNTS = re.compile(r"\s?[:：]\s?(?=[0-9.]+\s?(?:k?g|m[lL]|L|克|毫升|升)(?![A-Za-z]))")
_AMOUNT_BEFORE = re.compile(r"[0-9]\s?(?:k?g|m[lL]|L|克|毫升|升)\Z")
_LETTER_BEFORE = re.compile(rf"(?:(?<!{_LETTER}){_LETTER}|(?<![A-Za-z])[A-Za-z])\Z")
_RESULT = re.compile(
    r"(?<![0-9A-Za-z.:/-])(?P<one>[0-9]{1,3})\s?[-–—]\s?(?P<other>[0-9]{1,3})(?![0-9]|[-:.][0-9])"
)
_SLASHED = re.compile(
    rf"(?<![0-9A-Za-z./])(?:(?P<whole>[0-9]{{1,4}}) )?(?P<above>{NUMBER})\s?/\s?"
    r"(?P<below>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,9}(?:\.0)?)(?:(?P<unit>[kcm]m|m?g|kg|m[lL]|[LsmhW]|min)(?![A-Za-z]))?(?![0-9/]|(?![a-z]{1,2}(?:[²³^]|\s?[=+×<>]))[A-Za-z]|\.[0-9])(?P<to>-(?=[0-9]+/[0-9]))?"
)
_LIST = re.compile(r"(?<![0-9A-Za-z./])[0-9]{1,4}(?:/[0-9]{1,4}){2,6}(?![0-9A-Za-z/]|\.[0-9])")
_ALWAYS = {"24/7": "七乘二十四", "9/11": "九一一"}
_RATED = re.compile(rf"(?:{tables.RATED})[是为了高达：:]{{0,2}}\s?[（(]?\Z")
_OF_STUDIES = re.compile(
    r"(?:GPA|绩点|IELTS|雅思|TOEFL|托福|Reading|Listening|Speaking|Writing|听力|口语|阅读|写作)[^，。；、0-9]{0,8}\Z"
)
_NAMED = re.compile(r"[A-Za-z] ?\Z")
_OF_MARKS = re.compile(r"\s?分")
_STEP_BEFORE = re.compile(r"(?:排名|名次|步骤|进度|页码|阶段)[是为：:]?\s?\Z")
_PAGE_BEFORE = re.compile(r"第\s?\Z")
_SUBJECT = re.compile(
    r"(?:语文|数学|英语|物理|化学|生物|历史|地理|政治|文综|理综|总分|听力|阅读|写作|口语)[是为：:]?\s?\Z"
)
_BEAT = re.compile(r"(?:节拍|拍号|拍子)[是为：:]?\s?\Z")
_SHOTS = re.compile(r"(三分球?|罚球|投篮|[两二]分球|出手)[是为：:]?\s?\Z")
"""The kind of tries of a player, before the hits and all of them: ``罚球18/20``."""
_OF_SPACE = re.compile(rf"({NUMBER})\s?/\s?({NUMBER})(?=\s?[GMT]B(?![A-Za-z/]))")
_PAGES = ("页", "集", "章", "课", "步", "题", "关", "轮")
_SEASON = re.compile(
    r"(?<![0-9./])((?:19|20)[0-9]{2})\s?/\s?([0-9]{2}|(?:19|20)[0-9]{2})(?=\s?(?:赛季|学年|财年|年度|年))"
)


def read(place: Place) -> ReadForm | None:
    """Two numbers with a mark between them."""
    if (found := place.match(_OF_AMOUNTS)) and _AMOUNT_BEFORE.search(place.before):
        return ReadForm(found.end(), "比")
    if not place.text[place.start].isdecimal():
        found = _between_letters(place) or _between_names(place)
        return ReadForm(found.end(), "比") if found else None
    language = place.language
    found = place.match(_RATIO)
    if found and not (_LABEL_BEFORE.search(place.before) and _LABELLED.match(place.text, found.end())):
        if _SLICE_BEFORE.search(place.before):
            return ReadForm(
                found.end(), language.ranged(*map(language.cardinal, (found["one"], found["other"])))
            )
        numbers = [found["one"], found["other"], *re.findall("[0-9]+", found["more"])]
        return ReadForm(found.end(), "比".join(language.number(parsed(one, language)) for one in numbers))
    found = place.match(_RESULT)
    if found and is_score(place, found.end()):
        return ReadForm(found.end(), language.ratio(*map(language.cardinal, (found["one"], found["other"]))))
    if found := place.match(_SEASON):
        return ReadForm(found.end(), language.ranged(*map(language.digits, found.groups())))
    if found := place.match(_LIST):
        return ReadForm(found.end(), language.pause.join(map(_alone, found[0].split("/"), [place] * 9)))
    if found := place.match(_OF_SPACE):
        return ReadForm(
            found.end(), "，共".join(language.number(parsed(each, language)) for each in found.groups())
        )
    found = place.match(_SLASHED)
    if not found or (
        begins_equation(place)
        and parsed(found["above"], language).value >= parsed(found["below"], language).value
    ):
        return None
    if found["to"] and (begins_equation(place) or in_factor(place)):
        return ReadForm(found.start("to"), _slashed(found, place))
    return ReadForm(found.end(), _slashed(found, place) + (language.to if found["to"] else ""))


def _between_letters(place: Place) -> re.Match[str] | None:
    return place.match(_OF_LETTERS) if _LETTER_BEFORE.search(place.before) else None


def _between_names(place: Place) -> re.Match[str] | None:
    """``：`` of ``泥炭土：珍珠石=2：1``, where each name has a number."""
    found = place.match(_OF_NAMES)
    if not found or not _NAME_BEFORE.search(place.before):
        return None
    more = len(_COLON.findall(found["others"])) - len(_COLON.findall(found["names"])) - 1
    return found if 0 <= more <= len(_COLON.findall(place.before)) else None


def _slashed(found: re.Match[str], place: Place) -> str:
    language = place.language
    above, below = parsed(found["above"], language), parsed(found["below"], language)
    words = language.number(above), language.cardinal(below.whole)
    if found[0] in _ALWAYS:
        return _ALWAYS[found[0]]
    if found["whole"]:
        fraction = language.fraction(above.value, below.value)
        return language.mixed(language.cardinal(found["whole"]), fraction)
    is_study = bool(_OF_STUDIES.search(place.before))
    is_rated = is_study or (below.value > 8 and bool(_SUBJECT.search(place.before)))
    is_rated = is_rated or (
        below.value in (5, 10, 100)
        and (not above.is_whole or above.value == below.value or bool(_RATED.search(place.before)))
    )
    following = place.text[found.end() : found.end() + 3].lstrip()
    is_of_marks = bool(_OF_MARKS.match(place.text, found.end()))
    if is_rated and (is_of_marks or not is_measured(place.text, found.end())):
        return language.out_of(*words).removesuffix("分" if is_of_marks else "")
    if following.startswith("拍"):
        return "".join(reversed(words))
    if _BEAT.search(place.before):
        return f"{words[1]}{words[0]}拍"
    if above.value <= below.value and following.startswith("层"):
        return f"{words[0]}层，共{words[1]}"
    if _STEP_BEFORE.search(place.before):
        return f"{words[0]}，共{words[1]}"
    if _PAGE_BEFORE.search(place.before) and place.text[found.end() : found.end() + 1] in _PAGES:
        return f"{words[0]}{place.text[found.end()]}，共{words[1]}"
    if not above.is_whole:
        return f"{words[0]}斜杠{words[1]}"
    if _NAMED.search(place.before):
        return language.pause.join(words)
    if above.value == below.value or is_score(place, found.end()):
        return language.ratio(*words)
    shots = _SHOTS.search(place.before)
    if shots and above.value <= below.value:
        return f"{words[1]}{'罚' if shots[1] == '罚球' else '投'}{words[0]}中"
    if {found["above"], found["below"]} & set(tables.DIGIT_NAMES) or (
        above.value > below.value and (above.value > 20 or below.value > 9)
    ):
        return language.pause.join(_alone(each, place) for each in (found["above"], found["below"]))
    unit = language.units[found["unit"]].one if found["unit"] else ""
    if unit and min(above.value, below.value) > 9:
        return language.pause.join(words) + unit
    return (
        language.fraction(above.value, below.value) if below.value else f"{words[0]}斜杠{words[1]}"
    ) + unit


def _alone(number: str, place: Place) -> str:
    return place.language.digits(number) if number in tables.DIGIT_NAMES else place.language.cardinal(number)
