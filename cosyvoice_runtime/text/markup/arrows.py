"""The word for an arrow between two words of a line: ``black → brass``, ``3% → 5%``, ``2H₂ + O₂ → 2H₂O``."""

from __future__ import annotations

import re

REACH = 40
"""Characters on either side of an arrow that tell what it says."""
_WORDS = {"en": ("to", "yields"), "zh": ("到", "生成")}
"""Words for a way or a change, and for a reaction."""
_REVERSIBLE = {"en": "is in equilibrium with", "zh": "可逆生成"}
_BOTH_WAYS = re.compile("[\u21c4\u21cc\u21d4\u2194]\ufe0f?")
_FROM = re.compile("(?:^|[^\u4e00-\u9fff])从\\s?[\u4e00-\u9fffA-Za-z]{2,8}\\Z")
_RIGHT = re.compile("[\u2192\u21d2\u27a1\u2794\u279c\u279d\u279e\u27f6]\ufe0f?")
_LEVELS = {"↑": "up", "↓": "down", "⬆": "up", "⬇": "down", "▲": "up", "▼": "down"}
_LEVELS_OF_FIGURES = {"en": _LEVELS, "zh": {"↑": "上升", "↓": "下降", "▲": "上升", "▼": "下降"}}
_LINK = re.compile(r"(?i)\b(?:top|up|down|above|below|here|back|more|next|scroll|see)\W*\Z")
_LINKED = re.compile(r"(?i)\W*(?:back|to (?:the )?top|top|scroll|see|more|next)\b")
_BESIDE = re.compile(r"[^\W_]|[%$€£]")
_ELEMENTS = frozenset(
    re.findall(
        "[A-Za-z]+",
        "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Ti Cr Mn Fe Co Ni Cu Zn Br Kr Ag Cd Sn I Xe Cs "
        "Ba Pt Au Hg Pb Bi Rn Ra U Pu Th",
    )
)
_REAGENTS = frozenset(
    re.findall(
        "[a-z]+",
        "light sunlight heat energy electricity spark water oxygen hydrogen nitrogen dioxide carbon glucose "
        "sugar "
        "yeast acid base salt alcohol ethanol methane atp adp nadph enzyme catalyst fuel lactate pyruvate",
    )
)
"""Words that stand among the compounds of a reaction."""
_NUMBER = re.compile(r"\A[0-9]{1,2} (?=[A-Z(])")
_PARTS = re.compile(r"\s+|[，。；：、（）]|\+(?=[0-9A-Z(])")
_COMPOUND = re.compile(
    r"[0-9]{0,2}((?:\(?[A-Z][a-z]?\)?[0-9₀-₉]{0,2}){1,10})(?:[⁺⁻+-]|[²³⁴2-4][⁺⁻+]|\([a-z]{1,3}\)){0,2}"
)
_ION = re.compile("[A-Z][a-z]?[0-9₀-₉]{0,2}[²³⁴2-4]?[⁺⁻]")
_ELECTRONS = frozenset(f"{number}e{sign}" for number in ("", *"123456") for sign in "⁻-")
_ELEMENT = re.compile("[A-Z][a-z]?")
_FIGURE_BEFORE = re.compile(
    r"[0-9][0-9.,:/]*\s?(?:[A-Za-zµ%°℃²³/]{0,6}|[万亿]?美?元|[万亿度岁斤倍]|公斤)\*{0,2}\Z"
)
_FIGURE_AFTER = re.compile(r"\*{0,2}[$€£¥~<>≈+-]{0,2}v?[0-9]")
_LIMIT = re.compile(r"(?<![A-Za-z])[a-zθ]\Z")
_LIMIT_AFTER = re.compile("[-+]?(?:∞|[0-9a])")
_SIGNS = "*_`~ \t"
_PHRASE = re.compile(r"[.,;:!?()\[\]|•–—、，。；：！？（）\n]")
_WORD = re.compile(r"[^\W_][\w'’.+#/-]{0,24}")
_PATH = re.compile(
    r"(?i)\b(?:click|tap|go to|open|select|choose|press|navigate|settings|menu|file|edit|view|tools|help|"
    r"preferences|options|insert|format|window|system|account|profile|control panel|toggle|ctrl|cmd|"
    r"alt|shift)\b"
)
_CHINESE_PATH = re.compile(
    "打开|開啟|点击|點擊|点选|进入|進入|设置|設定|選擇|选择|菜单|选单|前往|依次|路径|我的|文件|工具|控制面板"
)
_STEP = re.compile(r"\s[>›]\s|(?<=[\u3400-\u9fff])[>›](?=[\u3400-\u9fff])")
_NAMED_BEFORE = re.compile(r"[^\W\d_][^\W_][)\]\"”’」』…]?\Z|[⋮☰⚙ⓘ]\ufe0f?\Z|[\u3400-\u9fff][)\"”」』]?\Z")
_NAMED_AFTER = re.compile(r"[(\[\"“‘「『]?(?:[^\W\d_a-z]|[a-z][^\W_])")
_SENTENCE = re.compile(r"[.!?;]\s|[。！？；]")
_SMALL_WORD = re.compile(r"(?<![\w])[a-z][\w'’-]*\Z")
_ASKED = frozenset(
    re.findall(
        "[A-Za-z]+",
        "add ask avoid buy call check click contact do drink eat enable fix follow get go install keep make "
        "move open press put read remove replace reset rest restart run see select sell set start stop take "
        "tap then try turn update use wait walk you we it this that they he she i there",
    )
)


def word(arrow: str, before: str, after: str, language: str) -> str:
    """The word for an arrow in a line; empty where it is a pause.

    Args:
        arrow: the signs that stand there.
        before: the line before it.
        after: the line after it, up to :data:`REACH` characters.
        language: tag of the language that is spoken there.
    """
    if level := _level(arrow.rstrip("\ufe0f"), before, after, language):
        return level
    is_reversible = bool(_BOTH_WAYS.fullmatch(arrow))
    if language not in _WORDS or not (is_reversible or _RIGHT.fullmatch(arrow)):
        return ""
    to, yields = _WORDS[language]
    before, after = before[-2 * REACH :].rstrip(_SIGNS), after[:REACH].lstrip(_SIGNS)
    if not before or not after:
        return ""
    last, first = (
        _PARTS.split(before)[-1].lstrip("(*_`"),
        _PARTS.split(_NUMBER.sub("", after))[0].rstrip(",.;:)*_`，。"),
    )
    if _is_reaction(last, first, before + after):
        return _REVERSIBLE[language] if is_reversible else yields
    if is_reversible:
        return ""
    if language == "zh" and _FROM.search(before):
        return to
    if re.search("[=<>≤≥≈]", _PHRASE.split(before)[-1]):
        return ""
    if _FIGURE_BEFORE.search(before) and _FIGURE_AFTER.match(after):
        return to
    if _LIMIT.search(before) and _LIMIT_AFTER.match(after):
        return to
    return to if language == "en" and _are_names(before, after) else ""


def is_step(before: str, after: str) -> bool:
    """Whether ``>`` stands between the steps of a menu: ``Settings > Wi-Fi``, no comparison.

    Args:
        before: the line before it.
        after: the line after it, up to :data:`REACH` characters.
    """
    before, after = _SENTENCE.split(before)[-1], _SENTENCE.split(after)[0]
    left, right = before.rstrip(_SIGNS), after.lstrip(_SIGNS)
    if not _NAMED_BEFORE.search(left) or not _NAMED_AFTER.match(right):
        return False
    if _STEP.search(before) or _STEP.search(after):
        return True
    told = _PATH.search(before) or _CHINESE_PATH.search(before)
    return bool(told) and not right[0].islower() and not _SMALL_WORD.search(left)


def said(words: str, language: str) -> str:
    """A formula with the words for its arrows; a comma for one that is a pause."""
    while found := re.search(" ?→ ?", words):
        before, after = words[: found.start()], words[found.end() :]
        spoken = word("→", before, after, language)
        words = f"{before} {spoken} {after}" if spoken else f"{before}, {after}"
    return words


def _level(arrow: str, before: str, after: str, language: str) -> str:
    """``↑ 12%``, ``price ↑, demand ↓``: what goes up or down; a link to the top of a page has a mere sign."""
    if arrow not in _LEVELS_OF_FIGURES.get(language, ()):
        return ""
    left, right = before.rstrip(_SIGNS), after.lstrip(_SIGNS)
    if _COMPOUND.fullmatch(_PARTS.split(before)[-1]) and _RIGHT.search(before):
        return ""
    if _FIGURE_AFTER.match(right):
        return _LEVELS_OF_FIGURES[language][arrow]
    if language != "en" or _LINK.search(left) or _LINKED.match(right):
        return ""
    return _LEVELS[arrow] if _BESIDE.match(left[-1:]) else ""


def _is_reaction(last: str, first: str, line: str) -> bool:
    """Whether compounds stand on both sides."""
    sides = [side for side in (last, first) if side.lower() not in _REAGENTS]
    if _ION.search(line):
        sides = [side for side in sides if side not in _ELECTRONS]
    compounds = [_COMPOUND.fullmatch(side) for side in sides]
    if not all(compounds) or not re.search(r"[0-9₀-₉]|[A-Za-z] \+ ", line):
        return False
    if len(compounds) < 2:
        return " + " in line
    return all(
        set(_ELEMENT.findall(found[1])) <= _ELEMENTS for found in compounds if found is not None
    ) and bool(re.search("[A-Z][a-z]?[A-Z0-9₀-₉]", last + " " + first) or _ION.search(line))


def _are_names(before: str, after: str) -> bool:
    """Whether a few words that are names of things stand on both sides, and no other arrow beside them."""
    left, right = _PHRASE.split(before)[-1], _PHRASE.split(after)[0]
    if _RIGHT.search(left + right) or _PATH.search(before):
        return False
    names, others = _WORD.findall(left), _WORD.findall(right)
    names = names[1:] if names and names[0] in ("and", "or", "from", "connect") else names
    if not names or not others or others[0].lower() in _ASKED:
        return False
    if _is_name(names[-1]) and _is_name(others[0]):
        return True
    return len(names) <= 2 and (len(others) == 1 or (len(others) <= 3 and all(map(_is_name, others))))


def _is_name(word: str) -> bool:
    return not word[0].islower()
