"""Which language a text is in, as far as reading its numbers aloud needs to know."""

from __future__ import annotations

import re

from cosyvoice_runtime.errors import InvalidInput

AUTO = "auto"
UNDETERMINED = "und"

# The middle dot U+30FB and the long mark U+30FC also stand in Chinese text, so they don't count as kana.
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff6f\uff71-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3]")
_HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_CHINESE = frozenset({"zh", "yue", "cmn"})
_CHINESE_STYLE = frozenset({"zh", "ja"})


def detect(text: str) -> str:
    """``ja`` with kana, else ``ko`` with hangul, else ``zh`` with Han, else ``en`` if all letters are ASCII.

    Anything else is ``und``: its numbers are left for the model to read.
    """
    for language, script in (("ja", _KANA), ("ko", _HANGUL), ("zh", _HAN)):
        if script.search(text):
            return language
    letters = filter(str.isalpha, text)
    return "en" if all(map(str.isascii, letters)) else UNDETERMINED


def resolve(text: str, language: str) -> str:
    """The primary language subtag asked for (``zh-CN`` -> ``zh``), or for ``auto`` the detected one.

    Raises:
        InvalidInput: ``language`` is neither ``auto`` nor a language tag.
    """
    if language == AUTO:
        return detect(text)
    if not _TAG.fullmatch(language):
        raise InvalidInput("language", language, "give auto or a language tag such as zh, en, ja, de")
    primary = language.split("-")[0].lower()
    return "zh" if primary in _CHINESE else primary


def counts_characters(language: str) -> bool:
    """Whether segments of this language are measured in characters (one character is about one syllable)."""
    return language in _CHINESE_STYLE
