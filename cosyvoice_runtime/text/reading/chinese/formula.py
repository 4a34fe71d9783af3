"""Signs of formulae between letters, numbers and brackets: ``a+b=c``, ``3×10^8``, ``π≈3.14``, ``5-3=2``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.chinese.between import goes_on_to_equals
from cosyvoice_runtime.text.reading.languages import chinese_tables as tables
from cosyvoice_runtime.text.reading.languages.brackets import BEFORE_FACTOR, in_factor, is_range
from cosyvoice_runtime.text.reading.languages.chinese import CHINESE
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_WORDS = {
    "∠": "角", "△": "三角形", "∵": "因为", "∴": "所以", "∞": "无穷大", "∈": "属于", "⊥": "垂直于",
    "∥": "平行于", "∪": "并", "∩": "交", "≡": "恒等于", "∝": "正比于",
    "⌘": "Command", "⌥": "Option", "⌃": "Control",
}  # fmt: skip
"""Signs that always say the same."""
_TEMPO = re.compile(r"([♩♪])(\.?)\s?[=≈]\s?(?=[0-9])")
_NEGATIVE_LETTER = re.compile(r"(?:(?<![^=(（])|(?<=[=<>≤≥] ))[-−](?=[0-9]{0,3}[a-z](?![A-Za-z-]))")
_OF_LETTERS = re.compile(r"[±√²³^]|(?<![A-Za-z])[a-z] ?= ?[-−(（√]")
_LETTER_QUOTIENT = re.compile(r"(?:(?<![A-Za-z])[0-9]{0,3}[a-zA-Z]|[²³])\Z")
_LETTER_DIVISOR = re.compile(r"[0-9]{0,3}[a-zA-Z](?![A-Za-z0-9])")
_EQUAL_LETTERS = re.compile(r"[=≈]\s?[A-Za-z]{1,2}\Z")
_AMOUNT_BEFORE = re.compile(r"[0-9]\s?(?:k?Ω|[mk]?[VAW]|[NJm])\Z")
_AMOUNT_DIVISOR = re.compile(r"[0-9.]+\s?(?:k?Ω|[mk]?[VAW]|kg|[NJms])\s?[=≈]")
_SIGN = re.compile(r"\s?(?P<sign>>=|<=|!=|==|[+=×✕*·⋅÷<>≈≠≤≥±√xX/→−-])\s?")
_POWER = re.compile(
    r"(?<=[0-9A-Za-z)）])\^[({](?P<inner>[0-9]{0,3}[a-z]{1,2}|[a-z][-+][0-9])[)}]"
    r"|(?:\^|(?<=[0-9A-Za-z)])\*\*)\{?(?P<plain>[-−]?(?:[0-9]{1,4}|[a-z](?![a-z])))\}?|(?<=[a-z0-9)）])(?P<sign>[²³])"
)
_NEGATIVE_POWER = re.compile("(?<=[0-9a-z])⁻([⁰¹²³⁴-⁹]{1,3})")
_RAISED_PLUS = re.compile("(?<=[0-9])⁺([⁰¹²³⁴-⁹]{1,2})")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_NUMBER_BEFORE = re.compile(r"(?:[0-9)）%²³]|[0-9][A-Za-zμµ]{1,4})\Z")
_TERM_BEFORE = re.compile(r"(?:[0-9⌘⌥⌃)）|\]%²³α-ωΔΩ°℃]|[A-Za-z])\Z")
_LETTER_BEFORE = re.compile(r"(?<![A-Za-z0-9])(?:[0-9]*[a-zA-Z]|[α-ω])\Z")
_TERM_AFTER = re.compile(r"[¥$€]?[0-9]|[(（√∠|α-ω.]|[A-Za-z]|[-−±](?:[0-9]|[a-z](?![A-Za-z]))")
_LETTER_AFTER = re.compile(r"(?:[a-zA-Z]|[α-ω])(?![A-Za-z])|[0-9]")
_WITH_EQUALS = re.compile(r"[=≈]\s?(?:[0-9.]+\s?[-+×÷*/−]\s?){0,3}[0-9.]*\Z")
_AFTER_POWER = re.compile(r"[0-9]{0,4}[a-z]{0,3}(?:[-+−][0-9]{0,4}[a-z]{0,3})*(?![0-9A-Za-z])")
_POLYNOMIAL = re.compile(r"[a-z](?:²|³|\^[0-9]+)(?:[-+−][0-9]{0,4}[a-z]?)*\Z")
_LETTERS_EQUATION = re.compile(r"[0-9A-Za-z²³^]{1,6}(?:\s?[-+×÷*/−]\s?[0-9A-Za-z²³^]{1,6}){0,4}\s?[=≈<>≤≥]")
_IN_BRACKETS = re.compile(r"[(（|][0-9]{0,4}[a-z]\Z")
_TO_BRACKET = re.compile(r"[0-9a-z]{1,4}[)）|]")
_INSIDE_BARS = r"[-−]?[0-9a-zA-Z.]{1,6}(?:\s?[-+−]\s?[0-9a-zA-Z.]{1,6}){0,3}"
_MULTIPLIED = re.compile(r"(?<![A-Za-z0-9.])(?:[0-9]{0,3}[a-ekm-ortx-zπ]|[0-9]{1,3})[²³]?\Z|[)）]\Z")
_BRACKETED = re.compile(
    r"[(（]\s?[-−]?[0-9.]{0,5}[a-zA-Zπ]?[²³]?(?:\s?[-+−±]\s?[0-9.]{0,5}[a-zA-Zπ]?[²³]?){1,4}\s?[)）]"
)
_PRODUCT = re.compile(r"(?:[0-9)）²³]|(?<![A-Za-z0-9])[0-9]{0,3}[a-zπ]|[=·]\s?[A-Z])\Z")
_OF_PRODUCT = re.compile(r"[0-9(（]|[0-9]{0,3}(?:[a-zA-Zπ](?![A-Za-z])|sin|cos|tan|log|ln)")
_ADDEND = r"[0-9.]+%?(?:/[0-9.]+)?"
_SUM = re.compile(
    rf"[(（]\s?{_ADDEND}(?:(?P<plus>(?:\s?\+\s?{_ADDEND}){{1,5}})|(?:\s?[-−]\s?{_ADDEND}){{1,5}})\s?[)）]"
    rf"(?P<factor>{BEFORE_FACTOR})?"
)
_FACTOR_BEFORE = re.compile(r"(?P<factor>[×÷*]\s?)?(?<![0-9A-Za-z)）²³π])\Z")
_CONDITION = re.compile(r"\s?={1,3}\s?([加点高通催电光△][\u4e00-\u9fff]{0,5})\s?={1,3}>?\s?(?=[0-9A-Z])")
_MENU_BEFORE = re.compile(rf"(?:{tables.MENUS})(?:[^，。！？<=]*[A-Za-z\u4e00-\u9fff]{{2}})?[」”\"】\]]?\Z")
_MENU_AFTER = re.compile(r"[「“\"【\[]?[A-Za-z\u4e00-\u9fff]{2}")
_LOGARITHM = re.compile(r"(?<![A-Za-z])log_?\{?([0-9]{1,3}|[a-z])\}? ?(?=[(（]?[0-9A-Za-z])")
_OF_WORDS = re.compile(r"=[^，。；]*[)）\u4e00-\u9fff]\Z")
_WORDS_EQUAL = re.compile(r"[=≈][^，。；=]*[0-9)）%\u4e00-\u9fff]\Z")
_WORD_ON_A_SIDE = re.compile("[\u4e00-\u9fff][0-9（(\u4e00-\u9fff]|.[\u4e00-\u9fff]")
_INFINITE = re.compile(r"([-+−])∞")
_PART_OF_PI = re.compile(r"(?<![0-9A-Za-z./])([0-9]{0,2})π/([1-9][0-9]?)(?![0-9])")
_REST = re.compile(r"\s?(?:……?|\.{3,6})\s?(?=[0-9])")
_DIVIDED_BEFORE = re.compile(r"[0-9]\s?÷\s?[0-9]+\s?=\s?[0-9]+\Z")
_BAR = re.compile(rf"\|(?={_INSIDE_BARS}\|)")
_CLOSES_BARS = re.compile(rf"(?:^|[^0-9A-Za-z|])\|{_INSIDE_BARS}\Z")
_DIVIDED = re.compile(r"(?:[0-9a-z²³][)）]{1,2}|(?<![A-Za-z0-9])[0-9]{1,3})\Z")
_DIVISOR = re.compile(r"(?:[a-z](?![A-Za-z0-9])|[(（][0-9a-z])")
_OF_NAME = re.compile(r" [xX][0-9].*|X[0-9][A-Z].*")
_PERCENTAGE = re.compile(r"[0-9.]+\s?%")
_SINGLE = re.compile(r"(?:(?<![A-Za-z])[a-z]|[0-9)²³])\Z")
_DIAMETER = re.compile(r"[ΦØ]\s?(?=[0-9])")
_FACTORIAL = re.compile(r"[!！](?:\s?([=/×÷·])\s?|(?=[)）]))|(?<=[a-z0-9][)）])!(?=[，。；,\s]|$)")
_OF_FACTORIAL = re.compile(r"(?:(?<![A-Za-z])[a-zA-Z]|[0-9]|[(（][0-9a-z]\s?[-+−]\s?[0-9a-z][)）])\Z")
_ALL_UP_TO = re.compile(r"\s?([+×])\s?(?:\.{3,6}|…{1,2}|⋯{1,2})\s?[+×]\s?(?=[0-9a-zA-Z(（])")
"""The terms between the first of a sum and its last: ``1+2+...+100``."""
_POWER_SIGNS = re.compile("[0-9]+|[-+]")
_CHARGE = re.compile("(?P<of>[A-Z][a-z]?)?(?P<number>[²³⁴]|\\^[2-4])?(?P<sign>[⁺⁻])(?![⁰¹²³⁴-⁹])")
_CHARGED = re.compile(r"[A-Za-z0-9)]\Z")
"""The charge of an ion: ``Ca²⁺``."""
_CHARGES = str.maketrans("²³⁴234", "二三四二三四", "^")
_OPENED_NUMBER = re.compile(r"[(（][0-9.]+\s?\Z")
_WORD_CLOSES = re.compile("[\u4e00-\u9fff]{1,6}\\s?[)）]\\s?[×÷*/=]")
_OPENED_WORD = re.compile("[(（][\u4e00-\u9fff]{1,6}\\s?\\Z")
_NUMBER_CLOSES = re.compile(r"[0-9.]+%?\s?[)）]\s?[×÷*/=]")
_RISES = re.compile(r"(?:[涨升增]|增长|增加|上调)了?\s?\Z")
_OR_OLDER = re.compile(r"[0-9]\s?个月\Z")
_MORE = re.compile(r"\+\s?(?=[个位名人年家种条项次篇款件天万亿岁]|小时|分钟)")


def read(place: Place) -> ReadForm | None:
    """A sign of a formula in words."""
    language = place.language
    if (found := place.match(_CHARGE)) and (found["of"] or _CHARGED.search(place.before)):
        number = (found["number"] or "").translate(_CHARGES)
        return ReadForm(found.end(), f"{found['of'] or ''}{number}{'正' if found['sign'] == '⁺' else '负'}")
    if found := place.match(_POWER):
        if found["inner"]:
            return ReadForm(found.end(), f"的{_POWER_SIGNS.sub(_sign_of_power, found['inner'])}次方")
        if found["plain"]:
            return ReadForm(found.end(), language.power(found["plain"].replace("−", "-")))
        return ReadForm(found.end(), "平方" if found["sign"] == "²" else "立方")
    if found := place.match(_NEGATIVE_POWER):
        return ReadForm(found.end(), language.power(f"-{found[1].translate(_RAISED)}"))
    if (found := place.match(_ALL_UP_TO)) and re.search(r"[0-9a-zA-Z)）]\Z", place.before):
        return ReadForm(found.end(), "一直加到" if found[1] == "+" else "一直乘到")
    if found := place.match(_RAISED_PLUS):
        return ReadForm(found.end(), f"加{language.cardinal(found[1].translate(_RAISED))}")
    if found := place.match(_LOGARITHM):
        base = language.cardinal(found[1]) if found[1].isdecimal() else found[1]
        return ReadForm(found.end(), f"log以{base}为底")
    if found := place.match(_TEMPO):
        note = "四分音符" if found[1] == "♩" else "八分音符"
        return ReadForm(found.end(), f"{'附点' if found[2] else ''}{note}等于")
    if (found := place.match(_NEGATIVE_LETTER)) and place.near(_OF_LETTERS):
        return ReadForm(found.end(), language.minus)
    if found := place.match(_INFINITE):
        return ReadForm(found.end(), ("负" if found[1] in "-−" else "正") + "无穷大")
    if found := place.match(_DIAMETER):
        return ReadForm(found.end(), "直径")
    if (found := place.match(_FACTORIAL)) and _OF_FACTORIAL.search(place.before):
        return ReadForm(found.end(), "的阶乘" + (language.operations[found[1]] if found[1] else ""))
    if found := place.match(_PART_OF_PI):
        of = language.cardinal(found[2])
        return ReadForm(found.end(), f"{of}分之{language.cardinal(found[1]) if found[1] else ''}π")
    if found := place.match(_REST):
        return ReadForm(found.end(), "余") if _DIVIDED_BEFORE.search(place.before) else None
    if words := _WORDS.get(place.text[place.start]):
        return ReadForm(place.start + 1, words)
    if place.text[place.start] == "|":
        return _bar(place)
    if place.text[place.start] in "()（）" and (form := _bracket(place)):
        return form
    if place.match(_BRACKETED) and _MULTIPLIED.search(place.before):
        return ReadForm(place.start + 1, language.by + place.text[place.start])
    if found := place.match(_CONDITION):
        return ReadForm(found.end(), f"{language.pause}{found[1]}{language.pause}生成")
    found = place.match(_SIGN)
    if not found:
        return None
    sign = found["sign"]
    following = place.text[found.end() : found.end() + 24]
    if sign == "±" or sign == "√":
        return ReadForm(found.end(), language.operations[sign]) if _TERM_AFTER.match(following) else None
    if sign == "+":
        return _plus(place, found, following)
    before, is_tight = place.before, found[0] == sign
    if sign in "xX":
        is_sign = bool(_NUMBER_BEFORE.search(before) and following[:1].isdecimal())
        is_sign = is_sign and not _OF_NAME.fullmatch(found[0] + following[:3])
    elif sign in "-−":
        is_sign = _is_minus(place, found)
    elif sign == ">" and _MENU_BEFORE.search(before) and _MENU_AFTER.match(following):
        return ReadForm(found.end(), language.pause)
    elif sign in "·⋅":
        is_sign = bool(_PRODUCT.search(before) and _OF_PRODUCT.match(following))
    elif sign in "*/×✕÷":
        is_sign = _is_factor(place, found, following, is_tight)
    elif sign in "<>" or len(sign) == 2 or sign in "≤≥≈≠":
        is_word = re.match("[\u4e00-\u9fff]", following) and re.search("[\u4e00-\u9fff]\\Z", before)
        is_sign = bool(_TERM_AFTER.match(following) or is_word) and not re.search(r"[-=]\Z", before)
    elif sign == "→":
        is_sign = bool(re.search(r"[0-9]\Z", before) and following[:1].isdecimal())
    else:
        is_sign = bool(_TERM_BEFORE.search(before) or re.search("[\u4e00-\u9fff]\\Z", before)) and bool(
            _TERM_AFTER.match(following) or re.match("[\u4e00-\u9fff\"“'‘\\[{]", following)
        )
    return ReadForm(found.end(), language.operations[sign]) if is_sign else None


def _sign_of_power(found: re.Match[str]) -> str:
    """A sign or a number of an exponent in brackets."""
    return {"+": "加", "-": "减"}.get(found[0]) or CHINESE.cardinal(found[0])


def _bracket(place: Place) -> ReadForm | None:
    """The brackets around a sum or a difference that is multiplied: ``24×(1-1/3)``."""
    opened = place.start
    if place.text[opened] in ")）":
        opened = max(place.text.rfind(sign, max(0, opened - 24), opened) for sign in "(（")
    start = Place(place.text, max(0, opened), place.language)
    found, before = start.match(_SUM), _FACTOR_BEFORE.search(start.before)
    if (
        not found
        or not before
        or not (found["factor"] or before["factor"])
        or is_range(start.text, start.start)
    ):
        return None
    if opened == place.start:
        return ReadForm(place.start + 1, "")
    return ReadForm(place.start + 1, "的和" if found["plus"] else "的差")


def _bar(place: Place) -> ReadForm | None:
    """The bars around an absolute value."""
    if _CLOSES_BARS.search(place.before):
        return ReadForm(place.start + 1, "的绝对值")
    opens = place.match(_BAR) and not re.search(r"[0-9A-Za-z|]\Z", place.before)
    return ReadForm(place.start + 1, "") if opens else None


def _is_minus(place: Place, found: re.Match[str]) -> bool:
    """Whether a hyphen between two terms takes one from the other."""
    before, text = place.before, place.text
    if _WORDS_EQUAL.search(before) and _WORD_ON_A_SIDE.match(
        before[-1] + text[found.end() : found.end() + 1]
    ):
        return True
    following = text[found.end() : found.end() + 12]
    if (_OPENED_NUMBER.search(before) and _WORD_CLOSES.match(following)) or (
        _OPENED_WORD.search(before) and _NUMBER_CLOSES.match(following)
    ):
        return True
    if not _TERM_BEFORE.search(before) or not _LETTER_AFTER.match(text, found.end()):
        return False
    if found["sign"] == "−" or _WITH_EQUALS.search(before) or in_factor(place):
        return True
    if _POLYNOMIAL.search(before) and _AFTER_POWER.match(text, found.end()):
        return True
    if _IN_BRACKETS.search(before) and _TO_BRACKET.match(text, found.end()):
        return True
    if before[-1:].isdecimal() or before[-1:] in ")）²³|":
        return bool(goes_on_to_equals(text, found.end()) or _LETTERS_EQUATION.match(text, found.end()))
    return bool(_LETTER_BEFORE.search(before)) and bool(_LETTERS_EQUATION.match(text, found.end()))


def _is_factor(place: Place, found: re.Match[str], following: str, is_tight: bool) -> bool:
    """Whether a sign between two terms multiplies or divides them."""
    sign, before = found["sign"], place.before
    if sign in "×✕÷":
        return bool(_TERM_BEFORE.search(before) or re.search("[\u4e00-\u9fff]\\Z", before)) and bool(
            _TERM_AFTER.match(following) or re.match("[\u4e00-\u9fff]", following)
        )
    divides = _DIVISOR.match(following) or (before[-1:] in ")）" and following[:1].isdecimal())
    if sign == "/" and _OF_WORDS.search(before) and re.match("[\u4e00-\u9fff]", following):
        return True
    if found[0] == " / " and _SINGLE.search(before) and _DIVISOR.match(following):
        return place.near(_OF_LETTERS)
    if sign == "/" and divides and _DIVIDED.search(before):
        return True
    if sign == "/" and _AMOUNT_BEFORE.search(before) and _AMOUNT_DIVISOR.match(following):
        return True
    if sign == "/" and _EQUAL_LETTERS.search(before) and _LETTER_DIVISOR.match(following):
        return True
    if found[0] == " / " and _LETTER_QUOTIENT.search(before) and _LETTER_DIVISOR.match(following):
        return place.near(_OF_LETTERS)
    if sign == "/":
        return bool(_NUMBER_BEFORE.search(before) and goes_on_to_equals(place.text, found.end()))
    numbers = bool(_NUMBER_BEFORE.search(before) and re.match(r"[0-9(]", following))
    letters = is_tight and bool(_LETTER_BEFORE.search(before) and _LETTER_AFTER.match(following))
    return numbers or letters


def _plus(place: Place, found: re.Match[str], following: str) -> ReadForm | None:
    before = place.before
    if _RISES.search(before) and following[:1].isdecimal():
        return ReadForm(found.end(), "")
    if _OR_OLDER.search(before) and not re.match(r"[0-9\u4e00-\u9fffA-Za-z]", following):
        return ReadForm(place.start + len(found[0].rstrip()), "以上")
    if found[0] == " +" and _PERCENTAGE.match(following) and before[-1:].isalpha():
        return ReadForm(found.end(), "正")
    if before.endswith("+") or following.startswith("+"):
        return None
    if _TERM_BEFORE.search(before) and _TERM_AFTER.match(following):
        return ReadForm(found.end(), "加")
    if re.search("[A-Za-z]\\Z", before) and re.match("[\u4e00-\u9fff]{2}", following):
        return ReadForm(found.end(), "加")
    if re.search("[\u4e00-\u9fff]\\Z", before) and re.match(r"[\u4e00-\u9fffA-Za-z0-9]", following):
        return ReadForm(found.end(), "加")
    if re.search(
        r"(?:[0-9wkWK%万千百亿]|[0-9][年月天岁个元人条次米件]|[0-9](?:[cmk]?m|k?g|[GMT]B|h|min))\Z", before
    ):
        if more := place.match(_MORE):
            return ReadForm(more.end(), "多")
        return ReadForm(found.end(), "加")
    if re.match("[0-9]", following) and not re.search(r"[A-Za-z]\Z", before):
        return ReadForm(found.end(), "加" if re.search(r"[0-9]\Z", before) else "正")
    return None
